"""In which mode a model is when an optimizer steps it: train or eval, of the modules to which that matters."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from tensormagic.reports import ModelMode

MOST_MODULES = 24  # of one model whose mode is read at each step, evenly spaced

_DROPOUT = nn.modules.dropout._DropoutNd
_BATCH_NORM = nn.modules.batchnorm._BatchNorm


class ModelModes:
    """The modes of one model, over the steps of its optimizers."""

    def __init__(self, name: str, model: nn.Module) -> None:
        self.name = name
        self.reference = weakref.ref(model)
        sensitive = [module for module in model.modules() if _matters(module)]
        step = -(-len(sensitive) // MOST_MODULES) or 1
        self._modules = [weakref.ref(module) for module in sensitive[::step]]
        self._weights = _weights_beside(model, sensitive[::step])
        norms = [module for module in sensitive if isinstance(module, _BATCH_NORM)]
        self._dropouts, self._norms = len(sensitive) - len(norms), len(norms)
        self._unused_norms = sum(_is_unused(module) for module in norms)
        self._steps = self._eval_steps = self._in_a_row = self._longest = self._first = 0

    def step(self, held: Iterable[torch.Tensor]) -> None:
        """Look at the modes: an optimizer made a step, which holds these parameters."""
        model = self.reference()
        self._steps += 1
        if model is None or model.training or not self._modules or any(map(_is_training, self._modules)):
            self._in_a_row = 0
            return
        if not self._learns(held):
            self._in_a_row = 0
            return
        self._first = self._first or self._steps
        self._eval_steps += 1
        self._in_a_row += 1
        self._longest = max(self._longest, self._in_a_row)

    def _learns(self, held: Iterable[torch.Tensor]) -> bool:
        """Return whether anything is trained beside a dropout or in a normalisation: frozen parts stay as they are."""
        trained = {id(parameter) for parameter in held if parameter.requires_grad}
        return any(id(weight) in trained for reference in self._weights if (weight := reference()) is not None)

    def report(self) -> ModelMode:
        """Return what was seen."""
        return ModelMode(
            model=self.name, steps=self._steps, eval_steps=self._eval_steps, longest=self._longest, first=self._first,
            dropouts=self._dropouts, norms=self._norms, unused_norms=self._unused_norms,
        )  # fmt: skip


def _weights_beside(model: nn.Module, sensitive: list[nn.Module]) -> list[weakref.ref[torch.Tensor]]:
    """Return the parameters of these modules; of one that has none, those of the innermost one around it that has."""
    wanted, found = {id(module) for module in sensitive}, dict[int, torch.Tensor]()
    pending: list[tuple[nn.Module, nn.Module]] = [(model, model)]
    while pending:
        module, around = pending.pop()
        around = module if next(module.parameters(), None) is not None else around
        if id(module) in wanted:
            found.update((id(parameter), parameter) for parameter in around.parameters())
        pending += [(child, around) for child in module.children()]
    return [weakref.ref(parameter) for parameter in found.values()]


def _matters(module: nn.Module) -> bool:
    if isinstance(module, _DROPOUT):
        return module.p > 0
    return isinstance(module, _BATCH_NORM) and module.running_mean is not None


def _is_unused(module: Any) -> bool:
    """Return whether a normalisation's running statistics are those it was made with."""
    counted = module.num_batches_tracked
    return counted is not None and counted.device.type != "meta" and int(counted) == 0


def _is_training(reference: weakref.ref[nn.Module]) -> bool:
    module = reference()
    return module is not None and module.training
