"""What a write reached: which names see it, and whether it clashes with what it reads."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from tensormagic.collectors.aliasing.storage_aliases import place_of
from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.overlap import overlap, touched
from tensormagic.collectors.geometry.strides import Pattern, Written, is_same_place
from tensormagic.collectors.objects.namespace import UNKNOWN, is_kind, stored
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import syntax_of
from tensormagic.reports import Clash

# Through which name a line writes: what the user wrote on the left of ``=``, before ``.add_(…)``, or as ``out=``.
#
# The line is read, not run. Of an expression such as ``net.weight.data[0]`` the last tensor that can be reached
# without running any code is what the user wrote to: ``net.weight``.


@dataclass(frozen=True, slots=True)
class Statement:
    """What a line says about writing."""

    written: tuple[ast.expr, ...] = ()  # The expressions that it writes through, in order.
    loop_names: frozenset[str] = field(default_factory=frozenset)  # Names that a ``for`` around the line binds.
    loop_sources: frozenset[str] = field(default_factory=frozenset)  # Names that those loops go over.
    swaps: bool = False  # Whether it assigns several subscripts at once.
    # Plain names that it hands to a call whose result it binds to another name, and that it does not say to write to:
    # such a call is not expected to change them.
    passed: frozenset[str] = field(default_factory=frozenset)


_UNREADABLE = Statement()


@dataclass(frozen=True, slots=True)
class Through:
    """What a user wrote to."""

    name: str  # as the code has it
    tensor: torch.Tensor  # the tensor of that name; lives no longer than the question


def statement_at(filename: str, line: int) -> Statement:
    """Return what the statement at a line writes through; nothing where the source cannot be read."""
    return _statements("".join(linecache.getlines(filename))).get(line, _UNREADABLE)


@lru_cache(maxsize=16)
def _statements(source: str) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    waiting: list[tuple[ast.AST, frozenset[str], frozenset[str]]] = [(syntax_of(source), frozenset(), frozenset())]
    while waiting:
        node, names, sources = waiting.pop()
        if isinstance(node, ast.For | ast.AsyncFor):
            names, sources = names | _names(node.target), sources | _names(node.iter)
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            statement = Statement(tuple(_written(node)), names, sources, _swaps(node), _passed(node))
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found[line] = _beside(statement, found[line]) if line in found else statement
        else:
            waiting.extend((child, names, sources) for child in ast.iter_child_nodes(node))
    return found


def _beside(one: Statement, other: Statement) -> Statement:
    """Return what a line of two statements says: which of them calls what is not known."""
    return Statement(
        one.written + other.written, one.loop_names | other.loop_names, one.loop_sources | other.loop_sources,
        one.swaps or other.swaps,
    )  # fmt: skip


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
    """Return an attribute or an item that is plainly stored; nothing is computed."""
    if isinstance(step, ast.Subscript) and isinstance(step.slice, ast.Constant):
        return _item(value, step.slice.value)
    if not isinstance(step, ast.Attribute):
        return None
    if is_kind(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return value.grad if step.attr == "grad" and value.is_leaf else None
    found = stored(value, step.attr)
    return None if found is UNKNOWN else found


def _item(value: Any, key: Any) -> Any:
    try:
        if is_kind(value, dict):
            return dict.get(value, key)
        if is_kind(value, list):
            return list.__getitem__(value, key)
        return tuple.__getitem__(value, key) if is_kind(value, tuple) else None
    except (IndexError, TypeError, KeyError):
        return None


# Memory that one write uses twice: a target that overlaps itself, or an operand that lies in what is written to.
#
# torch refuses such a write where it can tell cheaply, and lets it through where it cannot: then the result depends
# on the order in which it visits elements. Whether that went wrong is not guessed: the op is done once more on
# separate memory, and the results are compared.

REPLAY_LIMIT = 2**20  # elements of what is written to; a larger write is not done again
_REFUSED = ("more than one element of the written-to tensor", "some elements of the input tensor and the written-to")


@dataclass(slots=True)
class Suspicion:
    """A write that may clash, before it was done."""

    clash: Clash  # what is known so far
    target: torch.Tensor  # what will be written to
    expected: torch.Tensor | None = None  # what the op gives on separate memory; None where that was not tried


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def suspect(written: Written, call: Call, targets: list[torch.Tensor]) -> Suspicion | None:
    """Return what may go wrong with a call that is about to be made; None, quickly, for nearly every call."""
    if not targets:  # of batch norm without running statistics, say
        return None
    target = targets[0]
    if target.layout != torch.strided or len(targets) > 2 or not target.numel():
        return None
    operand = _clashing(written, call, target)
    overlapping = not target.is_contiguous() and not written.same_value and repeats(target)
    if operand is None and not overlapping:
        return None
    with quiet():
        if overlapping:
            clash = Clash("overlaps itself", "", _distinct(target), target.numel())
        elif operand is None or overlap(place_of(operand), place_of(target)) != "yes":
            return None
        else:
            read = touched(place_of(target), place_of(operand)).elements
            clash = Clash("reads what it writes", "", read, target.numel())
        return Suspicion(clash, target, None if written.random else _done_apart(written, call, target))


def repeats(x: torch.Tensor) -> bool:
    """Return whether two indices of a tensor are the same element."""
    if not torch._debug_has_internal_overlap(x):
        return False
    distinct = _distinct(x)
    return distinct is not None and distinct < x.numel()


def _distinct(x: torch.Tensor) -> int | None:
    pattern = Pattern.of(tuple(x.shape), x.stride(), 0)
    return count_distinct(pattern) if pattern is not None else None


def _clashing(written: Written, call: Call, target: torch.Tensor) -> torch.Tensor | None:
    """Return the operand in the target's storage that is not read element by element where it is written, if any."""
    storage = target.untyped_storage()._cdata
    for operand in _operands(written, call):
        if operand.layout != torch.strided or operand.untyped_storage()._cdata != storage:
            continue
        if not (written.pointwise and is_same_place(operand, target)):
            return operand
    return None


