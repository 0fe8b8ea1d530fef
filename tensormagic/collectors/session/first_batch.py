"""The first batch of what feeds a training, taken so that the training still gets it, and what a loss makes of it."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

# Random generators are put back to where they were: torch's on every device, NumPy's, Python's, and the loader's own.


@contextmanager
def generators_kept(*own: Any) -> Iterator[None]:
    """Put every generator back that code may draw from, those given as well."""
    numpy = sys.modules.get("numpy")
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    python, states = random.getstate(), [(one, one.get_state()) for one in own if isinstance(one, torch.Generator)]
    arrays = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.random.set_state(arrays)
            for generator, state in states:
                generator.set_state(state)


def generators_of(source: Any) -> list[Any]:
    """Return the generators of a loader and its samplers."""
    samplers = [getattr(source, name, None) for name in ("sampler", "batch_sampler")]
    inner = [getattr(sampler, "sampler", None) for sampler in samplers]
    return [getattr(one, "generator", None) for one in (source, *samplers, *inner) if one is not None]


# The batch.


class CannotTakeError(Exception):
    """A source of batches from which none can be taken without taking it from the training."""


def first_batch(source: Any) -> Any:
    """Return the first batch of a loader, or of a list of batches; a batch is returned as it is.

    No worker is started and the loader's own iterator is left alone.

    Raises:
        CannotTakeError: for an iterator, which would not give the batch again.
    """
    if isinstance(source, DataLoader):
        return _of_loader(source)
    if isinstance(source, torch.Tensor | Mapping) or _is_batch(source):
        return source
    iterator = iter(source)
    if iterator is source:
        raise CannotTakeError("it is an iterator: a batch taken from it would be missing in training")
    return next(iterator)


def _is_batch(source: Any) -> bool:
    """Return whether a tuple or list is a batch itself: tensors alone."""
    return isinstance(source, tuple | list) and bool(source) and all(isinstance(x, torch.Tensor) for x in source)


def _of_loader(loader: DataLoader[Any]) -> Any:
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        items = iter(dataset)
        if items is dataset:
            raise CannotTakeError("its dataset is an iterator: a batch taken from it would be missing in training")
        if loader.batch_size is None:
            return loader.collate_fn(next(items))
        return loader.collate_fn(list(islice(items, loader.batch_size)))
    collated: bool = loader._auto_collation
    places = next(iter(loader.batch_sampler if collated and loader.batch_sampler is not None else loader.sampler))
    return _MapDatasetFetcher(dataset, collated, loader.collate_fn, loader.drop_last).fetch(places)  # type: ignore[no-untyped-call]


def mapped(batch: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return a batch with each of its tensors changed."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [mapped(value, change) for value in batch]
    return batch


class Parts(NamedTuple):
    """A batch, taken apart: what the model is given, and what the loss compares with."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    target: Any


def parts_of(batch: Any) -> Parts:
    """Take a batch apart: the last of several is the target, and a dictionary is what the model takes by name."""
    if isinstance(batch, Mapping):
        named = {str(key): value for key, value in batch.items()}
        return Parts((), named, named.get("labels"))
    if isinstance(batch, tuple | list) and len(batch) > 1:
        return Parts(tuple(batch[:-1]), {}, batch[-1])
    return Parts(tuple(batch) if isinstance(batch, tuple | list) else (batch,), {}, None)


# The loss.


class Judged(NamedTuple):
    """A loss, what it is called, and what it is of a model that knows nothing."""

    value: Any
    name: str
    expected: float | None


def first_tensor(result: Any) -> torch.Tensor | None:
    """Return what a model made: the tensor, the logits of a named result, the first of several."""
    if isinstance(result, torch.Tensor):
        return result
    if isinstance(result, Mapping):
        result = result.get("logits", next(iter(result.values()), None))
        return result if isinstance(result, torch.Tensor) else None
    if isinstance(result, tuple | list):
        return next((x for x in result if isinstance(x, torch.Tensor)), None)
    logits = getattr(result, "logits", None)
    return logits if isinstance(logits, torch.Tensor) else None


def loss_of(result: Any, target: Any, given: Callable[..., Any] | None) -> Judged | None:
    """Return the loss of a result: the person's own, the one in the result, or the usual one for such a target."""
    own = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    out = first_tensor(result)
    if given is not None:
        name = type(given).__name__ if isinstance(given, nn.Module) else getattr(given, "__name__", "loss")
        value = given(out if out is not None else result, *(() if target is None else (target,)))
        return Judged(value, name, None if out is None else _of_nothing(name, out, target))
    if isinstance(own, torch.Tensor):
        return Judged(own, "the model's loss", None)
    if out is None or not isinstance(target, torch.Tensor):
        return None
    name = usual_loss(out, target)
    if not name:
        return None
    if name == "binary_cross_entropy_with_logits":
        target = target.to(out.dtype).reshape(out.shape)
    return Judged(getattr(F, name)(out, target), name, _of_nothing(name, out, target))


def usual_loss(out: torch.Tensor, target: torch.Tensor) -> str:
    """Return the loss that is usual for such a target; empty where none is."""
    if not target.is_floating_point() and out.dim() > 1 and out.shape[1] > 1:
        return "cross_entropy" if target.shape == (out.shape[0], *out.shape[2:]) else ""
    if target.numel() == out.numel() and bool(((target == 0) | (target == 1)).all()):
        return "binary_cross_entropy_with_logits"
    return "mse_loss" if target.shape == out.shape and target.is_floating_point() else ""


_CROSS = frozenset({"CrossEntropyLoss", "cross_entropy", "NLLLoss", "nll_loss"})
_BINARY = frozenset({"BCEWithLogitsLoss", "BCELoss", "binary_cross_entropy", "binary_cross_entropy_with_logits"})
_SQUARES = frozenset({"MSELoss", "mse_loss"})


def picks_classes(name: str) -> bool:
    """Return whether a loss takes numbers of classes."""
    return name in _CROSS


def _of_nothing(name: str, out: torch.Tensor, target: Any) -> float | None:
    if name in _CROSS and out.dim() > 1 and out.shape[1] > 1:
        return math.log(out.shape[1])
    if name in _BINARY:
        return math.log(2)
    if name in _SQUARES and isinstance(target, torch.Tensor):
        return float(target.detach().double().square().mean())
    return None
