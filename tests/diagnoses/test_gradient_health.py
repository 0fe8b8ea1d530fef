"""TM403 and TM404: exact sentences and thresholds, by hand-made layers."""

from __future__ import annotations

import math

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import UNTOUCHED
from tests.diagnoses.samples import LINES, Layers, parameter, run


def only(report):
    (found,) = diagnose(report)
    return found


# -- TM403 --------------------------------------------------------------------------------------------------------


def test_a_vanishing_gradient():
    """Code, severity, sentence, line, numbers, remedy, subject and node."""
    found = only(Layers([1e-9, 2e-8, 1e-3, 0.5]).report())
    assert (found.code, found.severity) == ("TM403", "warning")
    assert found.message == (
        "The gradient vanishes on its way to net.0.weight: its norm is 1e\u22129, against 0.5 at net.3.weight; 1 other "
        "weight as well."
    )
    assert found.location == LINES[0]
    assert found.evidence["weights below"] == 2
    assert found.evidence["net.3.weight"] == 0.5
    assert "instead of sigmoid or tanh" in found.remedy
    assert (found.subject, found.node) == ("net.0.weight", (0, 0))


def test_without_a_squashing_activation_the_remedy_is_another():
    """A network of ReLU is not told to use ReLU."""
    remedy = only(Layers([1e-9, 1e-3, 0.5], activation="relu").report()).remedy
    assert "kaiming_normal_" in remedy
    assert "instead of sigmoid" not in remedy


@pytest.mark.parametrize(("first", "lost"), [(0.1, True), (2e-9, False)])
def test_a_gradient_that_training_lost(first, lost):
    """It was there in the first pass: neither activation nor initialisation took it."""
    report = Layers([1e-9, 1e-3, 0.5]).report()
    series = parameter("net.0.weight", [first, 1e-9, 1e-9])
    remedy = only(run(*report.graphs, parameters=(series, *report.parameters[1:]), count=3)).remedy
    assert remedy.startswith("Its norm was 0.1 to begin with: training has brought this about") is lost
    assert ("clip_grad_norm_(net.parameters()" in remedy) is lost
    assert ("instead of sigmoid or tanh" in remedy) is not lost


@pytest.mark.parametrize(("norm", "found"), [(0.9e-6, True), (1.1e-6, False)])
def test_the_norm_must_be_below_a_millionth(norm, found):
    """Above it, a weight still moves."""
    assert bool(diagnose(Layers([norm, 1e-2, 10.0]).report())) is found


@pytest.mark.parametrize(("norm", "found"), [(0.9e-7, True), (1.1e-7, False)])
def test_the_ratio_must_be_below_a_hundred_thousandth(norm, found):
    """Compared with the largest on the same path, per element."""
    assert bool(diagnose(Layers([norm, 1e-3, 0.01]).report())) is found


@pytest.mark.parametrize(("arrives", "found"), [(0.009, True), (0.011, False)])
def test_what_arrives_must_have_shrunk(arrives, found):
    """A gradient that arrives whole has not vanished: the input of that layer is tiny."""
    assert bool(diagnose(Layers([1e-9, 0.5, 1.0], [arrives, 1.0, 1.0]).report())) is found


def test_a_converged_network_is_not_ill():
    """Tiny everywhere is not vanishing."""
    assert diagnose(Layers([1e-9, 3e-9, 1e-8]).report()) == ()


def test_biases_are_not_judged():
    """The gradient of a bias before a normalisation is zero up to rounding."""
    report = Layers([1e-3, 1e-2, 0.5]).report()
    bias = parameter("net.0.bias", [1e-10], shape=(4,))
    assert diagnose(run(*report.graphs, parameters=(*report.parameters, bias))) == ()


def test_two_models_without_a_common_path_are_not_compared():
    """A large gradient elsewhere says nothing about a small one here."""
    small, large = Layers([1e-9, 1e-9]).report(), Layers([5.0, 5.0]).report()
    other = [parameter(f"other.{at}", [5.0]) for at in range(2)]
    assert diagnose(run(*small.graphs, *large.graphs, parameters=(*small.parameters, *other))) == ()


def test_exact_zeros_alone_are_no_finding():
    """A layer behind a zero-initialised one gets exactly zero in the first step: meant."""
    assert diagnose(Layers([0.0, 0.0, 0.5]).report()) == ()


