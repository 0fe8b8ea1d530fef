"""The layout is arithmetic: every count is compared with counting by hand, on every kind of stride."""

from __future__ import annotations

import itertools
from math import prod

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tensormagic.collectors.geometry import layout as strip_module
from tensormagic.collectors.geometry.layout import (
    count_distinct,
    default_slice,
    evenly,
    layout,
    memory_formats,
    strip,
)
from tensormagic.collectors.geometry.strides import Pattern, count_between
from tensormagic.reports import LayoutReport


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """Shapes, strides (0 and overlapping included), offsets, and a storage that is large enough."""
    ndim = draw(st.integers(0, 4))
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=ndim, max_size=ndim)))
    stride = tuple(draw(st.lists(st.integers(0, 40), min_size=ndim, max_size=ndim)))
    offset = draw(st.integers(0, 70))
    reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if 0 not in shape else 0
    return shape, stride, offset, offset + reach + 1 + draw(st.integers(0, 90))


def walk(shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> list[int]:
    """Every offset in reading order, the slow way."""
    return [
        offset + sum(step * at for step, at in zip(stride, index, strict=True))
        for index in itertools.product(*(range(size) for size in shape))
    ]


def laid_out(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, elements: int) -> LayoutReport:
    """The layout of float32 elements without values."""
    return layout(shape, stride, offset, storage_elements=elements, element_size=4)


@settings(max_examples=400, deadline=None)
@given(geometries())
def test_every_count_equals_counting_by_hand(geometry: tuple[tuple[int, ...], tuple[int, ...], int, int]) -> None:
    """Distinct elements, extremes, overlap and every strip cell are those of the walk, element by element."""
    shape, stride, offset, _ = geometry
    reads, report = walk(shape, stride, offset), laid_out(*geometry)
    assert report.distinct == len(set(reads))
    assert report.internal_overlap == ("yes" if len(set(reads)) < len(reads) else "no")
    assert (report.lowest, report.highest) == ((min(reads), max(reads)) if reads else (None, None))
    assert report.jumps == tuple(b - a for a, b in itertools.pairwise(reads[:9]))
    assert report.strip is not None
    assert report.strip.exact
    for cell in report.strip.cells:
        inside = [at for at in reads if cell.start <= at < cell.stop]
        assert cell.distinct == len(set(inside))
        assert cell.reads == len(inside)


@settings(max_examples=300, deadline=None)
@given(geometries())
def test_grid_offsets_are_those_of_the_formula(geometry: tuple[tuple[int, ...], tuple[int, ...], int, int]) -> None:
    """Every cell of the grid has the storage offset that the formula gives for its index."""
    report = laid_out(*geometry)
    grid = report.grid
    for row, offsets in zip(grid.rows, grid.offsets, strict=True):
        for column, found in zip(grid.columns, offsets, strict=True):
            index = list(grid.fixed)
            if grid.row_dim is not None:
                index[grid.row_dim] = row
            if grid.column_dim is not None:
                index[grid.column_dim] = column
            assert found == report.offset(tuple(index))
    assert not grid.offsets or prod(geometry[0]) > 0 or not grid.columns


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=0, max_size=5),
    st.lists(st.integers(0, 30), min_size=5, max_size=5),
)
def test_memory_formats_agree_with_torch(shape: list[int], strides: list[int]) -> None:
    """Whether a format holds is what torch's is_contiguous says, for any strides."""
    stride = strides[: len(shape)]
    x = torch.empty(1000).as_strided(shape, stride)
    for memory_format in memory_formats(tuple(shape), tuple(stride)):
        expected = x.is_contiguous(memory_format=getattr(torch, memory_format.name))
        assert memory_format.holds == expected, memory_format
        assert (memory_format.breaking_dim is None) == memory_format.holds


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 1, 5), (2, 1, 4, 5)])
def test_format_strides_are_those_torch_makes(shape: tuple[int, ...]) -> None:
    """The stride given for a memory format is the one of a tensor that torch makes in it."""
    plain, channels_last = memory_formats(shape, torch.empty(shape).stride())
    assert plain.stride == torch.empty(shape).stride()
    made = torch.empty(shape).to(memory_format=torch.channels_last)
    assert memory_formats(shape, made.stride())[1].holds
    assert channels_last.stride == torch.empty(shape, memory_format=torch.channels_last).stride()


def test_breaking_dimension_is_the_innermost_that_differs() -> None:
    """A transpose breaks contiguity at its last dimension, a step in the first dimension only there."""
    x = torch.empty(4, 6)
    assert memory_formats((6, 4), x.t().stride())[0].breaking_dim == 1
    assert memory_formats((2, 6), x[::2].stride())[0].breaking_dim == 0


def test_the_picture_of_a_sliced_transpose() -> None:
    """The example of the mock-up: a.t()[1:5, ::2] of a (4, 6) tensor, all numbers worked out by hand."""
    report = layout((4, 2), (1, 12), 1, storage_elements=24, element_size=4, rows=(6, "a"))
    assert report.grid.offsets == ((1, 13), (2, 14), (3, 15), (4, 16))
    assert report.strip is not None
    assert [cell.start for cell in report.strip.cells if cell.reads] == [1, 2, 3, 4, 13, 14, 15, 16]
    assert report.jumps == (12, -11, 12, -11, 12, -11, 12)
    assert (report.strip.row_length, report.strip.row_name) == (6, "a")
    assert report.formats[0].stride == (2, 1)
    assert report.dim_names == ("i", "j")


