"""TM601 and TM602 of a look at a session: what is told of parameters that stand still, and when it is a note."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import UnchangedParameters, WatchReport

NAMES = tuple(f"net.{layer}.{kind}" for layer in ("body", "side", "head") for kind in ("weight", "bias"))
SIDE = UnchangedParameters(
    owner="net", optimizer="opt", held=True, names=NAMES, numels=(16, 4, 16, 4, 8, 2), unchanged=(2, 3),
    trained=(0, 1, 4, 5), watched=12, steps=40,
)  # fmt: skip
NO_PATH = "no path leads there from the loss"
SHARE = "(2 of the 6 parameters of net)"
STEPS = "opt steps 4 of the 6 parameters of net"


def told(**changed):
    """Return code, severity and sentence of what is found."""
    report = WatchReport(unchanged=(dataclasses.replace(SIDE, **changed),))
    return [(found.code, found.severity, found.message) for found in diagnose(report)]


def test_what_an_optimizer_holds_and_never_had_a_gradient_for():
    """The steps that were watched, the names at their shortest, and the share."""
    assert told() == [
        ("TM601", "warning", f"opt holds net.side and had no gradient for it in 12 steps: {NO_PATH} {SHARE}.")
    ]


def test_an_optimizer_that_does_not_count_its_steps():
    """Changes of the others are counted instead."""
    ((_, _, message),) = told(steps=0)
    assert "had no gradient for it while it changed others of net 12 times" in message


def test_before_it_was_watched_long_enough_it_is_a_note():
    """They may have been unfrozen a moment ago; the optimizer's own count is told then."""
    ((code, severity, message),) = told(watched=9)
    assert (code, severity) == ("TM601", "note")
    assert "in 40 steps" in message
    assert told(watched=9, steps=9) == told(watched=9, steps=0) == []


def test_modules_of_which_the_data_choose_are_a_note():
    """And what is not one of them is told apart."""
    assert [severity for _, severity, _ in told(alike=(2, 3))] == ["note"]
    assert [(severity, message.split(" and ")[0]) for _, severity, message in told(alike=(3,))] == [
        ("warning", "opt holds net.side.weight"),
        ("note", "opt holds net.side.bias"),
    ]


def test_what_gets_gradients_and_is_in_no_optimizer():
    """With the optimizer that trains the rest."""
    assert told(held=False) == [
        ("TM602", "warning", f"net.side gets gradients but is in no optimizer: {STEPS}, and nothing changes it.")
    ]
    assert told(held=False, watched=9) == []


@pytest.mark.parametrize(
    ("still", "trained", "severity"),
    [
        ((0, 1, 2, 3), (4, 5), "note"),  # the last layer alone is trained
        ((4, 5), (0, 1, 2, 3), "warning"),  # the last layer came later
        ((0, 1, 4, 5), (2, 3), "warning"),  # the larger half
        ((0, 1, 2, 4, 5), (3,), "note"),  # one bias in the midst of all
    ],
)
def test_what_is_often_meant_is_a_note(still, trained, severity):
    """By where the layers stand, and how much is left out."""
    assert [found[1] for found in told(held=False, unchanged=still, trained=trained)] == [severity]


def test_a_parameter_of_the_model_itself_is_no_first_layer():
    """It stands before all layers, wherever it is used."""
    names = ("net.temperature", *NAMES)
    found = told(held=False, names=names, numels=(1, *SIDE.numels), unchanged=(0,), trained=(1, 2, 3, 4, 5, 6))
    assert [severity for _, severity, _ in found] == ["warning"]


def test_remedies_are_code():
    """Numbers of layers in brackets; a parameter in a list, a module by its parameters."""
    names = tuple(name.replace("side", "2") for name in NAMES)
    remedies = [
        found.remedy
        for held, still in ((True, (2, 3)), (False, (2, 3)), (False, (3,)))
        for found in diagnose(
            WatchReport(unchanged=(dataclasses.replace(SIDE, names=names, held=held, unchanged=still),))
        )
    ]
    assert "`net[2].requires_grad_(False)`" in remedies[0]
    assert '`opt.add_param_group({"params": net[2].parameters()})`' in remedies[1]
    assert '`opt.add_param_group({"params": [net[2].bias]})`' in remedies[2]
