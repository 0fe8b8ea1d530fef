"""What a write does: through which name it is made, whether it clashes with what it reads, whose elements change."""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import FrameType
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import relation
from tensormagic.collectors.aliasing.storage_aliases import OverlapCandidate
from tensormagic.collectors.geometry.layout import count_distinct, text_of
from tensormagic.collectors.geometry.overlap import Region, Touched, overlap, place_of, touched
from tensormagic.collectors.geometry.strides import Pattern, Written, is_same_place, shares_version
from tensormagic.collectors.objects.children import graph_of
from tensormagic.collectors.objects.namespace import is_kind, root_name, still_value
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import SourceLines, innermost_own, names_of, running_line, source_of, syntax_of
from tensormagic.reports import ChangedName, Clash, Write
from tensormagic.reports.writes import Extent

REPLAY_LIMIT = 2**20  # elements of what is written to; a larger write is not done again

_OPERATORS = frozenset({
    "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
    "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__",
})  # fmt: skip


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
class WriteTarget:
    """What a user wrote to."""

    name: str  # as the code has it
    tensor: torch.Tensor  # the tensor of that name; lives no longer than the question


def statement_of(frame: FrameType) -> Statement:
    """Return what the running line of a frame writes through; nothing where the source cannot be read."""
    return _statements(source_of(frame)).get(running_line(frame), Statement())


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
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    for call in calls:
        written += _written_by_call(call)
    if targets and not written:
        given = {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}
        passed = frozenset(given).difference(*map(_names, targets))
    return tuple(written), swaps, passed


def _written_by_call(call: ast.Call) -> Iterator[ast.expr]:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if "out" in named:
        yield from named["out"].elts if isinstance(named["out"], ast.Tuple) else [named["out"]]
    function = call.func
    if isinstance(function, ast.Attribute) and ast.unparse(function).startswith("torch.ops."):
        op = function.value  # of ``torch.ops.aten.add_.Tensor`` the overload says nothing
        function = op if _is_in_place(getattr(op, "attr", "")) else function
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if _is_in_place(name) and isinstance(function, ast.Attribute):
        yield function.value
    if call.args and (_is_in_place(name) or getattr(named.get("inplace"), "value", None)):
        yield from call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else [call.args[0]]


def _is_in_place(name: str) -> bool:
    """Return whether a function of this name writes to its first argument: ``add_``, ``__iadd__``, ``__setitem__``."""
    return (name.endswith("_") and not name.endswith("__")) or name in _OPERATORS


def through(frame: FrameType | None, written: torch.Tensor) -> tuple[Statement, WriteTarget | None]:
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


def _deepest(expression: ast.expr, names: Mapping[str, Any]) -> WriteTarget | None:
    """Return the last tensor on the way that an expression goes, reached without running code or making a view."""
    steps = [expression]  # its own beginnings, shortest last: ``a.b[0]``, ``a.b``, ``a``
    while isinstance(steps[-1], ast.Attribute | ast.Subscript | ast.Call):
        steps.append(steps[-1].func if isinstance(steps[-1], ast.Call) else steps[-1].value)
    found: WriteTarget | None = None
    for step in reversed(steps):
        computed = isinstance(step, ast.Subscript) and not isinstance(step.slice, ast.Constant)
        if isinstance(step, ast.Call) or computed or (found is not None and getattr(step, "attr", "") != "grad"):
            break
        value = still_value(step, names)
        if is_kind(value, torch.Tensor):
            found = WriteTarget(ast.unparse(step), value)
    return found


# Memory that one write uses twice: a target that overlaps itself, or an operand that lies in what is written to.
#
# torch refuses such a write where it can tell cheaply, and lets it through where it cannot: then the result depends
# on the order in which it visits elements. Whether that went wrong is not guessed: the op is done once more on
# separate memory, and the results are compared.
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
    operand, distinct = _clashing(written, call, target), None
    if not target.is_contiguous() and not written.same_value:
        distinct = repeats(target)
    if operand is None and distinct is None:
        return None
    with quiet():
        if distinct is not None:
            clash = Clash("overlaps itself", "", distinct, target.numel())
        elif operand is None or overlap(place_of(operand), place_of(target)) != "yes":
            return None
        else:
            read = touched(place_of(target), place_of(operand)).elements
            clash = Clash("reads what it writes", "", read, target.numel())
        return Suspicion(clash, target, None if written.random else _done_apart(written, call, target))


def repeats(x: torch.Tensor) -> int | None:
    """Return how many elements a tensor has of which two indices are the same; None where there is none such."""
    if not torch._debug_has_internal_overlap(x):
        return None
    distinct = count_distinct(Pattern.of(tuple(x.shape), x.stride(), 0))
    return distinct if distinct is not None and distinct < x.numel() else None


