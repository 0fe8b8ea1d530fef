"""Who listens to a run and its operations, and where a dispatch mode steps off so that the run stays as it is."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from types import FrameType
from typing import Any, ClassVar

import torch

from tensormagic.collectors.hooks.capturing import Captures, compiles_backward
from tensormagic.collectors.hooks.modes import Follower, OperationMode
from tensormagic.collectors.hooks.replacing import BackwardCall, Replacements, followed_backward, without_dynamo
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.where.caller import Callers, uncounted
from tensormagic.collectors.where.source import CellNumber, SourceLines
from tensormagic.reports import Cell, State

# One dispatch mode for all that listen to operations: each is handed those that it wants, and no others.

_Call = Callable[[Any, Any, Any], Any]  # a function: call(function, args, kwargs)


class OperationListener:
    """What is handed operations of a run. What is not overridden is not needed."""

    looks: ClassVar[bool] = False  # at what came out where the mode was off, and at storages that are resized

    def wants(self, op: Any) -> Any:
        """Return what is to be known of an operation, asked once for each; None for one that is of no interest."""
        raise NotImplementedError

    def around(self, call: _Call, known: Any, frame: FrameType | None, op: Any, args: Any, kwargs: Any) -> Any:  # noqa: PLR0913, PLR0917
        """Return ``call(op, args, kwargs)``, made from ``frame``, and note what is to be noted.

        ``known`` is what `wants` returned, and ``frame`` None on a thread of the engine's, where there is no Python
        above. What ``op`` is does the same as the operation with less ado; ``kwargs`` may be None.
        """
        raise NotImplementedError

    def note_whole(self, name: str, result: Any, frame: FrameType | None) -> None:
        """Note what was made while the mode had stepped off, by what has a name."""

    def note_resized(self, storage: torch.UntypedStorage, frame: FrameType) -> None:
        """Note that a storage was resized by no operation."""

    def pass_over(self, number: int) -> None:
        """Know that the nodes below this number are not the run's, as far as they were not met before."""

    def end(self) -> None:
        """Note no more: what is let go of now is no event of the run."""


class OperationFollower(Follower):
    """Hands the operations of a thread to listeners that want them, the first nearest to each operation."""

    mode_type = OperationMode

    def __init__(self, listeners: Iterable[OperationListener], *, beneath: bool = False) -> None:
        self.listeners, self.beneath = tuple(listeners), beneath

    def steps(self, op: Any) -> list[tuple[Any, Any]]:
        """Return who is called for an operation, with what each knows of it."""
        known = [(each.around, each.wants(op)) for each in self.listeners]
        return [step for step in known if step[1] is not None]

    def forget(self) -> None:
        """Let go of who listens."""
        for each in self.listeners:
            each.end()
        self.listeners = ()
        if self.mode is not None and not self.mode.followers:
            self.mode.let_go()  # after the listeners have ended: what goes with the stand-ins is no event of the run


# Where a dispatch mode steps off, so that the run stays the user's: what came out there is looked at. What changes the
# size of a storage by no operation is noted, too.
# ``isTensorSubclassLike`` of ATen says yes for every tensor while a dispatch mode is on. Most code that asks it then
# only writes to a new tensor instead of in place, with the same result. What stands here sums in another order,
# multiplies by a mask where it would fill, computes vectors beside the values that were asked for, or leaves out the
# check that a gradient is well defined (seen by comparing the operations with and without a mode for all of torch's own
# operator and module tables). There a mode steps off, and the call or the node counts as a whole.


_Asks = Callable[[tuple[Any, ...], dict[str, Any]], bool]


