"""Calls that no mode sees, noted by replacing a function: custom Functions, forward-mode AD, anomaly mode's stacks."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FrameType, ModuleType
from typing import Any

import torch
import torch.fx.traceback as stacks
from torch.autograd import forward_ad

from tensormagic.collectors.hooks.replacing import Replacement, skip_in_dynamo, without_dynamo
from tensormagic.collectors.where.caller import foreign_caller, foreign_frames
from tensormagic.reports import Location

# Notes the lines of custom ``autograd.Function`` calls, which a function mode does not see.
#
# ``Function.apply`` asks one question of its module, whether the class has a ``setup_context``, and then hands over
# to C++, which numbers the node before it runs the forward. So the node that a call makes is the next one, and the
# caller of whoever asks is the line. The answer is given before the forward runs: no frame of ours is ever in its
# stack, nothing is added to a traceback or a warning. The question costs about 1 µs more.

_MODULE: ModuleType = sys.modules[torch.autograd.Function.__module__]
_QUESTION = "_is_setup_context_defined"
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def noted_applies(note: Callable[[FrameType | None], None]) -> AbstractContextManager[Any]:
    """Call ``note`` with the calling frame whenever a custom Function is about to make a node, in any thread."""
    if not hasattr(_MODULE, _QUESTION):  # another torch: these nodes have the line of the next call then, and say so
        return nullcontext()
    return Replacement(_MODULE, _QUESTION, partial(_asking, note))


def _asking(note: Callable[[FrameType | None], None], original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def is_setup_context_defined(method: Any) -> Any:
        asking = foreign_caller(sys._getframe(1))
        if asking.f_code is _APPLY:
            without_dynamo(note, asking.f_back)
        return original(method)

    skip_in_dynamo(is_setup_context_defined)
    return is_setup_context_defined


# Notes where derivatives are taken forwards: there no graph is built, so none can be shown, and that is said.
#
# ``torch.func.jvp`` and ``jacfwd``, ``torch.autograd.forward_ad`` and ``functional.jvp(strategy="forward-mode")`` all
# enter a level of dual numbers by one function of `torch.autograd.forward_ad`. It returns before the person's code
# runs.

_ENTER = "enter_dual_level"


def forward_mode_gap(place: Location) -> str:
    """Return the sentence about derivatives that were taken forwards at a place."""
    return f"{place.label} takes derivatives forwards (jvp, dual numbers): that builds no graph to be shown"


def noted_dual_levels(note: Callable[[FrameType], None]) -> Replacement:
    """Call ``note`` with the calling frame whenever a level of dual numbers is entered, until the block ends."""
    return Replacement(forward_ad, _ENTER, partial(_entering, note))


def _entering(note: Callable[[FrameType], None], original: Callable[[], Any]) -> Callable[[], Any]:
    def enter_dual_level() -> Any:
        without_dynamo(note, sys._getframe(1))
        return original()

    skip_in_dynamo(enter_dual_level)
    return enter_dual_level


# Keeps the tracer's frames out of the stacks that anomaly mode keeps for every node, and prints where one fails.


def plain_stacks() -> Replacement:
    """Let stacks read as if nobody had looked, until the block ends."""
    return Replacement(stacks, "format_stack", _formatting)


def _formatting(original: Callable[[], list[str]]) -> Callable[[], list[str]]:
    def format_stack() -> list[str]:
        if stacks.has_preserved_node_meta():
            return original()
        return traceback.format_list(_without_own(sys._getframe(1)))

    return format_stack


def _without_own(frame: FrameType | None) -> traceback.StackSummary:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    kept = foreign_frames(frames[::-1])
    return traceback.StackSummary.extract((each, each.f_lineno) for each in kept)
