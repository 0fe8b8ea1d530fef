"""Every way to ask for gradients."""

from __future__ import annotations

import torch
import torch._decomp.decompositions_for_jvp  # warns when forward mode first imports it
from pytest import approx  # noqa: PT013  (numbers in checks)
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vjp
from torch.autograd.graph import get_gradient_edge

from tensormagic.reports import UNREADABLE, UNTOUCHED, PassContext
from tests.programs.cases import leaf, lines, norms, pass_context, program


@program(3)
def several_backwards_accumulate():
    x = leaf(1, 2)
    for factor in (1.0, 2.0, 3.0):
        (x * factor).square().sum().backward()
    return x.grad


def _one_step(report):
    assert [(done.step, done.graph) for done in report.passes] == [(1, 1), (1, 1), (1, 1)]


@program(3, check=_one_step)
def retained_graph():
    x = leaf(1, 2)
    loss = (x * 3).exp().sum()
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    loss.backward()
    return x.grad


@program(2, raises=RuntimeError)
def freed_graph_a_second_time():
    loss = leaf(1, 2).exp().sum()
    loss.backward()
    loss.backward()


@program(1)
def not_a_scalar_with_grad_outputs():
    x = leaf(1, 2, 3)
    (x.sin() * x).backward(gradient=torch.tensor([1.0, -2.0, 0.5]))
    return x.grad


@program(0, raises=RuntimeError)
def not_a_scalar_without():
    leaf(1, 2).exp().backward()


@program(0, raises=RuntimeError)
def nothing_requires_grad():
    torch.ones(2).sum().backward()


def _the_second_has_the_first_ones_line(report):
    assert "(slope,) = torch.autograd.grad(y, x, create_graph=True)" in lines(report, "mul")


@program(2, check=_the_second_has_the_first_ones_line, measured=False)
def double_backward():
    x = leaf(1, 2)
    y = (x.sin() * x).sum()
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    slope.square().sum().backward()
    return slope, x.grad


@program(3, measured=False)
def triple_derivative():
    x = leaf(0.5)
    y = x.sin() * x**3
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y


@program(2)
def allow_unused():
    x, unused = leaf(1, 2), leaf(3)
    refused = None
    y = x.exp().sum()
    try:
        torch.autograd.grad(y, (x, unused), retain_graph=True)
    except RuntimeError as error:
        refused = str(error)
    return refused, torch.autograd.grad(y, (x, unused), allow_unused=True)


@program(1)
def materialized_gradients():
    x, unused = leaf(1, 2), leaf(3)
    return torch.autograd.grad(x.exp().sum(), (x, unused), materialize_grads=True)


def _all_rows_together(report):
    assert pass_context(report) == [PassContext(levels=("is_grads_batched",))]
    assert norms(report, "sin") == [approx(2 * 3**0.5)]  # three rows with one 2 each


@program(1, check=_all_rows_together, measured=False)
def batched_gradients():
    x = leaf(1, 2, 3)
    y = x.sin() * 2
    return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)


def _asked_for_is_measured(report):
    assert norms(report, "exp") == [approx(5.0)]
    assert norms(report, "mul") == [UNTOUCHED, approx(2**0.5)]


@program(1, check=_asked_for_is_measured, measured=False)
def gradient_of_something_in_the_middle():
    hidden = (leaf(1, 2) * 2).exp()
    return torch.autograd.grad((hidden * torch.tensor([3.0, 4.0])).sum(), hidden)


@program(1)
def two_outputs_of_one_node():
    low, high = leaf(1, 2, 3, 4).split(2)
    return torch.autograd.grad((low * 3).sum() + (high * 4).sum(), (low, high))


@program(1)
def several_roots():
    x = leaf(1, 2)
    torch.autograd.backward([x.sum(), (x * x).prod(), x * 2], [None, None, torch.ones(2)])
    return x.grad


@program(2, measured=False)
def roots_and_inputs_that_are_edges():
    x = leaf(1, 2)
    hidden = x * 2
    y = hidden.exp()
    first = torch.autograd.grad([get_gradient_edge(y)], [get_gradient_edge(hidden)], torch.ones(2), retain_graph=True)
    torch.autograd.backward([get_gradient_edge(y)], torch.ones(2))
    return first, x.grad


@program(1)
def only_for_some_inputs():
    x, w = leaf(1, 2), leaf(3, 4)
    (x * w).exp().sum().backward(inputs=[w])
    return x.grad, w.grad


@program(2)
def a_leaf_as_root():
    x = leaf(2)
    x.backward(torch.ones(1), retain_graph=True)
    return x.grad, torch.autograd.grad(x, x, torch.ones(1))


