"""Tensors of the user's own classes: a trace follows their graph, and does not run their code to measure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from torch.overrides import handle_torch_function, has_torch_function
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


class Lone(Wrapped):
    """Hands plain tensors back: what follows is measured, with nodes that have saved such a one."""

    @classmethod
    def __torch_dispatch__(cls, func, _types, args=(), kwargs=None):
        asked.append(str(func))
        args, kwargs = _pytree.tree_map_only(Wrapped, lambda x: x.inner, (args, kwargs or {}))
        return func(*args, **kwargs)


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
    """Its code runs as often as without a trace; the gap says so."""
    alone = train(Wrapped(torch.ones(3)))
    with tm.trace(**options) as trace:
        traced = train(Wrapped(torch.ones(3)))
    assert traced == alone
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


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize(
    "operation", [torch.div, lambda x, w: (x * w.log()).log(), torch.xlogy], ids=["div", "log", ""]
)
def test_what_a_graph_has_saved_is_not_asked(operation, value):
    """Neither where a gradient is not finite, nor in the search for what made the loss so."""

    def once(w):
        asked.clear()
        operation(torch.ones(3, requires_grad=True) * 2, w).sum().backward()
        return Counter(asked)

    alone = once(Lone(torch.full((3,), value)).requires_grad_())
    with tm.trace() as trace:
        traced = once(Lone(torch.full((3,), value)).requires_grad_())
    assert traced == alone
    assert [one.outcome for one in trace.report.passes] == ["finished"]


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


def test_a_gradient_that_only_its_class_reads_is_not_called_fine():
    """Nothing is known of its values: neither is the class asked for them, nor is anything claimed of them."""
    w = Wrapped(torch.ones(3)).requires_grad_()
    w.grad = Wrapped(torch.full((3,), float("nan")))
    asked.clear()
    report = tm.why(w, "w", namespace={"w": w})
    assert asked == []
    assert (report.reason, report.answer) == ("unread", "w.grad is there, but its values could not be read.")
    assert "grad not read" in str(report)


def test_a_slice_of_a_wrapper_is_refused_for_what_it_is():
    """It calls itself strided, but has no memory."""
    with pytest.raises(tm.TensorMagicError, match="plain strided tensor, but w is not: wrapper subclass"):
        tm.inspect(Wrapped(torch.ones(3, 3)), "w", at=(0, ":"))


def test_a_check_of_a_model_asks_its_parameters_nothing():
    """Their class may have functions of its own."""
    net = torch.nn.Linear(2, 2)
    net.weight = torch.nn.Parameter(net.weight.detach().as_subclass(Noting))
    asked.clear()
    tm.check(net)
    assert asked == []


@dataclass
class Scaled:
    """A function of a library's that asks its argument first, as torch's protocol says; equal by value: no hash."""

    factor: float

    def __call__(self, x):
        return handle_torch_function(self, (x,), x) if has_torch_function((x,)) else x * self.factor


class Scalable(torch.Tensor):
    """Answers for such functions."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if isinstance(func, Scaled):
            return args[0].as_subclass(torch.Tensor) * func.factor
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("options", [{}, {"level": "ops"}, {"memory": True, "writes": True, "draws": True}])
def test_a_function_without_a_hash(options):
    """What is called by torch's protocol may be any object."""
    w = torch.ones(3, requires_grad=True)
    with tm.trace(**options) as trace:
        (Scaled(2.0)(w.as_subclass(Scalable)) + Scaled(3.0)(w)).sum().backward()
    assert w.grad.tolist() == [5, 5, 5]
    assert (trace.report.trace if options.get("memory") else trace.report).gaps == ()
