"""Backwards that torch refuses and whose error the code around them catches: which, how often, and whether expected."""

from __future__ import annotations

import contextlib
import gc
import unittest
import weakref

import pytest
import torch

import tensormagic as tm

asserts_raises = unittest.TestCase().assertRaises


def modified():
    """Return a loss whose backward torch refuses."""
    y = torch.randn(3, requires_grad=True).exp()
    y += 1
    return y.sum()


def in_except():
    with contextlib.suppress(ZeroDivisionError):  # outside of the except: does not count
        try:
            modified().backward()
        except RuntimeError as error:
            return str(error)


def in_raises():
    with pytest.raises(RuntimeError):
        modified().backward()


def in_suppress():
    try:
        with contextlib.suppress(RuntimeError):
            modified().backward()
    except ValueError:
        raise AssertionError from None


def in_assert_raises():
    asserts_raises(RuntimeError, modified().backward)


def in_a_function_that_is_called():
    try:
        in_no_try()
    except RuntimeError as error:
        return str(error)


def in_no_try():
    loss = modified()
    try:
        loss.backward()
    finally:
        loss = None


EXPECTED = {
    in_except: False, in_raises: True, in_suppress: True, in_assert_raises: True, in_a_function_that_is_called: False,
}  # fmt: skip


@pytest.mark.parametrize(("program", "expected"), EXPECTED.items(), ids=[each.__name__ for each in EXPECTED])
def test_whether_it_was_expected(program, expected):
    """By what is around the line, in it or in who called; the innermost counts."""
    with tm.trace(namespace={}) as trace:
        program()
    (one,) = trace.report.swallowed_errors
    assert (one.expected, one.count, one.error_type, one.fault.modified.op) == (expected, 1, "RuntimeError", "exp")
    assert "backward" in trace.report.location(one.location).text
    assert (trace.report.state, trace.report.failure) == ("finished", None)


def test_equal_ones_are_counted():
    """Three of one line are one; the line of another program is another."""
    with tm.trace(namespace={}) as trace:
        for _ in range(3):
            in_except()
        in_raises()
    assert [one.count for one in trace.report.swallowed_errors] == [3, 1]


def tried(losses):
    """Go back from one of several losses; the error of the last is not kept back."""
    try:
        losses.pop().backward()
    except RuntimeError:
        if not losses:
            raise


def test_the_one_that_ends_the_run_is_not_caught():
    """It is told as what ended the run; those of its line before it were caught."""

    def program():
        losses = [modified(), modified(), modified()]
        while losses:
            tried(losses)

    trace = tm.trace(namespace={})
    with pytest.raises(RuntimeError), trace:
        program()
    report = trace.report
    assert [one.count for one in report.swallowed_errors] == [2]
    assert report.failure.backward.modified.op == "exp"
    assert [(one.code, one.severity) for one in report.findings] == [("TM301", "error"), ("TM301", "warning")]


def test_nothing_is_kept():
    """Neither the loss nor, with it, its graph."""
    loss = modified()
    with tm.trace(namespace={}):
        with contextlib.suppress(RuntimeError):
            loss.backward()
        watched = weakref.ref(loss)
        del loss
        gc.collect()
        assert watched() is None
