"""Statistics equal NumPy's in float64 on data made to hurt: large offsets, NaN, infinities, subnormals, any layout."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import tensormagic as tm
from tensormagic.collectors.geometry.strides import chunks, ordinal, thinned
from tensormagic.collectors.tensors import reductions, statistics as statistics_module
from tensormagic.collectors.tensors.statistics import statistics, values
from tensormagic.reports import Statistics

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def assert_equals_numpy(found: Statistics, values: np.ndarray) -> None:
    """Compare every number with NumPy's on the same values in float64 (or exact integers)."""
    finite = values[np.isfinite(values)]
    assert (found.finite, found.nan) == (finite.size, np.isnan(values).sum())
    assert found.positive_infinity == (values == math.inf).sum()
    assert found.negative_infinity == (values == -math.inf).sum()
    assert found.zero == (values == 0).sum()
    assert sum(found.histogram_counts) == finite.size
    if not finite.size:
        assert (found.minimum, found.mean, found.norm, found.histogram_edges) == (None, None, None, ())
        return
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    wide = finite.astype(np.float64)
    assert found.mean == pytest.approx(math.fsum(wide) / wide.size, rel=1e-12, abs=1e-14 * np.abs(wide).max())
    unit = np.abs(wide).max() or 1.0  # NumPy's squares would leave the range of float64
    assert found.norm == pytest.approx(np.linalg.norm(wide / unit) * unit, rel=1e-12)
    if finite.size > 1:
        deviation = np.std((wide - wide[0]) / unit, ddof=1) * unit
        assert found.std == pytest.approx(deviation, rel=1e-9, abs=1e-15 * np.abs(wide).max())
    else:
        assert found.std is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e100, 1e100) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0]), max_size=60),
    st.integers(1, 20),
)
def test_any_floats_in_any_chunks(values: list[float], chunk: int) -> None:
    """Whatever the values and wherever the chunks are cut, every number is NumPy's."""
    x = torch.tensor(values, dtype=torch.float64)
    found = statistics(x, chunk=chunk)
    if values:
        assert_equals_numpy(found, np.array(values))
        first = next((at for at, value in enumerate(values) if math.isnan(value)), None)
        assert found.first_nan == (None if first is None else (first,))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40), st.integers(1, 9))
def test_any_integers_in_any_chunks(values: list[int], chunk: int) -> None:
    """Integers keep exact extremes over the whole range of int64."""
    found = statistics(torch.tensor(values), chunk=chunk)
    assert (found.minimum, found.maximum, found.zero) == (min(values), max(values), values.count(0))
    assert isinstance(found.minimum, int)
    assert found.mean == pytest.approx(sum(values) / len(values), rel=1e-12, abs=1e4)
    assert sum(found.histogram_counts) == len(values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_dtype(dtype: torch.dtype) -> None:
    """Sums of narrow floats are taken in float64, not in their own dtype."""
    x = (torch.arange(3000) % 37 - 18).to(dtype) / 16
    assert_equals_numpy(statistics(x, chunk=700), x.double().numpy())


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_float8_dtype(dtype: torch.dtype) -> None:
    """Float8 has almost no operations of its own; its numbers are those of its values."""
    x = torch.tensor([0.5, -1.0, 3.0, 0.0, math.nan]).to(dtype)
    assert_equals_numpy(statistics(x), x.double().numpy())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_dtype(dtype: torch.dtype) -> None:
    """The largest and smallest value of each dtype are given exactly."""
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.min, limits.max, 0, 7], dtype=dtype)
    found = statistics(x)
    assert (found.minimum, found.maximum, found.zero) == (limits.min, limits.max, 2 if limits.min == 0 else 1)
    assert found.mean == pytest.approx((limits.min + limits.max + 7) / 4, rel=1e-12, abs=limits.max * 1e-15)


