"""TM302, TM307 and TM311 of hand-made reports: exact sentences, and the readings and writes that are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Location
from tensormagic.reports.failure import GradientRead, ModifiedSavedTensor, OverwrittenGradient, SavedWrite, SilentErrors
from tests.diagnoses import samples

MADE = Location("train.py", 3, "q = w.pow(2)")
WRITE = Location("train.py", 4, "w.data.mul_(10)")
CALL = Location("train.py", 9, "q.sum().backward()")
SPOILT = ModifiedSavedTensor(
    op="pow", slot="self", name="w", shape=(3,), location=MADE, backward=CALL,
    writes=(SavedWrite(call="mul_", kind="data", location=WRITE, version=1),), writes_seen=1,
)  # fmt: skip
READ = GradientRead(
    name="h", op="tanh", shape=(5, 4), location=Location("train.py", 12, "print(h.grad)"), made=MADE, passes=1
)


def findings(*unseen, reads=()):
    return diagnose(replace(samples.run(), silent_errors=SilentErrors(unseen, reads)))


def test_an_unseen_write_is_an_error_with_all_three_lines():
    """On the line that wrote; saved and gone through by the lines beside it."""
    (found,) = findings(SPOILT)
    assert (found.code, found.severity, found.subject, found.location) == ("TM302", "error", "w", WRITE)
    assert found.message == (
        "w was changed by `w.data.mul_(10)` after pow had saved it for backward, and `.data` hides that from autograd: "
        "the gradients that came through pow are wrong."
    )
    assert [(line.what, line.location) for line in found.related] == [("saved by pow", MADE), ("backward", CALL)]


def test_what_one_line_changed_is_one_finding():
    """A loop over the parameters changes many tensors on one line."""
    (found,) = findings(SPOILT, replace(SPOILT, name="v"), replace(SPOILT, name="u"))
    assert found.message.startswith("w (and 2 other tensors) was changed by")
    assert found.evidence["tensors"] == 3


def test_a_reading_of_a_non_leaf_is_a_warning_with_the_line_that_made_it():
    """What made it, and what to call before backward."""
    (found,) = findings(reads=(READ,))
    assert (found.code, found.severity, found.subject) == ("TM307", "warning", "h")
    assert found.message == (
        "The .grad of h is read and is None: it is not a leaf, tanh made it, and torch keeps .grad only for leaves."
    )
    assert found.remedy == "Ask for it before backward: `h.retain_grad()`."
    assert [line.location for line in found.related] == [MADE]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"leaf": "u", "single": True}, "`u.grad`"),
        ({"single": True}, "`h = h.detach().requires_grad_()`"),
        ({"count": 3}, "(3 times)"),
        ({"name": ""}, "The .grad of q is read"),
        ({"name": "", "made": None}, "The .grad of a tensor (5, 4) is read"),
    ],
)
def test_what_is_known_of_it_is_told(changes, words):
    """The leaf it was made from, how often, its name from the line that made it."""
    (found,) = findings(reads=(replace(READ, **changes),))
    assert words in f"{found.message} {found.remedy}"


def test_before_any_backward_it_is_a_note():
    """Then `.grad` is None of a leaf as well."""
    (found,) = findings(reads=(replace(READ, passes=0),))
    assert found.severity == "note"


@pytest.mark.parametrize(
    "line",
    [
        "if h.grad is not None:",
        "grads = [t.grad for t in (h, x) if t.grad is not None]",
        "assert h.grad is None",
        'value = getattr(h, "grad", None)',
        "if h.grad:",
        "while not self.h.grad:",
    ],
)
def test_a_line_that_only_asks_is_left_alone(line):
    """It expects that there may be none."""
    assert findings(reads=(replace(READ, location=Location("train.py", 12, line)),)) == ()


def test_nothing_seen_is_nothing_found():
    """The field is None in most runs."""
    assert diagnose(replace(samples.run(), silent_errors=None)) == ()


OVERWRITTEN = OverwrittenGradient(
    function="Sign", argument="g", location=Location("train.py", 7, "g[x.abs() > 1] = 0"), applied=MADE, passes=3
)


@pytest.mark.parametrize("line", ["g[x.abs() > 1] = 0", "g.mul_("])
def test_a_backward_that_writes_into_what_others_hold_is_a_note_where_nobody_knows_them(line):
    """The line that copies first stands before it, where that is code."""
    one = replace(OVERWRITTEN, location=replace(OVERWRITTEN.location, text=line))
    (found,) = diagnose(replace(samples.run(), silent_errors=SilentErrors(overwritten=(one,))))
    assert (found.code, found.severity, found.subject, found.node) == ("TM311", "note", "Sign", None)
    assert found.message == (
        "Sign.backward changes g, the gradient that it is given, in place: something else holds the same tensor, and "
        "with it the change."
    )
    assert found.remedy == "Change a copy: `g = g.clone()` before it."
    assert found.fix == (f"g = g.clone()\n{line}" if line.endswith("0") else "")