@program(1)
def imported_by_name():
    from torch.autograd import grad

    x = leaf(1, 2)
    return grad(x.exp().sum(), x)


@program(9, measured=False)
def functional():
    x = torch.tensor([1.0, 2.0])

    def cube(z):
        return z**3

    results = jacobian(cube, x), hessian(lambda z: cube(z).sum(), x), vjp(cube, x, x)
    return results, hvp(lambda z: cube(z).sum(), x, x)[0].sum() * 0


@program(2, measured=False)
def functional_jvp():
    x = torch.tensor([1.0, 2.0])
    return jvp(torch.sin, x, x)


@program(0, gaps=("takes derivatives forwards",))
def forward_mode():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
        return torch.autograd.forward_ad.unpack_dual(dual.exp()).tangent


@program(2)
def closures():
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.fill_(0.5)
        net.bias.fill_(0.1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2, max_eval=2)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(3, 2)).square().mean()
        loss.backward()
        return loss

    return optimizer.step(closure), *net.parameters()


@program(1, measured=False)
def complex_numbers():
    z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (z * z.conj() + z.exp()).abs().sum().backward()
    return z.grad


@program(1)
def sparse_gradients():
    table = nn.Embedding(10, 3, sparse=True)
    with torch.no_grad():
        table.weight.copy_(torch.arange(30.0).reshape(10, 3))
    table(torch.tensor([1, 1, 2])).square().sum().backward()
    return table.weight.grad.to_dense()


@program(1)
def a_sparse_matrix():
    matrix = torch.eye(3).to_sparse().requires_grad_()
    x = leaf(1, 2, 3)
    torch.sparse.mm(matrix, x[:, None]).sum().backward()
    return matrix.grad.to_dense(), x.grad


@program(1)
def regions_without_gradients():
    x = leaf(1, 2)
    with torch.no_grad():
        scale = x.exp()
    with torch.inference_mode():
        other = torch.ones(2) * 3
    y = x * scale * other.clone()
    with torch.no_grad(), torch.enable_grad():
        y = y.sin()
    y.sum().backward()
    return x.grad, scale.requires_grad, other.is_inference()


@program(0, raises=RuntimeError)
def backward_of_an_inference_tensor():
    with torch.inference_mode():
        leaf(1, 2).exp().sum().backward()


@program(1, measured=False)
def in_place_and_views():
    x = leaf(1, 2, 3, 4)
    y = x * 1
    y[:2].mul_(3)
    y.view(2, 2)[1] = x[:2].exp()
    y.sum().backward()
    return x.grad


@program(18, measured=False)
def checked_numerically():
    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    return torch.autograd.gradcheck(torch.sin, x), torch.autograd.gradgradcheck(torch.sin, x, torch.ones_like(x))


def _through_the_jagged_linear(report):
    assert {"linear", "relu"} <= {node.op for node in report.nodes}


@program(1, check=_through_the_jagged_linear, measured=False)
def jagged_nested_tensors():
    """A size that is a symbol without a number can be no number in the report: what is saved is told without it."""
    rows = [torch.ones(length, 4, requires_grad=True) for length in (3, 5)]
    layer = torch.nn.Linear(4, 2)
    jagged = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    layer(jagged).relu().values().sum().backward()
    return [row.grad for row in rows], layer.weight.grad


def _a_leaf_of_rows(report):
    assert [leaf.shape for leaf in report.parameters] == [(2, 4), (2,), (2, -1, 4)]


@program(1, check=_a_leaf_of_rows, measured=False)
def a_jagged_leaf():
    """Its length is a symbol that never had a number."""
    leaf = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)], layout=torch.jagged, requires_grad=True)
    layer = torch.nn.Linear(4, 2)
    layer(leaf).values().sum().backward()
    return leaf.grad.values(), layer.weight.grad


def _not_measurable(report):
    assert set(norms(report, "accumulate")) == {UNREADABLE}


@program(1, check=_not_measurable, measured=False, gaps=("meta device have no numbers",))
def on_the_meta_device():
    """A gradient comes; of what it holds nothing can be known, which is not that none came."""
    x = torch.ones(3, device="meta", requires_grad=True)
    (x * 2).sum().backward()
    return tuple(x.grad.shape)


@program(
    1, check=_not_measurable, measured=False, gaps=("the loss could not be read", "only code of its class FakeTensor")
)
def fake_tensors():
    """Their memory is not asked for: that would warn."""
    with FakeTensorMode():
        layer = torch.nn.Linear(3, 1)
        with torch.no_grad():
            layer.weight.mul_(2)
        layer(torch.ones(2, 3)).sum().backward()
    return tuple(layer.weight.grad.shape)
