"""Text that is safe everywhere, how wide it is, and HTML made of it."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import html
import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, TypeVar

from tensormagic.words import plural

# What several forms of one report need is made once: its plain copy, the folding of its graphs.
#
# A notebook is given a report as HTML, as text and as LaTeX, and HTML draws a graph more than once. Of a graph of
# 100,000 nodes each of these is half a second.

Given = TypeVar("Given")
Made = TypeVar("Made")

_kept: ContextVar[dict[tuple[Any, int], tuple[Any, Any]] | None] = ContextVar("kept", default=None)


@contextmanager
def made_once() -> Iterator[None]:
    """Keep meanwhile, in this thread, what functions marked by `once` return; may be nested."""
    token = _kept.set({}) if _kept.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _kept.reset(token)


def once(make: Callable[[Given], Made]) -> Callable[[Given], Made]:
    """Mark a function that returns the same for the same object, which nobody changes: see `made_once`."""

    @wraps(make)
    def made(given: Given) -> Made:
        kept = _kept.get()
        if kept is None:
            return make(given)
        key = (make, id(given))
        if key not in kept:
            kept[key] = given, make(given)  # held: its id must not be used twice
        return kept[key][1]  # type: ignore[no-any-return]

    return made


# Makes the texts of a report harmless to look at, before anything draws them.
#
# Escaping (`markup`) keeps text from becoming markup. This keeps it from doing anything else: a control character
# from moving a terminal's cursor, a bidirectional control from turning the line around it, half a surrogate pair from
# being refused by every encoder, a name of a million characters from filling the notebook. What is invisible is
# written as Python writes it (``\x1b``, ``\u202e``), what is too long is cut and says so. Right-to-left letters,
# accents and pictures stay as they are. The report itself, and what is saved of it as JSON, keeps every character.

LONGEST_LINE = 500  # characters; torch's own longest lines have some two hundred
LONGEST_TEXT = 20_000
SHOWN_OF_LONG = 400
SHOWN_OF_MANY = 18_000

# Unicode's controls, those of direction and formatting, separators of lines and paragraphs, tags, half pairs, and what
# is no character. Left alone: tab, newline, and the joiners (U+200C, U+200D) that scripts and pictures need.
_WILD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_MARK = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]"
_PILE = re.compile(f"({_MARK}{{4}}){_MARK}+")  # more marks on one letter than any language writes cover other lines

_MUTE = frozenset({int, float, bool, type(None)})  # types of what holds no text

_Value = TypeVar("_Value")


def plain(text: str) -> str:
    """Return ``text`` with what is invisible written out, and with what is too long cut, saying so."""
    if len(text) <= LONGEST_LINE and text.isascii() and text.isprintable():  # nearly every text
        return text

    def cut(words: str, most: int, shown: int, number: int) -> str:
        return words if len(words) <= most else f"{words[:shown]}… ({plural(number, 'character')})"

    lines = (cut(visible(line), LONGEST_LINE, SHOWN_OF_LONG, len(line)) for line in text.split("\n"))
    return cut("\n".join(lines), LONGEST_TEXT, SHOWN_OF_MANY, len(text))


def visible(text: str) -> str:
    r"""Return ``text`` with what is invisible written as Python writes it: ``\x00``, ``\u202e``."""
    return _PILE.sub(r"\1…", _WILD.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text))


@once
def plain_report(report: _Value) -> _Value:
    """Return ``report`` with every text in it `plain`; the very same object where all of them are."""
    changed: _Value = _plain_value(report)
    return changed


def _plain_value(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        shown = {plain(key): _plain_value(inner) for key, inner in value.items()}
        return value if shown == value else shown
    if isinstance(value, tuple | list):
        if _MUTE.issuperset(map(type, value)):  # nearly all of thousands of numbers
            return value
        items = [_plain_value(item) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    changed = {}
    for name in _telling(value.__class__):
        old = getattr(value, name)
        if old and type(old) not in _MUTE and (new := _plain_value(old)) is not old:
            changed[name] = new
    return dataclasses.replace(value, **changed) if changed else value


@cache
def _telling(cls: type) -> tuple[str, ...]:
    """Return the fields of a report's dataclass that may hold text; of anything else none."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return tuple(one.name for one in fields if not one.metadata.get("encoded"))  # that: never shown


