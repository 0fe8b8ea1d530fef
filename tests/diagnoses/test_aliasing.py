"""TM201 and TM202: exact sentences, by hand-made reports."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Alias
from tests.reports.samples import tensor_report


def alias(name, overlap="yes", *, elements=6, relation="same storage", shares_version=False):
    return Alias(name, relation, "Tensor", (4, 4), elements, 12, overlap, 0, shares_version)


def report(name="x", *aliases, **layout):
    plain = tensor_report()
    changed = dataclasses.replace(plain.layout, **{"internal_overlap": "no", **layout})
    return dataclasses.replace(plain, name=name, findings=(), statistics=None, aliases=aliases, layout=changed)


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ([alias("a")], "x shares memory with a: writing to x in place changes 6 of the 12 elements of a."),
        ([alias("a", elements=12)], "x shares memory with a: writing to x in place changes all 12 elements of a."),
        ([alias("a", elements=None)], "x shares memory with a: writing to x in place changes a."),
        (
            [alias("a", elements=1), alias("b"), alias("c", "no")],
            "x shares memory with a and b: writing to x in place changes 1 of the 12 elements of a.",
        ),
    ],
)
def test_a_write_changes_another_name(aliases, message):
    """A note with the names that overlap, and how much of the first one changes."""
    (found,) = diagnose(report("x", *aliases))
    assert (found.code, found.severity, found.subject) == ("TM201", "note", "x")
    assert found.message == message
    assert found.evidence["a"] == aliases[0].overlap_elements
    assert found.remedy.endswith("x = x.clone()")


@pytest.mark.parametrize(("version", "tracked", "expected"), [
    (0, False, []),
    (2, False, ["This memory has been written to 2 times so far."]),
    (2, True, []),
    (None, False, []),
])  # fmt: skip
def test_a_view_is_a_note_where_it_was_written_to(version, tracked, expected):
    """The panel's first line says "view of"; what an optimizer or an initialization wrote to a Parameter is no news."""
    view = report("b", alias("a", relation="base", shares_version=True))
    autograd = dataclasses.replace(view.autograd, requires_grad=tracked)
    found = diagnose(dataclasses.replace(view, version=version, autograd=autograd))
    assert [one.message.partition(" of a. ")[2] for one in found] == expected


def test_the_copy_of_an_expression():
    """What is no name cannot be bound again."""
    (found,) = diagnose(report("a[0]", alias("a")))
    assert found.remedy.endswith("a[0].clone()")


@pytest.mark.parametrize(
    "other", [alias("a", "no"), alias("a", "maybe"), alias("y", relation="same object"), alias("x._base")]
)
def test_what_is_no_sharing_of_names(other):
    """Separate elements, doubtful ones, a second name of the same object, the nameless base."""
    assert diagnose(report("x", other)) == ()


def test_a_tensor_that_overlaps_itself():
    """An expanded dimension: how many elements there really are, why, and what to write instead."""
    (found,) = diagnose(report("e", internal_overlap="yes", stride=(0, 1), distinct=3))
    assert (found.code, found.severity, found.subject) == ("TM202", "warning", "e")
    assert found.message == (
        "e repeats memory: its 6 elements are 3 stored elements, because the stride along i is 0; writing to it in "
        "place fails or gives wrong values."
    )
    assert found.evidence == {"elements": 6, "stored elements": 3}
    assert found.remedy == "Write to what it was made from, or to a full copy (24 B): e = e.clone()"


def test_overlap_without_a_zero_stride():
    """Windows of as_strided overlap although no stride is zero."""
    (found,) = diagnose(report("w", internal_overlap="yes", stride=(1, 1), distinct=4))
    assert "because its strides map several indices to one element" in found.message


def test_no_layout_no_finding():
    """A tensor without strides has neither."""
    assert diagnose(dataclasses.replace(report("x", alias("a")), layout=None)) == ()
