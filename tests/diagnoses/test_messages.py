"""The table of what torch says: what a row or function names is filled in; it is not asked where that is missing."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys

import pytest

from tensormagic.diagnoses.mismatches import rows
from tensormagic.diagnoses.mismatches.call import OPERANDS, Call, Given, Shape, mismatch
from tensormagic.diagnoses.mismatches.table import FUNCTIONS, Messages, Row
from tensormagic.reports import FailureReport
from tensormagic.reports.failure import Operand

GIVEN = Operand(name="x", role="input", shape=(3, 4), dtype="float32")
WEIGHT = Operand(name="w", role="weight", shape=(5, 4), dtype="float32")
DIM = Operand(role="dim", is_tensor=False, text="-1")
ERROR = "sizes [3, 4] and [5, 4] at 7 of weight"


def read(says: Messages, operands=(GIVEN, WEIGHT, DIM), error=ERROR):
    """Return what the rows make of a message."""
    call = Call(FailureReport(error_type="RuntimeError", error=error, function="torch.f", operands=operands))
    return [row.mismatch(call) for row in says.rows]


def explained(explain, *messages, operands=(GIVEN, WEIGHT, DIM), **fixed):
    """Return the rules that the rows of one function give for a message."""
    says = Messages({})
    says(*messages, **fixed)(explain)
    return [None if one is None else one.rule for one in read(says, operands)]


def written(text, operands=(GIVEN, WEIGHT, DIM)):
    """Return what the rows of a text make of the message."""
    says = Messages({})
    says.table(text)
    return read(says, operands)


# -- functions -----------------------------------------------------------------------------------------------------


def _operands(call: Call, first: Given, weight: Given, right: Given, dim: int):
    return mismatch("shape", f"{call.title} {first.name} {weight.name} {right.name} {dim}")


def _groups(wanted: Shape, got: Shape, at: int, which: str):
    return mismatch("shape", f"{wanted} {got} {at!r} {which!r}")


def _fixed(least: int, about: str = "none"):
    return mismatch("shape", f"{least} {about}")


def test_operands_are_looked_up_by_the_names_of_parameters():
    """By role, by place, by number, and a number among the arguments."""
    assert explained(_operands, "sizes") == ["Torch.f x w w -1"]


def test_groups_are_read_by_their_kinds():
    """Sizes, whole numbers, words and dtypes."""
    pattern = r"\[{wanted:shape}\] and \[{got:shape}\] at {at} of {which:word}"
    assert explained(_groups, pattern) == ["(3, 4) (5, 4) 7 'weight'"]


def test_a_group_that_took_no_part_is_none():
    """An alternative that was not met gives nothing."""

    def told(one: str | None, other: int | None):
        return mismatch("shape", f"{one} {other}")

    assert explained(told, r"sizes(?P<one>x)?|at {other}") == ["None None"]


def test_several_messages_are_rows_of_one_function():
    """One that is not torch's message gives nothing."""
    assert explained(_operands, "no such message", "sizes") == [None, "Torch.f x w w -1"]


def test_a_function_is_not_asked_where_an_operand_is_missing():
    """Any of those that it needs: the tensor, the second one, the number."""
    for missing in (GIVEN, WEIGHT, DIM):
        left = tuple(one for one in (GIVEN, WEIGHT, DIM) if one is not missing)
        assert explained(_operands, "sizes", operands=left) == [None]


def test_what_a_row_fixes_is_not_read_from_the_message():
    """The same function serves messages that name the number, and those that do not; else a default stays."""
    assert explained(_fixed, r"at {least}") == ["7 none"]
    assert explained(_fixed, "sizes", least=2, about="mask") == ["2 mask"]


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
        return mismatch("shape", call.every(lambda one: one.dtype == "int64")[0].name)

    assert explained(looking, "sizes") == [None]
    wanted = Operand(name="i", shape=(1,), dtype="int64")
    assert explained(looking, "sizes", operands=(GIVEN, wanted)) == ["I"]


# -- rows of text --------------------------------------------------------------------------------------------------


def test_a_row_is_a_message_with_a_sentence_parts_and_ways():
    """Fields are filled in; a part is a dimension, a fact or the whole; ways have conditions."""
    (found,) = written(r"""
sizes \[{wanted:shape}\] and
    dtype: Sizes {sizes(wanted)}
        of {first} at {dim}.
    parts: first[-1] must be {wanted[0]}; weight.ndim must be 3; weight.shape; first.dtype must be int64
    parts: weight is {dim}
    parts: first[0] must equal weight[1]
    try: {first.code}.T when first.ndim == 2
    try: {first.code}.mT when first.ndim > 2
    try: {first.code}[{at}] for at in range(2)
""")
    assert (found.kind, found.rule) == ("dtype", "Sizes 3 × 4 of x (3 × 4) at -1.")
    parts = [(part.operand, part.dimension, part.got, part.expected) for part in found.parts]
    assert parts == [
        (0, 1, "4", "3"), (1, None, "2-D", "3-D"), (1, None, "5 × 4", ""), (0, None, "float32", "int64"),
        (1, None, "-1", ""), (0, 0, "3", "4"), (1, 1, "4", "3"),
    ]  # fmt: skip
    assert found.works == ("x.T", "x[0]", "x[1]")


