"""Which parameters an optimizer was given: those of the run by their number, and those that play no part in it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.foreign import is_a
from tensormagic.collectors.objects.identity import Leaves

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
        strangers_of: The name of the module that the others are parameters of, where one has a name.
        strangers_idle: Whether none of the others had a gradient when looked at.
    """

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._looks = self._count = 0
        self._strangers: dict[int, tuple[weakref.ref[Any], tuple[int, ...]]] = {}
        self.numbers: set[int] = set()
        self.strangers_idle = True
        self.strangers_of = ""
        self.owners: dict[str, None] = {}

    @property
    def strangers(self) -> int:
        """How many of them are no leaf of the run."""
        return len(self._strangers)

    def stranger_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the first of these."""
        return tuple(shape for _, shape in list(self._strangers.values())[:MOST_SHAPES])

    def find_owner(self, namespace: Mapping[str, Any]) -> None:
        """Look, once, whether the strangers are the parameters of a module that has a name."""
        there = {id(tensor) for reference, _ in self._strangers.values() if (tensor := reference()) is not None}
        named = [(name, value) for name, value in list(namespace.items()) if not name.startswith("_")] if there else []
        for name, value in named:
            if is_a(value, nn.Module) and there <= {id(parameter) for parameter in value.parameters()}:
                self.strangers_of = name
                return

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
                number = self._leaves.find_trained(parameter)
                if number is not None:
                    self.numbers.add(number)
                    self.owners[self._leaves.known[number].owner] = None
                elif parameter.requires_grad:
                    strangers[id(parameter)] = (weakref.ref(parameter), tuple(parameter.shape))
                    self.strangers_idle &= parameter.grad is None
        self._strangers = strangers
