"""The function mode and the dispatch mode of the tool, and who follows by them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from operator import attrgetter
from threading import get_ident
from types import FrameType
from typing import Any, ClassVar
from weakref import ref

import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from tensormagic.collectors.hooks.replacing import HiddenMode, skip_in_dynamo
from tensormagic.collectors.where.caller import (
    HANDS_OVER,
    MARK,
    Callers,
    Engine,
    calling_frame,
    constructed_by,
    sequence_number,
)
from tensormagic.collectors.where.source import frame_of


def active_modes() -> list[TorchFunctionMode]:
    """Return this thread's function modes, the outermost first."""
    return [torch._C._get_function_stack_at(at) for at in range(torch._C._len_torch_function_stack())]


_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack
_mode_at: Callable[[int], Any] = torch._C._get_dispatch_stack_at
_no_python_dispatch: Callable[[], Any] = torch._C._DisableTorchDispatch


def dispatch_modes() -> list[Any]:
    """Return this thread's dispatch modes, the outermost first; torch keeps those of its own compiler apart."""
    modes = (_mode_at(at) for at in range(_depth()))
    return [mode for mode in modes if getattr(mode, "_mode_key", None) is None]


# One function mode and one dispatch mode for all who follow what runs on a thread, and can leave it for a while: a run
# within another adds its followers to the mode that is there, which is on torch's stack as long as one of them is.

_Call = Callable[[Any, Any, Any], Any]  # a function: call(function, args, kwargs)
_Around = Callable[..., Any]
_BETWEEN = frozenset({HANDS_OVER, MARK})  # names of frames between the user's line and the function mode
_entered = count(1)
_rank = attrgetter("rank")
_latest: dict[tuple[int, type], ref[Any]] = {}  # by thread and class: the mode that was made last


class SharedMode:
    """A mode that several may follow by."""

    followers: tuple[Any, ...] = ()
    there: tuple[Any, ...] = ()  # those of them who have not left for a while, by their `Follower.rank`
    is_aside = False  # whether it is off the stack although some are there
    stack: Callable[[], list[Any]]
    push: Callable[[Any], None]
    pop: Callable[[], Any]

    @classmethod
    def set_stack(cls, modes: list[Any], *, again: bool = True) -> None:
        """Put these modes on this thread's stack, the outermost first, and no others, whatever comes meanwhile."""
        try:
            for _ in cls.stack():
                cls.pop()
            for mode in modes:
                cls.push(mode)
        except BaseException:
            if again:
                cls.set_stack(modes, again=False)
            raise

    @classmethod
    def of_this_thread(cls) -> Any:
        """Return the mode to follow by on this thread: a new one, unless one is on top, or waits for its followers."""
        if (modes := cls.stack()) and isinstance(modes[-1], cls):
            return modes[-1]
        waiting = _latest.get((get_ident(), cls), lambda: None)()
        if waiting is None or waiting.there or not waiting.followers:
            waiting = cls()
            _latest[get_ident(), cls] = ref(waiting)
        return waiting

    def place(self) -> int:
        """Return the place on this thread's stack; -1 where the mode is not on it."""
        for at, mode in enumerate(type(self).stack()):
            if mode is self:
                return at
        return -1

    def go(self, place: int) -> None:
        """Go onto the stack, to a place that is there."""
        modes = type(self).stack()
        if place == len(modes):
            type(self).push(self)
        else:
            self.set_stack([*modes[:place], self, *modes[place:]])

    def go_off(self) -> None:
        """Leave it."""
        modes = type(self).stack()
        if modes and modes[-1] is self:
            type(self).pop()
        elif any(mode is self for mode in modes):
            self.set_stack([mode for mode in modes if mode is not self])

    def be(self, there: Iterable[Any]) -> None:
        """Know who is there."""
        found = tuple(there)
        self.there = tuple(sorted(found, key=_rank)) if len(found) > 1 else found
        self.plan()

    def plan(self) -> None:
        """Look up what is to be done for who is there."""

    def forget(self) -> None:
        """Let go of what was looked up for those who do not follow any more."""

    def let_notice(self) -> None:
        """Let torch's questions be answered by torch itself, until the mode is on the stack again."""

    def end(self) -> None:
        """Leave the stack for good; twice is as once."""
        self.go_off()


