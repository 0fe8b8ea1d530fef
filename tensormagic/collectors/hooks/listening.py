"""One dispatch mode for all that listen to operations: each is handed those that it wants, and no others.

A dispatch mode costs a few microseconds an operation, whatever it does; who listens costs nothing for what he does not
want. So what several listeners want goes through one mode: theirs, or that of a memory run, which wants all operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple, Protocol

import torch

from tensormagic.collectors.hooks.followed_run import FollowedRun
from tensormagic.collectors.hooks.modes import Engine, SteppingMode
from tensormagic.collectors.hooks.stepping_off import NodeWalk, SteppingOff, asks
from tensormagic.collectors.hooks.undoing import Undoing
from tensormagic.collectors.where.caller import Callers
from tensormagic.reports import Cell

_Overload = torch._ops.OpOverload
_Call = Callable[[Any, Any, Any], Any]  # a function: call(function, args, kwargs)


class Listener(Protocol):
    """Who is handed operations."""

    def wants(self, op: Any) -> bool:
        """Return whether an operation is of interest; asked once for each."""

    def around(self, call: _Call, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Return ``call(op._op, args, kwargs)``, made from ``frame``, and note what is to be noted."""


def wanted(listeners: Sequence[Listener], op: Any) -> tuple[Listener, ...]:
    """Return who wants an operation."""
    return tuple(each for each in listeners if each.wants(op)) if type(op) is _Overload else ()


def heard(listeners: tuple[Listener, ...], call: _Call, op: Any, frame: FrameType) -> _Call:
    """Return what makes an operation that some listeners want, the first one outermost."""
    for listener in reversed(listeners):
        call = partial(_around, listener.around, call, op, frame)
    return call


def _around(around: Any, call: _Call, op: Any, frame: FrameType, *given: Any) -> Any:
    _, args, kwargs = given
    return around(call, op, args, kwargs or {}, frame)


class _Plan(NamedTuple):
    op: Any  # kept, so that its ``id`` stays its own
    call: Any  # what to call, which does the same with less ado
    wanted: tuple[Listener, ...]


class ListenerMode(SteppingMode):  # type: ignore[no-untyped-call]
    """Makes every operation as its own line would, and hands it to the listeners that want it.

    ``torch.compile`` stays on, and sees nothing of this mode.

    Attributes:
        listeners: All of them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.listeners: list[Listener] = []
        self._plans: dict[int, _Plan] = {}
        self._callers = Callers()

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make the call."""
        plan = self._plans.get(id(func)) or self._new_plan(func)
        try:
            above = sys._getframe(1)
        except ValueError:  # a thread of the engine's: no Python above
            return plan.call(*args, **(kwargs or {}))
        code = above.f_code
        is_engine = code is Engine.code or code is Engine.stand_in
        call = Engine.call(above) if is_engine else self._callers.standing_in_for(above)
        if plan.wanted:
            call = heard(plan.wanted, call, func, above)
        return call(plan.call, args, kwargs)

    def _new_plan(self, op: Any) -> _Plan:
        self.asks = self.asks or asks(op)
        call = op._op if type(op) is _Overload else op
        plan = self._plans[id(op)] = _Plan(op, call, wanted(self.listeners, op))
        return plan

    def forget(self) -> None:
        """Let go of what makes calls in the name of lines: it holds the globals of their code."""
        self._callers = Callers()


class ListeningRun(FollowedRun):
    """Follows the operations of a run that a listener wants: through a mode of its own, or through another run's."""

    def __init__(
        self, cell: Cell, listener: Listener, walk: NodeWalk, clock: Callable[[], float] = perf_counter
    ) -> None:
        super().__init__(cell, clock)
        self.mode = ListenerMode()
        self.mode.listeners.append(listener)
        self.stepping: SteppingOff | None = SteppingOff(self.mode, walk)
        self.captures = self.stepping.captures

    def listen_beside(self, other: Any) -> None:
        """Listen through the mode of another run, a `ListeningRun` or a `MemoryRecorder`; said before `start`."""
        other.mode.listeners += self.mode.listeners
        self.stepping, self.captures = None, other.stepping.captures

    def _enter_run(self, undoing: Undoing) -> None:
        if self.stepping is not None:
            undoing.callback(self.mode.forget)
            self.stepping.enter(undoing)
            undoing.enter_context(self.mode)
