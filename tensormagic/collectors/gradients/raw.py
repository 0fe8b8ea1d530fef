"""A tensor's memory as NumPy sees it, without torch hearing of it.

``Tensor.numpy()`` is no mere look: from then on the storage cannot be resized, and the person's own ``x.resize_()``
would fail because somebody had looked. It also takes six times as long as to read from the address that the tensor
has, which is what is done here.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char
from functools import partial
from typing import Any

import numpy as np
import torch

DOT_AT_ONCE = 1 << 13  # elements of which BLAS sums the squares on one thread, in one go

MOST_ALONE = 1 << 21  # elements whose squares one thread sums sooner than torch's several threads do

_MOST_BYTES = 1 << 40
_FEW_PIECES = 4
_Bytes = c_char * _MOST_BYTES  # of which only as many are looked at as a tensor has
_NUMPY: dict[torch.dtype, Any] = {
    torch.float64: np.dtype(np.float64), torch.float32: np.dtype(np.float32), torch.float16: np.dtype(np.float16),
}  # fmt: skip

bytes_at = _Bytes.from_address
view: Callable[[Any, Any, int], Any] = np.frombuffer
float32 = _NUMPY[torch.float32]
_dots: Callable[[Any, Any], Any] = getattr(np, "vecdot", None) or partial(np.einsum, "ij,ij->i")  # NumPy 1 has none
vdot: Callable[[Any, Any], Any] = getattr(np.vdot, "__wrapped__", np.vdot)  # warns of no overflow, as ``a.dot(a)`` does


def is_transposed(gradient: torch.Tensor) -> bool:
    """Return whether a matrix lies in memory column by column, without a gap, as the gradients of weights do."""
    stride = gradient.stride()
    return len(stride) == 2 and stride[0] == 1 and stride[1] == gradient.size(0)


def squared(numbers: Any, count: int) -> float:
    """Return the sum of the squares of float32 numbers: each piece in float32, the pieces in float64.

    Of 16,384 numbers in a sixth, of two million in half of the time of `measures.measure`.
    """
    if count <= DOT_AT_ONCE:
        return float(vdot(numbers, numbers))
    if count <= _FEW_PIECES * DOT_AT_ONCE:
        pieces = [numbers[start : start + DOT_AT_ONCE] for start in range(0, count, DOT_AT_ONCE)]
        return sum([float(vdot(piece, piece)) for piece in pieces])
    whole = count - count % DOT_AT_ONCE
    rows, rest = numbers[:whole].reshape(-1, DOT_AT_ONCE), numbers[whole:]
    with np.errstate(all="ignore"):  # takes as long as two pieces
        every: list[float] = _dots(rows, rows).tolist()
    return sum(every) + float(vdot(rest, rest))


def small_as_it_lies(gradient: torch.Tensor) -> Any:
    """Return the numbers of a strided float32 tensor on a CPU, in the order of memory; sound while the tensor lives.

    None where they are not there to be read: there are gaps, they are stored negated, or stored nowhere.
    """
    if not (gradient.is_contiguous() or is_transposed(gradient)) or gradient.is_neg():
        return None
    address = gradient.data_ptr()
    return view(bytes_at(address), float32, gradient.numel()) if address else None


def as_array(piece: torch.Tensor) -> Any:
    """Return a row of numbers on a CPU as a NumPy array that shares its memory, and keeps ``piece`` alive.

    Of a dtype that NumPy has not (bfloat16, float8) it is a copy in float32; and a copy where there are gaps between
    the numbers, or they are not stored as they read.
    """
    dtype = _NUMPY.get(piece.dtype)
    if dtype is None or piece.is_neg() or not (address := piece.data_ptr()):
        return (piece if dtype is not None else piece.float()).clone().resolve_neg().numpy()
    if not piece.is_contiguous():
        return as_array(piece.contiguous())
    memory = bytes_at(address)
    memory.tensor = piece  # type: ignore[attr-defined]
    return view(memory, dtype, piece.numel())
