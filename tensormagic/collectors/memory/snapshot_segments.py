"""Segments and blocks of a snapshot of CUDA's memory, and the lines that allocated them."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tensormagic.collectors.memory.snapshot_reading import dictionaries, entries, size, whole, word
from tensormagic.collectors.where.caller import MARK
from tensormagic.collectors.where.source import CellNumber, function_of_code, is_own_code
from tensormagic.errors import SnapshotError
from tensormagic.reports import BlockState, Location, Segment, SnapshotBlock, SnapshotRange

# A snapshot may come from another machine, and could name any file: none is opened. The source of a line is shown only
# where Python has it in memory already, as it has the cells of a running notebook.

LONGEST_WAY = 6

_PYTHON = re.compile(r"\.pyx?$|^<(ipython|stdin|string|cell|doctest)")
_STANDARD_LIBRARY = re.compile(r"[/\\]lib[/\\]python3\.\d+[/\\]|[/\\]Lib[/\\]")
_ALLOCATOR = re.compile(
    r"unwind::|CapturedTraceback|gather_with_cpp|CachingAllocator|CachingDeviceAllocator|^malloc|alloc_found_block|^\?\?$"
)

_Frame = tuple[str, int, str]  # file, line and function


class Stacks:
    """The lines met so far, each with a number; a stack that comes again is not read again."""

    def __init__(self, cell_number: CellNumber | None = None) -> None:
        self._cell_number = cell_number
        self._numbers: dict[_Frame, int] = {}
        self._known: dict[int, tuple[Any, int]] = {}  # by identity of the list, which is kept: no number is used twice
        self.locations: list[Location] = []

    def line(self, frames: Any) -> int:
        """Return the number of the line that a stack belongs to; -1 where it shows none."""
        if id(frames) not in self._known:
            self._known[id(frames)] = frames, self._number(_read(frames))
        return self._known[id(frames)][1]

    def lines(self, frames: Any) -> tuple[Location, ...]:
        """Return the user's lines of a stack, the outermost first: at most the innermost six."""
        own = [self._location(each) for each in _read(frames) if _is_own(each)]
        return tuple(reversed(own[:LONGEST_WAY]))

    def _number(self, stack: list[_Frame]) -> int:
        python = [each for each in stack if _PYTHON.search(each[0])]
        others = (each for each in stack if not _ALLOCATOR.search(each[2]))
        frame = next((each for each in python if _is_own(each)), None) or next(iter(python or others), None)
        if frame is None:
            return -1
        if frame not in self._numbers:
            self._numbers[frame] = len(self.locations)
            self.locations.append(self._location(frame))
        return self._numbers[frame]

    def _location(self, frame: _Frame) -> Location:
        filename, line, name = frame
        number = self._cell_number(filename) if self._cell_number is not None else None
        cached = linecache.cache.get(filename, ())
        lines = cached[2] if len(cached) == 4 else []  # its source, where it is in memory
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        return Location(filename, line, text, number, function_of_code(name))


def _read(frames: Any) -> list[_Frame]:
    return [(word(each, "filename"), whole(each, "line"), word(each, "name")) for each in dictionaries(frames)]


def _is_own(frame: _Frame) -> bool:
    filename, _, name = frame
    outside = _STANDARD_LIBRARY.search(filename) or name == MARK
    return bool(_PYTHON.search(filename)) and is_own_code(filename) and not outside


MOST_BLOCKS = 2_000_000
MOST_STRETCHES = 80

_STATES: dict[str, BlockState] = {
    "active_allocated": "allocated",
    "active_pending_free": "awaiting free",
    "active_awaiting_free": "awaiting free",  # what the documentation calls it
}


@dataclass(slots=True)
class Block:
    """A block as it is read, or an allocation that an event tells of; see `SnapshotBlock`."""

    device: str  # as torch writes it
    nbytes: int  # its length
    requested: int  # bytes that were asked for; 0 where it is free
    state: BlockState  # in use, waiting, or free
    address: int  # where it begins
    frames: Any  # the stack of its allocation, as the snapshot has it
    stream: int  # the stream of its segment
    line: int  # number of the line in `Stacks`; -1 where it has none
    label: str = ""  # what its event calls it

    def report(self, stacks: Stacks, index: Callable[[int], int]) -> SnapshotBlock:
        """Return it for the report; ``index`` gives the index of a line in the report."""
        stack = stacks.lines(self.frames)
        return SnapshotBlock(
            self.device, self.nbytes, self.requested, self.state, index(self.line), stack, self.stream, self.label
        )