def test_several_lines_are_several_messages_of_one_row():
    """And a comment between rows is none of them."""
    found = written("""
no such message
sizes
    shape: One.

# of another kind
and
    shape: Two.
""")
    assert [one and one.rule for one in found] == [None, "One.", "Two."]


def test_what_belongs_together_may_share_a_line():
    """Names and conditions, parts and ways; a semicolon between two parts stays one."""
    lines = "with it: left; if: it.ndim == 2", "shape: No.", "parts: it[0]; it[1]; try: {it.code}.T"
    short = "\n    ".join(("sizes", *lines)) + "\n"
    (found,) = written(short)
    assert [part.dimension for part in found.parts] == [0, 1]
    assert found.works == ("x.T",)
    assert written(short.replace("== 2", "== 3")) == [None]


def test_a_name_is_given_to_an_operand_that_is_looked_for():
    """The first, the last or every tensor of which something holds, or any value; none explains nothing."""
    row = "sizes\n    with wrong: {}\n    shape: {{wrong}}.\n"
    said = [written(row.format(which)) for which in ("first one[1] == 4", "last one[1] == 4", "first.ndim + 1")]
    assert [one.rule for (one,) in said] == ["X (3 × 4).", "W (5 × 4).", "3."]
    assert written(row.format("every one.ndim > 2")) == [None]
    (none,) = written("sizes\n    with wrong: all one.ndim > 2\n    shape: {len(wrong)}.\n")
    assert none.rule == "0."


def test_a_row_can_take_its_values_apart_and_call_a_helper_of_its_subject():
    """The names of a row are known inside of a comprehension as well."""
    says = Messages({"half": lambda size: size // 2})
    says.table(
        "sizes\n    with pairs: [(at, first[at]) for at in range(first.ndim) if first[at] != dim]\n"
        "    shape: {len(pairs)}.\n    parts: first[at] must be {half(size)} for at, size in pairs\n"
    )
    (found,) = read(says)
    assert found.rule == "2."
    assert [(part.dimension, part.expected) for part in found.parts] == [(0, "1"), (1, "2")]


def test_a_row_is_not_asked_where_its_condition_or_an_operand_is_missing():
    """A dimension that is not there counts as missing; a slip of the pen in a row comes out."""
    assert written("sizes\n    if: first.ndim > 2\n    shape: No.\n") == [None]
    assert written("sizes\n    shape: {bias}.\n") == [None]
    assert written("sizes\n    shape: {first[5]}.\n") == [None]
    with pytest.raises(NameError):
        written("sizes\n    shape: {frist}.\n")


# -- all rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row.says[:40])
def test_every_row_names_what_there_is(row: Row):
    """Groups of its message, what it defines itself, operands and helpers; and it names every group of its message."""
    groups = set(re.compile(row.pattern).groupindex)
    assert re.compile(row.pattern).groups == len(groups)
    if isinstance(row.explain, tuple):
        named, defined = names_of(row.explain)
        assert named <= groups | defined | set(row.fixed) | set(OPERANDS) | set(FUNCTIONS) | {"call", "one"}
        assert not set(OPERANDS) & set(row.fixed), "a name of the file that hides an operand"
        assert groups <= named
    else:
        asked = inspect.signature(row.explain).parameters
        needed = {name for name, parameter in asked.items() if parameter.default is parameter.empty}
        assert needed <= groups | set(row.fixed) | set(OPERANDS) | {"call"}
        assert groups <= set(asked)


def names_of(lines: tuple[tuple[str, str], ...]) -> tuple[set[str], set[str]]:
    """Return the names that the expressions of a row use, and those that it defines."""
    expressions, defined = [], set()
    for key, line in lines:
        body, _, condition = line.partition(" when ") if key in {"parts", "try", "maybe"} else (line, "", "")
        body, _, loop = body.partition(" for ") if key in {"parts", "try", "maybe"} else (body, "", "")
        name, _, values = loop.partition(" in ")
        defined |= {*name.split(", "), key.removeprefix("with ")}
        expressions += [condition or "0", values or "0"]
        if key == "if" or key.startswith("with "):
            expressions.append(re.sub(r"^(?:first|last|every|all) ", "", body))
        else:
            expressions.append(f"f'''{body}'''")
        if key == "parts":
            expressions += re.findall(r"(?:^|; |equal )(\w+)", body) + re.findall(r"\w\[([^\]]+)\](?= |;|$)", body)
    nodes = [node for each in expressions for node in ast.walk(ast.parse(each, mode="eval"))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    defined |= {node.id for node in names if isinstance(node.ctx, ast.Store)}  # of a comprehension
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}  # of a lambda
    return {node.id for node in names}, defined


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
