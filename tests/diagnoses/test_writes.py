"""TM201 to TM204 of watched writes: exact sentences and severities, by hand-made reports."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import ChangedName, Clash, Location, Write, WritesReport

LINE = Location("train.py", 7, "x -= x[:, :1]")


def changed(name="a", elements=3, of=12, **facts):
    return ChangedName(name, facts.pop("relation", "base"), "Tensor", (of,), elements, of, **{"noticed": True, **facts})


def findings(*besides, clash=None, target="b", op="add_", count=1, location=LINE, several=False):
    write = Write(location, op, target, (3,), count, several=several, changed=besides, clash=clash)
    return diagnose(WritesReport(state="finished", writes=(write,), writes_seen=count))


@pytest.mark.parametrize(
    ("besides", "message"),
    [
        ([changed()], "Writing to b changes 3 of the 12 elements of a."),
        ([changed(first=(0, 2))], "Writing to b changes 3 of the 12 elements of a, the first is a[0, 2]."),
        ([changed(elements=1, first=(2,))], "Writing to b changes 1 of the 12 elements of a, namely a[2]."),
        ([changed(elements=12, first=(0,))], "Writing to b changes all 12 elements of a."),
        ([changed(elements=None)], "Writing to b changes elements of a."),
        ([changed(certain=False, first=(1,))], "Writing to b changes at most 3 of the 12 elements of a."),
        ([changed(relation="same object", elements=12)], "Writing to b changes a, which is the same tensor."),
        ([changed(), changed("c")], "Writing to b changes a and c: 3 of the 12 elements of a."),
        ([changed(f"best['{at}']") for at in "xyz"], "Writing to b changes 3 tensors in best, such as best['x']."),
    ],
)
def test_another_name_is_a_note(besides, message):
    """Who, how much, and which first; three and more in one container are counted."""
    (found,) = findings(*besides)
    assert (found.code, found.severity, found.subject, found.location) == ("TM201", "note", "b", LINE)
    assert found.message == message
    assert found.evidence["op"] == "add_"


def test_how_often_a_loop_changed_it():
    """Of one tensor: in how many of its writes; of several: how often."""
    assert "of a, in 2 of 18 writes." in findings(changed(writes=2), count=18)[0].message
    assert "of a, in at least 2 of 18 writes." in findings(changed(writes=2, at_least=True), count=18)[0].message
    assert "of a, in 18 of 18 writes." in findings(changed(writes=18, at_least=True), count=18)[0].message
    assert "Writing to b and others changes" in findings(changed(writes=2), count=18, several=True)[0].message
    assert findings(changed(writes=2), count=18, several=True)[0].message.endswith("of a, 2 times.")
    through = findings(changed(writes=2, through="c", at_least=True), count=18, several=True)[0].message
    assert through.startswith("Writing to c changes")
    assert through.endswith("of a, at least 2 times.")


def test_notes_about_the_same_two_names_are_one():
    """It stands at the line that changed most, and says how many more lines did."""
    lines = [Location("train.py", number, "") for number in (1, 2, 3)]
    writes = (
        Write(lines[0], "add_", "net.mean", (1,), 1, changed=(changed("best['mean']"),)),
        Write(lines[1], "mul_", "net.w", (1,), 1, changed=(changed("best['w']"), changed("best['b']"))),
        Write(lines[2], "mul_", "x", (1,), 1, changed=(changed("y"),)),
    )
    first, second = diagnose(WritesReport(writes=writes))
    assert (first.location, second.location) == (lines[1], lines[2])
    assert first.message.endswith("(so does another line).")


@pytest.mark.parametrize(
    ("facts", "target", "remedy"),
    [
        ({}, "b", "write to a copy: `b = b.clone()`"),
        ({}, "net.w", "write to a copy: `net.w.clone()`"),
        ({"extent": "within"}, "b", "If a should keep its values, make it a copy from the start: `….clone()`"),
        ({"relation": "same storage"}, "b", "If a should keep its values"),
        (
            {"name": "best['w']"},
            "b",
            "If best should keep its values, make it a copy from the start: `copy.deepcopy(…)`",
        ),
    ],
)
def test_the_remedy_copies_what_was_made_from_the_other(facts, target, remedy):
    """A view of what was written to becomes the copy; a base is protected by writing to a copy."""
    assert remedy in findings(changed(**facts), target=target)[0].remedy


@pytest.mark.parametrize(
    ("besides", "words", "remedy"),
    [
        (changed("history", items=4), "4 items of history share one memory", "`history.append(b.detach().clone())`"),
        (changed(extent="crosses"), "the two overlap in part", "`b = b.clone()`"),
        (changed("b", relation="itself", noticed=False, saved=True), "without autograd noticing", "`.detach()`"),
    ],
)
def test_what_is_hardly_meant_is_a_warning(besides, words, remedy):
    """Snapshots that are none, slices that cross, and a graph that holds what changed unnoticed."""
    (found,) = findings(besides)
    assert (found.code, found.severity) == ("TM201", "warning")
    assert words in found.message
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "facts", [{"saved": True, "noticed": True}, {"saved": True, "noticed": None}, {"noticed": False}]
)
def test_what_autograd_may_notice_is_no_warning(facts):
    """Only a graph that holds it and a counter that surely is another one make a warning."""
    assert findings(changed(**facts))[0].severity == "note"


@pytest.mark.parametrize(
    ("clash", "code", "severity", "words"),
    [
        (Clash("reads what it writes", "x", 3, 12, 6, (1, 1), "5", "1"), "TM203", "error",
         "3 of the 12 elements that it writes in x: 6 elements come out wrong, the first x[1, 1] as 5 instead of 1."),
        (Clash("reads what it writes", "", 3, 12, 1, (1,), "5", "1"), "TM203", "error",
         "1 element comes out wrong, at [1] as 5 instead of 1."),
        (Clash("reads what it writes", "x", None, 12, 0), "TM203", "note", "this time the result is right"),
        (Clash("reads what it writes", "x", 3, 12), "TM203", "warning", "depends on the order"),
        (Clash("reads what it writes", "x", 3, 12, refused=True), "TM203", "error", "torch refuses that."),
        (Clash("overlaps itself", "x", 3, 12, 6, (0, 1), "3", "2"), "TM202", "warning",
         "several times (12 elements, 3 stored ones), and is written to in place: 6 elements come out"),
        (Clash("overlaps itself", "x", None, 12, refused=True), "TM202", "error", "several times, and is written to"),
        (Clash("repeats", "x", 12, 3), "TM202", "warning", "Writing 3 elements of x changes 12 of its elements"),
    ],
)  # fmt: skip
def test_memory_that_a_write_uses_twice(clash, code, severity, words):
    """Wrong is an error, refused too; right this time is a note; not compared a warning."""
    (found,) = findings(clash=clash, target="x")
    assert (found.code, found.severity) == (code, severity)
    assert words in found.message
    assert found.evidence["written"] == clash.of_elements


@pytest.mark.parametrize(
    ("text", "op", "remedy"),
    [
        ("x -= x[:, :1]", "sub_", "`x -= x[:, :1].clone()`"),
        ("x[:, 1:] = x[:, :-1]", "copy_", "`x[:, 1:] = x[:, :-1].clone()`"),
        ("x.sub_(x[:, :1])", "sub_", "`.clone()`"),
        ("x -= (x[0] +", "sub_", "`.clone()`"),
        ("torch.mm(x, x, out=x)", "mm, out=", "Leave out `out=`"),
    ],
)
def test_the_remedy_is_the_line_with_a_copy(text, op, remedy):
    """Of a simple assignment the whole line; else what to do."""
    clash = Clash("reads what it writes", "x", 3, 12, refused=True)
    assert remedy in findings(clash=clash, op=op, location=Location("train.py", 7, text))[0].remedy


def test_an_array_is_told_once():
    """One note an array, whichever tensors it is written through."""
    array = changed("n", relation="NumPy array", noticed=False)
    writes = tuple(Write(LINE, "add_", target, (3,), 1, changed=(array,)) for target in ("x", "y"))
    (found,) = diagnose(WritesReport(writes=writes))
    assert (found.code, found.severity) == ("TM204", "note")
    assert found.message == "Writing to x changes 3 of the 12 elements of n: the array shares the tensor's memory."
    assert "torch.tensor(n)" in found.remedy


def test_a_tensor_without_a_name():
    """What has no name is called so."""
    assert findings(changed(), target="")[0].message.startswith("Writing to a tensor without a name changes")
    assert "tensors without a name" in findings(changed(), target="", several=True)[0].message


def test_plain_writes_are_no_finding():
    """Nothing changed besides, nothing used twice."""
    assert findings() == ()
