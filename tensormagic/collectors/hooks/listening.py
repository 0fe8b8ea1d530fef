"""What listens to a run: what it may do as the run begins, goes on and ends, and which operations it is handed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import torch

from tensormagic.collectors.hooks.modes import Engine, SteppingMode
from tensormagic.collectors.hooks.stepping_off import asks
from tensormagic.collectors.hooks.undoing import Undoing
from tensormagic.collectors.where.caller import Callers
from tensormagic.reports import Cell, State

_Overload = torch._ops.OpOverload
_Call = Callable[[Any, Any, Any], Any]  # a function: call(function, args, kwargs)


class RunState:
    """Where a run stands: what its listeners know of it, and what they share.

    Attributes:
        cell: The source that runs, for the report.
        clock: Seconds, monotonic.
        state: As in a report.
        error: What ended it, in words.
        began: When it began; 0 before that.
        ended: When it ended; 0 before that.
        unheard: Why listeners were not handed some operations; empty where they were handed all that they want.
    """

    def __init__(self, cell: Cell, clock: Callable[[], float]) -> None:
        self.cell, self.clock = cell, clock
        self.state: State = "running"
        self.error = self.unheard = ""
        self.began = self.ended = 0.0

    @property
    def seconds(self) -> float:
        """Wall time so far, or in all."""
        return (self.ended or self.clock()) - self.began if self.began else 0.0


class Listener:
    """One question to a run. What is not overridden is not needed.

    Args:
        cell: The source that runs, for the report.
        clock: Seconds, monotonic.

    Attributes:
        run: Where the run stands; all that listen to one run share it.
    """

    used_before: ClassVar[str]  # the error for somebody who starts the run twice
    hears_operations: ClassVar[bool] = False  # whether `wants` and `around` are called

    def __init__(self, cell: Cell, clock: Callable[[], float] = perf_counter) -> None:
        self.run = RunState(cell, clock)

    # -- the life of a run, in this order ---------------------------------------------------------------------------

    def prepare(self) -> None:
        """Do what must come before the run begins; raise TraceError where it may not be followed."""

    def begin(self) -> None:
        """Look at what is there as the run begins."""

    def enter(self, undoing: Undoing) -> None:
        """Put into torch what follows the run."""

    def entered(self) -> None:
        """Go on from where everything is in place."""

    def last_look(self) -> None:
        """Ask what can only be asked while torch is still followed."""

    def finish(self, error: BaseException | None, frame: FrameType | None) -> None:
        """Ask what can only be asked now, after torch is as it was.

        Args:
            error: The exception that ended the run, or None.
            frame: Of the function whose block this was: its variables are names, too. None where that is unknown.
        """

    def explain(self, error: BaseException) -> None:
        """Look into the exception that ended the run, while it has its traceback."""

    def ended(self) -> None:
        """Do what comes when everybody knows how the run ended."""

    def abandon(self) -> None:
        """Let go of what may not go on, where the run ended without `finish`: in a forked process, by an interrupt."""

    # -- operations -------------------------------------------------------------------------------------------------

    def wants(self, op: Any) -> bool:  # noqa: ARG002  (what others ask it with)
        """Return whether an operation is of interest; asked once for each."""
        return False

    def around(self, call: _Call, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:  # noqa: ARG002
        """Return ``call(op._op, args, kwargs)``, made from ``frame``, and note what is to be noted."""
        return call(op._op, args, kwargs)

    # -- what is known ----------------------------------------------------------------------------------------------

    def report(self) -> Any:
        """Return everything known so far; asked for from any thread, also while the run goes on."""
        raise NotImplementedError


# One dispatch mode for all that listen to operations: each is handed those that it wants, and no others.
#
# A dispatch mode costs a few microseconds an operation, whatever it does; a listener costs nothing for operations that
# it does not want. So what several listeners want goes through one mode: this one, or that of a memory run, which
# wants all operations.


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
