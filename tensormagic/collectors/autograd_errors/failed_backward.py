"""Why a backward raised, or should have: what is asked of its live nodes at its end, before they are dropped."""

from __future__ import annotations

import dis
import inspect
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import CodeType
from typing import Any

import torch

from tensormagic.collectors.autograd_errors.backward_errors import (
    Culprits,
    FreedBy,
    Names,
    Origin,
    first_write,
    return_lines,
)
from tensormagic.collectors.autograd_errors.untracked_writes import AutogradWatch
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.graphs.in_place import suspects_of
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.hooks.replacing import BackwardCall
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import Origins, sequence_number, with_causes
from tensormagic.collectors.where.source import is_own_code, names_of, own_frames
from tensormagic.collectors.where.statements import is_expected
from tensormagic.reports.failure import (
    BackwardFault,
    FailureReport,
    IgnoredGradient,
    ModifiedSavedTensor,
    OverwrittenGradient,
    SilentErrors,
    SwallowedError,
)
from tensormagic.reports.graph import Graph
from tensormagic.words import error_text

MOST_KEPT = 16  # different errors of a run, and tensors modified unseen
MOST_FRAMES = 12

Key = tuple["int | None", object, object]  # the line, the graph and the node
_MAY_READ = frozenset({"locals", "vars", "eval", "exec", "_getframe"})
_ROUNDING = 1e-3


def _sends(followed: Following, index: int) -> bool:
    """Return whether a node has sent a gradient on that is not zero, as far as its numbers are known by now."""
    structure, values = followed.graph.structure, followed.recorder.values
    for edge in (edge for edge in structure.edges if edge.source == index):
        part, at = values.parts.get((index, edge.input_number)), edge.target
        alone = at not in structure.roots and [each.source for each in structure.edges if each.target == at] == [index]
        if (part is not None and part[0] > 0) or (alone and values.norms[at] > 0):
            return True
    return False


def _unread_gradient(kind: Any) -> str:
    """Return what the backward of a user's own class calls its gradient, where its code reads none; else nothing."""
    code = getattr(inspect.unwrap(kind.backward), "__code__", None)
    if not isinstance(code, CodeType) or not is_own_code(code.co_filename):
        return ""
    rest = code.co_argcount + code.co_kwonlyargcount
    several = code.co_varnames[rest : rest + bool(code.co_flags & inspect.CO_VARARGS)]
    names = [*code.co_varnames[1 : code.co_argcount], *several]
    read = {each for one in dis.get_instructions(code) if one.opname.startswith("LOAD") or "_LOAD_" in one.opname
            for each in (one.argval if isinstance(one.argval, tuple) else (one.argval,))}  # fmt: skip
    free = read.isdisjoint(names) and set(names).isdisjoint(code.co_cellvars) and _MAY_READ.isdisjoint(code.co_names)
    return names[0] if names and free else ""


# A pass that ends well costs nothing but a look whether anything was written behind autograd's back. One that raises
# is looked into as long as its nodes live; what is kept is plain data, for the exception that ends the run.


