"""Backward passes: those under way, also one inside another as a checkpoint makes it, and those that ended."""

from __future__ import annotations

import threading
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Literal

import torch

from tensormagic.collectors.devices import DeferredWork, Stopwatch
from tensormagic.collectors.gradients.gradient_statistics import PassValues
from tensormagic.collectors.gradients.gradients import Gradients, PassRecorder
from tensormagic.collectors.gradients.traced_graph import (
    FREE_SECONDS,
    MOST_PASSES,
    SubsampledSequence,
    TracedGraph,
    passes_to_keep,
)
from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.hooks.capturing import Captures
from tensormagic.collectors.hooks.replacing import BackwardCall, without_dynamo
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import functorch_levels
from tensormagic.collectors.where.caller import sequence_number
from tensormagic.collectors.where.source import SourceLines
from tensormagic.reports import UNREADABLE, UNTOUCHED, Gap, Graph, LiveFrame, ParameterSeries, Pass, PassContext
from tensormagic.reports.failure import ModifiedSavedTensor
from tensormagic.reports.graph import no_numbers

# Looks into backwards that are Python code of the user's: their own Functions', and re-entrant checkpoints'.
# The tracer's mode is off the stack while the engine runs. Where a node's backward runs forward code of its own, as a
# checkpoint computes its segment again, nodes are made, and a backward may run through them. So for these nodes the
# mode is on the stack: from a hook that runs last before their backward until one that runs first after. These two see
# as well whether the backward has written into a gradient that it was given, and whether somebody else holds that one.

# Who holds a gradient that nobody shares: the engine, and Python where a hook looks at it. A view holds its base, too.
_HOLDERS = 2


class PythonBackwards:
    """Puts the mode onto the stack while the backwards of some nodes run; on the thread that is its home alone.

    ``written`` has, by its place among them, each node that wrote into a gradient which others hold, and its address.
    """

    def __init__(self, nodes: Sequence[Any], put_on_top: Callable[[], Callable[[], object]], home: int) -> None:
        self._put_on_top, self._home = put_on_top, home
        self._undo: list[Callable[[], object]] = []
        self._handles = [node.register_hook(partial(without_dynamo, self._leave, at)) for at, node in enumerate(nodes)]
        self._versions: dict[int, list[int]] = {}
        self.written: dict[int, int] = {}

    def open(self, nodes: Sequence[Any]) -> None:
        """Begin; called after every other hook was put on, so that the mode is there for the backward alone."""
        enter = self._enter
        self._handles += [node.register_prehook(partial(without_dynamo, enter, at)) for at, node in enumerate(nodes)]

    def close(self) -> None:
        """Take the hooks off; where a backward raised, the mode too."""
        while self._handles:
            self._handles.pop().remove()
        while self._undo:
            self._undo.pop()()

    def _enter(self, at: int, gradients: Gradients) -> None:
        self._versions[at] = [_version_of_shared(gradient) for gradient in gradients]
        if threading.get_ident() == self._home:
            self._undo.append(self._put_on_top())

    def _leave(self, at: int, _: Any, gradients: Gradients) -> None:
        for version, gradient in zip(self._versions.pop(at, ()), gradients, strict=False):
            if version >= 0 and gradient is not None and gradient._version != version:
                self.written[at] = gradient.data_ptr()
        if self._undo and threading.get_ident() == self._home:
            self._undo.pop()()


def _version_of_shared(gradient: Any) -> int:
    """Return how often a gradient was written to whose memory others hold; -1 of any other. Never raises."""
    try:
        plain = type(gradient) is torch.Tensor and not torch.is_grad_enabled()
        base: Any = gradient._base if plain else None
        whole = base is not None and base.numel() == gradient.numel() and base._use_count() > _HOLDERS
        shared = plain and (whole or gradient._use_count() > _HOLDERS)
        return int(gradient._version) if shared else -1
    except (RuntimeError, AttributeError):  # it has no memory of its own, or keeps no count
        return -1


# What is known of one backward call while it is followed: where it runs, where it starts, what it hands back.


