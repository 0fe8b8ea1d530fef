"""A page of characters to draw on: boxes and wires for the terminal, as exact as a picture."""

from __future__ import annotations

from collections.abc import Sequence


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


def table(rows: Sequence[tuple[str, ...]], *, indent: int = 1, gap: int = 3) -> list[str]:
    """Return rows of text in columns as wide as their widest cell."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    padded = ((cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [" " * indent + (" " * gap).join(cells).rstrip() for cells in padded]


def printable(line: str) -> str:
    """Return ``line`` with every character that a terminal could obey, or break a line at, replaced."""
    return "".join(char if char.isprintable() or char == "\u00a0" else "\ufffd" for char in line)
