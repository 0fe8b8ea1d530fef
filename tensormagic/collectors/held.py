"""Which parameters an optimizer was given: those of the run by their number, and those that play no part in it."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from tensormagic.collectors.identity import Leaves

MOST_SHAPES = 8


class Held:
    """What one optimizer holds.

    A parameter is looked up at the first step, and what was not known then at steps that become exponentially rarer:
    the module that it belongs to may not have run yet.

    Args:
        leaves: Numbers leaves.

    Attributes:
        numbers: Of the leaves among them.
        owners: The names of the models that they belong to.
        strangers_idle: Whether none of the others had a gradient when looked at.
    """

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._looks = self._count = 0
        self._strangers: dict[int, tuple[weakref.ref[Any], tuple[int, ...]]] = {}
        self.numbers: set[int] = set()
        self.strangers_idle = True
        self.owners: dict[str, None] = {}

    @property
    def strangers(self) -> int:
        """How many of them are no leaf of the run."""
        return len(self._strangers)

    def stranger_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the first of these."""
        return tuple(shape for _, shape in list(self._strangers.values())[:MOST_SHAPES])

    def look(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at what it holds just after a step."""
        self._looks += 1
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        rare = self._looks & (self._looks - 1) == 0
        if count == self._count and not (self._strangers and rare):
            return
        self._count = count
        strangers = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                number = self._leaves.find(parameter)
                if number is not None:
                    self.numbers.add(number)
                    self.owners[self._leaves.known[number].owner] = None
                elif parameter.requires_grad:
                    strangers[id(parameter)] = (weakref.ref(parameter), tuple(parameter.shape))
                    self.strangers_idle &= parameter.grad is None
        self._strangers = strangers
