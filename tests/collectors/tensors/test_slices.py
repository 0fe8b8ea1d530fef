"""Slices: which index of which dimension holds NaN, is all zeros, or is far larger than the others."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from tensormagic.collectors.tensors import reductions
from tensormagic.collectors.tensors.statistics import values
from tensormagic.reports import BadSlice, DimensionSlices


def slices(x: torch.Tensor, limit: int = 2**19) -> tuple[DimensionSlices, ...]:
    """The slices of x."""
    return values(x, limit=limit)[1]


def activations() -> torch.Tensor:
    """A batch of 8 images of 16 channels: a dead channel, a loud one, and NaN in one item."""
    x = torch.sin(torch.arange(8 * 16 * 6 * 6, dtype=torch.float32)).view(8, 16, 6, 6)
    x[:, 3] = 0
    x[:, 9] *= 40
    x[5, 2, 1:3, 4] = math.nan
    x[5, 2, 0, 0] = -math.inf
    return x


def test_bad_slices_are_named_with_their_counts() -> None:
    """Each dimension tells which of its indices hold NaN and infinities, and how many."""
    item, channel, row, column = slices(activations())
    assert (item.bad_count, item.bad) == (1, (BadSlice(5, nan=2, inf=1),))
    assert channel.bad == (BadSlice(2, nan=2, inf=1),)
    assert row.bad == (BadSlice(0, 0, 1), BadSlice(1, 1, 0), BadSlice(2, 1, 0))
    assert column.bad == (BadSlice(0, 0, 1), BadSlice(4, 2, 0))
    assert channel.cell_bad == tuple(3 if at == 2 else 0 for at in range(16))


def test_dead_and_loud_channels() -> None:
    """A channel of zeros and one forty times as large are singled out, along their dimension alone."""
    item, channel, _, _ = slices(activations())
    assert (item.zero_count, item.large) == (0, ())
    assert (channel.zero_count, channel.zero) == (1, (3,))
    (large,) = channel.large
    assert large.index == 9
    assert large.ratio == pytest.approx(40, rel=0.05)


def test_levels_are_mean_magnitudes_of_the_finite_values() -> None:
    """What the picture is coloured by equals NumPy's mean of magnitudes."""
    x = activations()
    channel = slices(x)[1]
    plain = np.ma.masked_invalid(np.abs(x.double().numpy()))
    assert channel.levels == pytest.approx(plain.mean(axis=(0, 2, 3)).tolist(), rel=1e-12)
    assert (channel.size, channel.elements, channel.looked, channel.cell_slices) == (16, 288, 288, 1)


@pytest.mark.parametrize(
    ("x", "dims"),
    [
        (torch.zeros(5), []),
        (torch.tensor(1.0), []),
        (torch.zeros(0, 3), []),
        (torch.zeros(1, 4), []),
        (torch.zeros(2, 3), [0, 1]),
        (torch.zeros(3, 1).expand(3, 4), []),
        (torch.zeros(3, 4, 1).expand(3, 4, 9), [0, 1]),
    ],
)
def test_only_dimensions_with_slices_are_looked_at(x: torch.Tensor, dims: list[int]) -> None:
    """A vector's elements are no slices, nor is a single row, nor what is repeated through a stride of 0."""
    assert [each.dim for each in slices(x)] == dims


def test_sampled_slices_say_how_many_elements_were_looked_at() -> None:
    """Beyond the budget the other dimensions are thinned; every slice and every NaN is still found."""
    x = torch.ones(40, 50, 60)
    x[7, 49, 59] = math.nan
    first, second, third = slices(x, limit=4000)
    assert [each.size for each in (first, second, third)] == [40, 50, 60]
    assert all(each.looked < each.elements and each.bad_exact for each in (first, second, third))
    assert (first.bad, second.bad, third.bad) == (
        (BadSlice(7, 1, 0),), (BadSlice(49, 1, 0),), (BadSlice(59, 1, 0),)
    )  # fmt: skip


def test_many_bad_elements_are_counted_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more are bad than could be listed, the sample alone is counted, and that is said."""
    monkeypatch.setattr("tensormagic.collectors.tensors.statistics.MOST_BAD", 10)
    x = torch.full((30, 40), -math.inf)
    (rows, columns) = slices(x, limit=300)
    assert not rows.bad_exact
    assert rows.bad_count == 30
    assert rows.bad[0].inf == rows.looked < rows.elements
    assert all(math.isnan(level) for level in columns.levels)


def test_many_slices_share_the_cells_of_the_picture() -> None:
    """A thousand rows are drawn as 63 cells of 16; a cell is as large, and as bad, as its worst row."""
    x = torch.ones(1000, 3)
    x[500] = 7
    x[999, 1] = math.nan
    rows = slices(x)[0]
    assert (len(rows.levels), rows.cell_slices) == (63, 16)
    assert (rows.levels[500 // 16], rows.levels[0], rows.cell_bad[-1]) == (7.0, 1.0, 1)


def test_a_pattern_is_no_outlier() -> None:
    """Half of the channels being large is how the tensor is; so is a tensor of zeros with one row in it."""
    x = torch.ones(20, 8)
    x[::2] = 1000
    assert slices(x)[0].large == ()
    one = torch.zeros(20, 8)
    one[4] = 1
    assert (slices(one)[0].large, slices(one)[0].zero_count) == ((), 19)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.uint64, torch.float8_e4m3fn])
def test_every_dtype_has_slices(dtype: torch.dtype) -> None:
    """The magnitudes of integers, truth values and eight-bit floats are those of the numbers they stand for."""
    x = torch.tensor([[0, 1, 1], [0, 0, 0]]).to(dtype)
    rows, columns = slices(x)
    assert rows.levels == pytest.approx((2 / 3, 0))
    assert (rows.zero, columns.levels) == ((1,), (0.0, 0.5, 0.5))
    assert slices(torch.tensor([[3 + 4j, 0], [0, 0]]))[0].levels == (2.5, 0.0)


def test_devices_where_looking_waits_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masked and read together with the statistics, the slices are the same."""
    x = activations()
    expected = slices(x)
    original = reductions.Domain.of
    blind = classmethod(lambda _, x, **how: dataclasses.replace(original(x, **how), may_look=False))
    monkeypatch.setattr(reductions.Domain, "of", blind)
    assert slices(x) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu() -> None:
    """Reduced on the device, statistics and slices are those of the CPU."""
    x = activations()
    (numbers, by_slice), (expected, on_cpu) = values(x.cuda()), values(x)
    assert (numbers.nan, numbers.minimum, numbers.first_nan) == (expected.nan, expected.minimum, expected.first_nan)
    assert numbers.mean == pytest.approx(expected.mean, rel=1e-12)
    assert [(each.bad, each.zero) for each in by_slice] == [(each.bad, each.zero) for each in on_cpu]
