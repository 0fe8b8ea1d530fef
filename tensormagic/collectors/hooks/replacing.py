"""Replaces functions of torch's for the duration of a run, puts them back, and keeps Dynamo out of ours."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import torch

# Replaces functions of torch's for the duration of a trace, and puts them back whatever the order.
#
# Traces on two threads may begin and end in any order, and the person may replace the same function meanwhile. Each
# replacement knows what lay below it: what ends in the midst of others is taken out of their midst.


class Replacement:
    """One function that stands in for another while this is entered; what ends it may come before that, and twice.

    Where somebody else replaced ours meanwhile, theirs stays: it goes on to ours, which goes on to what lay below.
    """

    __slots__ = ("_below", "_make", "_name", "_ours", "_owner")

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._make = owner, name, make
        self._below = self._ours = None

    def __enter__(self) -> Replacement:
        """Stand in from now on."""
        with _lock:
            self._below = _standing(self._owner, self._name)
            self._ours = self._make(self._below)
            _layers.append(self)
            setattr(self._owner, self._name, self._ours)
        return self

    def __exit__(self, *_: object) -> None:
        """Put back what lay below, or leave it to who came later."""
        with _lock:
            if self not in _layers:
                return
            self.pause()
            for other in _layers:
                if other._below is self._ours:
                    other._below = self._below
            _layers.remove(self)

    def pause(self) -> None:
        """Put back what lay below for a while, where nobody came later (0.2 µs)."""
        if _standing(self._owner, self._name) is self._ours:
            setattr(self._owner, self._name, self._below)

    def resume(self) -> None:
        """Stand in again, where nobody came meanwhile."""
        if _standing(self._owner, self._name) is self._below:
            setattr(self._owner, self._name, self._ours)


def _standing(owner: Any, name: str) -> Any:
    """Return what is to be put back: on a class of C++ another object than an attribute of it gives."""
    return vars(owner).get(name) or getattr(owner, name)


_layers: list[Replacement] = []
_lock = Lock()


# Keeps Dynamo from compiling the tracer's own code, where that runs between two compiled pieces.
#
# Where a compiled function breaks its graph (it calls ``backward``), Dynamo stays on while the call runs, and
# compiles what Python code comes by: the person's hooks, as it would without us, and it is to stay away from ours. It
# follows calls into whatever they call, and what it does with theirs is not what they say: a counter of torch's goes
# up and never down again. So the tracer's own code runs with Dynamo off; the door to it is one function that is left
# alone.

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def _nothing_to_switch(_: Any) -> None:
    return None


switch_dynamo: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", _nothing_to_switch)
"""Give this thread what compiles its frames (None: nobody); returns who did until now (0.1 µs)."""


def with_dynamo(compiler: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call torch's or the person's function from where Dynamo is off, with what `switch_dynamo` returned there."""
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


def skip_in_dynamo(function: Any, *, inside: bool = False) -> None:
    """Keep Dynamo from compiling ``function``; with ``inside`` what it calls, too."""
    try:
        skip, default = _frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT
        _frames.set_code_exec_strategy(function.__code__, _frames._FrameExecStrategy(skip, skip if inside else default))
    except AttributeError:  # another torch
        return


skip_in_dynamo(without_dynamo)