def _operands(written: Written, call: Call) -> list[torch.Tensor]:
    _, args, kwargs = call
    positions = [position for position, _ in written.slots]
    read = args[1:] if positions == [0] else [value for at, value in enumerate(args) if at not in positions]
    if kwargs:
        names = [name for _, name in written.slots]
        read = [*read, *(value for name, value in kwargs.items() if name not in names)]
    found: list[torch.Tensor] = []
    for value in read:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, torch.Tensor)]
    return found


def _done_apart(written: Written, call: Call, target: torch.Tensor) -> torch.Tensor | None:
    """Return what the op gives when every tensor in the target's storage is a copy of its own."""
    func, args, kwargs = call
    if target.device.type != "cpu" or target.numel() > REPLAY_LIMIT:
        return None
    result = target.detach().clone(memory_format=torch.contiguous_format)
    places, names = {position for position, _ in written.slots}, {name for _, name in written.slots}
    try:
        given = [_apart(value, target, result, is_written=place in places) for place, value in enumerate(args)]
        named = {name: _apart(value, target, result, is_written=name in names) for name, value in kwargs.items()}
        func(*given, **named)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return result


def _apart(value: Any, target: torch.Tensor, result: torch.Tensor, *, is_written: bool) -> Any:
    """Replace the target by the result where the call writes to it, and by a copy of its own where it reads it."""
    if is_written and value is target:
        return result
    if type(value) in {list, tuple}:
        return type(value)(_apart(item, target, result, is_written=is_written) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    is_shared = is_written or value.untyped_storage()._cdata == target.untyped_storage()._cdata
    return value.detach().clone() if is_shared else value


def settle(suspicion: Suspicion, *, pointwise: bool) -> Clash | None:
    """Return what came of a suspicion after the write; None where the result is what it should be."""
    clash, target, expected = suspicion.clash, suspicion.target, suspicion.expected
    if expected is None:
        return clash if pointwise else None
    with quiet():
        differs = _differences(target, expected)
        wrong = int(differs.sum())
        if not wrong:
            return replace(clash, wrong=0) if pointwise and clash.kind == "reads what it writes" else None
        at = tuple(map(int, differs.nonzero()[0]))
        return replace(clash, wrong=wrong, index=at, got=_text(target[at]), expected=_text(expected[at]))


def _differences(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return where two results differ by more than rounding: another memory layout may add up in another order."""
    if not (got.is_floating_point() or got.is_complex()):
        return got != expected
    if got.is_floating_point() and got.itemsize == 1:  # float8 has no arithmetic
        got, expected = got.float(), expected.float()
    scale = expected.abs().nan_to_num(posinf=0, neginf=0).max().item()
    return ~torch.isclose(got, expected, rtol=1e-3, atol=1e-6 * scale, equal_nan=True)


def _text(element: torch.Tensor) -> str:
    value = element.item()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def refusal(error: BaseException) -> str:
    """Return what an error of torch's says a write would have done: a kind of clash, or ``""``."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    return next((kind for kind, sentence in zip(("overlaps itself", "reads what it writes"), _REFUSED, strict=True)
                 if sentence in text), "")  # fmt: skip
