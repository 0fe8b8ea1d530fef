"""Where the memory of a device is, as one stacked bar: tensors by category, then what else takes it, then what is free.

The parts of a device that has room to spare would be too thin to see beside it: then the free part is drawn as long as
the rest, and is said not to be to scale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tensormagic.renderers.memory.categories import PLURALS
from tensormagic.renderers.memory.memory_words import by_category
from tensormagic.reports import DeviceMemory, LiveStorage

PartKind = Literal[
    "tensors", "unexplained", "unused", "context", "process", "others", "rest", "untold", "free"
]  # fmt: skip
FREE_AT_MOST = 0.5  # of the bar: a longer one is cut

WORDS: dict[PartKind, str] = {
    "tensors": "tensors",
    "unexplained": "in use, no tensor found",
    "unused": "reserved, unused",
    "context": "context and libraries",
    "process": "this process besides tensors",
    "others": "other processes",
    "rest": "other programs",
    "untold": "not accounted for",
    "free": "free",
}
LETTERS: dict[PartKind, str] = {
    "unexplained": "u", "unused": "r", "context": "k", "process": "k", "others": "t", "rest": "t", "untold": "t",
    "free": "f",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the bar.

    Attributes:
        kind: What takes it.
        category: Of tensors, which; empty for all else.
        nbytes: How much.
        share: How long it is drawn, of the whole bar.
    """

    kind: PartKind
    category: str
    nbytes: int
    share: float

    @property
    def words(self) -> str:
        """What it is called in a legend."""
        return PLURALS[self.category] if self.category else WORDS[self.kind]


@dataclass(frozen=True, slots=True)
class DeviceBar:
    """The parts of one device, and whether the free one is drawn shorter than it is."""

    device: DeviceMemory
    parts: tuple[Part, ...]
    cut: bool


def device_bar(device: DeviceMemory, storages: Iterable[LiveStorage]) -> DeviceBar:
    """Return the bar of a device; ``storages`` are those of the report, sums included, on whatever device."""
    here = [one for one in storages if one.device == device.device]
    amounts: list[tuple[PartKind, str, int]] = [("tensors", name, nbytes) for name, nbytes in by_category(here)]
    amounts += [(kind, "", nbytes) for kind, nbytes in _beyond_tensors(device) if nbytes > 0]
    taken, free = sum(nbytes for _, _, nbytes in amounts), device.free or 0
    cut = free > taken
    whole = 2 * taken if cut else taken + free
    parts = [Part(kind, category, nbytes, nbytes / whole) for kind, category, nbytes in amounts if whole]
    if free:
        parts.append(Part("free", "", free, FREE_AT_MOST if cut and taken else free / max(whole, free)))
    return DeviceBar(device, tuple(parts), cut and taken > 0)


def _beyond_tensors(device: DeviceMemory) -> Iterable[tuple[PartKind, int]]:
    """Return what is taken besides tensors that were found; what is not known is not there."""
    own = device.live
    if device.allocated is not None:
        yield "unexplained", device.allocated - device.live
        own = max(own, device.allocated)
    if device.reserved is not None:
        yield "unused", device.reserved - own
        own = max(own, device.reserved)
    if device.context is not None:
        yield "context", device.context
        own += device.context
    elif device.process is not None:
        yield "process", device.process - own
        own = max(own, device.process)
    others = sum(other.nbytes or 0 for other in device.others)
    yield "others", others
    if device.total is not None and device.free is not None:
        yield "untold" if others else "rest", device.total - device.free - own - others
