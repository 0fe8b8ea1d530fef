"""Keeps Dynamo from compiling the tracer's own code, where that runs between two compiled pieces.

Where a compiled function breaks its graph (it calls ``backward``), Dynamo stays on while the call runs, and compiles
what Python code comes by: the person's hooks, as it would without us, and it is to stay away from ours. It follows
calls into whatever they call, and what it does with theirs is not what they say: a counter of torch's goes up and
never down again. So the tracer's own code runs with Dynamo off; the door to it is one function that is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
