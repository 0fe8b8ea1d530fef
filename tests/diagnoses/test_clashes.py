"""TM101, TM702, TM801, TM802, TM804: one finding a kind of clash, none about what has no code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.diagnoses.mismatches import mismatch_of
from tensormagic.reports import FailureReport, Location, RelatedLine
from tests.diagnoses.failed_calls import failed, plain, tensor
from tests.diagnoses.samples import run
from tests.diagnoses.test_mismatches import CASES

HERE, THERE = Location("model.py", 12, "a @ b"), Location("model.py", 3, "b = load()")
VALUES = ("a word that is not in the table", "labels from 1")
CODES = {"view": "TM101", "device": "TM801", "dtype": "TM802", "shape": "TM804"}


def explained(report: FailureReport) -> FailureReport:
    """Return the report with what did not fit."""
    return replace(report, mismatch=mismatch_of(report), location=HERE)


@pytest.mark.parametrize("name", CASES)
def test_each_kind_has_its_code(name):
    """View, generator, device, dtype, shape and values; an index or an argument that is wrong has none."""
    report, kind, *_ = CASES[name]
    code = {"a generator": "TM702", **dict.fromkeys(VALUES, "TM807")}.get(name, CODES.get(kind))
    assert [found.code for found in diagnose(explained(report))] == ([code] if code else [])


def test_a_finding_says_the_rule_and_what_works():
    """The sentence is the rule; the remedy the first two ways; the evidence the sizes that clash."""
    (found,) = diagnose(explained(CASES["a linear layer without flatten"][0]))
    assert found.message == "The last dimension of x (2 × 32 × 4) is 4, but net.fc1 takes 128 (in_features)."
    assert found.remedy == "`x.flatten(1)`"
    assert found.evidence == {
        "call": "torch.nn.functional.linear", "dimension 2 of x": "4", "dimension 1 of net.fc1.weight": "128",
    }  # fmt: skip
    assert (found.severity, found.location, found.subject) == ("error", HERE, "x")


@pytest.mark.parametrize(
    ("works", "maybe", "remedy"),
    [
        (("x.T",), ("net.eval()",), "`x.T`"),
        ((), ("net.eval()", "a", "b"), "try `net.eval()` or `a`"),
        ((), (), "Look at where x is made: its sizes come from there."),
    ],
    ids=["some work", "none could be tried", "none"],
)
def test_what_could_not_be_tried_is_the_remedy_where_nothing_else_is(works, maybe, remedy):
    """And it says that it is to be tried."""
    report = explained(CASES["a linear layer without flatten"][0])
    report = replace(report, mismatch=replace(report.mismatch, works=works, maybe=maybe))
    (found,) = diagnose(report)
    assert found.remedy == remedy


def test_the_line_that_made_an_operand_stands_beside():
    """Only where it is another one than that which failed."""
    operands = tensor("a", 3, 4, location=HERE), tensor("b", 5, 6, location=THERE)
    (found,) = diagnose(explained(failed("torch.mm", "shapes cannot be multiplied", *operands)))
    assert found.related == (RelatedLine("made b", THERE),)


@pytest.mark.parametrize("report", [
    replace(CASES["a product"][0], phase="backward"),
    failed("torch.zeros", "zeros(): argument 'size' (position 1) must be tuple of ints, not str", plain("'3'")),
], ids=["in backward", "an argument"])  # fmt: skip
def test_nothing_is_told_of_what_is_no_clash_of_the_persons_call(report):
    """A failure within backward is for the rules about backward."""
    assert diagnose(explained(report)) == ()


def test_the_failure_of_a_traced_run_is_a_finding_of_the_run():
    """What is found about the call that ended a run is found about the run."""
    report = replace(run(), failure=explained(CASES["a product"][0]))
    assert [found.code for found in diagnose(report)] == ["TM804"]
