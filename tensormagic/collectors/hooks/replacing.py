"""Functions of torch's that are replaced for the duration of a run, those of a backward among them."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from threading import RLock, get_ident
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
import torch.fx.traceback as stacks
from torch import nn
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary

from tensormagic.collectors.where.caller import foreign_caller, sequence_number, strip_own_frames, uncounted
from tensormagic.collectors.where.source import foreign_frames, outwards

# Replaces functions of torch's for the duration of a trace, and puts them back whatever the order: traces on two
# threads may begin and end in any, and the user may replace the same function meanwhile. Each replacement knows what
# lay below it: what ends in the midst of others is taken out of their midst.


class Replacement:
    """One function that replaces another while this is entered; what ends it may come before that, and twice.

    Where somebody else replaced ours meanwhile, theirs stays: it goes on to ours, which goes on to what lay below. A
    function that this torch does not have is not replaced.
    """

    _below: Any = None
    _ours: Any = None
    _is_inherited = False  # by a class

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._make = owner, name, make

    def __enter__(self) -> Replacement:
        with _lock:
            if hasattr(self._owner, self._name):
                self._is_inherited = self._name not in vars(self._owner)
                self._below = _current(self._owner, self._name)
                self._ours = self._make(self._below)
                _layers.append(self)
                setattr(self._owner, self._name, self._ours)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            if self not in _layers:
                return
            self.pause()
            for other in _layers:
                if other._below is self._ours:
                    other._below, other._is_inherited = self._below, self._is_inherited
            _layers.remove(self)

    def pause(self) -> None:
        """Put back what lay below for a while, where nobody came later (0.2 µs)."""
        if self._ours is not None and _current(self._owner, self._name) is self._ours:
            if self._is_inherited:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._below)

    def resume(self) -> None:
        """Stand in again, where nobody came meanwhile."""
        if self._ours is not None and _current(self._owner, self._name) is self._below:
            setattr(self._owner, self._name, self._ours)


class Replacements(list[Replacement]):
    """Functions that are replaced one after the other, and put back in reverse; putting them back may come twice."""

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace one more."""
        self.append(Replacement(owner, name, make))
        self[-1].__enter__()

    def remove_all(self) -> None:
        """Put them back."""
        while self:
            self[-1].__exit__()
            self.pop()

    def step_aside(self) -> bool:
        """Put them back for a while."""
        for replaced in self:
            replaced.pause()
        return True

    def step_back(self, _caller: FrameType | None = None) -> None:
        """Replace them again."""
        for replaced in self:
            replaced.resume()


def _current(owner: Any, name: str) -> Any:
    """Return what is to be put back: on a class of C++ another object than an attribute of it gives."""
    return vars(owner).get(name) or getattr(owner, name)


_layers: list[Replacement] = []
_lock = RLock()


# Keeps Dynamo from compiling the tracer's own code: where a compiled function breaks its graph (it calls ``backward``),
# Dynamo stays on while the call runs, and compiles what Python code comes by, and what that calls: not as it says, a
# counter of torch's goes up and never down again. So the tracer's own code runs with Dynamo off; the door to it is one
# function that is left alone.

_Function = TypeVar("_Function", bound=Callable[..., Any])
_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)

switch_dynamo: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", lambda _: None)
"""Give this thread what compiles its frames (None: nobody); returns who did until now (0.1 µs)."""


