"""Runs end to the last step: in forked workers, on other threads, when nobody ends them, with signals in between."""

from __future__ import annotations

import gc
import os
import signal
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tensormagic as tm
from tensormagic.collectors.hooks import undo_stack
from tensormagic.collectors.hooks.undo_stack import SignalsWait, UndoStack

RUNS = (tm.trace, tm.track_memory, tm.watch_writes, tm.track_rng, tm.explain)


class Modes(Dataset):
    """How many modes are on where an item is read."""

    def __len__(self):
        return 2

    def __getitem__(self, at):
        return torch.tensor([torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()])


class Fails(Dataset):
    """Its items cannot be read."""

    def __len__(self):
        return 1

    def __getitem__(self, at):
        return torch.ones(3) @ torch.ones(4)


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="there are no forked processes here")
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_data_loaders_worker_is_not_followed(run):
    """No mode of the run is on in a forked process, and an error that it sends back has no frame of the package."""
    with run(namespace={}):
        modes = [item.tolist() for item in DataLoader(Modes(), num_workers=1, batch_size=None)]
    assert modes == [[0, 0], [0, 0]]
    with pytest.raises(RuntimeError) as raised, run(namespace={}):
        list(DataLoader(Fails(), num_workers=1, batch_size=None))
    assert "tensormagic" not in str(raised.value)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_run_that_nobody_ends(run):
    """A run that was entered and dropped ends with it."""
    before = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    left = run(namespace={})
    left.__enter__()
    del left
    gc.collect()
    assert (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()) == before
    with run(namespace={}):
        torch.ones(1)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_run_that_another_thread_ends(run):
    """What only its own thread can undo is undone there when the next one begins."""
    functions, dispatch = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    made = torch.autograd.function.BackwardCFunction.__init__  # replaced for every thread, so put back from any
    first = run(namespace={})
    first.__enter__()
    thread = threading.Thread(target=first.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert torch.autograd.function.BackwardCFunction.__init__ is made
    with run(namespace={}):
        assert torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack() == functions + dispatch + 1
    assert (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()) == (functions, dispatch)
    assert not undo_stack._left


def test_what_runs_after_another_thread_has_ended_the_run_is_not_followed():
    """Its modes may stay on the first thread's stacks until then, but nobody is told of anything."""
    x = torch.ones(3, requires_grad=True)
    first = tm.trace(namespace={}, level="ops", memory=True)
    first.__enter__()
    (x * 2).sum().backward()
    thread = threading.Thread(target=first.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    seen = first.report.to_dict()
    (x * torch.rand(3)).sum().backward()
    assert first.report.to_dict() == seen
    with tm.trace(namespace={}):
        pass
    assert not undo_stack._left


def test_signals_come_afterwards():
    """Handlers that are Python functions are called when the block has ended, and are what they were."""
    came = []

    def note(number, frame):
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        with SignalsWait():
            signal.raise_signal(signal.SIGINT)
            assert came == []
        assert came == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is note
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_sets_a_handler_meanwhile_keeps_it():
    """A handler that was set while signals wait stays."""

    def theirs(number, frame):
        pass

    before = signal.getsignal(signal.SIGINT)
    try:
        with SignalsWait():
            signal.signal(signal.SIGINT, theirs)
        assert signal.getsignal(signal.SIGINT) is theirs
    finally:
        signal.signal(signal.SIGINT, before)


def test_every_step_is_undone_whatever_the_others_do():
    """The last one first; an error does not keep the rest from it, and what was interrupted is undone once more."""
    done, interrupts = [], [KeyboardInterrupt()]

    def fails():
        done.append("fails")
        raise ValueError("a step that cannot be undone")

    def is_interrupted():
        done.append("interrupted")
        if interrupts:
            raise interrupts.pop()

    steps = UndoStack()
    with steps:
        steps.callback(done.append, "first")
        steps.callback(fails)
        steps.callback(is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        steps.close()
    assert done == ["interrupted", "interrupted", "fails", "first"]
    steps.close()


def test_what_fails_while_it_begins_is_undone():
    """The error goes on, and no step stays."""
    done = []

    def begin():
        with UndoStack() as steps:
            steps.callback(done.append, "first")
            raise KeyError("second")

    with pytest.raises(KeyError):
        begin()
    assert done == ["first"]
