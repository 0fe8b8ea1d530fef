"""The reductions behind `Statistics`: over a tensor's chunks, results left on the device; and a lighter pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch

from tensormagic.collectors.geometry.strides import chunks

# Two passes over a tensor's chunks. First: extremes and counts. Second, with the extremes known but not yet read by the
# host: mean, sum of squared deviations and histogram. A value near the mean is subtracted first, the sums of each chunk
# are taken around that chunk's own mean and merged afterwards (Chan, Golub and LeVeque, 1979, "Updating formulae and a
# pairwise algorithm for computing sample variances"), so that a large offset costs no digits. Values are scaled by a
# power of two, so that their squares neither overflow nor vanish.
#
# On the CPU, looking at a result is free, so that chunks without NaN and infinities skip the masking of these. On
# other devices looking would wait for the device: there everything is masked.

BINS = 24
_UINT64_BIAS = 2**63
CHUNK = 2**20  # elements: 4 MiB of float32, which lie in a cache, and long enough for the calls not to count
_SMALL = 2  # bytes: integers up to this size are exact in float32
_FAR = 2**62
_TINY = 1e-15  # squares of smaller numbers lose digits in float32
_NARROW = frozenset({"mps"})  # device types without float64
_EXPONENT_LIMIT = 1000
# Columns of what is measured of a piece; those before _LOW are counts.
_FRACTIONS, _FINITE, _LOW, _HIGH, _SUM = 7, 8, 9, 10, 11


@dataclass(frozen=True, slots=True)
class Domain:
    """What kind of numbers a tensor holds, and what they are computed in."""

    integer: bool  # whether they are integers or booleans: extremes are exact, nothing is NaN
    complex: bool  # whether they are complex: then everything is of their magnitudes
    wide: torch.dtype  # the dtype for sums: float64, or float32 where the device has nothing wider
    bias: int  # what to add to get from the int64 that is computed with to the value (uint64 only)
    may_look: bool  # whether looking at a result is free

    @classmethod
    def of(cls, x: torch.Tensor) -> Domain:
        """Return the domain of a tensor."""
        return cls(
            integer=not (x.is_floating_point() or x.is_complex()),
            complex=x.is_complex(),
            wide=torch.float32 if x.device.type in _NARROW else torch.float64,
            bias=_UINT64_BIAS if x.dtype == torch.uint64 else 0,
            may_look=x.device.type == "cpu",
        )


@dataclass(frozen=True, slots=True)
class Raw:
    """Results on the device."""

    # int64, one row a chunk: zero; NaN, +Inf, -Inf; places of the first of each (and more, see `_measure_reals`).
    counts: torch.Tensor
    limits: torch.Tensor  # Lowest and highest finite value, shift, and for reals also the scale; int64 for integers.
    # In ``wide``, one row a chunk: finite elements, their mean, their sum of squared deviations; all of value · scale -
    # shift.
    moments: torch.Tensor
    bins: torch.Tensor  # int64: the histogram's counts.
    one_each: torch.Tensor  # int64: 1 where each bin is one whole number, from the lowest on.


Pieces = Callable[[], Iterable[torch.Tensor]]
Ends = tuple[float, float] | None


def reduce_chunks(pieces: Pieces, domain: Domain, ends: Ends = None) -> Raw:
    """Run both passes over the chunks; ``pieces`` gives them afresh each time.

    The histogram reaches from the lowest to the highest value, or to ``ends``, between which all values lie.
    """
    return _reduce_integers(pieces, domain, ends) if domain.integer else _reduce_reals(pieces, domain, ends)


def _reduce_integers(pieces: Pieces, domain: Domain, ends: Ends) -> Raw:
    integers = map(_as_int64, pieces())
    rows = torch.stack([torch.stack([(some == -domain.bias).sum(), *torch.aminmax(some)]) for some in integers])
    low, high = (rows[:, 1].min(), rows[:, 2].max()) if ends is None else map(rows.new_tensor, ends)
    span = high - low
    shift = torch.where(span >= 0, low, 0)  # a span that overflows int64 is negative: no shift then
    z_low, z_high = (low - shift).to(domain.wide), (high - shift).to(domain.wide)
    one_each = (span >= 0) & (span < BINS)
    moved = ((_as_int64(piece) - shift).to(domain.wide) for piece in pieces())
    moments, bins = _measure_all(moved, (z_low, z_high), torch.where(one_each, 1.0, 0.0), domain)
    counts = torch.nn.functional.pad(rows[:, :1], (0, 6))
    return Raw(counts, torch.stack([low, high, shift]), moments, bins, one_each.to(torch.int64))


def _reduce_reals(pieces: Pieces, domain: Domain, ends: Ends) -> Raw:
    rows = torch.stack([_measure_reals(as_wide(piece, domain), domain) for piece in pieces()])
    counts, sums = rows[:, :_LOW].to(torch.int64), rows[:, _SUM]
    low, high = (rows[:, _LOW].min(), rows[:, _HIGH].max()) if ends is None else map(rows.new_tensor, ends)
    # The power of two that brings the largest magnitude near 1; 1 where nothing is finite.
    largest = torch.maximum(low.abs(), high.abs())
    exponent = torch.frexp(largest).exponent.clamp(-_EXPONENT_LIMIT, _EXPONENT_LIMIT)
    known = torch.isfinite(largest) & (largest > 0)
    scale = torch.where(known, torch.ldexp(torch.ones_like(largest), -exponent), 1.0)
    one_each = (counts[:, _FRACTIONS].sum() == 0) & (high - low < BINS) & (low == low.floor())
    mean = sums.sum() / counts[:, _FINITE].sum().clamp(min=1)
    usable = torch.isfinite(mean) & torch.isfinite(low)  # the sum may have overflowed
    near = torch.where(one_each, mean.round(), mean)  # what to subtract before squaring: whole numbers stay exact
    shift = torch.where(usable, near, 0.0) * scale
    start = torch.where(torch.isfinite(low), low, 0.0)  # nothing is finite: no bin counts, but none may be out of range
    ranges = start * scale - shift, high * scale - shift
    moved = (as_wide(piece, domain) * scale - shift for piece in pieces())
    moments, bins = _measure_all(moved, ranges, torch.where(one_each, 1 / scale, 0.0), domain)
    return Raw(counts, torch.stack([low, high, shift, scale]), moments, bins, one_each.to(torch.int64))


def _measure_all(
    moved: Iterable[torch.Tensor], ends: tuple[torch.Tensor, torch.Tensor], per_unit: torch.Tensor, domain: Domain
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the moments of the finite values of each chunk, and the histogram of all of them between two ends.

    ``per_unit``: bins for each unit, where each whole number has one of its own; 0 where they divide what is between.
    """
    (start, stop), moments = ends, list[torch.Tensor]()
    per_unit = torch.where(per_unit > 0, per_unit, torch.where(stop > start, BINS / (stop - start), 0.0))
    bins = torch.zeros(BINS + 1, dtype=torch.int64, device=start.device)  # the last one is for what is not finite
    for values in moved:
        finite = None if domain.integer else _finite(values)
        if finite is not None and domain.may_look and bool(finite.all()):
            finite = None
        places = values if finite is None else torch.where(finite, values, start)
        places = (places - start).mul_(per_unit).clamp_(0, BINS - 1).to(torch.int64)
        if finite is not None:
            places = torch.where(finite, places, BINS)
        if domain.may_look:
            bins += torch.bincount(places, minlength=BINS + 1)
        else:  # counted without looking at the device
            bins.scatter_add_(0, places, torch.ones_like(places))
        moments.append(_moments(values, finite))
    return torch.stack(moments), bins[:BINS]


