"""What there is to know about a tensor's gradient: for `why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from tensormagic.collectors.detachment.detachment_facts import dtype_of
from tensormagic.collectors.geometry.parts import storage_of
from tensormagic.collectors.graphs.live_nodes import next_nodes
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.kinds import sizes_of
from tensormagic.collectors.objects.children import has_history, held_by, is_kind, is_readable, is_stale
from tensormagic.collectors.objects.namespace import Walk, modules_in, nearest
from tensormagic.collectors.quiet import dispatches_to_python, local_shard, quiet
from tensormagic.collectors.tensors.autograd import autograd, names_made, saved_states
from tensormagic.reports import GradientFacts, LivePath
from tensormagic.reports.autograd import GradState

# The way from a tensor to what was computed from it, as graphs stand now: looked for from the far end.
#
# A graph can be walked in one direction only: from what was computed to what it was computed from. So everything that
# has a name and a history is walked, scalars first and the last ones made first, until one leads to the tensor.

MOST_NODES = 50_000  # walked in all
MOST_ENDS = 64  # named values that are tried
MOST_COPIES = 4

Named = Sequence[tuple[str, Any]]


def _way(x: torch.Tensor, named: Named, loss_name: str, loss: Any) -> tuple[LivePath | None, int]:
    """Return the way to a loss, or to something computed from ``x`` that has a name, and how many were looked at."""
    if not x.requires_grad or is_stale(x):
        return None, 0
    ends = _ends(x, named) if loss is None else [(loss_name, loss)]
    left = MOST_NODES
    for looked, (label, end) in enumerate(ends, start=1):
        whole = end._base if has_history(end) and is_stale(end) else end  # that is asked in the place of such a view
        nodes, left = _walk(whole.grad_fn if has_history(end) else None, x, left)
        if nodes:
            return _described(nodes, end, label, named), looked
        if left <= 0:
            break
    return None, len(ends)


def _ends(x: torch.Tensor, named: Named) -> list[tuple[str, torch.Tensor]]:
    """Return what has a name and a history, each once: single numbers first, later names before earlier ones."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for label, each in reversed(named):
        if each is not x and has_history(each) and not is_stale(each):
            found.setdefault(id(each), (label, each))
    ordered = sorted(found.values(), key=lambda pair: (pair[1].numel() != 1, "." in pair[0] or "[" in pair[0]))
    return ordered[:MOST_ENDS]


def _walk(root: Any, x: torch.Tensor, left: int) -> tuple[list[Any], int]:
    """Return the nodes from the one that makes or collects ``x`` to ``root``, and how many more may be walked."""
    aim = x.grad_fn if has_history(x) else None
    came_from: dict[int, Any] = {id(root): None}
    nodes = [] if root is None else [root]
    for node in nodes:  # grows while it is walked
        left -= 1
        if node is aim or (aim is None and getattr(node, "variable", None) is x):
            way = [node]
            while (following := came_from[id(way[-1])]) is not None:
                way.append(following)
            return way, left
        if left <= 0:
            break
        for following in next_nodes(node):
            if id(following) not in came_from:
                came_from[id(following)] = node
                nodes.append(following)
    return [], left


def _described(nodes: list[Any], end: torch.Tensor, name: str, named: Named) -> LivePath:
    made = names_made(nodes, named)
    return LivePath(
        end=name,
        is_scalar=end.numel() == 1,
        ops=tuple(made[id(node)] or op_name(node.name()) for node in nodes[1:-1]),
        freed=any(state.state == "freed" for node in nodes[1:] for state in saved_states(node)),
        custom=tuple(dict.fromkeys(op_name(node.name()) for node in nodes[1:] if hasattr(node, "_forward_cls"))),
    )


@dataclass(slots=True)
class Names:
    """What a namespace calls tensors; holds tensors: never leaves the call that makes it."""

    named: list[tuple[str, torch.Tensor]]  # names and tensors in order
    optimizers: list[tuple[str, torch.optim.Optimizer]] = field(default_factory=list)

    def of(self, x: torch.Tensor) -> str:
        """Return the name that is quickest to write, of a parameter its path in a module; empty where it has none."""
        labels = dict.fromkeys(label for label, each in self.named if each is x)
        return next(iter(nearest(list(labels))), "")


