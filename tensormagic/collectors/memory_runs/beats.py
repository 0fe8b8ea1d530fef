"""The rhythm of a run, noted beside its sums: where each backward began, and how large what was joined became."""

from __future__ import annotations

from array import array

from tensormagic.collectors.memory_runs.blocks import Block

MOST_JOINED = 4096  # tensors noted for one line, the latest
MOST_BACKWARDS = 1 << 20
JOINING = frozenset({"aten.cat.default", "aten.constant_pad_nd.default", "aten.stack.default"})


class Beats:
    """What tells the rhythm of a run; added to by every birth and death.

    Attributes:
        backwards: Numbers of the operations at which a backward was first seen to run.
        joins: Operation and bytes of the tensors that a line joined of others.
    """

    __slots__ = ("_latest", "backwards", "joins")

    def __init__(self) -> None:
        self.backwards = array("q")
        self.joins: dict[int, list[tuple[int, int]]] = {}
        self._latest = -1

    def ran(self, task: int, operation: int) -> None:
        """Note that the backward with this number was running."""
        if task > self._latest and len(self.backwards) < MOST_BACKWARDS:
            self._latest = task
            self.backwards.append(operation)

    def born(self, block: Block) -> None:
        """Note a birth."""
        if block.task >= 0:
            self.ran(block.task, block.born)
        if block.op in JOINING and block.site is not None:
            every = self.joins.setdefault(block.site, [])
            every.append((block.born, block.nbytes))
            if len(every) > 2 * MOST_JOINED:
                del every[:MOST_JOINED]


__all__ = ["JOINING", "Beats"]
