"""A tracer that follows some steps of a run and lets the others be, its mode off torch's stack."""

from __future__ import annotations

import dataclasses
import math
import sys
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.devices import PassTimer
from tensormagic.collectors.gradients.measures import Measured
from tensormagic.collectors.gradients.on_device import DeviceNumbers
from tensormagic.collectors.gradients.pass_log import Following, is_being_compiled
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.hooks.capturing import compiles_backward
from tensormagic.collectors.hooks.modes import active_modes
from tensormagic.collectors.hooks.replacing import BackwardCall, Replacement
from tensormagic.collectors.hooks.undo_stack import SignalsWait
from tensormagic.collectors.quiet import dispatches_to_python, local_shard, quiet
from tensormagic.collectors.runs.step_sampling import StepSampler
from tensormagic.collectors.runs.trace import Tracer
from tensormagic.collectors.where.caller import sequence_number, uncounted
from tensormagic.collectors.where.source import outwards
from tensormagic.reports import UNREADABLE, UNTOUCHED, LiveFrame, Schedule, TraceReport

# Takes the function mode off torch's stack between traced steps, and brings it back, without disturbing anybody's. A
# function mode is popped while its own ``__torch_function__`` runs, and pushed again when that returns; so are the
# user's modes that lie above it. Whoever changes the stack in the midst of a call changes a part of it, and what is
# pushed afterwards lies in the wrong place: ``with torch.device(...)`` takes the mode away that is on top at its end,
# whichever that is, and the mode of ``torch.set_default_device`` has to lie at the bottom. So a change waits until no
# mode is in the midst of a call on this thread: modes are pushed by a function that torch looks up in
# `torch.overrides`; for the few microseconds until the change is made, that name is replaced.

_PUSH = "_push_mode"


def _within_a_call(frame: FrameType | None) -> bool:
    """Return whether a function mode's ``__torch_function__`` is running in ``frame`` or above it."""
    calls = (
        each for each in outwards(frame) if each.f_code.co_name == "__torch_function__" and each.f_code.co_argcount
    )
    return any(isinstance(each.f_locals.get(each.f_code.co_varnames[0]), TorchFunctionMode) for each in calls)


class SampledRecorder(ForwardRecorder):
    """A recorder that can leave for as long as it likes."""

    def __init__(self, tracer: SampledTracer, *args: Any) -> None:
        super().__init__(*args)
        self._tracer = tracer  # told when this comes and when it leaves
        self._wanted = True
        self._door: Replacement | None = None  # while a change of the stack is still to be made
        self._signals = SignalsWait()
        self._home = 0
        self._aside = self._left_at_door = self._joined = False
        self.present = False  # on the stack, or at a compiled region's door
        self.since = 0  # the sequence number from which on nodes were seen being made, since it came last

    def want(self, *, wanted: bool) -> None:
        """Come back or leave, as soon as that can be: when no mode on the stack is in the midst of a call."""
        self._wanted = wanted
        self._cancel()
        if not _within_a_call(sys._getframe(1)):
            self._settle()
            return
        thread = get_ident()

        def pushing(original: Callable[[Any], None]) -> Callable[[Any], None]:
            def push(mode: Any) -> None:
                original(mode)
                if self._door is door and get_ident() == thread and not _within_a_call(sys._getframe(1)):
                    self._cancel()
                    self._settle()

            return push

        self._door = door = Replacement(torch.overrides, _PUSH, pushing)
        door.__enter__()

    def tend(self) -> None:
        """Try once more what still waits: its call may have returned by a way that is not watched."""
        if self._door is not None:
            self.want(wanted=self._wanted)

    def _cancel(self) -> None:
        if self._door is not None:
            self._door.__exit__()
            self._door = None

    def step_aside(self) -> bool:
        """Leave at the door of a compiled region; there it is not come back to, until the door is passed again."""
        if get_ident() != self._home or self._aside:
            return False
        self._left_at_door = super().step_aside()
        self._aside = True
        return True

    def step_back(self, caller: FrameType | None) -> None:
        """Come back, unless the recorder is to rest by now."""
        self._aside = False
        if self._left_at_door and self._wanted:
            super().step_back(caller)
        else:
            self._left_at_door = False
            self.want(wanted=self._wanted)

    def __enter__(self) -> None:
        self._home = get_ident()
        self.join()
        if self._wanted:
            self._begin(len(active_modes()))

    def __exit__(self, *error: object) -> None:
        self._cancel()
        self._wanted = False
        self._settle()
        super().__exit__()

    def _settle(self) -> None:
        """Bring the stack into line with what is wanted. Nothing on it may be in the midst of a call."""
        with self._signals:
            there = self.is_on()
            self.present = self._wanted and (there or self._left_at_door)
            if self._joined and not self._wanted:  # at a door it is not there, but still to be ended
                if there:
                    super().step_aside()
                self._left_at_door = False
                self._applies.__exit__(None, None, None)
                self._tracer.leaves()
                self.detached.pause()
                self.autograd.forget()
                self._joined = False  # last: what is interrupted here is done again
            elif self._wanted and not there and not self._aside:
                modes = active_modes()
                self.origins.begin()  # below the modes of the user's: what their code has pushed, it pops from the top
                default = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
                self._begin(1 if modes and modes[0] is default else 0)  # it alone looks for itself at the bottom

    def _begin(self, place: int) -> None:
        """Go onto the stack, to a place that is there."""
        self._joined = True
        self._tracer.came_back()
        self._applies.__enter__()
        self.come_back(place)
        self.present = True
        self.since = sequence_number()


