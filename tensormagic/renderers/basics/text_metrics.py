"""How wide a text will be, without a browser: boxes are laid out before anything draws them.

The advances are those of DejaVu Sans, the widest of the usual interface fonts: in a narrower one a box has a little
more air, in none does the text run over its edge.
"""

from __future__ import annotations

_ADVANCES = {
    28: "iIjlJ|'",
    35: "f.,:;!/\\ -()[]·",
    42: 'rt"',
    54: "csz_*?",
    63: "abdeghknopquvxyLEFSTZ0123456789",
    72: "ABCKPRUVXY$",
    80: "DGHNOQw+=<>~−–×&#^",
    100: "mMWw@%…→←",
}  # fmt: skip
_ADVANCE = {character: advance / 100 for advance, characters in _ADVANCES.items() for character in characters}
_NARROWEST = min(_ADVANCE.values())
_OTHER = 0.66  # most letters of Latin, Greek and Cyrillic scripts
_WIDE = 1.0  # ideographs and pictures
_FIRST_WIDE = 0x1100
_BOLD = 1.12
_CUT = " …"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width in pixels of ``text`` in the interface font at ``size`` pixels."""
    try:
        ems = sum(map(_ADVANCE.__getitem__, text))  # of nearly every text every letter stands there
    except KeyError:
        ems = sum(_ADVANCE.get(letter, _WIDE if ord(letter) >= _FIRST_WIDE else _OTHER) for letter in text)
    return ems * size * (_BOLD if bold else 1.0)


def _ending(line: str, width: float, size: float) -> str:
    """Return ``line`` with an ellipsis behind as many of its words as have room."""
    words = line.split()
    while len(words) > 1 and text_width(" ".join(words) + _CUT, size) > width:
        words.pop()
    return " ".join(words) + _CUT


def fitted(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """Return ``text``, its middle replaced by an ellipsis where it would be wider than ``width``."""
    if text_width(text, size, bold=bold) <= width:
        return text
    keep = min(len(text) - 1, int(width / (size * _NARROWEST)) + 1)  # not letter by letter from the end of a long one
    while keep > 2 and text_width(_cut(text, keep), size, bold=bold) > width:
        keep -= 1
    return _cut(text, keep)


def _cut(text: str, keep: int) -> str:
    """Keep the ends: the last part of ``encoder.layers.3.weight`` says most, and so does the first."""
    front = keep // 2
    return f"{text[:front]}…{text[len(text) - (keep - front) :]}"


def wrapped(text: str, width: float, size: float, most: int) -> list[str]:
    """Return ``text`` broken between words into at most ``most`` lines, an ellipsis at the end where it was cut."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if not lines[-1] or text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines[most - 1 :] = [_ending(lines[most - 1], width, size)]
    return [fitted(line, width, size) for line in lines]
