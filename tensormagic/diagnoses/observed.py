"""What the rules about single calls share: how often a thing was seen, and who is who, in words."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.reports import Observation, ObservationKind, Operand, TraceReport
from tensormagic.words import count, plural


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


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "pow": "**"}


def expression(one: Observation) -> str:
    """Return a call of two operands as a person would write it, with the names that are known."""
    left, right = (operand.name or "…" for operand in one.operands[:2])
    sign = _SIGNS.get(one.op)
    if left == right == "…":
        return one.op
    return f"{one.op}({left}, {right})" if sign is None else f"{_wrapped(left)} {sign} {_wrapped(right)}"


def _wrapped(name: str) -> str:
    return f"({name})" if " " in name and not name.endswith((")", "]")) else name
