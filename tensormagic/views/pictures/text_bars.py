"""Bars made of characters, an eighth of a column fine, and rows of a table that hold one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_RISING = " ▁▂▃▄▅▆▇█"
FULL = "█"


def bar(share: float, width: int) -> str:
    """Return a bar that fills ``share`` of ``width`` columns; what is above nothing shows at least an eighth."""
    eighths = min(max(round(share * width * 8), int(share > 0)), width * 8)
    whole, part = divmod(eighths, 8)
    return FULL * whole + (_EIGHTHS[part] if part else "")


def barred(rows: Sequence[tuple[str, int, Sequence[str]]], width: int, *, names: int = 36, top: int = 0) -> list[str]:
    """Return a line a row: name, bar, then what else there is to say; below it where it has no room there.

    Args:
        rows: Name, number, and further cells; the first of these, the number in words, is aligned to the right.
        width: Columns of a line.
        names: Columns of the longest name; a longer one is cut.
        top: The number that fills a bar; the largest by default.
    """
    if not rows:
        return []
    top = top or max(number for _, number, _ in rows) or 1
    named = min(max(len(name) for name, _, _ in rows), names)
    first = max(len(cells[0]) for _, _, cells in rows)
    room = min(max(width - named - first - 24, 6), 28)
    lines = []
    for name, number, cells in rows:
        described = "  ".join(cell for cell in cells[1:] if cell)
        shown = name if len(name) <= named else name[: named - 1] + "…"
        line = f"  {shown:<{named}}  {bar(number / top, room):<{room}}  {cells[0]:>{first}}"
        beside = f"{line}  {described}".rstrip()
        below = textwrap.wrap(described, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
        lines += [beside] if len(beside) <= width else [line, *below]
    return lines


def heights(values: Sequence[int], top: int, rows: int) -> list[str]:
    """Return a chart of ``rows`` lines, a column a value, an eighth of a line fine; the first line is the highest."""
    eighths = [min(max(round(value / max(top, 1) * rows * 8), int(value > 0)), rows * 8) for value in values]
    return [
        "".join(_RISING[min(max(height - 8 * (rows - 1 - row), 0), 8)] for height in eighths).rstrip()
        for row in range(rows)
    ]


def sparkline(counts: Sequence[int]) -> str:
    """Return a histogram as one line of bars; an empty bin is a dot, so that it is not taken for a small one."""
    highest, bars = max(counts, default=0) or 1, _RISING[1:]
    return "".join(bars[round((len(bars) - 1) * number / highest)] if number else "\u00b7" for number in counts)


def fewer(counts: Sequence[int], most: int) -> tuple[int, ...]:
    """Return a histogram of at most so many bins: neighbours are added up."""
    together = -(-len(counts) // most) or 1
    return tuple(sum(counts[at : at + together]) for at in range(0, len(counts), together))
