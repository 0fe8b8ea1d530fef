"""The names that reach a storage: looked up in the namespace and in the functions that are running.

Only weak references are held. What was learned stays good as long as it can be told that it does: a name counts at
the moment of a write only if what it named is alive, and a plain name only if it is still bound to it.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import region_of
from tensormagic.collectors.geometry.overlap import Region
from tensormagic.collectors.objects.namespace import Walk, walk_arrays
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import running_spaces

_ITEM = re.compile(r"(?P<list>[^\W\d]\w*)\[\d+\]")
_use_count = torch._C._storage_Use_Count


@dataclass(frozen=True, slots=True)
class StorageAlias:
    """Something that can be named and has memory.

    Attributes:
        name: The path that reaches it.
        reference: Weak, to the tensor or array.
        storage: Identity of its storage; 0 for arrays.
        space: The namespace in which its root name is bound; None for the names of a function, which nobody may keep.
        scope: Which of the namespaces that were looked through: names of one scope stand beside each other.
        list_name: The plain name of the list that it is an item of, or ``""``.
    """

    name: str
    reference: weakref.ref[Any]
    storage: int
    space: Mapping[str, Any] | None = None
    scope: int = 0
    list_name: str = ""

    def current(self) -> Any:
        """Return what it names now, or None where the name is gone."""
        item = self.reference()
        if item is None or self.space is None or not self.name.isidentifier():
            return item
        return item if self.space.get(self.name) is item else None


@dataclass(frozen=True, slots=True)
class Hit:
    """Somebody whose bytes may meet what is written to.

    Attributes:
        storage_alias: The name.
        item: What it names, alive for as long as the question is.
        region: What that reads, in bytes: from address 0 where there is memory, else from the storage's start.
    """

    storage_alias: StorageAlias
    item: Any
    region: Region


class StorageAliases:
    """All names, by storage."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._by_storage: dict[int, list[StorageAlias]] = {}
        self._foreign: list[StorageAlias] = []  # arrays, and tensors whose storage may lie over somebody else's memory
        self._use_counts: dict[int, int] = {}
        self._bounds: dict[int, tuple[int, int]] = {}  # first byte and one past the last, by sharer, when last asked
        self.searched = 0
        self.complete = True

    def knows(self, storage: int, use_count: int) -> bool:
        """Return whether no tensor was added to the storage since the names were looked up, and none went."""
        known = self._by_storage.get(storage)
        return (
            known is not None
            and self._use_counts.get(storage) == use_count
            and all(storage_alias.reference() is not None for storage_alias in known)
        )

    def note(self, storage: int) -> None:
        """Remember that the names of a storage are known now, also where there are none."""
        self._by_storage.setdefault(storage, [])
        self._use_counts[storage] = _use_count(storage)

    def names_of_item(self, item: Any) -> Iterator[str]:
        """Yield every name of this very object."""
        storage = item.untyped_storage()._cdata if item.layout == torch.strided else 0
        yield from (
            storage_alias.name for storage_alias in self._by_storage.get(storage, ()) if storage_alias.current() is item
        )

    def learn(self, frame: FrameType | None) -> None:
        """Look all names up anew: in the namespace, and in the person's functions from ``frame`` outwards."""
        self._by_storage, self._foreign, self._use_counts, self._bounds, self.searched = {}, [], {}, {}, 0
        with quiet():
            for scope, space in enumerate((self._namespace, *running_spaces(frame, self._namespace))):
                walk = Walk(space)
                kept = space if space is self._namespace else None
                for name, item in walk_arrays(walk):
                    self._add(item, StorageAlias(name, weakref.ref(item), 0, kept, scope, _list_of(name, space)))
                self.searched += walk.looked
                self.complete = self.complete and not walk.gap

    def _add(self, item: Any, storage_alias: StorageAlias) -> None:
        try:
            storage_alias = replace(storage_alias, storage=_storage_of(item))
        except (RuntimeError, NotImplementedError, AttributeError, ValueError, TypeError):
            return  # no strided memory that could be asked for
        if storage_alias.storage:
            self._by_storage.setdefault(storage_alias.storage, []).append(storage_alias)
            self._use_counts[storage_alias.storage] = _use_count(item.untyped_storage()._cdata)
        if not storage_alias.storage or not item.untyped_storage().resizable():
            self._foreign.append(storage_alias)

    def of(self, storage: int, region: Region, *, foreign: bool) -> Iterator[Hit]:
        """Yield who may share the bytes of a region of this storage.

        Args:
            storage: Identity of the storage that is written to.
            region: What is written to.
            foreign: Whether arrays and other storages over the same memory can share it.
        """
        near = self._by_storage.get(storage, ())
        far = (storage_alias for storage_alias in self._foreign if storage_alias.storage != storage) if foreign else ()
        start, stop = region.start, region.stop
        for storage_alias in (*near, *far):
            known = self._bounds.get(id(storage_alias))
            if known is not None and (known[0] >= stop or start >= known[1]):
                continue
            item = storage_alias.current()
            if item is None:
                continue
            place = array_place(item) if not storage_alias.storage else place_of(item)
            self._bounds[id(storage_alias)] = (place.start, place.stop)
            if place.start < stop and start < place.stop:
                yield Hit(storage_alias, item, place)


def place_of(x: torch.Tensor) -> Region:
    """Return the bytes of a strided tensor: as addresses where it has memory, else from its storage's start."""
    address = 0 if x.device.type == "meta" else x.data_ptr()
    shift = address - int(x.storage_offset()) * x.element_size() if address else 0
    return region_of(x, shift)


def array_place(array: Any) -> Region:
    """Return the bytes of an array; nothing of a subclass is called."""
    interface = np.ndarray.__array_interface__.__get__(array)
    stride, itemsize = np.ndarray.strides.__get__(array), np.ndarray.itemsize.__get__(array)
    return Region.of(interface["data"][0], interface["shape"], stride, itemsize)


def _storage_of(item: Any) -> int:
    """Return the identity of the storage; 0 for an array."""
    if issubclass(type(item), np.ndarray):
        return 0
    if item.layout != torch.strided:
        raise ValueError("no strides")
    return int(item.untyped_storage()._cdata)


def _list_of(name: str, space: Mapping[str, Any]) -> str:
    found = _ITEM.fullmatch(name)
    return found["list"] if found and type(space.get(found["list"])) is list else ""
