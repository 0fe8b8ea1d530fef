"""Which row, channel or batch item it is: NaN, zeros and outliers, slice by slice along every dimension.

For each dimension the tensor is read with that dimension whole and the others thinned to a budget; everything is
reduced on the tensor's own device and read in one transfer. On the CPU, where looking costs nothing, NaN and infinities
are looked for in every element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tensormagic.collectors.geometry.strides import chunks, thinned, thinned_behind
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.tensors.reductions import Domain, as_wide, limits, reducible
from tensormagic.collectors.tensors.statistics import statistics, statistics_and
from tensormagic.reports import BadSlice, DimensionSlices, LargeSlice, Statistics

LIMIT = 2**19  # elements read for each dimension
MOST_SLICES = 2**17
MOST_DIMENSIONS = 6
MOST_BAD = 2**20  # elements whose places are listed to find their slices
MOST_CELLS = 64
_CHUNK = 2**20
_LISTED = 4
_ROWS = 4  # numbers a slice is reduced to
_LARGE = 10.0  # times the median slice
_FEW = 0.1  # of the slices at most may be outliers: more are a pattern

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Look:
    """What one dimension's slices are read through.

    Attributes:
        dim: Which dimension.
        size: How many slices.
        elements: How many elements each has.
        view: What is read: the dimension first, the others thinned.
        whole: Whether nothing was left out but what is read through a stride of 0.
    """

    dim: int
    size: int
    elements: int
    view: torch.Tensor
    whole: bool

    @property
    def looked(self) -> int:
        """How many elements of each slice are read."""
        return self.view.numel() // self.size


def values(x: torch.Tensor, *, limit: int = LIMIT) -> tuple[Statistics, tuple[DimensionSlices, ...]]:
    """Return the statistics of a strided tensor, and its slices along each dimension that has several of several.

    Args:
        x: Any strided tensor whose values can be read.
        limit: For the slices, read about this many elements a dimension.
    """
    if not x.numel():
        return statistics(x), ()
    with quiet():
        domain, whole = Domain.of(x), thinned(x, x.numel()).tensor  # along a stride of 0 all slices are equal
        looks = [_look(whole, dim, x.numel(), limit) for dim in range(x.dim()) if _worth_a_look(whole, dim)]
        looks = looks[:MOST_DIMENSIONS]
        if not looks:
            return statistics(x), ()
        if domain.may_look:
            numbers = statistics(x)
            clean = numbers.finite == numbers.of
            rows = torch.cat([_reduced(look, domain, clean=clean) for look in looks], dim=1).numpy()
        else:
            numbers, flat = statistics_and(x, torch.cat([_reduced(look, domain) for look in looks], dim=1))
            rows = flat.reshape(_ROWS, -1)
        bad = _bad_places(whole, domain, numbers)
        return numbers, tuple(_report(look, part, bad) for look, part in zip(looks, _parted(rows, looks), strict=True))


def _worth_a_look(whole: torch.Tensor, dim: int) -> bool:
    return 1 < whole.shape[dim] <= MOST_SLICES and whole.numel() > whole.shape[dim]


def _look(whole: torch.Tensor, dim: int, numel: int, limit: int) -> _Look:
    size, view = whole.shape[dim], thinned_behind(whole.movedim(dim, 0), limit)
    return _Look(dim, size, numel // size, view, whole=view.numel() == whole.numel())


def _reduced(look: _Look, domain: Domain, *, clean: bool = False) -> torch.Tensor:
    """Return for each slice, as columns: sum of magnitudes and number of finite values, number of NaN and of Inf.

    ``clean``: nothing is NaN or infinite, so that there is nothing to mask.
    """
    values = as_wide(look.view, domain).abs().view(look.size, -1)
    if clean:
        none = torch.zeros(look.size, dtype=domain.wide, device=values.device)
        return torch.stack([values.sum(1), none + values.shape[1], none, none])
    nan, inf = values.isnan(), values == math.inf
    bad = torch.stack([nan.sum(1), inf.sum(1)])
    sums = torch.where(nan | inf, 0.0, values).sum(1)
    return torch.cat([torch.stack([sums, values.shape[1] - bad.sum(0)]), bad])


def _parted(rows: Array, looks: Sequence[_Look]) -> list[Array]:
    return np.split(rows, np.cumsum([look.size for look in looks])[:-1], axis=1)


def _bad_places(whole: torch.Tensor, domain: Domain, numbers: Statistics) -> _Bad | None:
    """Return where every NaN and infinity is; None where that was not looked for, or where they are too many."""
    if not domain.may_look or numbers.count < numbers.of:
        return None
    if numbers.finite == numbers.of:
        return _Bad(np.zeros(0, np.int64), np.zeros(0, bool), tuple(whole.shape))
    if (numbers.of - numbers.finite) * whole.numel() > MOST_BAD * numbers.of:
        return None
    found, kinds, rank = [], [], 0
    for piece in chunks(whole, _CHUNK):
        values = reducible(piece, domain)
        if not all(map(math.isfinite, limits(values))):
            at = (~values.isfinite()).nonzero().view(-1)
            found.append((at + rank).numpy())
            kinds.append(values[at].isnan().numpy())
        rank += piece.numel()
    return _Bad(np.concatenate(found), np.concatenate(kinds), tuple(whole.shape))


@dataclass(frozen=True, slots=True)
class _Bad:
    """Every element that is not finite: its rank in reading order, and whether it is NaN."""

    ranks: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    nan: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    shape: tuple[int, ...]

    def along(self, dim: int) -> tuple[Array, Array]:
        """Return how many are NaN, and how many infinite, for each index of a dimension."""
        at = np.unravel_index(self.ranks, self.shape)[dim]
        nan, every = (np.bincount(places, minlength=self.shape[dim]) for places in (at[self.nan], at))
        return nan.astype(np.float64), (every - nan).astype(np.float64)


def _report(look: _Look, rows: Array, bad: _Bad | None) -> DimensionSlices:
    sums, finite, nan, inf = rows
    if bad is not None:
        nan, inf = bad.along(look.dim)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.where(finite > 0, sums / finite, np.nan)
    width = -(-look.size // MOST_CELLS)
    ill, zero = np.flatnonzero(nan + inf), np.flatnonzero((level == 0) & (finite == look.looked))
    return DimensionSlices(
        dim=look.dim,
        size=look.size,
        elements=look.elements,
        looked=look.elements if look.whole else look.looked,
        cell_slices=width,
        levels=tuple(_cells(level, width, np.fmax)),
        cell_bad=tuple(int(number) for number in _cells(nan + inf, width, np.add)),
        bad_count=len(ill),
        bad=tuple(BadSlice(int(at), int(nan[at]), int(inf[at])) for at in ill[:_LISTED]),
        bad_exact=bad is not None or look.whole,
        zero_count=len(zero),
        zero=tuple(int(at) for at in zero[:_LISTED]),
        large=_large(level),
    )


def _cells(numbers: Array, width: int, join: np.ufunc) -> list[float]:
    found: list[float] = join.reduceat(numbers, np.arange(0, len(numbers), width)).tolist()
    return found


def _large(level: Array) -> tuple[LargeSlice, ...]:
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
