"""How numbers and plain things are written, everywhere: one wording for bytes, counts, floats, tuples and lists.

Renderers phrase, they never compute; keeping the phrases here is what lets the terminal, the panel and the pictures
say the same thing in the same words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

MINUS = "\u2212"
TIMES = "\u00d7"
DOT = "\u00b7"
ELLIPSIS = "\u2026"
THIN_GAP = "\u00a0"

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_UNITS = ("", "k", "M", "G", "T")


def number_of_bytes(count: int) -> str:
    """Return a size as people write it: ``96 B``, ``1.5 KiB``, ``128 MiB``; exact below one KiB."""
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(_BINARY_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = f"{value:.1f}".removesuffix(".0")
    return f"{digits} {_BINARY_UNITS[unit]}"


def count(number: int) -> str:
    """Return a whole number with its digits in groups of three from 10 000 on, by no-break spaces."""
    return str(number) if abs(number) < 10_000 else f"{number:,}".replace(",", THIN_GAP)


def short_count(number: int) -> str:
    """Return a whole number in at most five characters: ``999``, ``33.5 M``."""
    value, unit = float(number), 0
    if number < 10_000:
        return str(number)
    while value >= 1000 and unit < len(_DECIMAL_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_DECIMAL_UNITS[unit]}"


def short_number(value: float | None) -> str:
    """Return a float with four significant digits, a true minus sign, and names for what is no number."""
    if value is None:
        return "none"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else MINUS + "Inf"
    return _tidy_exponent(f"{value:.4g}").replace("-", MINUS)


def _tidy_exponent(text: str) -> str:
    return re.sub(r"e([+-])0*(\d+)", lambda match: f"e{match[1].strip('+')}{match[2]}", text)


def tuple_text(values: Sequence[int]) -> str:
    """Return integers as Python writes a tuple: ``(4, 2)``, ``(3,)``, ``()``."""
    return f"({values[0]},)" if len(values) == 1 else f"({', '.join(map(str, values))})"


def plural(number: int, singular: str, plural_form: str = "") -> str:
    """Return ``1 element`` or ``3 elements``."""
    return f"{count(number)} {singular if number == 1 else plural_form or singular + 's'}"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th`` … ``11th``, ``12th``, ``13th``."""
    last_two = abs(number) % 100
    ending = "th" if 11 <= last_two <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(last_two % 10, "th")
    return f"{count(number)}{ending}"


def series(values: Sequence[int], *, most: int = 4) -> str:
    """Return integers as a list, its middle left out where it is long: ``0, 32, 64 … 992``."""
    if len(values) <= most:
        return ", ".join(map(str, values))
    return f"{', '.join(map(str, values[: most - 1]))} {ELLIPSIS} {values[-1]}"


def listed(words: Iterable[str], *, most: int = 4) -> str:
    """Return words as a list that says how many it leaves out: ``a, b, c, and 7 more``."""
    every = list(words)
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[:most])}, and {len(every) - most} more"


def shortened(text: str, width: int) -> str:
    """Return ``text`` on one line and at most ``width`` characters, an ellipsis where it was cut."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(width - 1, 0)] + ELLIPSIS


def evidence_text(evidence: Mapping[str, object]) -> str:
    """Return the numbers behind a finding: ``bytes = 20 MiB, storages = 1``; bytes as sizes, counts in groups."""
    return ", ".join(f"{name} = {_evident(name, value)}" for name, value in evidence.items())


def _evident(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return number_of_bytes(value) if "bytes" in name.split() else count(value)


def signed(number: int) -> str:
    """Return an integer with its sign: ``+12``, ``−11``, ``0``."""
    return f"{number:+d}".replace("-", MINUS) if number else "0"
