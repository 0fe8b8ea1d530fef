"""A tensor's place in autograd: state, leaves and gradient, read without the warnings that looking usually gives."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from tensormagic.collectors.tensors import autograd as autograd_module
from tensormagic.collectors.tensors.autograd import autograd, path_of
from tensormagic.collectors.where.caller import sequence_number
from tensormagic.reports import AutogradReport


def look(x: torch.Tensor, /, **names: torch.Tensor) -> AutogradReport:
    """The autograd report of x, with leaves called by the given names; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return autograd(x, {tensor._cdata: name for name, tensor in names.items()})


def test_leaf_without_grad() -> None:
    """A plain tensor is a leaf by convention, and nothing fills its gradient."""
    report = look(torch.ones(2))
    assert (report.is_leaf, report.requires_grad, report.grad_fn, report.grad) == (True, False, None, "none")
    assert report.sentence == ("not tracked (requires_grad=False): x.grad stays None")
    assert look(torch.ones(2, dtype=torch.int64)).sentence == ("not tracked: int64 values cannot have gradients")


def test_leaf_before_and_after_backward() -> None:
    """The gradient's state, shape and norm are those of .grad."""
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    assert look(w).sentence == "a leaf that requires grad: backward() will fill x.grad"
    (w**2).sum().backward()
    report = look(w)
    assert (report.grad, report.grad_shape, report.grad_norm) == ("present", (2,), 10.0)
    assert report.sentence == "a leaf that requires grad: backward() adds to x.grad"


def test_made_inside_no_grad_it_can_still_require_grad() -> None:
    """requires_grad=True inside no_grad makes a leaf that requires grad all the same."""
    with torch.no_grad():
        report = look(torch.ones(5, requires_grad=True))
    assert (report.is_leaf, report.requires_grad) == (True, True)


def test_computed_tensor_names_its_leaves() -> None:
    """A new tensor computed from leaves is not a leaf; the sentence says where its gradient goes."""
    w, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    report = look(w * 2 + b, w=w, b=b)
    assert (report.is_leaf, report.grad_fn, report.leaves, report.leaf_count) == (False, "AddBackward0", ("b", "w"), 2)
    assert report.sentence == (
        "made by AddBackward0, not a leaf: backward() passes through it to b and w, and x.grad stays None"
    )


def test_leaves_without_a_name_have_a_shape() -> None:
    """Where no name is known, a leaf is called by its shape; many are counted, a few listed."""
    leaves = [torch.ones(8, 3, requires_grad=True) for _ in range(12)]
    report = look(torch.stack(leaves))
    assert (report.leaf_count, len(report.leaves), report.leaves[0]) == (12, 8, "a leaf (8, 3)")
    assert "and 9 more" in report.sentence


def test_retained_gradient_of_a_non_leaf() -> None:
    """retain_grad() makes .grad worth asking for."""
    w = torch.ones(2, requires_grad=True)
    y = w * 3
    y.retain_grad()
    y.sum().backward()
    report = look(y, w=w)
    assert (report.retains_grad, report.grad, report.grad_norm) == (True, "present", pytest.approx(2**0.5))
    assert report.sentence == (
        "made by MulBackward0, not a leaf, but retain_grad() was called: backward() fills x.grad and goes on to w"
    )


def test_hooks_are_counted() -> None:
    """Tensor hooks and post-accumulate hooks count, and removed ones do not."""
    w = torch.ones(2, requires_grad=True)
    handle = w.register_hook(lambda grad: grad)
    w.register_post_accumulate_grad_hook(lambda _: None)
    assert look(w).hooks == 2
    handle.remove()
    assert look(w).hooks == 1


def test_deep_graphs_are_walked_without_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five thousand operations in a row lead to their leaf; past the bound, the sentence admits more."""
    w = torch.ones(1, requires_grad=True)
    y = w
    for _ in range(5000):
        y = y + 1
    assert look(y, w=w).leaves == ("w",)
    monkeypatch.setattr(autograd_module, "NODE_LIMIT", 5)
    assert look(y, w=w).sentence.endswith("it (its leaves are more than 5 nodes away), and x.grad stays None")
    pair = (y + w) * 2
    assert look(pair, w=w).sentence.endswith("passes through it to w and perhaps others, and x.grad stays None")


def test_shared_subgraphs_are_walked_once() -> None:
    """A graph that doubles at every step has 2**60 paths and sixty nodes."""
    y = w = torch.ones(1, requires_grad=True)
    for _ in range(60):
        y = y + y
    assert look(y, w=w).leaf_count == 1


def test_custom_functions_are_named_and_passed_through() -> None:
    """A user's own autograd.Function, even one that has an attribute called variable."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.variable = "mine"
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    w = torch.ones(1, requires_grad=True)
    report = look(Double.apply(w), w=w)
    assert (report.grad_fn, report.leaves) == ("DoubleBackward", ("w",))


def test_sparse_gradient_has_a_norm() -> None:
    """The gradient of a sparse embedding is measured without making it dense."""
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1])).sum().backward()
    report = look(table.weight)
    assert (report.grad_shape, report.grad_norm) == ((5, 2), pytest.approx(8**0.5))


def test_views_that_were_written_to_are_not_asked_for_their_nodes() -> None:
    """One of several raises where it is asked, another gets a new node: neither is asked for the sake of a third."""
    x = torch.ones(4, requires_grad=True)
    several, whole = x * 2, x * 3
    part, view = several.chunk(2)[0], whole.view(2, 2)
    with torch.no_grad():
        part.mul_(2)
    whole.add_(1)
    y = (x * x).sum()
    before = sequence_number()
    way = path_of(y.grad_fn, {x._cdata: "x"}, [("part", part), ("view", view), ("y", y)])
    assert sequence_number() == before
    assert [node.name for node in way.nodes] == ["y", "", "x"]
