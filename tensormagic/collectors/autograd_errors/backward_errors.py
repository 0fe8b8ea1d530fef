"""Errors of autograd, explained: those of a traced run, and those without a trace."""

from __future__ import annotations

import ast
import inspect
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import CodeType
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction, Function

from tensormagic.collectors.graphs.in_place import WriteBook, WriteRecord
from tensormagic.collectors.graphs.live_nodes import NO_NUMBER, inputs_of, walk_nodes
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.graphs.saved_tensors import is_freed, memory_of, same_start, saved_by
from tensormagic.collectors.graphs.structure import start_nodes
from tensormagic.collectors.objects.children import has_history, is_kind, is_stale, updated_by
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import definition_of, in_file, lines_of, syntax_of
from tensormagic.collectors.where.statements import Scope, bound_by, calls_in, statements
from tensormagic.reports.base import Location
from tensormagic.reports.failure import (
    BackwardFault,
    FreedGraph,
    ModifiedSavedTensor,
    ReturnProblem,
    SavedWrite,
    WriteKind,
    WrongReturn,
)

MOST_WRITES = 4  # to a saved tensor that are told, the first ones
ARRAYS = frozenset({"numpy", "asarray", "as_tensor"})  # calls after which a NumPy array shares a tensor's memory

Origin = tuple["Location | None", str]  # a line, and the path of the module that ran there


Spaces = Sequence[Mapping[str, Any]]


class Names:
    """What the user calls tensors: by names, the nearest first, as leaves that a run has met, or in named models."""

    def __init__(self, spaces: Spaces, leaves: Leaves | None = None) -> None:
        self._spaces, self._leaves = spaces, leaves

    def _named(self, kind: type) -> Iterator[tuple[str, Any]]:
        every = (pair for names in self._spaces for pair in list(names.items()))
        return ((name, value) for name, value in every if is_kind(value, kind) and not name.startswith("_"))

    def of(self, tensor: torch.Tensor) -> str:
        """Return the name of a tensor, or of another that reads the same memory in the same order; else nothing."""
        if self._leaves is None:
            models = self._named(nn.Module)
            leaves = ((f"{name}.{path}", one) for name, model in models for path, one in model.named_parameters())
        else:
            leaves = ((leaf.name, leaf.reference()) for leaf in list(self._leaves.known) if not leaf.is_unnamed)
        alike = [(name, x) for name, x in self._named(torch.Tensor) if x is tensor or same_start(x, tensor)]
        found = (
            *(name for name, x in alike if x is tensor),
            *(name for name, leaf in leaves if leaf is not None and same_start(leaf, tensor)),
            *(name for name, x in alike if x.shape == tensor.shape and x.stride() == tensor.stride()),
        )
        return next(filter(None, found), "")

    def of_maker(self, node: Any) -> str:
        """Return the name of what a node made; empty where it has none."""
        return next((name for name, x in self._named(torch.Tensor) if has_graph(x) and x.grad_fn is node), "")

    def tuples_in(self, line: str) -> tuple[str, ...]:
        """Return the names on a line that are tuples of tensors, in the order of the line."""
        words = re.findall(r"[^\W\d]\w*", line)
        known = {name: space[name] for space in reversed(self._spaces) for name in words if name in space}
        tuples = ((name, value) for name, value in known.items() if type(value) is tuple)
        return tuple(name for name, value in tuples if value and all(is_kind(one, torch.Tensor) for one in value))


def has_graph(value: Any) -> bool:
    """Return whether something is a tensor that can be asked what made it."""
    return is_kind(value, torch.Tensor) and has_history(value) and not is_stale(value)


# Of the last passes the numbers that autograd gave their nodes are kept, eight bytes a node, which the walk of a pass
# reads anyway: one that finds its graph freed can name them.
MOST_PASSES = 16
_NOBODY = Names(())


class FreedBy(NamedTuple):
    """A pass that freed the graph it went through."""

    numbers: array[int]  # sequence numbers of its nodes
    roots: tuple[int, ...]  # those of the nodes it started from
    site: int | None  # the line that called backward
    end: int  # the number that the next node would have had when it ended


