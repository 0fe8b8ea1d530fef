"""What is behind an autograd state: reasons, hooks, saved tensors with their versions, the way to the leaves."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from tensormagic.collectors.tensors import autograd
from tensormagic.collectors.tensors.autograd import autograd_details
from tensormagic.reports import BEYOND, NOTHING, AutogradDetails, Path


def look(x: torch.Tensor, /, **named: torch.Tensor) -> AutogradDetails:
    """The details of x among named tensors."""
    names = {tensor._cdata: name for name, tensor in named.items()}
    return autograd_details(x, names, named.items(), name="x")


def path_of(x: torch.Tensor, /, **named: torch.Tensor) -> Path:
    """The way from x to its leaves."""
    found = look(x, **named).path
    assert found is not None
    return found


def clip(grad: torch.Tensor) -> torch.Tensor:
    """A hook with a name."""
    return grad


@pytest.fixture
def w() -> torch.Tensor:
    """A leaf."""
    return torch.tensor([1.0, 2.0], requires_grad=True)


def test_why_a_leaf_is_one(w: torch.Tensor) -> None:
    """Each way of being a leaf, or untracked, has its reason."""
    assert look(w).because == "a leaf: no recorded operation made it, and requires_grad was set on it"
    assert look(nn.Parameter(w)).because.endswith("and a Parameter requires grad")
    assert look(w * 2).because == "not a leaf: MulBackward0 made it from something that requires grad"
    assert look(torch.ones(2, dtype=torch.int64)).because.startswith("only floating-point and complex")
    assert look(torch.ones(2)).because.startswith("no operation that led to it was recorded")
    with torch.inference_mode():
        assert "inference_mode" in look(torch.ones(2)).because


def test_where_it_was_cut_off(w: torch.Tensor) -> None:
    """detach() and .data share the memory of what they were cut from: it is named."""
    for cut in (w.detach(), w.data, w.detach()[:1]):
        assert look(cut, w=w).because == (
            "it shares w's memory but not its graph: detach(), .data or no_grad cut x off"
        )


def test_why_grad_is_there_or_not(w: torch.Tensor) -> None:
    """Before a backward, after it, of a non-leaf, of a retained one, of an untracked one."""
    y = w * 2
    assert look(w).grad_because.startswith("no backward() has reached it")
    assert "x.retain_grad()" in look(y).grad_because
    y.retain_grad()
    assert look(y).grad_because.startswith("no backward()")
    y.sum().backward()
    assert look(w).grad_because == look(y).grad_because == "backward() has set it; the next one is added to it"
    assert look(w.detach()).grad_because == "autograd does not track it"


def test_hooks_are_named_and_placed(w: torch.Tensor) -> None:
    """A function, a lambda, a partial and a bound method, before and after accumulation."""
    w.register_hook(clip)
    w.register_hook(lambda grad: grad)
    w.register_hook(functools.partial(clip))
    w.register_hook(nn.Identity().forward)
    w.register_post_accumulate_grad_hook(clip)
    hooks = look(w).hooks
    assert [hook.function for hook in hooks] == ["clip", "<lambda>", "clip", "Identity.forward", "clip"]
    assert [hook.kind for hook in hooks] == ["tensor hook"] * 4 + ["post-accumulate hook"]
    assert hooks[0].place == f"test_autograd_details.py, line {clip.__code__.co_firstlineno}"


def test_saved_tensors_that_are_fine(w: torch.Tensor) -> None:
    """Name, shape, dtype, bytes and version of what a product keeps."""
    (other, own) = look(w * w, w=w).saved
    assert (own.slot, own.state, own.name, own.shape, own.dtype, own.nbytes) == (
        "self",
        "fine",
        "w",
        (2,),
        "float32",
        8,
    )
    assert (other.saved_version, other.version) == (0, 0)


def test_saved_tensor_changed_in_place(w: torch.Tensor) -> None:
    """Both versions are told, and nothing raises."""
    y = w * 2
    z = y.pow(2)
    y.add_(1).mul_(3)
    (saved,) = [saved for saved in look(z).saved if saved.slot == "self"]
    assert (saved.state, saved.saved_version, saved.version) == ("changed in place", 0, 2)
    assert path_of(z).nodes[0].saved == "changed in place"


def test_saved_tensors_of_a_freed_graph(w: torch.Tensor) -> None:
    """After backward they are freed; with retain_graph they are fine."""
    z = (w * w).exp()
    z.sum().backward(retain_graph=True)
    assert {saved.state for saved in look(z).saved} == {"fine"}
    z.sum().backward()
    assert {saved.state for saved in look(z).saved} == {"freed"}
    assert [node.saved for node in path_of(z).nodes] == ["freed", "freed", ""]


def test_packed_tensors_are_not_unpacked(w: torch.Tensor) -> None:
    """A user's saved-tensor hooks are not run for a look."""
    calls: list[str] = []

    def unpack(x: torch.Tensor) -> torch.Tensor:
        calls.append("unpack")
        return x

    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
        y = w.exp()
    assert {saved.state for saved in look(y).saved} == {"packed by a hook"}
    assert calls == []


