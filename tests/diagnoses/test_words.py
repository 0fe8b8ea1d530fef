"""The small phrases that findings are made of."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.words import binding, counted, grouped, listed, part, rebound, scientific, verb


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (9999, "9999"), (10_000, "10\u00a0000"), (1234567, "1\u00a0234\u00a0567")]
)
def test_grouped(number, text):
    """Digits stand in groups of three from 10 000 on."""
    assert grouped(number) == text


def test_counted():
    """One zero, three zeros, two passes."""
    assert [counted(1, "zero"), counted(3, "zero"), counted(0, "zero")] == ["1 zero", "3 zeros", "0 zeros"]
    assert counted(2, "pass", "passes") == "2 passes"


@pytest.mark.parametrize(
    ("count", "of", "text"),
    [(1, 1, "the one element"), (2, 2, "both elements"), (3, 3, "all 3 elements"), (1, 2, "1 of the 2 elements"),
     (9, 3, "all 3 elements")],
)  # fmt: skip
def test_part(count, of, text):
    """A share is told by its whole."""
    assert part(count, of) == text


def test_verb():
    """One is, others are."""
    assert [verb(0), verb(1), verb(2)] == ["are", "is", "are"]


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcd", "a, b, c and d"),
     ("abcdefg", "a, b, c, d and 3 more"), (["a, b", "c"], "a, b and c")],
)  # fmt: skip
def test_listed(names, text):
    """Names in a row, cut after four."""
    assert listed(list(names)) == text


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
    [("x", "x"), ("net(x)", "net(x)"), ("a.b[0]", "a.b[0]"), ("a + b", "(a + b)"), ("-x", "(-x)"), ("w'", "(w')")],
)
def test_what_a_method_is_called_on(expression, written):
    """In brackets only where the method would belong to a part of it."""
    assert binding(expression) == written


def test_code_that_calls_a_method():
    """A name is bound again; an expression cannot be."""
    assert rebound("x", "clone()") == "x = x.clone()"
    assert rebound("a + b", "copy()") == "(a + b).copy()"
