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
    """One graph, looked at from the loss: the arriving gradient of every op that uses a weight."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._feeders: dict[int, list[int]] = {}
        for edge in graph.edges:
            self._feeders.setdefault(edge.target, []).append(edge.source)
        self._leaves = {node.variable: node.index for node in graph.nodes if node.kind == "accumulate"}

    def users(self, leaf: str) -> list[int]:
        """Return the ops that multiply something with the leaf of that name."""
        found, waiting = set(), [self._leaves[leaf]] if leaf in self._leaves else []
        while waiting:
            for feeder in self._feeders.get(waiting.pop(), ()):
                op = self._graph.nodes[feeder].op
                if op in USERS:
                    found.add(feeder)
                elif op in _BETWEEN:
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

    def arriving(self, nodes: Iterable[int]) -> dict[int, float]:
        """Return the median finite norm above zero that each of the nodes received; nodes without one are left out."""
        frames = self._graph.frames
        norms = {at: [frame.norms[at] for frame in frames if 0 < frame.norms[at] < math.inf] for at in nodes}
        return {at: median(found) for at, found in norms.items() if found}

    def nearest_to_the_loss(self, node: int) -> dict[int, float]:
        """Return what arrives at those users above ``node`` that the gradient reaches before any other user."""
        users = [at for at in self.above(node) if self._graph.nodes[at].op in USERS]
        return self.arriving(at for at in users if self.above(at).isdisjoint(users))
