"""Notes where ``.grad`` is read of a tensor that is no leaf and keeps no gradient: it is None, and stays so.

Torch says so once a process, in a warning. Only what the person's own lines read is noted, and only what was None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.graphs.history import has_history, history_of
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.where.running import names_of
from tensormagic.collectors.where.source import Sites, is_own_code
from tensormagic.reports.backward_faults import GradientRead
from tensormagic.reports.finding import Location

MOST_READS = 64  # different ones
MOST_SEARCHED = 64  # nodes on the way to a leaf


class Place(NamedTuple):
    """What makes two readings the same."""

    site: int | None
    name: str


@dataclass(slots=True)
class _Told:
    op: str
    number: int
    shape: tuple[int, ...]
    leaf: str
    single: bool
    passes: int
    count: int = 0


class GradientReads:
    """The readings of a run.

    Args:
        sites: Interns the person's lines.

    Attributes:
        leaf_name: Gives the name of a leaf; empty where it has none.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self.leaf_name: Callable[[torch.Tensor], str] = _no_name
        self._found: dict[Place, _Told] = {}

    def see(self, tensor: Any, frame: FrameType, passes: int) -> None:
        """Look at a tensor whose ``.grad`` was read in ``frame`` and was None, after so many backward passes."""
        if not has_history(tensor) or tensor.retains_grad or not is_own_code(frame.f_code.co_filename):
            return
        if torch._C._current_autograd_node() is not None:
            return
        place = Place(self._sites.of_frame(frame), name_in(frame, tensor))
        told = self._found.get(place)
        if told is None:
            if len(self._found) >= MOST_READS:
                return
            told = self._found[place] = self._tell(tensor, passes)
        told.count += 1

    def _tell(self, tensor: torch.Tensor, passes: int) -> _Told:
        number, name = history_of(tensor)
        leaf = _only_leaf(tensor)
        called = self.leaf_name(leaf) if leaf is not None else ""
        return _Told(op_name(name) if name else "", number, tuple(tensor.shape), called, leaf is not None, passes)

    def report(
        self, made: Callable[[int], Location | None], location: Callable[[int | None], Location | None]
    ) -> tuple[GradientRead, ...]:
        """Return the readings; ``made`` gives the line of a node by its number, ``location`` a line by its site."""
        return tuple(
            GradientRead(
                name=place.name, op=told.op, shape=told.shape, location=location(place.site), made=made(told.number),
                leaf=told.leaf, single=told.single, passes=told.passes, count=told.count,
            )
            for place, told in self._found.copy().items()
        )  # fmt: skip


def _no_name(_: torch.Tensor) -> str:
    return ""


def name_in(frame: FrameType, tensor: torch.Tensor) -> str:
    """Return what a running frame calls a tensor; empty where it has no name there."""
    for names in (names_of(frame), frame.f_globals):
        for name, value in list(names.items()):
            if value is tensor and not name.startswith("_"):
                return name
    return ""


def _only_leaf(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the one leaf that a tensor was made from in a straight line; None where there is more to it."""
    node: Any = tensor.grad_fn if history_of(tensor)[0] >= 0 else None
    for _ in range(MOST_SEARCHED):
        if node is None or hasattr(node, "variable"):
            break
        targets = [target for target, _ in node.next_functions if target is not None]
        node = targets[0] if len(targets) == 1 else None
    return getattr(node, "variable", None)