def _moments(values: torch.Tensor, finite: torch.Tensor | None) -> torch.Tensor:
    """Return how many values are finite (None: all), their mean and their sum of squared deviations."""
    count = torch.ones_like(values).sum() if finite is None else finite.sum().to(values.dtype)
    some = count.clamp(min=1)
    mean = (values if finite is None else torch.where(finite, values, 0.0)).sum() / some
    deviation = values - mean if finite is None else torch.where(finite, values - mean, 0.0)
    rest = deviation.sum()  # zero but for rounding: the correction of the two-pass algorithm
    return torch.stack([count, mean + rest / some, deviation.square_().sum() - rest * rest / some])


def _as_int64(piece: torch.Tensor) -> torch.Tensor:
    """Return integers as int64, in one dimension; uint64 with its bias taken off, which keeps their order."""
    if piece.dtype == torch.uint64:
        return piece.view(torch.int64).reshape(-1) ^ torch.iinfo(torch.int64).min
    return piece.to(torch.int64).reshape(-1)


def as_wide(piece: torch.Tensor, domain: Domain) -> torch.Tensor:
    """Return values in the wide dtype, in one dimension: of complex numbers magnitudes, NaN where either part is."""
    if not domain.complex:
        return piece.to(domain.wide).reshape(-1)
    parts = torch.view_as_real(piece.conj() if piece.is_conj() else piece).to(domain.wide)
    real, imaginary = parts[..., 0].reshape(-1), parts[..., 1].reshape(-1)
    missing = torch.isnan(real) | torch.isnan(imaginary)
    return torch.hypot(real, imaginary).masked_fill_(missing, math.nan)