class Follower:
    """Follows what runs on a thread, by the mode that it shares with others: ``mode``, from when the run begins.

    It may end before it began, and twice.
    """

    mode_type: ClassVar[type[SharedMode]]
    mode: Any = None
    beneath = False  # whether it is nearer to each call than all others, so that it does not time their work
    rank = 0  # of two who follow by a mode, the one with the lower rank is nearer to the call
    of_thread = True  # see `UndoStack`
    _place = -1

    def __enter__(self) -> None:
        self.join()
        self.come_back(len(self.mode_type.stack()))

    def __exit__(self, *error: object) -> None:
        if self.mode is not None:
            self.leave()
            self.silence()
            if not self.mode.followers:
                self.mode.end()

    def join(self) -> None:
        """Look for the mode of this thread, without being there yet."""
        self.rank = -next(_entered) if self.beneath else next(_entered)
        self.mode = self.mode_type.of_this_thread()
        self.mode.followers = (*self.mode.followers, self)

    def silence(self) -> None:
        """Be told of nothing any more, also where the mode is on another thread's stack and has to stay there."""
        if (mode := self.mode) is not None:
            mode.followers = tuple(other for other in mode.followers if other is not self)
            mode.forget()
            mode.be(other for other in mode.there if other is not self)

    def is_on(self) -> bool:
        """Return whether what runs on this thread is followed."""
        return self.mode is not None and self in self.mode.there and self.mode.place() >= 0

    def leave(self) -> int:
        """Leave this thread's stack; returns the mode's place there, to come back to: -1 where it was not on it."""
        mode = self.mode
        place = mode.place() if mode is not None and self in mode.there else -1
        if place >= 0:
            if len(mode.there) == 1:
                mode.go_off()
            mode.be(other for other in mode.there if other is not self)
        return place

    def come_back(self, place: int) -> None:
        """Come back to where `leave` said; nothing is done for -1, and where this is there already."""
        mode = self.mode
        if place >= 0 and mode is not None and self in mode.followers:
            if self not in mode.there:
                mode.be((*mode.there, self))
            if not mode.is_aside and mode.place() < 0:
                mode.go(place)

    def step_aside(self) -> bool:
        """Leave the stack until `step_back`, where this is on it; the run is then as if nobody looked."""
        if (place := self.leave()) < 0:
            return False
        self._place = place
        if not self.mode.there:
            self.mode.let_notice()
        return True

    def step_back(self, _caller: FrameType | None) -> None:
        """Come back."""
        self.come_back(self._place)


class CallMode(SharedMode, TorchFunctionMode):
    """The function mode: makes every call as its own line would, and lets those who follow calls do so.

    Torch does not notice it, see `HiddenMode`. It passes on what nobody looks at: then the call that fails can be read
    from the exception's traceback, where this mode's frame still holds the function and the arguments.
    """

    stack = staticmethod(active_modes)
    push = staticmethod(torch._C._push_on_torch_function_stack)
    pop = staticmethod(torch._C._pop_torch_function_stack)

    def __init__(self) -> None:
        super().__init__()
        self._transparent = HiddenMode(self)
        self._is_noticed = True
        self._callers = Callers()
        self._made = self._callers.made
        self._inner: tuple[_Around, ...] = ()
        self._last: _Around | None = None

    def __torch_function__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        frame = above = sys._getframe(1)
        if (code := above.f_code).co_name in _BETWEEN:
            frame = calling_frame(above)
            code = frame.f_code
        call = line = self._made.get((id(code), frame.f_lasti)) or self._callers.standing_in_for(frame)
        if (last := self._last) is None:
            return call(func, args, kwargs)
        if self._inner:
            for around in self._inner:
                call = partial(around, call, line, frame, above)
        return last(call, line, frame, above, func, args, kwargs or {})

    def plan(self) -> None:
        """Look up who is called."""
        *inner, last = [follower.around for follower in self.there if follower.around is not None] or [None]
        self._inner, self._last = tuple(inner), last

    def go(self, place: int) -> None:
        """Go onto the stack."""
        if self._is_noticed:
            self._transparent.begin()
            self._is_noticed = False
        super().go(place)

    def let_notice(self) -> None:
        """Let torch answer itself."""
        self._transparent.step_aside()
        self._is_noticed = True

    def end(self) -> None:
        """Leave the stack for good."""
        self._transparent.remove_all()
        self._is_noticed = True
        super().end()


MODE_CALLS = frozenset({CallMode.__torch_function__.__code__})


