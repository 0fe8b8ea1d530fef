"""What live panels stand on: how often a run is looked at, the short way of messages, the panel of %%gpumem."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import Session

from tensormagic.reports import MemoryFrame
from tensormagic.views.page import live, sampler
from tensormagic.views.page.live import Wire
from tensormagic.views.page.live_memory import MemoryPanel
from tensormagic.views.page.sampler import FASTEST, HANDED_ON, SHARE, SLOWEST, THREAD_SWITCH, Pace
from tests.views.samples_memory_run import SAMPLES


class Clock:
    """A processor's clock that is set by hand."""

    now = 5.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    """A clock that stands."""
    return Clock()


@pytest.mark.parametrize(
    ("looks", "interval"),
    [
        ([0.0001], FASTEST),
        ([0.001], (0.001 + HANDED_ON + 2 * THREAD_SWITCH) / SHARE),
        ([3.0], SLOWEST),
        ([0.05, *[0.0001] * 40], FASTEST),
    ],
    ids=["cheap", "dear", "far too dear", "one dear look is forgotten again"],
)
def test_looks_are_taken_as_often_as_their_cost_allows(clock, looks, interval):
    """Thirty times a second, less often where looking, and handing on, would take more than its share of the time.

    Four times a second at least, whatever it costs: a panel that does not move says nothing.
    """
    pace = Pace(clock=clock)
    assert (pace.interval, FASTEST, SLOWEST) == (1 / 30, 1 / 30, 1 / 4)
    for seconds in looks:
        with pace:
            clock.now += seconds
    assert pace.interval == pytest.approx(interval, rel=1e-12)
    assert FASTEST <= pace.interval <= SLOWEST


def test_what_a_look_takes_comes_off_the_wait(clock):
    """Thirty looks a second are thirty, also where each takes some milliseconds, or begins late."""
    pace = Pace(wall=clock)
    clock.now += pace.rest(0.04)
    for late in (0.0, 0.003, 0.012, 0.001):
        begun = clock.now
        clock.now += late
        assert clock.now + pace.rest(0.04) == pytest.approx(begun + 0.04)
        clock.now = begun + 0.04


def test_looks_that_were_missed_are_not_made_up_for(clock):
    """After a look that took a second the next one comes after half a wait at least, and the pace is as before."""
    pace = Pace(wall=clock)
    clock.now += pace.rest(0.04)
    clock.now += 1.0
    waits = []
    for _ in range(3):
        waits.append(pace.rest(0.04))
        clock.now += waits[-1]
    assert waits == pytest.approx([0.02, 0.04, 0.04])


@pytest.mark.parametrize(("seconds", "apart", "error", "cost"), [(0.0501, 0.05, "", 0.0001), (0.002, 0.0, "no", 0.002)])
def test_the_cost_of_a_look_is_its_own(clock, seconds, apart, error, cost):
    """A document of 50 ms, which is bounded elsewhere, slows no look; what went wrong has cost what it has cost."""
    pace = Pace(clock=clock)
    with pytest.raises(ValueError, match="no") if error else nullcontext(), pace:
        clock.now += seconds
        pace.set_apart(apart)
        if error:
            raise ValueError(error)
    assert pace.cost == pytest.approx(cost)


def test_the_cost_is_that_of_the_sampling_thread():
    """The processor time of the thread that looks, not the time that passes or what the run computes."""
    assert Pace().clock is sampler.time.thread_time


PARENT = {"header": {"msg_id": "the cell", "msg_type": "execute_request"}}


def _comm(session: Session) -> Any:
    """A kernel's channel, which keeps what is sent."""
    sent: list[list[bytes]] = []
    socket = SimpleNamespace(sent=sent, send_multipart=sent.append)
    kernel = SimpleNamespace(session=session, iopub_socket=socket, get_parent=lambda: PARENT)
    return SimpleNamespace(kernel=kernel, comm_id="abc", topic=b"comm-abc")


def _widget(comm: Any) -> Any:
    """A widget with a kernel's channel, or any other; what it sends by itself is kept."""
    plain: list[tuple[Any, list[bytes]]] = []
    return SimpleNamespace(comm=comm, plain=plain, send=lambda content, buffers: plain.append((content, buffers)))


@pytest.fixture
def session() -> Session:
    """What packs and signs a kernel's messages."""
    return Session(key=b"secret")


@pytest.mark.parametrize("key", [b"secret", b""])
def test_messages_are_read_as_a_widgets_own_are(key: bytes) -> None:
    """Address, signature, type, parent and content are those of `Widget.send`; the buffer is its own."""
    widget = _widget(_comm(Session(key=key)))
    Wire(widget).send(b"12345678")
    reader = Session(key=key)
    to, rest = reader.feed_identities(widget.comm.kernel.iopub_socket.sent[0])
    message = reader.deserialize(rest)
    assert to == [b"comm-abc"]
    assert message["header"]["msg_type"] == "comm_msg"
    assert message["parent_header"] == PARENT["header"]
    assert message["content"] == {"comm_id": "abc", "data": {"method": "custom", "content": {}}}
    assert [bytes(one) for one in message["buffers"]] == [b"12345678"]
    assert widget.plain == []


def test_every_message_has_a_number_and_a_signature_of_its_own(session: Session) -> None:
    """A reader refuses one that it has seen: all of a run go by the same reader."""
    widget, reader = _widget(_comm(session)), Session(key=b"secret")
    wire = Wire(widget)
    for at in range(12):
        wire.send(bytes([at]))
    sent = widget.comm.kernel.iopub_socket.sent
    messages = [reader.deserialize(reader.feed_identities(parts)[1]) for parts in sent]
    assert len({message["header"]["msg_id"] for message in messages}) == 12
    assert [bytes(message["buffers"][0])[0] for message in messages] == list(range(12))


