"""What an explanation consists of: the rule that was broken, and which parts of the operands break it."""

from __future__ import annotations

from collections.abc import Iterable

from tensormagic.diagnoses.mismatches.call import Given, sizes
from tensormagic.reports import Clashing, Mismatch
from tensormagic.reports.failure import MismatchKind


def size(given: Given, dimension: int, expected: object = "") -> Clashing:
    """Return a part of a mismatch: one dimension of an operand; raises IndexError where it has no such dimension."""
    got = given.shape[dimension]
    return Clashing(given.index, dimension % given.ndim, str(got), str(expected))


def whole(given: Given, got: object = "", expected: object = "") -> Clashing:
    """Return a part of a mismatch: an operand as a whole."""
    return Clashing(given.index, None, str(got), str(expected))


def dims(given: Given, expected: object) -> Clashing:
    """Return a part of a mismatch: how many dimensions an operand has."""
    return whole(given, f"{given.ndim}-D", f"{expected}-D")


def shaped(given: Given, expected: object = "") -> Clashing:
    """Return a part of a mismatch: the whole shape of an operand."""
    return whole(given, sizes(given.shape), expected)


def against(one: Given, at: int, other: Given, there: int | None = None) -> list[Clashing]:
    """Return two parts of a mismatch: one dimension of each of two operands (the same of both), which must be equal."""
    there = at if there is None else there
    return [size(one, at, other.shape[there]), size(other, there, one.shape[at])]


def unlike(one: Given, other: Given) -> list[int]:
    """Return the dimensions in which two operands of as many dimensions have other sizes."""
    return [at for at in range(one.ndim) if one.shape[at] != other.shape[at]]


def mismatch(kind: MismatchKind, rule: str, *parts: Clashing, works: Iterable[str] = ()) -> Mismatch:
    """Return a mismatch; its rule begins with a capital letter, and no way out is named twice."""
    return Mismatch(kind, rule[:1].upper() + rule[1:], parts, tuple(dict.fromkeys(filter(None, works))))
