"""Which tensors and buffers use a storage."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.geometry.overlap import Region, array_region, place_of, region_of
from tensormagic.collectors.geometry.parts import named_parts, storage_of
from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.objects.children import BUFFERS, is_kind
from tensormagic.collectors.objects.namespace import Walk, root_name, walk_arrays
from tensormagic.collectors.quiet import TensorRef, quiet
from tensormagic.collectors.where.source import running_functions

# The names that reach a storage: looked up in the namespace and in the functions that are running.
#
# Only weak references are held. What was learned stays good as long as that can be checked: a name counts at
# the moment of a write only if what it named is alive, and a plain name only if it is still bound to it.

_ITEM = re.compile(r"(?P<list>[^\W\d]\w*)\[\d+\](?:\[(?:\d+|'\w*')\])?")  # also in a tuple or dictionary in the list
_use_count = torch._C._storage_Use_Count


@dataclass(frozen=True, slots=True)
class StorageAlias:
    """Something that can be named and has memory."""

    name: str  # The path that reaches it.
    reference: weakref.ref[Any]  # Weak, to the tensor or array.
    storage: int  # Identity of its storage; 0 for arrays.
    # The namespace in which its root name is bound; None for the names of a function, which nobody may keep.
    space: Mapping[str, Any] | None
    scope: int  # Which of the namespaces that were looked through: names of one scope stand beside each other.
    # The plain name of the list that it is an item of, or is in a tuple, list or dictionary of; or ``""``.
    list_name: str
    root: int  # Identity of what the root name was bound to when names were looked up.

    def current(self) -> Any:
        """Return what it names now, or None where the name is gone."""
        item = self.reference()
        if item is None or self.space is None or not self.name.isidentifier():
            return item
        return item if self.space.get(self.name) is item else None


@dataclass(frozen=True, slots=True)
class OverlapCandidate:
    """Somebody whose bytes may meet what is written to."""

    storage_alias: StorageAlias  # the name
    item: Any  # what it names, alive for as long as the question is
    region: Region  # what that reads, in bytes: from address 0 where there is memory, else from the storage's start


class StorageAliases:
    """All names, by storage."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._by_storage: dict[int, list[StorageAlias]] = {}
        self._every: list[StorageAlias] = []
        self._foreign: list[StorageAlias] = []  # those that may lie over somebody else's memory
        self._beside: dict[int, list[StorageAlias]] = {}  # those of other storages over the bytes of one
        self._use_counts: dict[int, int] = {}
        self._bounds: dict[int, tuple[int, int]] = {}  # first byte and one past the last, by sharer, when last asked
        self.searched = 0
        self.complete = True

    def knows(self, storage: int, use_count: int) -> bool:
        """Return whether no tensor was added to the storage since the names were looked up, and none went."""
        known = self._by_storage.get(storage)
        same = known is not None and self._use_counts.get(storage) == use_count
        return same and all(alias.reference() is not None for alias in known or ())

    def note(self, storage: int) -> None:
        """Remember that the names of a storage are known now, also where there are none."""
        self._by_storage.setdefault(storage, [])
        self._use_counts[storage] = _use_count(storage)

    def name_of(self, item: Any) -> str:
        """Return the first name of this very object that can be typed, else its first; nothing where it has none."""
        storage = item.untyped_storage()._cdata if item.layout == torch.strided else 0
        names = [alias.name for alias in self._by_storage.get(storage, ()) if alias.current() is item]
        return next((name for name in names if ".<" not in name), names[0] if names else "")

    def learn(self, frame: FrameType | None) -> None:
        """Look all names up anew: in the namespace, and in the user's functions from ``frame`` outwards."""
        self._by_storage, self._every, self._foreign, self._beside = {}, [], [], {}
        self._use_counts, self._bounds, self.searched = {}, {}, 0
        with quiet():
            running = (names for _, names in running_functions(frame, self._namespace))
            for scope, space in enumerate((self._namespace, *running)):
                walk = Walk(space)
                kept = space if space is self._namespace else None
                item: Any
                for name, item in walk_arrays(walk):
                    is_tensor = is_kind(item, torch.Tensor)
                    storage = storage_of(item) if is_tensor and item.layout == torch.strided else 0
                    if is_tensor and not storage:
                        continue  # no strided memory that could be asked for
                    root, in_list = id(space.get(root_name(name))), _ITEM.fullmatch(name)
                    of_list = in_list["list"] if in_list and type(space.get(in_list["list"])) is list else ""
                    alias = StorageAlias(name, TensorRef(item), storage, kept, scope, of_list, root)
                    if storage:
                        self._by_storage.setdefault(storage, []).append(alias)
                        self._use_counts[storage] = _use_count(storage)
                    self._every.append(alias)
                    if not item.untyped_storage().resizable() if storage else owner_of(item) is not None:
                        self._foreign.append(alias)
                self.searched += walk.looked
                self.complete = self.complete and not walk.gap

    def of(self, storage: torch.UntypedStorage, region: Region) -> Iterator[OverlapCandidate]:
        """Yield who may share the bytes of a region of this storage."""
        identity = storage._cdata
        if identity not in self._beside:
            self._beside[identity] = list(self._over(storage))
        start, stop = region.start, region.stop
        for alias in (*self._by_storage.get(identity, ()), *self._beside[identity]):
            known = self._bounds.get(id(alias))
            if known is not None and (known[0] >= stop or start >= known[1]):
                continue
            if (item := alias.current()) is None:
                continue
            place = place_of(item)
            self._bounds[id(alias)] = (place.start, place.stop)
            if place.start < stop and start < place.stop:
                yield OverlapCandidate(alias, item, place)

    def _over(self, storage: torch.UntypedStorage) -> Iterator[StorageAlias]:
        """Yield those of other storages, and arrays, that lie over the same bytes: one of the two is foreign then."""
        address = 0 if storage.device.type == "meta" else storage.data_ptr()
        for alias in (self._foreign if storage.resizable() else self._every) if address else ():
            item = alias.reference()
            if item is not None and alias.storage != storage._cdata:
                place = place_of(item)
                if place.start < address + storage.nbytes() and address < place.stop:
                    yield alias


