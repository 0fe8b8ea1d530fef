"""Where each autograd node was made, by its number: for what its backward allocates.

Autograd numbers the nodes of a thread one after the other, and draws the number before the operation runs. So the
first operation after a number was drawn comes from the place where the node was made.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from tensormagic.collectors.memory_runs.blocks import Place

MOST = 1 << 17  # changes of place that are remembered: beyond, the older half is forgotten (2 MB)


class NodeLines:
    """The places of nodes.

    Args:
        first: Number of the first node that the run makes.

    Attributes:
        last: Number of the node that will be made next, as far as is known.
        lost: Whether places were forgotten.
    """

    __slots__ = ("_ends", "_first", "_places", "last", "lost")

    def __init__(self, first: int) -> None:
        self._first = self.last = first
        self._ends, self._places = array("q"), list[Place]()
        self.lost = False

    def add(self, end: int, place: Place) -> None:
        """Note that the nodes up to the number ``end`` (not included) were made at ``place``."""
        self.last = end
        if self._places and self._places[-1] is place:
            self._ends[-1] = end
            return
        self._ends.append(end)
        self._places.append(place)
        if len(self._ends) > MOST:
            self._forget()

    def _forget(self) -> None:
        half = MOST // 2
        self._first, self.lost = self._ends[half - 1], True
        del self._ends[:half], self._places[:half]

    def of(self, number: int) -> Place | None:
        """Return where a node was made; None for one that is not of this run, or forgotten."""
        if number < self._first:
            return None
        at = bisect_right(self._ends, number) if number < self.last else len(self._ends)
        return self._places[at] if at < len(self._places) else None
