"""Follows a run: records the forward, hooks every backward, and can say at any moment what has happened so far.

While a trace is on, one function mode is on torch's stack and nothing else; node hooks exist only for the duration
of a backward call. Everything that is kept is plain numbers. The report can be asked for from another thread while
the run goes on: it is put together from immutable pieces.
"""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import RLock, get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from tensormagic.collectors import devices
from tensormagic.collectors.calls.forward import ForwardRecorder, look_at_pass
from tensormagic.collectors.devices import DeferredWork, Stopwatch
from tensormagic.collectors.failures.failures import Surroundings, failure_of
from tensormagic.collectors.gradients import pass_log
from tensormagic.collectors.gradients.gradient_statistics import PassValues, SmallPass
from tensormagic.collectors.gradients.gradients import PassRecorder
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.gradients.traced_graph import GraphBook, TracedGraph
from tensormagic.collectors.graphs.live_nodes import NodeThreads
from tensormagic.collectors.graphs.structure import Walk, Walker, start_nodes
from tensormagic.collectors.hooks.capturing import Captures, compiles_backward
from tensormagic.collectors.hooks.mode_suspension import Listener
from tensormagic.collectors.hooks.modes import aside, calls_aside, ours_are_on, unseen
from tensormagic.collectors.hooks.replacing import BackwardCall, followed_backward, noted_dual_levels, plain_stacks
from tensormagic.collectors.hooks.undo_stack import UndoStack, forks
from tensormagic.collectors.objects.identity import Leaves, ModuleNames
from tensormagic.collectors.quiet import unwrap
from tensormagic.collectors.runs.run import ASKED_PARTS, TRACE_PARTS, made
from tensormagic.collectors.where.caller import Microbatches, infers_shapes, sequence_number, uncounted
from tensormagic.errors import NonFiniteError
from tensormagic.reports import UNTOUCHED, Cell, FailureReport, Gap, Graph, LiveFrame, Location, Pass, TraceReport
from tensormagic.reports.base import gc_paused
from tensormagic.words import error_text

if TYPE_CHECKING:
    from tensormagic.collectors.runs.ops import OpRecorder

_AGAIN = "one pass went through the same graph several times: the first time is shown"
_CAPTURING = "a backward was recorded into a CUDA graph and not followed: nothing of a trace may be in it"
_FORWARDS = "{} takes derivatives forwards (jvp, dual numbers): that builds no graph to be shown"
_RUNNING = "a backward on another thread was still running when the trace ended: it was not kept"
_UNREAD = "what was measured on a device could not be read: {}"
_UNADDED = "inside one pass, several others gave a parameter a gradient: their sum was not measured"

_PASS_EVENTS = (
    "pass_called", "graph_begins", "begin_pass", "before_pass", "end_pass", "keep_pass", "after_pass", "look_early",
    "forget",
)  # fmt: skip


