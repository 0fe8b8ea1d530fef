"""What live autograd graphs keep: one walk over the nodes of all of them, each once.

Nothing is unpacked that a hook of the person's has packed; how much torch does not show at all is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from tensormagic.collectors.graphs.graph_holders import kept_by, path_of

MOST_NODES = 200_000
LEAF = "variable"  # the slot of a leaf, which no node has saved

Keep = Callable[[torch.Tensor, str, Callable[[], str]], None]


@dataclass(slots=True)
class GraphMemory:
    """A walk.

    Attributes:
        hidden: Saved tensors that torch does not show.
        nodes: The nodes met; held until the walk is dropped: an address must not be used twice.
    """

    hidden: int = 0
    nodes: set[Any] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether all nodes were looked at."""
        return len(self.nodes) < MOST_NODES

    def walk(self, roots: Iterable[tuple[Any, str]], keep: Keep) -> None:
        """Go through the graphs that begin at some nodes; a node counts to the first that leads to it.

        Args:
            roots: Nodes, each with the name of what it made.
            keep: Told of everything that a node keeps: the tensor, the slot, and what gives its path. It is not held:
                whoever owns the walk would be in a cycle with it, and all that was met would wait for the collector.
        """
        for root, name in roots:
            pending = deque([root])
            while pending and self.complete:
                node = pending.popleft()
                if node not in self.nodes:
                    self.nodes.add(node)
                    self._read(node, name, keep)
                    pending.extend(after for after, _ in node.next_functions if after is not None)

    def _read(self, node: Any, name: str, keep: Keep) -> None:
        for slot, tensor in kept_by(node):
            if tensor is None:
                self.hidden += 1
            else:
                keep(tensor, slot, lambda slot=slot: path_of(node, name, slot))  # type: ignore[misc]