@dataclass(slots=True)
class Area:
    """A segment as it is read: its dictionary, and its blocks in order of address."""

    given: dict[Any, Any]
    device: str  # as torch writes it
    blocks: list[Block]
    nbytes: int  # what its blocks are together


def areas_of(given: Any, stacks: Stacks) -> list[Area]:
    """Read the segments of a snapshot.

    Raises:
        SnapshotError: where there are more blocks than any snapshot has.
    """
    found: list[Area] = []
    count = 0
    for segment in dictionaries(given):
        device = f"cuda:{whole(segment, 'device')}"
        blocks = list(islice(_blocks(segment, device, stacks), MOST_BLOCKS - count))
        count += len(blocks) + 1
        if count >= MOST_BLOCKS:
            raise SnapshotError(f"it has more than {MOST_BLOCKS} blocks")
        found.append(Area(segment, device, blocks, sum(block.nbytes for block in blocks)))
    return found


def _blocks(segment: dict[Any, Any], device: str, stacks: Stacks) -> Iterator[Block]:
    address, stream = whole(segment, "address"), whole(segment, "stream")
    for given in dictionaries(entries(segment.get("blocks")) or [{"size": segment.get("total_size")}]):
        address, nbytes = whole(given, "address", address), size(given, "size")
        history = next(dictionaries(given.get("history")), {})  # torch before 2.1
        frames = given.get("frames") or history.get("frames")
        state = _STATES.get(word(given, "state"), "free")
        asked = size(given, "requested_size") or size(history, "real_size") or nbytes
        asked, line = (0, -1) if state == "free" else (asked, stacks.line(frames))
        yield Block(device, nbytes, asked, state, address, frames, stream, line)
        address += nbytes


def held(blocks: list[Block], state: BlockState) -> int:
    """Return the bytes of the blocks that are in that state."""
    return sum(block.nbytes for block in blocks if block.state == state)


def largest_free(blocks: list[Block]) -> int:
    """Return the bytes of the largest block that is free."""
    return max((block.nbytes for block in blocks if block.state == "free"), default=0)


def segment_report(area: Area, index: Callable[[int], int]) -> Segment:
    """Return a segment for the report, its small blocks joined; ``index`` gives that of a line in the report."""
    given = area.given
    pool: Any = given.get("segment_pool_id")
    known = isinstance(pool, tuple | list) and len(pool) == 2 and all(type(each) is int for each in pool)
    return Segment(
        device=area.device, address=whole(given, "address"), nbytes=area.nbytes,
        allocated=held(area.blocks, "allocated"), awaiting=held(area.blocks, "awaiting free"),
        blocks=len(area.blocks), stream=whole(given, "stream"), kind=word(given, "segment_type"),
        pool=(pool[0], pool[1]) if known else (0, 0), expandable=given.get("is_expandable") is True,
        largest_free=largest_free(area.blocks),
        ranges=tuple(_range(blocks, index) for blocks in _neighbours(area)),
    )  # fmt: skip


def _neighbours(area: Area) -> Iterator[list[Block]]:
    """Yield the blocks one by one, but those together that would be too small to be seen."""
    least = area.nbytes // MOST_STRETCHES if len(area.blocks) > MOST_STRETCHES else 0
    together: list[Block] = []
    nbytes = 0
    for block in area.blocks:
        if together and (block.nbytes >= least or nbytes >= least):
            yield together
            together, nbytes = [], 0
        together.append(block)
        nbytes += block.nbytes
    if together:
        yield together


def _range(blocks: list[Block], index: Callable[[int], int]) -> SnapshotRange:
    states = {block.state for block in blocks}
    used = [block for block in blocks if block.state != "free"]
    return SnapshotRange(
        state=states.pop() if len(states) == 1 else "mixed",
        nbytes=sum(block.nbytes for block in blocks),
        used=sum(block.nbytes for block in used),
        blocks=len(blocks),
        line=index(max(used or blocks, key=lambda block: block.nbytes).line),
    )
