"""Memory under a storage that is not torch's own: which NumPy array's it is, and that it counts once.

``torch.from_numpy`` makes a storage over the memory of an array, and keeps the array. Neither tells the other: they are
matched by address, among the arrays that a walk has met. The bytes are the array's, then: they are free when it is.
A piece of a storage (``storage[2:]``) is a storage of its own over the memory of the other, likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.releases.references import References


def join_foreign(found: References, storages: Sequence[int]) -> dict[int, int]:
    """Add what storages over foreign memory refer to; returns, by the storage's number, the number that frees it.

    Args:
        found: A walk that has ended.
        storages: The numbers of those that were met.
    """
    foreign = [at for at in storages if is_foreign(found.objects[at])]
    if not foreign:
        return {}
    others = [at for at in storages if at not in set(foreign) and found.objects[at].device.type == "cpu"]
    memory = _Memory(found, others, [at for at, item in enumerate(found.objects) if np.ndarray in type(item).__mro__])
    return {number: memory.join(number) for number in foreign}


class _Memory:
    """Who owns the memory at an address.

    Args:
        found: A walk that has ended.
        storages: The numbers of the storages over memory of torch's own.
        arrays: The numbers of the arrays.
    """

    def __init__(self, found: References, storages: Sequence[int], arrays: Sequence[int]) -> None:
        self._found = found
        self._storages, self._arrays = storages, arrays
        self._stand_ins: dict[int, int] = {}

    def join(self, number: int) -> int:
        """Add what a storage refers to; returns the number of what owns its memory: a storage, an array, a stand-in."""
        found, address = self._found, self._found.objects[number].data_ptr()
        array = _array_at(found, self._arrays, address)
        own = next((at for at in self._storages if _holds(found.objects[at], address)), None)
        if array is None and own is not None:  # a piece of another storage
            found.take_native(own)
        held = next((at for at in (array, own) if at is not None), None)
        if held is None:
            held = self._stand_ins.setdefault(address, -1)
            held = self._stand_ins[address] = found.stand_in() if held < 0 else held
        found.edges[number].append(held)
        return own if own is not None else _owner(found, held)


def _holds(storage: torch.UntypedStorage, address: int) -> bool:
    return 0 <= address - storage.data_ptr() < storage.nbytes()


def is_foreign(storage: torch.UntypedStorage) -> bool:
    """Return whether a storage lies over memory that torch did not allocate: an array's, a piece of another."""
    return storage.device.type == "cpu" and storage.nbytes() > 0 and not storage.resizable() and not storage.is_shared()


def _array_at(found: References, arrays: Sequence[int], start: int) -> int | None:
    """Return the number of the array that a storage keeps: one at its address to which something unknown refers."""
    inside = [at for at in arrays if _begins(found.objects[at]) <= start < _ends(found.objects[at])]
    exact = [at for at in inside if _begins(found.objects[at]) == start]
    owners = [at for at in inside if np.ndarray.base.__get__(found.objects[at]) is None]
    for at in (*exact, *owners):
        if found.has_unmet(at):
            found.python_counts[at] += 1
            return at
    return next(iter((*owners, *exact)), None)


def _begins(array: Any) -> int:
    return int(np.ndarray.ctypes.__get__(array).data)


def _ends(array: Any) -> int:
    return _begins(array) + int(np.ndarray.nbytes.__get__(array))


def _owner(found: References, array: int) -> int:
    """Return the number of the array whose memory it is: the last of the bases that are arrays."""
    bases = [at for at in found.edges[array] if np.ndarray in type(found.objects[at]).__mro__]
    return _owner(found, bases[0]) if bases else array
