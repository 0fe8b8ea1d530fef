"""What is known of each backward pass, and to which microbatch of a pipeline it belongs."""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType

import numpy as np

from tensormagic.collectors.devices.accelerator import Late
from tensormagic.collectors.gradients.fast_norm import PassValues
from tensormagic.collectors.gradients.following import Following
from tensormagic.collectors.gradients.traced_graph import (
    FREE_SECONDS,
    MOST_PASSES,
    Thinned,
    TracedGraph,
    passes_to_keep,
)
from tensormagic.collectors.graphs.structure import GraphStructure
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.reports import UNREADABLE, UNTOUCHED, LiveFrame, ParameterSeries, Pass
from tensormagic.reports.graph import no_numbers

# The passes of a run that are kept, evenly thinned, and what a live panel is told of them.

# The passes of a run that are kept, and what each brought every leaf: a gradient, and a step of the optimizer.

UPDATES_SHARE = 0.005  # of the time of the run goes into measuring the optimizer's steps, beyond the first one


@dataclass(slots=True)
class PassRow:
    """One pass, and a column of numbers by number of the leaf.

    Attributes:
        done: The pass.
        norms: Norm of the gradient that each leaf received.
        updates: How far each was moved by the optimizer's step that followed; empty where none was measured.
        stepped: Norm of what that step used of each, in this process; empty where it was not read.
    """

    done: Pass
    norms: array[float]
    updates: array[float]
    stepped: array[float] = field(default_factory=no_numbers)


