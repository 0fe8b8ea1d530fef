"""Numbers about the values of a tensor, and about its slices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from tensormagic.collectors.geometry.strides import SampledRegion, chunks, thinned
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.tensors.reductions import BINS, Domain, as_wide, reduce_chunks
from tensormagic.reports import BadSlice, DimensionSlices, LargeSlice, Statistics

# Numbers over a tensor's elements: everything is reduced on the tensor's own device, chunk by chunk, so that a huge or
# non-contiguous tensor is never copied whole; only results are read, when all have been asked for.
# On the CPU, zeros and histogram of a large tensor are of a sample, while extremes, NaN, infinities, mean, spread and
# norm stay those of every element, these three to a few parts in a million: sums are in float32 where that holds the
# values.

# How many elements are read before sampling starts, and how many at a time. On the CPU: what fits its caches, and what
# torch does not hand to its thread pool (at::internal::GRAIN_SIZE), which is several times as fast on a busy machine
# of two cores. Elsewhere: enough to keep a GPU busy, with temporaries of 32 MiB.
CPU_LIMIT, DEVICE_LIMIT = 2**23, 2**32
CPU_CHUNK, DEVICE_CHUNK = 2**15, 2**22
LARGE_CHUNK = 2**17  # of a large tensor: its values lie in a cache, and the calls do not count
LEAST_SAMPLE, MOST_SAMPLE, SAMPLE_SHARE = 2**17, 2**20, 512  # of such a tensor, for its histogram
LIMIT = 2**19  # elements read for each dimension
MOST_SLICES = 2**17
MOST_DIMENSIONS = 6
MOST_BAD = 2**20  # elements whose places are listed to find their slices
MOST_CELLS = 64  # of a dimension
_CHUNK = 2**20  # elements
_LISTED = 4  # slices
_LARGE = 10.0  # times the median slice
_FEW = 0.1  # of the slices at most may be outliers: more are a pattern
Index = tuple[int, ...]


def statistics(x: torch.Tensor, *, limit: int | None = None, chunk: int | None = None) -> Statistics:
    """Return statistics of the values of a strided tensor that can be read, so many elements at a time.

    Of more than ``limit`` elements about so many are sampled evenly, and the report says so.
    """
    if x.numel() == 0:
        of_what = "magnitudes" if x.is_complex() else "values"
        return Statistics(0, 0, 0, 0, 0, 0, 0, None, None, None, None, None, of_what=of_what)
    on_cpu = x.device.type == "cpu"
    with quiet():
        read = shown = thinned(x, limit or (CPU_LIMIT if on_cpu else DEVICE_LIMIT))
        large = bool(read.sampling) and limit is None and on_cpu
        chunk = chunk or (LARGE_CHUNK if large else CPU_CHUNK if on_cpu else DEVICE_CHUNK)
        if large:
            read = thinned(x, x.numel())
            shown = thinned(x, min(max(read.tensor.numel() // SAMPLE_SHARE, LEAST_SAMPLE), MOST_SAMPLE))
        return _measured(read, shown, chunk)


def _measured(read: SampledRegion, shown: SampledRegion, chunk: int) -> Statistics:
    """Return statistics of what is read, zeros and histogram of what is ``shown``."""
    sampled = shown is not read
    domain, pieces = Domain.of(read.tensor, fast=sampled), list(chunks(read.tensor, chunk))
    raw = reduce_chunks(pieces, chunks(shown.tensor, chunk), domain)
    counts, limits, moments = raw.counts.tolist(), raw.limits.tolist(), raw.moments.tolist()
    *bins, _, zero = raw.bins.tolist()
    finite, mean, std, norm = _merged(limits, moments, domain.bias, read.repeats)
    low, high = min(row[0] for row in limits) + domain.bias, max(row[1] for row in limits) + domain.bias
    edges, shares = _histogram(bins, low, high, one_each=bool(raw.one_each)) if finite else ((), [])
    starts, first = list(itertools.accumulate((piece.numel() for piece in pieces), initial=0)), list[Index | None]()
    for kind in range(3):  # NaN, +Inf, -Inf
        ranks = (start + row[kind + 3] for start, row in zip(starts, counts, strict=False) if row[kind])
        first.append(next(map(read.index, ranks), None))
    nan, positive, negative = (sum(row[kind] for row in counts) * read.repeats for kind in range(3))
    return Statistics(
        read.tensor.numel() * read.repeats, read.of, finite, nan, positive, negative, zero * shown.repeats,
        low if finite else None, high if finite else None, mean, std, norm,
        edges, tuple(count * shown.repeats for count in shares), sampling=shown.sampling,
        of_what="magnitudes" if domain.complex else "values",
        first_nan=first[0], first_positive_infinity=first[1], first_negative_infinity=first[2],
        sampled=shown.tensor.numel() * shown.repeats if sampled else None,
    )  # fmt: skip


def _merged(
    limits: list[list[float]], moments: list[list[float]], bias: int, repeats: int
) -> tuple[int, float | None, float | None, float | None]:
    """Return number, mean, spread and norm of the finite values from what `Raw` says of the chunks."""
    rows = [(*moment, limit[2]) for limit, moment in zip(limits, moments, strict=True) if moment[0]]
    if not rows:
        return 0, None, None, None
    scale = min(row[3] for row in rows)
    ratios = [scale / row[3] for row in rows]  # powers of two: 1 of integers, whose shifts stay exact
    shifts = [row[4] if ratio == 1 else row[4] * ratio for row, ratio in zip(rows, ratios, strict=True)]
    near = [
        (n, shift - shifts[0] + rest * ratio, squares * ratio * ratio)
        for (n, rest, squares, *_), shift, ratio in zip(rows, shifts, ratios, strict=True)
    ]
    finite = int(sum(n for n, _, _ in near))
    middle = math.fsum(n * mean for n, mean, _ in near) / finite
    total = math.fsum(part for n, mean, squares in near for part in (squares, n * (mean - middle) ** 2)) * repeats
    count, mean = finite * repeats, shifts[0] + bias + middle
    std = math.sqrt(total / (count - 1)) / scale if count > 1 else None
    return count, mean / scale, std, math.sqrt(total + count * mean * mean) / scale


def _histogram(bins: list[int], low: float, high: float, *, one_each: bool) -> tuple[tuple[float, ...], list[int]]:
    """Return edges and counts: a bin for each whole number where there are few, else equal bins; one for a constant."""
    if one_each:
        shown = int(high - low) + 1
        return tuple(low - 0.5 + at for at in range(shown + 1)), bins[:shown]
    if low == high:
        return (low - abs(low) / 2, low + abs(low) / 2), bins[:1]
    inner = (low * (1 - at / BINS) + high * (at / BINS) for at in range(1, BINS))
    return (float(low), *inner, float(high)), bins


# Which row, channel or batch item it is: NaN, zeros and outliers, slice by slice along every dimension.
#
# For each dimension the tensor is read with that dimension whole and the others thinned to a budget. On the CPU, where
# looking costs nothing, NaN and infinities are looked for in every element.
Rows = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
# Every element that is not finite: its place along each dimension, and whether it is NaN.
Bad = tuple[
    tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], ...], np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
]


def values(x: torch.Tensor, *, limit: int = LIMIT) -> tuple[Statistics, tuple[DimensionSlices, ...]]:
    """Return the statistics of a strided tensor, and its slices along each dimension that has several of several.

    For the slices, about ``limit`` elements a dimension are read.
    """
    with quiet():
        numbers, whole = statistics(x), thinned(x, x.numel()).tensor if x.numel() else x  # stride 0: all are equal
        dims = [dim for dim, size in enumerate(whole.shape) if 1 < size <= MOST_SLICES and size < whole.numel()]
        bad = _bad_places(whole, numbers) if dims else None
        return numbers, tuple(_slices(whole, dim, numbers.of, bad, limit) for dim in dims[:MOST_DIMENSIONS])


def _bad_places(whole: torch.Tensor, numbers: Statistics) -> Bad | None:
    """Return where every NaN and infinity is; None where that was not looked for, or where they are too many."""
    domain = Domain.of(whole)
    if not domain.may_look or numbers.count < numbers.of:
        return None
    if (numbers.of - numbers.finite) * whole.numel() > MOST_BAD * numbers.of:
        return None
    found, kinds, rank = [np.zeros(0, np.int64)], [np.zeros(0, bool)], 0
    for piece in chunks(whole, _CHUNK) if numbers.finite < numbers.of else ():
        values = as_wide(piece, domain)
        at = (~values.isfinite()).nonzero().view(-1)
        found.append((at + rank).numpy())
        kinds.append(values[at].isnan().numpy())
        rank += piece.numel()
    return np.unravel_index(np.concatenate(found), whole.shape), np.concatenate(kinds)


def _slices(whole: torch.Tensor, dim: int, of: int, bad: Bad | None, limit: int) -> DimensionSlices:
    """Return what there is to know of the slices along a dimension, which together have ``of`` elements."""
    size, view = whole.shape[dim], thinned(whole.movedim(dim, 0), limit, kept=1).tensor
    values = as_wide(view, Domain.of(view)).abs().view(size, -1)
    is_nan, is_inf = values.isnan(), values == math.inf
    sums = torch.where(is_nan | is_inf, 0.0, values).sum(1)
    sums, nan, inf = torch.stack([sums, is_nan.sum(1), is_inf.sum(1)]).cpu().numpy()
    looked, elements = values.shape[1], of // size  # of each slice
    with np.errstate(all="ignore"):
        level = np.where(nan + inf < looked, sums / (looked - nan - inf), np.nan)
    zero = np.flatnonzero((level == 0) & (nan + inf == 0))
    if bad is not None:
        places, among = bad[0][dim], bad[1]
        nan = np.bincount(places[among], minlength=size).astype(np.float64)
        inf = np.bincount(places, minlength=size) - nan
    width = -(-size // MOST_CELLS)
    cells, ill, is_whole = np.arange(0, size, width), np.flatnonzero(nan + inf), view.numel() == whole.numel()
    return DimensionSlices(
        dim, size, elements, elements if is_whole else looked, width,
        levels=tuple(np.fmax.reduceat(level, cells).tolist()),
        cell_bad=tuple(map(int, np.add.reduceat(nan + inf, cells))),
        bad_count=len(ill), bad=tuple(BadSlice(int(at), int(nan[at]), int(inf[at])) for at in ill[:_LISTED]),
        bad_exact=bad is not None or is_whole, zero_count=len(zero), zero=tuple(map(int, zero[:_LISTED])),
        large=_large(level),
    )  # fmt: skip


def _large(level: Rows) -> tuple[LargeSlice, ...]:
    """Return the few slices that are far larger than the median of those that hold something."""
    usual = level[np.isfinite(level) & (level > 0)]
    if len(usual) < _LISTED:
        return ()
    middle = float(np.median(usual))
    found = np.flatnonzero(level > _LARGE * middle)
    if len(found) > max(1, int(_FEW * len(level))):
        return ()
    largest = found[np.argsort(-level[found], kind="stable")][:_LISTED]
    return tuple(LargeSlice(int(at), float(level[at]) / middle) for at in largest)
