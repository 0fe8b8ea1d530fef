"""A run that is followed: it begins, goes on and ends once for all that listen to it; and the error that ends one.

What may be asked of a run is in `LISTENERS`: a new question is a `Listener` in a file of its own, and a line there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.failures.failures import Surroundings, failure_of
from tensormagic.collectors.gradients.forward_values import PassValues
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.hooks.capturing import Captures, kept_compiled
from tensormagic.collectors.hooks.modes import CallFollower, CallMode, aside, calls_aside
from tensormagic.collectors.hooks.stepping_off import Listener, OperationFollower, SteppingOff
from tensormagic.collectors.hooks.undoing import Undoing, abandon_in_children
from tensormagic.collectors.where.caller import state_after, strip_own_frames
from tensormagic.collectors.where.source import SourceLines
from tensormagic.errors import TraceError
from tensormagic.reports import Cell, FailureReport, Graph, Location, Pass, RunReport
from tensormagic.words import error_text

# By the name of its part of a `RunReport`: where the listener is. In this order they listen; memory comes last, since
# what the others still hold as the run ends is no memory of the run's.
LISTENERS: Mapping[str, tuple[str, str]] = {
    "trace": ("runs.trace", "Tracer"),
    "sampled": ("runs.sampled_trace", "SampledTracer"),  # a trace of some steps
    "writes": ("aliasing.writes", "WriteListener"),
    "draws": ("rng.draws", "DrawListener"),
    "memory": ("memory_runs.recorder", "MemoryRecorder"),
}


class Run:
    """Follows what runs between `start` and `stop`.

    Args:
        listeners: By the name of their part of the report, in the order of `LISTENERS`.

    Attributes:
        listeners: The same.
        state: Where the run stands; shared by all listeners.
    """

    def __init__(self, **listeners: Listener) -> None:
        self.listeners, self._each = listeners, tuple(listeners.values())
        self.state = self._each[0].run
        for each in self._each:
            each.run = self.state
        self._undoing = Undoing()
        self._operations: OperationFollower | None = None
        if hearing := [each.operations for each in self._each if each.operations is not None]:
            self._operations = OperationFollower(hearing)
            self.state.stepping = SteppingOff(self._operations, walk_nodes)

    def start(self) -> None:
        """Begin.

        Raises:
            TraceError: if it was started before, or where it may not be followed.
        """
        run = self.state
        if run.began:
            raise TraceError(self._each[0].used_before)
        try:
            with aside(), calls_aside(0):
                for each in self._each:
                    each.prepare()
        except TraceError as error:  # it never ran, and what is shown of it must not say that it runs
            run.state, run.error = "failed", error_text(error)
            raise
        run.began = run.clock()
        with aside(), calls_aside(0):
            for each in self._each:
                each.begin()
        abandon_in_children(self)
        with self._undoing as undoing:
            for each in self._each:
                each.enter(undoing)
            if self._operations is not None and run.stepping is not None:
                undoing.callback(self._operations.forget)
                run.stepping.enter(undoing)
                undoing.enter_context(self._operations)
        for each in self._each:
            each.entered()

    def stop(self, error: BaseException | None = None, frame: FrameType | None = None) -> None:
        """End, saying how; stopping twice is the same as once.

        Args:
            error: The exception that ended the run, or None.
            frame: Of the function whose block this was: its variables are names, too.
        """
        run = self.state
        if run.state != "running":
            return
        if not run.ended:
            for each in reversed(self._each):
                each.last_look()
            self._undoing.close()
            run.ended = run.clock()
        with aside(), calls_aside(0):
            for each in self._each:
                each.finish(error, frame)
        run.state = state_after(error)
        run.error = error_text(error) if error is not None else ""
        if error is not None:
            with aside(), calls_aside(0):
                for each in self._each:
                    each.explain(error)
            strip_own_frames(error)
        for each in self._each:
            each.ended()

    def abandon(self) -> None:
        """End at once: in a process that was forked from this one, or where beginning or ending was interrupted."""
        self._undoing.close()
        if self.state.state == "running":
            self.state.state, self.state.ended = "interrupted", self.state.clock()
        for each in reversed(self._each):
            each.abandon()

    def report(self) -> Any:
        """Return everything known so far: what the one listener reports, or a `RunReport` of all."""
        if len(self._each) == 1:
            return self._each[0].report()
        parts = {name: each.report() for name, each in self.listeners.items()}
        return RunReport(**self.state.fields(), title=parts["trace"].title, **parts)


def listener(question: str, *arguments: Any, **keywords: Any) -> Any:
    """Return the listener that answers a question, given what it takes; only then is it imported."""
    module, name = LISTENERS[question]
    return getattr(import_module(f"tensormagic.collectors.{module}"), name)(*arguments, **keywords)


MODE_CALLS = frozenset({CallMode.__torch_function__.__code__})


# The call that ended a traced run: what is in the exception, and what only the tracer knows of it.

Last = tuple[Pass, TracedGraph, PassValues]


class TracedFailure:
    """What is known of the call that torch refused, where one ended the run.

    Args:
        recorder: The mode that was on, which knows where nodes were made.
        sites: The lines met so far.
        namespace: Where names are looked up.
    """

    def __init__(self, recorder: ForwardRecorder, sites: SourceLines, namespace: Mapping[str, Any]) -> None:
        self._origins, self._sites = recorder.origins, sites
        self._around = Surroundings(
            namespace, sites.cell_number, MODE_CALLS,
            origin=self._origin, origins=recorder.origins,
        )  # fmt: skip
        self._found: FailureReport | None = None
        self._node: tuple[int, int] | None = None

    def note(self, error: BaseException, last: Last | None) -> None:
        """Read the exception that ended the run.

        Args:
            error: As it came, with the tracer's frames.
            last: The last pass, its graph and its numbers.
        """
        self._found = failure_of(error, self._around)
        if self._found is not None and self._found.phase == "backward" and last is not None:
            done, graph, values = last
            if done.outcome == "failed" and values.order:
                self._node = (graph.structure.number, values.order[-1])

    def report(self, graphs: tuple[Graph, ...]) -> FailureReport | None:
        """Return what is known, or None.

        Args:
            graphs: Those of the trace, in its order: the node that was running is in one of them.
        """
        if self._found is None or self._node is None:
            return self._found
        number, node = self._node
        places = [at for at, graph in enumerate(graphs) if graph.number == number]
        return dataclasses.replace(self._found, node=(places[0], node)) if places else self._found

    def _origin(self, tensor: torch.Tensor) -> Location | None:
        """Return the line that made a tensor."""
        maker = tensor.grad_fn
        return None if maker is None else self._sites.location(self._origins.origin_of(maker._sequence_nr())[0])


class FailureListener(Listener):
    """Reads the exception that ends a run.

    Args:
        namespace: Where names are looked up, besides the functions that were running.

    Attributes:
        found: What is known of the call that torch refused; None where there was none.
    """

    used_before = "this was used before; make a new one with tensormagic.explain()"

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        super().__init__(namespace, Cell("", None, ()))
        self._around = Surroundings(namespace, None, MODE_CALLS)
        self.found: FailureReport | None = None

    def enter(self, undoing: Undoing) -> None:
        """Put the function mode into torch."""
        mode = CallFollower()
        undoing.enter_context(mode)
        undoing.enter_context(kept_compiled(mode))
        undoing.enter_context(Captures(mode.leave_alone))

    def explain(self, error: BaseException) -> None:
        """Find the call in the exception's traceback."""
        self.found = failure_of(error, self._around)

    def report(self) -> FailureReport | None:
        """Return what is known of the call that torch refused; None where there was none."""
        return self.found