@pytest.mark.parametrize("comm", [None, SimpleNamespace(comm_id="of another kernel")])
def test_other_kernels_get_what_the_widget_sends(comm: Any) -> None:
    """Without a Jupyter kernel's channel the widget's own way is taken, every time."""
    widget = _widget(comm)
    wire = Wire(widget)
    wire.send(b"1")
    wire.send(b"2")
    assert widget.plain == [({}, [b"1"]), ({}, [b"2"])]


def test_messages_that_are_no_json_are_left_to_the_session(session: Session) -> None:
    """A kernel may pack its messages otherwise: then nothing is put into them."""
    session.pack = lambda found: b"\x80" + repr(found).encode()
    widget = _widget(_comm(session))
    Wire(widget).send(b"1")
    assert (widget.plain, widget.comm.kernel.iopub_socket.sent) == ([({}, [b"1"])], [])


# What keeps the second message from the short way, by what is done to the widget before it.
IN_THE_WAY = {
    "it fails": lambda widget, _: setattr(widget.comm.kernel.iopub_socket, "send_multipart", None),
    "somebody closed all widgets while the cell runs": lambda widget, _: setattr(widget, "comm", None),
    "Jupyter's session sends nothing from a forked child": lambda _, patch: patch.setattr(
        live.os, "getpid", lambda: -1
    ),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_cannot_go_the_short_way_goes_the_long_one(case: str, session: Session, monkeypatch) -> None:
    """The message is not lost: the widget knows what to do with it."""
    comm = _comm(session)
    widget = _widget(comm)
    wire = Wire(widget)
    wire.send(b"1")
    IN_THE_WAY[case](widget, monkeypatch)
    wire.send(b"2")
    assert (len(comm.kernel.iopub_socket.sent), widget.plain) == (1, [({}, [b"2"])])


class RecordingPage:
    """A widget that remembers what it was given."""

    def __init__(self):
        self.sent, self.documents, self.closed = [], [], False

    def send(self, message):
        self.sent.append(message)

    @property
    def _document(self):
        return self.documents[-1]

    @_document.setter
    def _document(self, document):
        self.documents.append(document)

    def close(self):
        self.closed = True


class MemoryRun:
    """A run that is where a test puts it, and a clock that a test sets."""

    def __init__(self):
        self.frame, self.now, self.page = MemoryFrame(0.5, 10, 4096, 8192, 3, "cell 1, line 3"), 100.0, RecordingPage()
        self.panel = MemoryPanel(
            lambda: self.frame, lambda: SAMPLES["training"], widget=self.page, clock=lambda: self.now
        )

    def goes_on(self, *, seconds):
        self.now += seconds
        self.frame = replace(self.frame, operations=self.frame.operations + 1, live=self.frame.live + 1)
        self.panel.tick()


@pytest.fixture
def run():
    return MemoryRun()


def test_a_look_sends_the_numbers_and_the_first_panel(run):
    """Numbers for the line, words beside it, the panel as markup."""
    run.panel.tick()
    words = ("4 KiB alive", "peak 8 KiB · 10 operations · line 3")
    assert run.page.sent == [{"seconds": 0.5, "live": 4096, "peak": 8192, "words": words}]
    assert 'class="tm tm-memory"' in run.page.documents[0]["html"]


def test_what_stands_still_is_not_sent_again(run):
    """Neither numbers nor panel, however long it stands; time alone is no news."""
    run.panel.tick()
    run.now += 60
    run.frame = replace(run.frame, seconds=60.5)
    run.panel.tick()
    assert (len(run.page.sent), len(run.page.documents)) == (1, 1)


def test_numbers_come_at_every_look_and_panels_once_a_second(run):
    """Thirty looks in two seconds and a half: thirty times numbers, three panels, which cost nothing here."""
    run.panel.pace.clock = lambda: 0.0
    for _ in range(30):
        run.goes_on(seconds=2.5 / 30)
    assert (len(run.page.sent), len(run.page.documents)) == (30, 3)


def test_a_panel_that_takes_long_comes_seldom(run):
    """Half a second of the processor to make: the next one no sooner than 25 seconds later."""
    processor = {"now": 0.0}
    run.panel.pace.clock = lambda: processor["now"]

    def report():
        processor["now"] += 0.5
        return SAMPLES["training"]

    run.panel._report = report
    run.goes_on(seconds=1)
    run.goes_on(seconds=24)
    assert len(run.page.documents) == 1
    run.goes_on(seconds=2)
    assert len(run.page.documents) == 2


def test_the_end_is_shown_at_once(run):
    """The last look does not wait for its time."""
    with run.panel:
        pass
    run.frame = replace(run.frame, operations=999, running=False)
    run.panel.tick(final=True)
    assert "999 operations" in run.page.sent[-1]["words"][1]


def test_errors_do_not_reach_the_run(run):
    """They become a gap, once."""
    run.page.send = lambda _message: 1 / 0
    for _ in range(3):
        run.goes_on(seconds=1)
    assert [gap.reason for gap in run.panel.gaps] == ["ZeroDivisionError: division by zero"]


def test_the_widget_stays_until_the_next_run_ends(run):
    """A page that was closed meanwhile needs it when it is opened again; then it goes."""
    run.panel.retire()
    assert not run.page.closed
    live.dismiss_retired()
    assert run.page.closed
