"""Which leaves lie behind a cut: what would have got a gradient through here, and may get none anywhere now.

A cut is a fault only if something that asks for a gradient gets none because of it. Backward never comes there, so it
is looked for while the value's history is still there: the graph behind it is walked the first times a place in the
source cuts something, as long as that brings leaves not seen there before. Only weak references are kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tensormagic.collectors.graphs.history import has_history, is_stale
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.reports.cuts import LeftOut

MOST_NODES = 20_000  # walked for one place of the source, over the whole run
MOST_LEAVES = 512  # kept of one place
FRUITLESS = 3  # walks in a row without a new leaf, after which a place is known


class Behind:
    """The leaves behind the values that one place of the source cut off.

    Attributes:
        leaves: By identity; an ``id`` counts only while its reference lives.
    """

    __slots__ = ("_fruitless", "_nodes_left", "leaves")

    def __init__(self) -> None:
        self.leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        self._nodes_left, self._fruitless = MOST_NODES, 0

    def add(self, source: torch.Tensor) -> None:
        """Note a value that went in: the leaf that it is, or those that its history leads to."""
        if not has_history(source):
            self._keep(source)
        elif self._fruitless < FRUITLESS and self._nodes_left > 0 and not is_stale(source):
            before = len(self.leaves)
            for leaf in self._walk(source.grad_fn):
                self._keep(leaf)
            self._fruitless = 0 if len(self.leaves) > before else self._fruitless + 1

    def _keep(self, leaf: torch.Tensor) -> None:
        known = self.leaves.get(id(leaf))
        if (known is None or known() is not leaf) and len(self.leaves) < MOST_LEAVES:
            self.leaves[id(leaf)] = weakref.ref(leaf)

    def _walk(self, root: Any) -> Iterator[torch.Tensor]:
        nodes, seen = [root], {id(root)}
        for node in nodes:  # grows while it is walked
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.Tensor):
                yield leaf
            following = [to for to, _ in node.next_functions if to is not None and id(to) not in seen]
            self._nodes_left -= 1
            if self._nodes_left <= 0:
                return
            seen.update(map(id, following))
            nodes += following

    def alive(self) -> Iterator[torch.Tensor]:
        """Yield the leaves that are still there."""
        for reference in list(self.leaves.values()):
            if (leaf := reference()) is not None:
                yield leaf


class Trained:
    """The parameters that optimizers were given which made a step in the run, and the leaves that other code writes.

    Attributes:
        any_step: Whether an optimizer made a step.
    """

    def __init__(self) -> None:
        self.any_step = False
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._held: dict[int, weakref.ref[torch.Tensor]] = {}
        self._written: dict[int, weakref.ref[torch.Tensor]] = {}

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note what an optimizer that begins a step was given; one that is known costs a look-up."""
        known = self._optimizers.get(id(optimizer))
        if known is not None and known() is optimizer:
            return
        self.any_step = True
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        for group in optimizer.param_groups:
            self._held.update((id(given), weakref.ref(given)) for given in group["params"])

    def write(self, leaf: torch.Tensor) -> None:
        """Note a leaf that is written to by hand: a moving average keeps it up."""
        if len(self._written) < MOST_LEAVES * 8:
            self._written[id(leaf)] = weakref.ref(leaf)

    def known(self) -> list[int]:
        """Return, by ``id``, all that optimizers hold or other code writes, as far as it is alive."""
        both = [*self._held.items(), *self._written.items()]
        return [key for key, reference in both if reference() is not None]

    def is_held(self, leaf: torch.Tensor) -> bool | None:
        """Return whether an optimizer that made a step holds the leaf; None where none made one."""
        return _holds(self._held, leaf) if self.any_step else None

    def is_written(self, leaf: torch.Tensor) -> bool:
        """Return whether the leaf was written to by hand."""
        return _holds(self._written, leaf)


def _holds(known: dict[int, weakref.ref[torch.Tensor]], leaf: torch.Tensor) -> bool:
    reference = known.get(id(leaf))
    return reference is not None and reference() is leaf


def left_out(leaves: Iterable[torch.Tensor], known: Leaves, reached: set[int], trained: Trained) -> tuple[LeftOut, ...]:
    """Return those of ``leaves`` that ask for a gradient and have none, and that no graph of the run led to."""
    with torch._C.DisableTorchFunction():
        found = [_left_out(leaf, known, trained) for leaf in leaves if _is_left_out(leaf, known, reached)]
    return tuple(dict.fromkeys(one for one in found if one.name))


def _is_left_out(leaf: torch.Tensor, known: Leaves, reached: set[int]) -> bool:
    return leaf.requires_grad and leaf.grad_fn is None and leaf.grad is None and known.find(leaf) not in reached


def _left_out(leaf: torch.Tensor, known: Leaves, trained: Trained) -> LeftOut:
    number = known.find(leaf)
    told = known.known[number] if number is not None else None
    is_parameter = isinstance(leaf, torch.nn.Parameter)
    nameless = "" if is_parameter else f"leaf {tuple(leaf.shape)}"  # a module that was met has put another in its place
    name = told.name if told is not None else known.called(leaf) or nameless
    return LeftOut(
        name=name,
        owner=told.owner if told is not None else "",
        shape=tuple(leaf.shape),
        is_parameter=is_parameter,
        held=trained.is_held(leaf),
        written=trained.is_written(leaf) or (number is not None and number in known.replaced),
    )
