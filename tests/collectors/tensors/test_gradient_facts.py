"""What a tensor and the names around it tell of its gradient, without a change to either."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.tensors.gradient_facts import gradient_facts, names_of, parameters_of, scale_in
from tests.support.zoo import ZOO


def facts(tensor, expression="", **namespace):
    return gradient_facts(tensor, expression, names_of(namespace))


def test_a_leaf_with_a_gradient():
    """Norm, zeros, NaN and infinities, counted."""
    x = torch.ones(4, requires_grad=True)
    x.grad = torch.tensor([0.0, float("nan"), float("inf"), 2.0])
    found = facts(x, x=x)
    assert (found.grad, found.numel, found.zero, found.nan, found.inf) == ("present", 4, 1, 1, 1)


def test_a_sparse_gradient():
    """What is not stored is zero."""
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1])).sum().backward()
    found = facts(table.weight, table=table)
    assert (found.name, found.numel, found.zero) == ("table.weight", 10, 8)


def test_a_parameter_is_called_by_its_path():
    """Also where it was asked for in another way."""
    net = nn.Linear(2, 2)
    found = facts(net.weight, "list(net.parameters())[0]", net=net)
    assert (found.name, found.expression) == ("net.weight", "list(net.parameters())[0]")
    assert [name for name, _ in parameters_of(net, "net")] == ["net.weight", "net.bias"]


def test_the_way_prefers_a_loss():
    """Of several things computed from it, a single number with a plain name."""
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    loss = y.sum()
    found = facts(w, w=w, y=y, loss=loss, kept=[loss * 1])
    assert (found.path.end, found.path.ops, found.path.freed) == ("loss", ("y",), False)


def test_a_long_graph_is_walked_without_recursion():
    """Some thousand nodes."""
    w = torch.ones(1, requires_grad=True)
    x = w
    for _ in range(5000):
        x = x + 1
    assert len(facts(w, w=w, x=x).path.ops) == 4999


@pytest.mark.parametrize(("enabled", "scale"), [(True, 1024.0), (False, 1.0)])
def test_a_scaler_in_sight(enabled, scale):
    """One that is switched off scales nothing."""
    assert scale_in({"scaler": torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)}) == scale


@pytest.mark.parametrize("kind", ZOO)
def test_every_kind_of_tensor_can_be_asked_about(kind):
    """There is an answer, and nothing of the tensor changes for it."""

    def state(x):
        with torch._C.DisableTorchFunction():
            return x.requires_grad, 0 if x.is_inference() else x._version

    def asked(x):
        before = state(x)
        report = tm.why(x, "x", namespace={"x": x})
        assert state(x) == before
        return report

    report = ZOO[kind].visit(lambda x: asked(x) if isinstance(x, torch.Tensor) else None)
    if report is not None:
        assert report.answer.endswith(".")
        assert str(report).startswith("── why x.grad ── ")


def test_a_gradient_without_values():
    """On the meta device nothing can be counted."""
    w = torch.ones(3, device="meta", requires_grad=True)
    (w * 2).sum().backward()
    assert (facts(w, w=w).grad, facts(w, w=w).numel, facts(w, w=w).norm) == ("present", 3, None)
