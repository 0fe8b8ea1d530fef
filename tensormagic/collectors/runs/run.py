"""A run that is followed: it begins, goes on and ends once for all that listen to it; and the error that ends one.

What may be asked of a run is in `LISTENERS`: a new question is a `Listener` in a file of its own, and a line there.
What a trace, one of them, may be asked is in `TRACE_PARTS`: likewise, a `TracePart` in a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import FrameType
from typing import Any

from tensormagic.collectors.failures.failures import Surroundings, failure_of
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.hooks.capturing import Captures
from tensormagic.collectors.hooks.mode_suspension import Listener, ModeSuspension, OperationFollower
from tensormagic.collectors.hooks.modes import CallFollower, aside, calls_aside
from tensormagic.collectors.hooks.undo_stack import UndoStack, abandon_in_children
from tensormagic.collectors.where.caller import state_after, strip_own_frames
from tensormagic.errors import TraceError
from tensormagic.reports import Cell, FailureReport, RunReport
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

# By name: where the part is, each made with the `TraceContext`. In this order they are made, and look at what happens.
TRACE_PARTS: Mapping[str, tuple[str, str]] = {
    "detachments": ("detachment.detachment_log", "DetachmentLog"),
    "training": ("training.training", "TrainingWatcher"),
    "errors": ("autograd_errors.failed_backward", "AutogradErrors"),
    "parallel": ("training.parallel", "ParallelWatcher"),
    "updates": ("training.updates", "UpdateWatcher"),
    "failure": ("runs.trace", "TracedFailure"),
    "modules": ("training.habits", "ModuleWatch"),
    "unused_graphs": ("training.habits", "UnusedGraphs"),
}
# Those of which a trace has none but where it is asked, by `Tracer.ask`.
ASKED_PARTS: Mapping[str, tuple[str, str]] = {
    "ops": ("runs.ops", "OpRecorder"),
    "forward": ("gradients.forward_values", "ForwardMeter"),
    "ranks": ("runs.rank_file", "RankFile"),
}


class Run:
    """Follows what runs between `start` and `stop`, for listeners by their part of the report, as in `LISTENERS`."""

    def __init__(self, **listeners: Listener) -> None:
        self.listeners, self._each = listeners, tuple(listeners.values())
        self.state = self._each[0].run
        for each in self._each:
            each.run = self.state
        self._undoing = UndoStack()
        self._operations: OperationFollower | None = None
        if hearing := [each.operations for each in self._each if each.operations is not None]:
            self._operations = OperationFollower(hearing)
            self.state.stepping = ModeSuspension(self._operations, walk_nodes)

    def start(self) -> None:
        """Begin.

        Raises:
            TraceError: if it was started before, or where it may not be followed.
        """
        run = self.state
        if run.began:
            raise TraceError(self._each[0].used_before)
        try:
            self._call("prepare")
        except TraceError as error:  # it never ran, and what is shown of it must not say that it runs
            run.state, run.error = "failed", error_text(error)
            raise
        run.began = run.clock()
        self._call("begin")
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
        """End, saying how: by what exception, in the function of what frame; stopping twice is the same as once."""
        run = self.state
        if run.state != "running":
            return
        if not run.ended:
            for each in reversed(self._each):
                each.last_look()
            self._undoing.close()
            run.ended = run.clock()
        self._call("finish", error, frame)
        run.state = state_after(error)
        run.error = error_text(error) if error is not None else ""
        if error is not None:
            self._call("explain", error)
            strip_own_frames(error)
        for each in self._each:
            each.ended()

    def _call(self, step: str, *given: Any) -> None:
        """Let each listener do a step, so that what it does with torch is no event of the run."""
        with aside(), calls_aside(0):
            for each in self._each:
                getattr(each, step)(*given)

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
    """Return the listener that answers a question, given what it takes."""
    return made(LISTENERS[question], *arguments, **keywords)


def made(where: tuple[str, str], *arguments: Any, **keywords: Any) -> Any:
    """Make what is at a place of the tables; only then is it imported."""
    module, name = where
    return getattr(import_module(f"tensormagic.collectors.{module}"), name)(*arguments, **keywords)


class FailureListener(Listener):
    """Reads the exception that ends a run; names are looked up in a namespace, besides the functions that ran."""

    used_before = "this was used before; make a new one with tensormagic.explain()"

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        super().__init__(namespace, Cell("", None, ()))
        self._around = Surroundings(namespace)
        self._found: FailureReport | None = None

    def enter(self, undoing: UndoStack) -> None:
        """Put the function mode into torch."""
        mode = CallFollower()
        undoing.enter_context(mode)
        undoing.enter_context(Captures(mode))

    def explain(self, error: BaseException) -> None:
        """Find the call in the exception's traceback."""
        self._found = failure_of(error, self._around)

    def report(self) -> FailureReport | None:
        """Return what is known of the call that torch refused; None where there was none."""
        return self._found
