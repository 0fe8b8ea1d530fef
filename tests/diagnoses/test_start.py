"""Questions before a training: what is said of hand-made facts."""

from __future__ import annotations

import math

import pytest

from tensormagic.diagnoses.start import probes_of
from tensormagic.reports import Extent, Overfit, StartReport


def state(question, **facts):
    """Return what is said to a question; empty where it is not asked."""
    probes = probes_of(StartReport(**{"model": "net", "parameters": 4, "trainable": 4, **facts}))
    return next((probe.state for probe in probes if probe.question == question), "")


def numbers(**facts):
    return Extent(**{"shape": (8, 4), "dtype": "float32", "low": -1.0, "high": 1.0, "mean": 0.0, "std": 1.0, **facts})


@pytest.mark.parametrize(
    ("facts", "said"),
    [({"missing": ()}, "fine"), ({"missing": ("a",)}, "look"), ({"missing": ("a",) * 4, "unknown_parameters": 4},
      "wrong"), ({"missing": (), "trainable": 0}, "wrong"), ({}, "")],
)  # fmt: skip
def test_optimizers(facts, said):
    """One that holds nothing of the model is wrong; one that lacks some may be meant so."""
    assert state("optimizer", **facts) == said


@pytest.mark.parametrize(
    ("x", "said"),
    [(numbers(), "fine"), (numbers(std=11.0), "look"), (numbers(mean=-11.0), "look"), (numbers(bad=1), "wrong"),
     (numbers(low=1.0), "look"), (numbers(low=None, high=None), "unknown"), (numbers(dtype="int64", std=900), "fine")],
)  # fmt: skip
def test_inputs(x, said):
    """Floating-point inputs have a scale, numbers of words have none."""
    assert state("inputs", inputs=(x,)) == said


@pytest.mark.parametrize(
    ("value", "expected", "said"),
    [(2.3, 2.3, "fine"), (9.0, 2.3, "look"), (0.1, 2.3, "fine"), (math.nan, 2.3, "wrong"), (5.0, None, "fine"),
     (0.4, 0.1, "fine"), (None, None, "")],
)  # fmt: skip
def test_the_initial_loss(value, expected, said):
    """Lower than expected is a model that knows something; a little higher is chance."""
    assert state("initial loss", value=value, expected=expected) == said


@pytest.mark.parametrize(
    ("tried", "said"),
    [(Overfit(8, 50, 2.0, 0.01), "fine"), (Overfit(8, 50, 2.0, 1.2), "fine"), (Overfit(8, 50, 2.0, 1.9), "look"),
     (Overfit(8, 5, 2.0, 1.9), "unknown"), (Overfit(8, 32, 2.0, 1.7), "unknown"), (Overfit(8, 50, 2.0, 1.7), "look"),
     (Overfit(8, 32, 2.0, 1.9), "look"), (Overfit(8, 50, -1.0, -4.0), "fine"), (None, "")],
)  # fmt: skip
def test_learning_by_heart(tried, said):
    """A loss that still falls is on its way; too few steps tell nothing; a loss may be negative."""
    assert state("overfits", overfit=tried) == said


@pytest.mark.parametrize(
    ("facts", "said"),
    [({"bad_gradient": ("a",)}, "wrong"), ({"zero_gradient": ("a",)}, "look"), ({}, "fine"),
     ({"without_gradient": ("a",)}, "look"), ({"without_gradient": None}, "")],
)  # fmt: skip
def test_gradients(facts, said):
    """NaN, none, zero, or all there."""
    assert state("gradients", **{"without_gradient": (), **facts}) == said