class PassLog:
    """The passes so far.

    Args:
        leaves: Numbers the leaves.
        late: Takes what is still to come from a device.

    Attributes:
        inner: The passes inside others that are kept.
    """

    def __init__(self, leaves: Leaves, late: Late) -> None:
        self._leaves, self.late = leaves, late
        self._rows: Thinned[PassRow] = Thinned(MOST_PASSES)
        self._touched: dict[int, int] = {}
        self._used: set[int] = set()
        self.inner: Thinned[Pass] = Thinned(MOST_PASSES)
        self._brought: dict[int, dict[int, list[float]]] = {}  # pass → leaf → what passes inside it brought
        self._updates_seen = 0
        self.lost: Mapping[int, tuple[float, float]] = {}
        self._coming: deque[frozenset[int]] = deque()  # of each pass whose numbers are still to come: leaves reached

    @property
    def seen(self) -> int:
        """How many passes there were."""
        return self._rows.seen

    @property
    def last(self) -> PassRow | None:
        """The pass that ended last."""
        return self._rows.last

    def rows(self) -> tuple[PassRow, ...]:
        """Return the kept passes in the order in which they began."""
        return tuple(sorted(self._rows.items(), key=lambda row: row.done.number))

    def use(self, structure: GraphStructure) -> None:
        """Say that nodes of a new graph lead to its leaves."""
        self._used.update(structure.leaf_of.values())
        self._rows.capacity = passes_to_keep(len(self._leaves.known))

    def expect(self, structure: GraphStructure, values: PassValues) -> None:
        """Note a pass that has ended, whose numbers are still to come from a device, or have to wait for such."""
        self._coming.append(frozenset(structure.leaf_of[index] for index in values.order if index in structure.leaf_of))

    def came(self) -> None:
        """Note that the numbers of the oldest of these are there."""
        if self._coming:
            self._coming.popleft()

    def is_coming(self, leaf: int) -> bool:
        """Return whether the last pass brought something to a leaf, and how much is not known yet."""
        return bool(self._coming) and leaf in self._coming[-1]

    def append(self, done: Pass, structure: GraphStructure, values: PassValues) -> bool:
        """Keep a pass that has ended; False where what passes inside it brought to one leaf would have to be added."""
        if done.circumstances is not None and done.circumstances.inside:
            self._bring(done, structure, values)
            return True
        norms = array("f", [UNTOUCHED]) * len(self._leaves.known)
        for index, leaf in structure.leaf_of.items():
            norms[leaf] = values.norms[index]
        clear = self._carry(self._brought.pop(done.number, {}), norms)
        for leaf, norm in enumerate(norms):
            if norm != UNTOUCHED:
                self._touched[leaf] = self._touched.get(leaf, 0) + 1
        self._rows.append(PassRow(done, norms, array("f")), pin=bool(values.bad))
        return clear

    def _bring(self, done: Pass, structure: GraphStructure, values: PassValues) -> None:
        """Keep what a pass inside another brought to leaves until that one ends.

        A re-entrant checkpoint's parameters get their gradient in a pass of its own; so do the inputs of its segment,
        detached, which have no name.
        """
        self.inner.append(done, pin=bool(values.bad))
        brought = self._brought.setdefault(done.number, {})
        for index, leaf in structure.leaf_of.items():
            if values.norms[index] != UNTOUCHED:
                brought.setdefault(leaf, []).append(values.norms[index])

    def _carry(self, brought: Mapping[int, list[float]], norms: array[float]) -> bool:
        """Put what passes inside brought into the row; of a leaf that several reached, the sum is not known.

        Returns:
            Whether all is known of those that have a name: one without is another tensor in every pass, as a rule.
        """
        clear = True
        for leaf, found in brought.items():
            one = norms[leaf] == UNTOUCHED and len(found) == 1
            norms[leaf] = found[0] if one else UNREADABLE
            clear &= one or self._leaves.known[leaf].is_nameless
        return clear

    def wants_update(self, spent: float, seconds: float) -> bool:
        """Return whether an optimizer's step is to be measured now, given what measuring took so far.

        After a pass on a device, whose time no clock here tells: the first, and each 2^k-th after it.
        """
        if self._coming:
            after = self.seen + len(self._coming) - 1
            return after & (after - 1) == 0
        if self.last is None:
            return False
        return not self._updates_seen or (self._rows.keeps_last and spent <= FREE_SECONDS + UPDATES_SHARE * seconds)

    def moved(self, ratios: Mapping[int, float]) -> None:
        """Keep how far an optimizer's step moved parameters, beside the pass before it."""
        row = self.last
        if row is None:
            return
        self._updates_seen += 1
        row.updates = _filled(row.updates, ratios, len(row.norms))

    def stepped(self, norms: Mapping[int, float]) -> None:
        """Keep what an optimizer's step used, beside the pass before it."""
        if (row := self.last) is not None:
            row.stepped = _filled(row.stepped, norms, len(row.norms))

    def _lost(self, number: int) -> float:
        """Return which share of a parameter's elements stayed where they were, of those that had a gradient."""
        stayed, had = self.lost.get(number, (0.0, 0.0))
        return stayed / had if had else -1.0

    def series(self) -> tuple[ParameterSeries, ...]:
        """Return what every leaf received, over the kept passes."""
        rows, leaves = self.rows(), list(self._leaves.known)
        norms, updates = (_columns(one, len(leaves)) for one in ([r.norms for r in rows], [r.updates for r in rows]))
        stepped = _columns([row.stepped for row in rows] if any(row.stepped for row in rows) else [], len(leaves))
        used, touched, replaced = self._used, self._touched.get, self._leaves.replaced
        return tuple([
            ParameterSeries(
                leaf.name, leaf.shape, leaf.dtype, leaf.numel, leaf.is_parameter, leaf.requires_grad,
                number in used, leaf.owner, norms[number], touched(number, 0), updates[number], number in replaced,
                stepped[number], self._lost(number),
            )
            for number, leaf in enumerate(leaves)
        ])  # fmt: skip


def _filled(before: array[float], numbers: Mapping[int, float], size: int) -> array[float]:
    """Return a column with some numbers put in; `UNTOUCHED` is where none is known."""
    column = before or array("f", [UNTOUCHED]) * size
    for number, value in numbers.items():
        if number < size:
            column[number] = value
    return column