@dataclass(slots=True)
class Following:
    """A backward call that is being followed."""

    thread: int  # The thread that made the call.
    began: float  # When, in seconds of the run's clock.
    between_compiled: bool = False  # See `BackwardCall`.
    is_seen: bool = False  # Whether a dispatch mode of the tool's is on, which is to see nothing of what the hooks do.
    outcome: str = "failed"  # How it ended,
    seconds: float = 0.0  # after how long,
    returned: bool = False  # and whether it handed gradients back, instead of leaving them in leaves.
    site: int | None = None  # The line that made the call.
    pass_context: PassContext | None = None  # Where it runs; None on the traced thread, outside any other.
    is_open: bool = False  # Whether its graph is known, and with it the next three.
    done: Pass = field(init=False)  # The pass, as far as it is known.
    graph: TracedGraph = field(init=False)  # The graph it goes through.
    recorder: PassRecorder = field(init=False)  # Its hooks.
    python_backwards: PythonBackwards | None = None  # Its hooks on backwards that are Python code.
    caller: FrameType | None = None  # The frame that made the call; dropped when it ends.
    # Puts the tracer's mode back, which leaves while the engine runs; None where it was not there.
    come_back: Callable[[], object] | None = None
    found: Walk | None = None  # The walk over its graph; dropped when it ends.
    suspects: tuple[ModifiedSavedTensor, ...] = ()  # What its nodes saved and was written to behind autograd's back.
    # The number of the next node that this thread makes, when the call was made.
    sequence: int = field(default_factory=sequence_number)
    collectives: dict[int, int] = field(default_factory=dict)  # How many had begun before it; see `ParallelWatcher`.
    reduced: bool | None = None  # Whether it reduced its gradients over processes; None where that is not known.
    clock: Stopwatch = field(default_factory=Stopwatch)  # What the device takes that its roots are on.

    @property
    def levels(self) -> tuple[str, ...]:
        """What wraps its tensors."""
        return self.pass_context.levels if self.pass_context is not None else ()

    @property
    def nodes(self) -> Sequence[Any]:
        """Its live nodes, in traversal order."""
        return self.found.nodes if self.found is not None else ()

    @property
    def is_inner(self) -> bool:
        """Whether it runs inside another pass."""
        return self.pass_context is not None and self.pass_context.inside > 0


@dataclass(slots=True)
class TraceContext:
    """What the parts of a trace share."""

    namespace: Mapping[str, Any]  # Where names are looked up; read, never written.
    sites: SourceLines  # Interns the user's lines.
    leaves: Leaves  # Numbers and names the leaves met so far.
    recorder: Any  # The function mode, a `ForwardRecorder`: what it saw of the forward, and where nodes were made.
    late: DeferredWork  # Takes what is still to come from a device.
    passes: PassLog  # What each pass brought.
    seconds: Callable[[], float]  # How long the run has gone on.
    begun: Callable[[], int]  # How many passes have begun, whether or not they were looked at.
    parts: dict[str, Any] = field(default_factory=dict)  # Those that were made so far, by their names in the table.
    gaps: dict[str, Gap] = field(default_factory=dict)  # By their reasons.
    last: There | None = None  # The last pass, its graph and its numbers.
    captures: Captures = field(init=False)  # Takes the recorder off where torch compiles or writes down what runs.

    def add_gap(self, section: str, reason: str) -> None:
        """Note what could not be seen, and why; once for each reason."""
        self.gaps.setdefault(reason, Gap(section, reason))


