"""What the operations of each autograd node took."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.hooks.stepping_off import ASKING_NODES
from tensormagic.collectors.ops.op_calls import Places, Row, Rows
from tensormagic.reports import Node
from tensormagic.reports.ops import NodeCosts

# What the operations of each autograd node took: in the forward, that made it, and in the backward, that it called.
#
# In the forward a node is known by its sequence number: it stands there before the operation runs. The numbers wait
# in packed columns until a backward walks the graph. In the backward the engine names the node that it works for.

MOST_WAITING = 1 << 18  # calls remembered until their backward comes (6 MB)
SETTLED_CALLS = 1 << 11  # of these, how many at least stay when a pass has ended: its graph may be used once more


class ForwardLog:
    """What the calls took that made nodes, by the sequence number of the node.

    Attributes:
        last: The sequence number of the next node, when last looked at.
    """

    __slots__ = ("_bytes", "_marks", "_numbers", "_seconds", "last")

    def __init__(self) -> None:
        self._numbers, self._seconds, self._bytes = array("q"), array("d"), array("q")
        self._marks = (0, 0)
        self.last = 0

    def add(self, number: int, seconds: float, nbytes: int) -> None:
        """Note a call that made the node ``number``."""
        self._numbers.append(number)
        self._seconds.append(seconds)
        self._bytes.append(nbytes)
        if len(self._numbers) > MOST_WAITING:
            self._drop(MOST_WAITING // 2)

    def settle(self) -> None:
        """Say that a pass has ended: what was called before the one before it may be forgotten."""
        previous, last = self._marks
        self._marks = (last, len(self._numbers))
        drop = min(previous, len(self._numbers) - SETTLED_CALLS)
        if drop > SETTLED_CALLS // 4:
            self._drop(drop)

    def _drop(self, count: int) -> None:
        for column in (self._numbers, self._seconds, self._bytes):
            del column[:count]
        self._marks = (max(self._marks[0] - count, 0), max(self._marks[1] - count, 0))

    def take(self, numbers: array[int]) -> tuple[Any, Any, Any]:
        """Return the places in ``numbers`` of the nodes that are known here, and their seconds and bytes."""
        if not self._numbers:
            return (np.empty(0, np.int64),) * 3
        wanted = np.frombuffer(numbers, np.int64)  # a leaf has the largest number there is: -1 here
        known = np.frombuffer(self._numbers, np.int64)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found = np.flatnonzero(known[at] == wanted)
        at = at[found]
        return found, np.frombuffer(self._seconds)[at], np.frombuffer(self._bytes, np.int64)[at]


class NodeCost:
    """What the backward of one node took, over all passes.

    Attributes:
        rows: Where its calls are counted.
        by_op: The table in there.
        seconds: Added up.
        nbytes: Added up.
    """

    __slots__ = ("by_op", "nbytes", "rows", "seconds")

    def __init__(self, rows: Rows) -> None:
        self.seconds, self.nbytes = 0.0, 0
        self.count_at(rows)

    def count_at(self, rows: Rows) -> None:
        """Say where its calls are counted from now on."""
        self.rows, self.by_op = rows, rows.by_op

    def add(self, op: Any, name: str = "") -> Row:
        """Return a new row for an operation that was not called here before."""
        return self.rows.add(op, name)


class GraphCosts:
    """The costs of the nodes of one graph, added up over its passes.

    Args:
        nodes: As reported.
        structure: Their structure.
        places: Where calls are counted.

    Attributes:
        nodes: As given.
        asking: Traversal places of the nodes that run with the mode off; None before they were looked up.
        by_place: By traversal place, what the node's backward took.
    """

    def __init__(self, nodes: Sequence[Node], structure: GraphStructure, places: Places) -> None:
        self.nodes = nodes
        self.asking: list[int] | None = None
        self._places, self._structure = places, structure
        self._site: int | None = None
        self._passes = [0, 0]  # forward, backward
        self._forward = np.zeros((2, structure.size))  # seconds and bytes by report index
        self.by_place = [NodeCost(self._rows_of(nodes[at])) for at in structure.index]

    def _rows_of(self, node: Node) -> Rows:
        """Return where a node's calls are counted: at its line, or that of the backward call."""
        return self._places.rows(self._site if node.location is None else node.location, node.module, "backward")

    def begin(self, site: int | None, log: ForwardLog, found: Walk) -> dict[int, NodeCost]:
        """Begin a pass, from the line ``site``, through the live nodes of a walk.

        Returns:
            ``id`` of a live node → what its backward took so far.
        """
        if site != self._site:
            self._site = site
            for cost, at in zip(self.by_place, self._structure.index, strict=True):
                cost.count_at(self._rows_of(self.nodes[at]))
        self._add_forward(log, found.numbers)
        self._passes[1] += 1
        return dict(zip(map(id, found.nodes), self.by_place, strict=True))

    def _add_forward(self, log: ForwardLog, numbers: array[int]) -> None:
        found, seconds, nbytes = log.take(numbers)
        if len(found):
            at = np.frombuffer(self._structure.index, np.int32)[found]
            self._forward[0, at] += seconds
            self._forward[1, at] += nbytes
            self._passes[0] += 1

    def report(self) -> NodeCosts:
        """Return the means as plain data."""
        forward, backward = self._passes
        spent = np.zeros((2, self._structure.size))
        spent[0, self._structure.index] = np.array([cost.seconds for cost in self.by_place])
        spent[1, self._structure.index] = np.array([cost.nbytes for cost in self.by_place])
        rows = np.concatenate([self._forward / max(forward, 1), spent / max(backward, 1)])
        columns = (array("f", row.astype(np.float32)) for row in rows)
        return NodeCosts(self._structure.number, forward, backward, *columns)


def asking_places(costs: GraphCosts, structure: GraphStructure) -> list[int]:
    """Return the traversal places of the nodes of a graph whose backward asks; looked up once a graph."""
    if costs.asking is None:
        costs.asking = [place for place, at in enumerate(structure.index) if costs.nodes[at].name in ASKING_NODES]
    return costs.asking
