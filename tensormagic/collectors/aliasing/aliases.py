"""Who else reads or writes a tensor's memory: every name that reaches the same storage, and how much they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.geometry.memory import Memory
from tensormagic.collectors.geometry.overlap import Region, overlap, overlap_elements
from tensormagic.collectors.geometry.versions import shares_version
from tensormagic.collectors.objects.namespace import Walk, is_kind, walk_arrays
from tensormagic.collectors.objects.naming import plain, telling
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import Alias

MOST = 64
# How another tensor can come to share, nearest first.
RELATIONS = ("same object", "base", "view of it", "view of the same base", "same storage", "NumPy array")


@dataclass(frozen=True, slots=True)
class AliasSearch:
    """What was found.

    Attributes:
        aliases: Nearest relation first; at most `MOST`.
        found: How many there are in truth.
        searched: How many names and attributes were looked through.
        complete: False where there were too many to look through all.
        owner: Name of the NumPy array that owns the memory; empty where torch does, or where no name is known.
    """

    aliases: tuple[Alias, ...] = ()
    found: int = 0
    searched: int = 0
    complete: bool = True
    owner: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Something whose memory may overlap the inspected tensor's."""

    name: str
    relation: str
    item: Any
    region: Region
    owns: bool = False


def aliases_of(x: torch.Tensor, namespace: Mapping[str, object], *, name: str) -> tuple[tuple[Alias, ...], int]:
    """Return who shares x's storage, nearest relation first, and how many names and attributes were looked through.

    Args:
        x: A strided tensor.
        namespace: The person's names.
        name: The name x is inspected under, which is no alias of itself.
    """
    walk = Walk(namespace)
    search = find_aliases(x, list(walk_arrays(walk)), name=name)
    return search.aliases, walk.looked


def find_aliases(x: torch.Tensor, named: Iterable[tuple[str, Any]], *, name: str) -> AliasSearch:
    """Find those of the named tensors and arrays that share x's storage. Never raises for an odd one among them."""
    with quiet():
        memory = Memory.of(x)
        told = _told(x, named)
        found = [candidate for label, item in told if (candidate := _candidate(x, memory, label, item)) is not None]
        found = [candidate for candidate in found if candidate.item is not x or candidate.name != name]
        found += _nameless_base(x, memory, found, name)
        found.sort(key=lambda candidate: RELATIONS.index(candidate.relation))
        own = region_of(x, 0)
        aliases = tuple(_alias(x, own, candidate) for candidate in found[:MOST])
    owner = next((candidate.name for candidate in found if candidate.owns), "")
    return AliasSearch(aliases, len(found), owner=owner)


def _told(x: torch.Tensor, named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the named objects without the longer names of those other than x that have a name of their own."""
    every = list(named)
    names: dict[int, list[str]] = {}
    for name, item in every:
        names.setdefault(id(item), []).append(name)
    kept = {key: set(telling(each) if key == id(x) else plain(each)) for key, each in names.items() if len(each) > 1}
    return [(name, item) for name, item in every if id(item) not in kept or name in kept[id(item)]]


def region_of(x: torch.Tensor, shift: int) -> Region:
    """Return the bytes a strided tensor reads, its storage starting at byte ``shift``."""
    size = x.element_size()
    start = shift + int(x.storage_offset()) * size
    return Region.of(start, tuple(x.shape), tuple(step * size for step in x.stride()), size)


def _candidate(x: torch.Tensor, memory: Memory, name: str, item: Any) -> _Candidate | None:
    if is_kind(item, np.ndarray):
        return _array_candidate(memory, name, item)
    try:
        shift = memory.shift(Memory.of(item))
        if shift is None or item.layout != torch.strided:
            return None
        return _Candidate(name, _relation(x, item), item, region_of(item, shift))
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return None  # it has no storage, or none that can be asked for: sparse, nested, functorch wrappers


def _relation(x: torch.Tensor, item: torch.Tensor) -> str:
    if item is x:
        return "same object"
    base, other = x._base, item._base
    if base is item:
        return "base"
    if other is x:
        return "view of it"
    return "view of the same base" if base is not None and base is other else "same storage"


def _array_candidate(memory: Memory, name: str, array: np.ndarray) -> _Candidate | None:
    """Compare addresses, which NumPy arrays and CPU storages have in common; nothing of a subclass is called."""
    if memory.device != "cpu" or not memory.address:
        return None
    interface = np.ndarray.__array_interface__.__get__(array)
    shape, itemsize = interface["shape"], np.ndarray.itemsize.__get__(array)
    stride = np.ndarray.strides.__get__(array)
    region = Region.of(interface["data"][0] - memory.address, shape, stride, itemsize)
    if 0 in shape or region.stop <= 0 or region.start >= memory.nbytes:
        return None
    owns = bool(np.ndarray.flags.__get__(array).owndata)
    return _Candidate(name, "NumPy array", array, region, owns)


def _nameless_base(x: torch.Tensor, memory: Memory, found: list[_Candidate], name: str) -> list[_Candidate]:
    """Return the base of a view where no name reaches it."""
    base = x._base
    if base is None or any(candidate.item is base for candidate in found):
        return []
    candidate = _candidate(x, memory, f"{name}._base", base)
    return [candidate] if candidate is not None else []


def _alias(x: torch.Tensor, own: Region, candidate: _Candidate) -> Alias:
    item, region = candidate.item, candidate.region
    answer = overlap(own, region)
    tensor = is_kind(item, torch.Tensor)
    return Alias(
        name=candidate.name,
        relation=candidate.relation,
        kind=type(item).__name__,
        shape=region.shape,
        overlap_elements=0 if answer == "no" else overlap_elements(region, own),
        of_elements=region.elements,
        overlap=answer,
        version=item._version if tensor and not item.is_inference() else None,
        shares_version=shares_version(x, item) if tensor else False,
    )
