"""Finds sums that each step adds an attached loss to: ``total += loss``, which keeps the graphs of all steps alive.

Of the last sum that a line made, only the number of its node is kept. A sum that was made since, with a backward in
between, and in whose history that node is found again, goes on from step to step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

import torch

from tensormagic.collectors.calls.seen_norms import UntrainedNorms
from tensormagic.reports import RunningSum

if TYPE_CHECKING:
    from tensormagic.collectors.calls.call_watch import Call, CallWatch

NAMES: Final = ("__add__", "__radd__", "__iadd__", "add", "add_")
MOST_DEPTH = 1 << 12  # nodes that are gone through in search of the sum before
MOST_LINES = 64


@dataclass(slots=True)
class _Line:
    number: int
    passes: int
    steps: int = 1


@dataclass(slots=True)
class LoopNotes:
    """What single calls tell about the training loop.

    Attributes:
        cleared: The line that called ``optimizer.zero_grad()`` last; None from each backward on.
        passes: How many backward passes there were.
        norms: Normalisations that took statistics without gradients.
        region: Gives the line that has switched gradients off.
    """

    cleared: int | None = None
    passes: int = 0
    norms: UntrainedNorms = field(default_factory=UntrainedNorms)
    region: Callable[[], int | None] = lambda: None
    _lines: dict[int, _Line] = field(default_factory=dict)

    def sums(self) -> tuple[RunningSum, ...]:
        """Return the sums that went on over steps."""
        lines = list(self._lines.items())
        return tuple(RunningSum(location=site, steps=line.steps) for site, line in lines if line.steps > 1)

    def add(self, site: int, node: Any) -> None:
        """Note that a line has made a sum."""
        number, line = node._sequence_nr(), self._lines.get(site)
        if line is None:
            if len(self._lines) < MOST_LINES:
                self._lines[site] = _Line(number, self.passes)
            return
        if line.passes != self.passes:
            line.steps = line.steps + self.passes - line.passes if _reaches(node, line.number) else 1
        line.number, line.passes = number, self.passes


def added(watch: CallWatch, call: Call) -> None:
    """Look at a sum of two numbers."""
    result = call.result
    if isinstance(result, torch.Tensor) and result.grad_fn is not None and result.numel() == 1:
        site = watch.site(call)
        if site is not None:
            watch.loop.add(site, result.grad_fn)


def _reaches(node: Any, number: int) -> bool:
    """Return whether the node of that number is behind ``node``."""
    waiting, seen = [(node._sequence_nr(), 0, node)], 0
    while waiting and seen < MOST_DEPTH:
        _, _, node = heappop(waiting)  # the oldest first: that way the sum before is found at once
        for target, _ in node.next_functions:
            at = -1 if target is None or hasattr(target, "variable") else target._sequence_nr()
            if at == number:
                return True
            if at > number:
                seen += 1
                heappush(waiting, (at, seen, target))
    return False