class CallFollower(Follower):
    """Follows the calls of a thread; by itself it only lets them be found in the traceback of an exception."""

    mode_type = CallMode
    # Makes a call, and looks at it: ``around(call, line, frame, above, func, args, kwargs)`` is to return ``call(func,
    # args, kwargs)``. ``line`` stands for the line that ``frame`` runs, one object for all of its calls; ``above`` is
    # the frame above the mode.
    around: _Around | None = None


_OF_COMPILER = "_is_in_any_mode_without_ignore_compile_internals"
_SWITCHES = {  # what a mode keeps of how torch stood before it, and torch's own name for that
    "old_dispatch_mode_flags": "_is_in_torch_dispatch_mode",
    "old_non_infra_dispatch_mode_flags": "_is_in_non_infra_torch_dispatch_mode",
    "old_without_ignore_compile_internals_dispatch_mode_flags": _OF_COMPILER,
}
_tell_compiler: Any = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)


# An operation, kept so that its ``id`` stays its own; what to call, which does the same with less ado; who is called,
# with what each knows of the operation: the last of them apart.
_Plan = tuple[Any, Any, "tuple[tuple[_Around, Any], ...]", "_Around | None", Any]


def _plainly(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    return func(*args, **kwargs) if kwargs else func(*args)


# Below a mode torch leaves out layers of the dispatcher, also for what an operation calls itself. On a CPU
# ``_foreach_add_`` writes to one tensor after another, by operations that count versions: autograd would not notice
# that a tensor which it saved is another one by now. And what an operation of linear algebra conjugates inside, as
# ``pinv`` does, would be taken as it lies, and the result be another matrix (pytorch#198118). Forward-mode AD makes
# tangents of zero that have no memory: an operation that hands one on would read where nothing is, and Python crash.
_Key = torch._C.DispatchKey
_CONJUGATING = ("aten::linalg_", "aten::_linalg_")
_COUNTS_VERSIONS, _RESOLVES_VIEWS = (_Key.ADInplaceOrView,), (_Key.Conjugate, _Key.Negative, _Key.ZeroTensor)


def _with_layers(op: Any, layers: Iterable[Any]) -> Callable[..., Any]:
    """Return what calls an operation so that these layers are there for what it calls, as they are without a mode."""

    def call(*args: Any, **kwargs: Any) -> Any:
        included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        for layer in layers:
            excluded = excluded.remove(layer)
        with torch._C._ForceDispatchKeyGuard(included, excluded):
            return op(*args, **kwargs)

    return call


# Of every form of torch's constructor of tensors, the operation that makes what it returns.
_OF_CONSTRUCTORS = frozenset({("aten::alias", ""), ("aten::lift_fresh", ""), ("aten::empty", "memory_format")})


def _of_its_class(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls an operation and, for a constructor, gives what it made the class that this is to return."""

    def call(*args: Any, **kwargs: Any) -> Any:
        made, frame = op(*args, **kwargs), frame_of(_DISPATCHED, sys._getframe())
        try:
            kind = constructed_by(frame.f_back) if frame is not None and type(made) is torch.Tensor else None
        except Exception:  # a source that nobody can read: then as below any other mode
            kind = None
        if kind is None:
            return made
        guard = _no_python_dispatch()
        try:
            with torch._C.DisableTorchFunction():
                return made.as_subclass(kind)
        finally:
            del guard

    return call


class OperationMode(SharedMode, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode: makes every operation as its own line would, and hands it to those that want it.

    Who wants an operation is looked up once for each. ``torch.compile`` stays on, and sees nothing of this mode.
    """

    stack = staticmethod(dispatch_modes)
    push = staticmethod(torch._C._push_on_torch_dispatch_stack)
    pop = staticmethod(lambda: torch._C._pop_torch_dispatch_stack(None))
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.let_go()
        self._plans: dict[int, _Plan] = {}
        self._plans_of: dict[tuple[Any, ...], dict[int, _Plan]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave ``torch.compile`` on."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without torch's wrapper, which would import the compiler and stand in tracebacks."""
        return False

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        _, op, inner, last, known = self._plans.get(id(func)) or self._new_plan(func)
        if forward_ad._current_level >= 0:
            op = _with_layers(op, _RESOLVES_VIEWS)
        frame: FrameType | None
        call: _Call
        try:
            frame = sys._getframe(1)
        except ValueError:  # a thread of the engine's: no Python above
            frame, call = None, _plainly
        else:
            if (code := frame.f_code) is Engine.code or code is Engine.stand_in:
                call = Engine.made or Engine.call(frame)
            else:
                call = self._made.get((id(code), frame.f_lasti)) or self._callers.standing_in_for(frame)
        if inner:
            for around, of_it in inner:
                call = partial(around, call, of_it, frame)
        return call(op, args, kwargs) if last is None else last(call, known, frame, op, args, kwargs)

    def _new_plan(self, op: Any) -> _Plan:
        *inner, (last, known) = [step for follower in self.there for step in follower.steps(op)] or [(None, None)]
        call = op
        if type(op) is torch._ops.OpOverload:
            written = [one for one in op._schema.arguments if one.alias_info and one.alias_info.is_write]
            lists = any(one.type.kind() == "ListType" for one in written)
            layers = _RESOLVES_VIEWS if op._schema.name.startswith(_CONJUGATING) else _COUNTS_VERSIONS if lists else ()
            call = _with_layers(op._op, layers) if layers else op._op
            if (op._schema.name, op._schema.overload_name) in _OF_CONSTRUCTORS:
                call = _of_its_class(call)
        plan = self._plans[id(op)] = (op, call, tuple(inner), last, known)
        return plan

    def plan(self) -> None:
        """Look up the plans of who is there."""
        self._plans = self._plans_of.setdefault(self.there, {})

    def go(self, place: int) -> None:
        """Go onto the stack; the first time as torch's modes do."""
        if not any(getattr(self, name, None) for name in _SWITCHES):
            self.__enter__()  # type: ignore[no-untyped-call]
        else:
            super().go(place)

    def end(self) -> None:
        """Leave it for good, and everything as it was."""
        super().end()
        for name, switch in _SWITCHES.items():
            if before := getattr(self, name, None):
                setattr(_python_dispatch, switch, before[-1])
                before.pop()
        if _tell_compiler is not None:
            _tell_compiler(getattr(_python_dispatch, _OF_COMPILER))

    def forget(self) -> None:
        """Let go of all plans."""
        self._plans_of = {}

    def let_go(self) -> None:
        """Let go of the stand-ins: they hold the globals of those for whom they stand."""
        self._callers = Callers()
        self._made = self._callers.made


_DISPATCHED = OperationMode.__torch_dispatch__.__code__
skip_in_dynamo(OperationMode.__torch_dispatch__, inside=True)


def ours_are_on() -> bool:
    """Return whether a dispatch mode of the tool's is on this thread's stack."""
    return _depth() > 0 and any(isinstance(mode, SharedMode) for mode in dispatch_modes())


def calls_aside(own: int) -> AbstractContextManager[Any]:
    """Keep what the tool calls from being a call of the run for function modes on this thread, beyond its ``own``."""
    depth = torch._C._len_torch_function_stack()
    several = depth and len(getattr(torch._C._get_function_stack_at(0), "there", ())) > own
    return torch._C.DisableTorchFunction() if several or depth > own else nullcontext()


class aside:  # noqa: N801  (read as what it does: ``with aside():``)
    """Keep what the tool does itself from being an operation of the run, for any of its modes on this thread."""

    def __enter__(self) -> None:
        self._number, modes = sequence_number(), dispatch_modes() if _depth() else []
        self._left = [(at, mode) for at, mode in enumerate(modes) if isinstance(mode, SharedMode)]
        for _, mode in self._left:
            mode.go_off()
            mode.is_aside = True

    def __exit__(self, *error: object) -> None:
        while self._left:
            place, mode = self._left[0]
            if (number := sequence_number()) > self._number:
                for listener in [each for follower in mode.there for each in follower.listeners]:
                    listener.pass_over(number)
            mode.is_aside = False
            if mode.there and mode.place() < 0:
                mode.go(place)
            del self._left[0]


def unseen(hook: Callable[..., Any], index: int, what: Any, *given: Any) -> Any:
    """Call one of the tool's hooks of a node so that what it does with torch is no event of the run.

    Switching dispatch to Python off takes a third of the time that leaving the stack and coming back takes. But a
    subclass of tensors needs it: it is done where there is one plain gradient, and nothing else is looked at.
    """
    if what is None and len(given[-1]) == 1 and type(given[-1][0]) is torch.Tensor:
        guard = _no_python_dispatch()
        try:
            return hook(index, what, *given)
        finally:
            del guard
    with aside():
        return hook(index, what, *given)
