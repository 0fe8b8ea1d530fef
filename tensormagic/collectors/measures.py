"""Numbers about one gradient, as cheaply as they can be had, and right for every dtype and layout.

On a CPU they are read at once; on any other device they are left there, in one small tensor, to be fetched in a
batch. Both ways give the same numbers.
"""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from tensormagic.reports import GradientStatistics

Measured = tuple[float, int, int]  # norm, NaN count, Inf count

_NORM_RELIABLE = (1e-18, 1e18)  # beyond these the squares of float32 numbers vanish or overflow
_LOW_PRECISION = frozenset({torch.float16, torch.bfloat16})
_WORTH_REORDERING = 1 << 14
_KNOWN_TO_NUMPY = frozenset({torch.float64, torch.float32, torch.float16})
_PIECE = 1 << 17
_vector_norm = torch.linalg.vector_norm


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """Return the numbers that a gradient stores: a sparse one's summed values, a nested one's buffer."""
    if gradient.layout is torch.strided:
        return gradient.values() if gradient.is_nested else gradient
    if gradient.layout is torch.sparse_coo:
        return gradient.coalesce().values()
    return gradient.values()


def _flat(gradient: torch.Tensor) -> torch.Tensor:
    """Return real, strided numbers of a gradient, in an order in which they can be read fast.

    Reductions do not care for the order of elements, but over a transposed tensor they run several times slower.
    """
    if gradient.layout is not torch.strided or gradient.is_nested:
        gradient = _dense(gradient)
    if gradient.is_complex():
        gradient = gradient.abs()
    if gradient.is_contiguous() or gradient.numel() < _WORTH_REORDERING:
        return gradient
    stride = gradient.stride()
    return gradient.permute(sorted(range(gradient.dim()), key=lambda dim: -stride[dim]))


def measure(gradient: torch.Tensor) -> Measured:
    """Return (norm, NaN count, Inf count) of a gradient; one reduction where it is finite.

    A finite norm proves that every element is finite, so the counts cost nothing in the normal case. The norm is
    taken again in float64 where it left the range of its type: float32 squares overflow above 1.8e19 and vanish below
    1e-23. Half precision is summed in float32.
    """
    values = _flat(gradient)
    norm = _vector_norm(values, dtype=torch.float32 if values.dtype in _LOW_PRECISION else None).item()
    if _NORM_RELIABLE[0] < norm < _NORM_RELIABLE[1] or values.numel() == 0:
        return norm, 0, 0
    norm = _vector_norm(values, dtype=torch.float64).item()
    if norm < math.inf:
        return norm, 0, 0
    nan, inf = count_where(np.isnan, values), count_where(np.isinf, values)
    return (math.nan if nan else math.inf), nan, inf


