"""The line that allocated a storage: told where a run or CUDA's allocator saw it, and never a line that did not."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.memory import live_tensors as lines_module
from tensormagic.collectors.memory.live_tensors import Origin, line_of, note_lines, noted_line
from tensormagic.collectors.objects.identity import Marks
from tensormagic.reports import Location

HERE = Location("cell.py", 3, "x = torch.zeros(4)")


def told(**names):
    """Return the text of the line that allocated each storage with a name, by name; with a mark for a backward's."""
    found = {one.name: one for one in tm.memory(names, only=names).storages}
    return {
        name: one.location and ("backward: " * one.backward + one.location.text)
        for name, one in found.items()
    }  # fmt: skip


def test_what_a_run_saw_is_told_afterwards():
    """Each storage has the line that allocated it: in the forward, in a backward, in an optimizer's step."""
    net, before = nn.Linear(3, 2), torch.zeros(5)
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
    with tm.track_memory():
        x = torch.ones(4, 3)
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
    found = told(net=net, x=x, loss=loss, before=before, optimizer=optimizer)
    assert found["x"] == "x = torch.ones(4, 3)"
    assert found["loss"] == "loss = net(x).square().sum()"
    assert found["net.weight.grad"] == "backward: loss = net(x).square().sum()"
    assert found["optimizer.state[net.weight]['momentum_buffer']"] == "optimizer.step()"
    assert (found["before"], found["net.weight"]) == (None, None)


def test_a_storage_without_memory_hides_no_line():
    """The tangent of a constant is zeros that torch does not store: their storage has no address."""
    with tm.track_memory() as run:
        _, tangent = torch.func.jvp(nn.Linear(3, 2), (torch.ones(4, 3),), (torch.ones(4, 3),))
        x = torch.ones(4, 3)
    assert run.report.gaps == ()
    assert told(x=x, tangent=tangent)["x"] == "x = torch.ones(4, 3)"


def test_a_later_run_tells_the_lines_of_an_earlier_one():
    """What was there before a run keeps the line that another run has seen."""
    with tm.track_memory():
        early = torch.zeros(7)
    with tm.track_memory(namespace={"early": early}) as run:
        torch.zeros(3)
    (found,) = [one for one in run.report.at_end if one.name == "early"]
    assert found.location.text == "early = torch.zeros(7)"


def test_no_line_where_the_memory_was_made_elsewhere():
    """What only lies over an array, was met in a view, or has been resized since, has no line."""
    hidden, ours = torch.from_numpy(np.zeros(6)), torch.zeros(6)
    with tm.track_memory():
        array = torch.from_numpy(np.zeros(9))
        hidden[2:]
        ours[2:]
        grown = torch.zeros(2)
        grown.resize_(50)
        copied = torch.tensor([1.0, 2.0])
        later = torch.zeros(8)
    later.resize_(80)
    found = told(array=array, hidden=hidden, grown=grown, copied=copied, later=later, ours=ours)
    assert [found[name] for name in ("array", "hidden", "ours", "grown", "later")] == [None] * 5
    assert found["copied"] == "copied = torch.tensor([1.0, 2.0])"


def test_nothing_is_kept_and_an_address_that_is_used_again_has_no_line():
    """What was noted dies with its storage; another storage at the same place has a line of its own, or none."""
    gc.collect()
    before = len(lines_module._noted)
    storages = [torch.zeros(10).untyped_storage() for _ in range(50)]
    note_lines((storage, Origin(HERE)) for storage in storages)
    assert noted_line(storages[7]) == Origin(HERE)
    assert len(lines_module._noted) == before + 50
    gone = weakref.ref(storages[0])
    storages.clear()
    assert gone() is None
    assert len(lines_module._noted) == before
    assert [noted_line(torch.zeros(10).untyped_storage()) for _ in range(50)] == [None] * 50


def test_memory_that_is_new_since_has_no_line():
    """A storage moved to shared memory, or grown, is not what the line allocated."""
    moved, grown = torch.zeros(16), torch.zeros(4)
    note_lines((x.untyped_storage(), Origin(HERE)) for x in (moved, grown))
    grown.untyped_storage().resize_(400)
    moved.share_memory_()
    assert [noted_line(x.untyped_storage()) for x in (moved, grown)] == [None, None]


def test_the_oldest_are_forgotten(monkeypatch):
    """No more are remembered than the bound says."""
    monkeypatch.setattr(lines_module, "_noted", Marks(3))
    every = [torch.zeros(at + 1) for at in range(5)]
    note_lines((x.untyped_storage(), Origin(HERE)) for x in every)
    assert [noted_line(x.untyped_storage()) for x in every] == [None, None, *[Origin(HERE)] * 3]


class Somewhere:
    """What reads like a storage on a GPU."""

    def __init__(self, address, kind="cuda"):
        self._cdata, self.device, self._address = -1, torch.device(kind), address

    def data_ptr(self):
        """Return where it begins."""
        return self._address


def cuda(**asked):
    """Return what reads like ``torch.cuda`` in use, whose allocator knows the stack of one block."""
    frames = [
        {"filename": torch.__file__, "line": 9, "name": "linear"},
        {"filename": __file__, "line": 3, "name": "forward"},
        {"filename": __file__, "line": 1, "name": "<module>"},
    ]
    memory = SimpleNamespace(_allocation_traceback=lambda address: frames if address == 512 else None)
    return SimpleNamespace(is_initialized=lambda: True, memory=memory, **asked)


def test_the_allocator_of_cuda_is_asked_where_it_records():
    """The innermost line of the user's on its stack counts; elsewhere, and without a recording, none does."""
    found = line_of(Somewhere(512), cuda(), lambda: True).location
    assert (found.filename, found.line, found.function) == (__file__, 3, "forward")
    assert line_of(Somewhere(1024), cuda(), lambda: True) is None
    assert line_of(Somewhere(512, "cpu"), cuda(), lambda: True) is None
    assert line_of(Somewhere(512), cuda(), lambda: False) is None
    assert line_of(Somewhere(512), SimpleNamespace(is_initialized=lambda: False), lambda: True) is None


def test_an_allocator_without_a_history_hides_nothing():
    """Of ``cudaMallocAsync`` torch does not even say whether it records: it raises, and no line is known."""

    def refuses():
        raise RuntimeError("cudaMallocAsync does not yet support recordHistory.")

    assert line_of(Somewhere(512), cuda(), refuses) is None


def test_a_stack_of_libraries_alone_is_no_line():
    """Where no frame is the user's own, and where torch raises, nothing is told."""
    there = cuda()
    there.memory._allocation_traceback = lambda _: [{"filename": torch.__file__, "line": 9, "name": "linear"}]
    assert line_of(Somewhere(512), there, lambda: True) is None

    def refuses(_address):
        raise RuntimeError("no history")

    there.memory._allocation_traceback = refuses
    assert line_of(Somewhere(512), there, lambda: True) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_real_allocator_tells_the_line():
    """With torch's history on, a tensor made outside of any run has its line."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
    try:
        x = torch.zeros(1000, device="cuda")
        assert told(x=x) == {"x": 'x = torch.zeros(1000, device="cuda")'}
    finally:
        torch.cuda.memory._record_memory_history(None)
