"""Modes that torch does not notice, modes that can leave their stack, and the wrappers of ``torch.func``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from types import CodeType, FrameType
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C import _functorch
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tensormagic.collectors.hooks.replacing import Replacements
from tensormagic.collectors.where.caller import Callers, foreign_caller, sequence_number

# Modes that torch does not notice, and modes that can leave their thread's stack for a while.

# Keeps torch from noticing that a function mode is on.
#
# A function mode has one effect of its own: ``torch.overrides.has_torch_function`` says True while any mode is on,
# and ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` then leave their fused inference path, whose
# results differ in the last bits. `Transparent` answers that question as if the mode were not there.

AnyMode = TypeVar("AnyMode", bound="TransparentMode")

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_ASKING = (torch.overrides, torch.functional, nn.functional)
_BACKWARD = frozenset(call.__code__ for call in (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad))


class Transparent:
    """Lets torch's own questions whether anybody overrides its functions be answered as if ``mode`` were off.

    Only names that torch's Python modules look such questions up by are replaced, and put back: the fused inference
    paths of ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention``, and the functions of
    ``torch.nn.functional``, which would take a way round through the mode (and show it in their tracebacks) before
    they come to the calls that the mode sees anyway. Backward calls are seen by `followed_backward`, and do not
    take that way either: how far up the stack a line is that a warning in a hook names is then what it always is.
    """

    def __init__(self, mode: TorchFunctionMode) -> None:
        self._mode = mode
        self.replaced = Replacements()

    def __enter__(self) -> Transparent:
        """Replace the names; where they are put back for a while, again."""
        if self.replaced:
            self.replaced.resume()
            return self
        for module in _ASKING:
            for name in _QUESTIONS:
                if hasattr(module, name):
                    self.replaced.put(module, name, self._answering)
        for module, name in ((torch._tensor, "has_torch_function_unary"), (torch.autograd, "has_torch_function")):
            if hasattr(module, name):
                self.replaced.put(module, name, self._answering_backward)
        return self

    def __exit__(self, *_: object) -> None:
        """Put them back."""
        self.replaced.remove_all()

    def _answering_backward(self, original: Callable[..., bool]) -> Callable[..., bool]:
        """Return the answer for calls of backward, which are seen elsewhere; other questions get torch's own."""
        answer = self._answering(original)

        def has_torch_function(*args: Any) -> bool:
            return answer(*args) if foreign_caller(sys._getframe(1)).f_code in _BACKWARD else original(*args)

        return has_torch_function

    def _answering(self, original: Callable[..., bool]) -> Callable[..., bool]:
        mode = self._mode

        def has_torch_function(*args: Any) -> bool:
            if not _is_innermost(mode):
                return original(*args)
            torch._C._pop_torch_function_stack()
            try:
                return original(*args)
            finally:
                torch._C._push_on_torch_function_stack(mode)

        return has_torch_function


class TransparentMode(TorchFunctionMode):
    """A function mode that torch does not notice, and that can leave the stack for a while.

    Attributes:
        of_thread: See `Undoing`.
    """

    of_thread = True

    def __init__(self) -> None:
        super().__init__()
        self._transparent = Transparent(self)
        self._place = 0

    def __enter__(self: AnyMode) -> AnyMode:
        """Go onto the stack; torch's own questions about overrides are answered as if nobody were there."""
        self._transparent.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        """Leave it, wherever on it the mode lies."""
        self._transparent.__exit__()
        set_modes([mode for mode in active_modes() if mode is not self])

    def step_aside(self) -> bool:
        """Leave the stack until `step_back`, where this mode is on it; the run is then as if nobody looked."""
        modes = active_modes()
        if self not in modes:
            return False
        self._transparent.replaced.pause()
        self._place = modes.index(self)
        set_modes([mode for mode in modes if mode is not self])
        return True

    def step_back(self, _caller: FrameType | None) -> None:
        """Come back."""
        modes = active_modes()
        set_modes([*modes[: self._place], self, *modes[self._place :]])
        self._transparent.replaced.resume()


def active_modes() -> list[TorchFunctionMode]:
    """Return this thread's function modes, the outermost first."""
    return [torch._C._get_function_stack_at(at) for at in range(torch._C._len_torch_function_stack())]


def set_modes(modes: list[TorchFunctionMode]) -> None:
    """Put these function modes on this thread's stack, the outermost first, and no others, whatever comes meanwhile."""
    try:
        _set_modes(modes)
    except BaseException:
        _set_modes(modes)
        raise


