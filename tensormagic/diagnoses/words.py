"""Norms and code as several diagnoses write them; all other numbers are written by `tensormagic.words`."""

from __future__ import annotations

import ast

from tensormagic.words import count, tidy_exponent


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
