"""Small phrases that several diagnoses use."""

from __future__ import annotations

from collections.abc import Sequence


def grouped(count: int) -> str:
    """Return ``"1 234"``."""
    return f"{count:,}".replace(",", "\u202f")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return ``"1 zero"``, ``"3 zeros"``, ``"1 234 zeros"``."""
    return grouped(count) + " " + (noun if count == 1 else plural or noun + "s")


def listed(names: Sequence[str], at_most: int = 4) -> str:
    """Return ``"a, b and c"``, and how many more there are beyond ``at_most``."""
    shown = list(names[:at_most])
    if len(names) > at_most:
        return ", ".join(shown) + f" and {len(names) - at_most} more"
    return " and ".join(", ".join(shown).rsplit(", ", 1)) if len(shown) > 1 else "".join(shown)


def scientific(value: float) -> str:
    """Return a norm the way it is compared: three significant digits."""
    return f"{value:.3g}"
