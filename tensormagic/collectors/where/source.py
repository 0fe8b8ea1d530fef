"""Which of the person's own lines is running: from a frame to a `Location`.

The person's line is the innermost frame of *their* code: not torch, not this package, not the standard library,
not an installed package. Where a library calls torch on their behalf, that is the line which called the library.
A frame walk costs about a microsecond, so lines are interned: equal places share one small integer, the *site*.
"""

from __future__ import annotations

import linecache
import os.path
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tensormagic.reports import Cell, Location

PACKAGE_DIRECTORY = str(Path(__file__).resolve().parents[2]) + os.path.sep
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARY_DIRECTORIES = tuple(sysconfig.get_path(name) + os.path.sep for name in _LIBRARIES)
_INSTALLED = tuple(f"{os.path.sep}{name}{os.path.sep}" for name in ("site-packages", "dist-packages"))

MOST_PLACES = 1 << 14  # in code that are known by their instruction; beyond, they are looked up by their line again
MAX_SOURCE_LINES = 400  # a longer file is not put into the report as a whole; the lines that matter always are

CellNumber = Callable[[str], "int | None"]


def _no_cell(_filename: str) -> int | None:
    return None


def is_own_code(filename: str) -> bool:
    """Return whether ``filename`` is the person's code rather than a library's, Python's or this package's.

    Cells of a notebook have made-up names (``/tmp/ipykernel_1/2.py``, ``<ipython-input-1-…>``) and count as own.
    """
    if filename.startswith("<"):
        return filename.startswith(("<ipython", "<stdin", "<string", "<cell", "<doctest"))
    if any(folder in filename for folder in _INSTALLED):  # also the user's (--user) and the system's
        return False
    return not filename.startswith((PACKAGE_DIRECTORY, *_LIBRARY_DIRECTORIES))


class Sites:
    """The lines met so far, each with a small number.

    Args:
        cell_number: Gives the execution count of a cell from its file name; None for files that are no cell.
    """

    def __init__(self, cell_number: CellNumber = _no_cell) -> None:
        self._cell_number = cell_number
        self._own: dict[str, bool] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._places: dict[tuple[int, int], tuple[CodeType, int]] = {}  # the code is kept: its id is in the key
        self._locations: list[Location] = []

    @property
    def locations(self) -> tuple[Location, ...]:
        """Every line met so far, by site number."""
        return tuple(self._locations)

    def of_frame(self, frame: FrameType | None) -> int | None:
        """Return the site of the innermost own frame at or above ``frame``, or None where all of it is library code."""
        own = self._own
        while frame is not None:
            filename = frame.f_code.co_filename
            mine = own.get(filename)
            if mine is None:
                mine = own.setdefault(filename, is_own_code(filename))
            if mine:
                place = self._places.get((id(frame.f_code), frame.f_lasti))
                return self._number(frame) if place is None else place[1]
            frame = frame.f_back
        return None

    def at_frame(self, frame: FrameType) -> int:
        """Return the site of the very line that a frame runs, whoever wrote it."""
        key = (frame.f_code.co_filename, frame.f_lineno)
        number = self._numbers.get(key)
        return self._add(key, frame) if number is None else number

    def at(self, filename: str, line: int, function: str) -> Location:
        """Return a line of a file as a location, without giving it a number."""
        return location_of(filename, line, function, cell_number=self._cell_number)

    def number(self, filename: str, line: int) -> int:
        """Return the site of a line of a file or cell, which need not be running."""
        key = (filename, line)
        if key not in self._numbers:
            self._locations.append(location_of(filename, line, "", cell_number=self._cell_number))
            self._numbers[key] = len(self._locations) - 1
        return self._numbers[key]

    def here(self, depth: int = 1) -> int | None:
        """Return the site of the caller, ``depth`` frames up."""
        return self.of_frame(sys._getframe(depth))

    @property
    def cell_number(self) -> CellNumber:
        """What gives the execution count of a cell."""
        return self._cell_number

    def _number(self, frame: FrameType) -> int:
        """Return the site of a place that was not met before; its line may have been, at another place."""
        key = (frame.f_code.co_filename, frame.f_lineno)
        number = self._numbers.get(key)
        if number is None:
            number = self._add(key, frame)
        if len(self._places) >= MOST_PLACES:
            self._places.clear()
        self._places[id(frame.f_code), frame.f_lasti] = (frame.f_code, number)
        return number

    def _add(self, key: tuple[str, int], frame: FrameType) -> int:
        self._locations.append(location_in(frame, key[1], self._cell_number))
        return self._numbers.setdefault(key, len(self._locations) - 1)


def lines_of(filename: str, names: dict[str, Any] | None = None) -> list[str]:
    """Return the lines of a file or cell; of a file as it stands now: it may have been edited, and loaded again.

    Args:
        filename: As the code names it.
        names: The globals of its module, which may know how to load its source.
    """
    if _is_on_disk(filename):  # what is gone from there is left as Python remembers it
        linecache.checkcache(filename)
    return linecache.getlines(filename, names)


def _is_on_disk(filename: str) -> bool:
    try:
        return Path(filename).exists()
    except OSError:  # no file can have a name as long as code may have
        return False


def _line_of(filename: str, line: int, names: dict[str, Any] | None = None) -> str:
    lines = lines_of(filename, names)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def location_in(frame: FrameType, line: int, cell_number: CellNumber | None = None) -> Location:
    """Return a line of the code that a frame runs."""
    filename, function = frame.f_code.co_filename, frame.f_code.co_name
    text = _line_of(filename, line, frame.f_globals)
    return Location(
        filename, line, text, (cell_number or _no_cell)(filename), "" if function == "<module>" else function
    )


def location_of(filename: str, line: int, function: str, *, cell_number: CellNumber | None = None) -> Location:
    """Return a line of a file or cell that Python has read."""
    text = _line_of(filename, line)
    return Location(filename, line, text, (cell_number or _no_cell)(filename), function)


def cell_of(frame: FrameType) -> Cell:
    """Return the file that a frame runs in, for the report of what runs there; long ones without their lines."""
    filename = frame.f_code.co_filename
    lines = tuple(line.rstrip("\n") for line in lines_of(filename, frame.f_globals))
    return Cell(filename, None, lines if len(lines) <= MAX_SOURCE_LINES else ())