def _clashing(written: Written, call: Call, target: torch.Tensor) -> torch.Tensor | None:
    """Return the operand in the target's storage that is not read element by element where it is written, if any."""
    _, args, kwargs = call
    positions, names = zip(*written.slots, strict=True)
    read = [value for at, value in enumerate(args) if at not in positions]
    read += [value for name, value in kwargs.items() if name not in names]
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
    places, names = zip(*written.slots, strict=True)
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


@dataclass(slots=True)
class WriteTotal:
    """All writes of one op to one target on one line."""

    site: int | None
    written: Written
    target: str = ""
    described: bool = False
    named: bool = False  # by the line itself; else by the tensor, which may be another one the next time
    storage: int = 0
    shape: tuple[int, ...] = ()
    calls: int = 0
    replays: int = 0
    several: bool = False
    changed: dict[str, ChangedName] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    clash: Clash | None = None
    suspicion: Suspicion | None = None
    swaps: bool | None = None  # not looked up yet
    missed: bool = False  # whether it was ever not looked up although it might have changed something new
    searched: bool | None = None  # whether names were ever looked up for it; None where they need not be

    def report(self, sites: SourceLines) -> Write:
        """Return it as plain data."""
        lists = tuple(f"{name}[" for name, changed in self.changed.items() if changed.items > 1)
        shown = ((key, name) for key, name in self.changed.items() if not lists or not key.startswith(lists))
        return Write(
            location=sites.location(self.site),
            op=self.written.name,
            target=self.target,
            shape=self.shape,
            count=self.calls,
            several=self.several and not self.named,
            changed=tuple(replace(name, writes=self.counts[key], at_least=self.missed) for key, name in shown),
            clash=self.clash,
        )


# ``x[0], x[1] = x[1], x[0]`` swaps numbers of a list; of a tensor it does not: both sides are views of one memory.
#
# The right side makes two views and copies nothing; the first assignment changes what the second one then reads. Each
# op by itself is in order, so it is the line that has to be watched: what stood where it wrote first is kept until it
# ends.


class SwapWatch:
    """What the running line has overwritten so far, if it assigns several subscripts at once."""

    def __init__(self) -> None:
        self._place = (0, 0)
        self._instruction = -1
        self._before: list[tuple[Region, torch.Tensor]] = []

    def suspect(self, frame: FrameType, target: torch.Tensor, operand: torch.Tensor) -> Suspicion | None:
        """Return a suspicion where ``operand`` is what this line has written to already."""
        place = (id(frame), frame.f_lineno)
        if place != self._place or frame.f_lasti <= self._instruction:
            self._before = []
        self._place, self._instruction = place, frame.f_lasti
        if target.layout != torch.strided or target.numel() > REPLAY_LIMIT or operand.layout != torch.strided:
            return None
        with quiet():
            read = place_of(operand)
            before = next((kept for region, kept in self._before if region == read), None)
            self._before.append((place_of(target), target.detach().clone()))
            if before is None:
                return None
            expected = before.to(target.dtype).expand(target.shape)
            return Suspicion(Clash("reads what it writes", "", operand.numel(), target.numel()), target, expected)


# Writing to ``x[0]`` changes x: that is what the user wrote. So is the tensor that a loop goes over, and the one
# parameter that a module's path and a loop's name both lead to. What is left are the other names of the same memory.

_touched_by_all = lru_cache(maxsize=4096)(touched)  # a loop asks for the same regions in each of its steps


@dataclass(slots=True)
class WriteSeen:
    """One write, with those who may share what was written to."""

    total: WriteTotal  # the line and op that it belongs to
    target: torch.Tensor  # what was written to
    region: Region  # its bytes
    call: Call  # the op and its arguments
    hits: list[OverlapCandidate]  # who may share them
    mask: np.ndarray | None = None  # which elements of the target were written to, where not all were
    certain: bool = True  # whether that is known

    def reached(self, region: Region) -> Touched:
        """Return which elements of a region were written to."""
        return _touched_by_all(region, self.region) if self.mask is None else touched(region, self.region, self.mask)

    def change(self, name: str, how: str, item: Any, **more: Any) -> ChangedName:
        """Return what the write changed of a tensor or an array, which shares ``how``."""
        region = place_of(item)
        reached = self.reached(region)
        if "noticed" not in more:
            more["noticed"] = shares_version(self.target, item) if is_kind(item, torch.Tensor) else False
        return ChangedName(
            name=name, relation=how, kind=type(item).__name__, shape=region.shape, elements=reached.elements,
            of_elements=region.elements, first=reached.first, marks=reached.marks, certain=self.certain, **more,
        )  # fmt: skip


