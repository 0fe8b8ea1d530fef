"""A tensor's place in autograd: whether it is tracked, what made it, which leaves its gradient goes to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tensormagic.collectors.quiet import here, quiet
from tensormagic.collectors.tensors.subject import is_readable, sizes_of
from tensormagic.reports import AutogradReport
from tensormagic.words import count, listed

NODE_LIMIT = 10_000
_SHOWN_LEAVES = 8
_NAMED_LEAVES = 3


@dataclass(frozen=True, slots=True)
class _Leaves:
    """The leaves a graph leads to: their names, and whether the whole graph was walked."""

    names: tuple[str, ...]
    complete: bool


def autograd(x: torch.Tensor, names: Mapping[int, str], *, name: str = "x") -> AutogradReport:
    """Return the autograd state of a tensor, without the warnings torch gives for looking.

    Args:
        x: Any tensor.
        names: What tensors are called, by ``tensor._cdata``.
        name: What ``x`` is called, for the sentence.
    """
    with quiet():
        made_by, leaves = x.grad_fn, _leaves(x.grad_fn, names)
        state, shape, norm = _gradient(x)
        return AutogradReport(
            requires_grad=x.requires_grad,
            is_leaf=x.is_leaf,
            grad_fn=None if made_by is None else made_by.name(),
            retains_grad=x.retains_grad,
            grad=state,
            grad_shape=shape,
            grad_norm=norm,
            hooks=len(x._backward_hooks or ()) + len(getattr(x, "_post_accumulate_grad_hooks", None) or ()),
            leaves=leaves.names[:_SHOWN_LEAVES],
            leaf_count=len(leaves.names),
            sentence=_sentence(x, name, leaves, state),
        )


def _leaves(root: Any, names: Mapping[int, str]) -> _Leaves:
    """Walk the graph from a node, nearest nodes first and without recursion, to those that accumulate into leaves."""
    found: dict[int, str] = {}
    pending, seen = deque([root] if root is not None else []), {root}
    while pending and len(seen) <= NODE_LIMIT:
        node = pending.popleft()
        if type(node).__name__ == "AccumulateGrad" and (leaf := node.variable) is not None:
            found.setdefault(leaf._cdata, names.get(leaf._cdata, f"{sizes_of(leaf)} leaf"))
            continue
        following = dict.fromkeys(after for after, _ in node.next_functions if after is not None and after not in seen)
        seen.update(following)
        pending.extend(following)
    return _Leaves(tuple(found.values()), complete=not pending)


Gradient = tuple[str, "tuple[int, ...] | None", "float | None"]


def _gradient(x: torch.Tensor) -> Gradient:
    """Return state, shape and norm of ``.grad``; it is not even asked for where torch would warn."""
    if not (x.is_leaf or x.retains_grad):
        return "none", None, None
    try:
        grad = x.grad
    except RuntimeError:
        return "unreadable", None, None
    return ("none", None, None) if grad is None else ("present", sizes_of(grad), _norm(grad))


def _norm(grad: torch.Tensor) -> float | None:
    """Return the Euclidean norm of a gradient of any layout; None where it cannot be read, or not without its class."""
    try:
        grad = here(grad)  # of a DTensor what lies in this process
        values = grad.coalesce().values() if grad.is_sparse else grad
        if not is_readable(values):
            return None
        wide = None if values.device.type == "mps" else torch.complex128 if values.is_complex() else torch.float64
        return float(torch.linalg.vector_norm(values, dtype=wide))
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _sentence(x: torch.Tensor, name: str, leaves: _Leaves, state: str) -> str:
    if x.is_inference():
        return "an inference tensor: made under inference_mode, autograd never tracks it"
    if not x.requires_grad:
        return _untracked_sentence(x, name)
    if x.is_leaf:
        holds = "adds to" if state == "present" else "will fill"
        return f"a leaf that requires grad: backward() {holds} {name}.grad"
    made = f"made by {x.grad_fn.name()}, no leaf" if x.grad_fn is not None else "no leaf"
    if x.retains_grad:
        return f"{made}, but retain_grad() was called: backward() fills {name}.grad{_onwards(leaves, ' and goes on')}"
    return f"{made}: backward() passes through it{_onwards(leaves)}, and {name}.grad stays None"


def _untracked_sentence(x: torch.Tensor, name: str) -> str:
    if not (x.is_floating_point() or x.is_complex()):
        return f"a leaf by convention, and {str(x.dtype).removeprefix('torch.')} values cannot have gradients"
    return f"a leaf by convention that does not require grad: no graph leads to it, and {name}.grad stays None"


def _onwards(leaves: _Leaves, verb: str = "") -> str:
    """Return where the gradient goes on to, as the end of a clause; nothing where no leaf was found."""
    if not leaves.names:
        return "" if leaves.complete else f" (its leaves are more than {count(NODE_LIMIT)} nodes away)"
    return f"{verb} to {listed(leaves.names, most=_NAMED_LEAVES)}" + ("" if leaves.complete else " and perhaps others")