def names_of(namespace: Mapping[str, Any]) -> Names:
    """Return the names of every tensor and parameter in a namespace."""
    with quiet():
        named = list(Walk(namespace).named(torch.Tensor))
        for root, module in modules_in(namespace):
            named += [(f"{root}.{path}", each) for path, each in held_by(module) if is_readable(each)]
    optimizers = [(name, each) for name, each in namespace.items()
                  if not name.startswith("_") and is_kind(each, torch.optim.Optimizer)]  # fmt: skip
    return Names(named, optimizers)


def gradient_facts(
    x: torch.Tensor, expression: str, names: Names, *, loss: tuple[str, Any] = ("", None), scale: float = 1.0
) -> GradientFacts:
    """Return what is known of the gradient of a tensor, which the user wrote as ``expression``.

    ``loss`` is name and value of what backward was, or is to be, called on, by default something computed from ``x``;
    ``scale`` is the factor of a ``GradScaler`` in sight.
    """
    with quiet(), torch._C.DisableTorchFunction():
        known = {each._cdata: label for label, each in reversed(names.named)}
        state = autograd(x, known)
        called, own = names.of(x) or expression or "x", not has_history(x) or not expression
        count, zero, nan, inf = _counts(x) if state.grad == "present" else (0, 0, 0, 0)
        way, searched = _way(x, names.named, *loss)
        storage = storage_of(x)
        others = names.named if storage else []
        shared = [(label, each) for label, each in others if each is not x and storage_of(each) == storage]
        relative = next((label for label, each in shared if each.requires_grad), "")
        copies = dict.fromkeys(label for label, each in shared if not each.requires_grad and label.isidentifier())
        held = ((label, group["params"]) for label, each in names.optimizers for group in each.param_groups)
        return GradientFacts(
            name=called if own else expression, expression=expression if own and called != expression else "",
            shape=sizes_of(x), dtype=dtype_of(x), requires_grad=x.requires_grad, is_leaf=not has_history(x),
            retains_grad=x.retains_grad, is_parameter=isinstance(x, torch.nn.Parameter), inference=x.is_inference(),
            made_by=op_name(state.grad_fn) if state.grad_fn else "", leaves=state.leaves,
            grad=cast("GradState", state.grad), numel=count, norm=state.grad_norm, zero=zero, nan=nan, inf=inf,
            relative="" if x.requires_grad else relative, copies=tuple(copies)[:MOST_COPIES] if x.requires_grad else (),
            loss=loss[0], path=way, scale=scale, searched=searched,
            optimizer=next((label for label, parameters in held if any(one is x for one in parameters)), ""),
        )  # fmt: skip


def _counts(x: torch.Tensor) -> tuple[int, int, int, int]:
    """Return how many elements the gradient has, and how many are zero, NaN and infinite."""
    grad = local_shard(x.grad)
    if grad is None:  # another thread cleared it meanwhile
        return 0, 0, 0, 0
    zero = nan = inf = 0
    with suppress(RuntimeError, NotImplementedError, TypeError):  # a kind without values
        if not dispatches_to_python(grad):  # else code of its class would answer
            values = (grad.coalesce().values() if grad.is_sparse else grad).detach()
            zero, nan, inf = (int(found.sum()) for found in (values == 0, values.isnan(), values.isinf()))
            zero += grad.numel() - values.numel()  # of a sparse gradient: not stored, and zero
    return grad.numel(), zero, nan, inf


def scale_in(namespace: Mapping[str, Any]) -> float:
    """Return the factor of the first ``GradScaler`` that has a name and is on; 1 where there is none."""
    for value in list(namespace.values()):
        if is_kind(value, torch.amp.GradScaler) and value.is_enabled():
            return float(value.get_scale())
    return 1.0


def parameters_of(module: torch.nn.Module, name: str) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters of a module by their paths; lazy ones that have no shape yet are left out."""
    lazy = torch.nn.parameter.is_lazy
    return [(f"{name}.{path}", each) for path, each in module.named_parameters() if not lazy(each)]
