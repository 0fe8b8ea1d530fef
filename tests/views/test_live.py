"""The live panel: what it sends, when it sends nothing, and that it leaves the run alone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tensormagic.reports import LiveFrame, MemoryFrame, TraceReport
from tensormagic.views.page import live
from tensormagic.views.page.columns import pack_delta
from tensormagic.views.page.live import LivePanel, MemoryPanel, WidgetSender
from tensormagic.views.page.sampler import AROUND, FASTEST, SHARE, SLOWEST, THREAD_NAME
from tests.views import samples_viewer
from tests.views.samples_memory_run import SAMPLES


class Run:
    """A run by hand: what it looks like now, what time it is, what looking has cost, and all that was sent of it."""

    refresh = 2.0

    def __init__(self) -> None:
        self.whole = replace(samples_viewer.calm_run(2), state="running")
        self.now, self.spent = 100.0, 0.0
        self.frame = samples_viewer.live_frame(self.whole, 1, 4)
        self.sent: list[Any] = []

    def panel(self, sender: Any = None, *, interval: float | None = 30.0, **choices: Any) -> LivePanel:
        choices |= {"sender": sender, "interval": interval, "clock": lambda: self.now, "processor": lambda: self.spent}
        return LivePanel(lambda: self.frame, lambda: self.whole, **choices)

    def looked_at(self) -> LivePanel:
        """A panel that has sent what there is, which is forgotten."""
        panel = self.panel(self)
        panel.tick()
        self.sent.clear()
        return panel

    def documents(self) -> int:
        return [message[0] for message in self.sent].count("document")

    def document(self, report: TraceReport) -> None:
        self.sent.append(("document", report.title))

    def delta(self, frame: LiveFrame) -> None:
        self.sent.append(("delta", frame.pass_number, frame.reached))

    def close(self) -> None:
        self.sent.append(("close",))


@pytest.fixture
def run() -> Run:
    """A run with nothing sent of it yet."""
    return Run()


ALL = [("document", "digits-cnn"), ("delta", 1, 4)]


def test_nothing_is_sent_when_nothing_changed(run: Run) -> None:
    """Time alone is no change, not even with a NaN among the norms; a word every few seconds says that we are there.

    What did not change is sent again after four seconds, and once: a page that hears nothing is not told so.
    """
    run.frame.norms[0] = float("nan")
    panel = run.looked_at()
    run.now, run.frame = 103.9, replace(run.frame, seconds=4.0)
    panel.tick()
    assert run.sent == []
    for run.now in (104.0, 105.0, 107.0, 108.0):
        panel.tick()
    assert run.sent == [("delta", 1, 4), ("delta", 1, 4)]


@pytest.mark.parametrize(("looks", "grows"), [(30, True), (41, False)])
def test_documents_are_rebuilt_at_most_once_a_second(run: Run, looks: int, grows: bool) -> None:
    """A structure that keeps growing is sent whole once a second, one that stays after two, for findings and passes.

    Frames go on meanwhile.
    """
    panel = run.panel(run)
    for step in range(looks):
        run.now = 100 + step / 10
        run.frame = samples_viewer.live_frame(run.whole, 1 + step, step % 15, structure=step if grows else 1)
        panel.tick()
    assert (run.documents(), len(run.sent)) == (3, 3 + looks)


def test_slow_documents_are_built_less_often(run: Run) -> None:
    """A document that takes 0.2 s is built once in ten seconds: two percent of the time."""
    panel = run.panel(run)
    build = run.document

    def slow(report: TraceReport) -> None:
        run.spent += 0.2
        build(report)

    run.document = slow
    start = run.now
    while run.now < start + 30:
        run.now += 0.5
        run.frame = samples_viewer.live_frame(run.whole, int(run.now), 3, structure=int(run.now))
        panel.tick()
    assert run.documents() == 3


def test_thread_ends_with_the_panel(run: Run) -> None:
    """The sampler is a daemon of a known name while the panel runs, and gone afterwards; a second stop does nothing."""
    panel = run.panel(run, interval=0.001)
    panel.start()
    sampler = next(thread for thread in threading.enumerate() if thread.name == THREAD_NAME)
    assert sampler.daemon
    panel.stop()
    assert not sampler.is_alive()
    sent = len(run.sent)
    panel.stop()
    assert len(run.sent) == sent


def test_errors_do_not_reach_the_run(run: Run) -> None:
    """An exception while showing becomes one gap, however often it comes, and the next look tries again."""
    panel = run.panel(run)
    whole, run.whole = run.whole, None
    for now in (100.0, 110.0, 120.0):
        run.now = now
        panel.tick()
    assert [(gap.section, gap.reason[:14]) for gap in panel.gaps] == [("live panel", "AttributeError")]
    run.whole, run.now = whole, 130.0
    panel.tick()
    assert run.sent[-2:] == ALL


def test_exception_of_the_cell_goes_on(run: Run) -> None:
    """The panel stops, sends what changed after the last look, and lets the cell's own exception through."""

    def cell() -> None:
        run.frame = samples_viewer.live_frame(run.whole, 9, 15, structure=9)
        raise KeyError("the cell's own")

    with pytest.raises(KeyError, match="the cell's own"), run.panel(run):
        cell()
    assert run.sent == [("document", "digits-cnn"), ("delta", 9, 15)]


