"""The existing graph: what autograd keeps, looked at before backward runs, and left as it was."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional

import tensormagic as tm
from tests.corpus.parity import shown, walked


def loss_of(net, x):
    return net(x).square().mean()


@pytest.fixture
def net():
    """Two layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def test_it_is_the_grad_fn_chain_with_names(net):
    """Node for node autograd's own; leaves bear the names of the parameters, the root that of the tensor."""
    loss = loss_of(net, torch.randn(3, 4))
    report = tm.gradgraph(loss, "loss", namespace={"net": net})
    assert shown(report.graphs[0]) == walked([loss])
    leaves = {node.variable for node in report.nodes if node.kind == "accumulate"}
    assert leaves == {"net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"}
    (root,) = report.graphs[0].roots
    assert report.nodes[root].variable == "loss"
    assert report.state == "drawn"


def test_what_is_kept_is_counted_by_storage():
    """A tensor that two nodes save counts once in bytes; a view keeps its whole storage; leaves are told apart."""
    w = torch.ones(10, requires_grad=True)
    big = torch.ones(1000)
    out = (w * big[:10]).exp()
    (out * out).sum()
    kept = tm.gradgraph(out * out, "square", namespace={}).saved
    # mul: w (a leaf, 40 B) is not needed for the gradient of big, which needs none; big's 4 000 B are. exp and the
    # square save the same 40 B.
    assert (kept.nbytes, kept.storages, kept.leaf_bytes) == (4000 + 40, 2, 0)
    assert kept.slots == 4


def test_leaves_among_the_kept_are_told_apart():
    """A weight that is saved for backward lives anyway."""
    w = torch.ones(10, requires_grad=True)
    kept = tm.gradgraph(w.exp() * w, namespace={}).saved
    assert (kept.nbytes, kept.leaf_bytes) == (80, 40)


def test_after_backward_it_says_that_it_is_freed(net):
    """The nodes still stand, but nothing can run through them; with retain_graph it can."""
    loss = loss_of(net, torch.randn(3, 4))
    loss.backward(retain_graph=True)
    assert "backward can run" in str(tm.gradgraph(loss, namespace={}))
    loss.backward()
    report = tm.gradgraph(loss, namespace={})
    assert report.saved.freed > 0
    assert report.saved.slots == report.saved.nbytes == 0
    assert "freed its saved tensors: it cannot run again" in str(report)


def test_what_was_changed_in_place_is_counted():
    """Backward would raise; the graph says so before it does."""
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    loss = y.sum()
    with torch.no_grad():
        y.mul_(2)
    report = tm.gradgraph(loss, namespace={})
    assert report.saved.changed == 1
    assert "backward would fail: 1 saved tensor was changed in place afterwards" in str(report)


def test_the_persons_hooks_are_not_run():
    """What was packed by saved-tensor hooks stays packed, and is counted as not looked at."""
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: unpacked.append(1) or x):
        loss = torch.ones(3, requires_grad=True).exp().sum()
    report = tm.gradgraph(loss, namespace={})
    assert not unpacked
    assert report.saved.unread == 1
    assert "1 saved tensor could not be read" in " ".join(str(report).split())


def test_nothing_is_kept_alive_and_backward_is_the_same(net):
    """The report holds no node; the gradients are those without it."""
    x = torch.randn(3, 4)
    loss_of(net, x).backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    loss = loss_of(net, x)
    tm.gradgraph(loss, namespace={"net": net})
    loss.backward()
    assert all(torch.equal(p.grad, e) for p, e in zip(net.parameters(), expected, strict=True))
    again = loss_of(net, x)  # its graph saves x
    report, input_ = tm.gradgraph(again, namespace={"net": net}), weakref.ref(x)
    del again, loss, x
    gc.collect()
    assert input_() is None
    assert report.nodes


def test_custom_functions_and_lists_are_looked_at():
    """A custom Function's saved tensors count; so do those of an op that saves a list."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, x * 2)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(5, requires_grad=True)
    kept = tm.gradgraph(Twice.apply(x), namespace={}).saved
    assert (kept.slots, kept.nbytes, kept.leaf_bytes) == (2, 40, 20)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda w: w.detach() * 2, "it does not require grad"),
        (lambda w: w, "is a leaf"),
        (lambda w: (w > 0).long(), "or as integers"),
    ],
)
def test_a_tensor_without_a_graph_says_why(make, words):
    """No empty picture: an error with the reason."""
    with pytest.raises(tm.NoGraphError, match=words):
        tm.gradgraph(make(torch.ones(3, requires_grad=True)), namespace={})


def test_no_tensor_is_refused():
    """As everywhere: what it is, and what would work."""
    with pytest.raises(tm.NotATensorError, match="loss is a float"):
        tm.gradgraph(3.0, namespace={})


def test_a_sparse_gradient_and_a_long_chain():
    """Ten thousand nodes are walked without recursion; kinds without a storage of their own do no harm."""
    embedding = nn.Embedding(5, 3, sparse=True)
    h = functional.relu(embedding(torch.tensor([1, 2]))).sum()
    for _ in range(10_000):
        h = h + 1
    assert len(tm.gradgraph(h, namespace={}).nodes) == 10_000 + 4
