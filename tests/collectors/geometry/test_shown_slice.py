"""Which slice the grid shows: what is asked for is what torch's own indexing gives, and misuse is answered."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

import tensormagic as tm
from tensormagic.collectors.geometry.layout import default_slice
from tensormagic.collectors.tensors.picture import chosen_slice
from tensormagic.errors import TensorMagicError
from tensormagic.reports import TensorReport

X = torch.arange(120.0).reshape(2, 3, 4, 5).permute(3, 0, 2, 1)  # (5, 2, 4, 3)


def inspected(**choice: object) -> TensorReport:
    """The report of a permuted tensor of four dimensions."""
    return tm.inspect(X, "x", namespace={}, **choice)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_slice_is_torchs_own(data: st.DataObject) -> None:
    """Values and offsets of any two dimensions at any index, either of them downwards."""
    dims = data.draw(st.permutations(range(4)))[:2]
    at = [":" if dim in dims else data.draw(st.integers(-X.shape[dim], X.shape[dim] - 1)) for dim in range(4)]
    grid = inspected(dims=dims, at=at).layout.grid
    part = X[tuple(slice(None) if place == ":" else place for place in at)]
    part = part if dims[0] < dims[1] else part.t()
    assert (grid.row_dim, grid.column_dim) == tuple(dims)
    assert [[float(text) for text in row] for row in grid.values] == part.tolist()
    assert [list(row) for row in grid.offsets] == part.int().tolist()  # its values are its offsets


@pytest.mark.parametrize(
    ("choice", "drawn"),
    [
        ({}, (2, 3, (0, 0, 0, 0))),
        ({"dims": (0, 2)}, (0, 2, (0, 0, 0, 0))),
        ({"dims": ("k", "i")}, (2, 0, (0, 0, 0, 0))),
        ({"dims": "il"}, (0, 3, (0, 0, 0, 0))),
        ({"dims": (-1, -2)}, (3, 2, (0, 0, 0, 0))),
        ({"at": ["1", " :", "-1", ":"]}, (1, 3, (1, 0, 3, 0))),
        ({"at": (4, 1, slice(None), 2)}, (None, 2, (4, 1, 0, 2))),
        ({"at": (4, 1, 3, 2)}, (None, None, (4, 1, 3, 2))),
    ],
)
def test_ways_to_choose(choice: dict, drawn: tuple) -> None:
    """By number, from the end, by letter, by what is left open; one open dimension is a row, none a single element."""
    grid = inspected(**choice).layout.grid
    assert (grid.row_dim, grid.column_dim, grid.fixed) == drawn


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (
            {"dims": (0, 0)},
            r"two different dimensions of the 4 \w+ \w+ \(0 to 3, or i, j, k, l\), but was given 0, 0",
        ),
        ({"dims": (0, 9)}, "but was given 0, 9"),
        ({"dims": ("i",)}, "but was given i"),
        ({"at": (1, ":")}, "at takes an index or ':' for each of the 4 dimensions, but was given 2: 1, :"),
        ({"at": (":", ":", ":", 0)}, "at leaves 3 of 4 open with ':'; give an index for all but two, or dims"),
        ({"dims": (0, 1), "at": (0, 0, ":", ":")}, "dims draws dimensions 0, 1, but at leaves 2, 3 open"),
        ({"at": (0, 0, 9, ":")}, "index 9 is out of range for dimension 2, which has size 4"),
        ({"at": ("q", 0, 0, ":")}, "'q' is no index: at takes an index or ':' for each of the 4 dimensions"),
        ({"at": ("q",)}, "'q' is no index: at takes an index or ':' for each of the 4 dimensions"),
    ],
)
def test_misuse(choice: dict, said: str) -> None:
    """What was given, and what would do."""
    with pytest.raises(TensorMagicError, match=said):
        inspected(**choice)


def test_only_strided_tensors_have_slices_to_choose() -> None:
    """A sparse tensor has no offsets."""
    with pytest.raises(TensorMagicError, match="slice of a plain strided tensor, but s is not: sparse COO"):
        tm.inspect(torch.eye(3).to_sparse(), "s", namespace={}, dims=(0, 1))
    with pytest.raises(TensorMagicError, match="of the 1 there are"):
        chosen_slice((4,), (0, 1), None)


def test_dimensions_of_one_index_are_not_drawn_by_default() -> None:
    """The weight of a 1 by 1 convolution is a matrix; a matrix, a row and a scalar are what they were."""
    drawn = {shape: (default_slice(shape).row_dim, default_slice(shape).column_dim) for shape in
             ((64, 3, 1, 1), (1, 5, 1, 6), (4, 1, 1), (1, 1, 1), (1, 7), (7, 1), (7,), ())}  # fmt: skip
    assert drawn == {
        (64, 3, 1, 1): (0, 1), (1, 5, 1, 6): (1, 3), (4, 1, 1): (0, 2), (1, 1, 1): (1, 2), (1, 7): (0, 1),
        (7, 1): (0, 1), (7,): (None, 0), (): (None, None),
    }  # fmt: skip


def test_all_elements_are_carried_only_where_they_are_few() -> None:
    """For a viewer that turns to other slices: every element in reading order, or none; never for a matrix."""
    assert [float(text) for text in inspected().layout.elements] == X.flatten().tolist()
    assert tm.inspect(torch.zeros(3, 4), "m", namespace={}).layout.elements == ()
    assert tm.inspect(torch.zeros(16, 16, 16), "big", namespace={}).layout.elements == ()
    assert tm.inspect(torch.zeros(2, 2, 2, device="meta"), "meta", namespace={}).layout.elements == ()


def test_the_slice_with_the_first_nan_is_shown_unless_another_is_asked_for() -> None:
    """A NaN in item 3 is worth more than item 0; what a user needs is what is shown."""
    x = torch.zeros(5, 4, 6)
    x[3, 1, 2] = x[4, 0, 0] = torch.nan
    report = tm.inspect(x, "x", namespace={})
    assert report.layout.grid.fixed == (3, 0, 0)
    assert report.layout.grid.values[1][2] == "nan"
    assert "Showing slice x[3, :, :], one of 5, with the first NaN" in str(report)
    assert tm.inspect(x, "x", namespace={}, at=(0, ":", ":")).layout.grid.fixed == (0, 0, 0)
    assert tm.inspect(x, "x", namespace={}, dims=(0, 1)).layout.grid.fixed == (0, 0, 2)


def test_nothing_is_changed() -> None:
    """Looking at slices leaves the version counter and the random state alone."""
    before = X._version, torch.get_rng_state()
    inspected(dims=(0, 2))
    assert X._version == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
