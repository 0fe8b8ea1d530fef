"""Every place of a run where a gradient is cut off, and the losses that have no graph."""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.detachment.detached_values import DetachedValues
from tensormagic.collectors.detachment.detachment_facts import (
    DetachedLeaves,
    Detachment,
    Missed,
    Receiver,
    dtype_of,
    left_out,
    shape_of,
)
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.objects.namespace import modules_in
from tensormagic.collectors.where.caller import Origins
from tensormagic.collectors.where.source import known_lines, name_in, names_of, own_frames
from tensormagic.collectors.where.statements import is_expected
from tensormagic.reports import Gap, Graph
from tensormagic.reports.failure import LossWithoutGraph, ModelInScope
from tensormagic.reports.graph import Cut
from tensormagic.words import error_text

# Looks at a value without a history that backward is about to be called on; torch will refuse, and not say why. It may
# take its time, and looks at the names of the user's functions that are running.

MOST_KINDS = 16  # different ones kept of one run
MOST_FRAMES, MOST_MODELS = 8, 8


def look_at(root: torch.Tensor, caller: FrameType | None, site: int | None) -> LossWithoutGraph:
    """Return what is to be said of a value without a history, and of the code that called backward on it."""
    with torch._C.DisableTorchFunction():
        frames: list[FrameType] = []
        for own in islice(own_frames(caller), MOST_FRAMES):
            frames.append(own)
            if not own.f_code.co_flags & inspect.CO_OPTIMIZED:
                break  # the cell or the module; what runs it is another matter
        return LossWithoutGraph(
            name=name_in(frames[0], root) if frames else "", location=site, shape=shape_of(root), dtype=dtype_of(root),
            grad_enabled=torch.is_grad_enabled(), inference=root.is_inference(), models=_models(frames),
            expected=is_expected(caller),
        )  # fmt: skip


def _models(frames: list[FrameType]) -> tuple[ModelInScope, ...]:
    """Return the models that the innermost function names that names any, each once.

    Of the names of a module or a notebook only those count that the running code mentions: the model of an earlier cell
    has nothing to do with it.
    """
    words: dict[str, None] = {}  # in order: of a function its own, of a cell or a module all it has
    for frame in frames:
        code = frame.f_code
        words |= dict.fromkeys(code.co_names)
        if not code.co_flags & inspect.CO_OPTIMIZED:
            words |= dict.fromkeys(re.findall(r"[^\W\d]\w*", "".join(known_lines(code.co_filename))))
    outside = [{name: frame.f_globals[name] for name in words if name in frame.f_globals} for frame in frames[-1:]]
    inside = [names_of(frame) for frame in frames if frame.f_code.co_flags & inspect.CO_OPTIMIZED]
    for space in (*inside, *outside):
        flags = {name: [each.requires_grad for each in module.parameters()] for name, module in modules_in(dict(space))}
        found = [ModelInScope(name=name, parameters=len(f), frozen=f.count(False)) for name, f in flags.items() if f]
        if found:
            return tuple(found[:MOST_MODELS])
    return ()


# Says between which nodes of which graph the ways ended that `detached_values` followed, and counts them over the run.
#
# While the forward runs, nodes are known by their sequence numbers alone. When a backward walks the graph, these
# become indices. Most cuts are settled then; one whose value was made after the backward (a hidden state that the
# next step starts from), or whose origin only another graph has, waits for one more pass.

_BOUND = re.compile(r"(\w+) *[-+*/]?=(?!=)")  # the name that a line gives a value
JOINING = frozenset({"add", "sub", "rsub"})
MOST_CUTS = 256  # different cuts kept over the whole run
NO_GRAPH = 0
PASSES_WAITED = 2  # passes that a cut waits for its nodes


# Graph, kind, op, site, source, whether it is of an earlier pass, target, its input, whether it only chose elements.
_Key = tuple[Any, ...]


@dataclass(slots=True)
class _Known:
    """A cut as it was first seen, and how often."""

    graph: int
    cut: Cut
    detached_leaves: DetachedLeaves
    quiet: bool
    outside: bool
    count: int = 0
    missed: dict[int, Missed] = field(default_factory=dict)  # parameters that were left out when last looked at


@dataclass(slots=True)
class Walked:
    """The nodes of one pass."""

    number: int  # of the pass
    structure: GraphStructure
    places: dict[int, int]  # sequence number → traversal place
    complete: bool  # whether all nodes are there; otherwise nobody was going to ask for more than where it started