@dataclass(slots=True)
class Culprits:
    """Says who wrote to a saved tensor, which of the last passes freed a graph, and who returned what does not fit."""

    writes: WriteBook | None  # what was seen being written; None where nobody looked
    origin: Callable[[int], Origin]  # of the node with a sequence number
    location: Callable[[int | None], Location | None]  # a line by its site
    locate: Callable[[str, int, str], Location]  # a line by file, number and function
    names: Names = _NOBODY  # while a backward is looked into
    gone: deque[FreedBy] = field(default_factory=partial(deque, maxlen=MOST_PASSES))

    def fault(
        self, error: BaseException, nodes: Sequence[Any], roots: Sequence[int], reached: int | None
    ) -> tuple[str, Any]:
        """Return what a backward complains of, and what is known of it; the places are those of live nodes."""
        problem, named = complaint_of(error)
        if problem == "freed":
            return problem, self.freed(nodes, roots, reached)
        if problem == "modified":
            return problem, self.modified(named, nodes, reached)
        return "returned", self.returned(problem, named, nodes, reached) if problem else None

    def modified(
        self, named: Mapping[str, Any], nodes: Sequence[Any], reached: int | None
    ) -> ModifiedSavedTensor | None:
        """Return what is known of a tensor that was changed after a node saved it: of that reached last, if it did."""
        before, now = int(named["before"]), int(named["now"])
        places = range(len(nodes)) if reached is None else (reached, *range(len(nodes)))
        every = ((place, saved) for place in places for saved in saved_by(nodes[place]))
        place, saved = next((each for each in every if each[1].versions == (before, now)), (-1, None))
        if saved is None:
            return None
        memory, number = memory_of(saved.tensor), nodes[place]._sequence_nr()
        records: list[WriteRecord] = []
        if memory is not None and self.writes is not None:
            since = self.writes.since(number, *memory)
            records = [one for one in since if not one.blind and one.version > before]
        # Others that had saved something in the same memory before the first of the writes.
        others = [node for at, node in enumerate(nodes) if at != place and not hasattr(node, "variable")]
        others = [node for node in others if not records or node._sequence_nr() < records[0].stop]
        location, module = self.origin(number)
        return ModifiedSavedTensor(
            op=op_name(nodes[place].name()), slot=saved.slot, name=self.names.of(saved.tensor),
            shape=tuple(saved.tensor.shape), module=module, location=location, node=place,
            saved_version=before, version=now, writes=self.described(records), writes_seen=len(records),
            others=sum(any(each.versions is not None and memory_of(each.tensor) == memory for each in saved_by(node))
                       for node in others) if memory is not None else 0,
        )  # fmt: skip

    def described(self, records: Sequence[WriteRecord]) -> tuple[SavedWrite, ...]:
        """Return the first writes, those of one line and call once."""
        described: dict[tuple[str, Location | None], SavedWrite] = {}
        for one in records:
            seen = one.stop != one.start
            location, module = self.origin(one.start) if seen else (self.location(one.site), "")
            write = SavedWrite(call=one.call, kind=_kind(one), location=location, module=module, version=one.version)
            described.setdefault((one.call, location), write)
        return tuple(described.values())[:MOST_WRITES]

    def freed(self, nodes: Sequence[Any], roots: Sequence[int], reached: int | None) -> FreedGraph | None:
        """Return what is known of the graph whose saved tensors were gone; None where no node of it has lost any."""
        freed = (at for at, node in enumerate(nodes) if not hasattr(node, "variable") and is_freed(node))
        place = reached if reached is not None and is_freed(nodes[reached]) else next(freed, None)
        if place is None:
            return None
        numbers = [node._sequence_nr() for node in nodes]
        location, _ = self.origin(numbers[place])
        found = FreedGraph(op=op_name(nodes[place].name()), location=location, node=place)
        gone = next((one for one in self.gone if numbers[place] in one.numbers), None)
        if gone is None:
            return found
        common = set(gone.numbers) & set(numbers) - {NO_NUMBER}
        joint = nodes[next(at for at, number in enumerate(numbers) if number in common)]
        again, _ = self.origin(joint._sequence_nr())
        newer = (self.origin(number)[0] for number in numbers if gone.end <= number < NO_NUMBER)
        return replace(
            found, known=True, whole=all(numbers[root] in gone.roots for root in roots),
            first=self.location(gone.site), joint=op_name(joint.name()), joint_name=self.names.of_maker(joint),
            joint_location=again, joint_again=again is not None and again in newer, shared=len(common),
            joint_tuples=self.names.tuples_in(again.text) if again is not None else (),
        )  # fmt: skip

    def returned(
        self, problem: Any, named: Mapping[str, Any], nodes: Sequence[Any], reached: int | None
    ) -> WrongReturn | None:
        """Return what is known of a return that autograd refuses; None where no custom Function can have made it."""
        if (place := _place(nodes, reached, named.get("node"))) is None:
            return None
        node, kind = nodes[place], type(nodes[place])._forward_cls
        try:  # the forward's arguments; those after the context, where it is given one
            arguments = tuple(inspect.signature(kind.forward).parameters)
            arguments = arguments if kind.setup_context is not Function.setup_context else arguments[1:]
        except (TypeError, ValueError, AttributeError):
            arguments = ()
        code: Any = getattr(inspect.unwrap(kind.backward), "__code__", None)
        returns = return_lines(code) if code is not None else []
        return WrongReturn(
            function=kind.__name__, problem=problem, arguments=arguments,
            argument=_argument(node, named, arguments), got=_shown(named.get("got")),
            expected=_shown(named.get("expected")), location=self.origin(node._sequence_nr())[0], node=place,
            returns=tuple(self.locate(code.co_filename, line, code.co_name) for line in returns),
        )  # fmt: skip


