"""The table of rules as a whole: codes, order, purity."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tensormagic.diagnoses import RULES, diagnose
from tensormagic.reports import SEVERITIES, FailureReport, TensorReport, TraceReport, WritesReport
from tests.diagnoses.samples import born, parameter
from tests.reports.samples import tensor_report, trace_report, writes_report


def test_codes_are_unique_sorted_and_of_a_family():
    """TM and three digits; the table reads like the documentation."""
    codes = [rule.code for rule in RULES]
    assert codes == sorted(codes)
    assert len({(rule.code, rule.reads) for rule in RULES}) == len(RULES)
    assert all(re.fullmatch(r"TM[1-9]\d\d", code) for code in codes)
    assert {rule.reads for rule in RULES} >= {FailureReport, TensorReport, TraceReport, WritesReport}


def hostile():
    """A run that ended in a failed call, with a rule that is a sentence: names in it are as hostile as they can be."""
    report = trace_report()
    rule = f"The sizes of {report.failure.operands[0].name} do not fit."
    mismatch = dataclasses.replace(report.failure.mismatch, rule=rule)
    return dataclasses.replace(report, failure=dataclasses.replace(report.failure, mismatch=mismatch))


def ill():
    """A run with a note-free mixture: an error and a warning, given in the wrong order by the table."""
    report = born(nan=1, saved_name="self", saved_zero=1)
    forgotten = (parameter("net.a", [1.0]), parameter("net.b", [-1.0]))
    return dataclasses.replace(report, parameters=forgotten)


def test_the_most_severe_comes_first_then_a_cause_then_the_code():
    """Errors, warnings, notes; within a severity what was measured comes after what may explain it."""
    both = diagnose(ill())
    assert [found.code for found in both] == ["TM402", "TM601"]
    shared = diagnose(hostile())
    measured = {"TM312", "TM403", "TM404", "TM405", "TM601", "TM617"}
    order = [(SEVERITIES.index(found.severity), found.code in measured, found.code) for found in shared]
    assert len(order) > 1
    assert order == sorted(order)
    warnings = [found.code for found in shared if found.severity == "warning"]
    assert warnings != sorted(warnings)  # TM312 after TM605


@pytest.mark.parametrize(
    "report", [tensor_report(), hostile(), writes_report(), ill()], ids=["tensor", "trace", "writes", "ill"]
)
def test_rules_are_pure(report):
    """The same report gives the same findings, whatever findings it had before; only its own rules' codes appear."""
    first = diagnose(report)
    assert diagnose(dataclasses.replace(report, findings=first)) == first
    read = [report, *([report.failure] if getattr(report, "failure", None) is not None else [])]
    own = {rule.code for rule in RULES if any(isinstance(part, rule.reads) for part in read)}
    assert {found.code for found in first} <= own


@pytest.mark.parametrize(
    "report", [tensor_report(), hostile(), writes_report(), ill()], ids=["tensor", "trace", "writes", "ill"]
)
def test_every_finding_is_one_sentence(report):
    """It begins with a capital or a name, ends with a full stop, and holds no unformatted piece."""
    for found in diagnose(report):
        assert found.message.endswith(".")
        assert "{" not in found.message
        assert "  " not in found.message
