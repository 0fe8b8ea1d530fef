"""Rules about layout, memory and shapes in single calls (TM102 to TM105), on hand-made traces."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.calls import (
    HIDDEN_COPIES,
    HIDDEN_COPY,
    MIXED_BYTES,
    MIXED_CALLS,
    MOST_LINES,
    both_broadcast,
    hidden_copy,
    mixed_formats,
    uninitialised,
)
from tensormagic.reports import Observation
from tests.diagnoses.samples_calls import LINE, MADE, seen, tensor, traced

COPIED = {"operands": (tensor("h", (8, 512, 64), stride=(32768, 1, 512)),), "result": tensor("", (8, 32768))}


def test_a_copy_is_told_with_its_bytes_calls_and_strides():
    """The numbers in the sentence are those of the observation, and the line is the user's."""
    report = seen("copy", "reshape", nbytes=4 * HIDDEN_COPY, calls=100, looked=8, seen=8, **COPIED)
    (found,) = hidden_copy(report)
    assert found.message == (
        "reshape copies 4 MiB in each of its 100 calls, 400 MiB in total: h, of shape (8, 512, 64) and strides "
        "(32768, 1, 512), cannot be viewed as (8, 32768)."
    )
    assert (found.code, found.severity, found.location) == ("TM102", "note", LINE)
    assert found.evidence["bytes"] == 4 * HIDDEN_COPY


def test_a_copy_in_some_calls_is_told_as_such():
    """Where only some of the calls that were looked at copied, the sentence gives both numbers."""
    report = seen("copy", "reshape", nbytes=8 * HIDDEN_COPY, calls=100, looked=8, seen=3, **COPIED)
    (found,) = hidden_copy(report)
    assert "copies 8 MiB in 3 of the 8 calls looked at: h" in found.message


