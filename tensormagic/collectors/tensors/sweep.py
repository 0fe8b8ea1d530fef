"""One light pass over every element of a tensor too large for the histogram's pace, on the CPU.

Extremes, NaN and infinities, mean, spread and norm are of all elements at about the speed of `torch.aminmax`: each
chunk is reduced while it lies in the processor's cache. Sums are taken in float32 where the values fit it (integers of
more than 16 bits and float64 in float64), a chunk at a time, less a value near the mean where the mean is far from
zero; the chunks are merged in float64 (Chan, Golub and LeVeque, 1979), so that only the rounding within a chunk
remains: a few parts in a million.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce

import torch

from tensormagic.collectors.geometry.chunks import chunks
from tensormagic.collectors.tensors.reductions import Domain, magnitudes

CHUNK = 2**20  # elements: 4 MiB of float32, which lie in a cache, and long enough for the calls not to count
_SMALL = 2  # bytes: integers up to this size are exact in float32
_FAR = 2**62
_TINY = 1e-15  # squares of smaller numbers lose digits in float32


@dataclass(slots=True)
class Swept:
    """What the pass has found so far; extremes are those of the finite values, exact for integers.

    Attributes:
        low: Lowest finite value.
        high: Highest finite value.
        bad: How many are NaN, +Inf, -Inf.
        first: Rank in reading order of the first of each; None where there is none.
        moments: For each chunk: finite elements, their mean and sum of squared deviations, in `Units`.
    """

    low: float = math.inf
    high: float = -math.inf
    bad: list[int] = field(default_factory=lambda: [0, 0, 0])
    first: list[int | None] = field(default_factory=lambda: [None, None, None])
    moments: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Units:
    """In what units sums are taken: (value - ``shift``) * ``scale``.

    Attributes:
        shift: 0 or a value near the mean, whole for integers.
        scale: A power of two, other than 1 where the squares of float64 values would leave their range.
    """

    shift: float
    scale: float = 1.0


def sweep(view: torch.Tensor, domain: Domain, units: Units) -> Swept:
    """Read every element of ``view`` once."""
    swept, rank = Swept(), 0
    for piece in chunks(view, CHUNK):
        _add(swept, reducible(piece, domain), units, rank)
        rank += piece.numel()
    return swept


def _add(swept: Swept, values: torch.Tensor, units: Units, rank: int) -> None:
    count, (low, high) = values.numel(), limits(values)
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = _bad(swept, values, (low, high), rank)
        count -= int(torch.count_nonzero(bad))
        if not count:
            return
        low, high = torch.where(bad, math.inf, values).amin().item(), torch.where(bad, -math.inf, values).amax().item()
        values = torch.where(bad, units.shift, values)  # adds nothing to either sum
    swept.low, swept.high = min(swept.low, low), max(swept.high, high)
    swept.moments.append(_moments(values, max(abs(low - units.shift), abs(high - units.shift)), units, count))


def limits(values: torch.Tensor) -> tuple[float, float]:
    """Return the smallest and largest value; NaN both where one is."""
    low, high = torch.aminmax(values)
    return low.item(), high.item()


def reducible(piece: torch.Tensor, domain: Domain) -> torch.Tensor:
    """Return a chunk in one dimension, in a dtype that has all the reductions and holds its values exactly."""
    if domain.complex:
        return magnitudes(piece, domain.wide)
    if not domain.integer:
        return piece.reshape(-1).to(torch.float64 if piece.dtype == torch.float64 else torch.float32)
    if piece.dtype == torch.uint64:
        return piece.view(torch.int64).reshape(-1) ^ torch.iinfo(torch.int64).min
    if piece.dtype == torch.bool:
        return piece.reshape(-1).view(torch.uint8)
    return piece.reshape(-1).to(torch.int64) if piece.dtype in {torch.uint16, torch.uint32} else piece.reshape(-1)


def _bad(swept: Swept, values: torch.Tensor, ends: tuple[float, float], rank: int) -> torch.Tensor:
    """Count what is not finite, remember the first of each kind, and return where it is.

    Without NaN the extremes tell which infinities there are: only those are looked for.
    """
    missing = math.isnan(ends[0])
    signs = [sign for sign in (math.inf, -math.inf) if missing or sign in ends]
    masks = {0: values.isnan()} if missing else {}
    masks |= {1 if sign > 0 else 2: values == sign for sign in signs}
    for kind, mask in masks.items():
        found = int(torch.count_nonzero(mask))
        swept.bad[kind] += found
        if found and swept.first[kind] is None:
            swept.first[kind] = rank + int(mask.to(torch.uint8).argmax())
    return reduce(torch.logical_or, masks.values())


def _moments(values: torch.Tensor, largest: float, units: Units, count: int) -> list[float]:
    """Return count, mean and sum of squared deviations of ``count`` values at most ``largest`` from the shift."""
    moved = _moved(values, units, exact=largest < _FAR)
    total, squares = moved.sum().item(), torch.dot(moved, moved).item()
    if moved.dtype == torch.float32 and not (math.isfinite(squares) and (largest > _TINY or largest == 0)):
        moved = moved.double()
        total, squares = moved.sum().item(), torch.dot(moved, moved).item()
    return [count, total / count, max(squares - total * total / count, 0.0)]


def _moved(values: torch.Tensor, units: Units, *, exact: bool) -> torch.Tensor:
    """Return values in those units; integers are subtracted as integers where that cannot overflow."""
    if values.is_floating_point():
        moved = values - units.shift if units.shift else values
        return moved * units.scale if units.scale != 1 else moved
    if values.element_size() <= _SMALL:
        return values.to(torch.float32) - units.shift
    return (values.to(torch.int64) - int(units.shift)).double() if exact else values.double() - units.shift
