"""Text of a terminal: a canvas, tables, wrapping, bars, and what a terminal can write."""

from __future__ import annotations

import codecs
import io
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import TextIO

from rich.cells import cached_cell_len, set_cell_size

from tensormagic.reports import UNTOUCHED
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, measured, touched
from tensormagic.views.theme import NORM_EXPONENTS

# A page of characters to draw on: boxes, wires and tables for the terminal, measured as a terminal shows them.

_INDENT = "  "
_WORDS = re.compile(r"([ \n\r]*)([^ \n\r]+)")
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
        """Write ``text`` at a line and column, over what is there."""
        while len(self._lines) <= line:
            self._lines.append([])
        row = self._lines[line]
        row.extend(" " * (column + len(text) - len(row)))
        row[column : column + len(text)] = text

    def lines(self) -> list[str]:
        """Return the lines, without spaces at their ends."""
        return ["".join(row).rstrip() for row in self._lines]


def table(rows: Sequence[Sequence[str]], width: int, *, gap: int = 2, right: Sequence[int] = ()) -> list[str]:
    """Return rows of text in columns as wide as their widest cell, as a terminal shows it: a Chinese letter takes two.

    Args:
        rows: The cells, row by row; a cell may have several lines.
        width: Of a line; what is wider goes on below, first between the words of cells, then cell by cell under the
            first of its row.
        gap: Spaces between two columns.
        right: The columns that are aligned to the right.
    """
    places = range(len(rows[0]))
    widths = [max(columns_of(line) for row in rows for line in row[at].split("\n")) for at in places]
    room = width - len(_INDENT) - gap * (len(widths) - 1)
    if sum(widths) > room:
        least = [max(columns_of(word) for row in rows for word in _whole(row[at]).split(" ")) for at in places]
        if sum(least) > room:
            return _stacked(rows, gap, width)
        while sum(widths) > room:  # the widest is narrowed first
            widths[max((wide, at) for at, wide in enumerate(widths) if wide > least[at])[1]] -= 1
    lines = []
    for row in rows:
        cells = []
        for cell, wide in zip(row, widths, strict=True):
            fitted = ([one] if columns_of(one) <= wide else wrapped(_whole(one), wide) for one in cell.split("\n"))
            cells.append([*chain.from_iterable(fitted)])
        for parts in zip_longest(*cells, fillvalue=""):
            free = [" " * (wide - columns_of(part)) for wide, part in zip(widths, parts, strict=True)]
            aligned = (free[at] + part if at in right else part + free[at] for at, part in enumerate(parts))
            lines.append(_INDENT + (" " * gap).join(aligned).rstrip())
    return lines


def _stacked(rows: Sequence[Sequence[str]], gap: int, width: int) -> list[str]:
    """Return each row as its first cell that says something, and below it the others."""
    lines = []
    for row in rows:
        first, *others = [cell for cell in map(_whole, row) if cell.strip()] or [""]
        lines += wrapped(first, width, _INDENT, " " * 8)
        lines += wrapped((" " * gap).join(others), width, " " * 6, " " * 8) if any(others) else []
    return lines


def _whole(cell: str) -> str:
    """Return a cell in one line, in which no number parts from its unit, and no shape is parted."""
    return _TOGETHER.sub("\u00a0", cell.replace("\n", " "))


