"""Small phrases that several diagnoses use; numbers are written as the renderers write them."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

_EXPONENT = re.compile(r"e([+-])0*(\d+)$")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SIGNS = {"+": "", "-": "\u2212"}


def grouped(count: int) -> str:
    """Return a whole number, its digits in groups of three from 10 000 on."""
    return str(count) if abs(count) < 10_000 else f"{count:,}".replace(",", "\u00a0")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return ``"1 zero"``, ``"3 zeros"``, ``"12 345 zeros"``."""
    return grouped(count) + " " + (noun if count == 1 else plural or noun + "s")


def part(count: int, of: int, noun: str = "element") -> str:
    """Return ``"3 of the 320 elements"``, ``"all 15 elements"``, ``"both elements"`` or ``"the one element"``."""
    if of == 1:
        return f"the one {noun}"
    if count >= of:
        return f"both {noun}s" if of == 2 else f"all {grouped(of)} {noun}s"
    return f"{grouped(count)} of the {grouped(of)} {noun}s"


def verb(count: int) -> str:
    """Return the verb after a count: is or are."""
    return "is" if count == 1 else "are"


def listed(names: Sequence[str], at_most: int = 4) -> str:
    """Return ``"a, b and c"``, and how many more there are beyond ``at_most``."""
    shown = list(names[:at_most])
    if len(names) > at_most:
        return ", ".join(shown) + f" and {len(names) - at_most} more"
    return " and ".join(", ".join(shown).rsplit(", ", 1)) if len(shown) > 1 else "".join(shown)


def scientific(value: float) -> str:
    """Return a norm the way it is compared, with three significant digits: ``0.847``, ``1.58e−26``, ``3.36e28``."""
    if 1000 <= value < 1e6:
        return grouped(round(value))
    return _EXPONENT.sub(lambda found: f"e{_SIGNS[found[1]]}{found[2]}", f"{value:.3g}")


def size(nbytes: int) -> str:
    """Return a number of bytes: ``96 B``, ``1.5 KiB``, ``128 MiB``."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{f'{value:.1f}'.removesuffix('.0')} {_UNITS[unit]}"


def shape(sizes: Sequence[int]) -> str:
    """Return a shape as Python writes it: ``(4, 1)``, ``(4,)``, ``()``."""
    return str(tuple(sizes))


def binding(expression: str) -> str:
    """Return an expression as it is written before ``.method()``: in brackets where it would bind too loosely."""
    try:
        body = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        return f"({expression})"
    return expression if isinstance(body, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({expression})"


def rebound(expression: str, method: str) -> str:
    """Return code that calls a method: ``x = x.clone()`` of a name, ``net.weight[0].clone()`` of anything else."""
    called = f"{binding(expression)}.{method}"
    return f"{expression} = {called}" if expression.isidentifier() else called