def test_expanding_reads_each_element_again() -> None:
    """Stride 0 is internal overlap, and each stored element is read once per repeat."""
    report = laid_out((6, 4), (0, 1), 0, 4)
    assert (report.distinct, report.internal_overlap, report.contiguous_bytes) == (4, "yes", 96)
    assert report.strip is not None
    assert [cell.reads for cell in report.strip.cells] == [6, 6, 6, 6]


def test_large_contiguous_tensor_has_a_cell_for_each_slice() -> None:
    """The runs of a big strip begin where the slices of the first dimension do, all of them read in order."""
    shape = (64, 1024, 1024)
    report = layout(shape, (2**20, 1024, 1), 0, storage_elements=2**26, element_size=2, rows=(2**20, "scores"))
    assert report.strip is not None
    assert report.strip.cell_elements == 2**20
    assert [cell.start for cell in report.strip.cells] == [at * 2**20 for at in range(64)]
    assert {cell.distinct for cell in report.strip.cells} == {2**20}
    assert report.grid.rows == report.grid.columns == tuple(range(0, 1024, 32))
    assert not report.grid.complete


def test_small_span_in_a_large_storage_gets_a_window() -> None:
    """Four elements in the middle of a million are drawn with their neighbours, one cell each."""
    report = laid_out((2, 2), (3, 1), 500_000, 1_000_000)
    assert report.strip is not None
    assert (report.strip.start, report.strip.stop, report.strip.cell_elements) == (499_992, 500_013, 1)
    assert sum(cell.distinct or 0 for cell in report.strip.cells) == 4


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 30_000), st.integers(0, 5000))
def test_strip_covers_the_storage_in_a_drawable_number_of_cells(elements: int, row_length: int) -> None:
    """Cells lie end to end over the whole storage, and there are never more than about a hundred."""
    found = strip(Pattern.of((elements,), (1,), 0), elements, (row_length, "a" if row_length else ""))
    assert found is not None
    assert found.cells[0].start == 0
    assert found.cells[-1].stop == elements
    assert all(a.stop == b.start for a, b in itertools.pairwise(found.cells))
    assert len(found.cells) <= 97
    assert elements < 64 or len(found.cells) >= 17
    assert sum(cell.distinct or 0 for cell in found.cells) == elements


def test_unfolded_windows_are_counted_without_enumeration() -> None:
    """Convolution windows over a billion reads: the distinct elements are the image, by arithmetic alone."""
    x = torch.empty(1, device="meta").expand(3, 4096, 4096)
    windows = Pattern.of((3, 4094, 4094, 3, 3), (4096 * 4096, 4096, 1, 4096, 1), 0)
    assert windows is not None
    assert count_distinct(windows) == x.numel()
    assert count_between(windows, 4096, 8192) == 4096


def test_too_many_overlapping_reads_are_sampled_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the strip is no longer exact: reads are estimates that add up."""
    monkeypatch.setattr(strip_module, "ENUMERATION_LIMIT", 500)
    pattern = Pattern.of((998, 3), (1, 1), 0)
    found = strip(pattern, 1000)
    assert found is not None
    assert not found.exact
    assert sum(cell.distinct or 0 for cell in found.cells) == 1000
    assert sum(cell.reads or 0 for cell in found.cells) == pytest.approx(2994, rel=0.05)


def test_overlap_without_an_answer_is_maybe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides that neither nest nor join, too many to enumerate: nothing is claimed."""
    monkeypatch.setattr("tensormagic.collectors.geometry.layout.ENUMERATION_LIMIT", 10)
    report = laid_out((5, 5), (2, 3), 0, 100)
    assert (report.distinct, report.internal_overlap) == (None, "maybe")


def test_scalars_and_empty_tensors_have_grids() -> None:
    """A scalar is one cell without dimensions; a tensor without elements shows no cell, and its storage unread."""
    scalar, empty = laid_out((), (), 3, 5), laid_out((0, 4), (4, 1), 0, 8)
    assert (scalar.grid.offsets, scalar.grid.row_dim, scalar.grid.column_dim) == (((3,),), None, None)
    assert (empty.grid.offsets, empty.grid.row_count, empty.grid.column_count) == ((), 0, 4)
    assert empty.strip is not None
    assert [cell.reads for cell in empty.strip.cells] == [0] * 8
    assert laid_out((0,), (1,), 0, 0).strip is None


def test_many_dimensions_are_cut_at_index_zero() -> None:
    """Ten dimensions: the last two of more than one index are shown, the others fixed at 0; letters become numbers."""
    cut = default_slice((1, 2) * 5)
    assert (cut.row_dim, cut.column_dim, cut.rows, cut.columns) == (7, 9, (0, 1), (0, 1))
    assert laid_out((1,) * 20, (1,) * 20, 0, 1).dim_names[-1] == "d19"
    assert default_slice((0, 2, 2)).rows == ()


def test_thinned_indices_are_even_and_start_at_zero() -> None:
    """Long dimensions keep evenly spaced indices; short ones keep them all."""
    assert evenly(1024, 4) == (0, 256, 512, 768)
    assert evenly(3, 32) == (0, 1, 2)