def columns_of(text: str) -> int:
    """Return how many columns a terminal gives to ``text``; rich would keep thousands of texts to know it again."""
    return len(text) if text.isascii() else cached_cell_len.__wrapped__(text)


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns, spaces kept, an ellipsis where something was cut."""
    return text if columns_of(text) <= width else set_cell_size(text, width - 1).rstrip() + "\u2026"


def wrapped(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """Return ``text`` in lines of at most ``width`` columns, broken between words.

    No-break spaces hold words together; the first line begins with ``first``, the others with ``further``.
    """
    if columns_of(further) + 2 > width:
        width = columns_of(further) + 8
    if columns_of(first) + 2 > width and text.strip():
        return [first.rstrip(), *wrapped(text, width, further, further)]
    lines, line = list[str](), first
    for gap, word in _WORDS.findall(text.expandtabs()):
        lead = further if lines else first
        if line != lead and columns_of(lead + word) <= width < columns_of(line + gap + word):
            lines.append(line)
            line = lead = further
        line += word if lines and line == lead else gap + word
        while columns_of(line) > width:  # a word that is longer than a line
            end = max(at for at in range(1, width + 1) if columns_of(line[:at]) <= width)
            lines.append(line[:end])
            line = further + line[end:].lstrip(" ")
    return [each.rstrip(" ") for each in (*lines, line)]


def printable(line: str) -> str:
    """Return ``line`` with every character that a terminal could obey, or break a line at, replaced."""
    return "".join(char if char.isprintable() or char in _HARMLESS else "\ufffd" for char in line)


_HARMLESS = "\u00a0\u200c\u200d"  # a space of its own kind, and the joiners that scripts and pictures need


# Bars made of characters: a norm on a logarithmic scale, a loss on a linear one, in one column of a terminal each.

BLOCKS = "▁▂▃▄▅▆▇█"
NOT_FINITE, NONE, ZERO, BLIND = "!", "·", "0", "?"
LEGEND = {NOT_FINITE: "NaN or Inf", NONE: "no gradient", ZERO: "exactly zero", BLIND: NOT_MEASURABLE}


def bar(norm: float, exponents: tuple[float, float] = NORM_EXPONENTS) -> str:
    """Return one character for a norm; ``exponents`` are the decimal logarithms at the scale's ends."""
    if not measured(norm):
        return BLIND if touched(norm) else NONE
    if norm == 0 or not math.isfinite(norm):
        return ZERO if norm == 0 else NOT_FINITE
    low, high = exponents
    share = (math.log10(norm) - low) / (high - low)
    return BLOCKS[min(max(int(share * len(BLOCKS)), 0), len(BLOCKS) - 1)]


def bars(norms: Sequence[float], width: int, exponents: tuple[float, float]) -> str:
    """Return a series in at most ``width`` characters; one character is the largest of its stretch, NaN above all."""
    return "".join(bar(largest(stretch), exponents) for stretch in _stretches(norms, width))


def curve(values: Sequence[float], width: int) -> str:
    """Return a series in at most ``width`` characters, from its least value to its greatest on a linear scale.

    One character is the last value of its stretch, so that the end is what is true now; one that is not finite, the
    stretch's own or an earlier one in it, stands out.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = high / 2 - low / 2  # halves: the whole of it may be too large for a float
    drawn = ""
    for stretch in _stretches(values, width):
        share = (stretch[-1] / 2 - low / 2) / span if span > 0 else 0.0
        is_finite = all(map(math.isfinite, stretch))
        drawn += BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)] if is_finite else NOT_FINITE
    return drawn


def _stretches(values: Sequence[float], most: int) -> Iterator[Sequence[float]]:
    """Yield a series in at most ``most`` stretches, as even as can be."""
    number = min(most, len(values))
    for at in range(number):
        yield values[len(values) * at // number : len(values) * (at + 1) // number]


def largest(norms: Sequence[float]) -> float:
    """Return the largest of ``norms``; one that is not finite counts as larger than all others."""
    # What could not be measured lies below "no gradient" as a number, but above it as news.
    return max(norms, key=lambda one: (not math.isfinite(one), measured(one), touched(one), one), default=UNTOUCHED)


# Text for streams that cannot hold every character: Windows' code pages, ``LANG=C``, an old log file.
#
# Every report is text with bars, boxes and arrows in it. Printing one into a stream of another encoding would raise
# UnicodeEncodeError in the middle of somebody's run; so what the stream cannot hold is written with what every stream
# can. Bars keep their order of ink and boxes their edges; a character that has no lookalike becomes a question mark.

# One column stays one column wherever columns may stand under each other.
EVERY_BAR = "▁▂▃▄▅▆▇█▏▎▍▌▋▊▉▐▕░▒▓"
_EACH = EVERY_BAR + "─│┌┐└┘├┤┬┴┼▮▯▲▼△▽◄►○●✖✗✓✔←→↑↓−–‾·•…×µ⋮≈∩𝛻“”\u00a0\u202f\u2009"
_LIKE = ".:;=+%#@''||||||'.:#-|+++++++++#_^v^v<>oOxxvv<>^v--~-*~xu:~&d\"\"   "
_LONGER = {"≠": "!=", "≤": "<=", "≥": ">=", "±": "+-", "—": "--", "²": "^2", "³": "^3", "∞": "inf"}
LOOKALIKES = dict(zip(_EACH, _LIKE, strict=True)) | _LONGER

_TIMES = re.compile(r"(?<=\w)·(?=\w)")  # 12·j; between words, and where nothing stands in a row of bars, it is a dash


def writable(text: str, encoding: str | None) -> str:
    """Return ``text`` as a stream of that encoding can hold it, else every sign's lookalike: scales are not mixed."""
    if encoding is None or holds(encoding, text):
        return text
    alike = _TIMES.sub("*", text).translate({ord(letter): like for letter, like in LOOKALIKES.items()})
    return alike.encode(encoding, "replace").decode(encoding)


