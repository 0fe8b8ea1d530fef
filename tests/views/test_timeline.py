"""The timeline: which moments are drawn, what is stacked, where the peak stands."""

from __future__ import annotations

import re
from array import array

import pytest
from hypothesis import given, strategies as st

from tensormagic.reports import Timeline
from tensormagic.views import theme
from tensormagic.views.pictures import timeline as stack
from tensormagic.views.pictures.timeline import ROWS, areas, scale_top
from tensormagic.views.text_canvas import heights, share_bar
from tests.views.samples_memory_run import SAMPLES

MIB = 2**20


def timeline(live: list[int], operation: list[int] | None = None, **more) -> Timeline:
    """Return a timeline of a CPU whose bytes are all of one category and line, but for what was there before."""
    before = (min(live),) * len(live)
    own = tuple(each - before[0] for each in live)
    known = {"by_category": (("other", own),), "by_line": ((0, own),)}
    return Timeline("cpu", array("f", range(len(live))), tuple(operation or range(len(live))), tuple(live), before,
                    peak=live.index(max(live)), **{**known, **more})  # fmt: skip


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=80), st.integers(1, 40))
def test_no_peak_is_lost(live: list[int], number: int) -> None:
    """However few columns there are, one of them shows the peak, and they go forward in time."""
    chosen = stack.columns(timeline(live), number)
    assert len(chosen) == min(number, len(live))
    assert max(live[at] for at in chosen) == max(live)
    assert chosen == sorted(chosen)


def test_a_thinned_timeline_says_so() -> None:
    """How many moments are kept of how many; nothing where all are, or where nobody has counted."""
    some, uncounted, all_kept = (stack.thinned_words(timeline([1, 2, 3], samples=at)) for at in (4000, 0, 3))
    assert some.endswith("000 moments kept, the highest among them")
    assert uncounted == all_kept == ""


def test_between_operations_memory_stays_as_it_is() -> None:
    """Of ten operations the second and the ninth changed something: the columns between show the second."""
    assert stack.columns(timeline([5, 9, 7, 3], [0, 1, 8, 9]), 10) == [0, 1, 1, 1, 1, 1, 1, 1, 2, 3]


def test_the_peak_stands_over_its_column() -> None:
    """The mark lies in the middle of the column that the peak is drawn in."""
    assert stack.column_of(timeline([0, 1, 9, 1]), 2, 100) == pytest.approx(2.5 / 4)
    many = timeline([0] * 500 + [9] + [0] * 499)
    assert stack.column_of(many, many.peak, 100) == pytest.approx(50.5 / 100)


def test_layers_add_up_to_what_is_alive() -> None:
    """The upper edge of the highest layer is what is alive, by category and by line; what was before lies lowest."""
    drawn = SAMPLES["training"].timelines[0]
    moments = stack.columns(drawn, 50)
    for layers in (stack.by_category(drawn), stack.by_line(drawn)):
        assert layers[0].key == theme.BEFORE
        assert stack.tops(layers, moments)[-1] == [drawn.live[at] for at in moments]


def test_lines_beyond_the_colours_are_one_layer() -> None:
    """Nine lines: the six with the most at the peak have colours, the others and what has no line are one layer."""
    lines = tuple((at, (0, 10 + at)) for at in range(9))
    drawn = timeline([0, sum(10 + at for at in range(9)) + 5], by_category=(), by_line=(*lines, (-1, (0, 5))))
    assert stack.line_ranks(drawn) == {8: 0, 7: 1, 6: 2, 5: 3, 4: 4, 3: 5}
    layers = stack.by_line(drawn)
    assert [layer.key for layer in layers] == ["8", "7", "6", "5", "4", "3", stack.OTHER_LINES]
    assert layers[-1].values == (0, 10 + 11 + 12 + 5)
    assert layers[-1].rank == len(theme.STACK_COLOURS) - 1


def test_the_picture_is_as_high_as_its_numbers() -> None:
    """Half of the scale is half of the height; equal neighbours are one step."""
    drawn = timeline([0, 50 * MIB, 50 * MIB, 0])
    wide, paths = areas(drawn, stack.by_category(drawn))
    height = round(50 * MIB / scale_top(drawn) * ROWS)
    assert wide == 4
    assert re.findall(r' d="([^"]+)"', paths) == [f"M0,{ROWS}h1v-{height}h2v{height}h1V{ROWS}z"]


@pytest.mark.parametrize(
    ("top", "expected"),
    [(96 * MIB, [0, 20, 40, 60, 80]), (5 * MIB, [0, 1, 2, 3, 4, 5]), (1100 * MIB, [0, 1024]), (2 * MIB, [0, 1, 2])],
)
def test_ticks_are_round(top: int, expected: list[int]) -> None:
    """One, two or five of a power of ten, in binary units."""
    assert stack.ticks(top) == [at * MIB for at in expected]


def test_bars_of_characters() -> None:
    """An eighth of a column fine; something that is not nothing is seen."""
    assert [share_bar(share, 4) for share in (0, 0.001, 0.5, 0.53125, 1)] == ["", "▏", "██", "██▏", "████"]
    assert heights([0, 8, 16], 16, 2) == ["  █", " ██"]