def _kind(record: WriteRecord) -> WriteKind:
    if record.call in ARRAYS:
        return "array"
    if record.blind:
        return "set data" if record.call == "data" else "data"
    if record.call.endswith(".step"):
        return "step"
    return "call" if record.call.endswith("_") else "out"


_NODE = r"[Ff]unction (?P<node>\S+) returned "
_INVALID = _NODE + r"an invalid gradient at index (?P<index>\d+) - "
# The words of torch's saved_variable.cpp, python_function.cpp and engine.cpp; the groups are there where they say so.
_COMPLAINTS: tuple[tuple[Literal["modified", "freed"] | ReturnProblem, str], ...] = (
    (
        "modified",
        r"modified by an inplace operation(?s:.*)is at version (?P<now>\d+); expected version (?P<before>\d+)",
    ),
    ("freed", r"Trying to backward through the graph a second time"),
    ("count", _NODE + r"an incorrect number of gradients \(expected (?P<expected>\d+), got (?P<got>\d+)\)"),
    ("not None", _NODE + r"a gradient different than None at position (?P<position>\d+), but"),
    ("shape", _INVALID + r"got (?P<got>\[.*?\]) but expected shape compatible with (?P<expected>\[.*?\])"),
    ("device", _INVALID + r"expected device (?P<expected>\S+) but got (?P<got>\S+)"),
    ("dtype", _INVALID + r"expected type (?P<expected>\S+) but got (?P<got>\S+)"),
    ("dtype", r"Expected isFloatingType\(grad\.scalar_type\(\)\) \|\| \(input_is_complex == grad_is_complex\)"),
    ("layout", _INVALID + r"expected layout (?P<expected>\S+) but got (?P<got>\S+)"),
    ("not a tensor", r"expected Variable or None \(got (?P<got>\S+?)\)"),
)


def complaint_of(error: BaseException) -> tuple[str, dict[str, Any]]:
    """Return what autograd complains of, and what it names; nothing where it is none of these."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    every = ((problem, re.search(pattern, text)) for problem, pattern in _COMPLAINTS)
    return next(((problem, found.groupdict()) for problem, found in every if found), ("", {}))


def _place(nodes: Sequence[Any], reached: int | None, name: str | None) -> int | None:
    """Return the place of the custom Function's node that the complaint is about; None where it is about another."""
    classes = {at: getattr(type(node), "_forward_cls", None) for at, node in enumerate(nodes)}
    of_torch = {at for at in classes if str(getattr(classes[at], "__module__", "torch.")).startswith("torch.")}
    custom = [at for at in classes if isinstance(nodes[at], BackwardCFunction) and at not in of_torch]
    if name is not None:
        custom = [at for at in custom if nodes[at].name() == name]
    return reached if reached in custom else custom[0] if custom and (name is not None or len(custom) == 1) else None


def _argument(node: Any, named: Mapping[str, Any], arguments: tuple[str, ...]) -> str:
    """Return whose gradient it is. Autograd's index counts tensors alone; those that need a gradient are known."""
    at = int(named.get("position") or 0) - 1
    if index := named.get("index"):
        needed = [at for at, needs in enumerate(node.needs_input_grad) if needs]
        rank = sum(target is not None for target in inputs_of(node)[: int(index) + 1]) - 1
        at = needed[rank] if 0 <= rank < len(needed) else -1
    return arguments[at] if 0 <= at < len(arguments) else ""


