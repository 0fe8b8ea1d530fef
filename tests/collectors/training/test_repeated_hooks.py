"""Hooks that stand several times on one leaf or module when a run ends: which are the same, and which are not told."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import tensormagic as tm

CELL = """
def hook(module, inputs, output):
    return output * 0.5
net.register_forward_hook(hook)
"""


def hooks_of(net, steps=1, each_step=lambda: None):
    """Trace some steps; return what is told of hooks."""
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(steps):
            each_step()
            net(torch.ones(2, 3)).sum().backward()
    return trace.report.hooks


def keep(*_given):
    """Change nothing."""


def test_a_cell_that_was_run_again_has_put_the_same_hook_there():
    """Its function is another object of another code object, and equal."""
    names = {"net": nn.Linear(3, 2)}
    for number in range(3):
        exec(compile(CELL, f"<cell {number}>", "exec"), names)
    (found,) = hooks_of(names["net"])
    assert (found.kind, found.function, found.on, found.targets, found.times) == ("forward", "hook", ("net",), 1, 3)
    assert found.same
    assert found.changes
    assert not found.grown


@pytest.mark.parametrize(
    ("kind", "register"),
    [
        ("tensor", lambda net, hook: net.weight.register_hook(hook)),
        ("post-accumulate", lambda net, hook: net.weight.register_post_accumulate_grad_hook(hook)),
        ("forward", nn.Module.register_forward_hook),
        ("forward pre", nn.Module.register_forward_pre_hook),
        ("full backward", nn.Module.register_full_backward_hook),
        ("full backward pre", nn.Module.register_full_backward_pre_hook),
    ],
)
def test_every_kind_of_hook_is_known(kind, register):
    """On what it stands, and that it came twice."""
    net = nn.Linear(3, 2)
    for _ in range(2):
        register(net, keep)
    (found,) = hooks_of(net)
    assert (found.kind, found.times, found.changes) == (kind, 2, False)
    assert found.location.text == "def keep(*_given):"


def test_what_a_loop_registers_in_each_step_is_counted_from_the_first_backward():
    """With the line that registered it in the run."""
    net = nn.Linear(3, 2)
    (found,) = hooks_of(net, 4, lambda: [p.register_hook(lambda g: g / 2) for p in net.parameters()])
    assert (found.on, found.targets, found.times, found.grown) == (("net.weight", "net.bias"), 2, 4, 3)
    assert found.changes
    assert "p.register_hook(lambda g: g / 2)" in found.registered.text


def scaled(factor):
    """Return a hook with a closure."""
    return lambda g: g * factor


def called(function):
    """Return a hook with a function in its closure."""
    return lambda g: function(g, None)


class Keeper:
    """Has a hook as a method, and is one."""

    def keep(self, _gradient):
        pass

    def __call__(self, _gradient):
        pass


ONE = Keeper()
ALIKE = {
    "closures of one value": (scaled(2), scaled(2)),
    "closures of one function": (called(keep), called(keep)),
    "partials": (functools.partial(keep, 1), functools.partial(keep, 1)),
    "a method": (ONE.keep, ONE.keep),
    "an object": (ONE, ONE),
    "what a decorator made": (torch.no_grad()(keep), torch.no_grad()(keep)),
}
DIFFERENT = {
    "closures of two values": (scaled(2), scaled(3)),
    "closures of two tensors": (scaled(torch.ones(2, 3)), scaled(torch.ones(2, 3))),
    "partials": (functools.partial(keep, 1), functools.partial(keep, 2)),
    "methods of two": (Keeper().keep, Keeper().keep),
    "two objects": (Keeper(), Keeper()),
    "of a library": (torch.nn.functional.relu, torch.nn.functional.relu),
    "builtin": (print, print),
    "two numbers that are equal": (scaled(1), scaled(True)),
}


@pytest.mark.parametrize("hooks", ALIKE.values(), ids=ALIKE)
def test_the_same_function_is_known_again(hooks):
    """By its code, and by what it was given."""
    net = nn.Linear(3, 2)
    for hook in hooks:
        net.weight.register_hook(hook)
    assert [found.times for found in hooks_of(net)] == [2]


@pytest.mark.parametrize("hooks", DIFFERENT.values(), ids=DIFFERENT)
def test_different_hooks_are_left_alone(hooks):
    """One code, and other values; or no code of the user's."""
    net = nn.Linear(3, 2)
    for hook in hooks:
        net.weight.register_hook(hook)
    assert hooks_of(net) == ()


def test_nothing_is_kept_and_nothing_is_called():
    """An object whose comparison raises is never compared."""

    class Odd:
        def __eq__(self, _other):
            raise AssertionError

        __hash__ = None

    net, odd = nn.Linear(3, 2), Odd()
    for _ in range(2):
        net.weight.register_hook(lambda g, _odd=odd: None)
    (found,) = hooks_of(net)
    assert found.same


CHANGING = {
    "lambda g: g * 2": True, "lambda g: None": False, "lambda g: kept.append(g)": False, "lambda g: print(g)": False,
    "lambda g: g.mul_(2)": True, "lambda g: kept.__setitem__(0, g)": False,
}  # fmt: skip


@pytest.mark.parametrize("code", CHANGING)
def test_what_may_change_a_gradient_is_told_from_what_keeps_it(code):
    """By its code alone."""
    net = nn.Linear(3, 2)
    hook = eval(compile(code, "<cell 1>", "eval"), {"kept": {}, "print": lambda _: None})
    for _ in range(2):
        net.weight.register_hook(hook)
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.ones(2, 3))
    assert [found.changes for found in trace.report.hooks] == [CHANGING[code]]
