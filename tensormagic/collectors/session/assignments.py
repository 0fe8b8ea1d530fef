"""Which line gave a module its attribute, or makes a container grow: read in the source, nothing is run.

A finding about what a module holds is of most use at the line that put it there. The source is what Python itself
remembers of it; where that is gone, there is no line.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeGuard

from tensormagic.collectors.where.source import is_own_code
from tensormagic.reports import Location

CellNumber = Callable[[str], "int | None"]

_ADDING = {"append", "extend", "appendleft", "add", "insert"}
_TAKING = {"pop", "popleft", "popitem", "clear", "remove"}


def no_cell(_filename: str) -> int | None:
    """Return None: no file is a cell."""
    return None


def assigned(kind: type, attribute: str, cell_number: CellNumber = no_cell) -> list[Location]:
    """Return the lines of a class's own code that assign to an attribute: one a method, ``__init__`` first."""
    found = []
    for function in sorted(_functions(kind), key=lambda function: function.__name__ != "__init__"):
        name = next(iter(function.__code__.co_varnames), "self")
        target = re.compile(rf"\b{re.escape(name)}\.{re.escape(attribute)}\b\s*(?:[:,][^=]*)?=(?!=)")
        found.append(_first(function.__code__, target, cell_number))
    return [location for location in found if location is not None]


def tied(kind: type, first: str, second: str, cell_number: CellNumber = no_cell) -> Location | None:
    """Return the line of a class's own code that makes one attribute the other: paths inside the module."""
    either = rf"(?:{re.escape(first)}|{re.escape(second)})"
    target = re.compile(rf"\.{either}\s*=\s*\w+\.{either}\s*(?:#.*)?$")
    found = (_first(function.__code__, target, cell_number) for function in _functions(kind))
    return next((location for location in found if location is not None), None)


def _functions(kind: type) -> Iterator[FunctionType]:
    """Yield the functions that the classes of a person's own define."""
    for each in type.mro(kind):
        for value in list(vars(each).values()):
            if type(value) is FunctionType and is_own_code(value.__code__.co_filename):
                yield value


def _first(code: CodeType, target: re.Pattern[str], cell_number: CellNumber) -> Location | None:
    lines = linecache.getlines(code.co_filename)
    last = max((line for _, _, line in code.co_lines() if line), default=0)
    for line in range(code.co_firstlineno, min(last, len(lines)) + 1):
        if target.search(lines[line - 1].partition("#")[0]):
            return Location(
                code.co_filename, line, lines[line - 1].strip(), cell_number(code.co_filename), code.co_name
            )
    return None


def grown(name: str, filenames: Iterable[str], cell_number: CellNumber = no_cell) -> Location | None:
    """Return the line that puts more into what a name holds; None where several lines of one file do, or none.

    Args:
        name: ``"losses"``, ``"history['loss']"``, ``"meter.losses"``.
        filenames: Where to look, the first one that has such a line counts.
        cell_number: Gives the number of a cell.
    """
    for filename in filenames:
        lines = linecache.getlines(filename)
        every = _growing("".join(lines))
        places = sorted({line for line, target in every if _is(target, name)})
        places = places or sorted({line for line, target in every if _is_with_any_key(target, name)})
        if places:
            text = lines[places[0] - 1].strip()
            return Location(filename, places[0], text, cell_number(filename)) if len(places) == 1 else None
    return None


def bound(name: str, filenames: Iterable[str], cell_number: CellNumber = no_cell) -> Location | None:
    """Return the line that gives a name its value; None where several lines of one file do, or none.

    Args:
        name: ``"optimizer"``, ``"self.optimizer"`` in a class for ``"trainer.optimizer"``.
        filenames: Where to look, the first one that has such a line counts.
        cell_number: Gives the number of a cell.
    """
    for filename in filenames:
        lines = linecache.getlines(filename)
        places = sorted({line for line, target in _bindings("".join(lines)) if _is(target, name)})
        if places:
            text = lines[places[0] - 1].strip()
            return Location(filename, places[0], text, cell_number(filename)) if len(places) == 1 else None
    return None


@lru_cache(maxsize=128)
def _bindings(source: str) -> tuple[tuple[int, str], ...]:
    """Return the lines of a source that assign to something, and to what; none of what is no Python."""
    try:
        assignments = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assign)]
    except (SyntaxError, ValueError):
        return ()
    return tuple((node.lineno, ast.unparse(target)) for node in assignments for target in node.targets)


@lru_cache(maxsize=128)
def _growing(source: str) -> tuple[tuple[int, str], ...]:
    """Return the lines of a source that put more into something, and into what; none of what is no Python."""
    try:
        found = [(node, _target(node)) for node in ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError):
        return ()
    return tuple((node.lineno, ast.unparse(target)) for node, target in found if target is not None)  # type: ignore[attr-defined]


def _target(node: ast.AST) -> ast.expr | None:
    """Return what a statement or call puts more into: ``x.append(…)``, ``x += …``, ``x = … x …``, ``x[key] = …``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
        return node.func.value
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.target
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        return target.value
    return target if _stands_in(target, node.value) else None


def emptied(name: str, filenames: Iterable[str]) -> bool:
    """Return whether a line takes something out of what a name holds: ``x.pop()``, ``del x[0]``, ``x = x[-9:]``."""
    every = (target for filename in filenames for target in _emptying("".join(linecache.getlines(filename))))
    return any(_is(target, name) for target in every)


@lru_cache(maxsize=128)
def _emptying(source: str) -> tuple[str, ...]:
    """Return what the lines of a source take something out of; nothing of what is no Python."""
    try:
        return tuple(ast.unparse(target) for node in ast.walk(ast.parse(source)) for target in _taken(node))
    except (SyntaxError, ValueError):
        return ()


def _taken(node: ast.AST) -> list[ast.expr]:
    """Return what a statement or call takes something out of."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKING:
        return [node.func.value]
    if isinstance(node, ast.Delete):
        return [target.value for target in node.targets if isinstance(target, ast.Subscript)]
    if not isinstance(node, ast.Assign):
        return []
    sliced = [target.value for target in node.targets if _is_slice(target)]
    return sliced + [target for target in node.targets if _is_slice(node.value) and _stands_in(target, node.value)]


def _stands_in(target: ast.expr, value: ast.expr) -> bool:
    """Return whether what is assigned to is part of what is assigned."""
    own = ast.unparse(target)
    return any(isinstance(part, ast.expr) and ast.unparse(part) == own for part in ast.walk(value))


def _is_slice(node: ast.expr) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


def _is(target: str, name: str) -> bool:
    """Return whether a target in the source is a name, spelled as it is or as an object's own."""
    root, _, rest = name.partition(".")
    return target == name or (bool(rest) and root.isidentifier() and target == f"self.{rest}")


def _is_with_any_key(target: str, name: str) -> bool:
    """Return whether a target is what a name says but for the key, which is a variable there."""
    held, _, key = name.rpartition("[")
    return bool(held) and bool(key) and re.fullmatch(re.escape(held) + r"\[[A-Za-z_]\w*\]", target) is not None


def sources(namespace: Any, filename: str = "") -> tuple[str, ...]:
    """Return the files in which to look for lines: the given one, then the cells of the session, the latest first."""
    cells = [name for name in reversed(list(linecache.cache)) if name.startswith("<ipython") or "ipykernel_" in name]
    own = namespace.get("__file__") if isinstance(namespace, dict) else None
    return tuple(dict.fromkeys(name for name in (filename, own, *cells) if isinstance(name, str) and name))