class TracePart:
    """A question that a trace answers, in a file of its own; made with a `TraceContext`.

    What is not overridden is not needed. What looks at a pass is never to raise. ``seconds`` were spent here.
    """

    seconds = 0.0

    def enter(self, undoing: UndoStack) -> None:
        """Put into torch what follows the run."""

    # -- one backward after the other, in this order ----------------------------------------------------------------

    def pass_called(self, roots: Sequence[Any], followed: Following) -> None:
        """Look at what backward was called on, before its graph is walked."""

    def graph_begins(self, found: Walk, graph: TracedGraph) -> None:
        """Look at a graph that no pass went through before."""

    def begin_pass(self, found: Walk, followed: Following) -> None:
        """Look at a backward that is about to go through a graph."""

    def before_pass(self, call: BackwardCall, followed: Following) -> None:
        """Look at one that is about to run, also where its graph is not followed."""

    def end_pass(self, found: Walk, followed: Following, call: BackwardCall, error: BaseException | None) -> None:
        """Look at one that has ended, with an exception or without, while its nodes live."""

    def keep_pass(self, followed: Following) -> Callable[[Pass], None] | None:
        """Take what is to be kept of it; returns what is called with the pass when its numbers have come."""

    def after_pass(self, call: BackwardCall, followed: Following) -> None:
        """Look at one that is over, also where its graph was not followed."""

    def look_early(self) -> None:
        """Look at what may be gone when the run ends, after passes 2, 4, 8, …: what a function holds that returns."""

    def forget(self) -> None:
        """Know that passes and steps may have gone by unseen."""

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish(self, error: BaseException | None) -> None:
        """Ask, as the run has ended, what can only be known then."""

    def explain(self, error: BaseException) -> None:
        """Look into the exception that ended the run, while it has its traceback."""

    def abandon(self) -> None:
        """Let go of what may not go on, where the run ended without `finish`."""

    # -- what is known, from any thread -----------------------------------------------------------------------------

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be seen, and why."""
        return ()

    def fields(self, graphs: Sequence[Graph]) -> dict[str, Any]:  # noqa: ARG002  (for those who point into graphs)
        """Return its fields of a `TraceReport`; ``graphs`` are those of the report, in its order."""
        return {}


def hearing(parts: Iterable[TracePart], event: str) -> tuple[TracePart, ...]:
    """Return the parts that have something to do at an event: the others need not be called in every pass."""
    return tuple(part for part in parts if getattr(type(part), event) is not getattr(TracePart, event))


def pass_context(running: Sequence[Following], home: int) -> PassContext | None:
    """Return where a backward runs that is called just now, given those that run already; ``home`` is the thread."""
    levels, here, outer = functorch_levels(), threading.get_ident(), None
    if running and torch._C._current_graph_task_id() != -1:  # on a device's own thread it is inside the last one
        outer = next((other for other in reversed(running) if other.thread == here), running[-1])
    name = "" if here == home or outer is not None else threading.current_thread().name
    if outer is None:
        return PassContext(0, 0, None, name, levels) if levels or name else None
    current = torch._C._current_autograd_node()
    nodes = zip(outer.graph.structure.index, outer.nodes, strict=False)  # none, where it ends on its thread just now
    on_behalf_of = next((index for index, node in nodes if node is current), None)
    return PassContext(outer.done.number, outer.done.graph, on_behalf_of, name, levels)


def is_being_compiled() -> bool:
    """Return whether a backward is only being written down, by Dynamo, AOTAutograd or ``make_fx``, and not run."""
    proxies = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    return proxies is not None or torch._guards.TracingContext.try_get() is not None


# The passes of a run that are kept, and what each brought every leaf: a gradient, and a step of the optimizer.

UPDATES_SHARE = 0.005  # of the time of the run goes into measuring the optimizer's steps, beyond the first one


@dataclass(slots=True)
class PassRow:
    """One pass, and a column of numbers by number of the leaf."""

    done: Pass  # The pass.
    norms: array[float]  # Norm of the gradient that each leaf received.
    # How far each was moved by the optimizer's step that followed; empty where none was measured.
    updates: array[float] = field(default_factory=no_numbers)
    # Norm of what that step used of each, in this process; empty where it was not read.
    stepped: array[float] = field(default_factory=no_numbers)


class PassLog:
    """The passes ``kept``, those inside others apart; ``used`` are the leaves that a graph led to, by number."""

    def __init__(self, leaves: Leaves, late: DeferredWork) -> None:
        self.leaves, self.late = leaves, late
        self.kept: SubsampledSequence[PassRow] = SubsampledSequence(MOST_PASSES)
        self._touched = Counter[int]()
        self.inner: SubsampledSequence[Pass] = SubsampledSequence(MOST_PASSES)
        self.used: set[int] = set()
        self._brought: dict[int, dict[int, list[float]]] = {}  # pass → leaf → what passes inside it brought
        self._updates_seen = False
        # Of parameters in half precision: how many elements steps left as they were, and how many had a gradient.
        self.lost: dict[int, tuple[float, float]] = {}
        self._coming: deque[frozenset[int]] = deque()  # of each pass whose numbers are still to come: leaves reached

    def rows(self) -> tuple[PassRow, ...]:
        """Return the kept passes in the order in which they began."""
        return tuple(sorted(self.kept.items(), key=lambda row: row.done.number))

    def use(self, structure: GraphStructure) -> None:
        """Say that nodes of a new graph lead to its leaves."""
        self.used.update(structure.leaf_of.values())
        self.kept.capacity = passes_to_keep(len(self.leaves.known))

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

    def touched(self, leaf: int) -> int:
        """Return how many passes brought a leaf something; -1 where the numbers of the last are still to come."""
        return -1 if self.is_coming(leaf) else self._touched[leaf]

    def append(self, done: Pass, structure: GraphStructure, values: PassValues) -> bool:
        """Keep a pass that has ended; False where what passes inside it brought to one leaf would have to be added.

        A re-entrant checkpoint's parameters get their gradient in a pass of its own, inside another: what it brought to
        leaves is kept until that one ends. So do the inputs of its segment, detached, which have no name: those are
        other tensors in every pass, as a rule, and nothing is said of them.
        """
        if done.pass_context is not None and done.pass_context.inside:
            self.inner.append(done, pin=bool(values.bad))
            brought = self._brought.setdefault(done.number, {})
            for index, leaf in structure.leaf_of.items():
                if values.norms[index] != UNTOUCHED:
                    brought.setdefault(leaf, []).append(values.norms[index])
            return True
        norms, clear = array("f", [UNTOUCHED]) * len(self.leaves.known), True
        for index, leaf in structure.leaf_of.items():
            norms[leaf] = values.norms[index]
        for leaf, found in self._brought.pop(done.number, {}).items():
            one = norms[leaf] == UNTOUCHED and len(found) == 1
            norms[leaf] = found[0] if one else UNREADABLE
            clear &= one or self.leaves.known[leaf].is_unnamed
        self._touched.update(leaf for leaf, norm in enumerate(norms) if norm != UNTOUCHED)
        self.kept.append(PassRow(done, norms), pin=bool(values.bad))
        return clear

    def wants_update(self, spent: float, seconds: float) -> bool:
        """Return whether an optimizer's step is to be measured now, given what measuring took since the first one.

        After a pass on a device, whose time no clock here shows: the first, and each 2^k-th after it.
        """
        if self._coming:
            after = self.kept.seen + len(self._coming) - 1
            return after & (after - 1) == 0
        if self.kept.last is None:
            return False
        return not self._updates_seen or (self.kept.keeps_last and spent <= FREE_SECONDS + UPDATES_SHARE * seconds)

    def note(self, column: Literal["updates", "stepped"], numbers: Mapping[int, float]) -> None:
        """Keep how far an optimizer's step moved parameters, or what it used, beside the pass before it."""
        if (row := self.kept.last) is not None:
            self._updates_seen |= column == "updates"
            known = getattr(row, column) or array("f", [UNTOUCHED]) * len(row.norms)
            for number, value in numbers.items():
                if number < len(known):
                    known[number] = value
            setattr(row, column, known)

    def frame(self, there: There | None, structure: int, step: int, seconds: float, *, running: bool) -> LiveFrame:
        """Return what a live panel shows of a run that has come to a pass: small copies, made on the panel's thread."""
        finished = self.kept.last
        last, row = (finished.done.number, finished.norms) if finished else (0, array("f"))
        if there is None:
            return LiveFrame(structure, 0, 0, step, False, -1, 0, array("f"), last, row, seconds)  # noqa: FBT003
        begun, graph, values = there
        order = values.order
        return LiveFrame(
            structure, graph.structure.number, begun.number, begun.step, running,
            order[-1] if order else -1, len(order), values.norms[:], last, row, seconds,
        )  # fmt: skip

    def series(self) -> tuple[ParameterSeries, ...]:
        """Return what every leaf received, over the kept passes."""
        rows, leaves = self.rows(), list(self.leaves.known)
        norms, updates = [row.norms for row in rows], [row.updates for row in rows]
        stepped = [row.stepped for row in rows] if any(row.stepped for row in rows) else []

        def column(numbers: list[array[float]], at: int) -> array[float]:
            return array("f", [row[at] if at < len(row) else UNTOUCHED for row in numbers])

        # Which share of a parameter's elements stayed where they were, of those that had a gradient.
        lost = {number: stayed / had for number, (stayed, had) in list(self.lost.items()) if had}
        used, touched, replaced = self.used, self._touched.get, self.leaves.replaced
        return tuple([
            ParameterSeries(
                leaf.name, leaf.shape, leaf.dtype, leaf.numel, leaf.is_parameter,
                leaf.requires_grad or touched(number, 0) > 0,  # it was looked at before it was unfrozen
                number in used, leaf.owner, column(norms, number), touched(number, 0), column(updates, number),
                number in replaced, column(stepped, number), lost.get(number, -1.0),
            )
            for number, leaf in enumerate(leaves)
        ])  # fmt: skip


There = tuple[Pass, TracedGraph, PassValues]
