"""The passes in the viewer's document: what is told of each, and of how many everything is."""

from __future__ import annotations

import math
from array import array

import pytest

from tensormagic.reports import UNTOUCHED, Frame
from tensormagic.views.page.columns import frame_rows

_FULL = (0.5, -0.25, 0.125, 0.5, 0.0, 0.0)


def _frame(number, *measures):
    return Frame(number, array("f", [1.0, 0.1]), {}, array("f", [value for row in measures for value in row]))


def test_a_pass_measured_by_norms_alone_has_no_columns():
    """Its row is the norms and what was not finite."""
    (row,) = frame_rows([Frame(1, array("f", [1.0, UNTOUCHED]), {"0": (1, 2)})], 1000)
    assert row == {"pass": 1, "norms": [0, None], "bad": [[0, 1, 2]]}


def test_columns_hold_what_says_anything():
    """In words; what is zero throughout is left out, and unmeasured nodes. Shares are counts where those are known."""
    (row,) = frame_rows([_frame(4, _FULL, [UNTOUCHED] * 6)], 1000)
    words = {"|max|": ["0.5", None], "mean": ["−0.25", None], "std": ["0.13", None], "zeros": ["50 %", None]}
    assert row["measures"] == words
    (row,) = frame_rows([_frame(4, _FULL, [UNTOUCHED] * 6)], 1000, [12, 0], {4: "pass 4, step 2"})
    assert row["measures"] == words | {"zeros": ["6  (50 %)", None]}
    assert row["said"] == "pass 4, step 2"


def test_numbers_that_are_none_are_named():
    """JSON has no NaN."""
    (row,) = frame_rows([_frame(1, (math.inf, math.nan, math.nan, 0.0, 0.0, 1.0), _FULL)], 1000)
    assert row["measures"]["|max|"] == ["Inf", "0.5"]
    assert row["measures"]["mean"] == ["NaN", "−0.25"]
    assert row["measures"]["at the limit"] == ["100 %", "0 %"]


@pytest.mark.parametrize(("values", "told"), [(0, 0), (24, 2), (60, 4), (10_000, 9)])
def test_of_many_passes_as_many_as_fit_are_told_in_full(values, told):
    """Evenly spread, with the first and the last; none where there is no room at all, as while the cell runs."""
    rows = frame_rows([_frame(number, _FULL, _FULL) for number in range(1, 10)], values)
    full = [row["pass"] for row in rows if "measures" in row]
    assert len(rows) == 9
    assert len(full) == told
    assert not full or (full[0], full[-1]) == (1, 9)


def test_what_each_of_several_sent_stands_beside_the_norms():
    """The shares of a sum, as codes like the norms."""
    frame = Frame(1, array("f", [1.0]), {}, array("f"), array("f", [0.1, UNTOUCHED]))
    assert frame_rows([frame], 100)[0]["parts"] == [-250, None]
