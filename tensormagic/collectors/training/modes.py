"""In which mode a model is when an optimizer steps it: train or eval, of the modules to which that matters."""

from __future__ import annotations

import weakref
from typing import Any

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
        norms = [module for module in sensitive if isinstance(module, _BATCH_NORM)]
        self._dropouts, self._norms = len(sensitive) - len(norms), len(norms)
        self._unused_norms = sum(_is_unused(module) for module in norms)
        self._steps = self._eval_steps = self._in_a_row = self._longest = self._first = 0

    def step(self) -> None:
        """Look at the modes: a step was made."""
        model = self.reference()
        self._steps += 1
        if model is None or model.training or not self._modules or any(map(_is_training, self._modules)):
            self._in_a_row = 0
            return
        self._first = self._first or self._steps
        self._eval_steps += 1
        self._in_a_row += 1
        self._longest = max(self._longest, self._in_a_row)

    def report(self) -> ModelMode:
        """Return what was seen."""
        return ModelMode(
            model=self.name, steps=self._steps, eval_steps=self._eval_steps, longest=self._longest, first=self._first,
            dropouts=self._dropouts, norms=self._norms, unused_norms=self._unused_norms,
        )  # fmt: skip


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
