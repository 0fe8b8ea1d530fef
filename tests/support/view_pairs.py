"""Two random views of one storage, and how many elements they have in common, by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import strategies as some

BYTES = 480  # of the storage: a multiple of every element size
DTYPES = (torch.int8, torch.float16, torch.float32, torch.float64, torch.complex64)


@some.composite
def strided(draw: some.DrawFn) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]:
    """Dtype, shape, stride and storage offset of a view that stays inside the storage; empty and 0-d ones too."""
    dtype = draw(some.sampled_from(DTYPES))
    room = BYTES // dtype.itemsize
    shape = draw(some.lists(some.integers(0, 5), max_size=4))
    stride = []
    offset = draw(some.integers(0, room // 2))
    left = room - 1 - offset
    for size in shape:
        step = draw(some.integers(0, min(max(left, 0) // max(size - 1, 1), 24)))
        left -= step * max(size - 1, 0)
        stride.append(step)
    return dtype, tuple(shape), tuple(stride), offset


@some.composite
def chained(draw: some.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    """A few view operations, as a user would chain them."""
    dims = some.integers(0, 1)
    operation = some.one_of(
        some.tuples(some.just("transpose"), some.just((0, 1))),
        some.tuples(some.just("narrow"), some.tuples(dims, some.integers(0, 3), some.integers(1, 4))),
        some.tuples(some.just("step"), some.tuples(dims, some.integers(0, 2), some.integers(1, 3))),
    )
    return draw(some.lists(operation, max_size=4))


def view_of(storage: torch.Tensor, spec: tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]) -> torch.Tensor:
    """Return the view that `strided` describes."""
    dtype, shape, stride, offset = spec
    return storage.view(dtype).as_strided(shape, stride, offset)


def chain_of(storage: torch.Tensor, operations: list[tuple[str, tuple[int, ...]]]) -> torch.Tensor:
    """Return what the operations make of the storage seen as a (10, 12) float32 matrix."""
    x = storage.view(torch.float32).view(10, 12)
    for name, arguments in operations:
        if name == "transpose":
            x = x.transpose(*arguments)
        elif name == "narrow":
            dim, start, length = arguments
            start = min(start, x.shape[dim] - 1)
            x = x.narrow(dim, start, min(length, x.shape[dim] - start))
        else:
            dim, start, step = arguments
            x = x[start % x.shape[0] :: step] if dim == 0 else x[:, start % x.shape[1] :: step]
    return x


def elements_of(x: torch.Tensor) -> set[int]:
    """Return the first byte of every element of a view, one index after the other."""
    size = x.element_size()
    indices = itertools.product(*(range(length) for length in x.shape))
    return {
        size * (x.storage_offset() + sum(i * step for i, step in zip(index, x.stride(), strict=True)))
        for index in indices
    }


def brute_overlap(x: torch.Tensor, y: torch.Tensor) -> int:
    """Return how many different elements of x have a byte in common with y, by explicit sets of bytes."""
    touched = {start + byte for start in elements_of(y) for byte in range(y.element_size())}
    return sum(not touched.isdisjoint(range(start, start + x.element_size())) for start in elements_of(x))


def storage_of(seed: int = 0) -> torch.Tensor:
    """Return fresh memory."""
    return torch.from_numpy(np.full(BYTES, seed, dtype=np.int8))
