"""``x[0], x[1] = x[1], x[0]`` swaps numbers of a list; of a tensor it does not: both sides are views of one memory.

The right side makes two views and copies nothing; the first assignment changes what the second one then reads. Each op
by itself is in order, so it is the line that has to be watched: what stood where it wrote first is kept until it ends.
"""

from __future__ import annotations

from types import FrameType

import torch

from tensormagic.collectors.aliasing.clash import REPLAY_LIMIT, Suspicion
from tensormagic.collectors.aliasing.sharers import place_of
from tensormagic.collectors.geometry.overlap import Region
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import Clash


class Swaps:
    """What the running line has overwritten so far, if it assigns several subscripts at once."""

    def __init__(self) -> None:
        self._place = (0, 0)
        self._instruction = -1
        self._before: list[tuple[Region, torch.Tensor]] = []

    def suspect(self, frame: FrameType, target: torch.Tensor, operand: torch.Tensor) -> Suspicion | None:
        """Return a suspicion where ``operand`` is what this line has written to already.

        Args:
            frame: The person's frame that runs the line.
            target: What is about to be written to.
            operand: What is read.
        """
        place = (id(frame), frame.f_lineno)
        if place != self._place or frame.f_lasti <= self._instruction:
            self._before = []
        self._place, self._instruction = place, frame.f_lasti
        if target.layout != torch.strided or target.numel() > REPLAY_LIMIT or operand.layout != torch.strided:
            return None
        with quiet():
            read = place_of(operand)
            before = next((kept for region, kept in self._before if region == read), None)
            self._before.append((place_of(target), target.detach().clone()))
            if before is None:
                return None
            expected = before.to(target.dtype).expand(target.shape)
            return Suspicion(Clash("reads what it writes", "", operand.numel(), target.numel()), target, expected)

    def forget(self) -> None:
        """Let the copies go."""
        self._before = []
