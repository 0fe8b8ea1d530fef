"""What a write reached: which names see it, and whether it clashes with what it reads."""

from __future__ import annotations

import ast
import linecache
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.aliasing.storage_aliases import place_of
from tensormagic.collectors.geometry.layout import count_distinct, text_of
from tensormagic.collectors.geometry.overlap import overlap, touched
from tensormagic.collectors.geometry.strides import Pattern, Written, is_same_place
from tensormagic.collectors.objects.namespace import is_kind, still_value
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import innermost_own, names_of, syntax_of
from tensormagic.reports import Clash

# Through which name a line writes: what the user wrote on the left of ``=``, before ``.add_(…)``, or as ``out=``.
#
# The line is read, not run. Of an expression such as ``net.weight.data[0]`` the last tensor that can be reached
# without running any code is what the user wrote to: ``net.weight``.


@dataclass(frozen=True, slots=True)
class Statement:
    """What a line says about writing."""

    written: tuple[ast.expr, ...] = ()  # The expressions that it writes through, in order.
    swaps: bool = False  # Whether it assigns several subscripts at once.
    # Plain names that it hands to a call whose result it binds to another name, and that it does not say to write to:
    # such a call is not expected to change them.
    passed: frozenset[str] = frozenset()
    loop_names: frozenset[str] = frozenset()  # Names that a ``for`` around the line binds.
    loop_sources: frozenset[str] = frozenset()  # Names that those loops go over.


@dataclass(frozen=True, slots=True)
class Through:
    """What a user wrote to."""

    name: str  # as the code has it
    tensor: torch.Tensor  # the tensor of that name; lives no longer than the question


def statement_of(frame: FrameType) -> Statement:
    """Return what the running line of a frame writes through; nothing where the source cannot be read."""
    return _statements("".join(linecache.getlines(frame.f_code.co_filename))).get(frame.f_lineno, Statement())


@lru_cache(maxsize=16)
def _statements(source: str) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    waiting: list[tuple[ast.AST, frozenset[str], frozenset[str]]] = [(syntax_of(source), frozenset(), frozenset())]
    while waiting:
        node, names, sources = waiting.pop()
        if isinstance(node, ast.For | ast.AsyncFor):
            names, sources = names | _names(node.target), sources | _names(node.iter)
        if not isinstance(node, ast.stmt) or hasattr(node, "body"):
            waiting.extend((child, names, sources) for child in ast.iter_child_nodes(node))
            continue
        said = Statement(*_written(node), loop_names=names, loop_sources=sources)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            other = found.get(line)
            found[line] = said
            if other is not None:  # of two statements on a line it is not known which calls what
                written, swaps = said.written + other.written, said.swaps or other.swaps
                loops = names | other.loop_names, sources | other.loop_sources
                found[line] = Statement(written, swaps, frozenset(), *loops)
    return found


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(child.id for child in ast.walk(node) if isinstance(child, ast.Name))


def _written(statement: ast.stmt) -> tuple[tuple[ast.expr, ...], bool, frozenset[str]]:
    """Return what a statement writes through, whether it swaps, and what it passes on: as in `Statement`."""
    written: list[ast.expr] = [statement.target] if isinstance(statement, ast.AugAssign) else []
    targets, swaps, passed = list[ast.expr](), False, frozenset[str]()
    if isinstance(statement, ast.Assign):
        targets, first = statement.targets, statement.targets[0]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            written += [part for part in parts if isinstance(part, ast.Subscript | ast.Attribute)]
        if isinstance(statement.value, ast.Tuple) and isinstance(first, ast.Tuple):
            swaps = sum(isinstance(target, ast.Subscript) for target in first.elts) > 1
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    for node in ast.walk(statement):
        written += _written_by_call(node) if isinstance(node, ast.Call) else ()
    if targets and not written and (value := getattr(statement, "value", None)) is not None:
        calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
        given = {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}
        passed = frozenset(given).difference(*map(_names, targets))
    return tuple(written), swaps, passed


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