def test_large_offset_costs_no_digits() -> None:
    """Variance one on top of a billion: a sum of squares would have lost it entirely."""
    x = torch.tensor([1e9, 1e9 + 1, 1e9 + 2] * 1000, dtype=torch.float64)
    found = statistics(x, chunk=17)
    assert found.mean == 1e9 + 1
    assert found.std == pytest.approx(math.sqrt(2 / 3 * 3000 / 2999), rel=1e-12)


def test_integers_beyond_float64_keep_their_differences() -> None:
    """Near 2**60 a float64 steps by 256; spread and histogram still tell neighbours apart."""
    found = statistics(torch.tensor([2**60, 2**60 + 1, 2**60 + 2, 2**60 + 2]))
    assert found.histogram_counts == (1, 1, 2)
    assert found.std == pytest.approx(np.std([0, 1, 2, 2], ddof=1))


@pytest.mark.parametrize("size", [1e300, 1e-300, 5e-324])
def test_squares_may_leave_float64(size: float) -> None:
    """Norm and standard deviation survive values whose squares overflow or vanish."""
    found = statistics(torch.tensor([3 * size, -4 * size, 0.0], dtype=torch.float64))
    assert found.norm == pytest.approx(5 * size)
    assert found.std == pytest.approx(size * np.std([3.0, -4.0, 0.0], ddof=1), rel=1e-12, abs=5e-324)


def test_whole_range_of_float64_has_finite_edges() -> None:
    """The distance between the extremes overflows; the edges between them do not."""
    largest = np.finfo(np.float64).max
    found = statistics(torch.tensor([-largest, largest, 0.0], dtype=torch.float64))
    assert all(map(math.isfinite, found.histogram_edges))
    assert list(found.histogram_edges) == sorted(found.histogram_edges)
    assert (found.histogram_counts[0], found.histogram_counts[12], found.histogram_counts[-1]) == (1, 1, 1)


def test_histogram_counts_lie_between_their_edges() -> None:
    """Equal bins from the smallest to the largest value, as NumPy counts them."""
    x = torch.linspace(0, 4.8, 241, dtype=torch.float64)[:-1] + 0.01
    found = statistics(x)
    assert (found.histogram_edges[0], found.histogram_edges[-1]) == (x.min().item(), x.max().item())
    expected, _ = np.histogram(x.numpy(), bins=np.array(found.histogram_edges))
    assert found.histogram_counts == tuple(expected)


def test_few_whole_numbers_have_a_bin_each() -> None:
    """Labels, masks and counts are shown number by number, whether stored as integers or as floats."""
    for dtype in (torch.int64, torch.float32):
        found = statistics(torch.tensor([3, 5, 5, 4, 5], dtype=dtype))
        assert found.histogram_counts == (1, 1, 3)
        assert found.histogram_edges == (2.5, 3.5, 4.5, 5.5)
    assert statistics(torch.tensor([True, False, True])).histogram_counts == (1, 2)


def test_constant_has_one_bin_around_it() -> None:
    """A constant tensor has no range to divide."""
    found = statistics(torch.full((7,), 0.25))
    assert (found.histogram_counts, found.histogram_edges, found.std) == ((7,), (0.125, 0.375), 0.0)


def test_complex_numbers_give_magnitudes() -> None:
    """Of complex numbers the magnitudes are measured; both parts must be finite; conjugate views are read as well."""
    x = torch.tensor([3 + 4j, 0j, complex(1, math.nan), complex(math.inf, 0), complex(-math.inf, math.nan)])
    for view in (x, x.conj()):
        found = statistics(view)
        assert (found.of_what, found.finite, found.nan, found.positive_infinity) == ("magnitudes", 2, 2, 1)
        assert (found.maximum, found.zero, found.mean, found.norm, found.first_nan) == (5.0, 1, 2.5, 5.0, (2,))


