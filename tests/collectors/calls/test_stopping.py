"""A run that ends at the first NaN or Inf, at the user's own line."""

from __future__ import annotations

import pytest
import torch

import tensormagic
from tensormagic.errors import NonFiniteError, TraceError


def root_of_zero():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    y = x.sqrt() * torch.tensor([0.0, 1.0])
    y.sum().backward()


def zero_by_zero():
    x = torch.zeros(3, requires_grad=True)
    return torch.nn.functional.normalize(x, dim=0, eps=0.0)


def log_of_zero():
    return torch.zeros(3).log()


def in_place():
    x = torch.ones(3)
    x.div_(0)


@pytest.mark.parametrize(
    ("run", "words", "line"),
    [
        (root_of_zero, "this backward made 1 NaN in sqrt (test_stopping.py, line 14)", 3),
        (zero_by_zero, "div made 3 NaN of 3 elements", 2),
        (log_of_zero, "log made 3 Inf of 3 elements", 1),
        (in_place, "div made 3 Inf of 3 elements", 2),
    ],
)
def test_ends_at_the_line_that_made_it(run, words, line):
    """The innermost frame is the user's own, torch's Python and ours are gone: %debug lands there."""
    with pytest.raises(NonFiniteError) as caught, tensormagic.trace(stop="nan") as trace:
        run()
    entry = caught.value.__traceback__
    assert entry is not None
    while entry.tb_next is not None:
        entry = entry.tb_next
    assert (entry.tb_frame.f_code, entry.tb_lineno) == (run.__code__, run.__code__.co_firstlineno + line)
    assert str(caught.value).startswith(words)
    assert (trace.report.state, trace.report.failure) == ("failed", None)


def masked():
    scores = torch.zeros(3, 3, requires_grad=True)
    scores.masked_fill(torch.eye(3).bool(), float("-inf")).softmax(-1).sum().backward()


def data_with_nan():
    return torch.tensor([float("nan")]) * torch.empty(3)


@pytest.mark.parametrize("run", [masked, data_with_nan])
def test_what_was_given_is_not_made(run):
    """The -inf of a mask, a NaN in the data and memory that nobody has written end nothing."""
    with tensormagic.trace(stop="nan") as trace:
        run()
    assert trace.report.state == "finished"


@pytest.mark.parametrize("run", [root_of_zero, log_of_zero])
def test_without_it_nothing_stops(run):
    """Only who asks is stopped."""
    with tensormagic.trace() as trace:
        run()
    assert trace.report.state == "finished"


def test_refuses_what_it_cannot_do():
    """Another word, or steps that are not traced."""
    with pytest.raises(TraceError, match="expected 'nan'"):
        tensormagic.trace(stop="inf")
    with pytest.raises(TraceError, match="leave out budget"):
        tensormagic.trace(stop="nan", every=10)
