"""Every place of a run where a gradient is cut off, and the losses that have no graph."""

from __future__ import annotations

import inspect
import linecache
import re
import weakref
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.detachment.detached_values import DetachedValues
from tensormagic.collectors.detachment.detachment_facts import (
    DetachedLeaves,
    Detachment,
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
from tensormagic.collectors.where.source import is_expected, name_in, names_of, own_frames
from tensormagic.reports import Gap, Graph
from tensormagic.reports.failure import LossWithoutGraph, ModelInScope
from tensormagic.reports.graph import Cut, CutKind
from tensormagic.words import error_text

# Looks at a value without a history that backward is about to be called on; torch will refuse, and not say why.
#
# Called only then: everything here may take its time, and looks at the names of the user's functions that are
# running.

MOST_KINDS = 16  # different ones kept of one run
MOST_FRAMES = 8
MOST_MODELS = 8


def first_without_history(roots: Sequence[Any]) -> torch.Tensor | None:
    """Return the first of what backward was called on that torch will refuse."""
    return next((root for root in roots if isinstance(root, torch.Tensor) and not root.requires_grad), None)


def look_at(root: torch.Tensor, caller: FrameType | None, site: int | None) -> LossWithoutGraph:
    """Return what is to be said of a value without a history, and of the code that called backward on it."""
    with torch._C.DisableTorchFunction():
        frames = list(_own_frames(caller))
        return LossWithoutGraph(
            name=name_in(frames[0], root) if frames else "",
            location=site,
            shape=shape_of(root),
            dtype=dtype_of(root),
            grad_enabled=torch.is_grad_enabled(),
            inference=root.is_inference(),
            models=_models(frames),
            expected=is_expected(caller),
        )


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    for own in islice(own_frames(frame), MOST_FRAMES):
        yield own
        if not own.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # the cell or the module; what runs it is another matter


def _models(frames: list[FrameType]) -> tuple[ModelInScope, ...]:
    """Return the models that the innermost function names that names any, each once.

    Of the names of a module or a notebook only those count that the running code mentions: the model of an earlier cell
    has nothing to do with it.
    """
    words = _words(frames)
    outside = [{name: frame.f_globals[name] for name in words if name in frame.f_globals} for frame in frames[-1:]]
    inside = [names_of(frame) for frame in frames if frame.f_code.co_flags & inspect.CO_OPTIMIZED]
    for space in (*inside, *outside):
        flags = {name: [each.requires_grad for each in module.parameters()] for name, module in modules_in(dict(space))}
        found = [ModelInScope(name=name, parameters=len(f), frozen=f.count(False)) for name, f in flags.items() if f]
        if found:
            return tuple(found[:MOST_MODELS])
    return ()


def _words(frames: list[FrameType]) -> list[str]:
    """Return the names that running code mentions, in order: a function its own, a cell or a module all it has."""
    words: dict[str, None] = {}
    for frame in frames:
        code = frame.f_code
        words |= dict.fromkeys(code.co_names)
        if not code.co_flags & inspect.CO_OPTIMIZED:
            words |= dict.fromkeys(re.findall(r"[^\W\d]\w*", "".join(linecache.getlines(code.co_filename))))
    return list(words)


class LossWithoutGraphLog:
    """The values without a history that backward was called on in a run, equal ones counted."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int | None, object], tuple[LossWithoutGraph, object]] = {}

    def note(self, root: torch.Tensor, where: tuple[FrameType | None, int | None], cut: object) -> None:
        """Keep what is to be said of one; ``cut`` says by which key what ended its way is known."""
        key = (where[1], cut)
        if key in self._seen:
            known = self._seen[key][0]
            self._seen[key] = replace(known, count=known.count + 1), cut
        elif len(self._seen) < MOST_KINDS:
            self._seen[key] = look_at(root, *where), cut

    def report(self, cuts: Sequence[object]) -> tuple[LossWithoutGraph, ...]:
        """Return them, given the keys of the cuts that the report shows, in order."""
        places = {cut: at for at, cut in enumerate(cuts)}
        return tuple(replace(one, cut=places.get(cut)) for one, cut in list(self._seen.values()))


# Says between which nodes of which graph the ways ended that `detached_values` followed, and counts them over the run.
#
# While the forward runs, nodes are known by their sequence numbers alone. When a backward walks the graph, these
# become indices. Most cuts are settled then; one whose value was made after the backward (a hidden state that the
# next step starts from), or whose origin only another graph has, waits for one more pass.

MOST_CUTS = 256  # different cuts kept over the whole run
NO_GRAPH = 0
PASSES_WAITED = 2  # passes that a cut waits for its nodes


class Key(NamedTuple):
    """What makes two cuts the same one."""

    graph: int
    kind: CutKind
    op: str
    site: int | None
    source: int | None
    earlier: bool
    target: int | None
    input_number: int | None
    selects: bool


@dataclass(slots=True)
class Described:
    """What else is known of a cut: as it was first seen, and how often."""

    source_name: str
    source_site: int | None
    shape: tuple[int, ...]
    dtype: str
    detached_leaves: DetachedLeaves | None = None
    quiet: bool = False
    by_library: bool = False
    call_site: int | None = None
    count: int = 0


@dataclass(slots=True)
class Walked:
    """The nodes of one pass, by sequence number."""

    number: int  # of the pass
    structure: GraphStructure  # its structure
    roots: dict[int, int]  # sequence number → traversal place, of the nodes it started from
    numbers: array[int]  # sequence numbers by traversal place; empty where nobody was going to ask
    _places: dict[int, int] = field(default_factory=dict)

    def index_of(self, number: int) -> int | None:
        """Return the report index of a node, or None where it is not in this graph."""
        place = self.roots.get(number)
        if place is None and len(self.numbers):
            if not self._places:
                self._places = {number: place for place, number in enumerate(self.numbers)}
            place = self._places.get(number)
        return None if place is None else self.structure.index[place]


class DetachmentLog(TracePart):
    """The cuts of a run."""

    def __init__(self, trace: TraceContext) -> None:
        self._detached: DetachedValues = trace.recorder.detached
        self._origins: Origins = trace.recorder.origins
        self._leaves, self._sites, self._passes = trace.leaves, trace.sites, trace.passes
        self._known: dict[Key, Described] = {}
        self._dropped = 0
        self._last: Walked | None = None
        self._asked_late = False
        self._losses_without_graph = LossWithoutGraphLog()

    def begin_pass(self, found: Walk, followed: Following) -> None:
        """Say which nodes a pass that begins goes through. Never raises."""
        nodes, structure, number = found.nodes, followed.graph.structure, followed.begun.number
        try:
            wanted = bool(self._detached.open) or self._asked_late or number <= PASSES_WAITED
            numbers = array("Q", [node._sequence_nr() for node in nodes] if wanted else [])
            starts = {nodes[place]._sequence_nr(): place for place in found.roots}
            now = Walked(number, structure, starts, numbers)
            if self._detached.open:
                self._settle_all(now)
                now = replace(now, _places={})
            self._detached.finish_pass(frozenset(starts))
            self._last = now
        except Exception as error:
            self._detached.gap = error_text(error)

    def pass_called(self, roots: Sequence[Any], followed: Following) -> None:
        """Note which of the values that backward is called on have no way back any more, and why. Never raises."""
        try:
            keys = [self._count(detachment, NO_GRAPH, None, 0) for detachment in self._detached.detachments_of(roots)]
            if (root := first_without_history(roots)) is not None:
                self._losses_without_graph.note(root, (followed.caller, followed.site), keys[0] if keys else None)
        except Exception as error:
            self._detached.gap = error_text(error)

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what ended the ways of values that backward was called on, and which of these torch refused."""
        known = [(key, described) for key, described in self._known.copy().items() if key.graph == NO_GRAPH]
        cuts = tuple(self._cut(key, described) for key, described in known)
        return {"cuts": cuts, "losses_without_graph": self._losses_without_graph.report([key for key, _ in known])}

    def leaves_met(self) -> list[weakref.ref[torch.Tensor]]:
        """Return weak references to the leaves that lie behind cuts."""
        leaves = [
            described.detached_leaves
            for described in self._known.copy().values()
            if described.detached_leaves is not None
        ]
        return [reference for one in leaves for reference in list(one.leaves.values())]

    def finish(self, _error: BaseException | None) -> None:
        """Settle what was made after the last pass."""
        for detachment in list(self._detached.open.values()):
            self._locate(detachment, None)
            if detachment.place is None and self._last is not None:
                self._let_go(detachment, self._last.structure.number)
        self._detached.open.clear()
        self._detached.live.clear()

    def completed(self, graph: Graph) -> Graph:
        """Return ``graph`` with its cuts: those that feed a node first, in the order of the nodes."""
        known = self._known.copy()
        detachment = {(key.kind, key.site) for key in known if key.target is not None}
        cuts = []
        for key, described in known.items():
            if key.graph != graph.number or (key.target is None and (key.kind, key.site) in detachment):
                continue
            cut = self._cut(key, described)
            # It is between nodes of its graph, or the reason why leaves are left out.
            between = not described.quiet and (cut.source is not None or cut.target is not None)
            if between or any(not (described.quiet and one.written) for one in cut.left_out):
                cuts.append(cut)
        order = sorted(cuts, key=lambda cut: (not cut.detachment, cut.target is None, cut.target or 0, cut.line))
        return replace(graph, cuts=tuple(order)) if order else graph

    def gaps(self) -> tuple[Gap, ...]:
        """Return what was not seen, and why."""
        reasons = []
        if self._dropped:
            reasons.append(f"more than {MOST_CUTS} different places that cut a gradient: the others were not kept")
        if self._detached.gap:
            reasons.append(f"some cuts of a gradient could not be traced: {self._detached.gap}")
        return tuple(Gap("cuts", reason) for reason in reasons)

    # -- from sequence numbers to nodes ---------------------------------------------------------------------------

    def _settle_all(self, now: Walked) -> None:
        for key, detachment in list(self._detached.open.items()):
            self._locate(detachment, now)
            self._deliver(detachment, now)
            detachment.age += 1
            if detachment.age >= PASSES_WAITED or (detachment.place is not None and not detachment.receivers):
                if detachment.place is None:
                    self._let_go(detachment, now.structure.number)
                detachment.receivers.clear()
                del self._detached.open[key]

    def _locate(self, detachment: Detachment, now: Walked | None) -> None:
        """Find the node that made what went in, in this pass or in the last one."""
        if detachment.place is not None:
            return
        for walked in (now, self._last):
            if walked is not None and (index := self._source_in(detachment, walked)) is not None:
                detachment.place = (walked.structure.number, index, walked.number)
                if detachment.listed and not detachment.receivers:
                    self._count(detachment, walked.structure.number, None, walked.number)
                return
        if detachment.number >= 0 and self._last is not None and not len(self._last.numbers):
            self._asked_late = True  # from now on the numbers of a pass are kept until the next one

    def _let_go(self, detachment: Detachment, graph: int) -> None:
        """Keep what no graph led to, neither to what went in nor to what used it; reported where it left leaves out."""
        if detachment.listed:
            self._count(detachment, graph, None, 0)

    def _source_in(self, detachment: Detachment, walked: Walked) -> int | None:
        if detachment.number >= 0:
            return walked.index_of(detachment.number)
        leaf = detachment.leaf() if detachment.leaf is not None else None
        number = self._leaves.find(leaf) if leaf is not None else None
        return None if number is None else walked.structure.index_of_leaf.get(number)

    def _deliver(self, detachment: Detachment, now: Walked) -> None:
        """Count the uses that this pass goes through."""
        waiting = []
        for receiver in detachment.receivers:
            if self._target_in(receiver, now) is None:
                waiting.append(receiver)
            else:
                self._count(detachment, now.structure.number, (receiver, self._target_in(receiver, now)), now.number)
        detachment.receivers[:] = waiting

    def _target_in(self, receiver: Receiver, now: Walked) -> int | None:
        if receiver.leaf is None:
            return now.index_of(receiver.number)
        leaf = receiver.leaf()
        number = self._leaves.find(leaf) if leaf is not None else None
        return None if number is None else now.structure.index_of_leaf.get(number)

    def _count(
        self, detachment: Detachment, graph: int, use: tuple[Receiver, int | None] | None, number: int
    ) -> Key | None:
        source, earlier = None, False
        if detachment.place is not None and detachment.place[0] == graph:
            source, earlier = detachment.place[1], detachment.number >= 0 and detachment.place[2] != number
        receiver, target = use if use is not None else (None, None)
        key = Key(
            graph, detachment.kind, detachment.op, detachment.site, source, earlier, target,
            receiver.input_number if receiver else None, receiver.selects if receiver else False,
        )  # fmt: skip
        described = self._known.get(key)
        if described is None:
            if len(self._known) >= MOST_CUTS:
                self._dropped += 1
                return None
            described = self._known[key] = self._tell(detachment, receiver)
        described.quiet &= detachment.quiet
        described.count += 1
        return key

    def _tell(self, detachment: Detachment, receiver: Receiver | None) -> Described:
        name, site = detachment.source_name, None
        if detachment.number >= 0:
            name = op_name(name)
            site = self._origins.origin_of(detachment.number)[0]
        elif detachment.leaf is not None and (leaf := detachment.leaf()) is not None:
            known = self._leaves.find(leaf)
            described = self._leaves.known[known].name if known is not None else self._leaves.called(leaf)
            name = name or described or f"leaf {tuple(leaf.shape)}"
        shown = receiver or detachment
        flags = {"quiet": detachment.quiet, "by_library": detachment.by_library}
        return Described(
            name, site, shown.shape, shown.dtype, detachment.detached_leaves, **flags, call_site=detachment.call_site
        )

    def _cut(self, key: Key, described: Described) -> Cut:
        line = self._sites.locations[key.site].line if key.site is not None else 0
        leaves = described.detached_leaves.alive() if described.detached_leaves is not None else ()
        return Cut(
            kind=key.kind, op=key.op, location=key.site, line=line, source=key.source,
            source_name=described.source_name, source_location=described.source_site, earlier=key.earlier,
            target=key.target, input_number=key.input_number, selects=key.selects, shape=described.shape,
            dtype=described.dtype, count=described.count, by_library=described.by_library,
            call_location=described.call_site,
            left_out=left_out(leaves, self._leaves, self._passes.used, self._detached.trained),
        )  # fmt: skip
