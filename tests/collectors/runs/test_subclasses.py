"""Tensors of the user's own classes: a trace follows their graph, and does not run their code to measure."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.utils import _pytree

import tensormagic as tm
from tensormagic.collectors.runs.sampled_trace import standing_norms
from tensormagic.collectors.training.stepping import probes_of
from tensormagic.reports import UNREADABLE, UNTOUCHED

asked: list[str] = []


class Wrapped(torch.Tensor):
    """Has no memory of its own; notes what it is asked."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, _types, args=(), kwargs=None):
        asked.append(str(func))
        args, kwargs = _pytree.tree_map_only(Wrapped, lambda x: x.inner, (args, kwargs or {}))
        return _pytree.tree_map_only(torch.Tensor, Wrapped, func(*args, **kwargs))


class Noting(torch.Tensor):
    """A plain tensor that notes which functions are called with it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class WrappedParameter(torch.nn.Parameter, Wrapped):
    """A wrapper behind torch's own class of parameters, which has no ``__torch_dispatch__`` that would stand before."""

    def __new__(cls, inner):
        return Wrapped.__new__(cls, inner)

    def __init__(self, inner):
        Wrapped.__init__(self, inner)


def train(made):
    """Return what the class was asked for by three steps of the user's."""
    w = made.requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.1)
    asked.clear()
    for _ in range(3):
        optimizer.zero_grad()
        (w * 2).exp().sum().backward()
        optimizer.step()
    return Counter(asked)


@pytest.mark.parametrize("options", [{}, {"forward": True}], ids=["", "forward"])
def test_a_class_that_answers_itself_is_not_asked(options):
    """Its code runs as often as without a trace, but for one look at what the graph saved; the gap says so."""
    alone = train(Wrapped(torch.ones(3)))
    with tm.trace(**options) as trace:
        traced = train(Wrapped(torch.ones(3)))
    assert traced - alone == Counter({"aten.detach.default": 1})
    assert alone - traced == Counter()
    assert [one.outcome for one in trace.report.passes] == ["finished"] * 3
    assert [node.op for node in trace.report.nodes] == ["accumulate", "mul", "exp", "sum"]
    (series,) = trace.report.parameters
    assert set(series.norms) == {UNREADABLE}
    reasons = [gap.reason for gap in trace.report.gaps]
    why = "only code of its class Wrapped can read its values, and a trace does not run that code"
    assert f"some gradients could not be measured: {why}" in reasons
    assert not any("not followed" in reason for reason in reasons)


def test_a_gradient_that_several_bring_is_not_asked():
    """What each of two uses brings is measured apart, but for such a class."""

    def twice(x):
        asked.clear()
        (x * 2 + x * 3).sum().backward()
        return Counter(asked)

    alone = twice(Wrapped(torch.ones(3)).requires_grad_())
    with tm.trace():
        traced = twice(Wrapped(torch.ones(3)).requires_grad_())
    assert traced == alone


def test_what_stands_in_grad_is_not_asked():
    """Neither for its norm, where steps are passed over, nor as a probe of what an optimizer finds."""
    w, plain = Wrapped(torch.ones(3)).requires_grad_(), torch.ones(2, requires_grad=True)
    w.grad = Wrapped(torch.ones(3))
    asked.clear()
    assert list(standing_norms([w, plain, None])) == [UNREADABLE, UNTOUCHED, UNTOUCHED]
    assert [one.parameter() is plain for one in probes_of([w, plain])] == [True]
    assert asked == []


def test_a_class_with_functions_of_its_own_is_measured():
    """Where kernels answer, everything is measured, and the class is asked nothing."""
    alone = train(torch.ones(3).as_subclass(Noting))
    with tm.trace() as trace:
        traced = train(torch.ones(3).as_subclass(Noting))
    assert traced == alone
    assert trace.report.passes[0].value == pytest.approx(3 * torch.e**2)
    assert trace.report.parameters[0].norms[0] == pytest.approx(2 * torch.e**2 * 3**0.5)


def test_a_wrapper_that_is_a_parameter_is_read_from_its_inner_tensors():
    """Its class answers for it, although torch's own stands before: that code is not run to show it."""
    x = WrappedParameter(torch.ones(3))
    asked.clear()
    report = tm.inspect(x)
    assert asked == []
    assert (report.kinds[0].key, report.statistics.of_what) == (
        "wrapper_subclass",
        "the 3 values of its inner tensor inner",
    )
    assert [one.name for one in tm.memory({"x": x}).storages if "x" in one.name.split(".")] == ["x.inner"]