class DetachmentLog(TracePart):
    """The cuts of a run."""

    def __init__(self, trace: TraceContext) -> None:
        self._detached: DetachedValues = trace.recorder.detached
        self._origins: Origins = trace.recorder.origins
        self._leaves, self._sites, self._passes = trace.leaves, trace.sites, trace.passes
        self._known: dict[_Key, _Known] = {}
        self._dropped = False
        self._last: Walked | None = None
        self._asked_late = False
        # The values without a history that backward was called on, by line and cut; equal ones are counted.
        self._losses: dict[tuple[int | None, _Key | None], LossWithoutGraph] = {}

    def begin_pass(self, found: Walk, followed: Following) -> None:
        """Say which nodes a pass that begins goes through. Never raises."""
        nodes, structure, number = found.nodes, followed.graph.structure, followed.done.number
        try:
            wanted = bool(self._detached.open) or self._asked_late or number <= PASSES_WAITED
            places = range(len(nodes)) if wanted else found.roots
            now = Walked(number, structure, {nodes[place]._sequence_nr(): place for place in places}, wanted)
            self._settle_all(now)
            self._detached.finish_pass(frozenset(nodes[place]._sequence_nr() for place in found.roots))
            self._last = now
        except Exception as error:
            self._detached.gap = error_text(error)

    def pass_called(self, roots: Sequence[Any], followed: Following) -> None:
        """Note which of the values that backward is called on have no way back any more, and why. Never raises."""
        try:
            cuts = [self._count(detachment, NO_GRAPH, None, 0) for detachment in self._detached.detachments_of(roots)]
            root = next((x for x in roots if isinstance(x, torch.Tensor) and not x.requires_grad), None)
            key = (followed.site, cuts[0] if cuts else None)
            if root is not None and (known := self._losses.get(key)) is not None:
                self._losses[key] = replace(known, count=known.count + 1)
            elif root is not None and len(self._losses) < MOST_KINDS:
                self._losses[key] = look_at(root, followed.caller, followed.site)
        except Exception as error:
            self._detached.gap = error_text(error)

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what ended the ways of values that backward was called on, and which of these torch refused."""
        known = {key: known for key, known in self._known.copy().items() if known.graph == NO_GRAPH}
        places: dict[_Key | None, int] = {key: at for at, key in enumerate(known)}
        losses = [replace(one, cut=places.get(cut)) for (_, cut), one in list(self._losses.items())]
        return {"cuts": tuple(map(self._cut, known.values())), "losses_without_graph": tuple(losses)}

    def leaves_met(self) -> list[weakref.ref[torch.Tensor]]:
        """Return weak references to the leaves that lie behind cuts."""
        every = self._known.copy().values()
        return [reference for known in every for reference in list(known.detached_leaves.leaves.values())]

    def finish(self, _error: BaseException | None) -> None:
        """Settle what was made after the last pass."""
        for detachment in list(self._detached.open.values()):
            self._locate(detachment, None)
            if detachment.place is None and self._last is not None and detachment.listed:
                self._count(detachment, self._last.structure.number, None, 0)
        self._detached.open.clear()
        self._detached.live.clear()

    def completed(self, graph: Graph) -> Graph:
        """Return ``graph`` with its cuts: those that feed a node first, in the order of the nodes."""
        every = list(self._known.copy().values())
        used = {(one.cut.kind, one.cut.location) for one in every if one.cut.target is not None}
        cuts = []
        for known in every:
            cut = known.cut
            if known.graph != graph.number or (cut.target is None and (cut.kind, cut.location) in used):
                continue
            cut = self._cut(known)
            if known.outside and not cut.outside and cut.target is None:
                continue  # a leaf's value, read for a log
            # It is between nodes of its graph, or the reason why leaves are left out.
            between = not known.quiet and (cut.source is not None or cut.target is not None)
            explains = any(not (known.quiet and one.written) for one in cut.left_out)
            if between or explains or self._is_joined(cut, graph):
                cuts.append(cut)
        order = sorted(cuts, key=lambda cut: (not cut.detachment, cut.target is None, cut.target or 0, cut.line))
        return replace(graph, cuts=tuple(order)) if order else graph

    def _is_joined(self, cut: Cut, graph: Graph) -> bool:
        """Return whether a Python number may be a term of a sum: a line that adds has it, or the name that it gets.

        Python calculates with numbers itself: what becomes of them is not seen.
        """
        if cut.kind != "item" or (place := self._sites.location(cut.location)) is None:
            return False
        bound = _BOUND.match(place.text)
        sums = {node.location for node in graph.nodes if node.op in JOINING}
        lines = [line.text for at in sums if (line := self._sites.location(at)) is not None]
        named = bound is not None and any(re.search(rf"\b{bound[1]}\b", text) for text in lines)
        return named or cut.location in sums

    def gaps(self) -> tuple[Gap, ...]:
        """Return what was not seen, and why."""
        dropped = f"more than {MOST_CUTS} different places that cut a gradient: the others were not kept"
        missed = f"some cuts of a gradient could not be traced: {self._detached.gap}"
        reasons = {dropped: self._dropped, missed: self._detached.gap}
        return tuple(Gap("cuts", reason) for reason, is_so in reasons.items() if is_so)

    def _settle_all(self, now: Walked) -> None:
        graph = now.structure.number
        for key, detachment in list(self._detached.open.items()):
            self._locate(detachment, now)
            waiting = []
            for receiver in detachment.receivers:
                if (target := self._index(now, receiver.number, receiver.leaf)) is None:
                    waiting.append(receiver)
                else:
                    self._count(detachment, graph, (receiver, target), now.number)
            detachment.receivers[:] = waiting
            detachment.age += 1
            if detachment.age >= PASSES_WAITED or (detachment.place is not None and not waiting):
                if detachment.place is None and detachment.listed:
                    # No graph led to what went in, nor to what used it: reported where it left leaves out.
                    self._count(detachment, graph, None, 0)
                detachment.receivers.clear()
                del self._detached.open[key]

    def _locate(self, detachment: Detachment, now: Walked | None) -> None:
        """Find the node that made what went in, in this pass or in the last one."""
        if detachment.place is not None:
            return
        for walked in (now, self._last):
            if walked is not None and (index := self._index(walked, detachment.number, detachment.leaf)) is not None:
                detachment.place = (walked.structure.number, index, walked.number)
                if detachment.listed and not detachment.receivers:
                    self._count(detachment, walked.structure.number, None, walked.number)
                return
        if detachment.number >= 0 and self._last is not None and not self._last.complete:
            self._asked_late = True  # from now on the numbers of a pass are kept until the next one

    def _index(self, walked: Walked, number: int, leaf: weakref.ref[torch.Tensor] | None) -> int | None:
        """Return the report index of a node, or of a leaf, which has no number."""
        if number >= 0:
            place = walked.places.get(number)
            return None if place is None else walked.structure.index[place]
        alive = leaf() if leaf is not None else None
        known = self._leaves.find(alive) if alive is not None else None
        return None if known is None else walked.structure.index_of_leaf.get(known)

    def _count(self, detachment: Detachment, graph: int, use: tuple[Receiver, int] | None, number: int) -> _Key | None:
        source, earlier = None, False
        if detachment.place is not None and detachment.place[0] == graph:
            source, earlier = detachment.place[1], detachment.number >= 0 and detachment.place[2] != number
        receiver, target = use if use is not None else (None, None)
        input_number, selects = (receiver.input_number, receiver.selects) if receiver is not None else (None, False)
        kind, op, site = detachment.kind, detachment.op, detachment.site
        key = (graph, kind, op, site, source, earlier, target, input_number, selects)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_CUTS:
                self._dropped = True
                return None
            name, made = self._origin(detachment)
            line, shown = self._sites.location(site), receiver or detachment
            known = self._known[key] = _Known(graph, Cut(
                kind=kind, op=op, location=site, line=line.line if line is not None else 0, source=source,
                source_name=name, source_location=made, earlier=earlier, target=target, input_number=input_number,
                selects=selects, shape=shown.shape, dtype=shown.dtype, by_library=detachment.by_library,
                call_location=detachment.call_site,
            ), detachment.detached_leaves, detachment.quiet, detachment.outside)  # fmt: skip
        known.quiet &= detachment.quiet
        known.count += 1
        return key

    def _origin(self, detachment: Detachment) -> tuple[str, int | None]:
        name = detachment.source_name
        if detachment.number >= 0:
            return op_name(name), self._origins.origin_of(detachment.number)[0]
        if not name and detachment.leaf is not None and (leaf := detachment.leaf()) is not None:
            number = self._leaves.find(leaf)
            called = self._leaves.known[number].name if number is not None else self._leaves.called(leaf)
            name = called or f"leaf {tuple(leaf.shape)}"
        return name, None

    def look_early(self) -> None:
        """Note which parameters are left out, while they are there."""
        for known in self._known.copy().values():
            known.missed, _ = self._missed(known)

    def _missed(self, known: _Known) -> tuple[dict[int, Missed], bool]:
        """Return the parameters that a cut leaves out, those that are gone as they were; whether all leaves are."""
        behind = list(known.detached_leaves.alive())
        now = left_out(behind, self._leaves, self._passes.used, self._detached.trained)
        gone = {key: one for key, one in known.missed.items() if self._is_gone(one)}
        return {**gone, **now}, len(now) == len(behind)

    def _is_gone(self, one: Missed) -> bool:
        """Return whether a parameter is no more, nor another one in its place, and no graph ever led to it."""
        if one.number is None or one.number in self._passes.used or not one.leaf.is_parameter:
            return False
        return self._leaves.known[one.number].reference() is None

    def _cut(self, known: _Known) -> Cut:
        missed, is_all = self._missed(known)
        leaves = tuple(dict.fromkeys(one.leaf for one in missed.values()))
        return replace(known.cut, count=known.count, left_out=leaves, outside=known.outside and is_all)
