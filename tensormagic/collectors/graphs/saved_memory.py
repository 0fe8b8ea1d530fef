"""Looks at what live nodes have saved without unpacking it: where it lies, and whether its version is the same."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch

from tensormagic.collectors.geometry.overlap import Region
from tensormagic.collectors.graphs.nodes import isinstance_of_torch
from tensormagic.collectors.graphs.saved_tensors import is_packed

_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
_CUSTOM = "saved_tensors"


class Saved(NamedTuple):
    """One saved tensor of a live node.

    Attributes:
        slot: Which.
        tensor: As it is now; shares its memory with what was saved.
        versions: The version that it had and the one that it has, where it was changed in place; None where not.
    """

    slot: str
    tensor: torch.Tensor
    versions: tuple[int, int] | None


def saved_by(node: Any) -> Iterator[Saved]:
    """Yield what a node has saved, as far as it is there: not what was freed, nor what hooks have packed."""
    for slot in _slots(cast("Hashable", type(node))) if isinstance_of_torch(node) else (_CUSTOM,):
        raws = _raw(node, slot)
        several = isinstance(raws, tuple | list)
        found = list(raws) if isinstance(raws, tuple | list) else [raws]
        there = [(at, raw.data) for at, raw in enumerate(found) if raw is not None and not is_packed(raw)]
        tensors = [(at, tensor) for at, tensor in there if isinstance(tensor, torch.Tensor)]
        versions = _versions(node, slot) if tensors else None
        for at, tensor in tensors:
            changed = versions if versions is None or _version(tensor) == versions[1] else None
            yield Saved(f"{slot}[{at}]" if several else slot, tensor, changed)


def _raw(node: Any, slot: str) -> Any:
    """Return what a slot holds, or a list of such; None where it was freed."""
    try:
        return getattr(node, f"_raw_{slot}" if slot == _CUSTOM else f"_raw_saved_{slot}", None)
    except RuntimeError:
        return None


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _versions(node: Any, slot: str) -> tuple[int, int] | None:
    """Return the versions of which torch complains when what was saved is read: then, and now."""
    try:
        getattr(node, slot if slot == _CUSTOM else f"_saved_{slot}")
    except RuntimeError as error:
        found = _VERSIONS.search(str(error))
        return (int(found[2]), int(found[1])) if found else None
    return None


def is_freed(node: Any) -> bool:
    """Return whether a node had saved something, and a backward has freed it."""
    try:
        for slot in _slots(cast("Hashable", type(node))) if isinstance_of_torch(node) else (_CUSTOM,):
            getattr(node, slot if slot == _CUSTOM else f"_saved_{slot}")
    except RuntimeError as error:
        return "freed" in str(error) or "second time" in str(error)
    return False


@lru_cache(maxsize=512)
def _slots(kind: Hashable) -> tuple[str, ...]:
    return tuple(name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_"))


def memory_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return first byte and one past the last of the storage under a tensor; None where it has none."""
    try:
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        return (start, start + storage.nbytes()) if start and storage.nbytes() else None
    except (RuntimeError, NotImplementedError):  # sparse, meta, wrapped
        return None


def region_of(tensor: torch.Tensor) -> Region | None:
    """Return the region of memory that a tensor reads, counted from address 0; None where it has none."""
    try:
        size = tensor.element_size()
        return Region.of(tensor.data_ptr(), tuple(tensor.shape), [step * size for step in tensor.stride()], size)
    except (RuntimeError, NotImplementedError):
        return None


def same_start(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether two tensors have equally many elements, from the same address on."""
    try:
        return x.numel() == y.numel() > 0 and x.data_ptr() == y.data_ptr() != 0
    except RuntimeError:
        return False
