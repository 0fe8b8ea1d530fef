"""Text for streams that cannot hold every character: Windows' code pages, ``LANG=C``, an old log file.

Every report is text with bars, boxes and arrows in it. Printing one into a stream of another encoding would raise
UnicodeEncodeError in the middle of somebody's run; so what the stream cannot hold is written with what every stream
can. Bars keep their order of ink and boxes their edges; a character that has no lookalike becomes a question mark.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from functools import cache
from typing import TextIO

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
