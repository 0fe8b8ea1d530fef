"""Keeps a bounded number of passes of a run of any length, evenly thinned, without losing the ones that matter.

The first, the last and pinned items are always kept. Of the others every k-th is kept, where k doubles whenever the
store is full: a loop of a million steps costs what one of a hundred does.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Item = TypeVar("Item")


class Thinned(Generic[Item]):
    """An append-only sequence that keeps at most about ``capacity`` of its items.

    Args:
        capacity: How many evenly spaced items to keep; pinned ones (at most ``pins``) and the last come on top.
        pins: How many items may be pinned.
    """

    def __init__(self, capacity: int, pins: int = 4) -> None:
        self.capacity = capacity
        self._pins_left = pins
        self._stride = 1
        self._kept: dict[int, Item] = {}
        self._pinned: set[int] = set()
        self.seen = 0

    @property
    def keeps_next(self) -> bool:
        """Whether the next item stays when others follow it, unless the store is thinned once more."""
        return self.seen % self._stride == 0

    @property
    def keeps_last(self) -> bool:
        """The same of the last item."""
        return (self.seen - 1) % self._stride == 0 or self.seen - 1 in self._pinned

    @property
    def last(self) -> Item | None:
        """The last item, which is always kept; None where there is none yet."""
        return self._kept.get(self.seen - 1)

    def append(self, item: Item, *, pin: bool = False) -> None:
        """Add an item; a pinned one is never thinned out."""
        at, self.seen = self.seen, self.seen + 1
        self._drop_previous(at - 1)
        self._kept[at] = item
        if pin and self._pins_left:
            self._pins_left -= 1
            self._pinned.add(at)
        while len(self._kept) > self.capacity + len(self._pinned) + 1:
            self._thin()

    def items(self) -> tuple[Item, ...]:
        """Return what is kept, in order."""
        return tuple(self._kept.copy().values())

    def _drop_previous(self, at: int) -> None:
        if at > 0 and at % self._stride and at not in self._pinned:
            del self._kept[at]

    def _thin(self) -> None:
        self._stride *= 2
        last = self.seen - 1
        self._kept = {
            at: item for at, item in self._kept.items() if at % self._stride == 0 or at == last or at in self._pinned
        }