class Tracer(Listener):
    """Traces a run; made as a `Listener` is, with the title by default that of the model."""

    used_before = "this trace was used before; make a new one with tensormagic.trace()"
    keeps_values = False  # the numbers of all tensors that have few elements; said before `start`

    _share = 1.0  # of the run's seconds, of which what is measured beyond norms may take its share

    def __init__(self, namespace: Mapping[str, Any], cell: Cell, **options: Any) -> None:
        super().__init__(namespace, cell, **options)
        self._modules = ModuleNames(namespace)
        self._leaves = Leaves(namespace, self._modules)
        self._recorder = self._new_recorder()
        self._lock = RLock()  # backward may run on several threads at once
        self._late = DeferredWork(
            lambda error: self._add_gap("gradients", _UNREAD.format(error_text(error))), self._lock
        )
        self._passes = pass_log.PassLog(self._leaves, self._late)
        self._walker = Walker(self._recorder.origins, self._leaves)
        self._shared = TraceContext(
            namespace, self._sites, self._leaves, self._recorder, self._late, self._passes, lambda: self.run.seconds,
            self._passes_begun,
        )  # fmt: skip
        self._add_gap = self._shared.add_gap
        self._parts = self._shared.parts
        for name, where in TRACE_PARTS.items():
            self._parts[name] = made(where, self._shared)
        self._captures = self._shared.captures = Captures(self._recorder, self._parts["updates"])
        self._on: dict[str, tuple[TracePart, ...]] = {}
        self._graphs = GraphBook(self._walker, self._leaves, self._recorder.origins, namespace, self._add_gap)
        self._microbatches = Microbatches()
        self._running: list[Following] = []
        self._begun = self._home = 0
        self._sequence_at_last_pass = -1
        self._step = self._structure = 0
        self._backward_seconds = 0.0
        self._forks = self._forked = 0

    def ask(self, name: str, *given: Any) -> Any:
        """Add one of `ASKED_PARTS`, and return it; said before `start`."""
        self._parts[name] = part = made(ASKED_PARTS[name], self._shared, *given)
        return part

    @property
    def _ops(self) -> OpRecorder | None:
        return self._parts.get("ops")

    def stop_at_non_finite(self) -> None:
        """End the run at the first NaN or Inf; said before `start`."""
        self._recorder.stops = True

    def _new_recorder(self) -> ForwardRecorder:
        return ForwardRecorder(self._sites, self._modules)

    def begin(self) -> None:
        """Note where the run begins."""
        self._forks = forks()
        self._home, self._walker.node_threads = get_ident(), NodeThreads()
        self._on = {event: pass_log.hearing(self._parts.values(), event) for event in _PASS_EVENTS}
        self._recorder.origins.begin()

    def enter(self, undoing: UndoStack) -> None:
        """Put the function mode and all else into torch."""
        undoing.enter_context(plain_stacks())
        undoing.enter_context(followed_backward(self))
        undoing.enter_context(noted_dual_levels(self._note_forward_mode))
        undoing.enter_context(self._recorder)
        for part in self._parts.values():
            part.enter(undoing)
        if self._ops is not None:
            self._captures.dispatch.append(self._ops.follower)
        undoing.enter_context(self._captures)

    def abandon(self) -> None:
        """Let go of what devices still have to tell."""
        self._late.drop()
        for part in self._parts.values():
            part.abandon()

    def ended(self) -> None:
        """Let what looks at the run while it goes on ask for all of it once more."""
        self._structure += 1

    def finish(self, error: BaseException | None, frame: FrameType | None) -> None:  # noqa: ARG002  (a listener's)
        """Ask everybody for what can only be known at the end."""
        self._forked = forks() - self._forks
        self._late.finish()
        with gc_paused():
            self._leaves.learn_parameters()
            for part in self._parts.values():
                part.finish(error)
        if self._running:
            self._add_gap("backward", _RUNNING)

    def explain(self, error: BaseException) -> None:
        """Look into the call that failed."""
        for part in self._parts.values():
            part.explain(error)

    @uncounted
    def follow(self, call: BackwardCall) -> Any:
        """Make a backward call, on whatever thread and inside whatever else, and follow it; see `followed_backward`."""
        captured = torch._C._get_tracing_state() is not None  # by TorchScript's tracer
        if captured or pass_log.is_being_compiled() or infers_shapes():
            return call.run()
        if compiles_backward():
            return self._captures.run_backward(call.run)
        if devices.there.capturing():
            self._add_gap("backward", _CAPTURING)
            return call.run()
        self._late.poll()
        followed = Following(get_ident(), self.run.clock(), call.between_compiled, ours_are_on())
        try:
            with aside(), calls_aside(1):
                self._prepare(call.roots, followed)
                for part in self._on["before_pass"]:
                    part.before_pass(call, followed)
            self._backward_seconds += self.run.clock() - followed.began
            result = call.run()
            followed.outcome = "finished"
            with aside(), calls_aside(1):
                self._observe_results(followed, call, result)
            return result
        finally:
            with aside(), calls_aside(1), gc_paused():
                self._finish(followed, call)
                for part in self._on["after_pass"]:
                    part.after_pass(call, followed)
                self._look_early(followed)
            stops = self._recorder.stops and followed.is_open and followed.outcome == "finished"
            if stops and (values := followed.recorder.values).bad:
                lines = {at: line.label for at, line in enumerate(self._sites.locations)}
                look_at_pass(followed.graph.report(), values, lines)

    def _look_early(self, followed: Following) -> None:
        """Ask after passes 2, 4, 8, … what may be gone when the run ends. Never raises."""
        number = followed.done.number if followed.is_open and followed.thread == self._home else 0
        if number > 1 and number & (number - 1) == 0:
            try:
                self._leaves.learn_parameters()
                for part in self._on["look_early"]:
                    part.look_early()
            except Exception as error:  # what a user's module answers by code of its own
                self._add_gap("modules", f"models could not be looked at before the run ended: {error_text(error)}")

    def _prepare(self, roots: tuple[Any, ...], followed: Following) -> None:
        """Walk the graph and hook it; where that cannot be done, a gap. Never raises."""
        try:
            followed.caller = sys._getframe(2)
            followed.site = self._sites.of_frame(followed.caller)
            followed.come_back = self._recorder.out_of_engine()
            for part in self._on["pass_called"]:
                part.pass_called(roots, followed)
            nodes = start_nodes(roots)
            with self._lock, gc_paused(), self._leaves.seen_from(followed.caller):
                followed.pass_context = pass_log.pass_context(self._running, self._home)
                if nodes:
                    found = self._walker.walk(nodes)
                    if (graph := self._graph_of(found, inner=followed.is_inner)) is not None:
                        self._open(found, graph, followed, roots)
        except Exception as error:
            self._add_gap("backward", f"a backward could not be traced: {error_text(error)}")

    def _graph_of(self, found: Walk, *, inner: bool) -> TracedGraph | None:
        before = len(self._graphs)
        graph = self._graphs.of(found, inner=inner)
        if graph is not None and len(self._graphs) > before:
            self._passes.use(graph.structure)
            for part in self._on["graph_begins"]:
                part.graph_begins(found, graph)
            self._structure += 1
        return graph

    def _open(self, found: Walk, graph: TracedGraph, followed: Following, roots: tuple[Any, ...]) -> None:
        number = self._number_of(followed)
        full = graph.wants_statistics(self.run.seconds * self._share)
        values = PassValues.of(number, graph.structure.size, full=full)
        few = self.keeps_values or (graph.is_small and graph.frames.keeps_next)
        if few and not (followed.levels or followed.between_compiled):
            values.small = SmallPass(found, graph.structure, self._recorder.small.made)
        hooked, wrapped = self._recorder.autograd.hooked, bool(followed.levels)
        recorder = PassRecorder(found, graph, values, hooked=hooked, wrapped=wrapped)
        followed.done = Pass(number, self._step, graph.structure.number, "running", 0.0, 0, followed.site,
                             pass_context=followed.pass_context)  # fmt: skip
        followed.graph, followed.recorder, followed.found, followed.is_open = graph, recorder, found, True
        self._running.append(followed)  # before the first hook: from now on `_finish` takes them away
        inside = [] if followed.between_compiled else [found.nodes[place] for place in graph.python_places]
        if inside:
            followed.python_backwards = pass_log.PythonBackwards(inside, self._recorder.put_on_top, self._home)
        for part in self._on["begin_pass"]:
            part.begin_pass(found, followed)
        followed.clock = Stopwatch(roots)
        recorder.open(unseen if followed.is_seen else None, between_compiled=followed.between_compiled)
        if followed.python_backwards is not None:
            followed.python_backwards.open(inside)
        if len(roots) == 1 and isinstance(root := unwrap(roots[0]), torch.Tensor) and root.numel() == 1:
            recorder.observe_value(root)
            self._graphs.look_back(graph, found, values)

    def _passes_begun(self) -> int:
        return self._begun

    def _number_of(self, followed: Following) -> int:
        """Return the number of a pass that begins; one inside another has that one's.

        A pass is of a step of its own where nodes were made since the last one, or where it is on a thread.
        """
        context = followed.pass_context
        if context is not None and context.inside:
            return context.inside
        self._begun += 1
        if context is not None and context.thread:
            self._step += 1
        elif (of_pipeline := self._microbatches.begin_step()) is not None:
            self._step += of_pipeline
        else:
            self._step += followed.sequence != self._sequence_at_last_pass
        return self._begun

    def _finish(self, followed: Following, call: BackwardCall) -> None:
        """Take the hooks away and keep the numbers, however the backward ended. Never raises."""
        if followed.python_backwards is not None:
            followed.python_backwards.close()
        if followed.come_back is not None:
            followed.come_back()
            self._recorder.note_backward(followed.sequence, followed.caller)
        try:
            self._end_pass(followed, call)
        except Exception as error:
            self._add_gap("backward", f"a backward could not be traced to its end: {error_text(error)}")
            with self._lock:
                self._running = [other for other in self._running if other is not followed]

    def _end_pass(self, followed: Following, call: BackwardCall) -> None:
        if not followed.is_open or (found := followed.found) is None:
            return
        graph, recorder = followed.graph, followed.recorder
        followed.clock.end()
        recorder.close()
        graph.collects |= call.accumulates
        for part in self._on["end_pass"]:
            part.end_pass(found, followed, call, sys.exc_info()[1] if followed.outcome == "failed" else None)
        followed.found = followed.caller = found = None
        with self._lock:
            self._running = [other for other in self._running if other is not followed]
            if self.run.state == "running":
                entered = self.run.clock()
                if get_ident() == self._home:
                    self._sequence_at_last_pass = sequence_number()
                if not self._running:
                    self._recorder.origins.settle()
                self._backward_seconds += recorder.seconds + self.run.clock() - entered
                forward = recorder.values.forward
                arrival = recorder.arrival or (forward.far if forward is not None else None)
                if arrival is not None or self._late:
                    self._passes.expect(graph.structure, recorder.values)
                keeping = [keep for part in self._on["keep_pass"] if (keep := part.keep_pass(followed)) is not None]
                followed.seconds, followed.returned = entered - followed.began, not call.accumulates
                self._late.then(arrival, partial(self._keep_pass, followed, keeping))

    def _keep_pass(self, followed: Following, keeping: Iterable[Callable[[Pass], None]]) -> None:
        """Keep the numbers of a pass that has ended: at once, or when they have come from a device."""
        graph, recorder = followed.graph, followed.recorder
        entered, values = self.run.clock(), recorder.values
        self._passes.came()
        recorder.read()
        seconds = followed.clock.seconds()
        done = dataclasses.replace(
            followed.done, outcome=followed.outcome, reduced=followed.reduced, returned=followed.returned,
            seconds=followed.seconds if seconds is None else seconds,
            reached=len(set(values.order)), finite=not values.bad, value=values.value,
        )  # fmt: skip
        if values.forward is not None:
            values.forward.fetch()
        if not graph.add(values, recorder.statistics_seconds):
            self._add_gap("backward", _AGAIN)
        if values.loss_gap:
            self._add_gap("loss", values.loss_gap)
        if values.gap:
            self._add_gap("gradients", f"some gradients could not be measured: {values.gap}")
        if not self._passes.append(done, graph.structure, values):
            self._add_gap("gradients", _UNADDED)
        self._shared.last = (done, graph, values)
        for keep in keeping:
            keep(done)
        self._backward_seconds += self.run.clock() - entered

    def _observe_results(self, followed: Following, call: BackwardCall, result: Any) -> None:
        """Record what ``autograd.grad`` returns. Never raises.

        What it is asked for is taken out before it reaches the node that made it, or the leaf: no hook sees it there.
        """
        if call.accumulates:
            return
        try:
            if followed.is_open:
                structure, recorder = followed.graph.structure, followed.recorder
                places = {id(node): index for index, node in zip(structure.index, followed.nodes, strict=True)}
                found: dict[int, list[torch.Tensor]] = {}
                for asked, gradient in zip(call.inputs, result, strict=False):
                    is_leaf = isinstance(asked, torch.Tensor) and asked.grad_fn is None
                    node = getattr(asked, "grad_fn" if isinstance(asked, torch.Tensor) else "node", None)
                    number = self._leaves.number(unwrap(asked)) if is_leaf else -1
                    index = structure.index_of_leaf.get(number) if is_leaf else places.get(id(node))
                    if index is not None and isinstance(gradient, torch.Tensor):
                        found.setdefault(index, []).append(gradient)
                for index, gradients in found.items():
                    if recorder.values.norms[index] == UNTOUCHED:
                        recorder.received(index, None, None, gradients)
            if not (call.creates or followed.levels):
                detached = self._recorder.detached
                detached.guarded(detached.returned, result, call.roots, call.inputs, followed.caller)
        except Exception as error:
            self._add_gap("gradients", f"what a backward returned was not measured: {error_text(error)}")

    def _note_forward_mode(self, frame: FrameType) -> None:
        site = None if get_ident() != self._home or pass_log.is_being_compiled() else self._sites.of_frame(frame)
        if site is not None:
            self._add_gap("backward", _FORWARDS.format(self._sites.locations[site].label))

    @property
    def own_seconds(self) -> float:
        """The part of it that went by in the tracer's own code."""
        parts: float = sum(part.seconds for part in self._parts.values())
        return self._recorder.own_seconds + self._backward_seconds + parts

    def frame(self) -> LiveFrame:
        """Return what changes while the run goes on; cheap, callable from any thread."""
        current = next(iter(self._running), None)  # the outermost
        there = self._shared.last if current is None else (current.done, current.graph, current.recorder.values)
        running = current is not None
        return self._passes.frame(there, self._structure, self._step, self.run.seconds, running=running)

    def leaves_met(self) -> list[weakref.ref[torch.Tensor]]:
        """Return weak references to the leaves that the run met, behind a cut too, and to its models' parameters."""
        met: list[weakref.ref[torch.Tensor]] = self._parts["detachments"].leaves_met()
        return [leaf.reference for leaf in self._leaves.known] + met

    def report(self) -> TraceReport:
        """Return everything known so far; consistent also while the run goes on."""
        if get_ident() == self._home and not devices.there.capturing():  # elsewhere nobody waits for a device
            self._late.finish()
        parts = list(self._parts.values())
        graphs = tuple(self._parts["detachments"].completed(each.report()) for each in self._graphs.by_use())
        fields = {name: field for part in parts for name, field in part.fields(graphs).items()}
        captured = [Gap("calls", self._captures.gap)] if self._captures.gap else []
        seen = (*self._recorder.gaps(), *self._sites.gaps(), *(gap for part in parts for gap in part.gaps()))
        return TraceReport(
            title=self._title or self._leaves.model_names(self._passes.used), **self.run.fields(),
            own_seconds=self.own_seconds, graphs=graphs, parameters=self._passes.series(),
            passes=tuple(row.done for row in self._passes.rows()), passes_seen=self._passes.kept.seen,
            inner_passes=self._passes.inner.items(), inner_passes_seen=self._passes.inner.seen,
            steps_seen=self._step, forward_nodes=self._recorder.origins.nodes, forked=self._forked,
            gaps=(*self._shared.gaps.values(), *captured, *seen), observations=self._recorder.calls.observations(),
            **fields,
            locations=self._sites.locations,  # last: what is above has its line, also while the run goes on
        )  # fmt: skip


