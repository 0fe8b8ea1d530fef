"""Memory under a storage that is not torch's own: which NumPy array's it is, and that it counts once.

``torch.from_numpy`` makes a storage over the memory of an array, and keeps the array. Neither tells the other: they are
matched by address, among the arrays that a walk has met. The bytes are the array's, then: they are free when it is.
A piece of a storage (``storage[2:]``) is a storage of its own over the memory of the other, likewise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
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
    foreign = [at for at in storages if is_foreign(found.objects[at]) and lies_somewhere(found.objects[at])]
    if not foreign:
        return {}
    arrays = _Arrays(found)
    lent = arrays.lent(foreign)
    there = (at for at in storages if found.objects[at].device.type == "cpu" and lies_somewhere(found.objects[at]))
    own = [at for at in there if at not in set(foreign) - lent]
    pieces = _Spans([(*_span(found.objects[at]), at) for at in own])
    stand_ins: dict[int, int] = {}
    return {at: _join(found, at, (arrays, pieces, stand_ins)) for at in foreign if at not in lent}


def _join(found: References, number: int, memory: tuple[_Arrays, _Spans, dict[int, int]]) -> int:
    """Add what a storage refers to; returns the number of what owns its memory: a storage, an array, a stand-in."""
    arrays, pieces, stand_ins = memory
    address = found.objects[number].data_ptr()
    array, own = arrays.kept_at(address), pieces.at(address)
    if array is None and own is not None:  # a piece of another storage
        found.take_native(own)
    held = own if array is None else array
    if held is None:
        held = stand_ins[address] if address in stand_ins else found.stand_in()
        stand_ins[address] = held
    found.edges[number].append(held)
    return own if own is not None else arrays.owner(held)


class _Spans:
    """Pieces of memory that do not overlap: which one is at an address.

    Args:
        spans: Where each begins and ends, and its number.
    """

    def __init__(self, spans: Iterable[tuple[int, int, int]]) -> None:
        self._spans = sorted(spans)
        self._begins = [begin for begin, _, _ in self._spans]

    def at(self, address: int) -> int | None:
        """Return the number of the piece that an address lies in, or None."""
        place = bisect_right(self._begins, address) - 1
        return self._spans[place][2] if place >= 0 and address < self._spans[place][1] else None


class _Arrays:
    """The NumPy arrays that a walk has met.

    Args:
        found: A walk that has ended.
    """

    def __init__(self, found: References) -> None:
        self._found = found
        self._arrays = {at for at, item in enumerate(found.objects) if np.ndarray in type(item).__mro__}
        self._beginning: dict[int, list[int]] = {}
        owners = []
        for at in self._arrays:
            begin, end = _array_span(found.objects[at])
            self._beginning.setdefault(begin, []).append(at)
            owners += [(begin, end, at)] if np.ndarray.base.__get__(found.objects[at]) is None else []
        self._owners = _Spans(owners)

    def lent(self, storages: Iterable[int]) -> set[int]:
        """Return the storages of torch's own that ``x.numpy()`` lent to an array: nor can these be resized."""
        bases = {base for at in self._arrays for base in self._found.edges[at] if base not in self._arrays}
        held = {storage for base in bases for storage in self._found.edges[base]}
        return {at for at in storages if at in held and self._owners.at(self._found.objects[at].data_ptr()) is None}

    def kept_at(self, address: int) -> int | None:
        """Return the array that a storage keeps: one at its address to which something unknown refers."""
        exact, owner = self._beginning.get(address, []), self._owners.at(address)
        owners = [] if owner is None else [owner]
        for at in (*exact, *owners):
            if self._found.has_unmet(at):
                self._found.python_counts[at] += 1
                return at
        return owner

    def owner(self, array: int) -> int:
        """Return the array whose memory it is: the last of the bases that are arrays."""
        while bases := [at for at in self._found.edges[array] if at in self._arrays]:
            array = bases[0]
        return array


def _span(storage: torch.UntypedStorage) -> tuple[int, int]:
    begin = storage.data_ptr()
    return begin, begin + storage.nbytes()


def _array_span(array: Any) -> tuple[int, int]:
    begin = int(np.ndarray.ctypes.__get__(array).data)
    return begin, begin + int(np.ndarray.nbytes.__get__(array))


def lies_somewhere(storage: torch.UntypedStorage) -> bool:
    """Return whether a storage says where; that of a tensor that wraps others, as a DTensor, does not."""
    try:
        return storage.data_ptr() is not None
    except RuntimeError:
        return False


def is_foreign(storage: torch.UntypedStorage) -> bool:
    """Return whether a storage lies over memory that torch did not allocate: an array's, a piece of another."""
    return storage.device.type == "cpu" and storage.nbytes() > 0 and not storage.resizable() and not storage.is_shared()
