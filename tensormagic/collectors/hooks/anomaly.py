"""Keeps the tracer's frames out of the stacks that anomaly mode keeps for every node, and prints where one fails."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch.fx.traceback as stacks

from tensormagic.collectors.hooks.replacing import replace
from tensormagic.collectors.where.tracebacks import foreign_frames


@contextmanager
def plain_stacks() -> Iterator[None]:
    """Let stacks read as if nobody had looked, until the block ends."""
    undo = replace(stacks, "format_stack", _formatting)
    try:
        yield
    finally:
        undo()


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
