"""Which graphs are kept, or recorded by a model in eval mode, and no backward goes through them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import get_ident
from types import FrameType
from typing import Any, Literal

import numpy as np

from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.graphs.live_nodes import NO_NUMBER
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.hooks.replacing import BackwardCall
from tensormagic.collectors.objects.identity import module_calls
from tensormagic.reports import Graph, UnusedGraph

MOST_LINES = 64
MOST_RANGES = 256  # of a line: what backward goes through, it has made lately

_Kind = Literal["kept", "evaluation"]
_Key = tuple[_Kind, "int | None", str]  # with the site, and the model


@dataclass(slots=True)
class _Line:
    """The graphs of one line: each a range of sequence numbers, of which the stop is exclusive."""

    ranges: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MOST_RANGES))
    times: int = 0  # how many times a pass came after one of these graphs, and did not go through it
    waits: bool = False  # whether one was made since the last pass
    used: bool = False  # whether a backward went through any of them

    def add(self, start: int, stop: int) -> None:
        """Note a graph, or more of the one that was noted last."""
        self.waits = True
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        self.ranges.append((start, stop))

    def look(self, walked: Any) -> None:
        """Note what a pass goes through: the numbers of its nodes, in order."""
        if self.ranges and walked.size and self.ranges[-1][1] > walked[0]:
            at = np.searchsorted(walked, np.array(self.ranges, dtype=np.uint64))
            self.used = self.used or bool((at[:, 0] < at[:, 1]).any())
        self.times += self.waits and not self.used
        self.waits = False


class UnusedGraphs(TracePart):
    """Compares what each backward goes through with the graphs that were kept, or recorded in eval mode, before it."""

    def __init__(self, trace: TraceContext) -> None:
        self._sites, self._modules, self._home = trace.sites, trace.leaves.modules, get_ident()
        self._lines: dict[_Key, _Line] = {}
        self._judges = True  # whether every pass was seen
        trace.recorder.evaluated = self._evaluated

    def _evaluated(self, start: int, stop: int, frame: FrameType) -> None:
        """Note nodes that a call made in a module in eval mode, by the line that called the model. Never raises."""
        with suppress(Exception):  # a module may answer by code of its own
            *_, call = module_calls(frame)
            model = call.f_locals["self"]
            if get_ident() == self._home and not model.training:
                name = self._modules.path(model) or type(model).__name__
                self._add("evaluation", self._sites.of_frame(call.f_back), name, start, stop)

    def before_pass(self, call: BackwardCall, followed: Following) -> None:
        """Compare a pass with the graphs noted so far, and note its own where it keeps it. Never raises."""
        keeps = call.retains and not call.creates and followed.pass_context is None
        if not (keeps or self._lines):
            return
        found = followed.found
        if found is None or found.foreign:
            self.forget()
            return
        with suppress(Exception):
            walked = _numbers_of(found)
            for line in self._lines.values():
                line.look(walked)
            if keeps and walked.size and followed.thread == self._home:
                self._add("kept", followed.site, "", int(walked[0]), int(walked[-1]) + 1)

    def _add(self, kind: _Kind, site: int | None, model: str, start: int, stop: int) -> None:
        line = self._lines.get((kind, site, model))
        if line is None and site is not None and self._judges and len(self._lines) < MOST_LINES:
            line = self._lines[kind, site, model] = _Line()
        if line is not None:
            line.add(start, stop)

    def forget(self) -> None:
        """Say nothing of this run: a pass that was not seen may have gone through any of these graphs."""
        self._judges = False
        self._lines.clear()

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what was found so far."""
        every = ((key, line.times) for key, line in list(self._lines.items()) if line.times and not line.used)
        found = (
            UnusedGraph(kind=kind, location=site, model=model, times=times) for (kind, site, model), times in every
        )
        return {"unused_graphs": tuple(found)}


def _numbers_of(found: Walk) -> Any:
    numbers = np.array(found.numbers, dtype=np.uint64)
    return np.sort(numbers[numbers != NO_NUMBER])