def test_lists_of_saved_tensors(w: torch.Tensor) -> None:
    """Indexing keeps a list of indices: each is listed, and none is taken for packed."""
    rows = torch.tensor([1, 0, 1])
    (saved,) = [saved for saved in look(w[rows], rows=rows).saved if saved.slot.startswith("indices")]
    assert (saved.slot, saved.name, saved.state, saved.shape) == ("indices[0]", "rows", "fine", (3,))
    y = w[rows]
    rows.add_(0)
    assert {saved.state for saved in look(y).saved} == {"changed in place"}


def test_custom_functions(w: torch.Tensor) -> None:
    """What a user's own Function saved is listed by number, and freed like any other."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    y = Double.apply(w)
    (saved,) = look(y, w=w).saved
    assert (saved.slot, saved.name, saved.state) == ("saved_tensors[0]", "w", "fine")
    assert path_of(y).nodes[0].op == "Double"
    y.sum().backward()
    assert look(y).saved[0].state == "freed"


def test_way_to_the_leaves_by_name(w: torch.Tensor) -> None:
    """Nodes carry the names of what they made, leaves theirs; what needs no gradient leads nowhere."""
    b = torch.zeros(2, requires_grad=True)
    y = w * 3
    z = y + b
    found = path_of(z, w=w, y=y, z=z)
    assert [(node.op, node.name, node.is_leaf) for node in found.nodes] == [
        ("add", "", False), ("mul", "y", False), ("", "", True), ("", "w", True),
    ]  # fmt: skip
    assert [node.inputs for node in found.nodes] == [(1, 2), (3, NOTHING), (), ()]
    assert (found.walked, found.complete, found.nodes[2].shape) == (4, True, (2,))
    z.sum().backward()
    assert [node.has_grad for node in path_of(z).nodes] == [False, False, True, True]


def test_deep_graphs_are_walked_in_part(monkeypatch: pytest.MonkeyPatch, w: torch.Tensor) -> None:
    """Some are listed, more are counted, and past the bound it is said that there are more."""
    y = w
    for _ in range(3000):
        y = y + 1
    found = path_of(y)
    assert (len(found.nodes), found.walked, found.complete) == (autograd.MOST_LISTED, 3001, True)
    assert found.nodes[-1].inputs == (BEYOND, NOTHING)
    monkeypatch.setattr(autograd, "MOST_COUNTED", 100)
    found = path_of(y)
    assert (found.walked, found.complete) == (100, False)


def test_output_number_and_shared_nodes(w: torch.Tensor) -> None:
    """The second of two outputs is number one; a node used twice is listed once."""
    assert look(w.unbind()[1]).output_number == 1
    y = w.exp()
    assert path_of(y * y).walked == 3


def test_looking_changes_nothing(w: torch.Tensor) -> None:
    """Version counters, gradients and hooks are as before, and the graph can still run back."""
    y = w * w
    y.register_hook(clip)
    z = y.exp()
    before = (w._version, y._version, z._version, len(y._backward_hooks or {}))
    look(z, w=w, y=y)
    assert (w._version, y._version, z._version, len(y._backward_hooks or {})) == before
    z.sum().backward()
    assert w.grad is not None