# Everything a namespace reaches, by the memory it lies in: what ``%aliases`` and ``%tensors`` both begin with.
#
# Two storage objects can lie over the same bytes (each ``torch.from_numpy(a)`` makes a new one), beside NumPy arrays
# and buffers. So addresses identify memory; storages without memory (meta and fake tensors) are their own.

STORAGE_ALIASES = (torch.Tensor, np.ndarray, torch.UntypedStorage, *BUFFERS)
array_base: Any = np.ndarray.base.__get__


@dataclass(slots=True)
class Entry:
    """Something that lies in memory. Holds the user's object: never leaves the collectors."""

    item: Any  # The tensor, array, buffer or storage.
    names: list[str]  # All that reach it, in the order in which they were found.
    # The memory it lies in: its storage's, or that of the array at the end of its chain of bases; None for what has
    # none of its own.
    memory: Memory | None
    is_tensor: bool  # Whether it is a tensor.
    part_of: Entry | None = None  # The tensor whose part it is, where it is no object that a user has.


@dataclass(slots=True)
class Shared:
    """One piece of memory and everything that lies in it."""

    device: str  # as torch writes it
    address: int  # of its first byte; 0 where there is no memory
    stop: int  # one past its last byte's address; the size where there is no memory
    entries: list[Entry] = field(default_factory=list)  # what lies in it

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.stop - self.address

    def region(self, entry: Entry) -> Region:
        """Return the region of an entry in it, in bytes from its start. Memory is not read."""
        if is_kind(entry.item, np.ndarray):
            return array_region(entry.item, self.address)
        shift = entry.memory.address - self.address if entry.memory and self.address else 0
        if entry.is_tensor:
            return region_of(entry.item, shift)
        return Region(shift, (entry.memory.nbytes if entry.memory else 0,), (1,), 1)


def gather(walk: Walk, *kinds: type) -> list[Entry]:
    """Return every object of these kinds (by default all that can share memory), each once, with all its names."""
    found: dict[int, Entry] = {}
    for name, item in walk.named(*(kinds or STORAGE_ALIASES)):
        if id(item) not in found:
            found[id(item)] = Entry(item, [], memory_of(item), is_kind(item, torch.Tensor))
        found[id(item)].names.append(name)
    return list(found.values())


def with_parts(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries, and behind each tensor without a storage what it is made of."""
    for entry in entries:
        yield entry
        for part, item in named_parts(entry.item) if entry.memory is None and entry.is_tensor else ():
            names = [f"{name}.{part}()" for name in entry.names]
            yield Entry(item, names, memory_of(item), is_tensor=True, part_of=entry)


def by_memory(entries: Iterable[Entry]) -> list[Shared]:
    """Return the pieces of memory that the entries lie in, those that overlap joined, in order of address."""
    without: dict[int, Shared] = {}
    placed: list[tuple[Memory, Entry]] = []
    for entry in entries:
        if (memory := entry.memory) is None:
            continue
        if memory.address:
            placed.append((memory, entry))
        else:
            without.setdefault(memory.identity, Shared(memory.device, 0, memory.nbytes)).entries.append(entry)
    joined: list[Shared] = []  # memory of no bytes joins what begins at the same address
    for memory, entry in sorted(placed, key=lambda each: (each[0].device, each[0].address)):
        address, stop, last = memory.address, memory.address + memory.nbytes, joined[-1] if joined else None
        if last is None or last.device != memory.device or (address >= last.stop and address != last.address):
            joined.append(Shared(memory.device, address, stop, [entry]))
        else:
            last.stop = max(last.stop, stop)
            last.entries.append(entry)
    return [*joined, *without.values()]


def memory_of(item: Any) -> Memory | None:
    """Return the memory something lies in, or None where it has none of its own or none that can be asked for."""
    try:
        if is_kind(item, torch.Tensor):
            is_strided = item.layout is torch.strided and not item.is_nested and item.shape is not None
            answers = (item.stride, item.storage_offset, item.numel)  # as code of the user's may do with these
            is_readable = is_strided and all(ask() is not None for ask in answers)
            return Memory.of(item) if is_readable else None  # the shape of a lazy module's parameter raises
        if is_kind(item, np.ndarray):
            spanned = array_region(root_of(item))
            nbytes = spanned.stop - spanned.start if spanned.elements else 0
            return Memory(0, "cpu", spanned.start, nbytes) if nbytes else None
        if is_kind(item, torch.UntypedStorage):
            return Memory(item._cdata, str(item.device), item.data_ptr(), item.nbytes())
        exported = np.frombuffer(item, np.uint8)  # until this function ends: then the object can grow again
        return Memory(0, "cpu", exported.__array_interface__["data"][0], exported.nbytes)
    except Exception:  # sparse, functorch wrappers, odd subclasses: they have no storage, or none that shows
        return None


def root_of(item: np.ndarray) -> np.ndarray:
    """Return the array at the end of an array's chain of bases: its own memory, where NumPy made it."""
    while is_kind(base := array_base(item), np.ndarray):
        item = base
    return item


def owner_of(item: np.ndarray) -> object:
    """Return what an array's memory belongs to, where that is no array: a tensor, a buffer, a capsule; else None."""
    return array_base(root_of(item))