def test_exact_zeros_beside_tiny_gradients_have_underflowed():
    """They are counted; the faintest that is not zero is named."""
    found = only(Layers([0.0, 0.0, 1e-40, 1e-8, 0.5]).report())
    assert "on its way to net.2.weight" in found.message
    assert found.message.endswith("; 1 other weight as well; beyond it, 2 weights get exactly zero.")


# -- TM404 --------------------------------------------------------------------------------------------------------


def steps(*norms, name="net.weight", **more):
    return parameter(name, norms, **more)


def test_a_gradient_that_grows_over_the_steps():
    """Code, sentence, numbers and remedy; without a graph there is no line and no node."""
    found = only(run(parameters=[steps(1.0, 2.0, 50.0, 900.0, 4e4, 2e6)], count=6))
    assert (found.code, found.severity) == ("TM404", "warning")
    assert found.message == "The gradient explodes: the norm at net.weight grew from 1.5 to 2e6 over the steps."
    assert found.evidence == {"early": 1.5, "largest": 2e6}
    assert "clip_grad_norm_" in found.remedy
    assert (found.subject, found.node, found.location) == ("net.weight", None, None)


@pytest.mark.parametrize(("last", "found"), [(1001.0, True), (999.0, False)])
def test_a_thousandfold_growth_is_too_much(last, found):
    """Less is a run that finds its way."""
    assert bool(diagnose(run(parameters=[steps(1.0, 1.0, 1.0, last)], count=4))) is found


@pytest.mark.parametrize(("last", "found"), [(101.0, True), (99.0, False)])
def test_small_gradients_may_grow_as_they_like(last, found):
    """Below a norm of 100 nothing has exploded: training often starts from next to nothing."""
    assert bool(diagnose(run(parameters=[steps(1e-6, 1e-6, 1e-6, last)], count=4))) is found


def test_three_steps_are_no_trend():
    """Fewer than four gradients say nothing about growth."""
    assert diagnose(run(parameters=[steps(1.0, 1e3, 1e6)], count=3)) == ()


def test_a_parameter_that_catches_up_does_not_explode():
    """An adapter that starts at zero grows to the size of its neighbours."""
    both = [steps(1e-3, 1e-2, 40.0, 900.0, name="net.a"), steps(800.0, 900.0, 900.0, 900.0, name="net.b")]
    assert diagnose(run(parameters=both, count=4)) == ()


def test_large_from_the_beginning_is_a_matter_of_units():
    """A summed loss has large gradients, that grow nowhere."""
    assert diagnose(run(parameters=[steps(*[3e6] * 8)], count=8)) == ()
    assert diagnose(Layers([3e6, 2e6, 1e6]).report()) == ()


def test_missing_and_broken_passes_are_left_out():
    """Passes without a gradient, and those with NaN, neither hide nor make a growth."""
    norms = (1.0, UNTOUCHED, 1.0, 1.0, 1.0, math.nan, UNTOUCHED, math.inf, 2.0)
    assert diagnose(run(parameters=[steps(*norms)], count=9)) == ()


def test_a_gradient_that_grows_over_the_layers():
    """The gradient that arrives is compared with that at the last layer."""
    found = only(Layers([5e6, 300.0, 4.0], [2e5, 50.0, 0.5]).report())
    assert found.message == (
        "The gradient explodes: on its way to net.0.weight it grows 400\u00a0000 times, from a norm of 0.5 at the last "
        "layer to 200\u00a0000."
    )
    assert found.location == LINES[0]
    assert (found.subject, found.node) == ("net.0.weight", (0, 0))


@pytest.mark.parametrize(("arrives", "found"), [(1100.0, True), (900.0, False)])
def test_a_thousandfold_over_the_layers(arrives, found):
    """Seen at what arrives, not at the weight."""
    assert bool(diagnose(Layers([1e7, 4.0], [arrives, 1.0]).report())) is found


def test_raw_features_do_not_explode():
    """A huge gradient at the first weight, with a gradient of ordinary size arriving: its input is huge."""
    assert diagnose(Layers([1e9, 30.0, 4.0], [0.3, 0.5, 1.0]).report()) == ()