def test_complex_half_and_negative_views() -> None:
    """Magnitudes of a dtype with hardly any operations, and values seen through the lazy minus of ``.imag``."""
    z = torch.tensor([3 + 4j, 1 - 2j])
    assert statistics(z.conj().imag).maximum == 2.0
    assert z.conj().imag.is_neg()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once a process that the dtype is an experiment
        half = torch.complex(z.real.half(), z.imag.half())
    assert statistics(half).maximum == 5.0


def test_expanded_dimensions_are_read_once_and_counted_in_full() -> None:
    """A trillion elements over three stored ones: exact, at once, with nothing sampled."""
    x = torch.tensor([1.0, math.nan, 4.0]).expand(10**6, 10**6, 3)
    found = statistics(x)
    assert (found.count, found.of, found.finite, found.nan) == (3 * 10**12, 3 * 10**12, 2 * 10**12, 10**12)
    assert (found.mean, found.sampling, found.first_nan) == (2.5, "", (0, 0, 1))
    assert found.std == pytest.approx(1.5)
    assert found.norm == pytest.approx(math.sqrt(17e12))


def test_strided_views_are_read_through_their_own_indices() -> None:
    """A sliced transpose and a channels_last tensor: the first NaN is the first in reading order."""
    a = torch.arange(24.0).view(4, 6)
    a[2, 2] = math.nan
    x = a.t()[1:5, ::2]
    found = statistics(x, chunk=3)
    assert_equals_numpy(found, x.double().numpy())
    assert found.first_nan == (1, 1)
    image = torch.arange(120.0).view(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert_equals_numpy(statistics(image, chunk=7), image.double().numpy())


def test_sampling_is_even_and_says_what_was_left_out() -> None:
    """Over the limit, evenly spaced indices are read; the report has both counts and the words."""
    found = statistics(torch.arange(1000.0).view(10, 100), limit=300)
    assert (found.count, found.of, found.sampling) == (250, 1000, "every 4th index of dimension 1")
    assert (found.minimum, found.maximum) == (0.0, 996.0)
    x = torch.zeros(4, 100)
    x[2, 40] = math.nan
    assert statistics(x, limit=200).first_nan == (2, 40)


def test_sampling_goes_on_to_further_dimensions() -> None:
    """Where one dimension is not long enough, the next is thinned as well, and both are named."""
    part = thinned(torch.zeros(6, 6), 3)
    assert part.tensor.numel() <= 3
    assert part.sampling == "every 6th index of dimension 0 and every 2nd index of dimension 1"


def test_chunks_cover_every_element_once_in_reading_order() -> None:
    """Chunks are never longer than asked for, and together they are the tensor."""
    x = torch.arange(2 * 3 * 50).view(2, 3, 50).transpose(0, 2)
    for most in (1, 7, 60, 1000):
        pieces = list(chunks(x, most))
        assert all(piece.numel() <= most for piece in pieces)
        assert torch.equal(torch.cat([piece.reshape(-1) for piece in pieces]), x.reshape(-1))


def test_empty_and_single_elements() -> None:
    """Nothing has no extremes; one value has no standard deviation; a scalar's NaN is at the empty index."""
    empty = statistics(torch.empty(0, 3))
    assert (empty.count, empty.minimum, empty.histogram_counts) == (0, None, ())
    single = statistics(torch.tensor(2.5))
    assert (single.mean, single.std, single.norm, single.count) == (2.5, None, 2.5, 1)
    assert statistics(torch.tensor(math.nan)).first_nan == ()


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the CPU go the way of devices where looking at a result means waiting."""
    original = reductions.Domain.of
    replaced = classmethod(lambda _, x, **how: dataclasses.replace(original(x, **how), may_look=False))
    monkeypatch.setattr(reductions.Domain, "of", replaced)


def test_masked_path_of_other_devices_gives_the_same(request: pytest.FixtureRequest) -> None:
    """The way that never looks at the device agrees with the CPU's, number for number."""
    x = torch.cat([torch.randn(500, generator=torch.Generator().manual_seed(0)), torch.tensor([math.nan, math.inf])])
    expected = statistics(x, chunk=100)
    request.getfixturevalue("blind")
    found = statistics(x, chunk=100)
    assert found.mean == pytest.approx(expected.mean, rel=1e-14)
    assert found.std == pytest.approx(expected.std, rel=1e-14)
    same = {"mean": None, "std": None, "norm": None}
    assert dataclasses.replace(found, **same) == dataclasses.replace(expected, **same)
    nothing = statistics(torch.full((3,), math.nan))
    assert (nothing.nan, nothing.minimum, nothing.histogram_counts) == (3, None, ())


READS = ("cpu", "item", "tolist", "__bool__", "__float__", "__int__", "__index__", "nonzero")


@pytest.mark.usefixtures("blind")
def test_only_results_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many chunks there are, nothing is read before all has been asked for."""
    reads: list[str] = []
    for name in READS:
        original = getattr(torch.Tensor, name)
        counted = lambda x, *given, _name=name, _read=original: reads.append(_name) or _read(x, *given)  # noqa: E731
        monkeypatch.setattr(torch.Tensor, name, counted)
    x = torch.arange(120.0).view(4, 5, 6)
    x[1, 2, 3] = math.nan
    assert statistics(x, chunk=7).nan == 1
    assert reads == ["tolist"] * 4 + ["__bool__"]
    reads.clear()
    assert [each.bad_count for each in values(x)[1]] == [1, 1, 1]
    assert reads == ["tolist"] * 4 + ["__bool__"] + ["cpu"] * 3


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tensors of some thousand elements so large that they are swept."""
    monkeypatch.setattr(statistics_module, "CPU_LIMIT", 2000)
    monkeypatch.setattr(statistics_module, "LEAST_SAMPLE", 300)
    monkeypatch.setattr(statistics_module, "LARGE_CHUNK", 500)


def wave(dtype: torch.dtype) -> torch.Tensor:
    """6000 elements between -117 and 117, or 0 and 117 where the dtype has no sign, read through a transpose."""
    x = (torch.arange(6000, dtype=torch.float64) * 0.7).sin() * 117.3
    signed = dtype.is_floating_point or dtype.is_complex or dtype.is_signed
    return (x if signed else x.abs()).to(dtype).view(60, 100).t()


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8[:2], *INTEGERS, torch.bool])
def test_large_tensors_are_swept_whole(dtype: torch.dtype) -> None:
    """Extremes are exact over every element of a large tensor, sums good to six digits; only bins are of a sample."""
    x = wave(dtype)
    found = statistics(x)
    expected = x.double().numpy()
    assert (found.count, found.finite, found.minimum, found.maximum) == (6000, 6000, expected.min(), expected.max())
    assert found.mean == pytest.approx(expected.mean(), abs=1e-6 * found.std)
    assert found.std == pytest.approx(expected.std(ddof=1), rel=3e-6)
    assert found.norm == pytest.approx(np.linalg.norm(expected), rel=3e-6)
    assert found.sampled == sum(found.histogram_counts) <= 300
    assert found.sampling


