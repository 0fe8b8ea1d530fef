"""How the gradient travels through a graph: which ops use a weight, what reached them, and over which others it came.

A weight's own gradient is large or small for two reasons: because of the gradient that comes down to the op that uses
it, and because of that op's input. Only the first is vanishing or exploding; raw features of size 1e4 are neither. So
the gradients are looked at where they arrive: at the matrix products and convolutions, seen from the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from tensormagic.reports import Graph

# The ops that multiply a weight with an activation …
USERS = frozenset({
    "addmm", "mm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "mkldnn_linear", "convolution",
    "mkldnn_convolution", "cudnn_convolution", "embedding", "embedding_bag", "bilinear", "trilinear",
    "mkldnn_rnn_layer", "cudnn_rnn",
})  # fmt: skip
# … and those that stand between a weight and its user.
_BETWEEN = frozenset({
    "t", "transpose", "permute", "view", "reshape", "unsafe_view", "expand", "to_copy", "clone", "unsqueeze", "squeeze",
    "slice", "select", "split", "chunk", "contiguous", "as_strided",
})  # fmt: skip


class Paths:
    """One graph, looked at from the loss: the arriving gradient of every op that uses a weight.

    Made for being asked often while a run goes on: each question costs at most one walk over the edges.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._feeders: dict[int, list[int]] = {}
        for edge in graph.edges:
            self._feeders.setdefault(edge.target, []).append(edge.source)
        self._leaves = {node.variable: node.index for node in graph.nodes if node.kind == "accumulate"}
        self._users = {node.index for node in graph.nodes if node.op in USERS}
        self._arriving: dict[int, float] = {}
        self.first = self._first_users()

    def _first_users(self) -> set[int]:
        """Return the users that the gradient reaches before any other: the last layers of the forward."""
        below: set[int] = set()
        for node in reversed(self._graph.nodes):  # what made a node's input was made before it
            if any(feeder in below or feeder in self._users for feeder in self._feeders.get(node.index, ())):
                below.add(node.index)
        return self._users - below

    def users(self, leaf: str) -> list[int]:
        """Return the ops that multiply something with the leaf of that name."""
        found, waiting = set(), [self._leaves[leaf]] if leaf in self._leaves else []
        while waiting:
            for feeder in self._feeders.get(waiting.pop(), ()):
                if feeder in self._users:
                    found.add(feeder)
                elif self._graph.nodes[feeder].op in _BETWEEN:
                    waiting.append(feeder)
        return sorted(found)

    def above(self, node: int) -> set[int]:
        """Return every node on a path from the loss to ``node``."""
        found: set[int] = set()
        waiting = [node]
        while waiting:
            new = [feeder for feeder in self._feeders.get(waiting.pop(), ()) if feeder not in found]
            found.update(new)
            waiting += new
        return found

    def arriving(self, node: int) -> float:
        """Return the median of the finite norms above zero that a node received; 0 where there was none."""
        if node not in self._arriving:
            norms = [frame.norms[node] for frame in self._graph.frames if 0 < frame.norms[node] < math.inf]
            self._arriving[node] = median(norms) if norms else 0.0
        return self._arriving[node]

    def strongest(self, nodes: Iterable[int]) -> tuple[float, int]:
        """Return (norm, node) of the node at which the largest gradient arrives; (0, -1) where none does."""
        return max(((self.arriving(node), node) for node in nodes), default=(0.0, -1))

    def at_the_last_layer(self, node: int) -> float:
        """Return the largest norm that arrives at a last layer on the way to ``node``; 0 where there is none."""
        return self.strongest(self.first & self.above(node))[0]
