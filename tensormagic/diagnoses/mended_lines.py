"""A line of the user's as code, and the same line with one expression in it replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def tree_of(code: str) -> ast.Module | None:
    """Return code as its syntax tree; None for what is no statement by itself, or is left open for the user."""
    if not code or "…" in code or "..." in code:
        return None
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def statement_of(code: str) -> ast.stmt | None:
    """Return code as its one statement; None where it is none, or several."""
    tree = tree_of(code)
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def expressions(line: str) -> Iterator[ast.expr]:
    """Yield every expression of a line, the outer ones first."""
    tree = tree_of(line)
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.expr)) if tree is not None else ()


def spliced(line: str, node: ast.expr, code: str) -> str:
    """Return the line with other code in the place of an expression; all else stays as it is written."""
    if node.lineno != 1 or node.end_lineno != 1 or node.end_col_offset is None:
        return ""
    raw = line.encode()
    return (raw[: node.col_offset] + code.encode() + raw[node.end_col_offset :]).decode()


def only_place(line: str, code: str) -> ast.expr | None:
    """Return the one place of a line at which an expression stands; None where there is none, or several."""
    wanted = _normal(code)
    found = [node for node in expressions(line) if wanted and ast.unparse(node) == wanted]
    return found[0] if len(found) == 1 else None


def _normal(code: str) -> str:
    try:
        return ast.unparse(ast.parse(code, mode="eval"))
    except (SyntaxError, ValueError):
        return ""


def atom(node: ast.expr) -> str:
    """Return an expression so that an attribute of it can be written."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({text})"


def call_on(line: str, *names: str) -> ast.Call | None:
    """Return the one call of a line of a function or method of these names."""
    calls = [node for node in expressions(line) if isinstance(node, ast.Call) and called_function(node) in names]
    return calls[0] if len(calls) == 1 else None


def called_function(call: ast.Call) -> str:
    """Return the name of what is called, without what it is an attribute of."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
