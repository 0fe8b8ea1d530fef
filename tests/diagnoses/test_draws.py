"""TM701 on hand-made traces."""

from __future__ import annotations

from tensormagic.diagnoses.calls import unseeded_draws
from tensormagic.reports import Observation
from tests.diagnoses.samples_calls import LINE, MADE, traced


def draw(op, calls, location=0):
    return Observation(
        kind="draw", op=op, location=location, calls=calls, looked=calls, seen=calls, detail="9000000000000000000"
    )


def test_a_run_is_told_of_once_with_all_its_lines():
    """One note, whatever the number of draws; the first line, and the others beside it."""
    (found,) = unseeded_draws(traced(draw("dropout", 1000), draw("randn", 20, 1)))
    assert found.message == (
        "dropout and randn drew 1020 times on 2 lines from an unseeded generator: the next run gives different numbers."
    )
    assert (found.severity, found.location) == ("note", LINE)
    assert [(line.what, line.location) for line in found.related] == [("randn, 20 times", MADE)]
    assert found.evidence == {"draws": 1020, "lines": 2, "seed": "9000000000000000000"}


def test_without_draws_nothing_is_told():
    """Other things that were seen are not this rule's."""
    assert not list(unseeded_draws(traced(Observation(kind="copy", op="reshape", location=0))))
