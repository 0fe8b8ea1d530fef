"""The bytes alive at a bounded number of moments, in all and by what they are for and which line allocated them.

A storage that lived from one moment to another adds its bytes at the first and takes them away at the second: what a
kept moment shows is the sum of all that came before, so that moments can be left out without losing count. Of each
few neighbours the lowest and the highest stay; when there are too many, every other pair goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from itertools import accumulate
from typing import NamedTuple

MOST = 2000


class Moment(NamedTuple):
    """The state after an operation, or after what was freed behind it.

    Attributes:
        operation: Its number.
        seconds: When, by the clock of the run.
        live: Bytes alive.
    """

    operation: int
    seconds: float
    live: int


class Moments:
    """The moments of one device.

    Attributes:
        kept: Those that were kept, in order.
        seen: How many there were.
    """

    def __init__(self) -> None:
        self.kept: list[Moment] = []
        self.seen = 0
        self._stride = 2
        self._steps: dict[Hashable, dict[int, int]] = {}

    def add(self, moments: Sequence[Moment]) -> list[int]:
        """Keep some of the moments that came next.

        Returns:
            For each of them the index of the first kept moment at or after it; the number of kept ones, where that is
            yet to come.
        """
        chosen, offset = _chosen([moment.live for moment in moments], self._stride), len(self.kept)
        self.kept.extend(moments[at] for at in chosen)
        self.seen += len(moments)
        return [offset + bisect_left(chosen, at) for at in range(len(moments))]

    def count(self, key: Hashable, start: int, end: int | None, nbytes: int) -> None:
        """Count bytes under ``key`` from one kept moment up to another, or to the end."""
        if end is None or end > start:
            steps = self._steps.setdefault(key, {})
            steps[start] = steps.get(start, 0) + nbytes
            if end is not None:
                steps[end] = steps.get(end, 0) - nbytes

    def thin(self) -> list[int] | None:
        """Leave every other pair out, until there are few enough.

        Returns:
            What each index became, the number of moments included; None where nothing changed.
        """
        moved: list[int] | None = None
        while len(self.kept) > MOST:
            step = self._halve()
            moved = step if moved is None else [step[at] for at in moved]
        return moved

    def _halve(self) -> list[int]:
        self._stride *= 2
        chosen = _chosen([moment.live for moment in self.kept], 4)
        moved = [bisect_left(chosen, at) for at in range(len(self.kept) + 1)]
        self.kept = [self.kept[at] for at in chosen]
        self._steps = {key: _moved(steps, moved) for key, steps in self._steps.items()}
        return moved

    @property
    def counted(self) -> list[Hashable]:
        """The keys under which something was counted."""
        return list(self._steps)

    def series(self, key: Hashable) -> list[int]:
        """Return the bytes under ``key`` at each kept moment, and at one more: now."""
        steps = self._steps.get(key, {})
        return list(accumulate(steps.get(at, 0) for at in range(len(self.kept) + 1)))


def _chosen(levels: list[int], stride: int) -> list[int]:
    """Return the places of the first lowest and the first highest of each ``stride`` neighbours."""
    if stride <= 2:
        return list(range(len(levels)))
    chosen: set[int] = set()
    for start in range(0, len(levels), stride):
        few = range(start, min(start + stride, len(levels)))
        chosen |= {min(few, key=levels.__getitem__), max(few, key=levels.__getitem__)}
    return sorted(chosen | {0} if levels else chosen)


def _moved(steps: dict[int, int], moved: list[int]) -> dict[int, int]:
    made: dict[int, int] = {}
    for at, nbytes in steps.items():
        made[moved[at]] = made.get(moved[at], 0) + nbytes
    return made
