"""``torch.func``: every gradient that it takes is a pass, at its level."""

from __future__ import annotations

import torch
from pytest import approx  # noqa: PT013  (numbers in checks)
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

from tests.programs.cases import leaf, lines, norms, pass_context, program
from tests.programs.functions import NewStyle

FORWARDS = ("takes derivatives forwards",)


def cube(x):
    return (x**3).sum()


def levels(*expected):
    def check(report):
        assert [told.levels if told else () for told in pass_context(report)] == list(expected)

    return check


def _its_line_and_numbers(report):
    levels(("grad",))(report)
    assert set(lines(report, "pow")) == {"return (x**3).sum()"}
    assert norms(report, "accumulate") == [approx((3**2 + 12**2) ** 0.5)]


@program(1, check=_its_line_and_numbers, measured=False)
def a_gradient():
    return grad(cube)(torch.tensor([1.0, 2.0]))


def _all_samples_together(report):
    levels(("vmap", "grad"))(report)
    assert norms(report, "sum") == [approx(2.0)]  # four samples, a one each


@program(1, check=_all_samples_together, measured=False)
def gradients_a_sample():
    return vmap(grad(cube))(torch.ones(4, 3))


@program(2, check=levels(("grad", "grad"), ("grad",)), measured=False)
def a_second_derivative():
    return grad(lambda x: grad(cube)(x).sum())(torch.tensor([1.0, 2.0]))


@program(1, check=levels(("vmap",)), measured=False)
def a_jacobian():
    return jacrev(torch.sin)(torch.tensor([1.0, 2.0]))


@program(0, measured=False, gaps=FORWARDS)
def a_jacobian_forwards():
    x = torch.tensor([1.0, 2.0])
    return jacfwd(torch.sin)(x), jvp(torch.sin, (x,), (x,))


@program(1, check=levels(("vmap", "jvp", "vmap")), measured=False, gaps=FORWARDS[:1])
def a_hessian():
    return hessian(cube)(torch.tensor([1.0, 2.0]))


@program(1, check=levels(()), measured=False)
def a_product_with_the_jacobian():
    _, back = vjp(torch.sin, torch.tensor([1.0, 2.0]))
    return back(torch.ones(2))


def _parameters_have_their_names(report):
    levels(("grad",))(report)
    assert {series.name for series in report.parameters if series.touched} == {"Linear.weight", "Linear.bias"}


@program(1, check=_parameters_have_their_names, measured=False)
def gradients_of_a_model():
    net = nn.Linear(2, 1)
    nn.init.constant_(net.weight, 0.3)
    nn.init.constant_(net.bias, 0.1)
    net(torch.ones(1, 2))

    def loss(parameters, x):
        return functional_call(net, parameters, (x,)).square().mean()

    return grad_and_value(loss)(dict(net.named_parameters()), torch.ones(3, 2))


@program(3, measured=False)
def a_custom_function_at_every_level():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])

    def loss(z):
        return NewStyle.apply(z, 2.0).sum()

    return grad(loss)(x), vmap(grad(loss))(x), jacrev(lambda z: NewStyle.apply(z, 2.0))(x[0])


@program(2, check=levels(("grad",), ()), measured=False)
def a_transform_inside_a_loss():
    w = leaf(1, 2)
    slope = grad(lambda x: (x * w).sin().sum())(torch.ones(2))
    slope.square().sum().backward()
    return w.grad


@program(2, measured=False)
def an_inner_loop_of_meta_learning():
    w = leaf(0.5, 1.0)

    def adapted(parameters, x):
        (step,) = torch.autograd.grad((parameters * x).square().sum(), parameters, create_graph=True)
        return parameters - 0.1 * step

    (adapted(w, torch.ones(2)) - 1).square().sum().backward()
    return w.grad
