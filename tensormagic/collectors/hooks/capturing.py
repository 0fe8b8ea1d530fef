"""Leaves alone what torch compiles, scripts, exports or captures while a run is followed: it adds no graph break."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Protocol

import torch

from tensormagic.collectors.hooks.replacing import Replacements
from tensormagic.collectors.where.caller import foreign_caller, uncounted

# Leaves the run alone while torch itself writes down what runs: ``torch.jit``, ``torch.export``, ``make_fx``.
# TorchScript's tracer records every attribute of a module and every size that anybody reads meanwhile, names values
# after the variables of the frames around a call, and cannot take Python numbers while a dispatch mode is on; its
# compiler cannot compile what replaces torch's own functions; ``torch.export`` makes a size that is compared a
# constant. So all that a follower has on torch's stacks leaves at the door of each, and comes back behind it. A
# dispatch mode leaves for the first call of a TorchScript function, too, whose graph is simplified then by running
# parts of it, and where a graph is printed, whose Python numbers are tensors.

_TRACE, _SCRIPT, _EXPORT, _MAKE_FX = "torch.jit.trace", "torch.jit.script", "torch.export", "make_fx"

# The innermost function that a user's own name for the outer one leads to as well; looked up where it is called.
_DOORS: tuple[tuple[str, str, str], ...] = (
    ("torch._C", "_create_function_from_trace", _TRACE), ("torch._C", "_create_function_from_trace_with_dict", _TRACE),
    ("torch._C.ScriptModule", "_create_method_from_trace", _TRACE),
    ("torch._C.ScriptModule", "_create_method_from_trace_with_dict", _TRACE),
    ("torch._C", "_create_graph_by_tracing", _TRACE), ("torch.jit._trace", "_check_trace", _TRACE),
    ("torch._C", "_jit_script_compile", _SCRIPT), ("torch._C", "_jit_script_compile_overload", _SCRIPT),
    ("torch._C", "_jit_script_class_compile", _SCRIPT), ("torch._C", "_jit_script_interface_compile", _SCRIPT),
    ("torch.jit._recursive", "create_script_module", _SCRIPT),
    ("torch.export", "export", _EXPORT), ("torch.export._trace", "_export", _EXPORT),  # imported by the first call
    ("torch.fx.experimental.proxy_tensor._MakefxTracer", "trace", _MAKE_FX),
)  # fmt: skip

_PRINTED = (("torch._C.Graph", "__repr__"), ("torch._C.Graph", "str"), ("torch._C.Node", "__repr__"))
_CALLED = ("torch._C.ScriptFunction", "torch._C.ScriptMethod")
_FIRST_CALL = "the first call of a TorchScript function"
_UNTOUCHED = "{} ran untouched: torch records the code that runs there, so it was not followed"

# Keeps what is compiled compiled: the tracer's mode is off the stack while a compiled region is entered and runs.
# Dynamo guards on torch's stack of function modes. With a mode on it, a function that was compiled before is compiled
# once more, and now Dynamo follows the mode's own Python code: the graph breaks at every call. Every function that
# ``torch.compile`` returns switches Dynamo on through ``_maybe_set_eval_frame`` of ``torch._dynamo.eval_frame``, and
# off again through the same, from the same frame; that name is replaced. The nodes made between the two belong to the
# line that called the compiled function.

_DYNAMO, _SWITCH = "torch._dynamo.eval_frame", "_maybe_set_eval_frame"
_BACKWARD = "a backward under compiled autograd"


def compiles_backward() -> bool:
    """Return whether compiled autograd is on: it compiles the hooks on a graph's nodes with the rest of a backward."""
    compiler = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(compiler, "compiled_autograd_enabled", False))


class Suspendable(Protocol):
    """What can leave torch for a while."""

    def step_aside(self) -> bool:
        """Leave; False, and nothing is done, where it is not there, as a mode that is not on this thread's stack."""

    def step_back(self, caller: FrameType | None) -> None:
        """Come back; ``caller`` is the frame that called what it had left for."""


