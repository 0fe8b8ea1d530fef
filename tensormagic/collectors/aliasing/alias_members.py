"""How each member of a group comes to lie in its memory: what made it, from what, and who counts its writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.coverage import coverage
from tensormagic.collectors.aliasing.regions import region_in
from tensormagic.collectors.aliasing.sharing import BUFFERS, Entry, Shared, owner_of
from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.overlap import Region
from tensormagic.collectors.geometry.versions import counter_of
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.objects.holdings import is_kind
from tensormagic.collectors.objects.naming import nearest, telling
from tensormagic.reports import AliasMember
from tensormagic.reports.aliases import Overlap

MOST_NAMES = 6
_MOST_OPERATIONS = 12


def members_in_order(piece: Shared) -> list[Entry]:
    """Return a group's members: what the others were made from first, then by where and how much they read."""
    reference = reference_of(piece)
    return sorted(piece.entries, key=lambda entry: _rank(entry, piece, reference))


def _rank(entry: Entry, piece: Shared, reference: Entry | None) -> tuple[bool, bool, bool, int, int]:
    region = region_in(entry, piece)
    is_view = entry.is_tensor and entry.item._base is not None
    return entry is not reference, not entry.is_tensor, is_view, region.start, -region.elements


def reference_of(piece: Shared) -> Entry | None:
    """Return the tensor that the memory was made for, as far as can be told: no view; tracked, largest, first."""
    plain = [entry for entry in piece.entries if entry.is_tensor and entry.item._base is None]
    return max(plain, key=lambda entry: (entry.item.requires_grad, entry.item.numel()), default=None)


def member_of(
    entry: Entry, piece: Shared, *, names: Mapping[int, str], counters: dict[int, int], cell: int
) -> AliasMember:
    """Return a member of a group.

    Args:
        entry: The object.
        piece: The memory it lies in.
        names: What objects are called, by ``id``.
        counters: The number of each version counter met so far in this group; grows.
        cell: Bytes of a cell of the strip; 0 where none is drawn.
    """
    region, item = region_in(entry, piece), entry.item
    named = nearest(telling(entry.names))
    counter = counter_of(item) if entry.is_tensor else None
    relation, base, operations = origin(entry, piece, names)
    return AliasMember(
        names=tuple(named[:MOST_NAMES]),
        names_found=len(named),
        kind=type(item).__name__,
        dtype=_dtype(item),
        shape=region.shape,
        start=region.start,
        stop=region.stop,
        elements=region.elements,
        relation=relation,
        base=base,
        operations=operations,
        version=item._version if entry.is_tensor and not item.is_inference() else None,
        counter=counters.setdefault(counter, len(counters) + 1) if counter is not None else None,
        requires_grad=entry.is_tensor and bool(item.requires_grad),
        overlap=_internal(region),
        coverage=coverage(region, piece.nbytes, cell) if cell else (),
    )


def _dtype(item: Any) -> str:
    if is_kind(item, torch.Tensor):
        return str(item.dtype).removeprefix("torch.")
    return str(np.ndarray.dtype.__get__(item)) if is_kind(item, np.ndarray) else ""


def _internal(region: Region) -> Overlap:
    distinct = count_distinct(region.pattern)
    if distinct is None:
        return "maybe"
    return "yes" if distinct < region.elements else "no"


def origin(entry: Entry, piece: Shared, names: Mapping[int, str]) -> tuple[str, str, tuple[str, ...]]:
    """Return how something comes to lie in its memory, from what, and through which recorded view operations."""
    item = entry.item
    if is_kind(item, np.ndarray):
        return _array_origin(item, piece, names)
    if not entry.is_tensor:
        return ("storage" if is_kind(item, torch.UntypedStorage) else "buffer"), "", ()
    if entry.part_of is not None:
        return "part", names.get(id(entry.part_of.item), entry.part_of.names[0]), ()
    if item._base is not None:
        return "view", names.get(id(item._base), ""), tuple(view_operations(item))
    return _plain_origin(entry, piece, names)


def _plain_origin(entry: Entry, piece: Shared, names: Mapping[int, str]) -> tuple[str, str, tuple[str, ...]]:
    """Return how a tensor that is no view comes to share: by its storage object and its version counter."""
    reference = reference_of(piece)
    foreign = next((other for other in piece.entries if not other.is_tensor and _owns(other.item)), None)
    if foreign is not None:
        return "wraps", names.get(id(foreign.item), ""), ()
    if reference is None or reference is entry:
        return "owner", "", ()
    base = names.get(id(reference.item), "")
    if not _same_storage(entry, reference):
        return "wraps", base, ()
    mine, its = counter_of(entry.item), counter_of(reference.item)
    if mine is None or its is None:
        return "same storage", base, ()
    return "detached" if mine == its else "data", base, ()


def _same_storage(entry: Entry, other: Entry) -> bool:
    return bool(entry.memory and other.memory and entry.memory.identity == other.memory.identity)


def _owns(item: Any) -> bool:
    if is_kind(item, np.ndarray):
        return bool(np.ndarray.flags.__get__(item).owndata)
    return is_kind(item, *BUFFERS)


def _array_origin(item: np.ndarray, piece: Shared, names: Mapping[int, str]) -> tuple[str, str, tuple[str, ...]]:
    base: object = np.ndarray.base.__get__(item)
    if base is None:
        return "owner", "", ()
    if is_kind(base, np.ndarray) and id(base) in names:
        return "view", names[id(base)], ()
    owner = owner_of(item)
    if owner is None:
        return "view", "", ()
    if is_kind(owner, torch.Tensor):  # mostly a detached twin of the tensor whose .numpy() was called
        reference = reference_of(piece)
        return "array", names.get(id(owner), names.get(id(reference.item), "") if reference else ""), ()
    return ("buffer view" if is_kind(owner, *BUFFERS) else "capsule"), names.get(id(owner), ""), ()


def view_operations(x: torch.Tensor) -> Iterator[str]:
    """Yield the operations that autograd recorded between a view and its base, first to last; none where untracked."""
    base, node, chain = x._base, x.grad_fn, list[str]()
    stop = None if base is None else base.grad_fn
    while node is not None and node is not stop and type(node).__name__ != "AccumulateGrad":
        chain.append(op_name(node.name()))
        node = node.next_functions[0][0] if node.next_functions and len(chain) < _MOST_OPERATIONS else None
    yield from reversed(chain)
