"""Everything a namespace reaches, by the memory it lies in: what ``%aliases`` and ``%tensors`` both begin with.

Two tensors can lie in one storage; two storage objects can lie over the same bytes (each ``torch.from_numpy(a)`` makes
a new one), beside NumPy arrays and buffers. So addresses identify memory, sorted once; only storages without memory
(meta and fake tensors) are identified by identity.
"""

from __future__ import annotations

import array
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.geometry.storage import Memory
from tensormagic.collectors.objects.holdings import is_kind
from tensormagic.collectors.objects.namespace import Walk
from tensormagic.collectors.quiet import here

BUFFERS = (bytes, bytearray, memoryview, array.array, mmap.mmap)
STORAGE_ALIASES = (torch.Tensor, np.ndarray, torch.UntypedStorage, *BUFFERS)
# What a tensor without a storage of its own is made of, by the name of its layout: methods of torch's.
PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
    "torch.jagged": ("values", "offsets"),
}
_array_data: Any = np.ndarray.__array_interface__.__get__
_array_base: Any = np.ndarray.base.__get__


@dataclass(slots=True)
class Entry:
    """Something that lies in memory. Holds the person's object: never leaves the collectors.

    Attributes:
        item: The tensor, array, buffer or storage.
        names: All that reach it, in the order in which they were found.
        memory: The memory it lies in: its storage's, or that of the array at the end of its chain of bases; None for
            what has none of its own.
        is_tensor: Whether it is a tensor.
        part_of: The tensor whose part it is, where it is no object that a person has.
    """

    item: Any
    names: list[str]
    memory: Memory | None
    is_tensor: bool
    part_of: Entry | None = None


@dataclass(slots=True)
class Shared:
    """One piece of memory and everything that lies in it.

    Attributes:
        device: As torch writes it.
        address: Of its first byte; 0 where there is no memory.
        stop: One past its last byte's address; the size where there is no memory.
        entries: What lies in it.
    """

    device: str
    address: int
    stop: int
    entries: list[Entry] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.stop - self.address

    def shift(self, entry: Entry) -> int:
        """Return how many bytes behind its start the memory of an entry begins."""
        return entry.memory.address - self.address if entry.memory and self.address else 0


def gather(walk: Walk, *kinds: type) -> list[Entry]:
    """Return every object of these kinds that a walk reaches, each once, with all its names.

    Args:
        walk: Which names to go through.
        kinds: Classes; by default everything that can share memory.
    """
    found: dict[int, Entry] = {}
    for name, item in walk.named(*(kinds or STORAGE_ALIASES)):
        known = found.get(id(item))
        if known is None:
            found[id(item)] = Entry(item, [name], memory_of(item), is_kind(item, torch.Tensor))
        else:
            known.names.append(name)
    return list(found.values())


def with_parts(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries, and behind each tensor without a storage what it is made of."""
    for entry in entries:
        yield entry
        if entry.memory is None and entry.is_tensor:
            yield from _parts(entry)


def _parts(entry: Entry) -> Iterator[Entry]:
    if (local := here(entry.item)) is not entry.item:
        names = [f"{name}.to_local()" for name in entry.names]
        yield Entry(local, names, memory_of(local), is_tensor=True, part_of=entry)
    for part in PARTS.get(str(entry.item.layout), ()):
        item = part_of(entry.item, part)
        if item is not None:
            yield Entry(
                item, [f"{name}.{part}()" for name in entry.names], memory_of(item), is_tensor=True, part_of=entry
            )


def part_of(x: torch.Tensor, part: str) -> torch.Tensor | None:
    """Return one of the tensors that x is made of, by torch's own means; None where x refuses."""
    method = getattr(torch.Tensor, part, None)
    try:
        found: torch.Tensor = method(x) if method else object.__getattribute__(x, f"_{part}")
    except Exception:  # an odd tensor may refuse: then it is listed without its parts
        return None
    return found


def by_memory(entries: Iterable[Entry]) -> list[Shared]:
    """Return the pieces of memory that the entries lie in, those that overlap joined, in order of address."""
    without: dict[int, Shared] = {}
    placed = []
    for entry in entries:
        memory = entry.memory
        if memory is None:
            continue
        if memory.address:
            placed.append((memory.device, memory.address, entry))
        else:
            own = without.setdefault(memory.identity, Shared(memory.device, 0, memory.nbytes))
            own.entries.append(entry)
    placed.sort(key=lambda each: each[:2])
    return [*_joined(placed), *without.values()]


def _joined(placed: list[tuple[str, int, Entry]]) -> list[Shared]:
    """Join neighbours that have a byte in common; memory of no bytes joins what begins at the same address."""
    joined: list[Shared] = []
    for device, address, entry in placed:
        stop = address + (entry.memory.nbytes if entry.memory else 0)
        last = joined[-1] if joined else None
        if last is None or last.device != device or (address >= last.stop and address != last.address):
            joined.append(Shared(device, address, stop, [entry]))
        else:
            last.stop = max(last.stop, stop)
            last.entries.append(entry)
    return joined


def memory_of(item: Any) -> Memory | None:
    """Return the memory something lies in, or None where it has none of its own or none that can be asked for."""
    try:
        if is_kind(item, torch.Tensor):
            is_strided = item.layout is torch.strided and not item.is_nested and item.shape is not None
            answers = (item.stride, item.storage_offset, item.numel)  # as code of the person's may do with these
            told = is_strided and all(ask() is not None for ask in answers)
            return Memory.of(item) if told else None  # the shape of a lazy module's parameter raises
        if is_kind(item, np.ndarray):
            return _array_memory(root_of(item))
        if is_kind(item, torch.UntypedStorage):
            return Memory(item._cdata, str(item.device), item.data_ptr(), item.nbytes())
        return _buffer_memory(item)
    except Exception:  # sparse, functorch wrappers, odd subclasses: they have no storage, or none that tells
        return None


def root_of(item: np.ndarray) -> np.ndarray:
    """Return the array at the end of an array's chain of bases: its own memory, where NumPy made it."""
    while is_kind(base := _array_base(item), np.ndarray):
        item = base
    return item


def owner_of(item: np.ndarray) -> object:
    """Return what an array's memory belongs to, where that is no array: a tensor, a buffer, a capsule; else None."""
    return _array_base(root_of(item))


def _array_memory(item: np.ndarray) -> Memory | None:
    """Return the bytes that an array spans. Nothing of a subclass is called."""
    interface = _array_data(item)
    address, shape = interface["data"][0], interface["shape"]
    if 0 in shape:
        return None
    steps = [(n - 1) * step for n, step in zip(shape, np.ndarray.strides.__get__(item), strict=True)]
    low = address + sum(step for step in steps if step < 0)
    high = address + sum(step for step in steps if step > 0) + np.ndarray.itemsize.__get__(item)
    return Memory(0, "cpu", low, high - low) if high > low else None


def _buffer_memory(item: Any) -> Memory | None:
    """Return the memory that an object exports. The export ends with this function: the object can grow again."""
    exported = np.frombuffer(item, np.uint8)
    return Memory(0, "cpu", _array_data(exported)["data"][0], exported.nbytes)
