"""Goes through the allocator's events of one device and knows, after each, what is alive and what is reserved.

Events count what was asked for. A history may begin long after the program did: what is freed without having been
allocated in it was there before; an address that is allocated twice was freed in between, unseen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensormagic.collectors.snapshots.fields import size, whole, word
from tensormagic.collectors.snapshots.frames import Stacks
from tensormagic.reports import Category

# What torch's profiler calls things (torch.cuda._memory_viz.profile_plot), in the words of these reports.
_CATEGORIES: dict[str, Category] = {
    "parameter": "parameter",
    "gradient": "gradient",
    "optimizer_state": "optimizer state",
    "activation": "saved for backward",
    "input": "input",
}
_GROWS, _SHRINKS = {"segment_alloc", "segment_map"}, {"segment_free", "segment_unmap"}
_KNOWN = {"alloc", "free_requested", "free_completed", "oom", "snapshot", *_GROWS, *_SHRINKS}


class Alive(NamedTuple):
    """A block that an event allocated: bytes asked for, the number of its line, what it is for, and the event."""

    nbytes: int
    line: int
    category: Category
    event: dict[Any, Any]


@dataclass(slots=True)
class LineSums:
    """What the events of one line add up to."""

    allocated: int = 0
    freed: int = 0
    largest: int = 0
    calls: int = 0


@dataclass(slots=True)
class Walk:
    """One way through the events.

    Attributes:
        stacks: Where lines get their numbers.
        frees: The action that ends a block: ``"free_requested"``, or ``"free_completed"`` where there is no such.
        alive: What was allocated and not freed, by address.
        known: Bytes of these.
        lost: Bytes that were freed without having been allocated in the history.
        lost_blocks: How many those were.
        reserved: Bytes by which the reserved memory grew.
        by_line: Bytes alive, by number of the line.
        by_category: Likewise.
    """

    stacks: Stacks
    frees: str
    alive: dict[int, Alive] = field(default_factory=dict)
    known: int = 0
    lost: int = 0
    lost_blocks: int = 0
    reserved: int = 0
    by_line: Counter[int] = field(default_factory=Counter)
    by_category: Counter[Category] = field(default_factory=Counter)

    @property
    def level(self) -> int:
        """Bytes alive, but for those that were there before the first event."""
        return self.known - self.lost

    def take(self, event: dict[Any, Any]) -> None:
        """Go on by one event."""
        action = word(event, "action")
        if action == "alloc":
            self._allocate(event)
        elif action == self.frees:
            self._free(whole(event, "addr"), size(event, "size"))
        elif action in _GROWS:
            self.reserved += size(event, "size")
        elif action in _SHRINKS:
            self.reserved -= size(event, "size")

    def _allocate(self, event: dict[Any, Any]) -> None:
        address = whole(event, "addr")
        if address in self.alive:
            self._free(address, 0)
        category = _CATEGORIES.get(word(event, "category"), "other")
        one = Alive(size(event, "size"), self.stacks.line(event.get("frames")), category, event)
        self.alive[address] = one
        self.known += one.nbytes
        self.by_line[one.line] += one.nbytes
        self.by_category[category] += one.nbytes

    def _free(self, address: int, nbytes: int) -> None:
        one = self.alive.pop(address, None)
        if one is None:
            self.lost += nbytes
            self.lost_blocks += 1
            return
        self.known -= one.nbytes
        self.by_line[one.line] -= one.nbytes
        self.by_category[one.category] -= one.nbytes


def actions_in(events: list[dict[Any, Any]]) -> Counter[str]:
    """Return how many events there are of each kind; those that no torch writes together as ``"unknown"``."""
    found = Counter(word(event, "action") for event in events)
    unknown = sum(found.pop(action) for action in [*found] if action not in _KNOWN)
    return found + Counter(unknown=unknown)


def line_sums(events: list[dict[Any, Any]], stacks: Stacks, frees: str) -> dict[int, LineSums]:
    """Return what each line allocated, and freed where frees have stacks, by number of the line."""
    sums: dict[int, LineSums] = {}
    for event in events:
        action = word(event, "action")
        if action == "alloc":
            nbytes = size(event, "size")
            line = sums.setdefault(stacks.line(event.get("frames")), LineSums())
            line.allocated, line.calls = line.allocated + nbytes, line.calls + 1
            line.largest = max(line.largest, nbytes)
        elif action == frees and event.get("frames"):
            sums.setdefault(stacks.line(event["frames"]), LineSums()).freed += size(event, "size")
    return sums
