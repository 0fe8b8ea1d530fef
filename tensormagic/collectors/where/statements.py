"""The statements of a function, a cell or a module: which bound a name last, which write to it, what runs again."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any, Literal, TypeGuard

from tensormagic.collectors.where.source import (
    FRAMES,
    CellNumber,
    definition_of,
    function_of_code,
    in_file,
    own_frames,
    running_line,
    syntax_of,
    tree_of,
)
from tensormagic.reports import Location
from tensormagic.reports.failure import WriteKind

# What torch calls the operators of Python.
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul", ast.Pow: "pow",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.In: "__contains__", ast.NotIn: "__contains__",
    ast.USub: "neg", ast.Invert: "bitwise_not",
}  # fmt: skip


_GROWS = frozenset({"append", "extend", "insert"})  # methods of a list


@dataclass(slots=True)
class Scope:
    """The statements of a function, a cell or a module."""

    body: list[ast.stmt]
    decorators: list[ast.expr]
    lines: list[str]
    filename: str
    function: str
    cell: int | None  # its number
    inputs: Sequence[str] = ()  # the cells of a notebook that ran, by their number
    parameters: frozenset[str] = frozenset()  # of a function

    @classmethod
    def of(cls, source: str, frame: FrameType, cell_number: CellNumber | None) -> Scope | None:
        """Return the scope that a frame runs; None where its source is not known."""
        code, lines, tree = frame.f_code, source.splitlines(), syntax_of(source)
        cell = cell_number(code.co_filename) if cell_number is not None else None
        if not function_of_code(code.co_name):
            inputs = frame.f_globals.get("In")
            cells = inputs if type(inputs) is list and all(type(each) is str for each in inputs) else ()
            return cls(tree.body, [], lines, code.co_filename, "", cell, cells)
        node = definition_of(code, tree)
        if node is None:
            return None
        given = frozenset(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
        return cls(node.body, node.decorator_list, lines, code.co_filename, node.name, cell, (), given)

    def earlier_cells(self) -> Iterator[Scope]:
        """Yield the cells of the notebook that ran before this one, the last first, as IPython keeps them in ``In``."""
        for number in range(min(self.cell or 0, len(self.inputs)) - 1, 0, -1) if not self.function else ():
            text = self.inputs[number]
            yield Scope(syntax_of(text).body, [], text.splitlines(), "", "", number, self.inputs)

    def location(self, line: int) -> Location:
        """Return one of its lines."""
        return Location(self.filename, line, self.lines[line - 1].strip(), self.cell, self.function)

    def way(self, line: int) -> list[tuple[list[ast.stmt], int]]:
        """Return the blocks around a line, the outermost first, and which statement of each it is in."""
        found, block = [], self.body
        while block:
            at = next((at for at, each in enumerate(block) if each.lineno <= line <= (each.end_lineno or 0)), None)
            if at is None:
                break
            found.append((block, at))
            inner = (part for part in _blocks(block[at]) if part[0].lineno <= line <= (part[-1].end_lineno or 0))
            block = next(inner, [])
        return found

    def binding(self, name: str, line: int) -> ast.stmt | Literal["unknown"] | None:
        """Return the statement that last bound a name before a line ran; None where none here does."""
        every = [each for each in statements(self.body) if name in bound_by(each)]
        if not every:
            return None
        first, is_local = every[0].lineno, self.function and name not in self.parameters
        has_run = (first < line or self.in_one_loop(line, first)) and not self.is_branched(first)
        if len(every) == 1 and (has_run or is_local):  # what is local has no value from elsewhere
            return every[0]
        way = self.way(line) or [(self.body, len(self.body))]
        for depth in range(len(way) - 1, -1, -1):
            block, at = way[depth]
            for statement in reversed(block[:at]):
                within = [each for each in statements([statement]) if name in bound_by(each)]
                if within:
                    return within[-1] if _always_runs(statement, within[-1]) else "unknown"
            around = way[depth - 1][0][way[depth - 1][1]] if depth else None
            if isinstance(around, ast.For) and name in bound_by(around):
                return around
            if isinstance(around, ast.For | ast.While) and any(name in bound_by(each) for each in statements([around])):
                return "unknown"  # of this iteration or the one before
        return "unknown"

    def writes(self, name: str) -> list[tuple[str, WriteKind, int, ast.expr | None]]:
        """Return what writes to what a name stands for, in a branch too: call, kind, line, and value."""
        found: list[tuple[str, WriteKind, int, ast.expr | None]] = []
        for statement in statements(self.body):
            value: Any = getattr(statement, "value", None)
            line = statement.lineno
            if isinstance(statement, ast.AugAssign) and _is_name(statement.target, name):
                found.append((f"{OPERATORS[type(statement.op)]}_", "call", line, None))
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(each, ast.Subscript) and _is_name(each.value, name) for each in targets):
                found.append(("__setitem__", "call", line, value if isinstance(statement, ast.Assign) else None))
            for call in calls_in(statement):
                method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                is_write = method in _GROWS or (method.endswith("_") and not method.endswith("__"))
                if is_write and _is_name(call.func.value, name):
                    given = call.args[:1] if call is value else []
                    found.append((method, "call", call.lineno, given[0] if given else None))
                if any(each.arg == "out" and _is_name(each.value, name) for each in call.keywords):
                    found.append((method or getattr(call.func, "id", ""), "out", call.lineno, None))
        return found

    def around(self, line: int) -> list[ast.stmt]:
        """Return the statements that a line is in, the outermost first."""
        return [block[at] for block, at in self.way(line)]

    def is_branched(self, line: int) -> bool:
        """Return whether a line is in a branch, which may not have been taken."""
        return not all(isinstance(each, ast.With | ast.For | ast.While) for each in self.around(line)[:-1])

    def before(self, line: int) -> Iterator[ast.stmt]:
        """Yield the statements that ran before a line whenever it is come to, in order."""
        for block, at in self.way(line) or [(self.body, len(self.body))]:
            for statement in block[:at]:
                yield from (each for each in statements([statement]) if _always_runs(statement, each))

    def loops(self, line: int) -> list[ast.For | ast.While]:
        """Return the loops that a line is in, the outermost first."""
        return [each for each in self.around(line) if isinstance(each, ast.For | ast.While)]

    def in_one_loop(self, line: int, other: int) -> bool:
        """Return whether a line and another one are in one loop."""
        return any(each.lineno < other <= (each.end_lineno or 0) for each in self.loops(line))

    def used_in(self, loop: ast.For | ast.While, line: int) -> Iterator[tuple[str, ast.stmt | None]]:
        """Yield the names that a loop reads up to a line before it binds them; and the statement that does, or None."""
        stored = {name: each for each in reversed([*statements(loop.body)]) for name in bound_by(each)}
        bound: set[str] = set(bound_by(loop))
        read: dict[str, None] = {}
        for statement in statements(loop.body):
            if statement.lineno > line:
                break
            nodes = [node for node in _own_nodes(statement) if isinstance(node, ast.Name)]
            loads = isinstance(statement, ast.AugAssign)  # what it binds, too
            loaded = {node.id for node in nodes if loads or isinstance(node.ctx, ast.Load)}
            read |= dict.fromkeys(name for name in sorted(loaded) if name not in bound)
            bound |= bound_by(statement)
        yield from ((name, stored.get(name)) for name in read)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a compound statement; a function or class within is another scope."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for name in ("body", "orelse", "finalbody"):
        if part := getattr(statement, name, None):
            yield part
    parts: Iterable[Any] = (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    yield from (part.body for part in parts)


def statements(block: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements of a block in order, those inside others too."""
    for statement in block:
        yield statement
        for inner in _blocks(statement):
            yield from statements(inner)


