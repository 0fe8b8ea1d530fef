"""TM803 and TM805 on hand-made traces."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.calls import promoted_to_double, waits_in_every_step
from tests.diagnoses.samples_calls import LINE, MADE, seen, tensor, traced, waiting

LOSS = (tensor("loss", (), device="cuda:0"),)


def test_lines_that_wait_in_every_step_are_one_note():
    """All of them are counted, the busiest comes first."""
    report = traced(waiting("item", 100, operands=LOSS), waiting("bool", 300, operands=LOSS, location=1), steps=100)
    (found,) = waits_in_every_step(report)
    assert found.message == (
        "The host waits for cuda:0 in every step: bool and item read from it 400 times in 100 steps on 2 lines."
    )
    assert (found.severity, found.location) == ("note", MADE)
    assert [(line.what, line.location) for line in found.related] == [("item, 100 times", LINE)]


@pytest.mark.parametrize(("calls", "steps"), [(9, 10), (2, 2), (5, 0)])
def test_waiting_seldom_and_runs_without_steps_are_not_told(calls, steps):
    """A line that reads less often than once a step costs little; two steps are no loop."""
    assert not list(waits_in_every_step(traced(waiting("item", calls, operands=LOSS), steps=steps)))


def promoted(narrow, wide, **facts):
    """Return what is found where two operands met and float64 came out."""
    return list(promoted_to_double(seen("promoted", "sub", operands=(narrow, wide), **facts)))


DATA = {"dtype": "float64"}


def test_data_in_float64_against_what_is_trained_is_told():
    """The data are named, with where they came from, where they were made, and how to convert them."""
    found = promoted(
        tensor("out", (8,), requires_grad=True), tensor("y", (8,), **DATA), detail="numpy", made=1, calls=5, looked=5,
        seen=5,
    )  # fmt: skip
    assert len(found) == 1
    assert found[0].message == (
        "out - y computes in float64 in each of its 5 calls: y, from NumPy, of shape (8,) is float64, so out "
        "(float32) is promoted."
    )
    assert "`y = y.float()`" in found[0].remedy
    assert [line.location for line in found[0].related] == [MADE]


@pytest.mark.parametrize(("trained", "wide"), [(False, False), (True, True), (False, True)])
def test_what_is_not_trained_and_what_is_trained_in_float64_are_not_told(trained, wide):
    """Statistics kept in float64, and models in float64, are meant."""
    assert promoted(tensor("a", (8,), requires_grad=trained), tensor("b", (8,), requires_grad=wide, **DATA)) == []