@pytest.mark.usefixtures("small_limits")
def test_sweep_finds_what_a_sample_would_miss() -> None:
    """One NaN, one +Inf, one -Inf and one huge number among thousands are found, wherever they are."""
    x = wave(torch.float32).contiguous()
    x[0, 7], x[50, 3], x[99, 59], x[20, 1] = math.nan, math.inf, -math.inf, 1e30
    found = statistics(x)
    assert (found.nan, found.positive_infinity, found.negative_infinity, found.maximum) == (1, 1, 1, np.float32(1e30))
    assert (found.first_nan, found.first_positive_infinity, found.first_negative_infinity) == (
        (0, 7),
        (50, 3),
        (99, 59),
    )
    assert found.norm == pytest.approx(1e30)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(("dtype", "low", "high"), [
    (torch.float32, -2000.5, 9999.0), (torch.int16, -2000, 9999), (torch.uint64, 0, 2**60),
    (torch.float32, -0.5, 3.0), (torch.complex64, 0.0, 9999.0),
])  # fmt: skip
def test_a_sample_s_histogram_reaches_from_the_lowest_to_the_highest_of_all(
    dtype: torch.dtype, low: float, high: float
) -> None:
    """It is drawn between the extremes of every element, also where the sample missed these."""
    x = (torch.arange(6000) % 3).to(dtype)
    x[4], x[5] = low, high
    found = statistics(x)
    assert (found.minimum, found.maximum) == (low, high)
    assert (found.histogram_edges[0], found.histogram_edges[-1]) == (low, high)
    assert sum(found.histogram_counts) == found.sampled < 6000
    edges = found.histogram_edges
    sample = np.array([0, 1, 2] * (found.sampled // 3 + 1))[: found.sampled]
    whole = [int(((sample >= one) & (sample < two)).sum()) for one, two in itertools.pairwise(edges)]
    assert list(found.histogram_counts) == whole


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e200])
def test_swept_squares_may_leave_the_range(size: float) -> None:
    """Norm and spread of tiny and huge numbers are those of the numbers near one, times their size."""
    x = wave(torch.float64) * size
    found, plain = statistics(x), statistics(wave(torch.float64))
    assert found.norm == pytest.approx(plain.norm * size)
    assert found.std == pytest.approx(plain.std * size)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("offset", [0, 10**6, 2**60, 2**63])
