"""Follows a run: records the forward, hooks every backward, and can say at any moment what has happened so far.

While a trace is on, one function mode is on torch's stack and nothing else; node hooks exist only for the duration
of a backward call. Everything that is kept is plain numbers. The report can be asked for from another thread while
the run goes on: it is put together from immutable pieces.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import torch

from tensormagic.collectors.compiled import kept_compiled
from tensormagic.collectors.forward import ForwardRecorder, active_modes
from tensormagic.collectors.gradients import PassRecorder, PassValues
from tensormagic.collectors.identity import Leaves, ModuleNames
from tensormagic.collectors.nodes import describe_nodes
from tensormagic.collectors.skeleton import Skeleton, Walk, Walker, make_skeleton
from tensormagic.collectors.source import CellNumber, Sites
from tensormagic.collectors.timeline import Thinned
from tensormagic.collectors.tracebacks import error_text, strip_own_frames
from tensormagic.collectors.traced_graph import MOST_PASSES, TracedGraph, passes_to_keep
from tensormagic.errors import TraceError
from tensormagic.reports import (
    UNTOUCHED,
    Cell,
    Gap,
    LiveFrame,
    ParameterSeries,
    Pass,
    State,
    TraceReport,
)

MAX_GRAPHS = 32  # structures kept; a graph that differs in every step would fill memory

_REENTRANT = (
    "checkpoint with use_reentrant=True runs another backward inside this one: the gradients in it were not measured"
)


class Tracer:
    """Traces what runs between `start` and `stop`.

    Args:
        namespace: Where names are looked up; read, never written, and not copied.
        cell: The source that is traced, for the report.
        cell_number: Gives a cell's execution count from its file name.
        title: A name for the run; by default that of the model.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        cell: Cell,
        *,
        cell_number: CellNumber | None = None,
        title: str = "",
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._namespace = namespace
        self._cell = cell
        self._title = title
        self._clock = clock
        self._sites = Sites(cell_number) if cell_number is not None else Sites()
        self._modules = ModuleNames(namespace)
        self._leaves = Leaves(namespace, self._modules)
        self._recorder = ForwardRecorder(self._sites, self._modules, self._run_backward)
        self._walker = Walker(self._recorder.origins, self._leaves)
        self._stack = ExitStack()
        self._graphs: list[TracedGraph] = []
        self._passes: Thinned[tuple[Pass, array[float]]] = Thinned(MOST_PASSES)
        self._touched: dict[int, int] = {}
        self._used: set[int] = set()
        self._gaps: dict[str, Gap] = {}
        self._current: tuple[Pass, TracedGraph, PassRecorder] | None = None
        self._last: tuple[Pass, TracedGraph, PassValues] | None = None
        self._calls_at_last_pass = -1
        self._step = 0
        self._structure = 0
        self._backward_seconds = 0.0
        self._state: State = "running"
        self._error = ""
        self._began = self._ended = 0.0

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin.

        Raises:
            TraceError: if it was started before, or if another trace is on in this thread.
        """
        if self._began:
            raise TraceError("this trace was started before; make a new one with tensormagic.trace()")
        if any(isinstance(mode, ForwardRecorder) for mode in active_modes()):
            raise TraceError("another trace is on in this thread; end it first: two would measure each other")
        self._began = self._clock()
        self._recorder.origins.begin()
        with ExitStack() as stack:
            stack.enter_context(self._recorder)
            stack.enter_context(kept_compiled(self._recorder))
            self._stack = stack.pop_all()

    def stop(self, error: BaseException | None = None) -> None:
        """End, saying how: with the exception that ended the run, or None. Stopping twice is the same as once."""
        if self._state != "running":
            return
        self._stack.close()
        self._ended = self._clock()
        self._leaves.learn_parameters()
        self._state = _state_after(error)
        self._error = error_text(error) if error is not None else ""
        if error is not None:
            strip_own_frames(error)
        self._current = None
        self._structure += 1

    # -- backward -------------------------------------------------------------------------------------------------

    def _run_backward(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: int | None) -> Any:
        if self._current is not None:  # a backward inside a backward: only the outer one is followed
            return func(*args, **kwargs)
        began, outcome = self._clock(), "failed"
        try:
            self._prepare(_roots(func, args, kwargs), site)
            self._backward_seconds += self._clock() - began
            result = func(*args, **kwargs)
            outcome = "finished"
            self._observe_results(func, args, kwargs, result)
            return result
        finally:
            self._finish(outcome, began)

    def _prepare(self, roots: tuple[Any, ...], site: int | None) -> None:
        """Walk the graph and hook it; where that cannot be done, a gap. Never raises."""
        try:
            nodes = [node for node in map(_node_of, roots) if node is not None]
            if nodes and torch._C._functorch.peek_interpreter_stack() is not None:
                self._add_gap("backward", "a backward inside a torch.func transform was not followed")
            elif nodes:
                found = self._walker.walk(nodes)
                if (graph := self._graph_of(found)) is not None:
                    self._open(found, graph, site, roots)
        except Exception as error:
            self._add_gap("backward", f"a backward was not followed: {type(error).__name__}: {error}")

    def _graph_of(self, found: Walk) -> TracedGraph | None:
        for graph in self._graphs:
            if graph.skeleton.signature == found.signature:
                found.signature = graph.skeleton.signature  # the same, once
                return graph
        if len(self._graphs) == MAX_GRAPHS:
            self._add_gap("graphs", f"more than {MAX_GRAPHS} different graphs: passes through others were not kept")
            return None
        skeleton = make_skeleton(len(self._graphs) + 1, found)
        origins = self._recorder.origins
        graph = TracedGraph(skeleton, describe_nodes(found, skeleton, self._leaves, origins, self._namespace))
        self._graphs.append(graph)
        if any(node.name.startswith("CheckpointFunction") for node in graph.nodes):
            self._add_gap("backward", _REENTRANT)
        self._used.update(skeleton.leaf_of.values())
        self._passes.capacity = passes_to_keep(len(self._leaves.known))
        self._structure += 1
        return graph

    def _open(self, found: Walk, graph: TracedGraph, site: int | None, roots: tuple[Any, ...]) -> None:
        if self._recorder.origins.nodes != self._calls_at_last_pass:
            self._step += 1
        full = graph.wants_statistics(self.seconds)
        values = PassValues.of(self._passes.seen + 1, graph.skeleton.size, full=full)
        recorder = PassRecorder(found, graph.skeleton, values, graph.first)
        begun = Pass(self._passes.seen + 1, self._step, graph.skeleton.number, "running", 0.0, 0, site)
        self._current = (begun, graph, recorder)  # before the first hook: from now on `_finish` takes them away
        recorder.open()
        if len(roots) == 1 and isinstance(roots[0], torch.Tensor) and roots[0].numel() == 1:
            recorder.observe_value(roots[0])

    def _finish(self, outcome: str, began: float) -> None:
        """Take the hooks away and keep the numbers, however the backward ended. Never raises."""
        if self._current is None:
            return
        (begun, graph, recorder), self._current = self._current, None
        recorder.close()
        entered = self._clock()
        values = recorder.values
        done = Pass(begun.number, begun.step, begun.graph, outcome, entered - began, len(set(values.order)),
                    begun.location, not values.bad, values.value)  # fmt: skip
        graph.add(values, recorder.survey_seconds)
        if values.gap:
            self._add_gap("gradients", f"some gradients could not be measured: {values.gap}")
        self._passes.append((done, self._parameter_row(graph.skeleton, values)), pin=bool(values.bad))
        self._last = (done, graph, values)
        self._calls_at_last_pass = self._recorder.origins.nodes
        self._recorder.origins.settle()
        self._backward_seconds += recorder.seconds + self._clock() - entered

    def _observe_results(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Record what ``autograd.grad`` returns: those gradients reach no leaf, so no hook sees them."""
        if func is not torch.autograd.grad or self._current is None:
            return
        _, graph, recorder = self._current
        inputs = kwargs.get("inputs", args[1] if len(args) > 1 else ())
        by_leaf = {leaf: index for index, leaf in graph.skeleton.leaf_of.items()}
        for tensor, gradient in zip(_as_tuple(inputs), _as_tuple(result), strict=False):
            if isinstance(tensor, torch.Tensor) and tensor.is_leaf and isinstance(gradient, torch.Tensor):
                index = by_leaf.get(self._leaves.number(tensor))
                if index is not None:
                    recorder.observe_result(index, gradient)

    def _parameter_row(self, skeleton: Skeleton, values: PassValues) -> array[float]:
        norms = array("f", [UNTOUCHED]) * len(self._leaves.known)
        for index, leaf in skeleton.leaf_of.items():
            norms[leaf] = values.norms[index]
            if values.norms[index] != UNTOUCHED:
                self._touched[leaf] = self._touched.get(leaf, 0) + 1
        return norms

    def _add_gap(self, section: str, reason: str) -> None:
        self._gaps.setdefault(reason, Gap(section, reason))

    # -- what is known so far -------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Wall time so far, or in all; none before it began, when a live panel is shown already."""
        return (self._ended or self._clock()) - self._began if self._began else 0.0

    def frame(self) -> LiveFrame:
        """Return what changes while the run goes on; cheap, callable from any thread."""
        current = self._current
        if current is not None:
            begun, graph, values = current[0], current[1], current[2].values
        elif self._last is not None:
            begun, graph, values = self._last
        else:
            return LiveFrame(
                structure=self._structure, graph=0, pass_number=0, step=self._step, running=False, cursor=-1, reached=0,
                norms=array("f"), finished_pass=0, parameter_norms=array("f"), seconds=self.seconds,
            )  # fmt: skip
        order = values.order
        finished = self._passes.items()
        last, row = (finished[-1][0].number, finished[-1][1]) if finished else (0, array("f"))
        return LiveFrame(
            self._structure, graph.skeleton.number, begun.number, begun.step, current is not None,
            order[-1] if order else -1, len(order), values.norms[:], last, row, self.seconds,
        )  # fmt: skip

    def report(self) -> TraceReport:
        """Return everything known so far; consistent also while the run goes on."""
        passes = self._passes.items()
        graphs = sorted((graph.report() for graph in list(self._graphs)), key=lambda g: (-g.passes_seen, g.number))
        return TraceReport(
            title=self._title or self._model_name(),
            state=self._state,
            error=self._error,
            cell=self._cell,
            seconds=self.seconds,
            own_seconds=self._recorder.seconds + self._backward_seconds,
            locations=self._sites.locations,
            graphs=tuple(graphs),
            passes=tuple(done for done, _ in passes),
            passes_seen=self._passes.seen,
            steps_seen=self._step,
            forward_nodes=self._recorder.origins.nodes,
            parameters=tuple(self._parameter(number, passes) for number in range(len(self._leaves.known))),
            gaps=(*self._gaps.values(), *self._forgotten()),
        )

    def _parameter(self, number: int, passes: tuple[tuple[Pass, array[float]], ...]) -> ParameterSeries:
        leaf = self._leaves.known[number]
        return ParameterSeries(
            leaf.name, leaf.shape, leaf.dtype, leaf.numel, leaf.is_parameter, leaf.requires_grad,
            number in self._used, leaf.owner,
            array("f", [row[number] if number < len(row) else UNTOUCHED for _, row in passes]),
            self._touched.get(number, 0),
        )  # fmt: skip

    def _forgotten(self) -> tuple[Gap, ...]:
        count = self._recorder.origins.lost
        reason = f"{count} nodes were made so many calls before their backward that their lines were forgotten"
        return (Gap("source", reason),) if count else ()

    def _model_name(self) -> str:
        owners = [leaf.owner for leaf in list(self._leaves.known) if leaf.owner]
        return owners[0] if owners else ""


def _state_after(error: BaseException | None) -> State:
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Return one thing or several as a tuple; a ``GradientEdge`` is one thing, although it is a tuple."""
    return tuple(value) if isinstance(value, list | tuple) and not hasattr(value, "output_nr") else (value,)


def _roots(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a backward call starts from: tensors, or gradient edges."""
    key = "self" if func is torch.Tensor.backward else "outputs" if func is torch.autograd.grad else "tensors"
    return _as_tuple(args[0] if args else kwargs.get(key, ()))


def _node_of(root: Any) -> Any:
    """Return the node that a backward starts from; a ``GradientEdge`` is a named tuple that holds it."""
    return getattr(root, "node" if isinstance(root, tuple) else "grad_fn", None)
