"""A traceback without the tracer's frames: the same as if nobody had looked."""

from __future__ import annotations

import traceback

import pytest
import torch
import torch.nn.functional as F

import tensormagic as tm
from tensormagic.words import error_text


def frames(function, *, traced):
    """Return (file, function, line) of the traceback that ``function`` leaves, from its own frame on."""
    with pytest.raises(Exception) as raised:  # noqa: PT012  (whatever it raises)
        if traced:
            with tm.trace(namespace={}):
                function()
        else:
            function()
    return told(raised.value, function), raised.value


def told(error, function):
    entries = traceback.extract_tb(error.__traceback__)
    start = next(at for at, entry in enumerate(entries) if entry.name == function.__name__)
    return [(entry.filename, entry.name, entry.lineno) for entry in entries[start:]]


def in_torch():
    F.relu("text")


def in_a_nested_call():
    F.cross_entropy(torch.zeros(2, 3), torch.zeros(5, dtype=torch.long))


def in_backward():
    x = torch.ones(2, requires_grad=True)
    (x * 2).backward()


def in_a_tensor_method():
    torch.ones(2, 3).matmul(torch.ones(2, 3))


def of_ones_own():
    raise KeyError("lost")


def in_a_custom_backward():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("broken")

    Broken.apply(torch.ones(2, requires_grad=True)).sum().backward()


RUNS = [in_torch, in_a_nested_call, in_backward, in_a_tensor_method, of_ones_own, in_a_custom_backward]


@pytest.mark.parametrize("function", RUNS, ids=lambda function: function.__name__)
def test_the_traceback_is_that_of_the_plain_run(function):
    """Frame for frame and line for line, with the same message."""
    plain, error = frames(function, traced=False)
    traced, other = frames(function, traced=True)
    assert traced == plain
    assert (type(other), str(other)) == (type(error), str(error))


def test_causes_and_contexts_are_cleaned_as_well():
    """What it was raised from, and what was being handled meanwhile."""

    def chained():
        try:
            F.relu("text")
        except TypeError as error:
            raise RuntimeError("no") from error

    with pytest.raises(RuntimeError) as raised, tm.trace(namespace={}):
        chained()
    cause = raised.value.__cause__
    assert isinstance(cause, TypeError)
    assert [entry for entry in traceback.extract_tb(cause.__traceback__) if "tensormagic/" in entry.filename] == []


def test_an_exception_that_is_its_own_context_ends():
    """A cycle of causes is followed once round."""
    first, second = ValueError("round"), ValueError("and round")
    first.__cause__, second.__cause__ = second, first
    with pytest.raises(ValueError, match="round") as raised, tm.trace(namespace={}):
        raise first
    assert raised.value.__cause__.__cause__ is raised.value


class MuteError(Exception):
    """An exception that cannot say what it is."""

    def __str__(self):
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("two"), "ValueError: two"), (KeyboardInterrupt(), "KeyboardInterrupt"), (MuteError(), "MuteError")],
)
def test_the_text_of_an_error_is_pythons_last_line(error, text):
    """No colon without words behind it; an exception that cannot say what it is is told by its class."""
    assert error_text(error) == text


def test_an_error_that_cannot_say_what_it_is_comes_through():
    """What the block raised goes on, and not what its text raised."""
    with pytest.raises(MuteError), tm.trace(namespace={}) as trace:
        raise MuteError
    assert (trace.report.state, trace.report.error) == ("failed", "MuteError")


def test_a_run_goes_on_where_what_it_meets_raises_an_error_without_words():
    """The step is made, and a gap says which class of error was met."""

    class Mute(torch.Tensor):
        def untyped_storage(self):
            raise MuteError

    x = torch.ones(3, requires_grad=True)
    with tm.trace(memory=True, writes=True) as run:
        (x * torch.ones(3).as_subclass(Mute).add_(1)).as_subclass(torch.Tensor).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert any("MuteError" in gap.reason for part in run.report.parts for gap in part.gaps)