def through(frame: FrameType | None, written: torch.Tensor) -> tuple[Statement, Through | None]:
    """Return what the user's running line says of writing, and through which tensor it writes to ``written``."""
    if (own := innermost_own(frame)) is None:
        return Statement(), None
    statement, names = statement_of(own), ChainMap(names_of(own), own.f_globals)  # type: ignore[arg-type]
    storage = written.untyped_storage()._cdata if written.layout == torch.strided else None
    for expression in statement.written:
        found = _deepest(expression, names)
        if found is None:
            continue
        strided = storage is not None and found.tensor.layout == torch.strided
        if found.tensor.untyped_storage()._cdata == storage if strided else found.tensor is written:
            return statement, found
    return statement, None


def _deepest(expression: ast.expr, names: Mapping[str, Any]) -> Through | None:
    """Return the last tensor on the way that an expression goes, reached without running code or making a view."""
    steps = [expression]  # its own beginnings, shortest last: ``a.b[0]``, ``a.b``, ``a``
    while isinstance(steps[-1], ast.Attribute | ast.Subscript | ast.Call):
        steps.append(steps[-1].func if isinstance(steps[-1], ast.Call) else steps[-1].value)
    found: Through | None = None
    for step in reversed(steps):
        computed = isinstance(step, ast.Call) or (
            isinstance(step, ast.Subscript) and not isinstance(step.slice, ast.Constant)
        )
        if computed or (found is not None and not (isinstance(step, ast.Attribute) and step.attr == "grad")):
            break
        value = still_value(step, names)
        if is_kind(value, torch.Tensor):
            found = Through(ast.unparse(step), value)
    return found


# Memory that one write uses twice: a target that overlaps itself, or an operand that lies in what is written to.
#
# torch refuses such a write where it can tell cheaply, and lets it through where it cannot: then the result depends
# on the order in which it visits elements. Whether that went wrong is not guessed: the op is done once more on
# separate memory, and the results are compared.

REPLAY_LIMIT = 2**20  # elements of what is written to; a larger write is not done again
_REFUSED = {
    "more than one element of the written-to tensor": "overlaps itself",
    "some elements of the input tensor and the written-to": "reads what it writes",
}


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
    _, args, kwargs = call
    positions = [position for position, _ in written.slots]
    read = args[1:] if positions == [0] else [value for at, value in enumerate(args) if at not in positions]
    if kwargs:
        names = [name for _, name in written.slots]
        read = [*read, *(value for name, value in kwargs.items() if name not in names)]
    storage = target.untyped_storage()._cdata
    for value in read:
        for operand in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(operand, torch.Tensor) or operand.layout != torch.strided:
                continue
            aliased = operand.untyped_storage()._cdata == storage
            if aliased and not (written.pointwise and is_same_place(operand, target)):
                return operand
    return None


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
        # They differ by more than rounding: another memory layout may add up in another order.
        if not (target.is_floating_point() or target.is_complex()):
            differs = target != expected
        else:
            is_small = target.is_floating_point() and target.itemsize == 1  # float8 has no arithmetic
            there, right = (target.float(), expected.float()) if is_small else (target, expected)
            scale = right.abs().nan_to_num(posinf=0, neginf=0).max().item()
            differs = ~torch.isclose(there, right, rtol=1e-3, atol=1e-6 * scale, equal_nan=True)
        wrong = int(differs.sum())
        if not wrong:
            return replace(clash, wrong=0) if pointwise and clash.kind == "reads what it writes" else None
        at = tuple(map(int, differs.nonzero()[0]))
        got, wanted = (text_of(values[at].item()) for values in (target, expected))
        return replace(clash, wrong=wrong, index=at, got=got, expected=wanted)


def refusal(error: BaseException) -> str:
    """Return what an error of torch's says a write would have done: a kind of clash, or ``""``."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    return next((kind for sentence, kind in _REFUSED.items() if sentence in text), "")
