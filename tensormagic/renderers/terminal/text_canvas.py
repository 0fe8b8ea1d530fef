"""A page of characters to draw on: boxes and wires for the terminal, as exact as a picture."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

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


def table(rows: Sequence[tuple[str, ...]], *, indent: int = 1, gap: int = 3, width: int = 0) -> list[str]:
    """Return rows of text in columns as wide as their widest cell.

    Args:
        rows: The cells, row by row.
        indent: Spaces before the first column.
        gap: Spaces between two.
        width: Of a line; what is wider goes on below, first between the words of cells, then cell by cell under the
            first of its row. 0: as wide as it is.
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    room = width - indent - gap * (len(widths) - 1)
    if width and sum(widths) > room:
        words = [max(len(word) for row in rows for word in _whole(row[at]).split(" ")) for at in range(len(widths))]
        if sum(words) > room:
            return [line for row in rows for line in _stacked(row, indent, gap, width)]
        widths = _squeezed(widths, words, room)
    return [line for row in rows for line in _row(row, widths, " " * indent, " " * gap)]


def _squeezed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that fit into ``room``, the widest narrowed first, none below its ``least``."""
    fitted = list(widths)
    while sum(fitted) > room:
        fitted[max((width, at) for at, width in enumerate(fitted) if width > least[at])[1]] -= 1
    return fitted


def _stacked(row: tuple[str, ...], indent: int, gap: int, width: int) -> list[str]:
    """Return a row as its first cell that says something, and below it the others."""
    first, *others = [cell for cell in map(_whole, row) if cell.strip()] or [""]
    below, further = " " * (indent + 4), " " * (indent + 6)
    told = (" " * gap).join(others)
    lines = textwrap.wrap(first, width, initial_indent=" " * indent, subsequent_indent=further, break_on_hyphens=False)
    return lines + textwrap.wrap(told, width, initial_indent=below, subsequent_indent=further, break_on_hyphens=False)


def _row(row: tuple[str, ...], widths: Sequence[int], indent: str, gap: str) -> Iterator[str]:
    wrapped = (_wrapped(cell, width) for cell, width in zip(row, widths, strict=True))
    for cells in zip_longest(*wrapped, fillvalue=""):
        yield indent + gap.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _wrapped(cell: str, width: int) -> list[str]:
    return [cell] if len(cell) <= width else textwrap.wrap(_whole(cell), width, break_on_hyphens=False) or [""]


def _whole(cell: str) -> str:
    """Return a cell in which no number parts from its unit, and no shape is parted."""
    return _TOGETHER.sub("\u00a0", cell)


def printable(line: str) -> str:
    """Return ``line`` with every character that a terminal could obey, or break a line at, replaced."""
    return "".join(char if char.isprintable() or char == "\u00a0" else "\ufffd" for char in line)