# `StepSampler` decides which steps are traced. While the tracer rests, one name of torch's stands for the run of the
# engine, so that passes are counted and timed; nothing else is installed. It leaves and comes back at a pass's end.

JUMP = 1e3  # a norm so many times larger or smaller than the last one of its graph is worth a look at what follows

_UNSAMPLED = "this version of torch cannot pause between steps: every step was traced"


class SampledTracer(Tracer):
    """Traces some steps of a run: those of a schedule; made as a `Tracer` is."""

    _recorder: SampledRecorder

    def __init__(self, schedule: Schedule, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._pace, self._laps = schedule, PassTimer()
        self._share *= 2 * (schedule.budget or 0.5)  # rather more steps with norms alone than few with everything
        self._sampler = StepSampler(schedule, 0.0)
        self._inside = self._trailing = False
        self._mine: set[int] = set()  # passes of this thread that were traced, until their numbers were looked at
        self._others = 0  # passes on other threads
        self._first = -1
        self._norms: dict[int, float] = {}
        self._standing = array("f")

    def _new_recorder(self) -> SampledRecorder:
        return SampledRecorder(self, self._sites, self._modules)

    def came_back(self) -> None:
        """Bring what is on while the recorder is; hooks around optimizers stayed for the step that follows a pass."""
        if self._first < 0:
            return
        if not self._trailing:
            self._parts["updates"].step_aside()
            self._parts["updates"].step_back()
        self._trailing = False
        self._forget()
        if self._ops is not None:
            self._ops.follower.come_back(0)  # below the user's own, which go from the top

    def leaves(self) -> None:
        """Take away what counts operations."""
        if self._ops is not None:
            self._ops.follower.leave()

    def _trailed(self) -> None:
        """Take away what stayed for the optimizer's step after the last pass that was traced."""
        self._trailing = False
        self._forget()  # a backward goes by, perhaps inside a step: in an optimizer's closure
        self._parts["updates"].step_aside()
        self._sampler.trailed(self.own_seconds)

    def _forget(self) -> None:
        for part in self._on["forget"]:
            part.forget()

    def entered(self) -> None:
        """Begin with the first step that is to be traced."""
        self._first = sequence_number()
        self._sampler = StepSampler(self._pace, self.run.began, self._laps.end)
        if not self._sampler.tracing:
            self._recorder.want(wanted=False)
            self._trailed()

    def ended(self) -> None:
        """Where the last step was not traced, look once at the gradients that it left."""
        super().ended()
        if 0 < self._sampler.stretches.latest < self._sampler.steps:
            self._standing = standing_norms(leaf.reference() for leaf in self._leaves.known)

    @uncounted
    def follow(self, call: BackwardCall) -> Any:
        """Make a backward call, and follow it where it is one of a step that is traced."""
        if not self._sampler.tracing:
            return self._pass_by(call)
        if get_ident() != self._home or is_being_compiled() or compiles_backward():
            return super().follow(call)
        if self._inside:
            return super().follow(call) if self._running else call.run()
        self._recorder.tend()
        line, there = self._sites.of_frame(sys._getframe(1)), self._recorder.present
        hooked, self._inside = self._sampler.starts(line, sequence_number(), there=there), True
        self._laps.begin(call.roots)
        if not hooked:
            self._forget()
        try:
            return super().follow(call) if hooked else call.run()
        finally:
            self._inside = False
            if not self._sampler.ends(self.run.clock(), self.own_seconds, alarm=self._alarms()):
                self._trailing = True
                self._recorder.want(wanted=False)

    @uncounted
    def _pass_by(self, call: BackwardCall) -> Any:
        """Make a backward call that is not looked at."""
        elsewhere = get_ident() != self._home
        compiles = type(next(iter(call.roots), None)) is not torch.Tensor and is_being_compiled()
        if self._inside or elsewhere or compiles:
            self._others += elsewhere
            return call.run()
        self._inside, sequence = True, sequence_number()
        self._laps.begin(call.roots)
        if self._trailing:
            self._trailed()
        try:
            return call.run()
        finally:
            self._inside = False
            if self._sampler.passed_by(self._sites.of_frame(sys._getframe(1)), sequence, self.run.clock()):
                self._recorder.want(wanted=True)

    def _graph_of(self, found: Walk, *, inner: bool) -> TracedGraph | None:
        if not inner and get_ident() == self._home:
            # Whether every node of it was seen being made, or is older than the trace.
            since, origins = self._recorder.since, self._recorder.origins
            numbers = (node._sequence_nr() for place, node in enumerate(found.nodes) if place not in found.foreign)
            is_whole = all(origins.of(number)[1] for number in numbers if self._first <= number < since)
            if not is_whole and not self._sampler.begun_before():
                return None
        return super()._graph_of(found, inner=inner)

    def _passes_begun(self) -> int:
        return self._sampler.passes + self._others

    def _number_of(self, followed: Following) -> int:
        """Return the number of a pass that begins; those that are not looked at are counted too."""
        if followed.pass_context is not None and followed.pass_context.inside:
            return super()._number_of(followed)
        at_home = get_ident() == self._home
        self._others += not at_home
        self._step, self._begun = self._sampler.steps, self._passes_begun()
        if at_home:
            self._mine.add(self._begun)
        return self._begun

    def _alarms(self) -> bool:
        """Return whether the gradients of the last pass whose numbers are known give reason to look at the next."""
        if self._shared.last is None or (last := self._shared.last[0].number) not in self._mine:
            return False
        self._mine = {number for number in self._mine if number > last}
        _, graph, values = self._shared.last
        norms = [values.norms[index] for index in graph.structure.leaf_of]
        norm = math.hypot(*(norm for norm in norms if not norm < 0)) if not values.bad else math.nan
        before = self._norms.get(graph.structure.number, 0.0 if values.bad else norm)
        self._norms[graph.structure.number] = norm
        return math.isfinite(before) and not before / JUMP <= norm <= before * JUMP

    def frame(self) -> LiveFrame:
        """Return what changes while the run goes on."""
        found, sampler = super().frame(), self._sampler
        if sampler.tracing:
            return found
        ahead = sampler.rest_steps(self.run.clock())
        next_step = sampler.steps + ahead if ahead else 0
        return dataclasses.replace(found, step=sampler.steps, paused=True, next_step=next_step)

    def report(self) -> TraceReport:
        """Return everything known so far."""
        sampler = self._sampler
        described = dataclasses.replace(
            sampler.sampling(self.run.clock(), ended=self.run.state != "running"),
            last_norms=self._standing,
            unsampled="" if hasattr(torch.overrides, _PUSH) else _UNSAMPLED,
        )
        seen = self._passes_begun()
        return dataclasses.replace(super().report(), passes_seen=seen, steps_seen=sampler.steps, sampling=described)


def standing_norms(tensors: Iterable[torch.Tensor | None]) -> array[float]:
    """Return the norm of each tensor's ``.grad`` as it is; `UNTOUCHED` where there is none, or no tensor."""
    found, numbers = array("f"), DeviceNumbers(0)

    def keep(at: int, measured: Measured | None, _: object) -> None:
        if measured is not None:
            found[at] = measured[0]

    with quiet():
        for at, tensor in enumerate(tensors):
            gradient = local_shard(tensor.grad) if tensor is not None and tensor.is_leaf else None
            found.append(UNTOUCHED if gradient is None else UNREADABLE)
            if gradient is not None and not dispatches_to_python(gradient) and not gradient.is_meta:
                with suppress(RuntimeError, TypeError, NotImplementedError):  # of a kind that has no norm
                    numbers.ask(gradient, partial(keep, at), full=False, careful=True)
        numbers.send()
        numbers.read()
    return found
