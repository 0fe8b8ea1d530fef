"""The live panel of ``%%gpumem``: what it sends and when, and that it leaves the run alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.reports import MemoryFrame
from tensormagic.views.page import live
from tensormagic.views.page.live_memory import MemoryPanel
from tests.views.samples_memory_run import SAMPLES


class Page:
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


class Run:
    """A run that is where a test puts it, and a clock that a test sets."""

    def __init__(self):
        self.frame, self.now, self.page = MemoryFrame(0.5, 10, 4096, 8192, 3, "cell 1, line 3"), 100.0, Page()
        self.panel = MemoryPanel(
            lambda: self.frame, lambda: SAMPLES["training"], widget=self.page, clock=lambda: self.now
        )

    def goes_on(self, *, seconds):
        self.now += seconds
        self.frame = replace(self.frame, operations=self.frame.operations + 1, live=self.frame.live + 1)
        self.panel.tick()


@pytest.fixture
def run():
    return Run()


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
    """Thirty looks in two seconds and a half: thirty times numbers, three panels."""
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