def _set_modes(modes: list[TorchFunctionMode]) -> None:
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def _is_innermost(mode: TorchFunctionMode) -> bool:
    depth = torch._C._len_torch_function_stack()
    return depth > 0 and torch._C._get_function_stack_at(depth - 1) is mode


# A dispatch mode that can leave its thread's stack for a while, wherever on it it lies.

_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack
_mode_at: Callable[[int], Any] = torch._C._get_dispatch_stack_at
_pop_mode: Callable[[Any], Any] = torch._C._pop_torch_dispatch_stack
_push_mode: Callable[[Any], None] = torch._C._push_on_torch_dispatch_stack

_entered = count(1)
_OF_COMPILER = "_is_in_any_mode_without_ignore_compile_internals"
_SWITCHES = {  # what a mode keeps of how torch stood before it, and torch's own name for that
    "old_dispatch_mode_flags": "_is_in_torch_dispatch_mode",
    "old_non_infra_dispatch_mode_flags": "_is_in_non_infra_torch_dispatch_mode",
    "old_without_ignore_compile_internals_dispatch_mode_flags": _OF_COMPILER,
}
_tell_compiler: Any = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)


class SteppingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that ``torch.compile`` does not mind, and that can step off.

    Attributes:
        asks: Whether an operation ran whose backward computes otherwise while a dispatch mode is on.
        beneath: Whether it lies below the other modes of the tool, so that it does not time their work.
        rank: Of two modes of the tool on a stack, the one with the lower rank lies below.
    """

    asks = beneath = False
    rank = 0
    of_thread = True  # see `Undoing`
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave ``torch.compile`` on."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without torch's wrapper, which would import the compiler and stand in tracebacks."""
        return False

    def __enter__(self) -> SteppingMode:
        """Go onto the stack."""
        self.rank = -next(_entered) if self.beneath else next(_entered)
        super().__enter__()  # type: ignore[no-untyped-call]
        if self.beneath:
            self.come_back(self.leave())
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the stack, wherever on it the mode lies; may come before it was entered, and twice."""
        self.leave()
        for name, switch in _SWITCHES.items():
            before = getattr(self, name, None)
            if before:
                setattr(_python_dispatch, switch, before[-1])
                before.pop()
        if _tell_compiler is not None:
            _tell_compiler(getattr(_python_dispatch, _OF_COMPILER))

    def leave(self) -> int:
        """Leave this thread's stack; returns the place there, to come back to: -1 where it was not on it."""
        modes = _modes()
        place = next((at for at, mode in enumerate(modes) if mode is self), -1)
        if place >= 0:
            _become([mode for mode in modes if mode is not self])
        return place

    def note_whole(self, name: str, result: Any, frame: FrameType | None) -> None:
        """Note what was made while this mode had stepped off, by what has a name."""

    def note_resized(self, storage: torch.UntypedStorage, frame: FrameType) -> None:
        """Note that a storage was resized by no operation."""

    def pass_over(self, number: int) -> None:
        """Know that the nodes below this number are not the run's, as far as they were not met before."""

    def leave_alone(self) -> Callable[[Any], None] | None:
        """Leave while torch writes down what runs: see `tensormagic.collectors.hooks.capturing.Captures`."""
        place = self.leave()
        return None if place < 0 else lambda _caller: self.come_back(place)

    def come_back(self, place: int) -> None:
        """Go back onto the stack, where `leave` said; nothing is done where it is there already.

        Others of the tool may have left or come back meanwhile: among them it is the rank that counts.
        """
        modes = _modes()
        if place < 0 or any(mode is self for mode in modes):
            return
        ranks = [(at, mode.rank) for at, mode in enumerate(modes) if isinstance(mode, SteppingMode)]
        above = min((at for at, rank in ranks if rank > self.rank), default=len(modes))
        below = max((at + 1 for at, rank in ranks if rank < self.rank), default=0)
        place = min(max(place, below), above)
        _become([*modes[:place], self, *modes[place:]])


def _modes() -> list[Any]:
    """Return this thread's modes, the outermost first; torch keeps those of its own compiler apart."""
    modes = (_mode_at(at) for at in range(_depth()))
    return [mode for mode in modes if getattr(mode, "_mode_key", None) is None]


