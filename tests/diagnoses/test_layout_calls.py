"""Rules about what calls do with the layout of memory, on hand-made traces."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.layout_calls import HIDDEN_COPIES, HIDDEN_COPY, MOST_LINES, hidden_copy
from tensormagic.reports import Observation
from tests.diagnoses.samples_calls import LINE, seen, tensor, traced

COPIED = {"operands": (tensor("h", (8, 512, 64), stride=(32768, 1, 512)),), "result": tensor("", (8, 32768))}


def test_a_copy_is_told_with_its_bytes_calls_and_strides():
    """The numbers in the sentence are those of the observation, and the line is the person's."""
    report = seen("copy", "reshape", nbytes=4 * HIDDEN_COPY, calls=100, looked=8, seen=8, **COPIED)
    (found,) = hidden_copy(report)
    assert found.message == (
        "reshape copies 4 MiB in each of its 100 calls, 400 MiB in all: h, of shape (8, 512, 64) and strides "
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
