"""Every error input of torch's operators and modules: the exception unchanged, and explained truly.

What must hold: nothing about any exception changes; the operands named are those that were given; and of the errors
that are about shapes, dtypes or devices, at least 90 % are explained by what truly clashes.
"""

from __future__ import annotations

import pytest
import torch

from tests.sweeps.clashing import Score, judged, mended, names_all, told_of
from tests.sweeps.error_cases import module_cases, operator_cases
from tests.sweeps.expected_clashes import EXPECTED
from tests.sweeps.ways import fails

pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def told():
    """Every error input there is, made twice."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return told_of([*operator_cases(), *module_cases()])


def test_every_exception_is_unchanged(told):
    """Type, message and the lines of the traceback are those of the same call without us."""
    changed = [each.case.name for each in told if each.plain != each.covered]
    print(f"\nerrors: {len(told) - len(changed)} of {len(told)} exceptions are unchanged")
    assert changed == []


def test_every_explanation_names_the_true_operands(told):
    """Every tensor that was given stands in the table of operands, with its shape, dtype and device."""
    score = Score()
    for each in told:
        score.add("with tensors" if each.given else "without tensors", each.case.name, names_all(each))
    print(f"\nerrors: the operands are those given in {score}")
    assert score.share >= LEAST_NAMED


def test_the_true_clash_is_named(told):
    """At least nine in ten by the table, and nothing that is no clash is called one."""
    score, more = Score(), []
    for each in told:
        name = each.case.name
        if name in EXPECTED:
            score.add(EXPECTED[name].split()[0], name, judged(each, EXPECTED[name]))
        elif each.report is not None and each.report.mismatch is not None:
            more += [name] if each.report.mismatch.kind in {"shape", "dtype", "device"} else []
    others = len(told) - sum(score.total.values())
    print(f"\nerrors: the true clash is named in {score}; {others} are about an index, an argument or a value")
    assert sum(score.total.values()) == len(EXPECTED)
    assert more == []
    assert score.share >= LEAST_TRUE


def test_what_is_said_to_work_works(told):
    """Put in the place of what failed, it goes through: no exception."""
    said = sum(len(each.report.mismatch.works) for each in told if each.report and each.report.mismatch)
    print(f"\nerrors: {said} ways are said to work")
    failing = {each.case.name: ways for each in told if (ways := fails(each))}
    failing.pop("multinomial 0", None)  # torch's own input is uninitialised memory: its probabilities may be NaN
    assert failing == {}


def test_mending_what_is_named_helps(told):
    """With the operand as it is expected to be, the call goes through, or fails otherwise."""
    score, silent = Score(), 0
    with torch.random.fork_rng(devices=[]):
        for each in told:
            if each.case.name in EXPECTED and each.report is not None and each.report.mismatch is not None:
                helped = mended(each)
                silent += helped is None
                if helped is not None:
                    score.add(each.report.mismatch.kind, each.case.name, helped)
    print(f"\nerrors: mending what is named helps in {score}; of {silent} nothing given is named to be mended")
    assert score.share >= LEAST_TRUE


LEAST_TRUE, LEAST_NAMED = 0.9, 0.98
