"""TM309, TM310, TM607: exact sentences, and what is left alone, by hand-made patterns of steps."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Accumulation, Cell, OptimizerUse, StepPattern, Training
from tests.diagnoses.samples import CALL, LINES, parameter, run

BACKWARD, STEP, CLEARED = 7, 4, 3


def trained(*patterns, steps=None, count=6, **more):
    """Return a run in which one optimizer stepped in these patterns."""
    steps = sum(pattern.count for pattern in patterns) if steps is None else steps
    use = OptimizerUse(name="optimizer", type_name="SGD", steps=steps, patterns=patterns, **more)
    report = run(parameters=[parameter("net.weight", [1.0] * count)], count=count)
    return dataclasses.replace(report, training=Training(optimizers=(use,), optimizers_seen=1))


def pattern(kind, count=1, **more):
    facts = {"location": STEP, "backward": BACKWARD, "last": count, "longest": count, **more}
    return StepPattern(kind=kind, count=count, **facts)


def test_gradients_that_accumulate():
    """Sentence, both lines, numbers and remedy."""
    grown = Accumulation(0, 2, 0.5, 6, 12.25, 1.5)
    report = trained(pattern("fresh"), pattern("accumulated", 5, first=2, last=6), accumulation=grown)
    (found,) = diagnose(report)
    assert (found.code, found.severity, found.subject) == ("TM309", "warning", "optimizer")
    assert found.message == (
        "optimizer steps on gradients that were not zeroed: in 5 of its 6 steps, they included what an earlier step "
        "had already used; the norm of net.weight.grad grew from 0.5 to 12.2, the last pass alone gave 1.5."
    )
    assert found.location == LINES[STEP]
    assert [line.location for line in found.related] == [CALL]
    assert found.evidence == {"steps": 6, "of these": 5, "first": 2}
    assert found.remedy == "Zero them once per step, before the backward: `optimizer.zero_grad()`"


def test_what_the_last_pass_alone_brought():
    """Nothing old is in a gradient of the same norm: it was replaced."""
    replaced = Accumulation(0, 2, 0.5, 6, 6.381, 6.3812)
    report = trained(pattern("fresh"), pattern("accumulated", 5, first=2, last=6), accumulation=replaced)
    assert diagnose(report) == ()


def test_an_update_by_hand_that_accumulates():
    """It is about the leaf, and stands at the backward: the line of the update is not known."""
    use = OptimizerUse(name="", type_name="", steps=3, patterns=(pattern("accumulated", 3, location=None),), holds=(0,))
    report = run(parameters=[parameter("w", [1.0] * 4)], count=4)
    (found,) = diagnose(dataclasses.replace(report, training=Training(by_hand=use)))
    assert found.message == (
        "w.grad is not zeroed between updates: in 3 of 3 updates, it included what an earlier update had already used."
    )
    assert (found.location, found.related) == (CALL, ())
    average = dataclasses.replace(use, follows=True)
    assert diagnose(dataclasses.replace(report, training=Training(by_hand=average))) == ()


@pytest.mark.parametrize(("call", "closed"), [("optimizer.step(closure)", True), ("scaler.step(optimizer)", False)])
def test_a_closure_that_adds_up(call, closed):
    """What it has to begin with is said where the step is given one."""
    report = trained(pattern("accumulated", 6))
    there = enumerate(report.locations)
    lines = [dataclasses.replace(line, text=call if at == STEP else line.text) for at, line in there]
    (found,) = diagnose(dataclasses.replace(report, locations=tuple(lines)))
    assert ("an earlier call of the closure had brought" in found.message) == closed
    assert ("begin it with `optimizer.zero_grad()`" in found.remedy) == closed


@pytest.mark.parametrize(
    "patterns",
    [
        (pattern("fresh", 6),),
        (pattern("fresh", 5), pattern("accumulated", first=3, last=3)),
        (pattern("fresh", 3, longest=1, last=5), pattern("accumulated", 3, first=2, last=6, longest=1)),
        (pattern("inside", 6),),
        (pattern("unseen", 6),),
        (pattern("idle", 6),),
    ],
    ids=["fresh", "once", "every other", "closure", "unseen", "idle"],
)
def test_what_is_no_habit_or_not_known_is_not_reported(patterns):
    """Accumulating takes two steps in a row."""
    assert diagnose(trained(*patterns)) == ()


def test_two_patterns_in_turn_are_in_a_row():
    """One epoch's line, then another's: step after step all the same."""
    odd = pattern("accumulated", 3, first=1, last=5, longest=1)
    even = pattern("accumulated", 3, first=2, last=6, longest=1, location=5)
    assert [found.code for found in diagnose(trained(odd, even))] == ["TM309"]


def test_gradients_cleared_before_the_step():
    """It stands where they were cleared, where that is known; else at the step."""
    (found,) = diagnose(trained(pattern("emptied", 6, cleared=CLEARED)))
    assert (found.code, found.severity) == ("TM310", "error")
    assert found.message == (
        "optimizer steps without gradients, in all of its 6 steps: they were zeroed between the backward and the "
        "step, so nothing is learned."
    )
    assert found.location == LINES[CLEARED]
    assert [(line.what, line.location) for line in found.related] == [
        ("brings the gradients", CALL), ("steps without them", LINES[STEP])
    ]  # fmt: skip
    (unknown,) = diagnose(trained(pattern("emptied", 6)))
    assert (unknown.location, [line.location for line in unknown.related]) == (LINES[STEP], [CALL])


def test_gradients_cleared_before_some_steps():
    """A warning where it is so in steps in a row; once among others is left alone, and alone it is not."""
    (found,) = diagnose(trained(pattern("idle"), pattern("emptied", 5, first=2, last=6)))
    assert (found.severity, "in 5 of its 6 steps" in found.message) == ("warning", True)
    assert diagnose(trained(pattern("fresh", 5), pattern("emptied", first=4, last=4))) == ()
    assert [found.severity for found in diagnose(trained(pattern("emptied")))] == ["error"]


def test_a_second_step_on_the_same_gradients():
    """Both lines: that of the step too many, and that of the step before."""
    first = pattern("fresh", 3, last=5, longest=1)
    again = pattern("repeated", 3, first=2, last=6, longest=1, location=5)
    (found,) = diagnose(trained(first, again))
    assert (found.code, found.severity) == ("TM607", "warning")
    assert found.message == (
        "optimizer stepped again on the same gradients, 3 times in 6 steps: no backward ran since the step before."
    )
    assert found.location == LINES[5]
    assert [line.location for line in found.related] == [LINES[STEP]]


def test_one_step_too_many_at_the_end_of_many_is_left_alone():
    """The last, incomplete round of gradient accumulation is often stepped whether or not there is one."""
    assert diagnose(trained(pattern("fresh", 9), pattern("repeated", first=10, last=10))) == ()


def test_steps_without_any_backward():
    """An error where there was a forward before each step, and not a single pass; one step alone is left alone."""
    (found,) = diagnose(trained(pattern("without", 4), count=0))
    assert (found.code, found.severity) == ("TM607", "error")
    assert found.message == (
        "optimizer stepped 4 times, and no backward has run: there are no gradients, so nothing is learned."
    )
    assert diagnose(trained(pattern("without"), count=0)) == ()
    assert diagnose(trained(pattern("without", 4), count=1)) == ()
    assert diagnose(trained(pattern("without", 4), pattern("fresh"), count=0)) == ()


def of_cell(*lines):
    """Return a run of a cell with these lines below its magic, one of which called backward."""
    at = next(at for at, text in enumerate(lines, 2) if "backward()" in text)
    places = (*LINES[:-1], dataclasses.replace(LINES[-1], filename="cell", line=at))
    return dataclasses.replace(run(count=1), cell=Cell("cell", 3, ("%%tracegrad", *lines)), locations=places)


def test_a_method_that_is_not_called():
    """The place is the line's, in a cell that has a magic above it; beside another statement, too."""
    (found,) = diagnose(of_cell("net.eval", "loss.backward(); scheduler.step"))
    assert found.message == "`net.eval` names the method without calling it, so the mode does not change."
    assert (found.location.line, found.location.cell, found.location.text) == (2, 3, "net.eval")
    assert (found.remedy, found.fix) == ("`net.eval()`", "net.eval()")
    (found,) = diagnose(of_cell("x = 1; opt.step; y = 2", "loss.backward()"))
    assert found.fix == "x = 1; opt.step(); y = 2"


@pytest.mark.parametrize(
    "lines",
    [("net.eval",), ("def later():", "    net.eval"), ("print(net.eval)",), ("net.training", "1"), ("net.eval(",),
     ('"""', "net.eval", '"""')],
)  # fmt: skip
def test_methods_that_are_named_on_purpose(lines):
    """The value of the cell, code that did not run, an argument, another attribute, no code, a string."""
    assert diagnose(of_cell("loss.backward()", *lines)) == ()
