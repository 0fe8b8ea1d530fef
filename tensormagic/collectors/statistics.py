"""Numbers over a tensor's elements: one fused set of reductions, one wait for the device.

Everything is reduced on the tensor's own device, chunk by chunk, so that a huge or non-contiguous tensor is never
copied whole; all results are joined into one buffer and read in a single transfer.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from tensormagic.collectors.chunks import Thinned, chunks, thinned
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.reductions import BINS, Domain, Raw, reduce_chunks
from tensormagic.reports import Statistics

# How many elements are read before sampling starts, and how many at a time. On the CPU: what fits its caches, and what
# torch does not hand to its thread pool (at::internal::GRAIN_SIZE), which is several times as fast on a busy machine
# of two cores. Elsewhere: enough to keep a GPU busy, with temporaries of 32 MiB.
CPU_LIMIT, DEVICE_LIMIT = 2**26, 2**32
CPU_CHUNK, DEVICE_CHUNK = 2**15, 2**22
_NAN, _FIRST_NAN = 1, 4  # columns of `Raw.counts`


def statistics(x: torch.Tensor, *, limit: int | None = None, chunk: int | None = None) -> Statistics:
    """Return statistics of a strided tensor's values.

    Args:
        x: Any strided tensor whose values can be read.
        limit: Read at most about this many elements; more are sampled evenly, and the report says so.
        chunk: Elements to read at a time.
    """
    of_what = "magnitudes" if x.is_complex() else "values"
    if x.numel() == 0:
        return Statistics(0, 0, 0, 0, 0, 0, 0, None, None, None, None, None, of_what=of_what)
    on_cpu = x.device.type == "cpu"
    with quiet():
        part = thinned(x, limit or (CPU_LIMIT if on_cpu else DEVICE_LIMIT))
        most = chunk or (CPU_CHUNK if on_cpu else DEVICE_CHUNK)
        domain = Domain.of(x)
        numbers = _fetch(reduce_chunks(lambda: chunks(part.tensor, most), domain))
        return _report(numbers, domain, part, _first_nan(numbers, part, most))


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What `Raw` holds, on the host."""

    counts: list[list[int]]
    limits: list[int] | list[float]
    moments: list[list[float]]
    bins: list[int]
    one_each: bool


def _fetch(raw: Raw) -> _Numbers:
    """Read everything in one transfer: floats travel as the integers that have the same bits."""
    parts = (raw.counts, raw.limits, raw.moments, raw.bins, raw.one_each)
    flat = torch.cat([_bits(part) for part in parts]).tolist()
    taken: list[list[int]] = []
    for part in parts:
        taken.append(flat[: part.numel()])
        flat = flat[part.numel() :]
    counts, limits, moments, bins, one_each = taken
    numbers = _floats(limits, raw.limits.dtype) if raw.limits.is_floating_point() else limits
    rows = _rows(_floats(moments, raw.moments.dtype), raw.moments.shape[1])
    return _Numbers(_rows(counts, raw.counts.shape[1]), numbers, rows, bins, bool(one_each[0]))


def _bits(part: torch.Tensor) -> torch.Tensor:
    narrow = part.dtype == torch.float32
    whole = part.view(torch.int32 if narrow else torch.int64) if part.is_floating_point() else part
    return whole.reshape(-1).to(torch.int64)


def _floats(bits: Sequence[int], dtype: torch.dtype) -> list[float]:
    code_out, code_in = ("i", "f") if dtype == torch.float32 else ("q", "d")
    return list(struct.unpack(f"={len(bits)}{code_in}", struct.pack(f"={len(bits)}{code_out}", *bits)))


Number = TypeVar("Number", int, float)


def _rows(flat: list[Number], width: int) -> list[list[Number]]:
    return [flat[at : at + width] for at in range(0, len(flat), width)]


@dataclass(frozen=True, slots=True)
class _Moments:
    """Count, mean and sum of squared deviations of the finite values, in the scaled and shifted units."""

    count: int
    mean: float
    squares: float

    @classmethod
    def merged(cls, rows: list[list[float]]) -> _Moments:
        """Merge those of the chunks (Chan, Golub and LeVeque, 1979)."""
        count = sum(row[0] for row in rows)
        mean = math.fsum(n * mean for n, mean, _ in rows) / max(count, 1)
        squares = math.fsum(part for n, own, m2 in rows for part in (m2, n * (own - mean) ** 2))
        return cls(int(count), mean, squares)


def _report(numbers: _Numbers, domain: Domain, part: Thinned, first_nan: tuple[int, ...] | None) -> Statistics:
    zero, nan, positive, negative = (sum(row[at] for row in numbers.counts) * part.repeats for at in range(4))
    moments = _Moments.merged(numbers.moments)
    low, high = _limits(numbers, domain, moments.count)
    mean, std, norm = _mean_std_norm(moments, numbers, domain, part.repeats)
    edges, bins = _histogram(numbers, low, high)
    return Statistics(
        count=part.tensor.numel() * part.repeats,
        of=part.of,
        finite=moments.count * part.repeats,
        nan=nan,
        positive_infinity=positive,
        negative_infinity=negative,
        zero=zero,
        minimum=low,
        maximum=high,
        mean=mean,
        std=std,
        norm=norm,
        histogram_edges=edges,
        histogram_counts=tuple(count * part.repeats for count in bins),
        sampling=part.sampling,
        of_what="magnitudes" if domain.complex else "values",
        first_nan=first_nan,
    )


def _limits(numbers: _Numbers, domain: Domain, finite: int) -> tuple[float, float] | tuple[None, None]:
    """Return lowest and highest finite value; integers exactly, as int."""
    low, high = numbers.limits[:2]
    return (low + domain.bias, high + domain.bias) if finite else (None, None)


def _mean_std_norm(
    moments: _Moments, numbers: _Numbers, domain: Domain, repeats: int
) -> tuple[float | None, float | None, float | None]:
    """Return to the tensor's own units: integers were shifted, reals were scaled by a power of two."""
    if not moments.count:
        return None, None, None
    shift, scale = (numbers.limits[2] + domain.bias, 1.0) if domain.integer else numbers.limits[2:]
    count, squares, mean = moments.count * repeats, moments.squares * repeats, moments.mean + shift
    std = math.sqrt(squares / (count - 1)) / scale if count > 1 else None
    return mean / scale, std, math.sqrt(squares + count * mean * mean) / scale


def _histogram(numbers: _Numbers, low: float | None, high: float | None) -> tuple[tuple[float, ...], list[int]]:
    """Return edges and counts: a bin for each whole number where there are few, else equal bins; one for a constant."""
    if low is None or high is None:
        return (), []
    if numbers.one_each:
        shown = int(high - low) + 1
        return tuple(low - 0.5 + at for at in range(shown + 1)), numbers.bins[:shown]
    if low == high:
        return (low - abs(low) / 2, low + abs(low) / 2), numbers.bins[:1]
    inner = (low * (1 - at / BINS) + high * (at / BINS) for at in range(1, BINS))
    return (float(low), *inner, float(high)), numbers.bins


def _first_nan(numbers: _Numbers, part: Thinned, chunk: int) -> tuple[int, ...] | None:
    """Return the index of the first NaN in reading order."""
    rank = 0
    for piece, counts in zip(chunks(part.tensor, chunk), numbers.counts, strict=True):
        if counts[_NAN]:
            return part.index(rank + counts[_FIRST_NAN])
        rank += piece.numel()
    return None
