"""Remembers through which nodes the last backward passes went, so that one that finds its graph freed can name them.

A node is known by the number that autograd gave it: the walk of a pass reads it anyway. Of a few passes these numbers
are kept, eight bytes a node.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.faults.spoilt_tensors import Origin
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.graphs.saved_memory import is_freed
from tensormagic.collectors.graphs.skeleton import NO_NUMBER
from tensormagic.reports.backward_faults import FreedGraph
from tensormagic.reports.finding import Location

MOST_PASSES = 16

_COMPLAINT = "Trying to backward through the graph a second time"
_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class Gone(NamedTuple):
    """A pass that freed the graph it went through.

    Attributes:
        numbers: Sequence numbers of its nodes.
        roots: Those of the nodes it started from.
        site: The line that called backward.
        end: The number that the next node would have had when it ended.
    """

    numbers: array[int]
    roots: tuple[int, ...]
    site: int | None
    end: int


def is_about_a_freed_graph(error: BaseException) -> bool:
    """Return whether autograd complains of a graph that was gone through before."""
    return isinstance(error, RuntimeError) and _COMPLAINT in str(error)


class FreedBook:
    """The last passes that freed their graphs.

    Args:
        origin: Gives the line and the module of the node with a sequence number.
        location: Gives a line by its site.
        name: Gives the person's name of what a node made; empty where it has none.
    """

    def __init__(
        self,
        origin: Callable[[int], Origin],
        location: Callable[[int | None], Location | None],
        name: Callable[[Any], str],
    ) -> None:
        self._origin, self._location, self._name = origin, location, name
        self._gone: deque[Gone] = deque(maxlen=MOST_PASSES)

    def add(self, numbers: array[int], roots: Sequence[int], site: int | None) -> None:
        """Note a pass that has freed its graph; ``roots`` are places in ``numbers``."""
        self._gone.append(Gone(numbers, tuple(numbers[place] for place in roots), site, _sequence_number()))

    def freed(self, nodes: Sequence[Any], roots: Sequence[int], reached: int | None) -> FreedGraph | None:
        """Return what is known of the graph whose saved tensors were gone; None where none of its nodes has lost any.

        Args:
            nodes: The live nodes of the backward that raised.
            roots: Places of those that it started from.
            reached: Place of the node that the engine reached last; None where that is not known.
        """
        place = reached if reached is not None and is_freed(nodes[reached]) else _first_freed(nodes)
        if place is None:
            return None
        numbers = [node._sequence_nr() for node in nodes]
        location, _ = self._origin(numbers[place])
        found = FreedGraph(op=op_name(nodes[place].name()), location=location, node=place)
        gone = next((one for one in self._gone if numbers[place] in one.numbers), None)
        return found if gone is None else self._told(found, gone, nodes, (numbers, roots))

    def _told(
        self, found: FreedGraph, gone: Gone, nodes: Sequence[Any], now: tuple[list[int], Sequence[int]]
    ) -> FreedGraph:
        numbers, roots = now
        common = set(gone.numbers) & set(numbers) - {NO_NUMBER}
        whole = all(numbers[place] in gone.roots for place in roots)
        joint = next((at for at, number in enumerate(numbers) if number in common), None)
        location = self._origin(numbers[joint])[0] if joint is not None else None
        newer = (self._origin(number)[0] for number in numbers if gone.end <= number < NO_NUMBER)
        return FreedGraph(
            op=found.op, location=found.location, node=found.node, whole=whole, known=True,
            first=self._location(gone.site), joint=op_name(nodes[joint].name()) if joint is not None else "",
            joint_name=self._name(nodes[joint]) if joint is not None else "", joint_location=location,
            joint_again=location is not None and location in newer, shared=len(common),
        )  # fmt: skip


def _first_freed(nodes: Sequence[Any]) -> int | None:
    return next((at for at, node in enumerate(nodes) if not hasattr(node, "variable") and is_freed(node)), None)