def _pieces(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Cut the elements into pieces that stay in the cache while several reductions go over them."""
    return tuple(torch.split(values.detach().reshape(-1), _PIECE)) if values.numel() else ()


def count_where(condition: Callable[..., Any], values: torch.Tensor, *other: float) -> int:
    """Count the elements on a CPU for which ``condition(values, *other)`` holds, e.g. ``np.equal`` and 0.

    NumPy compares and counts about ten times faster than torch.
    """
    pieces = (_as_array(piece) for piece in _pieces(values))
    return sum([int(np.count_nonzero(condition(piece, *other))) for piece in pieces])


def _as_array(piece: torch.Tensor) -> Any:
    """Return a NumPy view; of a dtype that NumPy has not (bfloat16, float8), a float32 copy: none is lost in it."""
    return (piece if piece.dtype in _KNOWN_TO_NUMPY else piece.float()).numpy()


def measure_fully(gradient: torch.Tensor, measured: Measured, pass_number: int) -> GradientStatistics:
    """Return everything that is shown about one gradient on a CPU, given what `measure` found.

    The standard deviation of a finite gradient comes from its norm: Σ(x - m)² = Σx² - n·m².
    """
    values = _flat(gradient)
    norm, nan, inf = measured
    count = values.numel()
    if nan or inf:
        mean, deviation = _moments_of_finite(values)
        zero, largest = count_where(np.equal, values, 0), (math.nan if nan else math.inf)
    else:
        total, zero, largest = _sweep(values)
        mean = total / max(count, 1)
        deviation = math.sqrt(max(norm * norm / max(count, 1) - mean * mean, 0.0))
    return GradientStatistics(pass_number, count, norm, largest, mean, deviation, zero, nan, inf)


def _sweep(values: torch.Tensor) -> tuple[float, int, float]:
    """Return the sum, the count of zeros and the largest magnitude of finite values, in one go through memory."""
    total, zero, largest = 0.0, 0, 0.0
    wide = torch.float32 if values.dtype in _LOW_PRECISION else None
    for piece in _pieces(values):
        low, high = torch.aminmax(piece)
        total += piece.sum(dtype=wide).item()
        zero += int(np.count_nonzero(_as_array(piece) == 0))
        largest = max(largest, -low.item(), high.item())
    return total, zero, largest


def _moments_of_finite(values: torch.Tensor) -> tuple[float, float]:
    finite = values[values.isfinite()].double()
    return (finite.mean().item(), finite.std(correction=0).item()) if len(finite) else (math.nan, math.nan)


def measure_on_device(gradient: torch.Tensor) -> torch.Tensor:
    """Return the same three numbers as one float64 (float32 where the device has none) tensor, without a sync."""
    dense = _dense(gradient)
    wide = torch.float32 if dense.device.type == "mps" else torch.float64
    norm = _vector_norm(dense.abs() if dense.is_complex() else dense, dtype=wide)
    parts = (norm, dense.isnan().sum(), dense.isinf().sum())
    return torch.stack([part.to(wide) for part in parts])


def named(read: list[float]) -> Measured:
    """Give the three numbers of `measure_on_device` the meaning they have in `measure`."""
    norm, nan, inf = read
    return (math.nan if nan else math.inf if inf else norm), int(nan), int(inf)


# ``dataclasses.astuple`` copies deeply, which takes 50 times as long
_in_order = attrgetter(*(field.name for field in dataclasses.fields(GradientStatistics)))


class FirstStatistics:
    """The statistics of the first gradient of every node of a graph, packed: 73 bytes a node.

    Args:
        size: How many nodes there are.
    """

    _WIDTH = 9

    def __init__(self, size: int) -> None:
        self._there = bytearray(size)
        self._numbers = array("d", [0.0]) * (size * self._WIDTH)

    def __contains__(self, index: int) -> bool:
        return bool(self._there[index])

    def __len__(self) -> int:
        return sum(self._there)

    def __setitem__(self, index: int, found: GradientStatistics) -> None:
        at = index * self._WIDTH
        self._numbers[at : at + self._WIDTH] = array("d", _in_order(found))
        self._there[index] = 1

    def get(self, index: int) -> GradientStatistics | None:
        """Return the statistics of the node with that index, or None where no gradient has reached it."""
        if not self._there[index]:
            return None
        number, count, norm, largest, mean, std, zero, nan, inf = self._numbers[
            index * self._WIDTH : (index + 1) * self._WIDTH
        ]
        return GradientStatistics(int(number), int(count), norm, largest, mean, std, int(zero), int(nan), int(inf))


def full_measure(gradient: torch.Tensor) -> torch.Tensor:
    """Return seven numbers about one gradient as one tensor on its device, without a sync.

    They are: norm, largest magnitude, mean and standard deviation of the finite elements, count of zeros, of NaN, of
    Inf; see `full_statistics`.
    """
    dense = _dense(gradient)
    values = (dense.abs() if dense.is_complex() else dense).to(
        torch.float64 if dense.device.type != "mps" else torch.float32
    )
    if values.numel() == 0:
        return values.new_zeros(7)
    finite = values.isfinite()
    count = finite.sum()
    mean = values.where(finite, 0).sum() / count
    deviation = ((values - mean).where(finite, 0).square().sum() / count).sqrt()
    counts = ((values == 0).sum(), values.isnan().sum(), values.isinf().sum())
    parts = (_vector_norm(values), values.abs().amax(), mean, deviation, *counts)
    return torch.stack([part.to(values.dtype) for part in parts])


def full_statistics(numbers: list[float], *, pass_number: int, count: int) -> GradientStatistics:
    """Give the seven numbers of `full_measure` their names."""
    norm, largest, mean, deviation, zero, nan, inf = numbers
    norm = math.nan if nan else math.inf if inf else norm
    return GradientStatistics(pass_number, count, norm, largest, mean, deviation, int(zero), int(nan), int(inf))