def _smooths_with_weights(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    weights = args[2] if len(args) > 2 else kwargs.get("weight")
    return weights is not None and bool(args[5] if len(args) > 5 else kwargs.get("label_smoothing"))


def _needs_values_alone(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether no gradient is asked for: then there is no need of singular vectors, or of eigenvectors."""
    given = args[0] if args else kwargs.get("input", kwargs.get("A"))
    with torch._C.DisableTorchFunction():
        return isinstance(given, torch.Tensor) and not (torch.is_grad_enabled() and given.requires_grad)


def _of_order(keyword: str, *orders: Any) -> _Asks:
    """Return what says whether a norm is of one of these orders: those that are made of singular values."""

    def asks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        order = args[1] if len(args) > 1 else kwargs.get(keyword)
        return isinstance(order, int | float | str) and order in orders and _needs_values_alone(args, kwargs)

    return asks


_CALLS: tuple[tuple[Any, str, _Asks], ...] = (
    (torch._C._nn, "cross_entropy_loss", _smooths_with_weights),
    (torch, "ctc_loss", lambda *_: True),
    *((torch.linalg, name, _needs_values_alone) for name in ("svdvals", "eigvalsh", "eigvals", "cond", "matrix_rank")),
    *((torch.linalg, name, _of_order("ord", 2, -2, "nuc")) for name in ("matrix_norm", "norm")),
    # What `Tensor.norm` comes to; that itself stays, since classes with `__torch_function__` have it in their tables.
    (torch._VF, "nuclear_norm", _needs_values_alone),
)
_nuclear = _of_order("p", "nuc")
ASKING_CALLS = {
    torch.Tensor.norm: _nuclear, torch.norm: _nuclear, **{getattr(owner, name): asks for owner, name, asks in _CALLS},
}  # fmt: skip
ASKING_NODES = frozenset({
    "CumprodBackward0", "ProdBackward0", "ProdBackward1", "MaskedFillBackward1",
    "MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0",
    "LinalgEigBackward0", "LinalgEighBackward0", "LinalgSvdBackward0", "LinalgLstsqBackward0",
    "LinalgHouseholderProductBackward0", "OrmqrBackward0",
})  # fmt: skip
# The operations whose nodes are among these, without underscores: ``_linalg_eigh`` makes LinalgEighBackward0.
_ASKING = frozenset(name.partition("Backward")[0].lower() for name in ASKING_NODES)


STANDING_IN: dict[Any, Any] = {}
"""Of these functions of torch's, by what replaces them at present: a function mode is called for the latter."""

NodeWalk = Callable[[Iterable[Any], int], Iterable[Any]]
"""Yields the nodes of the graphs below some, each once, until there are too many."""


class ModeSuspension(OperationListener):
    """Takes a mode, by which the run follows operations, off around calls and nodes that ask for it."""

    def __init__(self, mode: OperationFollower, walk: NodeWalk) -> None:
        self._mode, self._walk = mode, walk
        self._looking = [each for each in mode.listeners if each.looks]
        self._asks = False  # whether an operation ran whose backward computes otherwise while a dispatch mode is on
        mode.listeners += (self,)
        self._callers = Callers()
        self._replaced = Replacements()
        self._standing_in: list[Any] = []
        self._left = -1
        made = self.note_whole if self._looking else None
        # Dynamo is to see torch's own functions.
        self.captures = Captures(None, self._replaced, beside=self._replaced, made=made)
        self.captures.dispatch.append(mode)

    def enter(self, stack: UndoStack) -> None:
        """Begin; ``stack`` ends it."""
        stack.callback(self._forget)
        stack.enter_context(followed_backward(self))
        stack.callback(self._replaced.remove_all)
        for owner, name, _ in _CALLS:
            self._replaced.put(owner, name, self._calling)
        if self._looking:
            self._replaced.put(torch.UntypedStorage, "resize_", self._resizing)
        stack.enter_context(self.captures)

    def _forget(self) -> None:
        self._callers = Callers()  # the stand-ins hold the globals of those for whom they stand
        while self._standing_in:
            STANDING_IN.pop(self._standing_in.pop(), None)

    def wants(self, op: Any) -> None:
        """Note whether an operation's backward computes otherwise while a dispatch mode is on."""
        if not self._asks and isinstance(op, torch._ops.OpOverload):
            self._asks = op._schema.name.partition("::")[2].replace("_", "") in _ASKING

    def note_whole(self, name: str, result: Any, frame: FrameType | None) -> None:
        """Let listeners note what was made while the mode had stepped off."""
        for each in self._looking:
            each.note_whole(name, result, frame)

    def _calling(self, original: Any) -> Callable[..., Any]:
        asks = ASKING_CALLS[inspect.unwrap(original)]

        @uncounted
        def call(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            made = self._callers.standing_in_for(frame)
            place = self._mode.leave() if asks(args, kwargs) else -1
            if place < 0:
                return made(original, args, kwargs)
            self._replaced.step_aside()  # a function mode is called for what is there
            try:
                result = made(original, args, kwargs)
            finally:
                self._replaced.step_back()
                self._mode.come_back(place)
            self.note_whole(original.__name__, result, frame)
            return result

        stand_in = functools.wraps(original)(call)
        self._standing_in.append(stand_in)
        STANDING_IN[stand_in] = inspect.unwrap(original)
        return stand_in

    def _resizing(self, original: Any) -> Callable[..., Any]:
        @uncounted
        def resize_(storage: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(storage, *args, **kwargs)
            for each in self._looking:
                each.note_resized(storage, sys._getframe(1))
            return result

        return resize_

    @uncounted
    def follow(self, call: BackwardCall) -> Any:
        """Make a backward call; around its nodes that ask, the mode is off."""
        if compiles_backward():
            return self.captures.run_backward(call.run)
        if not self._asks:
            return call.run()
        with torch._C.DisableTorchFunction():
            starts = [x.grad_fn if isinstance(x, torch.Tensor) else getattr(x, "node", None) for x in call.roots]
            asking = (node for node in self._walk(filter(None, starts), sys.maxsize) if node.name() in ASKING_NODES)
            before = partial(without_dynamo, self._before)
            handles: list[Any] = []
            for node in asking:
                after = partial(without_dynamo, self._after, node.name())
                handles += [node.register_prehook(before), node.register_hook(after)]
        try:
            return call.run()
        finally:
            for handle in handles:
                handle.remove()
            self._return()

    def _before(self, _gradients: Any) -> None:
        self._left = self._mode.leave()

    def _after(self, name: str, made: Any, _given: Any) -> None:
        self._return()
        self.note_whole(name, made, None)

    def _return(self) -> None:
        left, self._left = self._left, -1
        self._mode.come_back(left)


# What listens to a run: what it may do as the run begins, goes on and ends, and which operations it is handed.


class RunState:
    """Where a run stands: what its listeners know of it, and what they share."""

    stepping: ModeSuspension | None = None  # where its dispatch mode steps off; None where no listener hears operations

    def __init__(self, cell: Cell, clock: Callable[[], float]) -> None:
        self.cell, self.clock = cell, clock  # the source that runs, for the report, and seconds, monotonic
        self.state: State = "running"
        self.error = ""  # what ended it, in words
        self.began = self.ended = 0.0  # when it did; 0 before that

    @property
    def seconds(self) -> float:
        """Wall time so far, or in all."""
        return (self.ended or self.clock()) - self.began if self.began else 0.0

    @property
    def unheard(self) -> str:
        """Why listeners were not handed some operations; empty where they were handed all that they want."""
        return self.stepping.captures.gap_of_listeners if self.stepping is not None else ""

    def fields(self) -> dict[str, Any]:
        """Return what every report of a run says of it."""
        return {"cell": self.cell, "state": self.state, "error": self.error, "seconds": self.seconds}


class Listener:
    """One question to a run. What is not overridden is not needed. What a run calls stands below in its order.

    Names are looked up in ``namespace``, which is read and never written; ``cell`` is the source that runs, ``title`` a
    name for the run, both for the report; ``cell_number`` gives a cell's execution count from its file name.
    """

    used_before: ClassVar[str]  # the error for somebody who starts the run twice
    operations: OperationListener | None = None  # what is handed operations, where the listener has that

    def __init__(
        self, namespace: Mapping[str, Any], cell: Cell, *, cell_number: CellNumber | None = None, title: str = "",
        clock: Callable[[], float] = perf_counter,
    ) -> None:  # fmt: skip
        self.run = RunState(cell, clock)  # shared by all that listen to one run
        self._namespace, self._title = namespace, title
        self._sites = SourceLines(cell_number) if cell_number is not None else SourceLines()

    def prepare(self) -> None:
        """Do what must come before the run begins; raise TraceError where it may not be followed."""

    def begin(self) -> None:
        """Look at what is there as the run begins."""

    def enter(self, undoing: UndoStack) -> None:
        """Put into torch what follows the run."""

    def entered(self) -> None:
        """Go on from where everything is in place."""

    def last_look(self) -> None:
        """Ask what can only be asked while torch is still followed."""

    def finish(self, error: BaseException | None, frame: FrameType | None) -> None:
        """Ask what can only be asked now, after torch is as it was, of the function whose block this was, too."""

    def explain(self, error: BaseException) -> None:
        """Look into the exception that ended the run, while it has its traceback."""

    def ended(self) -> None:
        """Do what comes when everybody knows how the run ended."""

    def abandon(self) -> None:
        """Let go of what may not go on, where the run ended without `finish`: in a forked process, by an interrupt."""

    def report(self) -> Any:
        """Return everything known so far; asked for from any thread, also while the run goes on."""
        raise NotImplementedError