def _measure_reals(values: torch.Tensor, domain: Domain) -> torch.Tensor:
    """Return zero; NaN, +Inf, -Inf; places of the first of each; any fraction, finite; low, high, sum of the finite.

    All in the wide dtype, which holds a chunk's counts exactly.
    """
    low, high = torch.aminmax(values)
    zero = (values == 0).sum()
    if domain.may_look and math.isfinite(low) and math.isfinite(high):
        bad, finite = [torch.zeros_like(zero)] * 6, torch.full_like(zero, values.numel())
    else:
        there = _finite(values)
        kinds = (torch.isnan(values), values == math.inf, values == -math.inf)
        bad = [kind.sum() for kind in kinds] + [kind.to(torch.uint8).argmax() for kind in kinds]
        low = torch.where(there, values, math.inf).min()
        high = torch.where(there, values, -math.inf).max()
        values, finite = torch.where(there, values, 0.0), there.sum()
    numbers = (zero, *bad, (values != values.floor()).any(), finite, low, high, values.sum())
    return torch.stack([number.to(domain.wide) for number in numbers])


def _finite(values: torch.Tensor) -> torch.Tensor:
    """Return where values are finite, in half the passes of `torch.isfinite`."""
    return values.abs() < math.inf


# One light pass over every element of a tensor too large for the histogram's pace, on the CPU.
#
# Extremes, NaN and infinities, mean, spread and norm are of all elements at about the speed of `torch.aminmax`: each
# chunk is reduced while it lies in the processor's cache. Sums are taken in float32 where the values fit it (integers
# of more than 16 bits and float64 in float64), a chunk at a time, less a value near the mean where the mean is far
# from zero; the chunks are merged in float64 (Chan, Golub and LeVeque, 1979), so that only the rounding within a
# chunk remains: a few parts in a million.
@dataclass(slots=True)
class Swept:
    """What the pass has found so far; extremes are those of the finite values, exact for integers."""

    low: float = math.inf  # lowest finite value
    high: float = -math.inf  # highest finite value
    bad: list[int] = field(default_factory=partial(list, (0, 0, 0)))  # how many are NaN, +Inf, -Inf
    first: list[int | None] = field(default_factory=partial(list, (None, None, None)))  # rank of the first of each
    # For each chunk: finite elements, their mean and sum of squared deviations, all of (value - shift) * scale.
    moments: list[list[float]] = field(default_factory=list)


def sweep(view: torch.Tensor, domain: Domain, shift: float, scale: float) -> Swept:
    """Read every element of ``view`` once.

    ``shift`` is 0 or a value near the mean, whole for integers; ``scale`` a power of two, other than 1 where the
    squares of float64 values would leave their range.
    """
    swept, rank = Swept(), 0
    for piece in chunks(view, CHUNK):
        values = _reducible(piece, domain)
        count, (low, high) = values.numel(), (end.item() for end in torch.aminmax(values))
        if not (math.isfinite(low) and math.isfinite(high)):
            kinds = (values.isnan(), values == math.inf, values == -math.inf)
            for kind, mask in enumerate(kinds):
                found = int(torch.count_nonzero(mask))
                swept.bad[kind] += found
                count -= found
                if found and swept.first[kind] is None:
                    swept.first[kind] = rank + int(mask.to(torch.uint8).argmax())
            bad = torch.stack(kinds).any(0)
            low = torch.where(bad, math.inf, values).amin().item()
            high = torch.where(bad, -math.inf, values).amax().item()
            values = torch.where(bad, shift, values)  # adds nothing to either sum
        swept.low, swept.high, rank = min(swept.low, low), max(swept.high, high), rank + piece.numel()
        total, squares = _sums(values, max(abs(low - shift), abs(high - shift)), shift, scale)
        swept.moments.append([count, total / max(count, 1), max(squares - total * total / max(count, 1), 0.0)])
    return swept


def _sums(values: torch.Tensor, largest: float, shift: float, scale: float) -> tuple[float, float]:
    """Return the sums of (value - shift) * scale, of which ``largest`` is the largest value - shift, and of squares."""
    if values.is_floating_point():
        moved = values - shift if shift else values
        moved = moved * scale if scale != 1 else moved
    elif values.element_size() <= _SMALL:
        moved = values.to(torch.float32) - shift
    elif largest < _FAR:  # integers are subtracted as integers where that cannot overflow
        moved = (values.to(torch.int64) - int(shift)).double()
    else:
        moved = values.double() - shift
    squares = torch.dot(moved, moved).item()
    if moved.dtype == torch.float32 and not (math.isfinite(squares) and (largest > _TINY or largest == 0)):
        moved = moved.double()
        squares = torch.dot(moved, moved).item()
    return moved.sum().item(), squares


def _reducible(piece: torch.Tensor, domain: Domain) -> torch.Tensor:
    """Return a chunk in one dimension, in a dtype that has all the reductions and holds its values exactly."""
    if domain.complex:
        return as_wide(piece, domain)
    if not domain.integer:
        return piece.reshape(-1).to(torch.float64 if piece.dtype == torch.float64 else torch.float32)
    if piece.dtype in {torch.uint16, torch.uint32, torch.uint64}:
        return _as_int64(piece)
    return piece.reshape(-1).view(torch.uint8) if piece.dtype == torch.bool else piece.reshape(-1)
