"""One batch: how it is taken from its source, and what of it goes to the model, and what to the loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from tensormagic.collectors.session.restoring import iterator_in
from tensormagic.words import plural


class CannotTakeError(Exception):
    """A source of batches from which none can be taken, or not without taking it from the training."""


def first_batch(source: Any) -> Any:
    """Return the first batch of a loader, or of a list of batches; a batch is returned as it is.

    No worker is started and the loader's own iterator is left alone.

    Raises:
        CannotTakeError: for an iterator, which would not give the batch again, and for what is empty.
    """
    several = isinstance(source, tuple | list) and bool(source)
    named = several and len(source) == 2 and isinstance(source[0], Mapping) and isinstance(source[1], torch.Tensor)
    plain = several and all(isinstance(x, torch.Tensor) for x in source)
    if plain or named or isinstance(source, torch.Tensor | Mapping):
        return source
    loaded = isinstance(source, DataLoader)
    dataset = source.dataset if loaded else source
    try:
        if not loaded or isinstance(dataset, IterableDataset):
            return _first_of_stream(source, dataset)
        collated = source._auto_collation
        places = next(iter(source.batch_sampler if collated and source.batch_sampler is not None else source.sampler))
    except StopIteration:
        rest = f", of {plural(len(dataset), 'sample')}" if loaded and hasattr(dataset, "__len__") else ""
        raise CannotTakeError(f"{'the loader' if loaded else 'it'} is empty{rest}") from None
    return _MapDatasetFetcher(dataset, collated, source.collate_fn, source.drop_last).fetch(places)  # type: ignore[no-untyped-call]


def _first_of_stream(source: Any, dataset: Any) -> Any:
    items, loaded = iter(dataset), source is not dataset
    if items is dataset or (name := iterator_in(dataset)):
        what = "its dataset" if loaded else "it"
        what += " is an iterator" if items is dataset else f" holds an iterator, {name}"
        raise CannotTakeError(f"{what}: a batch taken from it would be missing in training")
    if not loaded:
        return next(items)
    size = source.batch_size
    if size is None:
        return source.collate_fn(next(items))
    several = list(islice(items, size))
    if not several:
        raise StopIteration
    return source.collate_fn(several)


def is_shuffled(source: Any) -> bool:
    """Return whether a loader draws its samples in another order than that of its dataset."""
    sampler = getattr(getattr(source, "batch_sampler", None), "sampler", None) or getattr(source, "sampler", None)
    stream = isinstance(getattr(source, "dataset", None), IterableDataset)
    return isinstance(source, DataLoader) and not stream and not isinstance(sampler, SequentialSampler)


def mapped(batch: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return a batch with each of its tensors changed."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [mapped(value, change) for value in batch]
    return batch


def size_of(batch: Any) -> int:
    """Return how many samples there are: the length of the first tensor."""
    sizes: list[int] = []
    mapped(batch, lambda x: sizes.append(len(x)) if x.dim() else None)
    return sizes[0] if sizes else 0


class Parts(NamedTuple):
    """A batch, taken apart: what the model is given, and what the loss compares with."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    target: Any
    batch: Any
    fits: bool = True  # whether the model can be called like this, as far as its signature tells


_INPUTS = ("x", "input", "inputs", "image", "images", "img", "features", "data", "text", "tokens", "input_ids")
_TARGETS = ("y", "label", "labels", "target", "targets", "class")


def parts_of(batch: Any, net: nn.Module) -> Parts:
    """Take a batch apart: the first of the usual ways that the signature of the model takes, or else the first."""
    ways = list(_ways(batch))
    try:
        signature = inspect.signature(net.forward)
    except (TypeError, ValueError):  # a model that torch has compiled or scripted may have none
        return ways[0]
    return next((way for way in ways if _binds(signature, way)), ways[0]._replace(fits=False))


def _binds(signature: inspect.Signature, way: Parts) -> bool:
    try:
        signature.bind(*way.inputs, **way.named)
    except TypeError:
        return False
    return True


def _ways(batch: Any) -> Iterator[Parts]:
    if isinstance(batch, Mapping):
        named = {str(key): value for key, value in batch.items()}
        targets = [key for key in _TARGETS if key in named]
        yield Parts((), named, named.get("labels", named[targets[0]] if targets else None), batch)
        for target in targets:
            yield Parts((), {key: value for key, value in named.items() if key != target}, named[target], batch)
            yield from (Parts((named[key],), {}, named[target], batch) for key in _INPUTS if key in named)
    elif isinstance(batch, tuple | list) and len(batch) > 1:
        first, *_, target = batch
        if isinstance(first, Mapping) and len(batch) == 2:
            yield Parts((), {str(key): value for key, value in first.items()}, target, batch)
        yield Parts(tuple(batch[:-1]), {}, target, batch)
        yield Parts(tuple(batch), {}, None, batch)
        if len(batch) == 3 and _is_index(target):
            yield Parts((first,), {}, batch[1], batch)
    else:
        yield Parts(tuple(batch) if isinstance(batch, tuple | list) else (batch,), {}, None, batch)


def _is_index(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() == 1 and not x.is_floating_point()
