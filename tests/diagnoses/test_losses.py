"""TM608 on hand-made traces: what a loss was given, and what it makes of it."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.losses import normalised_twice
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
        ("binary_cross_entropy", "softmax", "warning", "softmax and then sigmoid were applied"),
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


@pytest.mark.parametrize(("loss", "made"), [("nll_loss", "log_softmax"), ("binary_cross_entropy", "logsigmoid")])
def test_what_a_loss_takes_is_not_told(loss, made):
    """log_softmax before the likelihood is right."""
    assert given(loss, made) == []
