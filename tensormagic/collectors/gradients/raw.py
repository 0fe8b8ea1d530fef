"""A tensor's memory as NumPy sees it, without torch hearing of it.

``Tensor.numpy()`` is no mere look: from then on the storage cannot be resized, and the person's own ``x.resize_()``
would fail because somebody had looked. It also takes six times as long as to read from the address that the tensor
has, which is what is done here.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char
from typing import Any

import numpy as np
import torch

DOT_AT_ONCE = 1 << 13  # elements of which BLAS sums the squares on one thread, in one go

MOST_AT_HAND = 1 << 18  # elements of a float32 tensor that `bytes_at` reaches

_MOST_BYTES = 4 * MOST_AT_HAND
_Bytes = c_char * _MOST_BYTES  # of which only as many are looked at as a tensor has
_NUMPY: dict[torch.dtype, Any] = {
    torch.float64: np.dtype(np.float64), torch.float32: np.dtype(np.float32), torch.float16: np.dtype(np.float16),
}  # fmt: skip

bytes_at = _Bytes.from_address
view: Callable[[Any, Any, int], Any] = np.frombuffer
float32 = _NUMPY[torch.float32]
vdot: Callable[[Any, Any], Any] = getattr(np.vdot, "__wrapped__", np.vdot)  # warns of no overflow, as ``a.dot(a)`` does


def is_transposed(gradient: torch.Tensor) -> bool:
    """Return whether a matrix lies in memory column by column, without a gap, as the gradients of weights do."""
    stride = gradient.stride()
    return len(stride) == 2 and stride[0] == 1 and stride[1] == gradient.size(0)


def squared(numbers: Any, count: int) -> float:
    """Return the sum of the squares of float32 numbers: each piece in float32, the pieces in float64.

    Of 65,536 numbers in a third of the time that torch's norm takes with all that a call of it needs.
    """
    if count <= DOT_AT_ONCE:
        return float(vdot(numbers, numbers))
    pieces = (numbers[start : start + DOT_AT_ONCE] for start in range(0, count, DOT_AT_ONCE))
    return sum([float(vdot(piece, piece)) for piece in pieces])


def small_as_it_lies(gradient: torch.Tensor) -> Any:
    """Return the numbers of a strided float32 tensor on a CPU, in the order of memory; sound while the tensor lives.

    None where they are not there to be read: there are gaps, they are stored negated, or stored nowhere. At most
    262,144 elements.
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
    nbytes = piece.nbytes
    memory: Any = bytes_at(address) if nbytes <= _MOST_BYTES else (c_char * nbytes).from_address(address)
    memory.tensor = piece
    return view(memory, dtype, piece.numel())
