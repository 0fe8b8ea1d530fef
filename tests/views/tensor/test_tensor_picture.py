"""What the layout picture shows, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.views.panels.tensor import badges, size_in_memory
from tensormagic.views.panels.tensor_memory import memory_lines, memory_summary
from tensormagic.views.pictures import tensor_elements
from tensormagic.views.pictures.tensor_grid import base_rows
from tests.views.samples_tensor import SAMPLES, layout, report


def test_formula_is_filled_in_with_the_numbers() -> None:
    """The mockup's example: offset 1, strides 1 and 12, at (2, 1)."""
    where = SAMPLES["transpose_slice"].layout
    assert tensor_elements.formula(where) == "offset(i, j) = 1 + 1·i + 12·j"
    assert tensor_elements.formula_at(where, (2, 1)) == "offset(2, 1) = 1 + 1·2 + 12·1 = 15"


def test_worked_example_says_value_and_other_name() -> None:
    """Element (2, 1) of the transposed slice is a[2, 3]."""
    x = SAMPLES["transpose_slice"]
    picture = tensor_elements.drawn_layout(x)
    assert picture.index == (2, 1)
    assert picture.offset == 15
    assert tensor_elements.worked_example(x, picture) == (
        "x[2, 1] = 15",
        "the same element is a[2, 3]",
    )


def test_other_name_is_left_out_where_the_base_covers_only_a_part() -> None:
    """An index of the base cannot be known from the offset alone where the base does not fill the storage."""
    x = SAMPLES["transpose_slice"]
    assert tensor_elements.bases_index(x, 15) == "a[2, 3]"
    larger = replace(x, storage=replace(x.storage, elements=48, nbytes=192))
    assert tensor_elements.bases_index(larger, 15) == ""


@pytest.mark.parametrize("name", ["transpose_slice", "expanded", "vector", "channels", "causal_scores"])
def test_shown_offsets_agree_with_the_formula(name: str) -> None:
    """Every cell of every grid holds the offset that stride and index give."""
    where = SAMPLES[name].layout
    for row, offsets in enumerate(where.grid.offsets):
        for column, offset in enumerate(offsets):
            assert offset == where.offset(tensor_elements.index_at(where.grid, row, column))


def test_sampling_is_told_with_its_numbers() -> None:
    """A cut says which rows and columns, of how many, and which slice."""
    assert tensor_elements.shown(SAMPLES["causal_scores"]) == (
        "32 × 32 of 1024 × 1024: j 0, 32, 64 … 992, k 0, 32, 64 … 992; slice scores[0, :, :], one of 64"
    )
    assert tensor_elements.shown(SAMPLES["transpose_slice"]) == ""
    assert (
        tensor_elements.strip_shown(SAMPLES["largest"]) == "a cell is 33\u00a0554\u00a0432 elements; counts are sampled"
    )


def test_a_window_of_the_storage_is_told() -> None:
    """Where the strip is not the whole storage, it says which part it is."""
    x = SAMPLES["vector"]
    window = replace(x.layout.strip, start=2, stop=6, cells=x.layout.strip.cells[2:6])
    x = replace(x, layout=replace(x.layout, strip=window))
    assert tensor_elements.strip_shown(x) == "elements 2 to 5 of 10 are drawn"


def test_only_the_drawn_slice_is_coloured() -> None:
    """In a tensor of several slices the strip's cells outside the drawn one have no colour."""
    picture = tensor_elements.drawn_layout(report("t", layout((2, 2, 3), (6, 3, 1), 0, 12), 12))
    colours = [picture.cell_colour(cell) for cell in picture.strip.cells]
    assert [colour is None for colour in colours] == [False] * 6 + [True] * 6
    assert colours[0] == "#00224e"
    assert colours[5] == "#fee838"


def test_interleaved_slices_are_told_apart() -> None:
    """Where the slices of a tensor alternate in the storage, only the drawn one's own elements have a colour."""
    picture = tensor_elements.drawn_layout(report("t", layout((4, 3, 2), (1, 4, 12), 0, 24), 24))
    coloured = [cell.start for cell in picture.strip.cells if picture.cell_colour(cell) is not None]
    assert coloured == [0, 4, 8, 12, 16, 20]


