"""TM313, TM314 and TM608 on hand-made traces: what a loss was given, and what it makes of it."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses.loss_inputs import normalised_twice
from tensormagic.diagnoses.losses import terms_without_gradient, undetached
from tensormagic.reports import Cut, Edge, Graph, LeftOut, Node
from tests.diagnoses.samples_calls import LINE, MADE, seen, tensor


def given(loss, made, shape=(8, 10), name="out", **facts):
    """Return what is found where ``loss`` was given what ``made`` made."""
    return list(
        normalised_twice(seen("normalised", loss, operands=(tensor(name, shape),), detail=made, made=1, **facts))
    )


@pytest.mark.parametrize(
    ("loss", "made", "severity", "words"),
    [
        ("cross_entropy", "softmax", "warning", "cannot fall below 1.46 with 10 classes"),
        ("cross_entropy", "sigmoid", "warning", "is already the result of sigmoid"),
        ("cross_entropy", "log_softmax", "note", "the result is right, but computed twice"),
        ("binary_cross_entropy_with_logits", "sigmoid", "warning", "every probability is above 0.5"),
        ("binary_cross_entropy_with_logits", "logsigmoid", "warning", "every probability is below 0.5"),
        ("nll_loss", "softmax", "warning", "nll_loss takes log-probabilities, and out is the result of softmax"),
        ("nll_loss", "layer", "warning", "out is what a layer made, without log_softmax: the loss has no lower bound"),
        ("binary_cross_entropy", "softmax", "warning", "softmax and then sigmoid were applied"),
        ("ctc_loss", "softmax", "warning", "ctc_loss takes log-probabilities, and out is the result of softmax."),
        ("ctc_loss", "layer", "warning", "out is what a layer made, without log_softmax: the loss has no lower bound"),
    ],
)
def test_every_pair_has_its_sentence_and_severity(loss, made, severity, words):
    """The finding names the operand, what made it, and what follows; both lines where they are two."""
    (found,) = given(loss, made)
    assert (found.code, found.severity, found.location, found.subject) == ("TM608", severity, LINE, "out")
    assert words in found.message
    assert [line.location for line in found.related] == [MADE]


@pytest.mark.parametrize(("shape", "floor"), [((8, 2), "0.313"), ((8, 1000), "5.91"), ((3,), "0.551")])
def test_the_floor_of_the_loss_is_that_of_scores_between_zero_and_one(shape, floor):
    """log(1 + (K - 1)/e): the best that K scores from 0 to 1 can do."""
    (found,) = given("cross_entropy", "softmax", shape)
    assert f"cannot fall below {floor} with {shape[-1]} classes" in found.message


@pytest.mark.parametrize(("loss", "made"), [("nll_loss", "log_softmax"), ("binary_cross_entropy", "logsigmoid"),
                          ("ctc_loss", "log_softmax")])  # fmt: skip
def test_what_a_loss_takes_is_not_told(loss, made):
    """log_softmax before the likelihood is right."""
    assert given(loss, made) == []


def with_a_cut(**facts):
    """Return a run whose loss is a sum of two numbers, one of which lost its history on the way."""
    nodes = tuple(
        Node(at, f"{op.title()}Backward0", op, "op", location=0, shapes=((),)) for at, op in enumerate(("mean", "add"))
    )
    cut = Cut(**{"kind": "detach", "op": "detach", "location": 1, "target": 1, "source_name": "sub", **facts})
    graph = Graph(1, nodes, (Edge(1, 0, 0, 0),), roots=(1,), cuts=(cut,))
    return dataclasses.replace(seen("draw", "rand"), graphs=(graph,))


def test_a_term_without_a_gradient():
    """Both lines, and a note."""
    (found,) = terms_without_gradient(with_a_cut())
    assert (found.code, found.severity, found.location) == ("TM313", "note", MADE)
    assert [line.location for line in found.related] == [LINE]


@pytest.mark.parametrize(
    "facts",
    [{"target": 0}, {"target": None}, {"earlier": True}, {"selects": True},
     {"left_out": (LeftOut(name="net.w", owner="net", is_parameter=True),)}],
    ids=["not added", "unused", "of an earlier step", "a choice", "TM303"],
)  # fmt: skip
def test_other_cuts_are_left_alone(facts):
    """A mean of cut values, a value of an earlier step, what TM303 tells."""
    assert list(terms_without_gradient(with_a_cut(**facts))) == []


@pytest.mark.parametrize(
    ("kind", "detail", "severity"),
    [("advantage", "", "note"), ("target", "best", "warning"), ("target", "value", "note")],
)
def test_what_is_not_detached(kind, detail, severity):
    """The maximum over actions is a target of Q-learning; the rest may be meant."""
    (found,) = undetached(seen(kind, "mse_loss", operands=(tensor("target"),), detail=detail, made=1))
    assert (found.code, found.severity, found.subject) == ("TM314", severity, "target")
    assert "`target.detach()`" in found.remedy
