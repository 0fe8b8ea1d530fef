"""What operations cost: counted by call and line, and by autograd node."""

from __future__ import annotations

import os.path
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import FrameType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.geometry.parts import storages
from tensormagic.collectors.geometry.strides import Written, does_write, written_by
from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.hooks.mode_suspension import ASKING_NODES
from tensormagic.collectors.where.caller import DECORATING
from tensormagic.collectors.where.source import MARK, AskedOnce, SourceLines, function_of_code, is_own_code
from tensormagic.reports import Node
from tensormagic.reports.ops import NodeCosts, Phase

# What one ATen operation does to memory: what its schema says, read once an op, and what a call allocated.
# A schema says which outputs are views and which are the written argument itself; the rest is new, nearly always. A few
# operations return an argument's memory although their schema does not say so (``_unsafe_view``, ``native_dropout``
# outside training), so a storage is counted only where nothing else uses it, or where no argument of the call does.

NOTHING, ONE, SEVERAL = range(3)  # tensors with memory of their own that an operation returns
NEW = 2  # uses of a storage that only one tensor has, while its Python wrapper is looked at
WHOLE = " (whole)"  # ends the name of what was counted from outside only


class Row:
    """What is known of one operation at one place, named where it is no ATen overload; numbers that calls add to."""

    __slots__ = ("calls", "failed", "kind", "mutations", "name", "nbytes", "op", "seconds", "written")

    def __init__(self, op: Any, name: str = "") -> None:
        is_aten = isinstance(op, torch._ops.OpOverload)
        self.op, self.name = op, name or str(op)  # kept, so that its ``id`` stays its own
        self.written: Written = written_by(op)
        self.kind = newly_made(op) if is_aten else NOTHING if name else SEVERAL
        if self.written.when:
            self.kind = SEVERAL
        self.calls = self.failed = self.nbytes = self.mutations = 0
        self.seconds = 0.0

    @property
    def writes(self) -> int:
        """How many calls wrote to an argument."""
        if not self.written.slots:
            return 0
        return self.mutations if self.written.when else self.calls - self.failed

    def add_several(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Note a call that returns several things, or writes only sometimes; returns the bytes it allocated."""
        if self.written.when:
            self.mutations += does_write(self.written, self.op, args, kwargs)
        nbytes = new_bytes(result, (*args, *kwargs.values()))
        self.nbytes += nbytes
        return nbytes


def newly_made(op: Any) -> int:
    """Return what an operation returns that is new, as its schema says."""
    returns = op._schema.returns
    new = [each for each in returns if each.alias_info is None and "Tensor" in str(each.type)]
    if not new:
        return NOTHING
    return ONE if len(returns) == 1 and str(new[0].type) == "Tensor" else SEVERAL


def new_bytes(result: Any, given: Iterable[Any]) -> int:
    """Return the bytes of the storages that ``result`` uses and ``given`` does not, each once."""
    found = {storage._cdata: storage for tensor in tensors_in([result]) for storage in storages(tensor)}
    for tensor in tensors_in(given) if found else ():
        for storage in storages(tensor):
            found.pop(storage._cdata, None)
    return sum(storage.nbytes() for storage in found.values())


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among values, and in lists, tuples and dictionaries among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


# One walk up the stack: from where an operation was called to the user's line, the module and the phase. The dispatch
# modes that count operations and that follow their memory both take it.

_MODULE_CALL = nn.Module._call_impl.__code__
_TORCH = os.path.dirname(torch.__file__) + os.path.sep  # noqa: PTH120  (compared with file names as Python has them)
_OPTIMIZERS = (os.path.join(_TORCH, "optim", ""), os.path.join(_TORCH, "amp", "grad_scaler.py"))  # noqa: PTH118
_STEP_WRAPPER = "wrapper"  # torch's, around the ``step`` of every optimizer, the user's own ones included
_GENERATED = "torchinductor_"  # a folder of files that the compiler wrote: not the user's
_LIBRARY, _OWN, _OPTIMIZER, _MODULES = range(4)


def _kind_of(filename: str) -> int:
    if is_own_code(filename) and _GENERATED not in filename:
        return _OWN
    if filename == _MODULE_CALL.co_filename:
        return _MODULES
    return _OPTIMIZER if filename.startswith(_OPTIMIZERS) else _LIBRARY


MOST_PLACES = 20_000  # lines × modules × phases: a large model has some hundreds


class Place:
    """A line in a module, in one phase, and what was called there: ``by_op``, by the ``id`` of the operation.

    The line is None where none of the user's is running. What autograd records belongs to ``grown``, what it does not
    to the place itself: the same, where that is of the forward too.
    """

    __slots__ = ("by_op", "grown", "module", "phase", "site")

    def __init__(self, site: int | None, module: str, phase: Phase) -> None:
        self.site, self.module, self.phase, self.grown = site, module, phase, self
        self.by_op: dict[int, Row] = {}

    def add(self, op: Any, name: str = "") -> Row:
        """Return a new row for an operation that was not called here before."""
        return self.by_op.setdefault(id(op), Row(op, name))

    def add_whole(self, name: str, seconds: float) -> Row:
        """Count a call of which only the outside was seen."""
        name = sys.intern(name + WHOLE)
        row = self.by_op.get(id(name)) or self.add(name, name)
        row.calls += 1
        row.seconds += seconds
        return row


class Places:
    """Finds the user's line, the module and the phase of what a frame runs, its place; ``site_of`` it the line alone.

    Equal places share one `Place`, and what is counted there is found by the operation's ``id`` in it: no object is
    made for a call. The number of places is bounded; beyond it calls are counted at no place.
    """

    def __init__(self, sites: SourceLines, module_path: Callable[[FrameType | None], str]) -> None:
        self._sites, self._module_path, self._kinds = sites, module_path, AskedOnce(_kind_of)
        self.site_of: Callable[[FrameType | None], int | None] = sites.of_frame
        self._places: dict[tuple[int | None, str, Phase], Place] = {}
        self.overflowed = False

    def all_rows(self) -> Iterator[tuple[Place, Row]]:
        """Yield everything that was counted; safe while the run goes on."""
        for place in list(self._places.values()):
            for row in list(place.by_op.values()):
                yield place, row

    def at(self, site: int | None, module: str, phase: Phase) -> Place:
        """Return the place of that line, module and phase."""
        place = self._places.get((site, module, phase))
        if place is None:
            place = Place(site, module, phase)
            if phase == "other":
                place.grown = self.at(site, module, "forward")
            if len(self._places) < MOST_PLACES or (site is None and not module):
                self._places[site, module, phase] = place
            else:
                self.overflowed, place.by_op = True, self.at(None, "", phase).by_op
        return place

    def of(self, frame: FrameType | None) -> Place:
        """Return the place of a call that ``frame`` makes."""
        site, module, optimizes = self.walk(frame)
        return self.at(site, module, "optimizer" if optimizes else "forward" if module else "other")

    def own_site(self, frame: FrameType | None, stop: Any) -> int | None:
        """Return the site of the innermost own frame below the one that runs ``stop``; None where there is none."""
        while frame is not None and frame.f_code is not stop:
            if frame.f_code.co_name != MARK and self._kinds[frame.f_code.co_filename] == _OWN:
                return self._sites.of_frame(frame)
            frame = frame.f_back
        return None

    def walk(self, frame: FrameType | None) -> tuple[int | None, str, bool]:
        """Return the innermost own line, the innermost module, and whether an optimizer of torch's made the call."""
        site, module, optimizes, found = None, "", False, False
        kinds, places = self._kinds, self._sites.places
        while frame is not None:
            code = frame.f_code
            kind = kinds[code.co_filename]
            if not kind:  # nearly all frames: a library's
                pass
            elif code is _MODULE_CALL:
                module = module or self._path(frame)
                if found:
                    break
            elif not found:
                if kind == _OWN and code.co_name != MARK:
                    known_site = places.get((id(code), frame.f_lasti))
                    site, found = self._sites.of_frame(frame) if known_site is None else known_site[1], True
                    optimizes = not module and (optimizes or self._is_step(frame))
                    if module or not function_of_code(code.co_name):
                        break
                optimizes = optimizes or kind == _OPTIMIZER
            elif kind == _OWN and not function_of_code(code.co_name):
                break
            frame = frame.f_back
        return site, module, optimizes and not module

    def _path(self, frame: FrameType) -> str:
        try:
            return self._module_path(frame)
        except Exception:  # half made still, as a lazy one is while it makes its parameters
            return f"({type(frame.f_locals.get('self')).__name__})"

    def _is_step(self, frame: FrameType) -> bool:
        """Return whether an own frame is the ``step`` of an optimizer that the user wrote."""
        above = frame.f_back
        if above is not None and above.f_code.co_filename == DECORATING:
            above = above.f_back
        code = None if above is None else above.f_code
        return code is not None and code.co_name == _STEP_WRAPPER and self._kinds[code.co_filename] == _OPTIMIZER


# What the operations of each autograd node took. In the forward, that made it, a node is known by its sequence number,
# which is there before the operation runs: the numbers wait until a backward walks the graph. In the backward, that it
# called, the engine names the node that it works for.


class NodeCost:
    """What one node took over all passes: the backward of it, and the call that ``made`` it. Its calls have a place."""

    __slots__ = ("made_bytes", "made_seconds", "nbytes", "place", "seconds")

    def __init__(self, place: Place) -> None:
        self.seconds = self.made_seconds = 0.0
        self.nbytes, self.made_bytes, self.place = 0, 0, place


class GraphCosts:
    """The costs of the nodes of one graph, added up over its passes."""

    def __init__(self, nodes: Sequence[Node], structure: GraphStructure, places: Places) -> None:
        self._nodes, self._places, self._structure = [nodes[at] for at in structure.index], places, structure
        # The nodes that run with the mode off, since their backward asks: by place in the traversal.
        self.asking = [(place, node.name) for place, node in enumerate(self._nodes) if node.name in ASKING_NODES]
        self._site: int | None = -1  # of the last backward call; none so far
        self._forwards = self._backwards = 0
        self.by_place = [NodeCost(places.at(None, "", "backward")) for _ in self._nodes]

    def begin(self, site: int | None, made: Mapping[int, tuple[float, int]], found: Walk) -> dict[int, NodeCost]:
        """Begin a pass from a line; returns what the backward of each live node took so far, by the node's ``id``.

        ``made`` are seconds and bytes of the calls that made nodes, by sequence number.
        """
        if site != self._site:  # a node's calls are counted at its line, or that of the backward call
            self._site = site
            for cost, node in zip(self.by_place, self._nodes, strict=True):
                cost.place = self._places.at(site if node.location is None else node.location, node.module, "backward")
        known = False
        for cost, number in zip(self.by_place, found.numbers, strict=True):
            if number in made:
                seconds, nbytes = made[number]
                cost.made_seconds += seconds
                cost.made_bytes += nbytes
                known = True
        self._forwards += known
        self._backwards += 1
        return dict(zip(map(id, found.nodes), self.by_place, strict=True))

    def report(self) -> NodeCosts:
        """Return the means as plain data."""
        costs = [cost for _, cost in sorted(zip(self._structure.index, self.by_place, strict=True), key=itemgetter(0))]
        forwards, backwards = max(self._forwards, 1), max(self._backwards, 1)
        return NodeCosts(
            self._structure.number, self._forwards, self._backwards,
            array("f", [cost.made_seconds / forwards for cost in costs]),
            array("f", [cost.made_bytes / forwards for cost in costs]),
            array("f", [cost.seconds / backwards for cost in costs]),
            array("f", [cost.nbytes / backwards for cost in costs]),
        )  # fmt: skip
