"""A page of characters to draw on: boxes, wires and tables for the terminal, measured as a terminal shows them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size

_TOGETHER = re.compile(r"(?<=\d) (?=(?:[KMGTP]i)?B\b|%)|(?<=\d,) (?=\W?\d)")  # a unit, the sizes of a shape


class Canvas:
    """Lines of characters that grow as they are written to."""

    def __init__(self) -> None:
        """Start empty."""
        self._lines: list[list[str]] = []

    @property
    def height(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def put(self, line: int, column: int, text: str) -> None:
        """Write ``text`` at a line and column, over what stands there."""
        while len(self._lines) <= line:
            self._lines.append([])
        row = self._lines[line]
        row.extend(" " * (column + len(text) - len(row)))
        row[column : column + len(text)] = text

    def lines(self) -> list[str]:
        """Return the lines, without spaces at their ends."""
        return ["".join(row).rstrip() for row in self._lines]


def box(cells: list[list[str]], width: int) -> list[str]:
    """Return a ruled box around rows of cells, each cell ``width`` characters wide and aligned to the right."""
    columns = len(cells[0])
    body = ["\u2502" + "\u2502".join(cell.rjust(width) for cell in row) + "\u2502" for row in cells]
    return [_rule("\u250c\u252c\u2510", columns, width), *body, _rule("\u2514\u2534\u2518", columns, width)]


def _rule(corners: str, columns: int, width: int) -> str:
    return corners[0] + corners[1].join("\u2500" * width for _ in range(columns)) + corners[2]


def table(
    rows: Sequence[Sequence[str]], *, indent: int = 1, gap: int = 3, width: int = 0, right: Sequence[int] = ()
) -> list[str]:
    """Return rows of text in columns as wide as their widest cell, as a terminal shows it: a Chinese letter takes two.

    Args:
        rows: The cells, row by row; a cell may have several lines.
        indent: Spaces before the first column.
        gap: Spaces between two.
        width: Of a line; what is wider goes on below, first between the words of cells, then cell by cell under the
            first of its row. 0: as wide as it is.
        right: The columns that are aligned to the right.
    """
    widths = [max(columns_of(line) for row in rows for line in row[at].split("\n")) for at in range(len(rows[0]))]
    room = width - indent - gap * (len(widths) - 1)
    if width and sum(widths) > room:
        words = [
            max(columns_of(word) for row in rows for word in _whole(row[at]).split(" ")) for at in range(len(widths))
        ]
        if sum(words) > room:
            return [line for row in rows for line in _stacked(row, indent, gap, width)]
        widths = _squeezed(widths, words, room)
    return [line for row in rows for line in _row(row, widths, right, (" " * indent, " " * gap))]


def _squeezed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that fit into ``room``, the widest narrowed first, none below its ``least``."""
    fitted = list(widths)
    while sum(fitted) > room:
        fitted[max((width, at) for at, width in enumerate(fitted) if width > least[at])[1]] -= 1
    return fitted


def _stacked(row: Sequence[str], indent: int, gap: int, width: int) -> list[str]:
    """Return a row as its first cell that says something, and below it the others."""
    first, *others = [cell for cell in map(_whole, row) if cell.strip()] or [""]
    further = " " * (indent + 6)
    described = (" " * gap).join(others)
    return [
        *wrapped(first, width, " " * indent, further),
        *(wrapped(described, width, " " * (indent + 4), further) if described else ()),
    ]


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int], spaces: tuple[str, str]) -> Iterator[str]:
    cells = (_lines(cell, width) for cell, width in zip(row, widths, strict=True))
    for parts in zip_longest(*cells, fillvalue=""):
        aligned = (_aligned(part, widths[at], right=at in right) for at, part in enumerate(parts))
        yield spaces[0] + spaces[1].join(aligned).rstrip()


def _aligned(text: str, width: int, *, right: bool) -> str:
    free = " " * (width - columns_of(text))
    return free + text if right else text + free


def _lines(cell: str, width: int) -> list[str]:
    """Return a cell in lines of at most ``width``."""
    lines = cell.split("\n")
    return [part for line in lines for part in ([line] if columns_of(line) <= width else wrapped(_whole(line), width))]


def _whole(cell: str) -> str:
    """Return a cell in one line, in which no number parts from its unit, and no shape is parted."""
    return _TOGETHER.sub("\u00a0", cell.replace("\n", " "))


def columns_of(text: str) -> int:
    """Return how many columns a terminal gives to ``text``."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns, spaces kept, an ellipsis where something was cut."""
    return text if columns_of(text) <= width else set_cell_size(text, width - 1).rstrip() + "\u2026"


def wrapped(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """Return ``text`` in lines of at most ``width`` columns, broken between words.

    Args:
        text: What is broken; no-break spaces hold words together.
        width: Columns of a line.
        first: What the first line begins with.
        further: What the others begin with.
    """
    if columns_of(text) == len(text):
        lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=further, break_on_hyphens=False)
        return lines or [first.rstrip()]
    lines, line = [], first
    for word in filter(None, text.split(" ")):
        lead = first if not lines else further
        room = width - columns_of(further)
        joined = line + word if line == lead else f"{line} {word}"
        if columns_of(joined) <= width:
            line = joined
            continue
        if line != lead:
            lines.append(line)
        *whole, rest = [word[at : at + room // 2] for at in range(0, len(word), max(room // 2, 1))]
        if columns_of(word) <= room:
            whole, rest = [], word
        lines += [further + part for part in whole]
        line = further + rest
    return [*lines, line]


def printable(line: str) -> str:
    """Return ``line`` with every character that a terminal could obey, or break a line at, replaced."""
    return "".join(char if char.isprintable() or char == "\u00a0" else "\ufffd" for char in line)
