"""How tensormagic says a number or a list: one style for every layer, from a tensor's facts to the last message.

- Counts have their digits in groups of three from 10 000 on, with no-break spaces: ``9999``, ``12 345``. Python code,
  line numbers, ids and indices are not counts and keep their digits together.
- Bytes are in binary units with at most one decimal: ``96 B``, ``1.5 KiB``, ``128 MiB``.
- Percentages have two significant digits and a space before the sign: ``4.6 %``, ``41 %``. Only nothing is ``0 %`` and
  only everything is ``100 %``: between them stand ``<0.001 %`` and ``>99.9 %``.
- Durations have the unit that keeps the number short: ``306 µs``, ``1.3 ms``, ``85 ms``, ``12.4 s``, ``3 min 20 s``.
- Lists end in "and", without a comma before it; a shortened list says how many it leaves out: ``a, b and c``,
  ``a, b, c, d and 7 more``.
- Shapes and other tuples of whole numbers are written as Python writes them: ``(4, 2)``, ``(3,)``, ``()``.
- A negative number has a true minus sign.

The viewers' JavaScript says the same in ``static/dom.js`` and ``static/trace/words.js``; tests compare them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

MINUS = "\u2212"
TIMES = "\u00d7"
NOT_EQUAL = "\u2260"
DOT = "\u00b7"
ELLIPSIS = "\u2026"
GROUP_GAP = "\u00a0"

RECEIVED = "received by the stage"  # how an input of a pipeline's stage is called

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_UNITS = ("", "k", "M", "G", "T")


def count(number: int) -> str:
    """Return a whole number: ``9999``, ``12 345``."""
    return (str(number) if abs(number) < 10_000 else f"{number:,}".replace(",", GROUP_GAP)).replace("-", MINUS)


def short_count(number: int) -> str:
    """Return a whole number in few characters: ``999``, ``33.5 M``."""
    value, unit = float(number), 0
    if number < 10_000:
        return count(number)
    while value >= 999.5 and unit < len(_DECIMAL_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_DECIMAL_UNITS[unit]}"


def plural(number: int, singular: str, plural_form: str = "") -> str:
    """Return a count of something: ``1 element``, ``3 elements``, ``2 leaves``."""
    return f"{count(number)} {singular if number == 1 else plural_form or singular + 's'}"


def worded(sentence: str, **values: object) -> str:
    """Return a sentence with its numbers and names, as the viewers' scripts fill it in (``worded`` in ``dom.js``).

    ``{pass}``, or with what is counted, ``{nodes node}``, ``{leaves leaf/leaves}``; a part in brackets is left out
    where something in it is 0, empty or not known.
    """

    def optional(part: re.Match[str]) -> str:
        return part[1] if all(map(values.get, re.findall(r"\{(\w+)", part[1]))) else ""

    def filled(place: re.Match[str]) -> str:
        value = values[place[1]]
        return plural(value, *place[2].split("/")) if place[2] and isinstance(value, int) else str(value)

    return re.sub(r"\{(\w+) ?([^}]*)\}", filled, re.sub(r"\[([^\]]*)\]", optional, sentence))


def part_of(number: int, whole: int, noun: str = "element") -> str:
    """Return ``3 of the 320 elements``, ``all 15 elements``, ``both elements`` or ``the one element``."""
    if whole == 1:
        return f"the one {noun}"
    if number >= whole:
        return f"both {noun}s" if whole == 2 else f"all {count(whole)} {noun}s"
    return f"{count(number)} of the {count(whole)} {noun}s"


def capitalised(words: str) -> str:
    """Return words with a capital letter at the beginning; the rest stays as it is."""
    return words[:1].upper() + words[1:]


def article(kind: str) -> str:
    """Return the name of a class as a sentence has it: ``an int``, ``a list``."""
    return f"an {kind}" if kind[:1] in "aeiouAEIOU" else f"a {kind}"


def is_or_are(number: int) -> str:
    """Return the verb after a count."""
    return "is" if number == 1 else "are"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th`` … ``11th``, ``12th``, ``13th``."""
    last_two = abs(number) % 100
    ending = "th" if 11 <= last_two <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(last_two % 10, "th")
    return f"{count(number)}{ending}"


def listed(words: Iterable[str], *, most: int = 4, found: int = 0, last: str = "and") -> str:
    """Return words as a list: ``a``, ``a and b``, ``a, b and c``; beyond ``most`` of them ``a, b, c, d and 7 more``.

    ``found`` is how many there are, where ``words`` are only the first of them; ``last`` is the word before the last.
    """
    every = list(words)
    shown, hidden = every[:most], max(found, len(every)) - min(most, len(every))
    *first, final = [*shown, f"{count(hidden)} more"] if hidden > 0 else shown or [""]
    return f"{', '.join(first)} {last} {final}" if first else final


def series(values: Sequence[int], *, most: int = 4) -> str:
    """Return integers as a list, its middle left out where it is long: ``0, 32, 64 … 992``."""
    if len(values) <= most:
        return ", ".join(map(str, values))
    return f"{', '.join(map(str, values[: most - 1]))} {ELLIPSIS} {values[-1]}"


def ranks_text(ranks: Iterable[int], *, most: int = 6) -> str:
    """Return ranks as stretches: ``rank 3``, ``ranks 0 and 1``, ``ranks 0 to 2 and 5``."""
    stretches: list[list[int]] = []
    for rank in sorted(ranks):
        if stretches and rank == stretches[-1][-1] + 1:
            stretches[-1] = [stretches[-1][0], rank]
        else:
            stretches.append([rank])
    parts = []
    for first, *last in stretches:
        parts += [f"{first} to {last[0]}"] if last and last[0] > first + 1 else [str(rank) for rank in (first, *last)]
    return f"{'rank' if len(parts) == 1 and parts[0].isdecimal() else 'ranks'} {listed(parts, most=most)}"