def _always_runs(around: ast.stmt, statement: ast.stmt) -> bool:
    """Return whether a statement runs whenever the one around it does: it is that, or stands below ``with`` alone."""
    while around is not statement:
        if not isinstance(around, ast.With):
            return False
        around = next((each for each in around.body if statement in statements([each])), statement)
    return True


def bound_by(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds itself, not in the blocks below it."""
    parts: list[ast.AST] = [statement]
    if any(True for _ in _blocks(statement)) or hasattr(statement, "name"):
        parts = [getattr(statement, name) for name in ("target", "test", "iter", "subject") if hasattr(statement, name)]
        parts += getattr(statement, "items", [])
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {each.asname or each.name.split(".")[0] for each in statement.names}
    stored = (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name))
    return {node.id for node in stored if not isinstance(node.ctx, ast.Load)}


def calls_in(statement: ast.stmt, method: str = "") -> list[Any]:
    """Return the calls that a statement makes itself, not in the blocks below it; of a method, those of an object."""
    calls = [node for node in _own_nodes(statement) if isinstance(node, ast.Call)]
    return [call for call in calls if not method or getattr(call.func, "attr", "") == method]


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement runs itself: nothing of the blocks below it, nor of functions that it only makes."""
    waiting: list[ast.AST] = [statement]
    below = {id(each) for block in _blocks(statement) for each in block}
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += [each for each in ast.iter_child_nodes(node) if id(each) not in below]


def _is_name(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


# Whoever writes ``with pytest.raises(RuntimeError):`` wants the error. Whoever writes ``except`` may not know which.

_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))  # the latter since Python 3.11
_EXPECTING = frozenset({"raises", "assertRaises", "assertRaisesRegex", "suppress"})


def is_expected(frame: FrameType | None) -> bool:
    """Return whether what is raised in a frame is expected, or at least caught by no ``except`` of the user's."""
    for own in islice(own_frames(frame), FRAMES):
        tree, line = tree_of(own), running_line(own)
        catching = sorted(filter(_catches, ast.walk(tree)), key=lambda node: node.body[0].lineno, reverse=True)
        for node in catching:  # the innermost first
            first, last = node.body[0], node.body[-1]
            # Of the same function, and the line stands in the body.
            if in_file(own.f_code)[0].co_firstlineno <= first.lineno <= line <= (last.end_lineno or last.lineno):
                return isinstance(node, ast.With | ast.AsyncWith)
    return True


def _catches(node: ast.AST) -> TypeGuard[ast.With | ast.AsyncWith | ast.Try]:
    if isinstance(node, ast.With | ast.AsyncWith):
        called = (item.context_expr.func for item in node.items if isinstance(item.context_expr, ast.Call))
        return any(getattr(func, "attr", getattr(func, "id", "")) in _EXPECTING for func in called)
    return isinstance(node, _TRIES) and bool(node.handlers)