def test_swept_integers_far_from_zero(offset: int) -> None:
    """A large offset costs integers no digits; extremes of uint64 are exact."""
    x = torch.from_numpy(np.arange(6000, dtype=np.uint64) + np.uint64(offset))
    found = statistics(x)
    assert (found.minimum, found.maximum) == (offset, offset + 5999)
    assert found.std == pytest.approx(np.std(np.arange(6000), ddof=1), rel=1e-12)
    mean = statistics(torch.full((6000,), 1e6) + wave(torch.float32).reshape(-1))
    assert mean.std == pytest.approx(statistics(wave(torch.float64)).std, rel=1e-3)


@pytest.mark.usefixtures("small_limits")
def test_swept_without_a_finite_value() -> None:
    """All NaN: nothing has an extreme, and the first is the first."""
    found = statistics(torch.full((60, 100), math.nan))
    assert (found.nan, found.finite, found.minimum, found.norm, found.first_nan) == (6000, 0, None, None, (0, 0))


def test_first_of_each_kind() -> None:
    """The first NaN, +Inf and -Inf each have their own index, whatever chunk they lie in."""
    x = torch.zeros(4, 5)
    x[1, 2], x[2, 0], x[3, 4], x[3, 3] = -math.inf, math.nan, math.inf, math.nan
    for chunk in (3, 100):
        found = statistics(x, chunk=chunk)
        assert found.first_nan == (2, 0)
        assert (found.first_positive_infinity, found.first_negative_infinity) == ((3, 4), (1, 2))
    assert statistics(torch.zeros(3)).first_positive_infinity is None


def test_ordinals() -> None:
    """The words of the sampling note are English."""
    assert [ordinal(n) for n in (2, 3, 4, 11, 12, 21, 102)] == ["2nd", "3rd", "4th", "11th", "12th", "21st", "102nd"]


@pytest.mark.parametrize("scale", [1e-310, 1e-44, 1e38])
def test_errors_that_the_user_asked_numpy_for_are_not_of_the_report(scale: float) -> None:
    """Under ``np.seterr(all="raise")`` the same is shown as without."""
    x = torch.linspace(-1, 1, 600, dtype=torch.float64).reshape(20, 30) * scale
    usual = tm.inspect(x)
    with np.errstate(all="raise"):
        assert str(tm.inspect(x)) == str(usual)
