"""The messages of refused calls, and the parts that their sentences share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from tensormagic.diagnoses.mismatches.call import Call, Given, MissingError, Shape, numbers, sizes
from tensormagic.reports import Clashing, Mismatch
from tensormagic.reports.failure import MismatchKind

# The table of what torch says: a pattern, and the function that explains a message of this form.
#
# Such a function names in its parameters what it needs, and is asked only where all of it is there::
#
#     ``@says(r"Found parameter numbers = (\d+) and channel size = (\d+)")``
#     ``def _prelu(given: First, weight: Weight, got: str, wanted: str) -> Mismatch``
#
# - ``call: Call`` is the failed call, ``found: re.Match[str]`` what the pattern found in its message.
# - An operand has a type that says where to look for it: ``Weight`` is what torch calls ``weight``, else the second
#   argument. ``Weight | None`` is given where it is there, and not needed.
# - ``int``, ``str`` and ``Shape`` are the groups of the pattern: that of the parameter's name, else the next in order.
# - What a row of the table fixes (``says(pattern, least=2)``) fills the parameter of that name; keyword-only parameters
#   with a default are filled by rows alone.

Explain = Callable[..., Mismatch | None]
ExplainT = TypeVar("ExplainT", bound=Explain)
Finder = Callable[[Call], Any]
_READ: Mapping[Any, Callable[[str], Any]] = {int: int, str: str, Shape: numbers}


def operand(roles: str, position: int = -1) -> Finder:
    """Look for a tensor by what torch calls it (``"input|self"``), else by its place among the arguments."""
    return lambda call: call.tensor(roles, position)


def nth(number: int) -> Finder:
    """Look for a tensor by its number among the tensors."""
    return lambda call: call.tensors[number] if number < len(call.tensors) else None


def argument(role: str) -> Finder:
    """Look for an argument, tensor or not, by what torch calls it."""
    return lambda call: next((one for one in call.given if one.operand.role == role), None)


def whole_number(role: str, position: int) -> Finder:
    """Look for an argument that is a whole number."""

    def find(call: Call) -> int | None:
        text = call.value(role, position)
        return int(text) if text.lstrip("-").isdigit() else None

    return find


First = Annotated[Given, operand("input|self", 0)]
Input = Annotated[Given, operand("input", 0)]
Weight = Annotated[Given, operand("weight", 1)]
Left = Annotated[Given, nth(0)]
Right = Annotated[Given, nth(1)]
Dim = Annotated[int, whole_number("dim", 1)]
AskedDtype = Annotated[Given, argument("dtype")]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table; the pattern is compiled where it is first needed, after an error."""

    pattern: str
    explain: Explain
    fixed: Mapping[str, Any]

    def mismatch(self, call: Call) -> Mismatch | None:
        """Return what did not fit; None where torch says something else, or what is needed to tell is not there."""
        found = re.search(self.pattern, call.error, re.DOTALL)
        if found is None:
            return None
        try:
            return self.explain(**self.fixed, **dict(_filled(self, call, found)))
        except (IndexError, ZeroDivisionError, MissingError):  # also a dimension that the operand does not have
            return None


class Messages:
    """The rows of one subject, in the order in which they are held against a message."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, *patterns: str, **fixed: object) -> Callable[[ExplainT], ExplainT]:
        """Return a decorator: what it stands above explains these messages."""

        def add(explain: ExplainT) -> ExplainT:
            self.rows += [Row(pattern, explain, fixed) for pattern in patterns]
            return explain

        return add


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a handler asks for: its type, how a group of the pattern is read as one, else where to look for it."""

    kind: Any
    read: Callable[[str], Any] | None
    find: Finder | None
    needed: bool


def _filled(row: Row, call: Call, found: re.Match[str]) -> Iterator[tuple[str, Any]]:
    """Give each parameter what it asks for; raises MissingError where it is not there."""
    named = found.re.groupindex
    unnamed = (group for number, group in enumerate(found.groups(), 1) if number not in named.values())
    for name, asked in parameters(row.explain).items():
        if name in row.fixed:
            continue
        if asked.read is not None:
            yield name, asked.read((found[name] if name in named else next(unnamed)) or "")
        elif asked.find is None:
            yield name, call if asked.kind is Call else found
        else:
            value = asked.find(call)
            if value is None and asked.needed:
                raise MissingError
            yield name, value


@cache
def parameters(explain: Explain) -> Mapping[str, Parameter]:
    """Return what a function asks for; keyword-only parameters with a default are filled by rows alone."""
    left_out = {"return", *(explain.__kwdefaults__ or ())}
    hints = get_type_hints(explain, include_extras=True)
    return {name: _parameter(hint) for name, hint in hints.items() if name not in left_out}


def _parameter(hint: Any) -> Parameter:
    optional = NoneType in get_args(hint)
    kind = next(one for one in get_args(hint) if one is not NoneType) if optional else hint
    find = kind.__metadata__[0] if hasattr(kind, "__metadata__") else None
    return Parameter(kind, _READ.get(kind) if find is None else None, find, not optional)


# What an explanation consists of: the rule that was broken, and which parts of the operands break it.


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