class TracedFailure(TracePart):
    """The call that torch refused, where one ended the run: what is in the exception, and what only the trace knows."""

    def __init__(self, trace: TraceContext) -> None:
        self._trace, self._errors, origins = trace, trace.parts["errors"], trace.recorder.origins
        number = trace.sites.cell_number
        self._around = Surroundings(trace.namespace, number, origin=self._origin, origins=origins)
        self._found: FailureReport | None = None
        self._node: tuple[int, int] | None = None

    def explain(self, error: BaseException) -> None:
        """Read the exception that ended the run, as it came, with the tracer's frames."""
        if isinstance(error, NonFiniteError):
            return
        self._found = failure_of(error, self._around)
        if self._found is not None and self._found.phase == "backward" and self._trace.last is not None:
            done, graph, values = self._trace.last
            if done.outcome == "failed" and values.order:
                self._node = (graph.structure.number, values.order[-1])

    def fields(self, graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what is known, with the node that was running, and why a backward raised."""
        found = self._found
        if found is not None and self._node is not None:
            number, node = self._node
            places = [at for at, graph in enumerate(graphs) if graph.number == number]
            found = dataclasses.replace(found, node=(places[0], node)) if places else found
        return {"failure": self._errors.explained(found, graphs)}

    def _origin(self, tensor: torch.Tensor) -> Location | None:
        if (maker := tensor.grad_fn) is None:
            return None
        return self._trace.sites.location(self._trace.recorder.origins.origin_of(maker._sequence_nr())[0])