def _shown(text: str | None) -> str:
    """Return a shape as Python writes it, anything else as torch does."""
    return str(tuple(map(int, re.findall(r"\d+", text)))) if text and text[0] == "[" else text or ""


def return_lines(code: CodeType) -> list[int]:
    """Return the lines of the ``return`` statements in a function's source; its first line where that is not known."""
    node = definition_of(code, syntax_of("".join(lines_of(code.co_filename))))
    returns = {each.lineno for each in ast.walk(node or ast.Module([], [])) if isinstance(each, ast.Return)}
    return sorted(returns) or [in_file(code)[0].co_firstlineno]


def first_write(code: CodeType) -> tuple[str, int]:
    """Return which argument of a backward its source writes into first, and the line; no name where none is seen."""
    node = definition_of(code, syntax_of("".join(lines_of(code.co_filename))))
    given = code.co_varnames[1 : code.co_argcount]
    found = []
    every = ast.walk(node or ast.Module([], []))
    for each in (one for one in every if isinstance(one, ast.Assign | ast.AugAssign | ast.Call)):
        targets: list[Any] = []
        if isinstance(each, ast.Assign):
            targets = [target for target in each.targets if isinstance(target, ast.Subscript)]
        elif isinstance(each, ast.AugAssign):
            targets = [each.target]
        elif isinstance(each.func, ast.Attribute) and each.func.attr.endswith("_"):
            targets = [each.func.value]
        names = [next((one.id for one in ast.walk(target) if isinstance(one, ast.Name)), "") for target in targets]
        found += [(each.lineno, name) for name in names if name in given]
    line, name = min(found, default=(in_file(code)[0].co_firstlineno, ""))
    return name, line


# Of a backward that nobody had followed the graph shows which tensor was changed, and what had saved it. Who wrote to
# it, and which backward freed a graph, is read from the statements around, where they leave no doubt.
MOST_NODES = 100_000
MOST_CELLS = 32  # before the one that failed


def untraced_fault(
    error: BaseException,
    roots: Sequence[Any],
    spaces: Spaces,
    locate: Callable[[str, int, str], Location],
    around: tuple[Scope, int] | None = None,
) -> BackwardFault | None:
    """Return why a backward on ``roots`` raised; ``spaces`` hold names, ``around`` is who called it."""
    if not complaint_of(error)[0]:
        return None
    with quiet():
        starts = start_nodes(roots)
        nodes = list(walk_nodes(starts, MOST_NODES))
        source = _Source(*around, spaces) if around is not None else None
        location = source.location if source is not None else lambda _: None
        blame = Culprits(None, lambda _: (None, ""), location, locate, Names(spaces))
        if source is not None and complaint_of(error)[0] == "freed":
            blame.gone.extend(source.earlier())
        subject, fault = blame.fault(error, nodes, range(len(starts)), None)
        if fault is None:
            return None
        if source is not None and subject == "modified":
            fault = source.with_write(fault, nodes[fault.node])
        elif source is not None and subject == "freed":
            fault = source.with_line(fault) if fault.known else source.in_loop(fault, nodes)
        return BackwardFault(**{subject: fault})


