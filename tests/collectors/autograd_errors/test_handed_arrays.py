"""Saved tensors that are changed through NumPy arrays: found by what lies in memory, whoever wrote; nothing is kept."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.autograd_errors import untracked_writes as handed_arrays
from tensormagic.collectors.autograd_errors.untracked_writes import PIECE, PIECES, NumpyAliases, checksum


def unseen(program):
    """Return of each tensor that was changed unseen: the op that saved it, its slot, its name, the line that shared."""
    with tm.trace(namespace={}) as trace:
        program()
    found = trace.report.silent_errors.unseen if trace.report.silent_errors is not None else ()
    return [(one.op, one.slot, one.name, one.writes[0].kind, one.writes[0].location.text) for one in found]


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def handed_out_after_it_was_saved():
    y = leaf(3).exp()
    a = y.detach().numpy()
    a += 1
    y.sum().backward()


def handed_out_before_it_was_saved():
    x = leaf(3)
    a = x.detach().numpy()
    y = x.square()
    a *= 2
    y.sum().backward()


def a_temporary_array():
    x = leaf(3)
    y = x.square()
    np.asarray(x.detach())[:] = 7
    y.sum().backward()


def made_of_an_array():
    a, w = np.ones(3, np.float32), leaf(3)
    x = torch.as_tensor(a)
    y = w * x
    a[1] = 5
    y.sum().backward()


FAULTS = {
    handed_out_after_it_was_saved: ("exp", "result", "y", "array", "a = y.detach().numpy()"),
    handed_out_before_it_was_saved: ("pow", "self", "x", "array", "a = x.detach().numpy()"),
    a_temporary_array: ("pow", "self", "x", "array", "np.asarray(x.detach())[:] = 7"),
    made_of_an_array: ("mul", "other", "x", "array", "x = torch.as_tensor(a)"),
}


@pytest.mark.parametrize(("program", "told"), FAULTS.items(), ids=[each.__name__ for each in FAULTS])
def test_what_is_found(program, told):
    """The node, what it saved, and the line that shared the memory."""
    assert unseen(program) == [told]


def a_copy():
    y = leaf(3).exp()
    a = y.detach().numpy().copy()
    a += 1
    y.sum().backward()


def another_dtype():
    y = leaf(3).exp()
    a = np.asarray(y.detach(), dtype=np.float64)
    a += 1
    y.sum().backward()


def put_back():
    y = leaf(3).exp()
    a = y.detach().numpy()
    a += 1
    a -= 1
    y.sum().backward()


def after_the_backward():
    for _ in range(2):
        y = leaf(3).exp()
        a = y.detach().numpy()
        y.sum().backward()
        a += 1


def another_part():
    memory = torch.ones(6)
    w = leaf(3)
    y = w * memory[:3]
    a = memory.numpy()
    a[3:] = 0
    y.sum().backward()


def before_it_was_saved():
    x = leaf(3)
    a = x.detach().numpy()
    a *= 2
    x.square().sum().backward()


def what_no_gradient_depends_on():
    x = torch.ones(3)
    y = leaf(3) + x
    a = x.numpy()
    a += 1
    y.sum().backward()


def a_node_that_is_not_reached():
    x, w = leaf(3), leaf(3)
    y = x.exp()
    a = y.detach().numpy()
    a += 1
    (w * 2).sum().backward()


def scaled_where_only_signs_count():
    x = leaf(3)
    y = (x * 2 - 1).relu()
    a = y.detach().numpy()
    a /= a.max() * 4
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def changed_for_another_use():
    x, w = torch.ones(3), leaf(3)
    y = w * x
    a = x.numpy()
    a *= 5
    z = w * x
    a /= 5
    y.sum().backward()
    del z


HEALTHY = (
    a_copy, another_dtype, put_back, after_the_backward, another_part, before_it_was_saved,
    what_no_gradient_depends_on, a_node_that_is_not_reached, changed_for_another_use,
    scaled_where_only_signs_count,
)  # fmt: skip


@pytest.mark.parametrize("program", HEALTHY, ids=[each.__name__ for each in HEALTHY])
def test_what_is_no_fault(program):
    """Copies, what was put back, other parts, other times, what does not matter."""
    assert unseen(program) == []


def test_a_write_that_autograd_has_seen_is_not_blamed_on_an_array():
    """Torch refuses: that is told, and nothing else."""

    def program():
        y = leaf(3).exp()
        y.detach().numpy()
        y += 1
        y.sum().backward()

    trace = tm.trace(namespace={})
    with pytest.raises(RuntimeError), trace:
        program()
    assert [one.code for one in trace.report.findings] == ["TM301"]


def test_the_bytes_of_large_memory_are_compared_in_pieces():
    """A change of everything is seen whatever the size; of small memory, that of a single byte."""
    small, large = np.zeros(PIECE * PIECES, np.uint8), np.zeros(40 * PIECE * PIECES + 5, np.uint8)
    for memory in (small, large):
        before = checksum(memory.ctypes.data, memory.nbytes)
        np.add(memory, 1, out=memory)
        assert checksum(memory.ctypes.data, memory.nbytes) != before
    for at in (0, 777, -1):
        before = checksum(small.ctypes.data, small.nbytes)
        small[at] += 1
        assert checksum(small.ctypes.data, small.nbytes) != before
    before = checksum(large.ctypes.data, large.nbytes)
    large[-1] += 1
    assert checksum(large.ctypes.data, large.nbytes) != before


def test_nothing_is_kept():
    """Neither the tensor nor its array outlives its names, and what was given back is not read."""
    watched = []
    with tm.trace(namespace={}):
        y = leaf(300).exp()
        a = y.detach().numpy()
        z = y * 2
        watched += [weakref.ref(y), weakref.ref(a)]
        del y, a, z
        gc.collect()
        assert [one() for one in watched] == [None, None]
        (leaf(300) * 2).sum().backward()


def test_what_is_remembered_is_bounded(monkeypatch):
    """An array that is gone is not followed any more; of many the last are."""
    monkeypatch.setattr(handed_arrays, "MOST_FOLLOWED", 3)
    arrays, frame = NumpyAliases(_Sites()), None
    tensors = [torch.ones(2) for _ in range(5)]
    held = [x.numpy() for x in tensors]
    for x, a in zip(tensors, held, strict=True):
        arrays.handed("numpy", x, a, frame)
    assert list(arrays.marks) == [x.data_ptr() for x in tensors[2:]]
    held.clear()
    del a
    assert arrays.marks == {}
    copied = tensors[0].numpy().copy()
    arrays.handed("asarray", tensors[0], copied, frame)
    assert arrays.marks == {}


def test_an_array_can_be_resized_when_its_tensor_is_gone():
    """NumPy refuses that of an array that somebody refers to, weakly too."""
    a = np.ones(3, np.float32)
    with tm.trace(namespace={}):
        x = torch.as_tensor(a)
        (leaf(3) * x).sum().backward()
        del x
        a.resize(6)
    assert a.tolist() == [1, 1, 1, 0, 0, 0]


class _Sites:
    """Knows no lines."""

    def of_frame(self, _frame):
        return None


def test_memory_that_was_replaced_is_not_read():
    """A storage that has got other memory since is passed over."""
    arrays = NumpyAliases(_Sites())
    x = torch.ones(4)
    arrays.handed("numpy", x, x.numpy(), None)
    x.untyped_storage().share_memory_()
    assert not arrays.concern([0])
