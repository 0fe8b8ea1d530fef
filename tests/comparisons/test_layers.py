"""Layers that are inserted into a container shift the numbers of those behind them: each keeps its counterpart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.comparisons.layers import renames_between
from tensormagic.comparisons.traces import compare_traces


def traced(*layers, name="net"):
    net = nn.Sequential(*layers)
    optimizer, x = torch.optim.SGD(net.parameters(), 0.01), torch.randn(16, 8)
    with tm.trace(namespace={name: net}) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    return trace.report


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def relu():
    return nn.ReLU()


def norm(size):
    return nn.BatchNorm1d(size, affine=False)


def block(*extra):
    return nn.Sequential(*extra, linear(8, 8), nn.Tanh())


def small():
    return traced(linear(8, 16), relu(), linear(16, 16), relu(), linear(16, 1))


PAIRED = {
    "the same": (
        lambda: [linear(8, 16), relu(), linear(16, 16), relu(), linear(16, 1)],
        {"0": "0", "2": "2", "4": "4"},
    ),
    "others behind each": (
        lambda: [linear(8, 16), norm(16), relu(), nn.Dropout(0.1), linear(16, 16), norm(16), relu(), linear(16, 1)],
        {"0": "0", "2": "4", "4": "7"},
    ),
    "one in front": (
        lambda: [nn.LayerNorm(8), linear(8, 16), relu(), linear(16, 16), relu(), linear(16, 1)],
        {"0": "1", "2": "3", "4": "5"},
    ),
    "one more of its kind": (
        lambda: [linear(8, 16), relu(), linear(16, 16), relu(), linear(16, 16), relu(), linear(16, 1)],
        {"0": "0", "2": "2", "4": "6"},
    ),
    "one less": (lambda: [linear(8, 16), relu(), linear(16, 1)], {"0": "0", "4": "2"}),
    "wider": (
        lambda: [linear(8, 32), relu(), linear(32, 32), relu(), linear(32, 1)],
        {"0": "0", "2": "2", "4": "4"},
    ),
    "wider, and others behind each": (
        lambda: [linear(8, 32), norm(32), relu(), linear(32, 32), norm(32), relu(), linear(32, 1)],
        {"0": "0", "2": "3", "4": "6"},
    ),
    "one that no gradient passes": (
        lambda: [nn.Identity(), linear(8, 16), relu(), linear(16, 16), relu(), linear(16, 1)],
        {"0": "1", "2": "3", "4": "5"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["net", "model"])
@pytest.mark.parametrize("case", PAIRED)
def test_layers_keep_their_counterpart(case, name):
    """Also where the model is called otherwise. What has no counterpart is compared with nothing."""
    layers, expected = PAIRED[case]
    right = traced(*layers(), name=name)
    found = compare_traces(small(), right)
    assert {one.name: one.name_right for one in found.parameters} == {
        f"net.{mine}.weight": f"{name}.{theirs}.weight" for mine, theirs in expected.items()
    }
    assert {*found.parameters_only_right} == {one.name for one in right.parameters} - {
        one.name_right for one in found.parameters
    }


def test_a_module_keeps_the_nodes_of_its_counterpart():
    found = compare_traces(small(), traced(*PAIRED["others behind each"][0]()))
    pairs = {(node.left.op, node.left.module, node.right.module) for node in found.graphs[0].nodes if node.left.module}
    assert {("addmm", "net.0"), ("mm", "net.2")} & {(op, left) for op, left, _ in pairs}
    assert {(left, right) for _, left, right in pairs} == {
        ("net.0", "net.0"), ("net.1", "net.2"), ("net.2", "net.4"), ("net.3", "net.6"), ("net.4", "net.7"),
    }  # fmt: skip
    assert not found.graphs[0].only_left_found


def test_layers_of_layers():
    """A block that has another layer inside keeps its place."""
    left = traced(block(), block(), linear(8, 1))
    renamed = renames_between(left, traced(nn.LayerNorm(8), block(), block(), linear(8, 1)))
    given = "net.0.weight", "net.1.0.weight", "net.2.0.weight", "net.2.1", "net.3.weight", "net", "x"
    expected = "net.0+.weight", "net.0.0.weight", "net.1.0.weight", "net.1.1", "net.2.weight", "net", "x"
    assert tuple(map(renamed, given)) == expected
    renamed = renames_between(left, traced(block(), block(nn.LayerNorm(8)), linear(8, 1)))
    given = "net.0.0.weight", "net.1.0.weight", "net.1.1.weight", "net.1.2", "net.2.weight"
    expected = "net.0.0.weight", "net.1.0+.weight", "net.1.0.weight", "net.1.1", "net.2.weight"
    assert tuple(map(renamed, given)) == expected
