"""Errors of autograd, explained: those of a traced run, and those without a trace."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import re
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction, Function

from tensormagic.collectors.graphs.in_place import WriteBook, WriteRecord
from tensormagic.collectors.graphs.live_nodes import NO_NUMBER, inputs_of
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.graphs.saved_tensors import Saved, is_freed, memory_of, saved_by
from tensormagic.collectors.where.source import definition_of, syntax_of
from tensormagic.reports.base import Location
from tensormagic.reports.failure import (
    FreedGraph,
    ModifiedSavedTensor,
    ReturnProblem,
    SavedWrite,
    WriteKind,
    WrongReturn,
)

MOST_WRITES = 4  # to a saved tensor that are told, the first ones
ARRAYS = frozenset({"numpy", "asarray", "as_tensor"})  # calls after which a NumPy array shares a tensor's memory

_WAS_MODIFIED = re.compile(r"modified by an inplace operation.*is at version (\d+); expected version (\d+)", re.DOTALL)
Origin = tuple["Location | None", str]  # a line, and the path of the module that ran there


def find_modified_saved(nodes: Sequence[Any], error: BaseException, reached: int | None) -> tuple[int, Saved] | None:
    """Return the saved tensor that ``error`` is about, and the place of its node: that reached last comes first."""
    described = _WAS_MODIFIED.search(str(error))
    wanted = (int(described[2]), int(described[1])) if described else None
    for place in (*(() if reached is None else (reached,)), *range(len(nodes))):
        for saved in saved_by(nodes[place]):
            if saved.versions is not None and saved.versions == wanted:
                return place, saved
    return None


# Remembers through which nodes the last backward passes went, so that one that finds its graph freed can name them.
#
# A node is known by the number that autograd gave it: the walk of a pass reads it anyway. Of a few passes these
# numbers are kept, eight bytes a node.

MOST_PASSES = 16

_WAS_FREED = "Trying to backward through the graph a second time"


class Gone(NamedTuple):
    """A pass that freed the graph it went through."""

    numbers: array[int]  # sequence numbers of its nodes
    roots: tuple[int, ...]  # those of the nodes it started from
    site: int | None  # the line that called backward
    end: int  # the number that the next node would have had when it ended


@dataclass(slots=True)
class Blame:
    """Says who wrote to a saved tensor, and which of the last passes freed a graph."""

    writes: WriteBook | None  # what was seen being written; None where nobody looked
    origin: Callable[[int], Origin]  # of the node with a sequence number
    location: Callable[[int | None], Location | None]  # a line by its site
    name: Callable[[torch.Tensor], str]  # what the user calls a tensor; empty where it has no name
    maker_name: Callable[[Any], str]  # the same of what a node made
    gone: deque[Gone] = field(default_factory=partial(deque, maxlen=MOST_PASSES))

    def modified(self, place: int, saved: Saved, nodes: Sequence[Any]) -> ModifiedSavedTensor:
        """Return what is known of a tensor that was changed, which the node at ``place`` has saved."""
        before, now = saved.versions or (0, 0)
        memory, number = memory_of(saved.tensor), nodes[place]._sequence_nr()
        records: list[WriteRecord] = []
        if memory is not None and self.writes is not None:
            every = self.writes.since(number, *memory)
            records = [one for one in every if not one.blind and one.version > before]
        location, module = self.origin(number)
        return ModifiedSavedTensor(
            op=op_name(nodes[place].name()), slot=saved.slot, name=self.name(saved.tensor),
            shape=tuple(saved.tensor.shape), module=module, location=location, node=place,
            saved_version=before, version=now, writes=self.described(records), writes_seen=len(records),
            others=_others(nodes, place, memory, records[0].stop if records else -1),
        )  # fmt: skip

    def described(self, records: Sequence[WriteRecord]) -> tuple[SavedWrite, ...]:
        """Return the first writes, those of one line and call once."""
        described: dict[tuple[str, Location | None], SavedWrite] = {}
        for one in records:
            seen = one.stop != one.start
            location, module = self.origin(one.start) if seen else (self.location(one.site), "")
            described.setdefault((one.call, location), SavedWrite(
                call=one.call, kind=_kind(one), location=location, module=module, version=one.version,
            ))  # fmt: skip
        return tuple(described.values())[:MOST_WRITES]

    def freed(self, nodes: Sequence[Any], roots: Sequence[int], reached: int | None) -> FreedGraph | None:
        """Return what is known of the graph whose saved tensors were gone; None where none of its nodes has lost any.

        ``roots`` and ``reached``, which the engine reached last, are places of live nodes.
        """
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
            first=self.location(gone.site), joint=op_name(joint.name()), joint_name=self.maker_name(joint),
            joint_location=again, joint_again=again is not None and again in newer, shared=len(common),
        )  # fmt: skip


def _kind(record: WriteRecord) -> WriteKind:
    if record.call in ARRAYS:
        return "array"
    if record.blind:
        return "set data" if record.call == "data" else "data"
    if record.call.endswith(".step"):
        return "step"
    return "call" if record.call.endswith("_") else "out"


def _others(nodes: Sequence[Any], place: int, memory: tuple[int, int] | None, until: int) -> int:
    """Return how many other nodes had saved something in the same memory before sequence number ``until``."""
    others = (node for at, node in enumerate(nodes) if at != place and not hasattr(node, "variable"))
    before = (node for node in others if until < 0 or node._sequence_nr() < until) if memory is not None else ()
    return sum(
        any(saved.versions is not None and memory_of(saved.tensor) == memory for saved in saved_by(node))
        for node in before
    )


# Explains what autograd refuses of a custom Function's backward: which gradient, of which argument, on which line.


_NODE = r"[Ff]unction (?P<node>\S+) returned "
_INVALID = _NODE + r"an invalid gradient at index (?P<index>\d+) - "
# The words of torch's python_function.cpp and engine.cpp; the groups are there where they say so.
_RETURN_ERRORS: tuple[tuple[ReturnProblem, str], ...] = (
    ("count", _NODE + r"an incorrect number of gradients \(expected (?P<expected>\d+), got (?P<got>\d+)\)"),
    ("not None", _NODE + r"a gradient different than None at position (?P<position>\d+), but"),
    ("shape", _INVALID + r"got (?P<got>\[.*?\]) but expected shape compatible with (?P<expected>\[.*?\])"),
    ("device", _INVALID + r"expected device (?P<expected>\S+) but got (?P<got>\S+)"),
    ("dtype", _INVALID + r"expected type (?P<expected>\S+) but got (?P<got>\S+)"),
    ("dtype", r"Expected isFloatingType\(grad\.scalar_type\(\)\) \|\| \(input_is_complex == grad_is_complex\)"),
    ("layout", _INVALID + r"expected layout (?P<expected>\S+) but got (?P<got>\S+)"),
    ("not a tensor", r"expected Variable or None \(got (?P<got>\S+?)\)"),
)


def subject_of(error: BaseException) -> str:
    """Return of what autograd complains: a saved tensor that was ``"modified"``, a graph that was ``"freed"``.

    Or of what a custom Function's backward ``"returned"``; nothing where it is none of these.
    """
    text = str(error) if isinstance(error, RuntimeError) else ""
    if _WAS_MODIFIED.search(text):
        return "modified"
    return "freed" if _WAS_FREED in text else "returned" if _refused(text) else ""


def _refused(text: str) -> tuple[ReturnProblem, dict[str, str | None]] | None:
    """Return what a complaint is about, and what it names."""
    every = ((problem, re.search(pattern, text)) for problem, pattern in _RETURN_ERRORS)
    return next(((problem, found.groupdict()) for problem, found in every if found), None)


def custom_function_return(
    error: BaseException,
    nodes: Sequence[Any],
    reached: int | None,
    location: Callable[[int], Location | None],
    locate: Callable[[str, int, str], Location],
) -> WrongReturn | None:
    """Return what is known of a return that autograd refuses; None where no custom Function can have made it.

    ``reached`` is the place of the node that the engine reached last, where that is known; ``location`` gives the line
    of the node with a sequence number, ``locate`` that of a file name, a line and the name of a function.
    """
    found = _refused(str(error))
    place = _place(nodes, reached, found[1].get("node") if found else None)
    if found is None or place is None:
        return None
    (problem, groups), kind = found, type(nodes[place])._forward_cls
    try:  # the forward's arguments; those after the context, where it is given one
        arguments = tuple(inspect.signature(kind.forward).parameters)
        arguments = arguments if kind.setup_context is not Function.setup_context else arguments[1:]
    except (TypeError, ValueError, AttributeError):
        arguments = ()
    return WrongReturn(
        function=kind.__name__, problem=problem, arguments=arguments,
        argument=_argument(nodes[place], groups, arguments), got=_shown(groups.get("got")),
        expected=_shown(groups.get("expected")), location=location(nodes[place]._sequence_nr()), node=place,
        returns=tuple(locate(*line) for line in _returns(kind, problem, groups.get("got"))),
    )  # fmt: skip


def _place(nodes: Sequence[Any], reached: int | None, name: str | None) -> int | None:
    """Return the place of the custom Function's node that the complaint is about; None where it is about another."""
    places = range(len(nodes)) if reached is None else (reached, *range(len(nodes)))
    classes = {at: getattr(type(nodes[at]), "_forward_cls", None) for at in places}
    of_torch = {at for at in classes if str(getattr(classes[at], "__module__", "torch.")).startswith("torch.")}
    custom = [at for at in classes if isinstance(nodes[at], BackwardCFunction) and at not in of_torch]
    if name is None:
        return custom[0] if custom and (reached == custom[0] or len(custom) == 1) else None
    return next((at for at in custom if nodes[at].name() == name), None)