class Captures:
    """Lets a follower's function ``mode``, and its ``dispatch`` modes, step aside while torch writes down what runs.

    At the door of a compiled function the function mode does so, and with it ``others``, such as hooks that Dynamo
    would follow. ``beside`` is what else is replaced while the modes are there. ``made`` is called with what the first
    call of a TorchScript function returned: its name, that, and the frame of the call. ``calls`` of compiled functions
    are counted.
    """

    def __init__(
        self, mode: Suspendable | None, *others: Suspendable, beside: Replacements | None = None,
        made: Callable[[str, Any, FrameType], None] | None = None,
    ) -> None:  # fmt: skip
        self._modes, self._made = [mode] if mode is not None else [], made
        self._beside = Replacements() if beside is None else beside
        self.dispatch: list[Suspendable] = []  # known when the run begins
        self._replaced = Replacements()
        self._untouched: dict[str, bool] = {}  # what ran so, and whether it is known by what it returned
        self._called: set[str] = set()
        self._at_compiled, self.calls = [*self._modes, *others], 0
        self._left: list[Suspendable] = []  # while a compiled function runs, which ``_entered`` has called
        self._entered: FrameType | None = None
        self._waits = False  # until the first ``torch.compile`` has imported Dynamo

    @property
    def gap(self) -> str:
        """Why what torch wrote down was not followed; empty where it wrote nothing down."""
        names = [name for name, is_known in self._untouched.items() if not is_known]
        return _UNTOUCHED.format(" and ".join(names)) if names else ""

    @property
    def gap_of_listeners(self) -> str:
        """The same for those who do not look at what is returned."""
        return _UNTOUCHED.format(" and ".join(self._untouched)) if self._untouched else ""

    def __enter__(self) -> None:
        doors: list[tuple[str, str, Callable[[Any], Any]]]
        modes, dispatch = [*self._modes, *self.dispatch], self.dispatch
        doors = [(path, name, partial(self._entry, modes, what)) for path, name, what in _DOORS]
        if dispatch:
            doors += [(path, "__call__", self._calling) for path in _CALLED]
            doors += [(path, name, partial(self._entry, dispatch, "")) for path, name in _PRINTED]
        doors.append((_DYNAMO, _SWITCH, self._switch))
        if _DYNAMO not in sys.modules:
            self._waits = True
            doors.append(("torch", "compile", self._compile))
        for path, name, make in doors:
            module, _, inside = path.rpartition(".")
            owner = sys.modules.get(path) or getattr(sys.modules.get(module), inside, None)  # imported already
            if owner is not None:
                self._replaced.put(owner, name, make)

    def __exit__(self, *_: object) -> None:
        self._waits = False
        self._replaced.remove_all()
        if self._entered is not None:
            self._return_from_compiled()

    def _leave(self, modes: list[Suspendable]) -> list[Suspendable]:
        """Take modes off this thread's stacks, and return those that were there."""
        if left := [each for each in modes if each.step_aside()]:
            self._beside.step_aside()
        return left

    def _come_back(self, left: list[Suspendable], frame: FrameType) -> None:
        self._beside.step_back()
        for each in left:
            each.step_back(frame)

    def _entry(self, modes: list[Suspendable], what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @uncounted
        def captured(*args: Any, **kwargs: Any) -> Any:
            if not (left := self._leave(modes)):  # aside already, or on another thread
                return original(*args, **kwargs)
            if what and not _is_for_torch(what, sys._getframe(1)):
                self._untouched[what] = False
            try:
                return original(*args, **kwargs)
            finally:
                self._come_back(left, sys._getframe(1))

        return captured

    def run_backward(self, run: Callable[[], Any]) -> Any:
        """Make a backward call with all aside that Dynamo would follow."""
        self._untouched[_BACKWARD] = False
        if not (left := self._leave([*self._at_compiled, *self.dispatch])):
            return run()
        try:
            return run()
        finally:
            self._come_back(left, sys._getframe(1))

    def _calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @uncounted
        def call(script: Any, *args: Any, **kwargs: Any) -> Any:
            owner = getattr(script, "owner", None)
            name = script.qualified_name if owner is None else f"{owner._type()}.{script.name}"
            is_first = name not in self._called  # since the run began
            self._called.add(name)
            if not (left := self._leave(self.dispatch) if is_first else []):
                return original(script, *args, **kwargs)
            frame = sys._getframe(1)
            try:
                result = original(script, *args, **kwargs)
            finally:
                self._come_back(left, frame)
            self._untouched[_FIRST_CALL] = self._made is not None
            if self._made is not None:
                self._made(_FIRST_CALL, result, frame)
            return result

        return call

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001  (it replaces torch.compile)
            compiled = original(*args, **kwargs)
            if self._waits and _DYNAMO in sys.modules:
                self._waits = False
                self._replaced.put(sys.modules[_DYNAMO], _SWITCH, self._switch)
            return compiled

        return compile

    def _switch(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what replaces Dynamo's switch. Nothing may run between switching on and returning."""

        def switch(callback: Any) -> Any:
            caller = foreign_caller(sys._getframe(1))
            if self._entered is None:
                self.calls += callable(callback)
                mode, *others = self._at_compiled
                if callable(callback) and mode.step_aside():
                    self._left = [mode, *(other for other in others if other.step_aside())]
                    self._entered = caller
                return original(callback)
            if caller is not self._entered:
                return original(callback)  # a door within: the mode is aside already
            prior = original(callback)
            self._return_from_compiled()
            return prior

        return switch

    def _return_from_compiled(self) -> None:
        caller, self._entered = self._entered, None
        for each in self._left:
            each.step_back(caller.f_back if caller is not None else None)


def _is_for_torch(what: str, frame: FrameType | None) -> bool:
    """Return whether torch writes down what is its own: for ``torch.compile``, or a decomposition at its first use."""
    if what == _MAKE_FX:
        return torch._guards.TracingContext.try_get() is not None
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("torch.jit", "tensormagic.")):
        frame = frame.f_back
    return what == _SCRIPT and frame is not None and frame.f_globals.get("__name__", "").startswith("torch.")
