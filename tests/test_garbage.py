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


def test_nothing_changes_on_another_thread():
    """There the person's own code goes on meanwhile, and may ask, or decide for itself."""
    gc.enable()
    found = []

    def look():
        with garbage_waits:
            found.append(gc.isenabled())
            gc.disable()
        found.append(gc.isenabled())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True, False]
