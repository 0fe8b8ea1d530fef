"""Small phrases that several diagnoses use: numbers, parameters, how often a thing was seen."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tensormagic.reports import Observation, ObservationKind, Operand, TraceReport
from tensormagic.words import count, plural, tidy_exponent

# Norms and code as several diagnoses write them; all other numbers are written by `tensormagic.words`.


def scientific(value: float) -> str:
    """Return a norm the way it is compared, with three significant digits: ``0.847``, ``1.58e−26``, ``3.36e28``."""
    if 1000 <= value < 1e6:
        return count(round(value))
    return tidy_exponent(f"{value:.3g}")


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


# How parameters are told of: the fewest names that say which, and over how many passes.

_NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


def passes_words(report: TraceReport) -> str:
    """Return how many passes there were, and how many of them were traced."""
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    if report.passes_traced < report.passes_seen:
        return f"the {count(report.passes_traced)} traced of {passes}"
    return passes


def shortest(missing: Sequence[str], of: Sequence[str]) -> list[str]:
    """Return the missing names, those of a module that misses all it has (two or more) as the module alone."""
    inside, missed = (Counter(module for name in names for module in _above(name)) for names in (of, missing))
    places: dict[str, None] = {}
    for name in missing:
        whole = (module for module in _above(name) if 1 < inside[module] == missed[module])
        places[next(whole, name)] = None
    return list(places)


def as_code(name: str) -> str:
    """Return a module's or parameter's name as Python takes it: ``net.layers[2].weight``."""
    return _NUMBER.sub(r"[\1]", name)


def _above(name: str) -> Iterator[str]:
    """Yield the paths of the modules that a parameter lies in, the outermost first."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


# What the rules about single calls share: how often a thing was seen, and who is who, in words.


def of_kind(report: TraceReport, kind: ObservationKind) -> Iterator[Observation]:
    """Yield what was seen of one kind, where the person's line is known: a finding without a line helps nobody."""
    return (one for one in report.observations if one.kind == kind and one.location is not None)


def every_call(one: Observation) -> bool:
    """Whether it was so in every call that was looked at."""
    return one.seen == one.looked


def times(one: Observation) -> int:
    """Return in how many calls of the line it was so; of those only counted, the same share as of the rest."""
    return one.calls if every_call(one) else round(one.calls * one.seen / one.looked)


def how_often(one: Observation) -> str:
    """Return ``"in its one call"``, ``"in each of its 6 calls"`` or ``"in 3 of the 7 calls looked at"``."""
    if not every_call(one):
        return f"in {count(one.seen)} of the {plural(one.looked, 'call')} looked at"
    if one.calls == 1:
        return "in its one call"
    return f"in both of its {one.calls} calls" if one.calls == 2 else f"in each of its {count(one.calls)} calls"


def called(operand: Operand, otherwise: str) -> str:
    """Return what the person calls an operand, or ``otherwise`` where that is not known."""
    return operand.name or otherwise


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "pow": "**"}


def expression(one: Observation) -> str:
    """Return a call of two operands as a person would write it, with the names that are known."""
    left, right = (operand.name or "…" for operand in one.operands[:2])
    sign = _OPERATORS.get(one.op)
    if left == right == "…":
        return one.op
    return f"{one.op}({left}, {right})" if sign is None else f"{_wrapped(left)} {sign} {_wrapped(right)}"


def _wrapped(name: str) -> str:
    return f"({name})" if " " in name and not name.endswith((")", "]")) else name
