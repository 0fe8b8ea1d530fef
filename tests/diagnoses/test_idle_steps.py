"""TM614 to TM618 on hand-made traces: shared layers, freezing, and steps that come to nothing."""

from __future__ import annotations

import dataclasses
from array import array

import pytest

from tensormagic.diagnoses import modules, steps
from tensormagic.reports import (
    Cell,
    Clipping,
    FlagWithoutEffect,
    Location,
    ModulesReport,
    OptimizerUse,
    ParameterSeries,
    RepeatedModule,
    StepPattern,
    TraceReport,
    Training,
    UntrainedNorm,
)


def run_of(*, parameters=(), clips=(), **facts):
    """Return a run in which optimizers stepped as these say; each of ``uses`` changes one of four steps."""
    pattern = StepPattern(kind="fresh", location=0, count=4, last=4, longest=4)
    given = [OptimizerUse(**{"name": "optimizer", "type_name": "Adam", "steps": 4, "patterns": (pattern,), **use})
             for use in facts.get("uses", ())]  # fmt: skip
    return TraceReport(
        title="net", state="finished", cell=Cell("train.py", None, ()), seconds=1.0, own_seconds=0.1, steps_seen=4,
        locations=(Location("train.py", 7, "optimizer.step()"),), parameters=tuple(parameters),
        training=Training(optimizers=tuple(given), optimizers_seen=len(given), clips=tuple(clips)),
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "number", "severity"), [("Adam", 4, "warning"), ("SGD", 4, "note"), ("Adam", 3, ""),
                                                         ("LBFGS", 5, "")])  # fmt: skip
def test_optimizers_made_anew(kind, number, severity):
    """Four of the same parameters with one step each; fewer may be stages, and LBFGS does its work in one step."""
    once = {"type_name": kind, "steps": 1, "holds": (0, 1)}
    found = list(steps.made_anew(run_of(uses=[once, *[{**once, "again": True}] * (number - 1)])))
    assert [(one.code, one.severity) for one in found] == ([("TM616", severity)] if severity else [])
    assert not list(steps.made_anew(run_of(uses=[once] * number))), "of another model of that name each time"


@pytest.mark.parametrize(("kind", "severity"), [("AdamW", "note"), ("SGD", "")])
def test_optimizers_made_anew_for_each_epoch(kind, severity):
    """Rounds of several steps may be meant; plain SGD has nothing to lose."""
    few = {"type_name": kind, "steps": 3, "holds": (0, 1), "again": True}
    found = list(steps.made_anew(run_of(uses=[few] * 5)))
    assert [(one.code, one.severity) for one in found] == ([("TM616", severity)] if severity else [])


@pytest.mark.parametrize(("zero_rate_steps", "told"), [(3, True), (2, False)])
def test_a_learning_rate_of_zero(zero_rate_steps, told):
    """Three steps in a row are no end of a schedule."""
    found = list(steps.parameters_not_updating(run_of(uses=[{"rate": 0.1, "zero_rate_steps": zero_rate_steps}])))
    assert [one.code for one in found] == ["TM617"] * told


@pytest.mark.parametrize(("lost", "severity"), [(0.99, "warning"), (0.7, "note"), (0.3, "")])
def test_updates_that_are_lost_in_rounding(lost, severity):
    """A share of them is a note; most weights in half precision lose some."""
    norms = array("f", [1.0] * 4)
    weight = ParameterSeries("net.weight", (4,), "bfloat16", 4, True, True, True, "net", norms, 4, norms, lost=lost)
    found = list(steps.parameters_not_updating(run_of(parameters=[weight], uses=[{"rate": 0.1, "holds": (0,)}])))
    assert [one.severity for one in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("counts", "says"),
    [({"late": 4}, "used the gradients already"), ({"empty": 4}, "no parameter had a gradient"),
     ({"exhausted": 3}, "3 of 4 calls"), ({"late": 3}, ""), ({"empty": 1}, ""), ({}, ""),
     ({"scaled": 3}, "GradScaler's factor in 3 of 4 calls"), ({"scaled": 2}, "")],
)  # fmt: skip
def test_clipping_in_vain(counts, says):
    """What happens in some calls only may be meant; a generator that is used up is not."""
    found = list(steps.clipping_without_effect(run_of(clips=[Clipping(location=0, calls=4, **counts)])))
    assert [one.code for one in found] == ["TM618"] * bool(says)
    assert all(says in one.message for one in found)


def with_modules(*lines, **facts):
    """Return a run whose modules hold what these say, and whose source has these lines."""
    report = dataclasses.replace(run_of(), cell=Cell("train.py", 3, lines))
    return dataclasses.replace(report, modules=ModulesReport(**facts))


def test_one_module_several_times():
    """The line is that which multiplies a list, where there is just one."""
    repeated = (RepeatedModule("net.blocks", "ModuleList", "Linear", 4, 2),)
    (found,) = modules.repeated_modules(with_modules("a = 1", "blocks = [layer] * 4", repeated=repeated))
    assert (found.code, found.severity, found.location.line) == ("TM614", "note", 2)
    assert found.remedy.endswith("`blocks = [copy.deepcopy(layer) for _ in range(4)]`")
    (found,) = modules.repeated_modules(with_modules("a = 1", "scores = [0] * 4", repeated=repeated))
    assert found.location is None or found.location.line != 2
    assert "`nn.ModuleList([make() for _ in range(4)])`" in found.remedy


@pytest.mark.parametrize(("optimized", "severity"), [(2, "warning"), (0, "note")])
def test_an_attribute_that_freezes_nothing(optimized, severity):
    """Proven where an optimizer has them."""
    flag = FlagWithoutEffect("net.0.requires_grad", "net.0", "requires_grad", is_module=True, asking=2,
                             optimized=optimized)  # fmt: skip
    (found,) = modules.flags_without_effect(with_modules("net[0].requires_grad = False", flags=(flag,)))
    assert (found.code, found.severity, found.location.line) == ("TM615", severity, 1)
    assert "`net[0].requires_grad_(False)`" in found.remedy


@pytest.mark.parametrize(("graphed", "told"), [(4, ["TM315"]), (3, []), (0, [])])
def test_gradients_that_keep_their_graph(graphed, told):
    """In every step, and nothing that differentiates them again."""
    report = run_of(uses=[{"graphed": graphed}])
    assert [found.code for found in steps.graphed_gradients(report)] == told
    assert list(steps.graphed_gradients(dataclasses.replace(report, inner_passes_seen=2))) == []
    assert list(steps.graphed_gradients(dataclasses.replace(report, passes_seen=8))) == []


@pytest.mark.parametrize(("asks", "touched", "told"), [(False, 0, ["TM619"]), (True, 0, []), (False, 3, [])])
def test_a_frozen_normalisation(asks, touched, told):
    """Frozen in the whole run; one that is frozen for another's step learns in its own."""
    norms = array("f", [-1.0] * 4)
    weight = ParameterSeries("net.bn.weight", (4,), "float32", 4, True, asks, False, "net", norms, touched)
    report = run_of(parameters=[weight], uses=[{}])
    drifting = (UntrainedNorm(module="net.bn", location=None, batches=4, longest=1),)
    report = dataclasses.replace(report, training=dataclasses.replace(report.training, drifting=drifting))
    assert [found.code for found in steps.drifting_norms(report)] == told
