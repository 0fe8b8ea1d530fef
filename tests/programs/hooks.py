"""Hooks of the user's own: on tensors, leaves, nodes, modules and saved tensors; and which value is shown then.

The tracer hooks a node when backward is called, after everybody else: it sees the gradient that the node receives,
with all that the user's own hooks made of it.
"""

from __future__ import annotations

import torch
from pytest import approx  # noqa: PT013  (numbers in checks)
from torch import nn
from torch.autograd.graph import register_multi_grad_hook, save_on_cpu, saved_tensors_hooks

from tests.programs.cases import leaf, norms, program


def _shows(**expected):
    def check(report):
        assert {op: norms(report, op) for op in expected} == {op: approx(value) for op, value in expected.items()}

    return check


@program(1, check=_shows(exp=[20.0], sum=[1.0], accumulate=[20.0]), measured=False)
def a_tensor_hook_that_replaces():
    x = leaf(0)
    y = x.exp()
    y.register_hook(lambda gradient: gradient * 20)
    y.sum().backward()
    return x.grad


@program(1, check=_shows(mul=[30.0], accumulate=[60.0]), measured=False)
def a_tensor_hook_that_writes_in_place():
    x = leaf(1)
    y = x * 2
    y.register_hook(lambda gradient: gradient.mul_(10).add_(20) and None)
    (y + 0).sum().backward()
    return x.grad


@program(1, check=_shows(accumulate=[7.0]), measured=False)
def a_hook_on_a_leaf():
    x = leaf(1)
    x.register_hook(lambda gradient: gradient * 7)
    x.sum().backward()
    return x.grad


@program(1, check=_shows(exp=[5.0]), measured=False)
def a_prehook_of_a_node_that_replaces():
    x = leaf(0)
    y = x.exp()
    y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 5,))
    y.sum().backward()
    return x.grad


@program(1, check=_shows(exp=[1.0], accumulate=[9.0]), measured=False)
def a_hook_of_a_node_that_replaces():
    x = leaf(0)
    y = x.exp()
    y.grad_fn.register_hook(lambda sent, received: (sent[0] * 9,))
    y.sum().backward()
    return x.grad


@program(1, check=_shows(mul=[6.0]), measured=False)
def all_of_them_on_one_node():
    said = []
    x = leaf(1)
    y = x * 1
    y.grad_fn.register_prehook(lambda gradients: said.append("node") or (gradients[0] * 3,))
    y.register_hook(lambda gradient: said.append("tensor") or gradient * 2)
    y.retain_grad()
    y.sum().backward()
    return said, y.grad, x.grad


@program(2)
def post_accumulate_hooks():
    said = []
    x = leaf(1, 2)
    x.register_post_accumulate_grad_hook(lambda tensor: said.append(tensor.grad.tolist()))
    for _ in range(2):
        x.exp().sum().backward()
    return said, x.grad


@program(2)
def an_optimizer_in_backward():
    x = leaf(1, 2)

    def step(tensor):
        with torch.no_grad():
            tensor.sub_(tensor.grad, alpha=0.1)
        tensor.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        x.square().sum().backward()
    return x


@program(1)
def hooks_on_several_tensors():
    said = []
    x, y = leaf(1, 2), leaf(3, 4)
    register_multi_grad_hook((x, y), lambda gradients: said.append([g is not None for g in gradients]))
    register_multi_grad_hook((x, y), lambda gradient: said.append(gradient.tolist()), mode="any")
    (x * y).sum().backward()
    return said


@program(2)
def buckets_as_in_data_parallel_training():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.3)
    ready = []
    for number, parameter in enumerate(net.parameters()):
        edge = torch.autograd.graph.get_gradient_edge(parameter)
        edge.node.register_hook(lambda *_, number=number: ready.append(number))
        parameter.bucket = edge.node
    for _ in range(2):
        net(torch.ones(2, 3)).sum().backward()
    return ready, [parameter.grad for parameter in net.parameters()]


@program(1)
def full_backward_hooks_of_modules():
    said = []
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.3)
    net[0].register_full_backward_hook(lambda module, sent, received: said.append(received[0].tolist()))
    net[1].register_full_backward_pre_hook(lambda module, received: (received[0] * 2,))
    net.register_forward_hook(lambda module, given, made: made * 2)
    net(torch.ones(1, 2)).sum().backward()
    return said, [parameter.grad for parameter in net.parameters()]


@program(1, raises=ValueError, measured=False)
def a_hook_that_raises():
    x = leaf(1, 2)
    y = x.exp()

    def refuse(gradient):
        raise ValueError("no")

    y.register_hook(refuse)
    y.sum().backward()


@program(1, raises=KeyboardInterrupt, measured=False)
def a_hook_that_is_interrupted():
    y = leaf(1, 2).exp()

    def interrupt(gradient):
        raise KeyboardInterrupt

    y.register_hook(interrupt)
    y.sum().backward()


@program(1, raises=RuntimeError, measured=False)
def a_hook_that_changes_the_shape():
    y = leaf(1, 2).exp()
    y.register_hook(lambda gradient: gradient[:1])
    y.sum().backward()


@program(2, measured=False)
def a_hook_that_calls_backward():
    x, w = leaf(1, 2), leaf(3)

    def more(gradient):
        with torch.enable_grad():
            w.exp().sum().backward()

    y = x.exp()
    y.register_hook(more)
    y.sum().backward()
    return x.grad, w.grad


@program(1)
def hooks_that_pack_saved_tensors():
    said = []
    x = leaf(1, 2)

    def pack(tensor):
        said.append("pack")
        return tensor.to(torch.float64)

    def unpack(tensor):
        said.append("unpack")
        return tensor.to(torch.float32)

    with saved_tensors_hooks(pack, unpack):
        y = x.exp().log().sin()
    y.sum().backward()
    return said, x.grad


@program(1)
def saved_on_the_cpu():
    x = leaf(1, 2)
    with save_on_cpu():
        y = (x.exp() * x).sin()
    y.sum().backward()
    return x.grad


@program(1, raises=RuntimeError, measured=False)
def saved_tensors_disabled():
    x = leaf(1, 2)
    x.exp().sum().backward()
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"), saved_tensors_hooks(lambda t: t, lambda t: t):
        x.exp()


@program(1, raises=RuntimeError, measured=False)
def a_saved_tensor_changed_in_place():
    y = leaf(1, 2).exp()
    y.add_(1)
    y.sum().backward()


def _hooks_are_suspected(report):
    assert [nonfinite.hooked for graph in report.graphs for nonfinite in graph.first_nonfinite] == [True, True, False]


@program(3, check=_hooks_are_suspected, measured=False)
def hooks_that_make_nan():
    """Of a leaf and of a result: the operation that sent the gradient did not make the NaN."""
    x, y, z = leaf(1, 2), leaf(1, 2), leaf(0, 1)
    x.register_hook(lambda gradient: gradient * float("nan"))
    (x * 2).sum().backward()
    result = y * 2
    result.register_hook(lambda gradient: gradient * float("nan"))
    result.exp().sum().backward()
    (z.sqrt() * 0).sum().backward()
    return x.grad, y.grad, z.grad
