"""What there is to know about a tensor's gradient: for `why`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
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
from tensormagic.collectors.tensors.autograd import MOST_HOOKS, autograd, hooks_of, saved_states
from tensormagic.reports import GradientFacts, LivePath
from tensormagic.reports.autograd import GradState

# The way from a tensor to what was computed from it, as graphs stand now: looked for from the far end.
#
# A graph can be walked in one direction only: from what was computed to what it was computed from. So everything that
# has a name and a history is walked, scalars first and the last ones made first, until one leads to the tensor.

MOST_NODES = 50_000  # walked in all
MOST_ENDS = 64  # named values that are tried
MOST_COPIES = 4


class _Search:
    """The nodes below one end, breadth first, walked as far as was asked: one walk finds the way of every tensor."""

    def __init__(self, root: Any) -> None:
        self._nodes = [] if root is None else [root]
        self._walked = 0
        self._above: dict[int, int] = {id(root): -1}  # by ``id`` of the node: where the one stands that led to it
        self._places: dict[int, int] = {}  # by ``id`` of a node, or of the leaf it collects for
        self._held: list[Any] = []  # those leaves, so that each ``id`` stays
        self._told: dict[int, tuple[str, bool, bool]] = {}  # of a node: its op, whether it is freed, whether custom

    def way(self, x: torch.Tensor, most: int) -> tuple[list[Any], int]:
        """Return the nodes from the one that makes or collects ``x`` to the end, and how many of ``most`` it took."""
        aim = x.grad_fn if has_history(x) else x
        while id(aim) not in self._places and self._walked < min(most, len(self._nodes)):
            self._step()
        at = self._places.get(id(aim), most)
        if at >= most:
            return [], min(most, len(self._nodes))
        found = []
        while at >= 0:
            found.append(self._nodes[at])
            at = self._above[id(found[-1])]
        return found, len(found)

    def _step(self) -> None:
        node, at = self._nodes[self._walked], self._walked
        self._walked += 1
        self._places.setdefault(id(node), at)
        if (leaf := getattr(node, "variable", None)) is not None:
            self._held.append(leaf)
            self._places.setdefault(id(leaf), at)
        for following in next_nodes(node):
            if id(following) not in self._above:
                self._above[id(following)] = at
                self._nodes.append(following)

    def described(
        self, nodes: list[Any], end: torch.Tensor, name: str, made: Mapping[int, tuple[str, Any]]
    ) -> LivePath:
        """Return a way as plain data; ``made`` is what the user calls that which a node made, by its ``id``."""
        for node in nodes[1:]:
            if id(node) not in self._told:
                freed = any(state.state == "freed" for state in saved_states(node))
                self._told[id(node)] = op_name(node.name()), freed, hasattr(node, "_forward_cls")
        facts = [self._told[id(node)] for node in nodes[1:]]
        return LivePath(
            end=name,
            is_scalar=end.numel() == 1,
            ops=tuple(
                made[id(node)][0] if id(node) in made else told[0]
                for node, told in zip(nodes[1:-1], facts, strict=False)
            ),
            freed=any(freed for _, freed, _ in facts),
            custom=tuple(dict.fromkeys(op for op, _, custom in facts if custom)),
        )


@dataclass
class Names:
    """What a namespace calls tensors; holds tensors: never leaves the call that makes it.

    What is looked up in it is put in order when it is first asked for, and once for all tensors that are asked about.
    """

    named: list[tuple[str, torch.Tensor]]  # names and tensors in order
    optimizers: list[tuple[str, torch.optim.Optimizer]] = field(default_factory=list)
    searches: dict[int, _Search] = field(default_factory=dict)  # by ``id`` of the end

    def of(self, x: torch.Tensor) -> str:
        """Return the name that is quickest to write, of a parameter its path in a module; empty where it has none."""
        return next(iter(nearest(list(self._labels.get(id(x), ())))), "")

    @cached_property
    def _labels(self) -> dict[int, dict[str, None]]:
        found: dict[int, dict[str, None]] = {}
        for label, each in self.named:
            found.setdefault(id(each), {})[label] = None
        return found

    @cached_property
    def known(self) -> dict[int, str]:
        """The first name of each tensor, by ``tensor._cdata``."""
        return {each._cdata: label for label, each in reversed(self.named)}

    @cached_property
    def _ends(self) -> list[tuple[str, torch.Tensor]]:
        """What has a name and a history, each once: single numbers first, later names before earlier ones."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for label, each in reversed(self.named):
            if has_history(each) and not is_stale(each):
                found.setdefault(id(each), (label, each))
        every = found.values()
        return sorted(every, key=lambda pair: (pair[1].numel() != 1, "." in pair[0] or "[" in pair[0]))

    @cached_property
    def _made(self) -> dict[int, tuple[str, Any]]:
        """The first name of what a node made, by ``id`` of the node, and the node, which is held."""
        found: dict[int, tuple[str, Any]] = {}
        for label, each in self.named:  # a view that was written to is not asked: it would get a new node
            if has_history(each) and not is_stale(each):
                found.setdefault(id(each.grad_fn), (label, each.grad_fn))
        return found

    @cached_property
    def _sharing(self) -> dict[int, tuple[list[tuple[str, torch.Tensor]], dict[str, None]]]:
        """By storage: what asks for a gradient in it, and the plain names of what does not."""
        found: dict[int, tuple[list[tuple[str, torch.Tensor]], dict[str, None]]] = {}
        for label, each in self.named:
            tracked, others = found.setdefault(storage_of(each), ([], {}))
            if each.requires_grad:
                tracked.append((label, each))
            elif label.isidentifier():
                others[label] = None
        return found

    @cached_property
    def _holders(self) -> dict[int, str]:
        """The first optimizer that holds a parameter, by ``id`` of that."""
        groups = [(label, group["params"]) for label, each in self.optimizers for group in each.param_groups]
        return {id(one): label for label, parameters in reversed(groups) for one in parameters}

    def holder(self, x: torch.Tensor) -> str:
        """Return the name of the optimizer that holds a parameter; empty where none with a name does."""
        return self._holders.get(id(x), "")

    def sharing(self, x: torch.Tensor) -> tuple[str, tuple[str, ...]]:
        """Return, of one that asks for no gradient, what shares its memory and asks for one; else names that do not."""
        tracked, others = self._sharing.get(storage_of(x) or -1, ([], {}))
        if x.requires_grad:
            return "", tuple(islice(others, MOST_COPIES))
        return next((label for label, each in tracked if each is not x), ""), ()

    def way(self, x: torch.Tensor, loss_name: str, loss: Any) -> tuple[LivePath | None, int]:
        """Return the way to a loss, or to what was computed from ``x`` and has a name, and how many were looked at."""
        if not x.requires_grad or is_stale(x):
            return None, 0
        ends = [(loss_name, loss)]
        if loss is None:
            ends = [pair for pair in self._ends[: MOST_ENDS + 1] if pair[1] is not x][:MOST_ENDS]
        left = MOST_NODES
        for looked, (label, end) in enumerate(ends, start=1):
            search = self._search(end)
            nodes, walked = search.way(x, left)
            if nodes:
                return search.described(nodes, end, label, self._made), looked
            left -= walked
            if left <= 0:
                break
        return None, len(ends)

    def _search(self, end: Any) -> _Search:
        if id(end) not in self.searches:
            whole = end._base if has_history(end) and is_stale(end) else end  # asked in the place of such a view
            self.searches[id(end)] = _Search(whole.grad_fn if has_history(end) else None)
        return self.searches[id(end)]


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
        state = autograd(x, names.known)
        called, own = names.of(x) or expression or "x", not has_history(x) or not expression
        count, zero, nan, inf = _counts(x) if state.grad == "present" else (0, 0, 0, 0)
        way, searched = names.way(x, *loss)
        relative, copies = names.sharing(x)
        return GradientFacts(
            name=called if own else expression, expression=expression if own and called != expression else "",
            shape=sizes_of(x), dtype=dtype_of(x), requires_grad=x.requires_grad, is_leaf=not has_history(x),
            retains_grad=x.retains_grad, is_parameter=isinstance(x, torch.nn.Parameter), inference=x.is_inference(),
            made_by=op_name(state.grad_fn) if state.grad_fn else "", leaves=state.leaves,
            grad=cast("GradState", state.grad), numel=count, norm=state.grad_norm, zero=zero, nan=nan, inf=inf,
            relative=relative, copies=copies, loss=loss[0], path=way, scale=scale, searched=searched,
            optimizer=names.holder(x), hooks=tuple(islice(hooks_of(x), MOST_HOOKS)),
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