def _argument(node: Any, groups: dict[str, str | None], arguments: tuple[str, ...]) -> str:
    """Return whose gradient it is. Autograd's index counts tensors alone; those that need a gradient are known."""
    if position := groups.get("position"):
        at = int(position) - 1
    elif index := groups.get("index"):
        needed = [at for at, needs in enumerate(node.needs_input_grad) if needs]
        rank = sum(target is not None for target in inputs_of(node)[: int(index) + 1]) - 1
        at = needed[rank] if 0 <= rank < len(needed) else -1
    else:
        return ""
    return arguments[at] if 0 <= at < len(arguments) else ""


def _shown(text: str | None) -> str:
    """Return a shape as Python writes it, anything else as torch does."""
    if not text or not text.startswith("["):
        return text or ""
    sizes = text.strip("[]").replace(" ", "").split(",")
    return f"({sizes[0]},)" if len(sizes) == 1 and sizes[0] else f"({', '.join(sizes)})"


def _returns(kind: Any, problem: str, got: str | None) -> list[tuple[str, int, str]]:
    """Return file, line and function of where the backward returns; those that return so many, where that is known."""
    code = getattr(inspect.unwrap(kind.backward), "__code__", None)
    if not isinstance(code, CodeType):
        return []
    counts: dict[int, int] = {}  # line of a ``return`` → how many values it names
    for node in (_return_statements(code) or ()) if problem == "count" and got else ():
        if node.value is not None:
            counts[node.lineno] = len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1
    lines = return_lines(code)
    chosen = [line for line in lines if str(counts.get(line)) == got] or lines
    return [(code.co_filename, line, code.co_name) for line in chosen]


def return_lines(code: CodeType) -> list[int]:
    """Return the lines of the ``return`` statements in a function's source; without it, those of its instructions."""
    if (statements := _return_statements(code)) is not None:
        return sorted({node.lineno for node in statements})
    line, found = code.co_firstlineno, set()
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line if type(instruction.starts_line) is int else line
        if instruction.opname == "RETURN_VALUE":
            found.add(line)
    return sorted(found)


def _return_statements(code: CodeType) -> list[ast.Return] | None:
    """Return the ``return`` statements inside a function; None where its source cannot be read."""
    node = definition_of(code, syntax_of("".join(linecache.getlines(code.co_filename))))
    return None if node is None else [each for each in ast.walk(node) if isinstance(each, ast.Return)]