def holds(encoding: str | None, text: str) -> bool:
    """Say whether a stream of that encoding can hold ``text``; without an encoding, as `io.StringIO`, it holds any."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    except LookupError:  # an encoding that Python does not know: the stream has its own way
        return True
    return True


def prints_best() -> bool:
    """Say whether text does better than any display: in a terminal, and where not every character can go."""
    return is_terminal(sys.stdout) or not holds(getattr(sys.stdout, "encoding", None), EVERY_BAR)


def is_terminal(stream: TextIO | None) -> bool:
    """Say whether ``stream`` is a terminal that understands where to write."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}
    except (ValueError, OSError):  # closed
        return False


def never_raise(stream: TextIO) -> None:
    """Let ``print`` to ``stream`` take lookalikes for what it cannot hold, from now on: for a process of our own."""

    def instead(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return "".join(LOOKALIKES.get(letter, "?") for letter in error.object[error.start : error.end]), error.end

    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error(__name__, instead)
        stream.reconfigure(errors=__name__)


# Bars made of characters, an eighth of a column fine.

_EIGHTHS = " ▏▎▍▌▋▊▉"
_RISING = f" {BLOCKS}"
FULL = BLOCKS[-1]


def share_bar(share: float, width: int) -> str:
    """Return a bar that fills ``share`` of ``width`` columns; what is above nothing shows at least an eighth."""
    eighths = min(max(round(share * width * 8), int(share > 0)), width * 8)
    whole, part = divmod(eighths, 8)
    return FULL * whole + (_EIGHTHS[part] if part else "")


def heights(values: Sequence[int], top: int, rows: int) -> list[str]:
    """Return a chart of ``rows`` lines, a column a value, an eighth of a line fine; the first line is the highest."""
    eighths = [min(max(round(value / max(top, 1) * rows * 8), int(value > 0)), rows * 8) for value in values]
    return [
        "".join(_RISING[min(max(height - 8 * (rows - 1 - row), 0), 8)] for height in eighths).rstrip()
        for row in range(rows)
    ]


def sparkline(counts: Sequence[int]) -> str:
    """Return a histogram as one line of bars; an empty bin is a dot, so that it is not taken for a small one."""
    highest = max(counts, default=0) or 1
    return "".join(BLOCKS[round((len(BLOCKS) - 1) * number / highest)] if number else NONE for number in counts)


def fewer(counts: Sequence[int], most: int) -> tuple[int, ...]:
    """Return a histogram of at most so many bins: neighbours are added up."""
    together = -(-len(counts) // most) or 1
    return tuple(sum(counts[at : at + together]) for at in range(0, len(counts), together))
