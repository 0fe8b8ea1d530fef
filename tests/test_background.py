"""No thread of ours is alive while the process forks, and each goes on after it where it was."""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest

from tensormagic import background
from tensormagic.background import Background

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def told_by_a_fork(answer):
    """Return what a forked process says."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if not child:
        there.send(answer())
        os._exit(0)
    os.waitpid(child, 0)
    assert here.poll(5)
    return here.recv()


class Counted:
    """Runs until it is told to end; knows how often it was begun."""

    def __init__(self):
        self.begun = 0
        self.runs = threading.Event()

    def __call__(self, stopping):
        self.begun += 1
        self.runs.set()
        stopping.wait(30)


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "tm-test"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_it_ends_before_a_fork_and_goes_on_after_it():
    """Begun twice in the parent; in the child there is none, and stopping it there does nothing."""
    run = Counted()
    thread = Background(run, "tm-test")
    thread.start()
    assert run.runs.wait(10)
    run.runs.clear()
    seen = told_by_a_fork(lambda: (threads(), run.begun, thread.left_behind, thread.stop()))
    assert seen == ([], 1, True, True)
    assert run.runs.wait(10)
    assert threads() == ["tm-test"]
    assert run.begun == 2
    assert not thread.left_behind
    assert thread.stop(10)
    assert threads() == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_it_ends_though_nobody_keeps_it():
    """What began it may have forgotten it."""
    run = Counted()
    Background(run, "tm-test").start()
    assert run.runs.wait(10)
    run.runs.clear()
    assert told_by_a_fork(threads) == []
    assert run.runs.wait(10)
    assert run.begun == 2
    (kept,) = background._ALL
    assert kept.stop(10)


def test_one_that_has_ended_is_kept_by_nobody():
    """Neither by itself nor when it was stopped."""
    Background(lambda _: None, "tm-test").start()
    [thread.join(10) for thread in threading.enumerate() if thread.name == "tm-test"]
    stopped = Background(Counted(), "tm-test")
    stopped.start()
    assert stopped.stop(10)
    assert not background._ALL


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_what_was_stopped_stays_stopped():
    """A fork begins nothing that had ended."""
    run = Counted()
    thread = Background(run, "tm-test")
    thread.start()
    assert thread.stop(10)
    told_by_a_fork(lambda: None)
    assert threads() == []
    assert run.begun == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_thread_that_does_not_end_delays_a_fork_no_longer_than_that(monkeypatch):
    """It may wait for what the forking thread holds."""
    monkeypatch.setattr("tensormagic.background.LONGEST_WAIT", 0.05)
    go = threading.Event()
    thread = Background(lambda _: go.wait(30), "tm-test")
    thread.start()
    assert told_by_a_fork(lambda: "forked") == "forked"
    go.set()
    assert thread.stop(10)
