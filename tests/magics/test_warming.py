"""What the first live panel needs is there before it is wanted, and nothing of it stays when the extension goes."""

from __future__ import annotations

import threading

import pytest

from tensormagic.magics import warming
from tensormagic.renderers import live


def running():
    return [thread for thread in threading.enumerate() if thread.name == "tensormagic-warming"]


def test_it_warms_up_and_ends(monkeypatch):
    """A thread that ends by itself."""
    warmed = threading.Event()
    monkeypatch.setattr(live, "warm_up", warmed.set)
    call_off = warming.warm_up_soon(delay=0.0)
    assert warmed.wait(30)
    call_off()
    assert running() == []


def test_it_can_be_called_off(monkeypatch):
    """Unloading at once leaves no thread, and nothing is imported."""
    monkeypatch.setattr(live, "warm_up", lambda: pytest.fail("it was called off"))
    warming.warm_up_soon(delay=60.0)()
    assert running() == []


def test_what_is_missing_is_no_error_here(monkeypatch):
    """The first panel will say what is missing."""

    def broken():
        raise ImportError("no anywidget")

    monkeypatch.setattr(live, "warm_up", broken)
    call_off = warming.warm_up_soon(delay=0.0)
    call_off()
    assert running() == []


def test_a_terminal_is_not_warmed_up(shell):
    """Without a kernel there is no panel."""
    assert running() == []
