"""The bytes that a tensor, an array or a buffer reads, counted from the first byte of the memory it lies in."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensormagic.collectors.aliasing.sharing import Entry, Shared
from tensormagic.collectors.geometry.overlap import Region
from tensormagic.collectors.objects.holdings import is_kind
from tensormagic.collectors.quiet import number, numbers

_array_data: Any = np.ndarray.__array_interface__.__get__


def region_in(entry: Entry, piece: Shared) -> Region:
    """Return the region of an entry in a piece of memory. Memory is not read."""
    if entry.is_tensor:
        return tensor_region(entry.item, piece.shift(entry))
    if is_kind(entry.item, np.ndarray):
        interface, itemsize = _array_data(entry.item), np.ndarray.itemsize.__get__(entry.item)
        strides = np.ndarray.strides.__get__(entry.item)
        return Region.of(interface["data"][0] - piece.address, interface["shape"], strides, itemsize)
    return Region(piece.shift(entry), (entry.memory.nbytes if entry.memory else 0,), (1,), 1)


def tensor_region(x: Any, shift: int) -> Region:
    """Return the bytes a strided tensor reads, its storage starting at byte ``shift``."""
    size = x.element_size()
    stride = tuple(number(step) * size for step in x.stride())
    return Region.of(shift + number(x.storage_offset()) * size, numbers(x.shape), stride, size)
