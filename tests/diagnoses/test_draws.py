"""TM701, TM703 and TM704 on hand-made traces."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses.calls import same_in_every_worker, unseeded_draws
from tensormagic.diagnoses.steps import same_numbers_again
from tensormagic.reports import Observation, OptimizerUse, Training
from tests.diagnoses.samples_calls import LINE, MADE, seen, traced


def draw(op, calls, location=0):
    return Observation(
        kind="draw", op=op, location=location, calls=calls, looked=calls, seen=calls, detail="9000000000000000000"
    )


def test_a_run_is_told_of_once_with_all_its_lines():
    """One note, whatever the number of draws; the first line, and the others beside it."""
    (found,) = unseeded_draws(traced(draw("dropout", 1000), draw("randn", 20, 1)))
    assert found.message == (
        "dropout and randn drew 1020 times on 2 lines from a probably unseeded generator: then the next run gives "
        "different numbers."
    )
    assert (found.severity, found.location) == ("note", LINE)
    assert [(line.what, line.location) for line in found.related] == [("randn, 20 times", MADE)]
    assert found.evidence == {"draws": 1020, "lines": 2, "seed": "9000000000000000000"}


def test_without_draws_nothing_is_told():
    """Other things that were seen are not this rule's."""
    assert not list(unseeded_draws(traced(Observation(kind="copy", op="reshape", location=0))))


def test_states_that_come_back():
    """Two of them, of one optimizer; one may be put back around something else."""
    for states, told in ((2, ["TM703"]), (1, [])):
        use = OptimizerUse(name="optimizer", type_name="SGD", steps=9, repeated=states, repeated_at=4, repeated_of=1)
        report = dataclasses.replace(seen("copy", "reshape"), training=Training(optimizers=(use,), optimizers_seen=1))
        assert [found.code for found in same_numbers_again(report)] == told


@pytest.mark.parametrize(("detail", "severity"), [("2 Data rng", "warning"), ("4 Stream", "note")])
def test_workers_that_draw_the_same(detail, severity):
    """A generator in the data set is proven, a stream may know by itself what it gives."""
    (found,) = same_in_every_worker(seen("same draws", "DataLoader", detail=detail))
    assert (found.code, found.severity, found.subject) == ("TM704", severity, detail.split()[1])
