"""TM601: exact sentences and what is left alone, by hand-made parameters."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import UNTOUCHED, Graph, OptimizerUse, StepPattern, Training
from tests.diagnoses.samples import CALL, LINES, op, parameter, run


def net(*missing, got=("net.head.weight",), count=1, **more):
    got_some = [parameter(name, [1.0] * count) for name in got]
    return run(parameters=[*got_some, *(parameter(name, [UNTOUCHED] * count, **more) for name in missing)], count=count)


def test_a_parameter_without_a_gradient():
    """Code, severity, sentence, line, numbers and remedy."""
    (found,) = diagnose(net("net.scale", count=3))
    assert (found.code, found.severity) == ("TM601", "warning")
    assert found.message == (
        "net.scale gets no gradient in 3 backward passes: no path leads there from the loss (1 of the 2 parameters "
        "of net)."
    )
    assert found.location == CALL
    assert found.evidence == {"net.scale": 16}
    assert "requires_grad_(False)" in found.remedy
    assert found.subject == "net.scale"


@pytest.mark.parametrize(
    ("missing", "got", "opening"),
    [
        (["net.b.weight", "net.b.bias"], ["net.a.weight"], "net.b gets no gradient in 1 backward pass:"),
        (["net.b.weight"], ["net.b.bias"], "net.b.weight gets"),
        (["net.b.weight", "net.c"], ["net.a"], "net.b.weight and net.c get"),
        (["net.b.0.weight", "net.b.0.bias", "net.b.1.weight"], ["net.a"], "net.b gets"),
        (["net.b.0.weight", "net.b.0.bias"], ["net.b.1.weight"], "net.b.0 gets"),
        ([f"net.w{at}" for at in range(6)], ["net.a"], "net.w0, net.w1, net.w2, net.w3 and 2 more get"),
    ],
)
def test_whole_modules_are_named_as_such(missing, got, opening):
    """A module that misses all it has is named once, as far out as that holds; a long list is cut."""
    (found,) = diagnose(net(*missing, got=got))
    assert found.message.startswith(opening)


@pytest.mark.parametrize(
    "facts", [{"requires_grad": False}, {"is_parameter": False}, {"used": True}], ids=["frozen", "plain", "reachable"]
)
def test_what_is_meant_is_not_reported(facts):
    """Frozen parameters, plain tensors, and leaves that a graph leads to."""
    assert diagnose(net("net.scale", **facts)) == ()


def test_a_model_that_no_backward_reached_is_not_reported():
    """In adversarial training one network's step leaves the other alone."""
    other = parameter("generator.weight", [UNTOUCHED], owner="generator")
    report = net()
    assert diagnose(dataclasses.replace(report, parameters=(*report.parameters, other))) == ()


def test_each_model_has_its_own_finding():
    """Two models with a forgotten parameter each give two findings, in order of appearance."""
    own = [parameter("a.used", [1.0], owner="a"), parameter("a.left", [UNTOUCHED], owner="a")]
    other = [parameter("b.used", [1.0], owner="b"), parameter("b.left", [UNTOUCHED], owner="b")]
    assert [found.subject for found in diagnose(run(parameters=own + other))] == ["a.left", "b.left"]


def test_reentrant_checkpointing_hides_its_parameters():
    """With a backward inside a backward nobody can say which parameters got none."""
    node = dataclasses.replace(op(0, "CheckpointFunction"), name="CheckpointFunctionBackward")
    report = dataclasses.replace(net("net.block.weight"), graphs=(Graph(1, (node,), ()),))
    assert diagnose(report) == ()


def stepped(*kinds, holds=(0, 1), touched=UNTOUCHED, **more):
    """Return a run in which an optimizer made three steps of each of these kinds; a plain leaf got the gradient."""
    rows = [parameter(f"base.{name}", [touched] * 3, owner="base") for name in ("weight", "bias")]
    rows.append(parameter("leaf (3, 3)", [1.0] * 3, owner="", is_parameter=False))
    patterns = tuple(StepPattern(kind=kind, location=4, count=3) for kind in kinds)
    use = OptimizerUse(name="opt", type_name="Adam", steps=3 * len(kinds), patterns=patterns, holds=holds, **more)
    report = run(parameters=rows, count=3)
    return dataclasses.replace(report, training=Training(optimizers=(use,), optimizers_seen=1))


def test_an_optimizer_that_steps_with_nothing():
    """Its name, its steps, the model that it holds, and the line of the step."""
    (found,) = diagnose(stepped("idle"))
    assert (found.code, found.severity, found.subject, found.location) == ("TM601", "warning", "base", LINES[4])
    assert found.message == (
        "opt makes 3 steps, but no parameter of base has a gradient at any of them: 3 backward passes reached none of "
        "the 2 "
        "parameters that it holds."
    )


@pytest.mark.parametrize(
    "facts",
    [
        {"kinds": ("idle", "fresh")},
        {"kinds": ("emptied",)},
        {"touched": 1.0},
        {"unknown_parameters": 1},
        {"left_out": 2},
    ],
    ids=str,
)
def test_an_optimizer_that_had_gradients_or_other_things_is_left_alone(facts):
    """One step with gradients, gradients that were cleared, what was reached, what is not known."""
    assert "TM601" not in {found.code for found in diagnose(stepped(*facts.pop("kinds", ("idle",)), **facts))}