def test_memory_without_an_address_is_not_given_one() -> None:
    """A meta tensor's storage has a size and no first byte."""
    x = SAMPLES["vector"]
    assert "first byte at `0x55d0c0de`" in memory_lines(x)[0]
    meta = replace(x, storage=replace(x.storage, address=0, device="meta"))
    assert memory_lines(meta)[0] == ("On the meta device it uses no memory; elsewhere its storage would take 40 B.")
    assert memory_summary(meta) == "none: on the meta device; elsewhere it would take 40 B"


def test_sizes_say_how_storage_and_tensor_differ() -> None:
    """A part of a storage, a repeated storage and an own storage are three sentences."""
    assert size_in_memory(SAMPLES["transpose_slice"]) == ("32 B", "of a 96 B storage")
    assert size_in_memory(SAMPLES["expanded"]) == ("16 B", "stored, seen as 96 B")
    assert size_in_memory(SAMPLES["causal_scores"]) == ("128 MiB", "")


def test_badges_tell_layout_and_gradient() -> None:
    """Contiguity in any memory format, place in autograd."""
    assert badges(SAMPLES["transpose_slice"]) == ["not contiguous", "requires_grad=False"]
    assert badges(SAMPLES["channels"]) == ["channels_last", "requires_grad=False"]
    assert badges(SAMPLES["expanded"]) == ["not contiguous", "requires grad, not a leaf"]
    assert badges(SAMPLES["all_missing"]) == []


def test_strip_cell_of_an_offset_counts_from_the_strips_start() -> None:
    """A cell of many elements holds all their offsets; what is not drawn has no cell."""
    picture = tensor_elements.drawn_layout(SAMPLES["causal_scores"])
    assert [picture.strip_cell(at) for at in (0, 1048575, 1048576, 64 * 1048576)] == [0, 0, 1, None]


def test_value_scale_cuts_outliers_at_three_standard_deviations() -> None:
    """The colour scale reaches over what is shown, cut at mean ± 3 std where that is narrower."""
    x = SAMPLES["causal_scores"]
    low, high = tensor_elements.value_range(x.layout.grid, x.statistics)
    shown = [level for row in x.layout.grid.levels for level in row if level > -9]
    assert low == pytest.approx(max(min(shown), -0.0001 - 3 * 0.9996))
    assert high == pytest.approx(min(max(shown), -0.0001 + 3 * 0.9996))
    assert tensor_elements.value_range(x.layout.grid, None) == (min(shown), max(shown))


def test_rows_of_a_base_with_more_dimensions_are_named_by_what_they_span() -> None:
    """Under a storage of (2, 1, 2, 6), 12 elements are a row a[0], not a[0, 0, 0], which has six."""
    x = SAMPLES["transpose_slice"]
    base = replace(next(alias for alias in x.aliases if alias.name == "a"), shape=(2, 1, 2, 6))
    strip = replace(x.layout.strip, row_length=12)
    deep = replace(x, aliases=(base,), layout=replace(x.layout, strip=strip))
    assert base_rows(deep, strip) == [("a[0]", 12), ("a[1]", 12)]
    assert tensor_elements.bases_index(deep, 15) == "a[1, 0, 0, 3]"


@pytest.mark.parametrize(
    ("text", "room", "short"),
    [
        ("-0.01371", 8, "-0.01371"),
        ("-0.01371", 7, "-0.0137"),
        ("-0.01371", 5, "-0.01"),
        ("1.234e-05", 6, "1e-05"),
        ("nan", 3, "nan"),
        ("True", 3, "Tr…"),
        ("12345678", 4, "123…"),
    ],
)
def test_a_value_that_is_too_long_has_fewer_digits(text: str, room: int, short: str) -> None:
    """No digit is cut off without a sign."""
    assert tensor_elements.narrowed(text, room) == short


def test_the_strip_repeats_the_values() -> None:
    """Under the offsets of the elements that the tensor reads; where there is no room for them, none."""
    picture = tensor_elements.drawn_layout(SAMPLES["transpose_slice"])
    assert picture.strip_values == {1: "1", 13: "13", 2: "2", 14: "nan", 3: "3", 15: "15", 4: "4", 16: "16"}
    assert tensor_elements.drawn_layout(SAMPLES["causal_scores"]).strip_values == {}