def with_dynamo(compiler: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call torch's or the user's function from where Dynamo is off, with what `switch_dynamo` returned there."""
    switch_dynamo(compiler)
    try:
        return function(*args, **kwargs)
    finally:
        switch_dynamo(None)


def without_dynamo(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the tracer's with Dynamo off."""
    compiler = switch_dynamo(None)
    try:
        return function(*arguments)
    finally:
        switch_dynamo(compiler)


def skip_in_dynamo(function: _Function, *, inside: bool = False) -> _Function:
    """Keep Dynamo from compiling ``function``, and return it; with ``inside`` what it calls, too."""
    with suppress(AttributeError):  # another torch
        skip, default = _frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT
        _frames.set_code_exec_strategy(function.__code__, _frames._FrameExecStrategy(skip, skip if inside else default))
    return function


skip_in_dynamo(without_dynamo)


# Notes calls of torch's that no mode is told of, with the frames that make them. What notes them has returned before
# the function that is called does anything: no frame of ours is ever in a traceback or a warning.


def _noted(owner: Any, name: str, note: Callable[..., None]) -> Replacement:
    """Call ``note`` with the calling frame and the arguments whenever a function is called; not in another torch."""

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        @uncounted
        def instead(*args: Any) -> Any:
            without_dynamo(note, foreign_caller(sys._getframe(1)), *args)
            return original(*args)

        return skip_in_dynamo(instead)

    return Replacement(owner, name, noting)


def noted_applies(note: Callable[[FrameType, int], None]) -> Replacement:
    """Call ``note`` with the calling frame and its number whenever a custom Function makes a node, in any thread.

    A function mode does not see these, and from torch 2.14 on ``Function.apply`` is no Python function either. But each
    call makes the node, which is the ``ctx`` of the forward, as an instance of a class of Python's.
    """

    def made(frame: FrameType, node: Any) -> None:
        try:
            number = node._sequence_nr()
        except RuntimeError:  # before torch 2.13 it is drawn right afterwards
            number = sequence_number()
        note(frame, number)

    return _noted(BackwardCFunction, "__init__", made)


def noted_dual_levels(note: Callable[[FrameType], None]) -> Replacement:
    """Call ``note`` with the calling frame whenever derivatives are taken forwards: there no graph is built.

    ``torch.func.jvp`` and ``jacfwd``, ``torch.autograd.forward_ad`` and ``functional.jvp(strategy="forward-mode")`` all
    enter a level of dual numbers by one function, which returns before the user's code runs.
    """
    return _noted(forward_ad, "enter_dual_level", note)


def noted_seeds(note: Callable[[FrameType, int], None]) -> Replacement:
    """Call ``note`` with the frame of torch's that sets it and the seed whenever torch is seeded.

    ``torch.manual_seed`` and ``torch.seed`` are no operations, and hand the seed to a function of their module, too,
    for devices that other packages bring. In another torch the next draw shows it.
    """
    return _noted(torch.random, "_seed_custom_device", note)


def plain_stacks() -> Replacement:
    """Let the stacks that anomaly mode keeps for every node read as if nobody had looked, until the block ends."""

    def formatting(original: Callable[[], list[str]]) -> Callable[[], list[str]]:
        def format_stack() -> list[str]:
            if stacks.has_preserved_node_meta():
                return original()
            kept = foreign_frames([*outwards(sys._getframe(1))][::-1])
            return traceback.format_list(traceback.StackSummary.extract((each, each.f_lineno) for each in kept))

        return format_stack

    return Replacement(stacks, "format_stack", formatting)


# A function mode has one effect of its own: ``torch.overrides.has_torch_function`` says True while any mode is on, and
# ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` then leave their fused inference path, whose results
# differ in the last bits. `HiddenMode` answers that question as if the mode were not there.

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_ASKING = (torch.overrides, torch.functional, nn.functional)
# `dim_order` hands a mode no more than the tensor.
_DIRECT = frozenset(
    call.__code__
    for call in (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad, torch.Tensor.dim_order)
)


class HiddenMode(Replacements):
    """Lets torch's own questions whether anybody overrides its functions be answered as if ``mode`` were off.

    Only names that torch's Python modules look such questions up by are replaced, and put back. Functions of
    ``torch.nn.functional`` would take a way round through the mode, too, and show it in their tracebacks. Backward
    calls, which `followed_backward` sees, do not take that way either: how far up the stack a line is that a warning
    in a hook names is then what it always is.
    """

    def __init__(self, mode: TorchFunctionMode) -> None:
        super().__init__()
        self._mode = mode

    def begin(self) -> None:
        """Replace the names; where they are put back for a while, again."""
        if self:
            self.step_back()
            return
        asked = [(module, name, self._answering) for module in _ASKING for name in _QUESTIONS]
        asked.append((torch._tensor, "has_torch_function_unary", self._answering_direct))
        asked.append((torch.autograd, "has_torch_function", self._answering_direct))
        for module, name, answering in asked:
            self.put(module, name, answering)

    def _answering_direct(self, original: Callable[..., bool]) -> Callable[..., bool]:
        """Return the answer for calls that take no way through the mode; other questions get torch's own."""
        answer = self._answering(original)

        def has_torch_function(*args: Any) -> bool:
            return answer(*args) if foreign_caller(sys._getframe(1)).f_code in _DIRECT else original(*args)

        return has_torch_function

    def _answering(self, original: Callable[..., bool]) -> Callable[..., bool]:
        mode = self._mode

        def has_torch_function(*args: Any) -> bool:
            depth = torch._C._len_torch_function_stack()
            if not depth or torch._C._get_function_stack_at(depth - 1) is not mode:
                return original(*args)
            torch._C._pop_torch_function_stack()
            try:
                return original(*args)
            finally:
                torch._C._push_on_torch_function_stack(mode)

        return has_torch_function


def print_with(text: Callable[[torch.Tensor], str]) -> Callable[[], None]:
    """Print every tensor whose class has no ``__repr__`` of its own as ``text`` says; returns what ends that."""

    def printing(below: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(below)  # who counts the calls of a run sees it under torch's name
        def instead(self: Any, **contents: Any) -> str:
            if contents.get("tensor_contents") is not None or torch._C._get_tracing_state() is not None:
                return below(self, **contents)  # a trace of TorchScript would record how the numbers were read
            if has_torch_function_unary(self):
                own: Any = torch.Tensor.__repr__
                return str(handle_torch_function(own, (self,), self))
            try:
                return text(self)
            except Exception:  # printing never raises where torch's would not
                return below(self, **contents)

        return skip_in_dynamo(instead, inside=True)

    replaced = Replacements()
    for owner in (torch.Tensor, torch.nn.Parameter):
        replaced.put(owner, "__repr__", printing)
    return replaced.remove_all


# Sees every backward call: on whichever thread, under whichever name, from the user's code or from torch's own.
# ``Tensor.backward``, ``torch.autograd.backward`` and ``torch.autograd.grad``, and with them everything of torch's that
# calls them (``torch.func``, ``torch.autograd.functional``, re-entrant checkpointing, ``gradcheck``), hand over to one
# function, which `torch.autograd` looks up among its own names. That name is replaced while somebody follows (1 µs).

_RETAINS, _CREATES, _INPUTS = 1, 2, 3  # places among the arguments after the roots, of which gradients are the first


class BackwardCall(NamedTuple):
    """One call of the engine."""

    roots: tuple[Any, ...]  # what it starts from: tensors, or gradient edges
    inputs: tuple[Any, ...]  # what gradients were asked for; empty where all leaves collect theirs
    accumulates: bool  # whether leaves collect their gradients (``backward``) rather than the call returning them
    run: Callable[[], Any]  # makes the call and returns what it returns
    retains: bool = False  # whether the graph is to be kept for another call
    creates: bool = False  # whether what it returns gets a graph of its own
    between_compiled: bool = False  # whether a compiled function makes it: Dynamo compiles the hooks that run within


class Follower(Protocol):
    """What follows backward calls."""

    def follow(self, call: BackwardCall) -> Any:
        """Make the call, with ``call.run()``, and return what that returns; `uncounted`."""


_followers: list[tuple[int, Follower]] = []  # each with the thread that it was begun on


class followed_backward:  # noqa: N801  (read as what it does: ``with followed_backward(follower):``)
    """Tell ``follower`` of every backward call until the block ends.

    It follows those on the thread that enters the block, and those on threads on which nothing else follows: of these,
    whoever follows the thread on which somebody began last. Of several on one thread each follows, and what the others
    do is no part of the call for it.
    """

    def __init__(self, follower: Follower) -> None:
        self._entry = (get_ident(), follower)

    def __enter__(self) -> None:
        with _lock:
            _followers.append(self._entry)
            if _door not in _layers:
                _door.__enter__()

    def __exit__(self, *_: object) -> None:
        with _lock:
            _followers[:] = [other for other in _followers if other is not self._entry]
            if not _followers:
                _door.__exit__()


def _standing_in_for(original: Callable[..., Any]) -> Callable[..., Any]:
    @uncounted
    def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
        compiler = switch_dynamo(None)
        run = original if compiler is None else functools.partial(with_dynamo, compiler, original)
        # Those on this thread, the one that began first at the beginning; where there is none, those of the last one's.
        threads = [thread for thread, _ in _followers]
        here = get_ident() if get_ident() in threads else next(reversed(threads), None)
        try:
            for follower in [follower for thread, follower in _followers.copy() if thread == here]:
                run = functools.partial(_telling, follower, compiler is not None, run)
            return run(roots, *args, **kwargs)
        except BaseException as error:
            strip_own_frames(error)  # all but this one's
            raise
        finally:
            switch_dynamo(compiler)

    return skip_in_dynamo(run_backward)


_door = Replacement(torch.autograd, "_engine_run_backward", _standing_in_for)


@uncounted
def _telling(follower: Follower, between: bool, run: Any, roots: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001
    inputs = args[_INPUTS] if len(args) > _INPUTS else kwargs.get("inputs", ())
    accumulates = bool(kwargs.get("accumulate_grad", True))
    made = functools.partial(run, roots, *args, **kwargs)
    retains, creates = (len(args) > at and bool(args[at]) for at in (_RETAINS, _CREATES))
    return follower.follow(BackwardCall(tuple(roots), tuple(inputs), accumulates, made, retains, creates, between))
