"""Where a line touches a box: as straight on as it can, no two lines at one point, in the order they arrive.

A line that could run level does so: both its ends lie where the two boxes' sides overlap. The others leave from the
nearest corner. Lines on one side of a box are then pushed apart, which is one more isotonic regression.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.renderers.graph.layout_order import Columns
from tensormagic.renderers.graph.layout_position import Extent, isotonic

_INSET = 9.0  # how far from a box's corner a line may touch it
_APART = 9.0  # how far apart two lines touch it, where there is room

Link = tuple[int, int]


class Ports:
    """The height at which every link between two columns leaves its left item and reaches its right one."""

    def __init__(self, columns: Columns, extents: Sequence[Extent], axes: Sequence[float]) -> None:
        """Compute all ports from how far the items reach above their axes."""
        self._extents, self._axes = extents, axes
        self.leave: dict[Link, float] = {}
        self.reach: dict[Link, float] = {}
        for item, heads in enumerate(columns.following):
            self._spread(item, [(item, head) for head in dict.fromkeys(heads)], self.leave, right=True)
        for item, tails in enumerate(columns.preceding):
            self._spread(item, [(tail, item) for tail in dict.fromkeys(tails)], self.reach, right=False)

    def _spread(self, item: int, links: list[Link], into: dict[Link, float], *, right: bool) -> None:
        if not links:
            return
        low, high = self._side(item)
        links.sort(key=lambda link: self._axes[link[right]])
        apart = min(_APART, (high - low) / max(len(links) - 1, 1))
        targets = [self._target(item, link[right]) - at * apart for at, link in enumerate(links)]
        limit = high - apart * (len(links) - 1)
        for at, (link, start) in enumerate(zip(links, isotonic(targets, [1.0] * len(links)), strict=True)):
            into[link] = round(min(max(start, low), max(limit, low)) + at * apart)

    def _side(self, item: int) -> tuple[float, float]:
        reach = max(self._extents[item][0] - _INSET, 0.0)
        return self._axes[item] - reach, self._axes[item] + reach

    def _target(self, item: int, other: int) -> float:
        """Return where on the side of ``item`` a line to ``other`` would best lie."""
        (low, high), (other_low, other_high) = self._side(item), self._side(other)
        top, bottom = max(low, other_low), min(high, other_high)
        if top <= bottom:
            return (top + bottom) / 2
        return high if other_low > high else low
