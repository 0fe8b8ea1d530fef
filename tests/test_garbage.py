"""Python's search for cycles waits while a report is built, and goes on afterwards as it was."""

from __future__ import annotations

import gc
import sys
import threading

import pytest
import torch

import tensormagic as tm
from tensormagic.reports.base import gc_paused
from tensormagic.views.page import files


@pytest.fixture(autouse=True)
def _as_it_was():
    before = gc.isenabled()
    yield
    (gc.enable if before else gc.disable)()


def test_it_waits_inside_and_goes_on_outside():
    """Also where one block stands in another, and where the block raises."""
    gc.enable()
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_who_had_it_off_has_it_off():
    """It is not switched on by being told to go on."""
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


def test_nothing_changes_on_another_thread():
    """There the user's own code goes on meanwhile, and may ask, or decide for itself."""
    gc.enable()
    found = []

    def look():
        with gc_paused():
            found.append(gc.isenabled())
            gc.disable()
        found.append(gc.isenabled())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True, False]


def _searched_in(names, run):
    """Return those of the functions of these names that a search for cycles began in, while ``run`` ran."""
    found = set()

    def note(phase, _info):
        frame = sys._getframe(1) if phase == "start" else None
        while frame is not None:
            found.update({frame.f_code.co_name} & names)
            frame = frame.f_back

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        run()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    return found


def test_none_begins_while_a_pass_is_put_together_or_a_report_drawn():
    """Of a large graph each search takes half a second; it begins in the user's own code, as before."""

    def run():
        w = torch.ones(3, requires_grad=True)
        with tm.trace() as trace:
            (w / 0 * 0).sum().backward()
        files.bundle(trace.report)

    gc.enable()
    mine = {"_keep_pass", "_births", "_or_reason", "diagnosed"}
    assert _searched_in({*mine, "run"}, run) == {"run"}