@dataclass(slots=True)
class _Source:
    """The statements around the line that called backward, and the names there."""

    scope: Scope
    line: int
    spaces: Spaces
    places: list[Location] = field(default_factory=list)  # of the backwards that ran before

    def location(self, site: int | None) -> Location | None:
        """Return the line of one of them."""
        return None if site is None else self.places[site]

    def value(self, name: str) -> Any:
        """Return what a name stands for; None where it is not bound."""
        return next((space[name] for space in self.spaces if name in space), None)

    def with_write(self, modified: ModifiedSavedTensor, node: Any) -> ModifiedSavedTensor:
        """Return it, which a node had saved, with the statement that wrote to it, where only one can have."""
        if modified.name.isidentifier() and not modified.saved_version:  # nothing was written before it was saved
            found = self.scope.writes(modified.name)
        else:
            saved = [one.tensor for one in saved_by(node) if one.slot == modified.slot]
            found = [step for step in self._steps(saved) if self._between(step[2], node)]
        if len(found) != 1 or self.scope.is_branched(found[0][2]):
            return modified
        call, kind, line, _ = found[0]
        before, last = self.scope.binding(modified.name, line), self.scope.binding(modified.name, self.line)
        same = last is before or (isinstance(last, ast.AugAssign) and last.lineno == line)  # as the name stands for now
        if kind != "step" and (not same or last == "unknown" or line > self.line):
            return modified
        made = before if modified.slot in {"result", "output"} else None
        write = SavedWrite(call=call, kind=kind, location=self.scope.location(line), version=modified.version)
        saved_at = self.scope.location(made.lineno) if isinstance(made, ast.Assign) else None
        return replace(modified, writes=(write,), writes_seen=1, location=saved_at)

    def _steps(self, saved: Sequence[Any]) -> Iterator[tuple[str, Any, int, None]]:
        """Yield the steps of optimizers that hold a tensor: the call, its kind and its line."""
        for call in (call for statement in statements(self.scope.body) for call in calls_in(statement, "step")):
            owner: Any = self.value(call.func.value.id) if isinstance(call.func.value, ast.Name) else None
            held = updated_by(owner) if is_kind(owner, torch.optim.Optimizer) else ()
            if any(same_start(one, each) for one in held for each in saved):
                yield f"{type(owner).__name__}.step", "step", call.lineno, None

    def _between(self, line: int, node: Any) -> bool:
        """Return whether a line ran after the node was made and before backward was called."""
        if self.scope.in_one_loop(self.line, line) and "retain_graph=True" in self.scope.location(self.line).text:
            return True  # in the iteration before
        here = self.scope.around(self.line)[-1:]
        read = (node.id for each in here for node in ast.walk(each) if isinstance(node, ast.Name))
        made = [(name, self.scope.binding(name, self.line)) for name in read]
        before = [self.value(name) for name, by in made if isinstance(by, ast.stmt) and by.lineno < line < self.line]
        return any(each is node for each in walk_nodes(start_nodes(list(filter(has_graph, before))), MOST_NODES))

    def earlier(self) -> Iterator[FreedBy]:
        """Yield the backwards that ran before, here or in earlier cells, of what their names still stand for."""
        bound_since: set[str] = set()
        cells = islice(self.scope.earlier_cells(), MOST_CELLS)
        for scope, line in ((self.scope, self.line), *((cell, len(cell.lines) + 1) for cell in cells)):
            for statement in scope.before(line):
                for call in (*calls_in(statement, "backward"), *calls_in(statement, "grad")):
                    root = call.func.value if call.func.attr == "backward" else next(iter(call.args), None)
                    name = root.id if isinstance(root, ast.Name) else ""
                    keeps = any(each.arg in {"retain_graph", "create_graph"} for each in call.keywords)
                    same = scope.binding(name, line) == scope.binding(name, call.lineno) != "unknown"
                    if has_graph(value := self.value(name)) and same and name not in bound_since and not keeps:
                        starts = start_nodes([value])
                        numbers = array("Q", (node._sequence_nr() for node in walk_nodes(starts, MOST_NODES)))
                        self.places.append(scope.location(call.lineno))
                        yield FreedBy(numbers, tuple(node._sequence_nr() for node in starts), len(self.places) - 1, 0)
            bound_since.update(*map(bound_by, statements(scope.body)))

    def with_line(self, freed: FreedGraph) -> FreedGraph:
        """Return it with the line that made what both graphs share."""
        made = self.scope.binding(freed.joint_name, self.line) if freed.joint_name else None
        return replace(freed, joint_location=self.scope.location(made.lineno)) if isinstance(made, ast.stmt) else freed

    def in_loop(self, freed: FreedGraph, nodes: Sequence[Any]) -> FreedGraph:
        """Return it with what an earlier iteration of the loop around it handed on, or used first."""
        loops, here = self.scope.loops(self.line), self.scope.location(self.line)
        if not loops:
            return freed
        of_graph = {id(node) for node in nodes}
        known = replace(freed, known=True, first=here, backward=here)
        for name, stored in self.scope.used_in(loops[-1], self.line):
            value = self.value(name)
            made = stored or self.scope.binding(name, self.line)
            if made is None or made == "unknown" or not any(map(has_graph, _parts(value))):
                continue
            beside = [part for each in bound_by(made) for part in _parts(self.value(each))]
            graphs = [each for each in beside if has_graph(each) and id(each.grad_fn) in of_graph]
            if not any(map(is_freed, walk_nodes(start_nodes(graphs), MOST_NODES))):  # or it saves nothing
                continue
            place = self.scope.location(made.lineno)
            known = replace(known, joint_name=name, joint_location=place)
            if stored is not None:  # read before it is bound anew: of the iteration before
                return replace(known, joint_again=True, joint_tuples=(name,) if type(value) is tuple else ())
            if made.lineno < loops[-1].lineno:
                return known
        return freed


def _parts(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)
