"""The table of what torch says: what a handler needs is filled in, and it is not asked where that is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Annotated

import pytest

from tensormagic.diagnoses.mismatches import rows
from tensormagic.diagnoses.mismatches.call import (
    Call,
    Dim,
    First,
    Given,
    Messages,
    Right,
    Shape,
    Weight,
    argument,
    mismatch,
    operand,
    parameters,
)
from tensormagic.reports import FailureReport
from tensormagic.reports.failure import Operand

GIVEN = Operand(name="x", role="input", shape=(3, 4), dtype="float32")
WEIGHT = Operand(name="w", role="weight", shape=(5, 4), dtype="float32")
DIM = Operand(role="dim", is_tensor=False, text="-1")
ERROR = "sizes [3, 4] and [5, 4] at 7 of weight"


def explained(explain, *patterns, operands=(GIVEN, WEIGHT, DIM), error=ERROR, **fixed):
    """Return the rules that the rows of one handler give for a message."""
    says = Messages()
    says(*patterns, **fixed)(explain)
    call = Call(FailureReport(error_type="RuntimeError", error=error, function="torch.f", operands=operands))
    found = [row.mismatch(call) for row in says.rows]
    return [None if one is None else one.rule for one in found]


def _operands(call: Call, given: First, weight: Weight, second: Right, dim: Dim):
    return mismatch("shape", f"{call.title} {given.name} {weight.name} {second.name} {dim}")


def _groups(wanted: Shape, got: Shape, at: int, which: str):
    return mismatch("shape", f"{wanted} {got} {at!r} {which!r}")


def _named(which: str, at: int, found: re.Match[str]):
    return mismatch("shape", f"{which} {at} {found[0]}")


def _optional(weight: Weight | None, other: Annotated[Given, operand("other")] | None):
    return mismatch("shape", f"{weight and weight.name} {other}")


def _fixed(least: int, *, about: str = "input", place: int = 0):
    return mismatch("shape", f"{least} {about} {place}")


def test_operands_are_looked_up():
    """By role, by place, by number, and a number among the arguments."""
    assert explained(_operands, "sizes") == ["Torch.f x w w -1"]


def test_groups_are_read_by_their_types():
    """In the order of the parameters: shapes, numbers and words."""
    assert explained(_groups, r"\[(.*?)\] and \[(.*?)\] at (\d+) of (\w+)") == ["(3, 4) (5, 4) 7 'weight'"]


def test_a_named_group_goes_to_the_parameter_of_its_name():
    """Whatever the order; the match itself can be shown for well."""
    assert explained(_named, r"at (?P<at>\d+) of (?P<which>\w+)") == ["Weight 7 at 7 of weight"]


def test_a_group_that_took_no_part_is_empty():
    """An alternative that was not met gives no word, no numbers."""
    assert explained(_groups, r"sizes(x)?(y)? \[(\d)(z)?") == ["() () 3 ''"]


def test_several_patterns_are_rows_of_one_handler():
    """One that does not fit the message gives nothing."""
    assert explained(_operands, "no such message", "sizes") == [None, "Torch.f x w w -1"]


def test_a_handler_is_not_asked_where_an_operand_is_missing():
    """Any of those that it needs: the tensor, the second one, the number."""
    for missing in (GIVEN, WEIGHT, DIM):
        left = tuple(one for one in (GIVEN, WEIGHT, DIM) if one is not missing)
        assert explained(_operands, "sizes", operands=left) == [None]


def test_an_optional_operand_is_none_where_it_is_missing():
    """It is asked for and not needed."""
    assert explained(_optional, "sizes") == ["W None"]
    assert explained(_optional, "sizes", operands=()) == ["None None"]


def test_what_a_row_fixes_is_not_read_from_the_message():
    """A keyword-only parameter with a default is filled by rows alone, any other from the message where no row does."""
    assert explained(_fixed, r"at (\d+)") == ["7 input 0"]
    assert explained(_fixed, r"at (\d+)", least=2, about="mask") == ["2 mask 0"]


@pytest.mark.parametrize("wrong", [IndexError, ZeroDivisionError])
def test_a_dimension_that_is_not_there_explains_nothing(wrong):
    """The operands lack what the message is about; any other error is a fault of ours and comes out."""

    def lacking(call: Call):
        raise wrong

    def faulty(call: Call):
        raise KeyError

    assert explained(lacking, "sizes") == [None]
    with pytest.raises(KeyError):
        explained(faulty, "sizes")


def test_no_tensor_of_a_kind_explains_nothing():
    """Looking for one that is not there ends the explanation."""

    def looking(call: Call):
        return mismatch("shape", call.first(lambda one: one.dtype == "int64").name)

    assert explained(looking, "sizes") == [None]
    wanted = Operand(name="i", shape=(1,), dtype="int64")
    assert explained(looking, "sizes", operands=(GIVEN, wanted)) == ["I"]


def test_an_argument_is_found_by_its_role():
    """Tensor or not."""

    def asked(given: Annotated[Given, argument("dim")]):
        return mismatch("argument", given.operand.text)

    assert explained(asked, "sizes") == ["-1"]


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"{row.explain.__name__}-{row.pattern[:30]}")
def test_every_row_has_a_group_for_each_word_that_its_handler_asks_for(row):
    """No group is left over, and none is missing; who takes the match reads it as it likes."""
    groups = re.compile(row.pattern).groupindex
    count = re.compile(row.pattern).groups
    asked = parameters(row.explain)
    from_message = [name for name, one in asked.items() if one.read is not None and name not in row.fixed]
    takes_match = any(one.read is None and one.find is None and one.kind is not Call for one in asked.values())
    assert set(groups) <= set(from_message)
    assert len(from_message) == count or takes_match


def test_only_the_subjects_that_a_message_needs_are_imported():
    """Those before the row that explains it, in order, and what these import themselves."""
    code = (
        "import sys\n"
        "from tensormagic.diagnoses.mismatches import mismatch_of\n"
        "from tensormagic.reports import FailureReport, Operand\n"
        "given = [Operand(name='conv', role='weight', shape=(8, 3, 3, 3), dtype='float32'),\n"
        "         Operand(name='x', role='input', shape=(1, 1, 28, 28), dtype='float32')]\n"
        "before = {name for name in sys.modules if '.mismatches.' in name}\n"
        "error = 'Given groups=1, weight of size [8, 3, 3, 3], expected input[1, 1, 28, 28] to have 3 channels, but '\n"
        "error += 'got 1 channels instead'\n"
        "report = FailureReport(error_type='RuntimeError', error=error, function='torch.conv2d', "
        "operands=tuple(given))\n"
        "assert mismatch_of(report) is not None\n"
        "print(sorted(name.rpartition('.')[2] for name in sys.modules if '.mismatches.' in name))\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "layers" in printed
    assert "arguments" not in printed
    assert "products" not in printed
