"""The reductions behind `Statistics`: over a tensor's chunks, results left on the device."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

# Two passes over a tensor's chunks. First: extremes, counts, mean and sum of squared deviations, these around a value
# near the chunk's own mean, to be merged on the host (Chan, Golub and LeVeque, 1979, "Updating formulae and a pairwise
# algorithm for computing sample variances"), so that a large offset costs no digits. Each chunk is scaled by a power of
# two, so that squares neither overflow nor vanish. Second, with the extremes known but not yet read by the host: the
# histogram.
#
# On the CPU, looking at a result is free, so that chunks without NaN and infinities skip the masking of these in the
# first pass. On other devices looking would wait for the device.

BINS = 24
_UINT64_BIAS = 2**63
_SMALL = {True: 4, False: 2}  # bytes: floating-point numbers, or others, up to this size are exact in float32
_NARROW = frozenset({"mps"})  # device types without float64


@dataclass(frozen=True, slots=True)
class Domain:
    """What kind of numbers a tensor holds, and what they are computed in."""

    integer: bool  # whether they are integers or booleans: extremes are exact, nothing is NaN
    complex: bool  # whether they are complex: then everything is of their magnitudes
    wide: torch.dtype  # the dtype for sums: float64, or float32
    bias: int  # what to add to get from the int64 that is computed with to the value (uint64 only)
    may_look: bool  # whether looking at a result is free

    @classmethod
    def of(cls, x: torch.Tensor, *, fast: bool = False) -> Domain:
        """Return the domain of a tensor; sums are in float32 where the device has nothing wider, or to be ``fast``."""
        is_float = x.is_floating_point()
        narrow = x.device.type in _NARROW or (fast and x.element_size() <= _SMALL[is_float])
        return cls(
            integer=not (is_float or x.is_complex()),
            complex=x.is_complex(),
            wide=torch.float32 if narrow else torch.float64,
            bias=_UINT64_BIAS if x.dtype == torch.uint64 else 0,
            may_look=x.device.type == "cpu",
        )


@dataclass(frozen=True, slots=True)
class Raw:
    """Results on the device, the first three with a row a chunk."""

    counts: torch.Tensor  # int64: NaN, +Inf, -Inf; places of the first of each; whether there is a fraction
    limits: torch.Tensor  # lowest and highest finite value, and a shift near the mean; int64 for integers
    # In ``wide``: finite elements; of value · scale - shift their mean and their sum of squared deviations; the scale.
    moments: torch.Tensor
    bins: torch.Tensor  # int64: the histogram's counts, how many are not finite, how many are zero
    one_each: torch.Tensor  # whether each bin is one whole number, from the lowest on


def reduce_chunks(pieces: Iterable[torch.Tensor], shown: Iterable[torch.Tensor], domain: Domain) -> Raw:
    """Run both passes over the chunks; zeros and histogram are of those ``shown``."""
    rows = [_measured(piece, domain) for piece in pieces]
    counts, limits, moments = (torch.stack(column) for column in zip(*rows, strict=True))
    low, high = limits[:, 0].min(), limits[:, 1].max()
    span = high - low
    one_each = (span < BINS) & (low == low.floor()) & (counts[:, -1].sum() == 0)
    if domain.integer:
        one_each &= span >= 0  # a span that overflows int64 is negative
    bins = _histogram(shown, (low, high), one_each, domain)
    return Raw(counts, limits, moments, bins, one_each)


def _measured(piece: torch.Tensor, domain: Domain) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a chunk's row of each of the first three of `Raw`."""
    values = _exact(piece, domain)
    low, high = torch.aminmax(values)
    nothing = torch.zeros((), dtype=torch.int64, device=values.device)
    bad, fraction, finite, count = [nothing] * 6, nothing, None, torch.full_like(nothing, values.numel())
    if not (domain.integer or (domain.may_look and math.isfinite(low) and math.isfinite(high))):
        kinds = (torch.isnan(values), values == math.inf, values == -math.inf)
        bad = [kind.sum() for kind in kinds] + [kind.to(torch.uint8).argmax() for kind in kinds]
        finite = values.abs() < math.inf  # half the passes of `torch.isfinite`
        low, high = torch.where(finite, values, math.inf).min(), torch.where(finite, values, -math.inf).max()
        values, count = torch.where(finite, values, 0.0), finite.sum()
    scale = torch.ones((), dtype=domain.wide, device=values.device)
    if domain.integer:
        origin = torch.where(high - low >= 0, low, 0)
        moved = (values - origin).to(domain.wide)
    else:
        fraction, scale = (values != values.floor()).any(), _scale(low, high)
        moved = values * scale
    some = count.clamp(min=1).to(domain.wide)
    middle = moved.sum() / some
    if domain.integer:
        middle = middle.round()
        shift = origin + middle.to(torch.int64)
    else:
        shift = middle
    moved -= middle
    if finite is not None:
        moved = torch.where(finite, moved, 0.0)
    rest = moved.sum()  # small: the correction of the two-pass algorithm
    squares = torch.dot(moved, moved) - rest * rest / some
    return (
        torch.stack([*bad, fraction.to(torch.int64)]),
        torch.stack([low, high, shift]),
        torch.stack([count.to(domain.wide), rest / some, squares.clamp(min=0), scale]),
    )


def _scale(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the power of two that brings the largest magnitude near 1; a large one where none is."""
    largest = torch.maximum(low.abs(), high.abs())
    limit = 1000 if largest.dtype == torch.float64 else 120  # of two: beyond, there would be infinities
    known = torch.isfinite(largest) & (largest > 0)
    exponent = torch.where(known, torch.frexp(largest).exponent, -limit).clamp(-limit, limit)
    return torch.ldexp(torch.ones_like(largest), -exponent)


def _histogram(
    shown: Iterable[torch.Tensor], ends: tuple[torch.Tensor, torch.Tensor], one_each: torch.Tensor, domain: Domain
) -> torch.Tensor:
    """Return the counts of bins between two ends, a bin for each whole number or all equally wide."""
    low, high = ends
    if domain.integer:
        scale, origin = torch.ones_like(low), torch.where(high - low >= 0, low, 0)
    else:
        scale, origin = _scale(low, high), torch.zeros_like(low)
        low = torch.where(torch.isfinite(low), low, 0.0)  # nothing is finite: no bin counts, none may be out of range
    start, stop = (((end - origin) * scale).to(domain.wide) for end in (low, high))
    per_unit = torch.where(one_each, 1 / scale, torch.where(stop > start, BINS / (stop - start), 0.0))
    bins = torch.zeros(BINS + 2, dtype=torch.int64, device=low.device)
    for piece in shown:
        values = _exact(piece, domain)
        finite = values.abs() < math.inf  # half the passes of `torch.isfinite`
        places = (((values - origin) * scale).to(domain.wide) - start) * per_unit
        places = torch.where(finite, places, 0.0).clamp_(0, BINS - 1).to(torch.int64)
        places = torch.where(finite, places, BINS)
        bins.scatter_add_(0, places, torch.ones_like(places))  # `torch.bincount` would look at the device
        bins[-1] += (values == -domain.bias).sum()
    return bins


def _exact(piece: torch.Tensor, domain: Domain) -> torch.Tensor:
    """Return values as `as_wide` does, but integers as int64; uint64 with its bias taken off, which keeps the order."""
    if not domain.integer:
        return as_wide(piece, domain)
    if domain.bias:
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
