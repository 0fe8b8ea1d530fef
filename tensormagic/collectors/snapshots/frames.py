"""From the stacks of a snapshot to the person's own lines, by the file names alone: no file is opened.

A snapshot may come from another machine, and could name any file. The source of a line is told only where Python has
it in memory already, as it has the cells of a running notebook.
"""

from __future__ import annotations

import linecache
import re
from typing import Any

from tensormagic.collectors.snapshots.reading import dictionaries, entries, whole, word
from tensormagic.collectors.where.caller import MARK
from tensormagic.collectors.where.source import CellNumber, is_own_code
from tensormagic.reports import Location

MOST_LINES = 2000
LONGEST_STACK = 500
LONGEST_WAY = 6

_PYTHON = re.compile(r"\.pyx?$|^<(ipython|stdin|string|cell|doctest)")
_STANDARD_LIBRARY = re.compile(r"[/\\]lib[/\\]python3\.\d+[/\\]|[/\\]Lib[/\\]")
_ALLOCATOR = re.compile(
    r"unwind::|CapturedTraceback|gather_with_cpp|CachingAllocator|CachingDeviceAllocator|^malloc|alloc_found_block|^\?\?$"
)

Way = tuple[Location, ...]


class Stacks:
    """The lines met so far, each with a number; a stack that comes again is not read again.

    Args:
        cell_number: Gives the execution count of a cell from its file name; None outside a notebook.
    """

    def __init__(self, cell_number: CellNumber | None = None) -> None:
        self._cell_number = cell_number
        self._numbers: dict[tuple[str, int, str], int] = {}
        self._known: dict[int, tuple[Any, int]] = {}  # by identity of the list, which is kept: no number is used twice
        self.locations: list[Location] = []
        self.unread = 0

    def line(self, frames: Any) -> int:
        """Return the number of the line that a stack belongs to; -1 where it tells none."""
        known = self._known.get(id(frames))
        if known is None:
            known = self._known[id(frames)] = frames, self._read(frames)
        return known[1]

    def way(self, frames: Any) -> Way:
        """Return the person's lines of a stack, the outermost first: at most the innermost six."""
        own = [self._location(each) for each in _read(frames) if _is_own(each)]
        return tuple(reversed(own[:LONGEST_WAY]))

    def _read(self, frames: Any) -> int:
        stack = _read(frames)
        python = [each for each in stack if _PYTHON.search(each[0])]
        own = next((each for each in python if _is_own(each)), None)
        best = own or next(iter(python or (each for each in stack if not _ALLOCATOR.search(each[2]))), None)
        return -1 if best is None else self._number(best)

    def _number(self, frame: tuple[str, int, str]) -> int:
        number = self._numbers.get(frame)
        if number is None and len(self.locations) >= MOST_LINES:
            self.unread += 1
            return -1
        if number is None:
            number = self._numbers[frame] = len(self.locations)
            self.locations.append(self._location(frame))
        return number

    def _location(self, frame: tuple[str, int, str]) -> Location:
        filename, line, name = frame
        number = self._cell_number(filename) if self._cell_number is not None else None
        return Location(filename, line, _text(filename, line), number, "" if name == "<module>" else name)


def _read(frames: Any) -> list[tuple[str, int, str]]:
    """Return the frames of a stack, the innermost first: file, line and function."""
    some = entries(frames)[:LONGEST_STACK]
    return [(word(each, "filename"), whole(each, "line"), word(each, "name")) for each in dictionaries(some)]


def _is_own(frame: tuple[str, int, str]) -> bool:
    filename, _, name = frame
    outside = _STANDARD_LIBRARY.search(filename) or name == MARK
    return bool(_PYTHON.search(filename)) and is_own_code(filename) and not outside


def _text(filename: str, line: int) -> str:
    """Return the source of a line that is in memory already."""
    cached = linecache.cache.get(filename)
    lines = cached[2] if cached is not None and len(cached) == 4 else []
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
