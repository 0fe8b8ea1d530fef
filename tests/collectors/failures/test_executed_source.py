"""Errors in code that ``exec`` runs from a string: the string is found where the caller still has it."""

from __future__ import annotations

import pytest
import torch

from tensormagic import api
from tensormagic.collectors.failures.failing_source import executed_source

GIVEN = {"a": torch.ones(2, 3), "b": torch.ones(4, 5)}


def explained(run):
    """Return what is known of the error that a function raises, afterwards."""
    with pytest.raises(RuntimeError) as raised:
        run()
    return api.explain_error(raised.value, namespace={})


def test_a_string_in_the_callers_code():
    """The operator, its operands by name, and the line of the string."""
    report = explained(lambda: exec("first = 1\nc = a @ b", dict(GIVEN)))
    assert (report.call, report.location.text, report.location.line) == ("a @ b", "c = a @ b", 2)
    assert [(operand.name, operand.shape) for operand in report.operands] == [("a", (2, 3)), ("b", (4, 5))]
    assert [finding.code for finding in report.findings] == ["TM804"]


def test_a_function_that_was_made_by_exec():
    """Its string is one that the caller has under a name."""
    source = "def product(x, w):\n    return x @ w\nproduct(a, b)"
    report = explained(lambda: exec(source, dict(GIVEN)))
    assert (report.call, report.location.text) == ("x @ w", "return x @ w")


def test_an_expression_that_eval_runs():
    """As in a prompt of one's own."""
    assert explained(lambda: eval("a @ b", dict(GIVEN))).call == "a @ b"


def test_a_string_that_nobody_has_any_more():
    """Another one is not taken for it: only what compiles to the very code that ran."""
    code, other = compile("c = " + " @ ".join("ab"), "<string>", "exec"), "c = b @ a"
    with pytest.raises(RuntimeError) as raised:
        exec(code, dict(GIVEN))
    frame = raised.value.__traceback__.tb_next.tb_frame
    assert (frame.f_code, executed_source(frame)) == (code, "")
    assert other
