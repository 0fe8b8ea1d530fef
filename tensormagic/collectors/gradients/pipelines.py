"""What a backward is to a pipeline schedule of torch's: of which microbatch it is, or no pass of the run at all.

In one ``schedule.step()`` each microbatch goes through each stage once, forward and back, in an order of the
schedule's. Before the first step it finds out shapes with a forward and a backward of memory that nobody has filled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

_PACKAGE = "torch.distributed.pipelining"
_MOST_FRAMES = 64
_STAGE = "torch.distributed.pipelining.stage"
_OF_ONE_CHUNK = frozenset({"backward_one_chunk", "backward_weight_one_chunk"})
_INFERENCE = "metadata_inference"

Chunk = tuple[int, str, int]


def infers_shapes() -> bool:
    """Return whether the calling code runs because a pipeline finds out shapes."""
    return any(_INFERENCE in frame.f_code.co_name for frame in _frames())


def chunk() -> Chunk | None:
    """Return which stage goes back through which microbatch in the calling code, and in which way; None in no other."""
    for frame in _frames():
        if (what := frame.f_code.co_name) in _OF_ONE_CHUNK and "bwd_chunk_id" in frame.f_code.co_varnames:
            local = frame.f_locals
            return id(local.get("self")), what, local["bwd_chunk_id"]
    return None


def _frames() -> Iterator[FrameType]:
    """Yield the frames of pipeline stages above the caller; none is looked for where no pipeline was imported."""
    if _PACKAGE not in sys.modules:
        return
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        if frame.f_globals.get("__name__") == _STAGE:
            yield frame
        frame = frame.f_back


class Microbatches:
    """Tells where a step of a pipeline begins: where a microbatch comes again."""

    def __init__(self) -> None:
        self._seen: set[Chunk] = set()

    def begin_step(self) -> bool | None:
        """Return whether the backward that begins is the first of a step; None where it is in no pipeline."""
        now = chunk()
        if now is None:
            self._seen.clear()
            return None
        first = not self._seen or now in self._seen
        if first:
            self._seen.clear()
        self._seen.add(now)
        return first