class Engine:
    """How the engine of autograd is known by the frame above a mode: its own, or another mode's stand-in for it.

    Attributes:
        code: What the engine's frame runs.
        stand_in: What the frame runs that calls in its name; one for all modes.
    """

    code = torch.autograd.graph._engine_run_backward.__code__
    stand_in: CodeType | None = None
    _call: Callable[..., Any] | None = None

    @classmethod
    def call(cls, frame: FrameType) -> Callable[..., Any]:
        """Return what makes a call as the engine's frame makes it."""
        if cls._call is None:
            call = Callers().standing_in_for(frame)
            cls.stand_in, cls._call = call.__code__, staticmethod(call)
        return cls._call


def ours_are_on() -> bool:
    """Return whether a dispatch mode of the tool's is on this thread's stack."""
    return _depth() > 0 and any(isinstance(mode, SteppingMode) for mode in _modes())


def calls_aside(own: int) -> AbstractContextManager[Any]:
    """Keep what the tool calls from being a call of the run for function modes on this thread, beyond its ``own``."""
    return torch._C.DisableTorchFunction() if torch._C._len_torch_function_stack() > own else nullcontext()


class aside:  # noqa: N801  (read as what it does: ``with aside():``)
    """Keep what the tool does itself from being an operation of the run, for any of its modes on this thread."""

    def __enter__(self) -> None:
        """Take the modes off, the innermost first."""
        self._number = sequence_number()
        ours = [mode for mode in reversed(_modes()) if isinstance(mode, SteppingMode)] if _depth() else []
        self._left = [(mode, mode.leave()) for mode in ours]

    def __exit__(self, *error: object) -> None:
        """Bring them back."""
        while self._left:
            mode, place = self._left[-1]
            if (number := sequence_number()) > self._number:
                mode.pass_over(number)
            mode.come_back(place)
            self._left.pop()


_no_python_dispatch: Callable[[], Any] = torch._C._DisableTorchDispatch


def unseen(hook: Callable[..., Any], index: int, what: Any, *given: Any) -> Any:
    """Call one of the tool's hooks of a node so that what it does with torch is no event of the run.

    Switching dispatch to Python off takes a third of the time that leaving the stack and coming back takes. But a
    subclass of tensors needs it: it is done where there is one plain gradient, and nothing else is looked at.
    """
    gradients = given[-1]
    if what is None and len(gradients) == 1 and type(gradients[0]) is torch.Tensor:
        guard = _no_python_dispatch()
        try:
            return hook(index, what, *given)
        finally:
            del guard
    with aside():
        return hook(index, what, *given)


def _become(modes: list[Any]) -> None:
    """Put these modes on the stack, the outermost first, and no others, whatever comes meanwhile."""
    try:
        _set(modes)
    except BaseException:
        _set(modes)
        raise


def _set(modes: list[Any]) -> None:
    for _ in _modes():
        _pop_mode(None)
    for mode in modes:
        _push_mode(mode)


# Looks through the wrappers that ``torch.func`` puts around tensors, one for each transform that is running.
#
# Inside ``grad``, ``vjp`` or ``jacrev`` backward runs as anywhere: over nodes that can be walked and hooked. Only the
# tensors are wrapped, once a transform (a *level*), and under ``vmap`` one wrapper stands for a whole batch. The
# numbers that the tracer gives are those of what is wrapped: of all the batch at once.

BATCHED = "is_grads_batched"


def active_levels() -> tuple[str, ...]:
    """Return what is running on this thread, the outermost first: ``("vmap", "grad")``; mostly nothing (0.3 µs)."""
    if _functorch.peek_interpreter_stack() is None:
        return (BATCHED,) * _batching_depth()
    stack = _functorch.get_interpreter_stack() or ()
    return tuple(interpreter.key().name.lower() for interpreter in stack) + (BATCHED,) * _batching_depth()


def _batching_depth() -> int:
    """Return how many calls of the older vmap are running, the one behind ``is_grads_batched=True``."""
    depth = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return depth


def bare(value: Any) -> Any:
    """Return the tensor inside all wrappers; anything that is not wrapped as it is."""
    while isinstance(value, torch.Tensor):
        if _functorch.is_functorch_wrapped_tensor(value):
            value = _functorch.get_unwrapped(value)
        elif _functorch.is_legacy_batchedtensor(value):
            value = torch._remove_batch_dim(value, _batching_depth(), 1, 0)
        else:
            break
    return value


@contextmanager
def outside_levels() -> Iterator[None]:
    """Compute as if no transform and no dispatch mode were on."""
    with torch._C._DisableFuncTorch(), _disable_current_modes():
        yield
