"""Torch's constructor of a user's class of tensors, which fails under a dispatch mode that does not know the class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic as tm


class Plain(torch.Tensor):
    """Nothing of its own."""


class WithNew(torch.Tensor):
    """Constructs as libraries do, tensordict's memory-mapped tensors among them."""

    def __new__(cls, data, extra=None):
        made = super().__new__(cls, data)
        made.extra = extra
        return made


class WithInit(torch.Tensor):
    """Is initialised."""

    def __init__(self, data):
        self.extra = type(data).__name__


class Box:
    """Holds a class."""

    kind = Plain


BOX, KINDS, ONE = Box(), {"plain": Plain}, Plain([1.0])

# Calls that stand in the source, where the class is read.
FORMS = {
    "list": lambda x: Plain([1.0, 2.0]),
    "range": lambda x: Plain(range(3)),
    "tensors": lambda x: Plain([x[0], x[1]]),
    "array": lambda x: Plain(np.ones(3, dtype=np.float32)),
    "tensor": lambda x: Plain(x),  # noqa: PLW0108
    "sizes": lambda x: Plain(2, 3).fill_(1),
    "size": lambda x: Plain(torch.Size([2])).zero_(),
    "nothing": lambda x: Plain(),
    "storage": lambda x: Plain(x.untyped_storage()),
    "__new__": lambda x: torch.Tensor.__new__(Plain, x),
    "with __new__": lambda x: WithNew(x, 3),
    "with __init__": lambda x: WithInit(x),  # noqa: PLW0108
    "attribute": lambda x: BOX.kind(x),  # noqa: PLW0108
    "item": lambda x: KINDS["plain"](x),  # noqa: PLW0108
    "type()": lambda x: type(ONE)(x),  # noqa: PLW0108
    "__class__": lambda x: ONE.__class__(x),  # noqa: PLW0108
    "argument": lambda x, kind=Plain: kind(x),
    "lines": lambda x: Plain(
        [
            1.0,
            2.0,
        ]
    ),
    "several": lambda x: [Plain(each) for each in (x, x)][1] + Plain(x),
    "a plain one": lambda x: torch.Tensor(x),  # noqa: PLW0108
    "computed with": lambda x: Plain(x).add_(1) * 2,
}


def seen(form, x):
    """Return what can be seen of a result."""
    made = form(x)
    grad = None
    if made.requires_grad:
        (grad,) = torch.autograd.grad(made.sum(), x)
    same = made.numel() > 0 and made.data_ptr() == x.data_ptr()
    facts = type(made), made.shape, made.dtype, made.tolist(), made.requires_grad, type(made.grad_fn).__name__
    return (*facts, made.is_leaf, made._version, x._version, getattr(made, "extra", None), same, grad)


@pytest.mark.parametrize(
    "follow",
    [
        tm.track_memory,
        tm.watch_writes,
        lambda: tm.trace(memory=True, writes=True, draws=True, forward=True, values=True),
    ],
    ids=["memory", "writes", "all"],
)
@pytest.mark.parametrize("requires_grad", [False, True], ids=["", "requires grad"])
@pytest.mark.parametrize("name", FORMS)
def test_a_constructed_tensor_is_what_it_is_without(name, requires_grad, follow):
    """Of the same class, with the same values, memory, history and versions."""
    if requires_grad and name == "computed with":
        pytest.skip("torch refuses to write in place to a leaf that requires grad")
    expected = seen(FORMS[name], torch.ones(3, requires_grad=requires_grad))
    with follow():
        found = seen(FORMS[name], torch.ones(3, requires_grad=requires_grad))
    assert str(found) == str(expected)


def test_without_this_torch_refuses():
    """What is worked around is there: where this fails, `constructed_by` can go."""

    class Idle(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Idle(), pytest.raises(RuntimeError, match="already associated to a python object of type Tensor"):
        Plain(torch.ones(3))


def test_modes_of_the_users_see_no_more_operations():
    """Giving the class is an operation of nobody's."""
    seen_by_mode = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen_by_mode.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(3)
    with Log(), tm.track_memory():
        made = Plain(x)
    assert type(made) is Plain
    assert made.data_ptr() == x.data_ptr()
    assert seen_by_mode == ["aten.alias.default"]
