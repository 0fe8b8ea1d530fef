"""Characters of a terminal: those it can show, and what stands for those it cannot."""

from __future__ import annotations

import codecs
import io
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TextIO

from tensormagic.renderers.basics.theme import NORM_EXPONENTS
from tensormagic.renderers.trace.trace_phrases import NOT_MEASURABLE, measured, touched
from tensormagic.reports import UNTOUCHED

# Bars made of characters: a norm on a logarithmic scale, a loss on a linear one, in one column of a terminal each.

BLOCKS = "▁▂▃▄▅▆▇█"
NOT_FINITE, NONE, ZERO, BLIND = "!", "·", "0", "?"
LEGEND = {NOT_FINITE: "NaN or Inf", NONE: "no gradient", ZERO: "exactly zero", BLIND: NOT_MEASURABLE}


def bar(norm: float, exponents: tuple[float, float] = NORM_EXPONENTS) -> str:
    """Return one character for a norm; ``exponents`` are the decimal logarithms at the scale's ends."""
    if not measured(norm):
        return BLIND if touched(norm) else NONE
    if not math.isfinite(norm):
        return NOT_FINITE
    if norm == 0:
        return ZERO
    low, high = exponents
    share = (math.log10(norm) - low) / (high - low)
    return BLOCKS[min(max(int(share * len(BLOCKS)), 0), len(BLOCKS) - 1)]


def bars(norms: Sequence[float], width: int, exponents: tuple[float, float]) -> str:
    """Return a series in at most ``width`` characters; one character is the largest of its stretch, NaN above all."""
    columns = min(width, len(norms))
    stretches = (norms[len(norms) * at // columns : len(norms) * (at + 1) // columns] for at in range(columns))
    return "".join(bar(largest(stretch), exponents) for stretch in stretches)


def curve(values: Sequence[float], width: int) -> str:
    """Return a series in at most ``width`` characters, from its least value to its greatest on a linear scale.

    One character is the last value of its stretch, so that the end is what is true now; one that is not finite, the
    stretch's own or an earlier one in it, stands out.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    columns = min(width, len(values))
    stretches = (values[len(values) * at // columns : len(values) * (at + 1) // columns] for at in range(columns))
    return "".join(_height(stretch, low, high) for stretch in stretches)


def _height(stretch: Sequence[float], low: float, high: float) -> str:
    if not all(map(math.isfinite, stretch)):
        return NOT_FINITE
    span = high / 2 - low / 2  # halves: the whole of it may be too large for a float
    share = (stretch[-1] / 2 - low / 2) / span if span > 0 else 0.0
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]


def largest(norms: Sequence[float]) -> float:
    """Return the largest of ``norms``; one that is not finite counts as larger than all others."""
    bad = next((norm for norm in norms if not math.isfinite(norm)), None)
    # What could not be measured lies below "no gradient" as a number, but above it as news.
    return max(norms, key=lambda norm: (measured(norm), touched(norm), norm), default=UNTOUCHED) if bad is None else bad


# Text for streams that cannot hold every character: Windows' code pages, ``LANG=C``, an old log file.
#
# Every report is text with bars, boxes and arrows in it. Printing one into a stream of another encoding would raise
# UnicodeEncodeError in the middle of somebody's run; so what the stream cannot hold is written with what every stream
# can. Bars keep their order of ink and boxes their edges; a character that has no lookalike becomes a question mark.

# One column stays one column wherever columns may stand under each other. What is read together is replaced together:
# a code page that has three of the eight bars would otherwise mix two scales.
EVERY_BAR = "▁▂▃▄▅▆▇█▏▎▍▌▋▊▉▐▕░▒▓"
_TOGETHER = (
    (EVERY_BAR, ".:;=+%#@''||||||'.:#"),
    ("─│┌┐└┘├┤┬┴┼", "-|+++++++++"),
    ("▮▯", "#_"),
)
_EACH = tuple(zip("▲▼△▽◄►○●✖✗✓✔←→↑↓−–‾·•…×µ⋮≈∩𝛻“”", '^v^v<>oOxxvv<>^v--~-*~xu:~&d""', strict=True))
_LONGER = (("≠", "!="), ("≤", "<="), ("≥", ">="), ("±", "+-"), ("—", "--"), ("²", "^2"), ("³", "^3"), ("∞", "inf"))
_SPACES = tuple((space, " ") for space in "\u00a0\u202f\u2009")
LOOKALIKES = {letter: like for pair in _TOGETHER for letter, like in zip(*pair, strict=True)} | dict(
    (*_EACH, *_LONGER, *_SPACES)
)

_TIMES = re.compile(r"(?<=\w)·(?=\w)")  # 12·j; between words, and where nothing stands in a row of bars, it is a dash


def writable(text: str, encoding: str | None) -> str:
    """Return ``text`` as a stream of that encoding can hold it; unchanged where it can hold all of it.

    Args:
        text: What is to be written.
        encoding: The stream's; None where it holds any text, as `io.StringIO` does.
    """
    if encoding is None or holds(encoding, text):
        return text
    if not holds(encoding, "·"):
        text = _TIMES.sub("*", text)
    return text.translate(_table(encoding)).encode(encoding, "replace").decode(encoding)


def holds(encoding: str | None, text: str) -> bool:
    """Say whether a stream of that encoding can hold ``text``; without an encoding it holds any."""
    if encoding is None:
        return True
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    except LookupError:  # an encoding that Python does not know: the stream has its own way
        return True
    return True


@cache
def _table(encoding: str) -> dict[int, str]:
    return {ord(letter): LOOKALIKES[letter] for letter in _replaced(encoding)}


def _replaced(encoding: str) -> Iterator[str]:
    together = {letters for letters, _ in _TOGETHER if not holds(encoding, letters)}
    for letter in LOOKALIKES:
        if not holds(encoding, letter) or any(letter in letters for letters in together):
            yield letter


def never_raise(stream: TextIO) -> None:
    """Let ``print`` to ``stream`` take lookalikes for what it cannot hold, from now on: for a process of our own."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error(__name__, _instead)
        stream.reconfigure(errors=__name__)


def _instead(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(LOOKALIKES.get(letter, "?") for letter in missing), error.end
