"""Through which name a line writes: what the person wrote on the left of ``=``, before ``.add_(…)``, or as ``out=``.

The line is read, not run. Of an expression such as ``net.weight.data[0]`` the last tensor that can be reached without
running any code is what the person wrote to: ``net.weight``.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import REGISTRIES, registered
from tensormagic.collectors.objects.namespace import is_kind


@dataclass(frozen=True, slots=True)
class Statement:
    """What a line says about writing.

    Attributes:
        written: The expressions that it writes through, in order.
        loop_names: Names that a ``for`` around the line binds.
        loop_sources: Names that those loops go over.
        swaps: Whether it assigns several subscripts at once.
        passed: Plain names that it hands to a call whose result it binds to another name, and that it does not say to
            write to: such a call is not expected to change them.
    """

    written: tuple[ast.expr, ...] = ()
    loop_names: frozenset[str] = field(default_factory=frozenset)
    loop_sources: frozenset[str] = field(default_factory=frozenset)
    swaps: bool = False
    passed: frozenset[str] = field(default_factory=frozenset)


_UNREADABLE = Statement()


@dataclass(frozen=True, slots=True)
class Through:
    """What a person wrote to.

    Attributes:
        name: As the code has it.
        tensor: The tensor of that name; lives no longer than the question.
    """

    name: str
    tensor: torch.Tensor


def statement_at(filename: str, line: int) -> Statement:
    """Return what the statement at a line writes through; nothing where the source cannot be read."""
    return _statements("".join(linecache.getlines(filename))).get(line, _UNREADABLE)


@lru_cache(maxsize=16)
def _statements(source: str) -> dict[int, Statement]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[int, Statement] = {}
    waiting: list[tuple[ast.AST, frozenset[str], frozenset[str]]] = [(tree, frozenset(), frozenset())]
    while waiting:
        node, names, sources = waiting.pop()
        if isinstance(node, ast.For | ast.AsyncFor):
            names, sources = names | _names(node.target), sources | _names(node.iter)
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            statement = Statement(tuple(_written(node)), names, sources, _swaps(node), _passed(node))
            found.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), statement))
        else:
            waiting.extend((child, names, sources) for child in ast.iter_child_nodes(node))
    return found


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(child.id for child in ast.walk(node) if isinstance(child, ast.Name))


def _swaps(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Tuple):
        return False
    targets = statement.targets[0].elts if isinstance(statement.targets[0], ast.Tuple) else []
    return sum(isinstance(target, ast.Subscript) for target in targets) > 1


def _passed(statement: ast.stmt) -> frozenset[str]:
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return frozenset()
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    if any(True for _ in _written(statement)):
        return frozenset()
    given = {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return frozenset(given) - frozenset().union(*map(_names, targets))


def _written(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.AugAssign):
        yield statement.target
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        yield from (part for part in parts if isinstance(part, ast.Subscript | ast.Attribute))
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            yield from _written_by_call(node)


def _written_by_call(call: ast.Call) -> Iterator[ast.expr]:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if "out" in named:
        yield from named["out"].elts if isinstance(named["out"], ast.Tuple) else [named["out"]]
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    in_place = name.endswith("_") and not name.endswith("__")
    if in_place and isinstance(call.func, ast.Attribute):
        yield call.func.value
    inplace = named.get("inplace")
    if call.args and (in_place or (isinstance(inplace, ast.Constant) and inplace.value)):
        yield call.args[0]


def through(statement: Statement, names: Mapping[str, Any], written: torch.Tensor) -> Through | None:
    """Return through which tensor a statement writes to ``written``; None where it does not say."""
    storage = written.untyped_storage()._cdata
    for expression in statement.written:
        found = _deepest(expression, names)
        if found is not None and found.tensor.untyped_storage()._cdata == storage:
            return found
    return None


def _deepest(expression: ast.expr, names: Mapping[str, Any]) -> Through | None:
    """Return the last tensor on the way that an expression goes, reached without running code."""
    steps = list(_way(expression))
    if not isinstance(steps[0], ast.Name):
        return None
    value: Any = names.get(steps[0].id)
    found: Through | None = None
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if is_kind(value, torch.Tensor) and value.layout == torch.strided:
            found = Through(ast.unparse(step), value)
        value = _next(value, following)
        if value is None:
            break
    return found


def _way(expression: ast.expr) -> list[ast.expr]:
    """Return an expression's own beginnings, shortest first: ``a``, ``a.b``, ``a.b[0]``."""
    steps = [expression]
    while isinstance(steps[-1], ast.Attribute | ast.Subscript | ast.Call):
        inner = steps[-1].func if isinstance(steps[-1], ast.Call) else steps[-1].value
        steps.append(inner)
    return steps[::-1]


def _next(value: Any, step: ast.expr | None) -> Any:
    if isinstance(step, ast.Attribute):
        return _attribute(value, step.attr)
    if isinstance(step, ast.Subscript) and isinstance(step.slice, ast.Constant):
        return _item(value, step.slice.value)
    return None


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute that is plainly stored; nothing is computed."""
    if is_kind(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return value.grad if name == "grad" and value.is_leaf else None
    try:
        stored = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    if name in stored:
        return stored[name]
    registries = [registered(value, each) for each in REGISTRIES] if is_kind(value, nn.Module) else []
    return next((registry[name] for registry in registries if name in registry), None)


def _item(value: Any, key: Any) -> Any:
    try:
        if is_kind(value, dict):
            return dict.get(value, key)
        if is_kind(value, list):
            return list.__getitem__(value, key)
        return tuple.__getitem__(value, key) if is_kind(value, tuple) else None
    except (IndexError, TypeError, KeyError):
        return None