def _columns(rows: list[array[float]], count: int) -> list[array[float]]:
    """Return the first ``count`` columns of rows that may be shorter; `UNTOUCHED` is where they are."""
    table = np.full((count, len(rows)), UNTOUCHED, np.float32)
    for at, row in enumerate(rows):
        table[: len(row), at] = np.frombuffer(row, np.float32)[:count] if len(row) else UNTOUCHED
    width, packed = table.itemsize * len(rows), table.tobytes()
    return (
        [array("f", packed[at : at + width]) for at in range(0, count * width, width)]
        if width
        else [array("f") for _ in range(count)]
    )


# What a live panel is told of a run, many times a second: small copies, made on the panel's thread.

There = tuple[Pass, TracedGraph, PassValues]


def pass_of(current: Following | None) -> There | None:
    """Return the pass that a backward is in; None where it is in none, or none runs."""
    if current is None or current.begun is None or current.graph is None or current.recorder is None:
        return None
    return current.begun, current.graph, current.recorder.values


def frame_before_any_pass(structure: int, step: int, seconds: float) -> LiveFrame:
    """Return the frame of a run in which nothing ran backward yet."""
    return LiveFrame(
        structure, graph=0, pass_number=0, step=step, running=False, cursor=-1, reached=0, norms=array("f"),
        finished_pass=0, parameter_norms=array("f"), seconds=seconds,
    )  # fmt: skip


def frame_of(there: There, finished: PassRow | None, structure: int, seconds: float, *, running: bool) -> LiveFrame:
    """Return the frame of a run that has come to a pass, and has brought another to its end."""
    begun, graph, values = there
    order = values.order
    last, row = (finished.done.number, finished.norms) if finished else (0, array("f"))
    return LiveFrame(
        structure, graph.structure.number, begun.number, begun.step, running,
        order[-1] if order else -1, len(order), values.norms[:], last, row, seconds,
    )  # fmt: skip


# What a backward is to a pipeline schedule of torch's: of which microbatch it is, or no pass of the run at all.
#
# In one ``schedule.step()`` each microbatch goes through each stage once, forward and back, in an order of the
# schedule's. Before the first step it finds out shapes with a forward and a backward of memory that nobody has
# filled.

_PACKAGE = "torch.distributed.pipelining"
_MOST_FRAMES = 64
_STAGE = "torch.distributed.pipelining.stage"
_OF_ONE_CHUNK = frozenset({"backward_one_chunk", "backward_weight_one_chunk"})
_INFERENCE = "metadata_inference"

Chunk = tuple[int, str, int]


def infers_shapes() -> bool:
    """Return whether the calling code runs because a pipeline finds out shapes."""
    return any(_INFERENCE in frame.f_code.co_name for frame in _frames())


def chunk() -> Chunk | None:
    """Return which stage goes back through which microbatch in the calling code, and in which way; None in no other."""
    for frame in _frames():
        if (what := frame.f_code.co_name) in _OF_ONE_CHUNK and "bwd_chunk_id" in frame.f_code.co_varnames:
            local = frame.f_locals
            return id(local.get("self")), what, local["bwd_chunk_id"]
    return None


def _frames() -> Iterator[FrameType]:
    """Yield the frames of pipeline stages above the caller; none is looked for where no pipeline was imported."""
    if _PACKAGE not in sys.modules:
        return
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        if frame.f_globals.get("__name__") == _STAGE:
            yield frame
        frame = frame.f_back


class Microbatches:
    """Tells where a step of a pipeline begins: where a microbatch comes again."""

    def __init__(self) -> None:
        self._seen: set[Chunk] = set()

    def begin_step(self) -> bool | None:
        """Return whether the backward that begins is the first of a step; None where it is in no pipeline."""
        now = chunk()
        if now is None:
            self._seen.clear()
            return None
        first = not self._seen or now in self._seen
        if first:
            self._seen.clear()
        self._seen.add(now)
        return first
