"""Sees every backward call: on whichever thread, under whichever name, from the person's code or from torch's own.

``Tensor.backward``, ``torch.autograd.backward`` and ``torch.autograd.grad``, also where they were imported by name
before, and with them everything of torch's that calls them (``torch.func``, ``torch.autograd.functional``,
re-entrant checkpointing, ``gradcheck``), hand over to one function, which `torch.autograd` looks up among its own
names. That name is replaced while somebody follows, and put back with the last one. A call costs about 1 µs more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, get_ident
from typing import Any, Protocol

import torch

from tensormagic.collectors.hooks.replacing import skip_in_dynamo, switch_dynamo, with_dynamo
from tensormagic.collectors.where.caller import strip_own_frames, uncounted

_NAME = "_engine_run_backward"
_RETAINS = 1
_INPUTS = 3  # its place among the arguments after the roots: gradients, retain_graph, create_graph, inputs, …


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """One call of the engine.

    Attributes:
        roots: What it starts from: tensors, or gradient edges.
        inputs: What gradients were asked for; empty where all leaves collect theirs.
        accumulates: Whether leaves collect their gradients (``backward``) rather than the call returning them.
        run: Makes the call and returns what it returns.
        retains: Whether the graph is to be kept for another call.
        between_compiled: Whether a compiled function makes it: Dynamo compiles the hooks that run within.
    """

    roots: tuple[Any, ...]
    inputs: tuple[Any, ...]
    accumulates: bool
    run: Callable[[], Any]
    retains: bool = False
    between_compiled: bool = False


class Follower(Protocol):
    """Who is told of backward calls.

    Attributes:
        passing: While it is not None, it is called instead of `follow`, with torch's function and the arguments for it;
            it makes the call and returns what that returns. For one that does not look at what the call does.
    """

    passing: Callable[[Any, Any, Any, Any], Any] | None

    def follow(self, call: BackwardCall) -> Any:
        """Make the call, with ``call.run()``, and return what that returns; `uncounted`."""


_followers: list[tuple[int, Follower]] = []  # each with the thread that it was begun on
_lock = Lock()
_replaced: list[tuple[Any, Any]] = []  # torch's function and what stands in for it, while it does


class followed_backward:  # noqa: N801  (read as what it does: ``with followed_backward(follower):``)
    """Tell ``follower`` of every backward call until the block ends.

    It is told of those on the thread that enters the block, and of those on threads on which nobody follows: of these,
    whoever follows the thread on which somebody began last. Of several on one thread each is told, and what the others
    do is no part of the call for it.
    """

    def __init__(self, follower: Follower) -> None:
        self._entry = (get_ident(), follower)

    def __enter__(self) -> None:
        """Begin."""
        with _lock:
            _followers.append(self._entry)
            _stand_in()

    def __exit__(self, *_: object) -> None:
        """End."""
        with _lock:
            _followers[:] = [other for other in _followers if other is not self._entry]
            _step_down()


def _stand_in() -> None:
    if not _replaced and hasattr(torch.autograd, _NAME):
        original = getattr(torch.autograd, _NAME)
        ours = _standing_in_for(original)
        _replaced.append((original, ours))
        setattr(torch.autograd, _NAME, ours)


def _step_down() -> None:
    if _replaced and not _followers:
        original, ours = _replaced[-1]
        if getattr(torch.autograd, _NAME) is ours:  # else somebody else replaced it meanwhile, and calls ours
            setattr(torch.autograd, _NAME, original)
        _replaced.pop()


def _standing_in_for(original: Callable[..., Any]) -> Callable[..., Any]:
    @uncounted
    def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
        compiler = switch_dynamo(None)
        run = original if compiler is None else functools.partial(with_dynamo, compiler, original)
        try:
            for follower in _followers_here():
                run = functools.partial(_telling, follower, compiler is not None, run)
            return run(roots, *args, **kwargs)
        except BaseException as error:
            strip_own_frames(error)  # all but this one's
            raise
        finally:
            switch_dynamo(compiler)

    skip_in_dynamo(run_backward)
    return run_backward


@uncounted
def _telling(follower: Follower, between: bool, run: Any, roots: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001
    """Make a call that ``follower`` is told of."""
    if follower.passing is not None:
        return follower.passing(run, roots, args, kwargs)
    inputs = args[_INPUTS] if len(args) > _INPUTS else kwargs.get("inputs", ())
    accumulates = bool(kwargs.get("accumulate_grad", True))
    made = functools.partial(run, roots, *args, **kwargs)
    retains = bool(args[_RETAINS]) if len(args) > _RETAINS else False
    return follower.follow(BackwardCall(tuple(roots), tuple(inputs), accumulates, made, retains, between))


def _followers_here() -> list[Follower]:
    """Return whom to tell of a call on this thread, the one that began first at the beginning."""
    if len(_followers) == 1:
        return [_followers[0][1]]
    followers = _followers.copy()
    here = get_ident()
    if followers and not any(thread == here for thread, _ in followers):
        here = followers[-1][0]
    return [follower for thread, follower in followers if thread == here]
