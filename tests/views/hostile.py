"""Texts that a user, a library or an attacker can put into any field of a report, and reports that hold them."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensormagic.reports import Report
from tensormagic.views.markup import LONGEST_LINE

MARK = "_q7_"  # in hostile texts, and by its underscores in no packed data
HUGE = 1_000_000
NUMBERS = {"Frame.bad keys", "ForwardValues.bad keys"}  # indices of nodes: JSON has no other keys than text

HOSTILE = {
    "element": f"<script>{MARK}()</script><img src=x onerror={MARK}()><svg/onload={MARK}()>",
    "end of script": f"</script></style></textarea></title><b {MARK}=1>",
    "comment": f"<!--<script>{MARK}--><![CDATA[{MARK}]]>",
    "attribute": f"\" onfocus={MARK}() autofocus x='{MARK}' ` =",
    "template": f"${{{MARK}}}{{{{{MARK}}}}}{{%{MARK}%}}%s%(x)s{{0}}\\1\\g<1>",
    "address": f"javascript:{MARK}()//https://example.org/{MARK}?a=1&b=2#c",
    "entity": f"&lt;b&gt;&#x3c;script&#x3e;{MARK}&amp;",
    "terminal": f"\x1b[31m{MARK}\x1b]0;title\x07\x9b2J\x08\x7f\r\x00",
    "direction": f"{MARK}\u202egnp.exe\u202c\u2066\u2067\u2068\u2069\u200f\u061c",
    "half pairs": f"\ud83d{MARK}\udc80\udfff",
    "separators": f"{MARK}\u2028\u2029\x0b\x0c\x85\ufeff\u200b\n\t",
    "right to left": f"שלום{MARK}مرحبا",
    "pictures": f"👩\u200d👩\u200d👧{MARK}🏳\ufe0f\u200d🌈e" + "\u0300" * 40,
    "long word": "W" * 5000,
    "huge": "x" * HUGE,
}
_MARKUP = ("element", "end of script", "comment", "attribute", "template", "address", "entity")
_SIGNS = ("terminal", "direction", "half pairs", "separators", "right to left", "pictures")
ALL_MARKUP, ALL_SIGNS = (" ".join(HOSTILE[name] for name in names) for names in (_MARKUP, _SIGNS))
TOGETHER = {"markup": ALL_MARKUP, "signs": ALL_SIGNS, "long": HOSTILE["huge"][:50_000]}
assert max(len(ALL_MARKUP), len(ALL_SIGNS)) <= LONGEST_LINE, "cut, they would not be whole in any output"


def with_text(value: Any, change: Callable[[str, str], str], path: str = "") -> Any:
    """Return a report with ``change(path, text)`` in the place of every free text in it.

    A text is free where its type says ``str``: words of a fixed list are left. The path names class and field, not
    the place: ``Finding.message``.
    """
    if isinstance(value, str):
        return value if path in NUMBERS else change(path, value)
    if isinstance(value, tuple | list):
        return type(value)(with_text(item, change, path) for item in value)
    if isinstance(value, dict):
        return {with_text(key, change, f"{path} keys"): with_text(item, change, path) for key, item in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    fields = {
        name: with_text(getattr(value, name), change, f"{type(value).__name__}.{name}") for name in _free(type(value))
    }
    return dataclasses.replace(value, **fields)


@functools.cache
def _free(kind: type) -> tuple[str, ...]:
    """Return the names of a class's fields that can hold free text."""
    hints = typing.get_type_hints(kind)
    return tuple(field.name for field in dataclasses.fields(kind)
                 if _is_free(hints[field.name]) and not field.metadata.get("encoded"))  # fmt: skip


def _is_free(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return False
    return all(map(_is_free, typing.get_args(hint))) if typing.get_args(hint) else True


def places(report: Report) -> Iterator[str]:
    """Yield the free texts' places in a report: class and field."""
    found: list[str] = []
    with_text(report, lambda path, text: found.append(path) or text)
    return iter(dict.fromkeys(found))


def covering(samples: Mapping[str, Report]) -> dict[str, Report]:
    """Return few, and small, samples that together have every place that any of them has."""
    missing = {name: set(places(report)) for name, report in samples.items()}
    cost = {name: 2000 + len(repr(report)) for name, report in samples.items()}
    chosen: dict[str, Report] = {}
    while any(missing.values()):
        best = max(missing, key=lambda name: len(missing[name]) / cost[name])
        chosen[best], found = samples[best], missing[best]
        missing = {name: rest - found for name, rest in missing.items()}
    return chosen


def everywhere(report: Report, text: str) -> Report:
    """Return a report whose every free text is ``text``."""
    return with_text(report, lambda _path, _old: text)


def classes(report: Report) -> list[str]:
    """Return the classes of a report and its parts that have free texts."""
    return list(dict.fromkeys(place.partition(".")[0] for place in places(report)))


def in_class(report: Report, name: str, text: str) -> Report:
    """Return a report with ``text`` in all fields of one class, wherever it occurs."""
    return with_text(report, lambda path, old: text if path.partition(".")[0] == name else old)
