"""Python's search for cycles waits while a report is built, and goes on afterwards as it was."""

from __future__ import annotations

import gc
import threading

import pytest

from tensormagic.garbage import garbage_waits


@pytest.fixture(autouse=True)
def _as_it_was():
    before = gc.isenabled()
    yield
    (gc.enable if before else gc.disable)()


def test_it_waits_inside_and_goes_on_outside():
    """Also where one block stands in another, and where the block raises."""
    gc.enable()
    with garbage_waits:
        with garbage_waits:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), garbage_waits:
        raise KeyError
    assert gc.isenabled()


def test_who_had_it_off_has_it_off():
    """It is not switched on by being told to go on."""
    gc.disable()
    with garbage_waits:
        pass
    assert not gc.isenabled()


def test_several_threads_wait_for_the_last():
    """The one that leaves first does not switch it on under the other."""
    gc.enable()
    inside, leave = threading.Event(), threading.Event()

    def other():
        with garbage_waits:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    with garbage_waits:
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
