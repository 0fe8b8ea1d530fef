"""TM319 of hand-made reports: exact sentences, severities, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Location, RepeatedHook
from tests.diagnoses import samples

DEFINED = Location("train.py", 3, "def halve(g):", None, "halve")
REGISTERED = Location("train.py", 9, "p.register_hook(halve)")
HALVE = RepeatedHook(
    kind="tensor", function="halve", on=("net.0.weight",), targets=1, times=3, changes=True, location=DEFINED,
    registered=REGISTERED,
)  # fmt: skip


def found_of(*hooks, steps=3):
    return diagnose(replace(samples.run(), hooks=hooks, steps_seen=steps))


def test_a_hook_that_changes_gradients_is_a_warning_at_the_line_that_registers_it():
    """Gradients are other than they should be."""
    (found,) = found_of(HALVE)
    assert (found.code, found.severity, found.subject, found.location) == (
        "TM319",
        "warning",
        "net.0.weight",
        REGISTERED,
    )
    assert (
        found.message == "net.0.weight has the tensor hook `halve` 3 times: what it does to a gradient is done 3 times."
    )
    assert found.remedy == (
        "Register it once; before the cell runs again, remove the last one: "
        "`handle = net[0].weight.register_hook(halve)`, then `handle.remove()`. Made anew, the tensor has none."
    )
    assert [(line.what, line.location) for line in found.related] == [("the hook", DEFINED)]


def test_a_hook_that_keeps_is_a_note_where_it_is_defined():
    """It costs time, and keeps things twice."""
    hook = replace(HALVE, kind="forward", on=("net.0", "net.1"), targets=2, times=2, changes=False, registered=None)
    (found,) = found_of(hook)
    assert (found.severity, found.location, found.related) == ("note", DEFINED, ())
    assert found.message == "net.0 and net.1 each have the forward hook `halve` twice: it is called twice in each call."
    assert "Made anew, the module has none." in found.remedy


def test_a_hook_of_every_step_is_told_as_such():
    """The remedy is another, too."""
    hook = replace(HALVE, on=("a", "b", "c", "d"), targets=9, times=3, grown=2)
    (found,) = found_of(hook)
    assert found.message == (
        "a, b, c and 6 more each have the tensor hook `halve` 3 times, since each step registers it again: what it "
        "does to a gradient is done 3 times."
    )
    assert found.remedy.startswith(
        "Register it once, before the loop; or remove it when the step is over: `handle = a."
    )


@pytest.mark.parametrize(("grown", "steps", "codes"), [(2, 3, ["TM319"]), (1, 2, []), (2, 9, []), (0, 3, [])])
def test_hooks_of_different_values_are_told_where_each_step_added_one(grown, steps, codes):
    """Several at the start may be meant."""
    hook = replace(HALVE, function="<lambda>", same=False, grown=grown)
    found = found_of(hook, steps=steps)
    assert [one.code for one in found] == codes
    for one in found:
        assert one.message == (
            "net.0.weight has 3 tensor hooks `lambda`, since each step registers one more: all of them are called."
        )
        assert "`handle = net[0].weight.register_hook(…)`" in one.remedy
