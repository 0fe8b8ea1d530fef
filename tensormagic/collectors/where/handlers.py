"""Tells from the source whether an error that a line raises is expected, or just caught.

Whoever writes ``with pytest.raises(RuntimeError):`` wants the error. Whoever writes ``except`` may not know which.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import FrameType

from tensormagic.collectors.where.source import is_own_code

MOST_FRAMES = 12
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))  # the latter since Python 3.11
_EXPECTING = frozenset({"raises", "assertRaises", "assertRaisesRegex", "suppress"})


def is_expected(frame: FrameType | None) -> bool:
    """Return whether what is raised in a frame is expected, rather than caught by an ``except`` of the person's.

    What stands in neither is called by somebody who catches it: ``self.assertRaises(RuntimeError, y.backward)``.
    """
    looked = 0
    while frame is not None and looked < MOST_FRAMES:
        if is_own_code(frame.f_code.co_filename):
            looked += 1
            around = list(_around(frame))
            if around:
                return isinstance(around[-1], ast.With | ast.AsyncWith)
        frame = frame.f_back
    return True


def _around(frame: FrameType) -> Iterator[ast.AST]:
    """Yield what catches errors of the line that a frame runs, the outermost first."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    except (SyntaxError, ValueError):
        return
    around = [node for node in ast.walk(tree) if _catches(node) and _spans(node, frame)]
    yield from sorted(around, key=lambda node: node.body[0].lineno)  # type: ignore[attr-defined]


def _catches(node: ast.AST) -> bool:
    if isinstance(node, ast.With | ast.AsyncWith):
        calls = (item.context_expr for item in node.items)
        return any(isinstance(call, ast.Call) and _name(call.func) in _EXPECTING for call in calls)
    return isinstance(node, _TRIES) and bool(node.handlers)


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _spans(node: ast.AST, frame: FrameType) -> bool:
    """Return whether the line that a frame runs stands in the body of a statement of the same function."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    end = body[-1].end_lineno or body[-1].lineno
    return body[0].lineno <= frame.f_lineno <= end and body[0].lineno >= frame.f_code.co_firstlineno
