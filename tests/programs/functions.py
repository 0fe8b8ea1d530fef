"""Custom autograd Functions, of every style; and operators that libraries register."""

from __future__ import annotations

import torch
from pytest import approx  # noqa: PT013  (numbers in checks)
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrizations import weight_norm

from tensormagic.reports import PassContext
from tests.programs.cases import leaf, lines, nodes, norms, program


class OldStyle(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * factor

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient * ctx.factor, None


class NewStyle(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor=2.0):
        return x * x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient * ctx.factor, None


class SumAndProduct(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.set_materialize_grads(False)
        return x + y, x * y

    @staticmethod
    def backward(ctx, of_sum, of_product):
        x, y = ctx.saved_tensors
        if of_product is None:
            return of_sum, of_sum
        return of_product * y, of_product * x


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].exp()


def _line_of(op, text):
    def check(report):
        assert {node.kind for node in nodes(report, op)} == {"custom"}
        assert {node.exact_location for node in nodes(report, op)} == {True}
        assert set(lines(report, op)) == {text}

    return check


@program(1, check=_line_of("OldStyle", "y = OldStyle.apply(x, 3.0)"), measured=False)
def old_style():
    x = leaf(1, 2)
    y = OldStyle.apply(x, 3.0)
    y.sum().backward()
    return x.grad


@program(1, check=_line_of("NewStyle", "y = NewStyle.apply(x)"), measured=False)
def new_style_with_a_default():
    x = leaf(1, 2)
    y = NewStyle.apply(x)
    y.sum().backward()
    return x.grad


def _two_slots(report):
    assert [len(node.shapes) for node in nodes(report, "SumAndProduct")] == [2, 2]
    assert sorted(norms(report, "SumAndProduct")) == [approx(2**0.5), approx(3 * 2**0.5)]


@program(2, check=_two_slots, measured=False)
def several_outputs_some_without_gradient():
    x, y = leaf(1, 2), leaf(3, 4)
    total, _ = SumAndProduct.apply(x, y)
    total.sum().backward()
    _, product = SumAndProduct.apply(x, y)
    (product * 3).sum().backward()
    return x.grad, y.grad


@program(1, raises=RuntimeError, measured=False)
def once_differentiable_twice():
    x = leaf(1, 2)
    (slope,) = torch.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    slope.sum().backward()


@program(2, check=_line_of("OldStyle", "y = OldStyle.apply(x, 1.0)"), measured=False)
def differentiated_twice():
    x = leaf(1, 2)
    y = OldStyle.apply(x, 1.0)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    slope.square().sum().backward()
    return x.grad


class Refuses(Function):
    @staticmethod
    def forward(ctx, x, fails):
        ctx.fails = fails
        if fails == "forward":
            raise ValueError("no forward")
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no backward")


@program(0, raises=ValueError)
def raises_in_forward():
    Refuses.apply(leaf(1), "forward")


@program(1, raises=ValueError, measured=False)
def raises_in_backward():
    Refuses.apply(leaf(1), "backward").sum().backward()


@program(1, measured=False)
def returns_too_many_gradients():
    class TooMany(Refuses):
        @staticmethod
        def backward(ctx, gradient):
            return gradient, None, None

    x = leaf(1)
    TooMany.apply(x, "").sum().backward()
    return x.grad


class OnTheWay(Function):
    """Differentiates a small problem of its own in backward, as implicit layers do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.detach().cos()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            inner = again.cos().sum()
        (slope,) = torch.autograd.grad(inner, again)
        return gradient * slope


def _a_pass_inside(report):
    (outer,), (inner,) = report.passes, report.inner_passes
    graph = next(graph for graph in report.graphs if graph.number == outer.graph)
    custom = next(node.index for node in graph.nodes if node.op == "OnTheWay")
    assert (outer.pass_context, inner.pass_context) == (None, PassContext(1, outer.graph, custom))
    assert (outer.number, outer.step) == (inner.number, inner.step) == (1, 1)
    assert lines(report, "cos") == ["inner = again.cos().sum()"]
    assert report.graphs[0].number == outer.graph


@program(2, check=_a_pass_inside, measured=False)
def a_gradient_inside_a_backward():
    x = leaf(1, 2)
    (OnTheWay.apply(x) * 3).sum().backward()
    return x.grad


class InPlace(Function):
    """Changes the gradient that it received, as one must not, and hands on the same memory."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.mul_(5)


def _measured_anew(report):
    assert norms(report, "mul") == [approx(5 * 3 * 2**0.5)]


@program(1, check=_measured_anew, measured=False)
def a_gradient_changed_in_place():
    x = leaf(1, 2)
    (InPlace.apply(x * 1)).backward(torch.full((2,), 3.0))
    return x.grad


@program(0)
def without_any_gradient():
    with torch.no_grad():
        return OldStyle.apply(leaf(1, 2), 3.0), OldStyle.apply(torch.ones(2), 1.0)


def _the_refused_apply_made_nothing(report):
    assert set(lines(report, "exp")) == {"y = x.exp()"}


@program(1, check=_the_refused_apply_made_nothing)
def an_apply_that_is_refused():
    x = leaf(1, 2)
    try:
        NewStyle.apply(x, 1, 2, 3)
    except TypeError as error:
        said = str(error)
    y = x.exp()
    y.sum().backward()
    return said, x.grad


@torch.library.custom_op("tensormagic_tests::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x):
    return torch.empty_like(x)


triple.register_autograd(lambda ctx, gradient: gradient * 3)


def _an_operator_of_a_library(report):
    (name,) = {node.op for graph in report.graphs for node in graph.nodes} & {
        "GeneratedBackwardFor_tensormagic_tests_triple_default"
    }
    assert set(lines(report, name)) == {"y = triple(x)", "z = torch.ops.tensormagic_tests.triple(y)"}


@program(1, check=_an_operator_of_a_library, measured=False)
def registered_operators():
    x = leaf(1, 2)
    y = triple(x)
    z = torch.ops.tensormagic_tests.triple(y)
    z.sum().backward()
    return x.grad


@program(2, measured=False)
def reparametrized_weights():
    torch.manual_seed(0)
    first = weight_norm(torch.nn.Linear(3, 2))
    second = parametrizations.spectral_norm(torch.nn.Linear(2, 2))
    for _ in range(2):
        second(first(torch.ones(1, 3)).tanh()).sum().backward()
    return [parameter.grad for module in (first, second) for parameter in module.parameters()]
