"""The segments and blocks of a snapshot: what the allocator held when it was taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tensormagic.collectors.snapshots.frames import Stacks
from tensormagic.collectors.snapshots.reading import dictionaries, entries, size, whole, word
from tensormagic.errors import SnapshotError
from tensormagic.reports import BlockState, Segment, SnapshotStretch

MOST_BLOCKS = 2_000_000
MOST_STRETCHES = 80

_STATES: dict[str, BlockState] = {
    "active_allocated": "allocated",
    "active_pending_free": "awaiting free",
    "active_awaiting_free": "awaiting free",  # what the documentation calls it
}


@dataclass(slots=True)
class Block:
    """A block as it is read; see `SnapshotBlock`.

    Attributes:
        device: As torch writes it.
        nbytes: Its length.
        requested: Bytes that were asked for; 0 where it is free.
        state: In use, waiting, or free.
        address: Where it begins.
        frames: The stack of its allocation, as the snapshot has it.
        stream: The stream of its segment.
        line: Number of the line in `Stacks`.
    """

    device: str
    nbytes: int
    requested: int
    state: BlockState
    address: int
    frames: Any
    stream: int
    line: int = -1


@dataclass(slots=True)
class Area:
    """A segment as it is read: its dictionary, and its blocks in order of address."""

    given: dict[Any, Any]
    blocks: list[Block]

    @property
    def device(self) -> str:
        """As torch writes it."""
        return f"cuda:{whole(self.given, 'device')}"

    def held(self, state: BlockState) -> int:
        """Return the bytes of its blocks that are in that state."""
        return sum(block.nbytes for block in self.blocks if block.state == state)

    @property
    def nbytes(self) -> int:
        """Its length: what its blocks are together."""
        return sum(block.nbytes for block in self.blocks)


def areas_of(given: Any, stacks: Stacks) -> list[Area]:
    """Read the segments of a snapshot.

    Raises:
        SnapshotError: where there are more blocks than any snapshot has.
    """
    found: list[Area] = []
    count = 0
    for segment in dictionaries(given):
        area = Area(segment, list(islice(_blocks(segment, stacks), MOST_BLOCKS - count)))
        count += len(area.blocks) + 1
        if count >= MOST_BLOCKS:
            raise SnapshotError(f"it has more than {MOST_BLOCKS} blocks")
        found.append(area)
    return found


def _blocks(segment: dict[Any, Any], stacks: Stacks) -> Iterator[Block]:
    area = Area(segment, [])
    address, stream = whole(segment, "address"), whole(segment, "stream")
    blocks = entries(segment.get("blocks")) or [{"size": segment.get("total_size")}]
    for given in dictionaries(blocks):
        block = _block(given, area.device, stream, whole(given, "address", address))
        block.line = stacks.line(block.frames) if block.state != "free" else -1
        address = block.address + block.nbytes
        yield block


def _block(given: dict[Any, Any], device: str, stream: int, address: int) -> Block:
    state = _STATES.get(word(given, "state"), "free")
    nbytes, history = size(given, "size"), next(dictionaries(given.get("history")), {})
    asked = size(given, "requested_size") or size(history, "real_size") or nbytes  # history: torch before 2.1
    frames = given.get("frames") or history.get("frames")
    return Block(device, nbytes, 0 if state == "free" else asked, state, address, frames, stream)


def segment_report(area: Area) -> Segment:
    """Return a segment for the report, its small blocks joined."""
    given = area.given
    return Segment(
        device=area.device,
        address=whole(given, "address"),
        nbytes=area.nbytes,
        allocated=area.held("allocated"),
        awaiting=area.held("awaiting free"),
        blocks=len(area.blocks),
        stream=whole(given, "stream"),
        kind=word(given, "segment_type"),
        pool=_pool(given.get("segment_pool_id")),
        expandable=given.get("is_expandable") is True,
        largest_free=max((block.nbytes for block in area.blocks if block.state == "free"), default=0),
        stretches=tuple(map(_stretch, _neighbours(area))),
    )


def _pool(given: Any) -> tuple[int, int]:
    if isinstance(given, tuple | list) and len(given) == 2 and all(type(each) is int for each in given):
        return given[0], given[1]
    return 0, 0


def _neighbours(area: Area) -> Iterator[list[Block]]:
    """Yield the blocks one by one, but those together that would be too small to be seen."""
    least = area.nbytes // MOST_STRETCHES if len(area.blocks) > MOST_STRETCHES else 0
    small: list[Block] = []
    together = 0
    for block in area.blocks:
        if small and (block.nbytes >= least or together >= least):
            yield small
            small, together = [], 0
        if block.nbytes >= least:
            yield [block]
        else:
            small.append(block)
            together += block.nbytes
    if small:
        yield small


def _stretch(blocks: list[Block]) -> SnapshotStretch:
    states = {block.state for block in blocks}
    largest = max(blocks, key=lambda block: (block.state != "free", block.nbytes))
    return SnapshotStretch(
        state=states.pop() if len(states) == 1 else "mixed",
        nbytes=sum(block.nbytes for block in blocks),
        used=sum(block.nbytes for block in blocks if block.state != "free"),
        blocks=len(blocks),
        line=largest.line,
    )
