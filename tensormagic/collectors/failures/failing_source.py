"""Which expression of a line failed: from a traceback's entry to the piece of source that was running.

Since Python 3.11 the compiled code says from which columns each instruction comes, so that the expression alone is
parsed. Before, the package `executing` finds it; where it cannot, nothing is said but the line.
"""

from __future__ import annotations

import ast
import dis
import sys
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any

from tensormagic.collectors.failures.executed_source import executed_source
from tensormagic.collectors.where.source import lines_of

_WORD = 2  # bytes an instruction

Position = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Failing:
    """The expression or statement that failed.

    Attributes:
        node: Parsed: an expression, or an augmented assignment.
        operation: What Python was doing with it: ``"CALL"``, ``"BINARY_OP"``, ``"STORE_SUBSCR"``.
        text: As it stands in the source, on one line.
    """

    node: ast.AST
    operation: str
    text: str


def failing_at(entry: TracebackType, source: str = "") -> Failing | None:
    """Return what failed in the frame of a traceback's entry; None where that cannot be told.

    Args:
        entry: Of the traceback.
        source: The frame's source, where Python cannot know it.
    """
    code = entry.tb_frame.f_code
    place = position(entry) if sys.version_info >= (3, 11) else position_by_executing(entry)
    if place is None:
        return None
    first, last, start, stop = place
    lines = source.splitlines() or lines_of(code.co_filename, entry.tb_frame.f_globals)
    lines = lines or executed_source(entry.tb_frame).splitlines()
    if not 0 < first <= last <= len(lines):
        return None
    piece = _cut(lines[first - 1 : last], start, stop)
    node = _parsed(piece)
    if node is None:
        return None
    if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):  # in asking whether it is so
        node = node.test
        piece = ast.unparse(node)
    operation = dis.opname[code.co_code[entry.tb_lasti]]
    return Failing(node, operation, " ".join(piece.split()))


def position(entry: TracebackType) -> Position | None:
    """Return first and last line and the columns, in bytes, of what failed: compiled code says it since Python 3.11."""
    every = getattr(entry.tb_frame.f_code, "co_positions", None)
    if every is None or entry.tb_lasti < 0:
        return None
    return _whole(next(islice(every(), entry.tb_lasti // _WORD, None), (None,) * 4))


def position_by_executing(entry: TracebackType) -> Position | None:
    """Return the same by the package `executing`, which IPython brings: it compiles the source and compares."""
    try:
        from executing import Source

        node: Any = Source.executing(entry).node
        return _whole((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset))
    except Exception:  # it is not there, has no node for that instruction, or cannot read the source
        return None


def _whole(place: tuple[int | None, ...]) -> Position | None:
    first, last, start, stop = place
    if first is None or last is None or start is None or stop is None:
        return None
    return first, last, start, stop


def _cut(lines: list[str], start: int, stop: int) -> str:
    """Return the piece from column ``start`` of the first line to ``stop`` of the last one, columns in bytes."""
    raw = [line.rstrip("\n").encode() for line in lines]
    raw[-1] = raw[-1][:stop]
    raw[0] = raw[0][start:]
    return b"\n".join(raw).decode(errors="replace")


def _parsed(piece: str) -> ast.AST | None:
    for source in (f"({piece}\n)", piece):  # in brackets, as an expression may go over several lines
        try:
            (statement,) = ast.parse(source).body
        except (SyntaxError, ValueError):
            continue
        return statement.value if isinstance(statement, ast.Expr) else statement
    return None