@pytest.mark.parametrize(
    ("nbytes", "calls"), [(HIDDEN_COPY - 1, 1000), (HIDDEN_COPY, HIDDEN_COPIES // HIDDEN_COPY - 1)]
)
def test_small_copies_and_few_of_them_are_not_told(nbytes, calls):
    """One copy is at least a MiB, all of a line at least 16."""
    assert not list(hidden_copy(seen("copy", "reshape", nbytes=nbytes, calls=calls, **COPIED)))


def test_only_the_largest_lines_are_told():
    """A model with many such lines gets a few findings, those with the most bytes."""
    many = [
        Observation(kind="copy", op="reshape", location=0, nbytes=HIDDEN_COPIES * at, **COPIED) for at in range(1, 9)
    ]
    found = list(hidden_copy(traced(*many)))
    assert [one.evidence["bytes"] // HIDDEN_COPIES for one in found] == [8, 7, 6][:MOST_LINES]


# -- TM103 ----------------------------------------------------------------------------------------------------------

PLAIN = {"shape": (8, 3, 64, 64), "stride": (12288, 4096, 64, 1)}
LAST = {"shape": (8, 3, 64, 64), "stride": (12288, 1, 192, 3)}
WEIGHT = {"shape": (8, 3, 3, 3), "stride": (27, 1, 9, 3)}


def met(op, *operands, detail="converted", result=LAST, **facts):
    """Return a trace in which operands of two formats met."""
    given = {"nbytes": MIXED_BYTES, "calls": 4, "looked": 4, "seen": 4, **facts}
    return seen("mixed formats", op, operands=operands, result=tensor("", **result), detail=detail, **given)


def test_what_is_converted_is_the_operand_that_lies_otherwise_than_the_result():
    """The images are named with their bytes, and the weight whose order they are brought into."""
    (found,) = mixed_formats(met("conv2d", tensor("images", **PLAIN), tensor("net.weight", **WEIGHT)))
    assert found.message == (
        "conv2d brings images, 1 MiB, into the channels_last order of net.weight, in each of its 4 calls."
    )
    assert "`images = images.to(memory_format=torch.channels_last)`" in found.remedy
    assert (found.severity, found.location) == ("warning", LINE)


def test_what_is_read_across_its_order_is_said_to_be():
    """An addition converts nothing; it reads one operand across."""
    (found,) = mixed_formats(met("add", tensor("x", **LAST), tensor("skip", **PLAIN), detail="strided"))
    assert found.message.startswith(
        "add reads skip, 1 MiB, across its order: it is contiguous, x channels_last, in each"
    )


@pytest.mark.parametrize(
    "facts", [{"nbytes": MIXED_BYTES - 1}, {"calls": MIXED_CALLS - 1, "looked": 2, "seen": 2}, {"seen": 3}]
)
def test_formats_that_meet_seldom_or_cheaply_are_not_told(facts):
    """Less than a MiB, fewer than three calls, or not in all of them: nothing."""
    assert not list(mixed_formats(met("conv2d", tensor("images", **PLAIN), tensor("w", **WEIGHT), **facts)))


# -- TM104 ----------------------------------------------------------------------------------------------------------


def test_memory_that_nobody_wrote_is_told_with_both_lines():
    """The finding is at the line that reads, and names the one that made it."""
    (found,) = uninitialised(seen("uninitialised", "mul", operands=(tensor("w", (3,)),), nbytes=12, made=1))
    assert found.message == (
        "mul reads w, of shape (3,), before anything was written to it: its values are whatever was in that memory."
    )
    assert (found.severity, found.location, found.subject) == ("error", LINE, "w")
    assert [(line.what, line.location) for line in found.related] == [("made without values", MADE)]


def test_one_line_that_makes_unwritten_memory_is_one_finding():
    """However many calls read it, the fault is where it was made."""
    reads = [Observation(kind="uninitialised", op=op, location=0, operands=(tensor("w"),), made=1) for op in "ab"]
    assert len(list(uninitialised(traced(*reads)))) == 1


# -- TM105 ----------------------------------------------------------------------------------------------------------


def grew(op, left, right, result):
    return seen("both broadcast", op, operands=(left, right), result=tensor("", result))


def test_a_table_is_told_with_its_shapes_and_how_many_values_were_meant():
    """Both operands are named as written in the line, and the column is what the remedy squeezes."""
    report = grew("sub", tensor("pred", (100, 1)), tensor("y", (100,)), (100, 100))
    (found,) = both_broadcast(report)
    assert found.message == (
        "pred - y makes (100, 100) of (100, 1) and (100,): every value of one is combined with every value of the "
        "other, so the result is computed from 10\u00a0000 values instead of 100."
    )
    assert "`pred.squeeze(-1)`" in found.remedy
    assert found.evidence == {"left": "(100, 1)", "right": "(100,)", "result": "(100, 100)"}


def test_a_target_that_a_loss_stretches():
    """A note; the remedy names no expression that would be computed again."""
    given = tensor("net(x)", (8, 10)), tensor("y", (8, 1))
    (found,) = both_broadcast(seen("stretched", "mse_loss", operands=given, result=tensor("", (8, 10))))
    assert (found.severity, found.subject) == ("note", "y")
    assert found.message == (
        "mse_loss compares net(x) of shape (8, 10) with y of shape (8, 1): each value of y is compared with 10 values."
    )
    assert "`y.expand_as(prediction)`" in found.remedy


def test_operands_without_a_name_leave_the_call_s():
    """Where the line is not known in parts, the op is named, and no name is made up."""
    (found,) = both_broadcast(grew("mse_loss", tensor("", (4,)), tensor("", (4, 1)), (4, 4)))
    assert found.message.startswith("mse_loss makes (4, 4) of (4,) and (4, 1)")
    assert "`column.squeeze(-1)`" in found.remedy


def test_an_observation_without_a_line_is_not_told():
    """Whatever library code does for itself is nobody's fault here."""
    one = Observation(kind="both broadcast", op="sub", operands=(tensor(), tensor()), result=tensor())
    assert not list(both_broadcast(traced(one)))