def number_of_bytes(number: int) -> str:
    """Return a size: ``96 B``, ``1.5 KiB``, ``128 MiB``; exact below one KiB."""
    value, unit = float(number), 0
    while abs(value) >= (1024 if unit == 0 else 1023.95) and unit < len(_BINARY_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{_fixed(value, 1).removesuffix('.0')} {_BINARY_UNITS[unit]}"


def percent(part: float, whole: float = 1.0) -> str:
    """Return a share as a percentage: ``0 %``, ``<0.001 %``, ``0.42 %``, ``41 %``, ``99.7 %``, ``>99.9 %``."""
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.001:
        return "<0.001 %"
    if 99.95 <= share < 100:
        return ">99.9 %"
    if share == 0:
        return "0 %"
    digits = 1 if 99 <= share < 100 else max(1 - math.floor(math.log10(abs(share))), 0)
    text = _fixed(share, digits)
    return f"{text.rstrip('0').rstrip('.')} %" if digits else f"{count(int(text.replace(MINUS, '-')))} %"


def seconds_text(seconds: float) -> str:
    """Return a duration: ``306 µs``, ``1.3 ms``, ``85 ms``, ``12.4 s``, ``3 min 20 s``."""
    if seconds == 0:
        return "0 s"
    for unit, factor in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{_fixed(seconds * factor, int(seconds * factor < 9.95 and unit != 'ns'))} {unit}"
    if seconds < 59.95:
        return f"{_fixed(seconds, 1)} s"
    minutes, rest = divmod(math.floor(seconds + 0.5), 60)
    return f"{count(minutes)} min {rest} s"


def _fixed(value: float, digits: int) -> str:
    """Return a number with so many decimals; a tie is rounded up, as JavaScript does and people expect."""
    return f"{math.copysign(math.nextafter(abs(value), math.inf), value):.{digits}f}".replace("-", MINUS)


def short_number(value: float | None) -> str:
    """Return a float with four significant digits, a true minus sign, and names for what is not a number."""
    if value is None:
        return "none"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else MINUS + "Inf"
    return tidy_exponent(f"{value:.4g}")


def tidy_exponent(text: str) -> str:
    """Return a number that Python wrote without the padding of its exponent, and with true minus signs: ``1.5e−7``."""
    tidy = re.sub(r"e([+-])0*(\d+)", lambda found: f"e{found[1].strip('+')}{found[2]}", text)
    return tidy.replace("-", MINUS)


def signed(number: int) -> str:
    """Return an integer with its sign: ``+12``, ``−11``, ``0``."""
    return f"{number:+d}".replace("-", MINUS) if number else "0"


def tuple_text(values: Sequence[object]) -> str:
    """Return numbers, or what represents them, as Python writes a tuple: ``(4, 2)``, ``(3,)``, ``()``."""
    return f"({values[0]},)" if len(values) == 1 else f"({', '.join(map(str, values))})"


def shortened(text: str, width: int, *, tail: int = 0) -> str:
    """Return ``text`` on one line and at most ``width`` characters, an ellipsis where it was cut.

    The last ``tail`` characters are kept.
    """
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(width - 1 - tail, 0)] + ELLIPSIS + line[len(line) - tail :]


def evidence_text(evidence: Mapping[str, object]) -> str:
    """Return the numbers behind a finding: ``bytes = 20 MiB, storages = 1``; bytes as sizes, counts in groups."""
    texts = []
    for name, value in evidence.items():
        text = str(value)
        if isinstance(value, int) and not isinstance(value, bool):
            text = number_of_bytes(value) if "bytes" in name.split() else count(value)
        texts.append(f"{name} = {text}")
    return ", ".join(texts).replace("`", "")


def error_text(error: BaseException) -> str:
    """Return an exception as Python's last line shows it; one whose own text cannot be had is its class alone."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  (the user's ``__str__`` raised: that is not to take the exception's place)
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


_PYTHONS = re.compile(r"no attribute|values to unpack|object is not|can only concatenate|unsupported operand")


def refused_by(function: str, message: str) -> str:
    """Return who refused a call: ``"torch"``, or ``"Python"`` where no function of torch's was called."""
    return "torch" if function or not _PYTHONS.search(message) else "Python"


def syntax(code: str, mode: str = "exec") -> Any:
    """Return the syntax tree of code; Python's own parser may fail where another thread reads code meanwhile.

    Raises:
        SyntaxError: The code is no Python. ValueError: There is a null character in it.
    """
    try:
        return ast.parse(code, mode=mode)
    except SystemError:  # all threads share its count of how deep it is (python/cpython#106905)
        return ast.parse(code, mode=mode)


_LOOSE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Lambda, ast.IfExp, ast.Tuple, ast.Await, ast.Constant)


def binding(expression: str) -> str:
    """Return an expression as it is written before ``.method()``: in brackets where it would bind too loosely."""
    try:
        body = syntax(expression, "eval").body
    except (SyntaxError, ValueError):
        return f"({expression})"
    # Whether the bracket that it begins with is closed by its last character, and not before.
    depth = list(accumulate((character == "(") - (character == ")") for character in expression))
    enclosed = expression.startswith("(") and 0 not in depth[:-1]
    return f"({expression})" if isinstance(body, _LOOSE) and not enclosed else expression
