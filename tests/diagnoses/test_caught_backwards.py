"""TM301, TM304 and TM311 of backwards whose errors were caught: by hand-made reports, severities and sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Pass
from tensormagic.reports.failure import BackwardFault, SwallowedError
from tests.diagnoses import samples
from tests.diagnoses.test_backward_failures import CALL, FREED, RETURNED, SPOILT, failed

CAUGHT = SwallowedError(error_type="RuntimeError", error="modified", fault=BackwardFault(modified=SPOILT), location=0)


def report(*caught, outcome="failed", **changes):
    done = Pass(1, 1, 1, outcome, 0.1, 1, 0)
    return replace(samples.run(), swallowed_errors=caught, locations=(CALL,), passes=(done,), **changes)


def test_an_error_that_was_caught_is_a_note_with_both_lines():
    """The same as of one that ended the run, and that somebody caught it."""
    (found,) = diagnose(report(CAUGHT))
    (uncaught,) = diagnose(failed(modified=SPOILT))
    assert (found.code, found.severity, found.location) == ("TM301", "note", uncaught.location)
    assert (found.related, found.remedy) == (uncaught.related, uncaught.remedy)
    told = "; torch refused this backward, and the code around it caught the error."
    assert found.message == uncaught.message.removesuffix(".") + told
    assert found.evidence["times refused"] == 1


def test_a_line_that_never_went_through_is_a_warning():
    """Refused in every step of a loop: nothing was learned."""
    (found,) = diagnose(report(replace(CAUGHT, count=3)))
    assert found.severity == "warning"
    assert found.message.endswith("refused this backward 3 times, and the code around it caught the errors.")


def test_a_line_that_went_through_as_well_is_a_note():
    """Now and then a step is skipped: that may be meant."""
    (found,) = diagnose(report(replace(CAUGHT, count=3), outcome="finished"))
    assert found.severity == "note"


@pytest.mark.parametrize("count", [1, 5])
def test_an_error_that_is_expected_is_not_told(count):
    """A test that needs it."""
    assert diagnose(report(replace(CAUGHT, expected=True, count=count))) == ()


@pytest.mark.parametrize(("code", "fault"), [("TM304", {"freed": FREED}), ("TM311", {"returned": RETURNED})])
def test_the_other_reasons(code, fault):
    """A graph that is freed, and what a custom Function returns."""
    (found,) = diagnose(report(replace(CAUGHT, fault=BackwardFault(**fault))))
    assert (found.code, found.severity) == (code, "note")


def test_the_error_that_ended_the_run_is_told_beside_the_one_that_was_caught():
    """A note does not take the place of the error with the same code."""
    found = diagnose(report(CAUGHT, failure=failed(modified=replace(SPOILT, name="z"))))
    assert [(one.code, one.severity, one.subject) for one in found] == [("TM301", "error", "z"), ("TM301", "note", "y")]
