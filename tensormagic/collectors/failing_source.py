"""Which expression of a line failed: from a traceback's entry to the piece of source that was running.

Since Python 3.11 the compiled code says from which columns each instruction comes, so that the expression alone is
parsed. Before, there are only lines: there nothing is said but the line.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sys
from dataclasses import dataclass
from itertools import islice
from types import CodeType, TracebackType

_WORD = 2  # bytes an instruction


@dataclass(frozen=True, slots=True)
class Failing:
    """The expression or statement that failed.

    Attributes:
        node: Parsed: an expression, or an augmented assignment.
        operation: What Python was doing with it: ``"CALL"``, ``"BINARY_OP"``, ``"STORE_SUBSCR"``.
        text: As it stands in the source, on one line.
        first: The line it begins on.
        columns: Where it stands on that line, as characters of the line as it is; up to the line's end where the
            expression goes on below.
    """

    node: ast.AST
    operation: str
    text: str
    first: int
    columns: tuple[int, int]


def failing_at(entry: TracebackType, source: str = "") -> Failing | None:
    """Return what failed in the frame of a traceback's entry; None where that cannot be told.

    Args:
        entry: Of the traceback.
        source: The frame's source, where Python cannot know it.
    """
    code = entry.tb_frame.f_code
    place = _position(code, entry.tb_lasti)
    if place is None:
        return None
    first, last, start, stop = place
    lines = source.splitlines() if source else linecache.getlines(code.co_filename, entry.tb_frame.f_globals)
    if not 0 < first <= last <= len(lines):
        return None
    piece = _cut(lines[first - 1 : last], start, stop)
    node = _parsed(piece)
    if node is None:
        return None
    if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):  # in asking whether it is so
        node = node.test
        piece = ast.unparse(node)
        start = max(lines[first - 1].encode().find(piece.encode(), start), start)
    line = lines[first - 1].rstrip("\n")
    begin = len(line.encode()[:start].decode(errors="ignore"))
    end = begin + len(piece.split("\n", 1)[0])
    operation = dis.opname[code.co_code[entry.tb_lasti]]
    return Failing(node, operation, " ".join(piece.split()), first, (begin, end))


def _position(code: CodeType, instruction: int) -> tuple[int, int, int, int] | None:
    """Return first and last line and the columns, in bytes, that an instruction comes from."""
    if sys.version_info < (3, 11) or instruction < 0:
        return None
    first, last, start, stop = next(islice(code.co_positions(), instruction // _WORD, None), (None,) * 4)
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