# How wide a text will be, without a browser: boxes are laid out before anything draws them.
#
# The advances are those of DejaVu Sans, the widest of the usual interface fonts: in a narrower one a box has a little
# more air, in none does the text run over its edge.

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
_FIRST_WIDE = "\u1100"
_BOLD = 1.12
_CUT = " …"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width in pixels of ``text`` in the interface font at ``size`` pixels."""
    ems = math.fsum(_ADVANCE.get(letter, _WIDE if letter >= _FIRST_WIDE else _OTHER) for letter in text)
    return ems * size * (_BOLD if bold else 1.0)


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
        words = lines[most - 1].split()
        while len(words) > 1 and text_width(" ".join(words) + _CUT, size) > width:
            words.pop()
        lines[most - 1 :] = [" ".join(words) + _CUT]
    return [fitted(line, width, size) for line in lines]


# The one place where text becomes markup: everything a user or a tensor can say is escaped here.
#
# ``escape`` is for element text and quoted attributes alike. ``json_block`` is for data inside a ``<script>``: in
# there HTML escaping does not apply, but ``</script>`` and ``<!--`` must never appear. What is invisible is written
# out by `plain_text`.

_UNSAFE_IN_SCRIPT = re.compile("[<>\u2028\u2029\ud800-\udfff]")
_ATTRIBUTE = re.compile('="([^"\']*)"')
_PERCENT = {ord(letter): f"%{ord(letter):02X}" for letter in '%<#"&\n\r\t'}


def escape(text: object) -> str:
    """Return ``text`` safe for element content and for quoted attribute values."""
    words = str(text)
    return html.escape(words if words.isascii() and words.isprintable() else visible(words), quote=True)


def attributes(**pairs: object) -> str:
    """Return `` name="value"`` for every pair that is not None; ``_`` in a name becomes ``-`` (``class_`` → class)."""
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in pairs.items())
    return "".join(f' {name}="{escape(value)}"' for name, value in named if value is not None)


def tag(name: str, *content: str, **pairs: object) -> str:
    """Return an element around ``content`` (markup already); attribute values are escaped."""
    return f"<{name}{attributes(**pairs)}>{''.join(content)}</{name}>"


def corner(words: str, **pairs: object) -> str:
    """Return a head cell above other heads: nothing to see, ``words`` for who has the table read out."""
    return tag("th", tag("span", escape(words), class_="tm-sr"), **pairs)


def json_block(data: Any) -> str:
    """Return ``data`` as JSON that can stand inside a ``<script>`` element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return _UNSAFE_IN_SCRIPT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def packed(text: str) -> str:
    """Return ``text`` gzipped, in base 64: a browser unpacks it by itself.

    The gzip header carries no time stamp: the same text packs to the same bytes.
    """
    level = 9 if len(text) < 500_000 else 6  # of a long text: 3 % more bytes in a seventh of the time
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=level, mtime=0)).decode("ascii")


def unpacked(text: str) -> str:
    """Return what `packed` packed."""
    return gzip.decompress(base64.b64decode(text)).decode()


def svg_data_uri(svg: str) -> str:
    """Return an ``<img src>`` that draws ``svg`` in any host, sanitised ones included; for a double-quoted attribute.

    Only what would end the attribute or the address is written in percent: a quarter less than base 64.
    """
    single = _ATTRIBUTE.sub(r"='\1'", svg.strip())
    return "data:image/svg+xml," + in_address(single)


def in_address(text: str) -> str:
    """Return ``text`` as it is in what `svg_data_uri` returns."""
    return text.translate(_PERCENT)


def svg_image(svg: str, alt: str, **pairs: object) -> str:
    """Return an ``<img>`` that draws ``svg``; ``alt`` says what is to be seen."""
    return f'<img{attributes(**pairs, alt=alt)} src="{svg_data_uri(svg)}">'
