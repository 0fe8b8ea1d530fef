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


class Step(NamedTuple):
    """An event as it was read: bytes asked for, the number of its line, what its memory is for, and the event."""

    action: str
    address: int
    nbytes: int
    line: int
    category: Category
    event: dict[Any, Any]


def steps_of(events: list[dict[Any, Any]], stacks: Stacks) -> list[Step]:
    """Read events, each once."""
    return [
        Step(
            word(event, "action"), whole(event, "addr"), size(event, "size"), stacks.line(event.get("frames")),
            _CATEGORIES.get(word(event, "category"), "other") if "category" in event else "other", event,
        )
        for event in events
    ]  # fmt: skip


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
        frees: The action that ends a block: ``"free_requested"``, or ``"free_completed"`` where there is no such.
        alive: What was allocated and not freed, by address.
        known: Bytes of these.
        lost: Bytes that were freed without having been allocated in the history.
        lost_blocks: How many those were.
        reserved: Bytes by which the reserved memory grew.
        by_line: Bytes alive, by number of the line.
        by_category: Likewise.
    """

    frees: str
    alive: dict[int, Step] = field(default_factory=dict)
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

    def take(self, step: Step) -> None:
        """Go on by one event."""
        action = step.action
        if action == "alloc":
            self._allocate(step)
        elif action == self.frees:
            self._free(step.address, step.nbytes)
        elif action in _GROWS:
            self.reserved += step.nbytes
        elif action in _SHRINKS:
            self.reserved -= step.nbytes

    def _allocate(self, step: Step) -> None:
        if step.address in self.alive:
            self._free(step.address, 0)
        self.alive[step.address] = step
        self.known += step.nbytes
        self.by_line[step.line] += step.nbytes
        self.by_category[step.category] += step.nbytes

    def _free(self, address: int, nbytes: int) -> None:
        one = self.alive.pop(address, None)
        if one is None:
            self.lost += nbytes
            self.lost_blocks += 1
            return
        self.known -= one.nbytes
        self.by_line[one.line] -= one.nbytes
        self.by_category[one.category] -= one.nbytes


def actions_in(steps: list[Step]) -> Counter[str]:
    """Return how many events there are of each kind; those that no torch writes together as ``"unknown"``."""
    found = Counter(step.action for step in steps)
    unknown = sum(found.pop(action) for action in [*found] if action not in _KNOWN)
    return found + Counter(unknown=unknown)


def line_sums(steps: list[Step], frees: str) -> dict[int, LineSums]:
    """Return what each line allocated, and freed where frees have stacks, by number of the line."""
    sums: dict[int, LineSums] = {}
    told = _frees_have_stacks(steps, frees)
    for action, _, nbytes, number, *_ in steps:
        if action not in {"alloc", frees}:
            continue
        line = sums.get(number) or sums.setdefault(number, LineSums())
        if action == frees:
            line.freed += nbytes * told
            continue
        line.allocated, line.calls = line.allocated + nbytes, line.calls + 1
        line.largest = max(line.largest, nbytes)
    return sums


def _frees_have_stacks(steps: list[Step], frees: str) -> bool:
    """Return whether frees have stacks of their own: with ``context="alloc"`` torch lends them the allocation's.

    The very same list, then (``c10/cuda/CUDACachingAllocator.cpp``: ``context ? context :
    block->context_when_allocated``), which a pickle keeps. The first free whose allocation is there decides.
    """
    stacks: dict[int, Any] = {}
    for action, address, *_, event in steps:
        if action == "alloc":
            stacks[address] = event.get("frames")
        elif action == frees and stacks.get(address):
            return event.get("frames") is not stacks[address]
    return True