def effects(seen: WriteSeen, statement: Statement, via: WriteTarget | None) -> Iterator[ChangedName]:
    """Yield the names whose elements were changed and that the line, writing through ``via``, does not name."""
    # The written tensor itself, where a graph holds its values and autograd does not notice the write.
    own = via if via is not None and via.tensor is not seen.target and graph_of(via.tensor) is not None else None
    if own is not None and shares_version(seen.target, own.tensor) is False and _is_saved(own.tensor, seen):
        yield seen.change(own.name, "itself", own.tensor, noticed=False, saved=True)
    written = via.tensor if via is not None else written_name(seen)
    lists = _same_memory_lists(seen, via)
    for name, hits in lists.items():
        if seen.reached(hits[0].region).elements:
            yield seen.change(name, "item of a list", hits[0].item, items=len(hits))
    # Of a view without a name its base was written to; one that has a name changes its base, as any other name.
    base = seen.target._base if via is None and written is not seen.target else None
    met = {id(each) for each in (written, seen.target, base)}  # what the line writes to in so many words
    for hit in seen.hits:
        name, item = hit.storage_alias.name, hit.item
        if id(item) in met or hit.storage_alias.list_name in lists or root_name(name) in statement.loop_sources:
            continue
        met.add(id(item))
        if seen.reached(hit.region).elements == 0:
            continue
        if (known := seen.total.changed.get(name)) is not None:
            yield known
            continue
        how = relation(written, item) if is_kind(item, torch.Tensor) else "NumPy array"
        extent = _extent(place_of(written), hit.region)
        yield seen.change(name, how, item, extent=extent, saved=_is_saved(item, seen))
    yield from _second_names(seen, statement, via)


def _extent(written: Region, other: Region) -> Extent:
    """Return how much of each other two tensors read, as wholes."""
    there, back = touched(other, written).elements, touched(written, other).elements
    if there is None or back is None:
        return ""
    if there == other.elements:
        return "same" if back == written.elements else "within"
    return "around" if back == written.elements else "crosses"


def written_name(seen: WriteSeen) -> torch.Tensor:
    """Return the named tensor that was written to, where the line does not name it: torch's own code wrote."""
    target, hits = seen.target, [hit for hit in seen.hits if hit.storage_alias.storage]
    for likely in (target, target._base):
        if likely is not None and any(hit.item is likely for hit in hits):
            return likely
    same = (hit.item for hit in hits if hit.region == seen.region)
    return next(same, hits[0].item if hits else target)


def _same_memory_lists(seen: WriteSeen, via: WriteTarget | None) -> dict[str, list[OverlapCandidate]]:
    """Return the lists of which two items or more are the same memory, with those items."""
    by_list: dict[str, dict[Region, dict[str, OverlapCandidate]]] = {}
    for hit in seen.hits:
        if hit.storage_alias.list_name and not is_kind(hit.item, torch.nn.Parameter):
            item = hit.storage_alias.name.partition("]")[0]  # a tuple that holds it twice is one item
            by_list.setdefault(hit.storage_alias.list_name, {}).setdefault(hit.region, {}).setdefault(item, hit)
    root = root_name(via.name) if via is not None else ""
    largest = {name: max(groups.values(), key=len) for name, groups in by_list.items() if name != root}
    return {name: list(hits.values()) for name, hits in largest.items() if len(hits) > 1}


def _second_names(seen: WriteSeen, statement: Statement, via: WriteTarget | None) -> Iterator[ChangedName]:
    """Yield second names of the tensor that the line writes to: ``y = x; y += 1`` changes x, ``best = net`` is net.

    Names that stand beside each other count: plain ones, and the same path from two names of one object.
    """
    item = via.tensor if via is not None else written_name(seen)
    same = [hit.storage_alias for hit in seen.hits if hit.item is item]
    root = root_name(via.name if via is not None else seen.total.target)
    own = next((one for one in same if root_name(one.name) == root and (via is None or one.name == via.name)), None)
    if own is None or root in statement.loop_names or (via is None and own.name == root):
        return
    for one in same:
        path, other = own.name.removeprefix(root), root_name(one.name)
        beside = (one.scope, one.root) == (own.scope, own.root) and one.name == other + path
        if beside and other not in {root, *statement.loop_names}:
            yield seen.change(one.name, "same object", item, noticed=True)


def _is_saved(item: Any, seen: WriteSeen) -> bool:
    """Return whether something in a backward graph holds a computed tensor: it has more owners than Python."""
    if not is_kind(item, torch.Tensor) or graph_of(item) is None:
        return False
    if any(argument is item for argument in (*seen.call[1], *seen.call[2].values())):
        return False
    # Views own their base, too: those that have names are not counted, nor are the arguments of the call.
    tensors = (hit.item for hit in seen.hits if is_kind(hit.item, torch.Tensor))
    views = {id(other) for other in tensors if other._base is item}
    views |= {id(seen.target)} if seen.target._base is item else set()
    return int(item._use_count()) - 1 - len(views) > 0
