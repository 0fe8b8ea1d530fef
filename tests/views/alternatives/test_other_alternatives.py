"""What is said of treemaps, timelines, heat maps and curves: the numbers that a user would see in them first."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

import pytest

from tensormagic import reports
from tensormagic.reports.comparison import LossPair
from tensormagic.reports.tensor import BadSlice
from tensormagic.views.pictures.losses import losses_alternative
from tensormagic.views.pictures.tensor_elements import DrawnLayout, drawn_layout
from tensormagic.views.pictures.tensor_grid import offsets_sentence, strip_sentence, values_sentence
from tensormagic.views.pictures.tensor_kinds import stored_sentence, values_sentence as values_sentence_of
from tensormagic.views.pictures.tensor_shot import Shot
from tensormagic.views.pictures.tensor_values import row_sentence
from tensormagic.views.pictures.timeline import timeline_alternative
from tensormagic.views.pictures.timeline_stack import Layer, by_category, by_line
from tensormagic.views.pictures.treemap import LEFT_OUT, Tile, treemap_alternative
from tests.views import samples_tensor
from tests.views.samples_comparison import SAMPLES as COMPARISONS

MIB = 2**20


def test_a_treemap_names_its_largest_items_and_its_kinds() -> None:
    """Items of one name in one group are one; what is not listed is counted, not named."""
    tiles = [
        Tile("net", "fc.weight", "parameter", 6 * MIB),
        Tile("graph of loss", "relu", "saved for backward", MIB),
        Tile("graph of loss", "relu", "saved for backward", 2 * MIB),
        Tile("x", "x", "input", MIB // 2),
        Tile(LEFT_OUT, "40 smaller", "other", MIB // 2, "", 40),
    ]
    assert treemap_alternative(tiles, "live memory on cpu") == (
        "Treemap of live memory on cpu, 10 MiB: parameters 60 %, saved for backward 30 %, inputs 5 %, "
        "other 5 %. Largest: fc.weight in net 6 MiB (60 %), relu in graph of loss 3 MiB (30 %), "
        "x 512 KiB (5 %) and 40 smaller."
    )
    assert treemap_alternative([], "it") == "Treemap of it: nothing"
    one_kind = [Tile("train.py, line 3", "", "other", MIB)]
    said = treemap_alternative(one_kind, "it")
    assert said == "Treemap of it, 1 MiB. Largest: train.py, line 3 1 MiB (100 %)."


def _timeline() -> reports.Timeline:
    live = (2 * MIB, 10 * MIB, 4 * MIB)
    before = (2 * MIB,) * 3
    saved, other = (0, 5 * MIB, 0), (0, 3 * MIB, 2 * MIB)
    lines = ((0, (0, 6 * MIB, 1 * MIB)), (1, (0, 2 * MIB, 1 * MIB)))
    parts = (("saved for backward", saved), ("other", other))
    return reports.Timeline("cpu", array("f", [0, 1, 2]), (1, 7, 9), live, before, parts, lines, 1)


def _words(layer: Layer) -> str:
    return {"0": "line 5  out = net(x)", "1": "line 6  loss.backward()"}.get(layer.key, layer.key)


def test_a_timeline_says_its_course_its_peak_and_the_line_of_the_peak() -> None:
    """From, to a peak at which operation, made of what and by which line; by line the lines are what it is made of."""
    drawn = _timeline()
    assert timeline_alternative(drawn, by_category(drawn), _words) == (
        "Live memory on cpu, operation 1 to 9: 2 MiB at the start, the peak of 10 MiB at operation 7, "
        "4 MiB at the end. "
        "Of the peak: saved for backward 5 MiB (50 %), other 3 MiB (30 %), before the run 2 MiB (20 %). "
        "The line with the most of it: line 5  out = net(x) 6 MiB (60 %)."
    )
    said = timeline_alternative(drawn, by_line(drawn), _words, unit="event")
    assert "the peak of 10 MiB at event 7" in said
    assert "Of the peak: line 5  out = net(x) 6 MiB (60 %), before the run 2 MiB (20 %), line 6" in said
    assert "The line with the most" not in said


def _drawn(
    report: reports.TensorReport, changes: dict[tuple[int, int], float] | None = None
) -> tuple[reports.TensorReport, DrawnLayout]:
    """A tensor whose numbers at some places of the grid are others, and its picture."""
    assert report.layout is not None
    grid = report.layout.grid
    levels = tuple(
        tuple((changes or {}).get((r, c), level) for c, level in enumerate(row)) for r, row in enumerate(grid.levels)
    )
    changed = replace(report, layout=replace(report.layout, grid=replace(grid, levels=levels)))
    picture = drawn_layout(changed)
    assert picture is not None
    return changed, picture


def test_the_map_of_offsets_says_its_range_and_how_it_walks() -> None:
    """A transposed slice steps otherwise along each dimension; what is contiguous rises without a gap."""
    report, picture = _drawn(samples_tensor.transpose_slice())
    stride = picture.layout.stride
    said = offsets_sentence(report, picture)
    assert said.startswith(f"Storage offset at each index: 4 by 2 elements of x, from {picture.low} (darkest)")
    assert said.endswith(f"; it steps by {stride[0]} along i, {stride[1]} along j.")
    vector, line = _drawn(samples_tensor.report("v", samples_tensor.layout((5,), (1,), 0, 5), 5))
    assert "; it is contiguous, row by row." in offsets_sentence(vector, line)


def test_the_map_of_values_says_its_ends_and_where_it_breaks() -> None:
    """The places of the smallest and the largest value; NaN and infinities with the first of each, and whole rows."""
    report, picture = _drawn(samples_tensor.transpose_slice(), {(0, 0): -7.0, (1, 1): 0.0, (3, 1): 90.0})
    said = values_sentence(report, picture, (-7.0, 90.0))
    assert "from \u22127 (darkest) to 90 (lightest); smallest at [0, 0], largest at [3, 1]." in said
    report, picture = _drawn(
        samples_tensor.transpose_slice(), {(1, 1): 0.0, (2, 0): math.nan, (2, 1): math.nan, (0, 1): -math.inf}
    )
    said = values_sentence(report, picture, (0.0, 1.0))
    assert "; hatched: 2 NaN, the first at [2, 0], all along i = 2; hatched: 1 \u2212Inf, the first at [0, 1]." in said
    everywhere = {(r, c): 3.0 for r in range(4) for c in range(2)}
    assert "; all of them equal." in values_sentence(*_drawn(report, everywhere), (3.0, 3.0))


def test_the_strip_says_what_is_read_and_how_many_gaps_there_are() -> None:
    """From the first element read to the last, how many of them, in how many stretches."""
    cells = tuple(
        reports.StripCell(at, at + 1, 1 if at in {2, 3, 6} else 0, 1 if at in {2, 3, 6} else 0) for at in range(9)
    )
    report = samples_tensor.vector()
    said = strip_sentence(report, reports.Strip(0, 9, 1, cells))
    assert said == f"Storage elements 0 to 8, read by {report.name} from 2 to 6: 3 of 9 elements, with 1 gap between."
    nothing = tuple(replace(cell, distinct=0) for cell in cells)
    assert strip_sentence(report, reports.Strip(0, 9, 1, nothing)).endswith("none is read.")


def test_the_row_of_slices_says_which_are_largest_zero_and_broken() -> None:
    """Slices by their numbers; a cell that stands for several says from which to which."""
    levels, bad = (0.5, 4.0, math.nan, 1.0), (BadSlice(4, 3, 0), BadSlice(5, 0, 1))
    each = reports.DimensionSlices(1, 8, 4, 4, 2, levels, (0, 0, 3, 0), 2, bad, True, 1, (7,))
    report = samples_tensor.transpose_slice()
    assert row_sentence(report, each) == (
        "Mean magnitude, 8 slices along j: largest 4 at 2 to 3, smallest 0.5 at 0 to 1; all zeros: 7; "
        "holding NaN or Inf: 4 and 5."
    )


def test_signals_sparse_maps_and_components_say_their_extremes() -> None:
    """Where a signal is highest, where a sparse matrix is fullest, what a component's values range over."""
    line = reports.SignalLine("0", (0.0, -2.0, math.nan), (1.0, 5.0, math.nan), (0, 0, 8))
    picture = reports.TensorPicture("(C, T)", 0, -2.0, 5.0, "shown", (), (line,), 1, 4, (12,), 8)
    assert "; 0: highest 5 at 4, lowest \u22122 at 4" in Shot(samples_tensor.vector(), picture).sentence
    stored = reports.StoredMap("row", "column", 100, 200, 10, 20, ((0, 3), (7, 0)))
    said = stored_sentence(stored)
    assert said.startswith("Stored elements of 100 by 200 places, 10 by 20 a cell: 2 of 4 cells hold some, 7 the")
    assert said.endswith("fullest, at row 10, column 0.")
    values = reports.Component(
        "x.values()", "", _drawn(samples_tensor.transpose_slice(), {(1, 1): 0.0, (0, 0): math.nan, (3, 1): -4.0})[0]
    )
    said = values_sentence_of(values, (-4.0, 2.0))
    assert said == "Values of x.values(), 4 by 2, from \u22124 (darkest) to 2 (lightest); hatched: 1 NaN"


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([(1, 2.0, 2.0), (2, 1.0, 3.0)], "slow from 2 to 1; fast from 2 to 3; furthest apart at step 2: 1 and 3."),
        (
            [(1, 2.0, 2.0), (2, 1.0, 1.0)],
            "slow from 2 to 1; fast from 2 to 1; equal at every step where both are finite.",
        ),
        ([(1, 2.0, None), (4, math.inf, None)], "slow from 2 to +Inf, not finite from step 4; fast has none."),
    ],
    ids=["apart", "equal", "broken"],
)
def test_losses_say_their_course(losses: list[tuple[int, float, float | None]], said: str) -> None:
    """First and last, where it stops being finite, and where the two are furthest apart."""
    report = COMPARISONS["larger"]
    assert isinstance(report, reports.ComparisonReport)
    report = replace(report, losses=tuple(LossPair(*pair) for pair in losses))
    assert losses_alternative(report) == f"Loss over 2 steps: {said}"
