"""The storages that are there when a run begins: everything that a tensor of Python's leads to."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch

from tensormagic.collectors.names.holdings import mro_of
from tensormagic.collectors.ops.op_facts import storages
from tensormagic.collectors.quiet import quiet


def standing() -> Iterator[tuple[torch.UntypedStorage, torch.Tensor]]:
    """Yield every storage that is alive, some of them more than once, with a tensor over it."""
    with quiet():
        for tensor in _tensors():
            for each in (tensor, _gradient(tensor)):
                for storage in storages(each) if each is not None else ():
                    if storage.device.type != "meta":
                        yield storage, each


def _tensors() -> Iterator[Any]:
    known: dict[type, bool] = {}
    for item in gc.get_objects():
        kind = type(item)
        if kind not in known:
            known[kind] = torch.Tensor in mro_of(kind)
        if known[kind]:
            yield item


def _gradient(tensor: Any) -> Any:
    """Return the gradient that a leaf has collected: it may have no Python object yet."""
    try:
        return tensor.grad if tensor.is_leaf and tensor.requires_grad else None
    except Exception:  # half made still, or a wrapper
        return None
