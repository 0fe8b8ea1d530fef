"""Norms and code in findings."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.lines import rebound
from tensormagic.diagnoses.rule import scientific
from tensormagic.words import binding


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.84712, "0.847"), (0.001234, "0.00123"), (1.58e-26, "1.58e\u221226"), (999.4, "999"),
     (1000.0, "1000"), (11432.4, "11\u00a0432"), (1e6, "1e6"), (3.36e28, "3.36e28"), (2.2e-9, "2.2e\u22129")],
)  # fmt: skip
def test_scientific(value, text):
    """Three digits, tidy exponents, and whole numbers where one can read them."""
    assert scientific(value) == text


@pytest.mark.parametrize(
    ("expression", "written"),
    [("x", "x"), ("net(x)", "net(x)"), ("a.b[0]", "a.b[0]"), ("a + b", "(a + b)"), ("-x", "(-x)"), ("w'", "(w')"),
     ("(x + y)", "(x + y)"), ("(x, y)", "(x, y)"), ("((x) + (y))", "((x) + (y))"), ("(n := x)", "(n := x)"),
     ("(x) + (y)", "((x) + (y))"), ("(x), (y)", "((x), (y))"), ("lambda: x", "(lambda: x)"), ("x > 5", "(x > 5)"),
     ("3", "(3)")],
)  # fmt: skip
def test_what_a_method_is_called_on(expression, written):
    """In brackets only where the method would belong to a part of it."""
    assert binding(expression) == written


def test_code_that_calls_a_method():
    """A name is bound again; an expression cannot be."""
    assert rebound("x", "clone()") == "x = x.clone()"
    assert rebound("a + b", "copy()") == "(a + b).copy()"
