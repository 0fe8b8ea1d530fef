"""What a tensor itself, and the names around it, tell of its gradient: nothing is run, changed or kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tensormagic.collectors.cuts.cut_values import dtype_of
from tensormagic.collectors.graphs.history import is_stale
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.objects.namespace import modules_in, walk_tensors
from tensormagic.collectors.objects.naming import nearest
from tensormagic.collectors.quiet import here, quiet
from tensormagic.collectors.tensors.autograd import autograd
from tensormagic.collectors.tensors.subject import sizes_of
from tensormagic.collectors.why.live_way import way_between, way_to_anything
from tensormagic.reports import GradientFacts, LiveWay

MOST_COPIES = 4


@dataclass(slots=True)
class Names:
    """What a namespace calls tensors; holds tensors: never leaves the call that makes it.

    Attributes:
        tensors: Every named tensor, by identity of the tensor, with its names.
        named: Names and tensors in order.
    """

    tensors: dict[int, list[str]]
    named: list[tuple[str, torch.Tensor]]

    def of(self, x: torch.Tensor) -> str:
        """Return the name that is quickest to write, of a parameter its path in a module; empty where it has none."""
        return next(iter(nearest(self.tensors.get(id(x), []))), "")


def names_of(namespace: Mapping[str, Any]) -> Names:
    """Return the names of every tensor and parameter in a namespace."""
    with quiet():
        named = list(walk_tensors(namespace))
        for root, module in modules_in(namespace):
            named += [(f"{root}.{path}", each) for path, each in module.named_parameters()]
    found: dict[int, list[str]] = {}
    for label, each in named:
        if label not in found.setdefault(id(each), []):
            found[id(each)].append(label)
    return Names(found, named)


def gradient_facts(
    x: torch.Tensor, expression: str, names: Names, *, loss: tuple[str, Any] = ("", None), scale: float = 1.0
) -> GradientFacts:
    """Return what is known of a tensor's gradient.

    Args:
        x: Any tensor.
        expression: What the person wrote.
        names: What the namespace calls tensors.
        loss: Name and value of what backward was, or is to be, called on; by default something computed from ``x``.
        scale: The factor of a ``GradScaler`` in sight.
    """
    with quiet(), torch._C.DisableTorchFunction():
        known = {each._cdata: label for label, each in reversed(names.named)}
        state = autograd(x, known)
        called, own = names.of(x) or expression or "x", x.is_leaf or not expression
        count, zero, nan, inf = _counts(x) if state.grad == "present" else (0, 0, 0, 0)
        way, searched = _way(x, names, *loss)
        return GradientFacts(
            name=called if own else expression, expression=expression if own and called != expression else "",
            shape=sizes_of(x), dtype=dtype_of(x), requires_grad=x.requires_grad, is_leaf=x.is_leaf,
            retains_grad=x.retains_grad, is_parameter=isinstance(x, torch.nn.Parameter), inference=x.is_inference(),
            made_by=op_name(state.grad_fn) if state.grad_fn else "", leaves=state.leaves,
            grad=_state(state.grad), numel=count, norm=state.grad_norm, zero=zero, nan=nan, inf=inf,
            relative=_relative(x, names), copies=_copies(x, names),
            loss=loss[0], way=way, scale=scale, searched=searched,
        )  # fmt: skip


def _state(told: str) -> Any:
    return told if told in {"none", "present"} else "unreadable"


def _counts(x: torch.Tensor) -> tuple[int, int, int, int]:
    """Return how many elements the gradient has, and how many are zero, NaN and infinite."""
    grad = here(x.grad)
    if grad is None:
        return 0, 0, 0, 0
    try:
        values = (grad.coalesce().values() if grad.is_sparse else grad).detach()
        zero, nan, inf = (int(found.sum()) for found in (values == 0, values.isnan(), values.isinf()))
    except (RuntimeError, NotImplementedError, TypeError):  # a kind without values
        return grad.numel(), 0, 0, 0
    absent = grad.numel() - values.numel()  # of a sparse gradient: not stored, and zero
    return grad.numel(), zero + absent, nan, inf


def _way(x: torch.Tensor, names: Names, loss_name: str, loss: Any) -> tuple[LiveWay | None, int]:
    if not x.requires_grad or (not x.is_leaf and is_stale(x)):
        return None, 0
    if loss is not None:
        return way_between(x, loss, loss_name, names.named), 1
    return way_to_anything(x, names.named)


def _relative(x: torch.Tensor, names: Names) -> str:
    """Return the name of a tensor with the same storage that asks for a gradient, though ``x`` does not."""
    shared = () if x.requires_grad else _sharing(x, names)
    return next((label for label, each in shared if each.requires_grad), "")


def _copies(x: torch.Tensor, names: Names) -> tuple[str, ...]:
    """Return names that share the memory of ``x`` but not its history, without those of gradients and optimizers."""
    shared = _sharing(x, names) if x.requires_grad else ()
    found = [label for label, each in shared if not each.requires_grad and label.isidentifier()]
    return tuple(dict.fromkeys(found))[:MOST_COPIES]


def _sharing(x: torch.Tensor, names: Names) -> list[tuple[str, torch.Tensor]]:
    storage = _storage(x)
    return [pair for pair in names.named if pair[1] is not x and storage and _storage(pair[1]) == storage]


def _storage(x: torch.Tensor) -> int:
    """Return the identity of the memory of a tensor; 0 where it has none."""
    try:
        return int(x.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return 0


def scale_in(namespace: Mapping[str, Any]) -> float:
    """Return the factor of the first ``GradScaler`` that has a name and is on; 1 where there is none."""
    for value in list(namespace.values()):
        if isinstance(value, torch.amp.GradScaler) and value.is_enabled():
            return float(value.get_scale())
    return 1.0


def is_module(value: object) -> bool:
    """Return whether ``value`` is a module."""
    return isinstance(value, torch.nn.Module)


def parameters_of(module: torch.nn.Module, name: str) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters of a module by their paths; lazy ones that have no shape yet are left out."""
    lazy = torch.nn.parameter.is_lazy
    return [(f"{name}.{path}", each) for path, each in module.named_parameters() if not lazy(each)]