def test_html_mode_updates_static_html(run: Run) -> None:
    """Mode "html" replaces the output by static HTML four times a second at most, without a script.

    An update is at most 100 KB, however large the graph.
    """
    updates: list[dict[str, Any]] = []
    panel = run.panel(mode="html", update=updates.append)
    for step in range(20):
        run.now = 100 + 5 * step
        run.frame = samples_viewer.live_frame(run.whole, 1 + step // 2, 3)
        panel.tick()
    assert len(updates) == 10
    assert all("<script" not in bundle["text/html"] for bundle in updates)
    large = live.running_bundle(samples_viewer.large_run(2000, passes=3))
    assert all(len(bundle["text/html"]) <= 100_000 for bundle in (*updates, large))


def test_widget_gets_documents_and_binary_deltas(run: Run) -> None:
    """The widget holds the document, and a delta is one message with one buffer."""
    panel = run.panel()
    assert isinstance(panel.sender, WidgetSender)
    widget = panel.sender.widget
    messages: list[tuple[Any, Any]] = []
    widget.send = lambda content, buffers: messages.append((content, buffers))
    panel.tick()
    assert widget._document["state"] == "running"
    assert messages == [({}, [pack_delta(run.frame)])]
    assert len(messages[0][1][0]) == 8 * 13 + 4 * (15 + 6)
    view = panel.bundle()["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == widget.model_id
    panel.close()
    assert widget.comm is None


def test_widget_that_cannot_be_made_is_a_gap(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken widget installation leaves a gap, and the output is replaced by static HTML instead."""
    error = ImportError("no anywidget here")
    monkeypatch.setattr(live, "_trace_widgets", lambda: (_ for _ in ()).throw(error))
    updates: list[dict[str, Any]] = []
    panel = run.panel(update=updates.append)
    panel.tick()
    assert [gap.reason for gap in panel.gaps] == ["ImportError: no anywidget here"]
    assert sorted(panel.bundle()) == sorted(updates[0]) == ["text/html", "text/plain"]


def test_the_first_graph_is_sent_without_delay(run: Run) -> None:
    """Before the first backward the page shows all there is; the first graph then waits for no second to pass."""
    panel = run.panel(run)
    begun, run.frame = run.frame, replace(run.frame, graph=0, structure=0, norms=run.frame.norms[:0])
    panel.tick()
    assert run.sent == [("delta", 1, 4)]
    run.now, run.frame = 100.05, begun
    panel.tick()
    assert run.sent[1:] == ALL


def test_a_run_without_a_graph_sends_its_end(run: Run) -> None:
    """A cell without a backward has a last document all the same: it says how the cell ended."""
    run.frame = replace(run.frame, graph=0)
    with run.panel(run):
        pass
    assert ("document", "digits-cnn") in run.sent


@pytest.mark.parametrize(
    ("looks", "interval"),
    [
        ([0.0001], FASTEST),
        ([0.001], (0.001 + AROUND) / SHARE),
        ([3.0], SLOWEST),
        ([0.05, *[0.0001] * 40], FASTEST),
    ],
    ids=["cheap", "dear", "far too dear", "one dear look is forgotten again"],
)
def test_looks_are_taken_as_often_as_their_cost_allows(run: Run, looks: list[float], interval: float) -> None:
    """Thirty times a second, less often where looking, and handing on, would take more than its share of the time.

    Four times a second at least, whatever it costs: a panel that does not move says nothing. A document of half a
    second, which is bounded elsewhere, slows no look; what went wrong has cost what it has cost.
    """
    assert LivePanel(Run, Run, sender=live.Sender()).processor is time.thread_time, "of the thread that looks"
    panel, costs = run.panel(run, interval=None), iter(looks)
    assert (panel.interval, FASTEST, SLOWEST) == (1 / 30, 1 / 30, 1 / 4)

    def document(_report: TraceReport) -> None:
        run.spent += 0.5

    def delta(_frame: LiveFrame) -> None:
        run.spent += next(costs)
        raise ValueError("no page")

    run.document, run.delta = document, delta
    for _ in looks:
        panel.tick()
    assert panel.interval == pytest.approx(interval, rel=1e-9)


def test_what_a_look_takes_comes_off_the_wait_and_what_was_missed_is_not_made_up_for(run: Run) -> None:
    """Thirty looks a second are thirty, also where each takes some milliseconds, or begins late.

    After a look that took a second the next one comes after half a wait at least, and the pace is as before.
    """
    panel = run.panel(run, interval=0.04)
    run.now += panel.wait()
    for late in (0.0, 0.003, 0.012, 0.001):
        begun = run.now
        run.now += late
        assert run.now + panel.wait() == pytest.approx(begun + 0.04)
        run.now = begun + 0.04
    run.now += 1.0
    waits = []
    for _ in range(3):
        waits.append(panel.wait())
        run.now += waits[-1]
    assert waits == pytest.approx([0.02, 0.04, 0.04])


def test_a_retired_panel_keeps_its_widget_until_the_next_one_retires(run: Run) -> None:
    """A page that is opened again finds the last run as it ended; of older ones nothing is left."""
    live.dismiss_retired()
    first, second = run.panel(), run.panel()
    for panel in (first, second):
        panel.start()
        run.whole = replace(run.whole, state="finished")
        run.frame = replace(run.frame, structure=run.frame.structure + 1)
        panel.retire()
    assert isinstance(first.sender, WidgetSender)
    assert isinstance(second.sender, WidgetSender)
    assert first.sender.widget.comm is None
    assert second.sender.widget.comm is not None
    assert second.sender.widget._document["state"] == "finished"
    live.dismiss_retired()
    assert second.sender.widget.comm is None


def test_a_closed_panel_leaves_no_widget_behind(run: Run) -> None:
    """Neither its own nor that of its layout; no channel to the page stays open."""
    from comm import get_comm_manager
    from ipywidgets import Widget

    live.dismiss_retired()
    before, channels = set(Widget.get_manager_state()["state"]), set(get_comm_manager().comms)
    for _ in range(3):
        panel = run.panel()
        panel.start()
        panel.retire()
    live.dismiss_retired()
    assert set(Widget.get_manager_state()["state"]) == before
    assert set(get_comm_manager().comms) == channels


def test_a_widget_that_cannot_be_closed_does_not_stop_the_next(run: Run) -> None:
    """Its kernel may have gone."""

    def broken() -> None:
        raise RuntimeError("no kernel")

    run.close = broken
    run.panel(run).retire()
    live.dismiss_retired()
    assert live._retired == []


def test_warming_up_makes_no_widget() -> None:
    """It imports and reads, and opens nothing in the page."""
    from comm import get_comm_manager

    before = set(get_comm_manager().comms)
    live.preload()
    assert set(get_comm_manager().comms) == before
    assert live._trace_widgets.cache_info().currsize == 1


def test_a_run_that_rests_is_told_seldom_and_builds_no_document(run: Run) -> None:
    """Steps that go by untraced are a word four times a second at most; what is shown of the graph stays."""
    panel = run.panel(run)
    panel.tick()
    run.frame = replace(run.frame, running=False, paused=True, next_step=90)
    run.now += 5
    panel.tick()
    run.sent.clear()
    for step in range(20, 40):
        run.frame = replace(run.frame, step=step)
        run.now += 0.1
        panel.tick()
    assert {kind for kind, *_ in run.sent} == {"delta"}
    assert 5 <= len(run.sent) <= 9


class MemoryRun:
    """A run that is where a test puts it, a clock that a test sets, and a widget that remembers what it was given."""

    def __init__(self):
        self.frame, self.now = MemoryFrame(0.5, 10, 4096, 8192, 3, "cell 1, line 3"), 100.0
        self.sent, self.made = [], 0
        self.page = SimpleNamespace(send=self.sent.append, close=lambda: None)
        self.panel = MemoryPanel(lambda: self.frame, self.report, widget=self.page, clock=lambda: self.now)

    def report(self):
        self.made += 1
        return SAMPLES["training"]

    def goes_on(self, *, seconds):
        self.now += seconds
        self.frame = replace(self.frame, operations=self.frame.operations + 1, live=self.frame.live + 1)
        self.panel.tick()


def test_a_look_at_memory_sends_the_numbers_and_the_first_panel():
    """Numbers for the line, words beside it, the panel as markup; nothing again while it stands still."""
    run = MemoryRun()
    run.panel.tick()
    words = ("4 KiB alive", "peak 8 KiB · 10 operations · line 3")
    assert run.sent == [{"seconds": 0.5, "live": 4096, "peak": 8192, "words": words}]
    assert 'class="tm tm-memory"' in run.page._document["html"]
    run.now, run.frame = 160.0, replace(run.frame, seconds=60.5)
    run.panel.tick()
    assert (len(run.sent), run.made) == (1, 1), "time alone is no news"


def test_numbers_come_at_every_look_and_panels_once_a_second():
    """Thirty looks in two seconds and a half: thirty times numbers, three panels. The end does not wait for its time.

    How dear ones are made less often, and how errors become a gap, is the sampler's: it is tested above.
    """
    run = MemoryRun()
    run.panel.processor = lambda: 0.0
    for _ in range(30):
        run.goes_on(seconds=2.5 / 30)
    assert (len(run.sent), run.made) == (30, 3)
    run.frame = replace(run.frame, operations=999, running=False)
    run.panel.tick(final=True)
    assert "999 operations" in run.sent[-1]["words"][1]
    assert run.made == 4
