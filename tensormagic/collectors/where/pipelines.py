"""Where in a pipeline schedule of torch's the calling code is.

In one ``schedule.step()`` each microbatch goes through each stage once, forward and back, in any order. Before the
first it finds out shapes with a forward and a backward of memory that nobody has filled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from types import FrameType

import torch

from tensormagic.collectors.where.source import outwards

_PIPELINING = "torch.distributed.pipelining"
_MOST_FRAMES = 64
_OF_ONE_CHUNK = frozenset({"backward_one_chunk", "backward_weight_one_chunk"})


def _stage_frames() -> Iterator[FrameType]:
    """Yield the frames of pipeline stages above the caller; none is looked for where no pipeline was imported."""
    caller = sys._getframe(2) if _PIPELINING in sys.modules else None
    for frame in islice(outwards(caller), _MOST_FRAMES):
        if frame.f_globals.get("__name__") == f"{_PIPELINING}.stage":
            yield frame


def infers_shapes() -> bool:
    """Return whether the calling code runs because a pipeline finds out shapes."""
    return any("metadata_inference" in frame.f_code.co_name for frame in _stage_frames())


def place_in_stage(tensor: torch.Tensor) -> int | None:
    """Return at which place a stage whose backward runs was given a tensor by the stage before; None of others."""
    for frame in _stage_frames():
        given = frame.f_locals.get("input_values", ()) if frame.f_code.co_name in _OF_ONE_CHUNK else ()
        found = next((place for place, each in enumerate(given) if each is tensor), None)
        if found is not None:
            return found
    return None


class Microbatches:
    """Tells where a step of a pipeline begins: where a microbatch comes again."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str, int]] = set()  # stage, way, microbatch

    def begin_step(self) -> bool | None:
        """Return whether the backward that begins is the first of a step; None where it is in no pipeline."""
        for frame in _stage_frames():
            if (what := frame.f_code.co_name) in _OF_ONE_CHUNK and "bwd_chunk_id" in frame.f_code.co_varnames:
                now = id(frame.f_locals.get("self")), what, frame.f_locals["bwd_chunk_id"]
                first = not self._seen or now in self._seen
                if first:
                    self._seen.clear()
                self._seen.add(now)
                return first
        self._seen.clear()
        return None