class AutogradErrors(TracePart):
    """What went wrong in the backward passes of a run."""

    def __init__(self, trace: TraceContext) -> None:
        self._watch: AutogradWatch = trace.recorder.autograd
        self._origins: Origins = trace.recorder.origins
        self._sites = trace.sites
        self._leaves, self._namespace, self._add_gap = trace.leaves, trace.namespace, trace.add_gap
        self._blame = Culprits(self._watch.writes, self._origin, self._sites.location, self._sites.at)
        self._nobody = self._blame.names  # whose frames would be kept alive
        self._unseen: dict[tuple[int | None, int | None, str], ModifiedSavedTensor] = {}
        self._caught: dict[Key, SwallowedError] = {}
        # The last of these. No exception is kept: it is known by its address, which its text has to confirm.
        self._refused: tuple[int, str, Key, BackwardFault] | None = None
        # The custom Functions whose backward passes a gradient on and never reads the one that arrives, by their names.
        self._ignored: dict[str, IgnoredGradient] = {}
        self._overwritten: dict[str, OverwrittenGradient] = {}  # those whose backward writes into it, likewise
        self._unread: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
        self._ended_by: tuple[str, str, BackwardFault] | None = None
        self._watch.reads.leaf_name = self._name_of_leaf

    def begin_pass(self, found: Walk, followed: Following) -> None:
        """Look at what a pass that begins will find written to behind autograd's back. Never raises."""
        self._watch.pass_begins()
        try:
            unseen = [one for one in (self._watch.blind, self._watch.arrays) if one.concern(found.numbers)]
            if not unseen:
                return
            with quiet():
                followed.suspects = tuple(each for one in unseen for each in self._suspects(one, found, followed))
        except Exception as error:
            self._failed_at(error)

    def end_pass(self, found: Walk, followed: Following, call: BackwardCall, error: BaseException | None) -> None:
        """Look at why a pass raised, or should have. Never raises."""
        try:
            if error is None and not call.retains and followed.pass_context is None:  # it has freed the graph
                roots = tuple(found.numbers[place] for place in found.roots)
                self._blame.gone.append(FreedBy(found.numbers, roots, followed.site, sequence_number()))
            if error is None and followed.python_backwards is not None:
                self._look_at_functions(followed)
                if written := followed.python_backwards.written:
                    self._note_written(followed, written)
            if error is not None:
                with quiet():
                    self._blame.names = self._names(followed)
                    self._note_refused(found, followed, call.roots, error)
            else:
                reached = set(followed.recorder.values.order) if followed.suspects else ()
                for one in followed.suspects:
                    if one.node in reached and len(self._unseen) < MOST_KEPT:
                        self._unseen.setdefault((one.graph, one.node, one.slot), one)
        except Exception as failure:
            self._failed_at(failure)
        finally:
            self._blame.names = self._nobody

    def _names(self, followed: Following) -> Names:
        spaces = map(names_of, islice(own_frames(followed.caller), MOST_FRAMES))
        return Names([*spaces, self._namespace], self._leaves)

    def _failed_at(self, error: Exception) -> None:
        self._add_gap("backward", f"a backward could not be inspected: {error_text(error)}")

    def _note_refused(self, found: Walk, followed: Following, roots: tuple[Any, ...], error: BaseException) -> None:
        """Note why a pass raised, with the graph and the node that it is about, as the report numbers them."""
        structure, order = followed.graph.structure, followed.recorder.values.order
        last = order[-1] if order else -1  # the node that the engine reached last
        reached = next((place for place, index in enumerate(structure.index) if index == last), None)
        subject, known_of = self._blame.fault(error, found.nodes, found.roots, reached)
        if known_of is None:
            return
        key = followed.site, structure.number, structure.index[known_of.node]
        if subject == "freed":
            tensors = (root for root in roots if isinstance(root, torch.Tensor))
            known_of = replace(known_of, root=next(map(self._blame.names.of, tensors), ""))
        line = self._sites.location(followed.site)
        fault = BackwardFault(**{subject: replace(known_of, graph=key[1], node=key[2], backward=line)})
        self._refused = id(error), str(error), key, fault
        if (known := self._caught.get(key)) is not None:
            self._caught[key] = replace(known, count=known.count + 1)
        elif len(self._caught) < MOST_KEPT:
            self._caught[key] = SwallowedError(
                error_type=type(error).__name__, error=str(error), fault=fault, location=followed.site,
                expected=is_expected(followed.caller),
            )  # fmt: skip

    def _note_written(self, followed: Following, written: Mapping[int, int]) -> None:
        """Note custom Functions that wrote into what they were given, by their places among these; in each pass.

        What backward started from is held by who called it, and nobody goes on to use it.
        """
        graph, structure = followed.graph, followed.graph.structure
        starts = {followed.recorder.address(index) for index in structure.roots}
        for at, address in written.items():
            place = graph.python_places[at]
            node = followed.nodes[place]
            kind, index = type(node)._forward_cls, structure.index[place]
            code = getattr(inspect.unwrap(kind.backward), "__code__", None)
            if address in starts or not isinstance(code, CodeType) or not is_own_code(code.co_filename):
                continue
            if (known := self._overwritten.get(kind.__qualname__)) is not None:
                self._overwritten[kind.__qualname__] = replace(known, passes=known.passes + 1)
                continue
            name, line = first_write(code)
            self._overwritten[kind.__qualname__] = OverwrittenGradient(
                function=kind.__name__, argument=name, location=self._sites.at(code.co_filename, line, code.co_name),
                applied=self._origin(node._sequence_nr())[0], graph=structure.number, node=index,
            )  # fmt: skip

    def _look_at_functions(self, followed: Following) -> None:
        """Look at the custom Functions of a pass that has ended, each class once; at what arrives, in each pass."""
        graph, norms = followed.graph, followed.recorder.values.norms
        for place in graph.python_places:
            node = followed.nodes[place]
            kind, index = type(node)._forward_cls, graph.structure.index[place]
            if (name := self._unread.get(kind)) is None:
                name = self._unread[kind] = _unread_gradient(kind)
            if not name or not norms[index] > 0 or not _sends(followed, index):
                continue
            code, called = inspect.unwrap(kind.backward).__code__, kind.__qualname__
            if (known := self._ignored.get(called)) is None:  # once a class: the source is parsed
                known = IgnoredGradient(
                    function=kind.__name__, argument=name, applied=self._origin(node._sequence_nr())[0],
                    location=self._sites.at(code.co_filename, return_lines(code)[-1], code.co_name),
                    graph=graph.structure.number, node=index,
                )  # fmt: skip
            ones = math.sqrt(math.prod(node._input_metadata[0].shape))
            other = abs(norms[index] - ones) > _ROUNDING * ones and math.isfinite(norms[index])
            self._ignored[called] = replace(known, norm=float(norms[index])) if other and not known.norm else known

    def _suspects(self, silent: Any, found: Walk, followed: Following) -> Iterator[ModifiedSavedTensor]:
        structure, backward = followed.graph.structure, self._sites.location(followed.site)
        names = self._names(followed)
        for place, saved, records in suspects_of(silent, found.nodes, found.numbers):
            location, module = self._origin(found.numbers[place])
            yield ModifiedSavedTensor(
                op=op_name(found.nodes[place].name()), slot=saved.slot, name=names.of(saved.tensor),
                shape=tuple(saved.tensor.shape), module=module, location=location, backward=backward,
                graph=structure.number, node=structure.index[place],
                writes=self._blame.described(records), writes_seen=len(records),
            )  # fmt: skip

    def finish(self, error: BaseException | None) -> None:
        """Say that the run has ended, with an exception or without: others that backwards raised were caught."""
        for each in with_causes(error):
            if self._refused is not None and self._refused[:2] == (id(each), str(each)):
                _, text, key, fault = self._refused
                self._refused, self._ended_by = None, (type(each).__name__, text, fault)
                if (known := self._caught.pop(key, None)) is not None and known.count > 1:
                    self._caught[key] = replace(known, count=known.count - 1)

    def explained(self, failure: FailureReport | None, graphs: Sequence[Graph]) -> FailureReport | None:
        """Return the call that ended the run with why a backward raised; None where neither is known."""
        if self._ended_by is None:
            return failure
        name, text, fault = self._ended_by
        plain = FailureReport(error_type=name, error=text, phase="backward", exact=False)
        return replace(failure or plain, backward=_all_placed(fault, graphs))

    def fields(self, graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what the run has survived: the fields of a `TraceReport` that show it."""
        caught = tuple(replace(one, fault=_all_placed(one.fault, graphs)) for one in self._caught.copy().values())
        unseen = tuple(_placed(one, graphs) for one in self._unseen.copy().values())
        reads = self._watch.reads.report(self._origin, self._sites.location)
        ignored = tuple(_placed(one, graphs) for one in self._ignored.copy().values())
        overwritten = tuple(_placed(one, graphs) for one in self._overwritten.copy().values())
        found = unseen, reads, ignored, overwritten
        silent = SilentErrors(*found) if any(found) else None
        return {"swallowed_errors": caught, "silent_errors": silent}

    def _origin(self, number: int) -> Origin:
        site, module = self._origins.origin_of(number)
        return self._sites.location(site), module

    def _name_of_leaf(self, leaf: torch.Tensor) -> str:
        number = self._leaves.find(leaf)
        known = self._leaves.known[number] if number is not None else None
        return known.name if known is not None and not known.is_unnamed else ""


def _all_placed(fault: BackwardFault, graphs: Sequence[Graph]) -> BackwardFault:
    return BackwardFault(*(_placed(one, graphs) for one in (fault.modified, fault.freed, fault.returned)))


def _placed(found: Any, graphs: Sequence[Graph]) -> Any:
    """Return a fault with its graph as the report places it, rather than by its number."""
    if found is None:
        return None
    places = [at for at, graph in enumerate(graphs) if graph.number == found.graph]
    return replace(found, graph=places[0]) if places else replace(found, graph=None, node=None)
