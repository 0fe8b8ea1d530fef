"""The rhythm of a run, noted beside its sums: where each backward began, and how large what was joined became."""

from __future__ import annotations

from array import array

from tensormagic.collectors.memory_runs.blocks import Block

MOST_JOINED = 4096  # tensors noted for one line, the latest
MOST_BACKWARDS = 1 << 20
JOINING = frozenset({"aten.cat.default", "aten.constant_pad_nd.default", "aten.stack.default"})


class Beats:
    """What tells the rhythm of a run.

    Attributes:
        latest: The number of the last backward that was seen; whoever sees one with a greater number says so.
        backwards: Numbers of the operations at which a backward was first seen to run.
        joins: Operation and bytes of the tensors that a line joined of others.
    """

    __slots__ = ("backwards", "joins", "latest")

    def __init__(self) -> None:
        self.backwards = array("q")
        self.joins: dict[int, list[tuple[int, int]]] = {}
        self.latest = -1

    def began(self, task: int, operation: int) -> None:
        """Note that a backward with this number, greater than the latest, was running."""
        self.latest = task
        if len(self.backwards) < MOST_BACKWARDS:
            self.backwards.append(operation)

    def joined(self, block: Block) -> None:
        """Note the birth of what was joined from others."""
        if block.site is not None:
            every = self.joins.setdefault(block.site, [])
            every.append((block.born, block.nbytes))
            if len(every) > 2 * MOST_JOINED:
                del every[:MOST_JOINED]


__all__ = ["JOINING", "Beats"]
