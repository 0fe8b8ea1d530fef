"""Two series of norms: how far apart, from when on, and what is no number."""

from __future__ import annotations

import math

import pytest

from tensormagic.comparisons.traces import compare_norms, ratio
from tensormagic.reports import UNREADABLE, UNTOUCHED


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1.0, 100.0, 2.0),
        (100.0, 1.0, -2.0),
        (3.0, 3.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, 1.0, math.inf),
        (1.0, 0.0, -math.inf),
    ],
)
def test_a_ratio_is_the_logarithm_of_right_over_left(left, right, expected):
    """Decades; zero against something is infinitely far."""
    assert ratio(left, right) == expected


@pytest.mark.parametrize("odd", [math.nan, math.inf, UNTOUCHED, UNREADABLE])
def test_what_is_no_norm_has_no_ratio(odd):
    """NaN, infinity, no gradient and an unmeasured one cannot be compared with a number."""
    assert math.isnan(ratio(1.0, odd))
    assert math.isnan(ratio(odd, 1.0))


def test_apart_from_a_step_on():
    """A factor of 100 from step 3 to the end; the worst is where it is largest."""
    found = compare_norms([1, 2, 3, 4], [1.0, 1.0, 1.0, 1.0], [1.0, 1.5, 100.0, 50.0])
    assert (found.from_step, found.apart_steps, found.same, found.differs_from) == (3, 2, False, 2)
    assert (found.worst.step, found.worst.ratio) == (3, 2.0)
    assert (found.first.ratio, found.last.right) == (0.0, 50.0)


def test_a_difference_that_ended_has_no_beginning():
    """Apart in the middle and together in the end: no step from which on."""
    found = compare_norms([1, 2, 3], [1.0, 1.0, 1.0], [1.0, 100.0, 1.0])
    assert (found.from_step, found.apart_steps, found.worst.step) == (None, 0, 2)


def test_a_difference_that_turned_round_counts_from_the_turn():
    """First ten times larger, then ten times smaller: from the second on."""
    assert compare_norms([1, 2], [1.0, 1.0], [10.0, 0.1]).from_step == 2


def test_not_finite_steps_are_counted_on_each_side():
    """How many, and the first of them."""
    found = compare_norms([1, 2, 3], [1.0, math.nan, 1.0], [1.0, 1.0, math.inf])
    assert (found.bad_left, found.bad_from_left) == (1, 2)
    assert (found.bad_right, found.bad_from_right) == (1, 3)
    assert not found.same


def test_both_nan_is_the_same():
    """NaN is not equal to itself, but two runs that both have it do not differ in it."""
    found = compare_norms([1, 2], [1.0, math.nan], [1.0, math.nan])
    assert (found.same, found.differs_from) == (True, None)


def test_a_missing_gradient_is_told_by_side():
    """A parameter that gets nothing at all in one run, and something in the other."""
    silent = [UNTOUCHED, UNTOUCHED]
    assert compare_norms([1, 2], [1.0, 1.0], silent).silenced == "right"
    assert compare_norms([1, 2], silent, [1.0, UNTOUCHED]).silenced == "left"
    assert compare_norms([1, 2], silent, silent).silenced == ""


def test_nothing_to_compare():
    """No common step: nothing is claimed."""
    found = compare_norms([], [], [])
    assert (found.compared, found.first, found.worst, found.weight) == (0, None, None, 0.0)


def test_weights_put_nan_before_missing_before_large():
    """What a user wants to see first."""
    nan = compare_norms([1], [1.0], [math.nan])
    missing = compare_norms([1], [1.0], [UNTOUCHED])
    zero, far = compare_norms([1], [1.0], [0.0]), compare_norms([1], [1.0], [1e30])
    assert nan.weight > missing.weight > zero.weight > far.weight > 0
