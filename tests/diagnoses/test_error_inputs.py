"""A sample of what ``make sweep`` holds against all error inputs of torch: exceptions unchanged, operands, clashes."""

from __future__ import annotations

import random

import pytest
import torch

from tests.sweeps.clashing import judged, mended, names_all, told_of
from tests.sweeps.error_cases import full_name, operator_cases
from tests.sweeps.expected_clashes import EXPECTED
from tests.sweeps.ways import fails

SAMPLE = 60
judged_by_hand = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="expected_clashes.py numbers the cases as torch 2.13 does"
)


def expected_of_operators():
    """Return the names of the error inputs that are judged, in the order of torch's table of operators."""
    from torch.testing._internal.common_methods_invocations import op_db

    places = {full_name(op): place for place, op in enumerate(op_db)}
    judged_here = [name for name in EXPECTED if name.rpartition(" ")[0] in places]
    return sorted(judged_here, key=lambda name: places[name.rpartition(" ")[0]])


@pytest.fixture(scope="module")
def told():
    """Some error inputs, always the same ones, each made without us and with us."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return told_of(list(operator_cases(random.Random(7).sample(expected_of_operators(), SAMPLE))))


def test_exceptions_are_unchanged(told):
    """Type, message and traceback lines."""
    assert len(told) == SAMPLE
    assert [each.case.name for each in told if each.plain != each.covered] == []


@judged_by_hand
def test_explanations_name_operands_and_clash(told):
    """Every tensor that was given is there, and what clashes is what the table says."""
    assert [each.case.name for each in told if not names_all(each)] == []
    assert [each.case.name for each in told if not judged(each, EXPECTED[each.case.name])] == []


def test_what_is_said_to_work_works(told):
    """Put in the place of what failed, it goes through."""
    unwritten = {"multinomial 0"}  # its probabilities are memory that nobody has written: they may be below 0
    assert {each.case.name: ways for each in told if each.case.name not in unwritten and (ways := fails(each))} == {}


@judged_by_hand
def test_mending_what_clashes_helps(told):
    """With the operand as it is expected to be, the call goes through or fails otherwise."""
    with torch.random.fork_rng(devices=[]):
        assert [each.case.name for each in told if mended(each) is False] == []
