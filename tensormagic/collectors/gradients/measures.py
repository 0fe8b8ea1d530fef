"""Numbers about one gradient, as cheaply as they can be had, and right for every dtype and layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_char
from functools import partial
from typing import Any

import numpy as np
import torch

# A tensor's memory as NumPy sees it, read from its address: ``Tensor.numpy()`` takes six times as long, and from then
# on the storage cannot be resized: the user's own ``x.resize_()`` would fail because somebody had looked.

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


def squared(numbers: Any, count: int) -> float:
    """Return the sum of the squares of float32 numbers: each piece in float32, the pieces in float64."""
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


def elements_read(x: torch.Tensor) -> int:
    """Return a number that two strided tensors at one address share only where they read the same elements.

    Without gaps, the order of these does not matter. The real part of complex numbers, or a row repeated by a stride
    of 0, begins at the address of the whole and may have as many elements.
    """
    if x.is_nested:
        return -x.numel()
    if x.is_complex() or x.is_neg() or torch._debug_has_internal_overlap(x):  # 0: none, and no gaps
        return hash((x.is_complex(), x.is_neg(), x.shape, x.stride()))
    return x.numel()


def small_as_it_lies(gradient: torch.Tensor) -> Any:
    """Return the numbers of a strided float32 tensor on a CPU, in the order of memory; sound while the tensor lives.

    None where they are not there to be read: there are gaps, they are stored negated, or stored nowhere.
    """
    if not gradient.is_contiguous():  # or a matrix by columns without a gap, as the gradients of weights lie
        stride = gradient.stride()
        if len(stride) != 2 or stride[0] != 1 or stride[1] != gradient.size(0):
            return None
    if gradient.is_neg():
        return None
    address = gradient.data_ptr()
    return view(bytes_at(address), float32, gradient.numel()) if address else None


def as_array(piece: torch.Tensor) -> Any:
    """Return a row of numbers on a CPU as a NumPy array that shares its memory, and keeps ``piece`` alive.

    Of a dtype that NumPy has not (bfloat16, float8) it is a copy in float32; and a copy where there are gaps between
    the numbers, or they are not stored as they read.
    """
    dtype = _NUMPY.get(piece.dtype)
    if dtype is None or piece.is_neg() or not piece.is_contiguous() or not (address := piece.data_ptr()):
        return (piece if dtype is not None else piece.float()).clone().resolve_neg().numpy()
    memory = bytes_at(address)
    memory.tensor = piece  # type: ignore[attr-defined]
    return view(memory, dtype, piece.numel())


# On a CPU they are read at once; those of gradients on a device are computed there: see `on_device`.

Measured = tuple[float, int, int]  # norm, NaN count, Inf count

NORM_RELIABLE = (1e-18, 1e18)  # beyond these the squares of float32 numbers vanish or overflow
LOW_PRECISION = frozenset({torch.float16, torch.bfloat16})
_FLOAT8 = frozenset(getattr(torch, name) for name in dir(torch) if name.startswith("float8_"))  # without reductions
NARROW = _FLOAT8 | {torch.float16}  # in which small numbers lose digits, and large ones come to an end
_WORTH_REORDERING = 1 << 14
NO_NUMBERS = "tensors on the meta device have no numbers"
SMALL = 1 << 14  # elements from which it pays to go by rows,
_ROW = 1 << 13  # of so many elements
PIECE = 1 << 17  # elements that stay in a cache
vector_norm = torch.linalg.vector_norm


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """Return the numbers that a gradient stores: a sparse one's summed values, a nested one's buffer."""
    if gradient.layout is torch.strided and not gradient.is_nested:
        return gradient
    return (gradient.coalesce() if gradient.layout is torch.sparse_coo else gradient).values()


def flat(gradient: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the real numbers of a gradient in one row, as they lie in memory, and how often each of them stands.

    Reductions do not care for the order of elements, but over a transposed tensor they run several times slower; and
    what is repeated by a stride of 0, as in the gradient of a sum, need be read only once.
    """
    gradient, repeated = magnitudes(dense(gradient)), 1
    if not gradient.is_contiguous():
        gradient, repeated = as_it_lies(gradient)
    if gradient.dtype in _FLOAT8:
        gradient = gradient.float()
    return gradient.detach().reshape(-1), repeated


def magnitudes(values: torch.Tensor) -> torch.Tensor:
    """Return real numbers as they are, and of complex ones magnitudes: NaN where a part is, also beside an Inf."""
    if not values.is_complex():
        return values
    wide = values.to(torch.complex64) if values.dtype is torch.complex32 else values
    return wide.abs().masked_fill_(wide.isnan(), math.nan)


def as_it_lies(gradient: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return a view with its dimensions in the order of memory and without those of stride 0, and their product."""
    repeated = 1
    for dim in reversed(range(gradient.dim())):
        if gradient.stride(dim) == 0 and gradient.size(dim) > 1:
            repeated *= gradient.size(dim)
            gradient = gradient.select(dim, 0)
    if gradient.numel() >= _WORTH_REORDERING:
        stride = gradient.stride()
        gradient = gradient.permute(sorted(range(gradient.dim()), key=lambda dim: -stride[dim]))
    return gradient, repeated


def measure(gradient: torch.Tensor) -> Measured:
    """Return (norm, NaN count, Inf count) of a gradient; one reduction where it is finite.

    A finite norm proves that every element is finite, so the counts cost nothing in the normal case. The norm is
    taken again in float64 where it left the range of its type: float32 squares overflow above 1.8e19 and vanish below
    1e-23. Half precision is summed in float32.
    """
    few = type(gradient) is torch.Tensor and gradient.dtype is torch.float32 and gradient.numel() <= DOT_AT_ONCE
    if few and gradient.layout is torch.strided and (plain := small_as_it_lies(gradient)) is not None:
        norm = math.sqrt(vdot(plain, plain))
        return (norm, 0, 0) if NORM_RELIABLE[0] < norm < NORM_RELIABLE[1] else of_numbers(plain)
    values, repeated = flat(gradient)
    norm = _norm(values) * math.sqrt(repeated)
    if NORM_RELIABLE[0] < norm < NORM_RELIABLE[1] or values.numel() == 0:
        return norm, 0, 0
    norm = vector_norm(values, dtype=torch.float64).item() * math.sqrt(repeated)
    if norm < math.inf:
        return norm, 0, 0
    nan, inf = int(values.isnan().sum()), int(values.isinf().sum())
    return (math.nan if nan else math.inf), nan * repeated, inf * repeated


def of_numbers(values: Any) -> Measured:
    """Return what `measure` does of a NumPy array, summed in float64."""
    with np.errstate(all="ignore"):  # a NaN of another kind makes NumPy warn
        wide = values.astype(np.float64)
    norm = math.sqrt(vdot(wide, wide))
    if norm < math.inf:
        return norm, 0, 0
    nan, inf = int(np.count_nonzero(np.isnan(wide))), int(np.count_nonzero(np.isinf(wide)))
    return (math.nan if nan else math.inf if inf else norm), nan, inf


def _norm(values: torch.Tensor) -> float:
    """Return the norm of a row of numbers; of a long one by rows, which torch shares out among its threads."""
    wide = torch.float32 if values.dtype in LOW_PRECISION else None
    whole = values.numel() - values.numel() % _ROW
    if whole < SMALL:
        return float(vector_norm(values, dtype=wide).item())
    norms = vector_norm(values[:whole].view(-1, _ROW), dim=1, dtype=wide).double()
    return math.hypot(vector_norm(norms).item(), vector_norm(values[whole:], dtype=torch.float64).item())
