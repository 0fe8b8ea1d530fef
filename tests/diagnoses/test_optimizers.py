"""TM602, TM604: exact sentences, and what is left alone, by hand-made optimizers."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import UNTOUCHED, Graph, OptimizerUse, Schedule, StepPattern, StepSampling, Training
from tests.diagnoses.samples import LINES, leaf, op, parameter, run

NAMES = ("net.body.weight", "net.body.bias", "net.head.weight", "net.head.bias")


def optimizer(*holds, kind="fresh", **more):
    pattern = StepPattern(kind=kind, location=4, backward=7, count=3, last=3, longest=3)
    return OptimizerUse(name="optimizer", type_name="SGD", steps=3, patterns=(pattern,), holds=holds, **more)


def trained(*optimizers, parameters=None, elsewhere=(), **more):
    """Return a run of a body and a head that these optimizers stepped."""
    rows = parameters or [parameter(name, [1.0] * 3) for name in NAMES]
    report = run(*more.pop("graphs", ()), parameters=rows, count=3)
    training = Training(optimizers=optimizers, optimizers_seen=len(optimizers), elsewhere=elsewhere)
    return dataclasses.replace(report, training=training, **more)


def test_a_part_that_no_optimizer_holds():
    """Sentence, line, numbers and remedy."""
    (found,) = diagnose(trained(optimizer(0, 1)))
    assert (found.code, found.severity, found.subject) == ("TM602", "warning", "net.head.weight")
    assert found.message == (
        "net.head gets gradients but is in no optimizer: optimizer steps 2 of the 4 parameters of net."
    )
    assert found.location == LINES[4]
    assert found.evidence == {"without an optimizer": 2, "stepped": 2, "held but unused": 0}
    assert '`optimizer.add_param_group({"params": net.head.parameters()})`' in found.remedy


def test_a_part_that_was_replaced():
    """The optimizer holds what was there before: both sides in one finding, and it is told once."""
    (found,) = diagnose(trained(optimizer(0, 1, unknown_parameters=2, unknown_shapes=((4, 4), (4,)))))
    assert found.code == "TM602"
    assert found.message.endswith("of net, and still holds 2 parameters that no model uses any more.")
    assert (
        found.remedy == "Make the optimizer when the model is final: `optimizer = torch.optim.SGD(net.parameters(), …)`"
    )


@pytest.mark.parametrize(
    ("more", "holds"),
    [
        ({}, (0, 1, 2, 3)),
        ({"elsewhere": (2, 3)}, (0, 1)),
        ({"elsewhere": None}, (0, 1)),
        ({"sampling": StepSampling(Schedule(every=2), passes=2)}, (0, 1)),
        ({"parameters": [parameter(name, [1.0, 1.0, 1.0 if "body" in name else UNTOUCHED], owner=name[:8])
                         for name in NAMES]}, (0, 1)),
        ({"parameters": [parameter(name, [1.0] * 3, requires_grad="body" in name) for name in NAMES]}, (0, 1)),
        ({"parameters": [parameter(name, [1.0 if "body" in name else UNTOUCHED] * 3, used=True) for name in NAMES]},
         (0, 1)),
    ],
    ids=["all held", "trained elsewhere", "still running", "not all traced", "two models", "frozen", "no gradient"],
)  # fmt: skip
def test_what_is_trained_or_not_known_is_not_reported(more, holds):
    """Other optimizers, updates by hand, runs that go on, steps that were not traced, other models."""
    assert diagnose(trained(optimizer(*holds), **more)) == ()


def test_a_whole_model_that_no_optimizer_holds_is_a_note():
    """It gets a gradient whenever the one that is stepped does."""
    both = [parameter(name, [1.0] * 3, owner=name[:8]) for name in NAMES]
    (found,) = diagnose(trained(optimizer(0, 1), parameters=both))
    assert (found.code, found.severity, found.subject) == ("TM602", "note", "net.head.weight")
    assert found.message.startswith("net.head gets gradients in every step, but none of its 2 parameters is in an")


def test_training_the_last_layers_alone_is_a_note():
    """Where every parameter without an optimizer comes before those with one."""
    nodes = (leaf(0, NAMES[0]), leaf(1, NAMES[1]), op(2, "mm"), leaf(3, NAMES[2]), leaf(4, NAMES[3]), op(5, "mm"))
    (found,) = diagnose(trained(optimizer(2, 3), graphs=(Graph(1, nodes, ()),)))
    assert (found.severity, found.subject) == ("note", "net.body.weight")
    assert "`net.body.requires_grad_(False)`" in found.remedy


def test_a_small_part_that_is_trained_is_a_note():
    """Adapters between layers that nobody froze."""
    rows = [parameter("net.a", [1.0] * 3, shape=(99, 9)), parameter("net.adapter", [1.0] * 3, shape=(3, 3))]
    (found,) = diagnose(trained(optimizer(1), parameters=rows))
    assert found.severity == "note"


def test_an_optimizer_of_what_is_gone():
    """It is the old model where the shapes are those of the one that is trained."""
    (found,) = diagnose(trained(optimizer(kind="idle", unknown_parameters=4, unknown_shapes=((4, 4),))))
    assert (found.code, found.severity, found.subject) == ("TM604", "error", "optimizer")
    assert found.message == (
        "optimizer steps 4 parameters that never had a gradient and that no model which ran uses; 4 parameters of net "
        "get gradients and are in no optimizer, although their shapes are the same: the model was made again or "
        "copied afterwards."
    )
    assert found.location == LINES[4]
    assert "`torch.optim.SGD(net.parameters(), …)`" in found.remedy


@pytest.mark.parametrize(("last", "codes"), [("idle", ["TM604"]), ("fresh", [])])
def test_an_optimizer_of_what_was_made_anew_in_the_run(last, codes):
    """Its first steps learned; what counts is whether the last ones had gradients."""
    first = StepPattern(kind="fresh", location=4, backward=7, count=3, first=1, last=3, longest=3)
    after = StepPattern(kind=last, location=4, backward=7, count=3, first=4, last=6, longest=3)
    more = {"outlived": (0, 1, 2, 3), "unknown_parameters": 4, "unknown_shapes": ((4, 4),)}
    use = dataclasses.replace(optimizer(0, 1, 2, 3, **more), steps=6, patterns=(first, after))
    found = diagnose(trained(use))
    assert [each.code for each in found] == codes
    assert all(
        "optimizer steps 4 parameters that no model has any more; 4 parameters of" in each.message for each in found
    )


@pytest.mark.parametrize(
    "use",
    [
        optimizer(kind="idle", unknown_parameters=4, unknown_idle=False),
        optimizer(kind="fresh", unknown_parameters=4, unknown_shapes=((4, 4),)),
        optimizer(kind="idle", unknown_parameters=1, unknown_shapes=((1, 8, 8),)),
        optimizer(0, 1, 2, 3, kind="idle"),
    ],
    ids=["had gradients", "stepped on gradients", "an image", "theirs"],
)
def test_an_optimizer_that_rests_is_left_alone(use):
    """Of a network that is not asked just now, or of parameters that the tracer knows no model of."""
    assert [found.code for found in diagnose(trained(use))] == []


def test_an_old_model_that_still_has_a_name():
    """Its parameters are known, but it did not run."""
    old = [parameter(f"old.{name}", [UNTOUCHED] * 3, owner="old") for name in ("weight", "bias")]
    rows = [*(parameter(name, [1.0] * 3) for name in NAMES), *old]
    (found,) = diagnose(trained(optimizer(4, 5, kind="idle"), parameters=rows))
    assert (found.code, found.severity, found.evidence["held"]) == ("TM604", "error", 2)
    small = [dataclasses.replace(series, shape=(2,)) for series in old]
    (other,) = diagnose(trained(optimizer(4, 5, kind="idle"), parameters=[*rows[:4], *small]))
    assert other.severity == "warning"
