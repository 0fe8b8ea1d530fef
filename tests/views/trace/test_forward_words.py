"""Forward values: beside the gradient, and only where they were asked for."""

from __future__ import annotations

import math
from array import array

import pytest

from tensormagic.reports import ForwardValues
from tensormagic.views.panels import trace as page
from tensormagic.views.panels.trace import forward_numbers
from tests.views import samples_trace as samples
from tests.views import trace_forms


def test_text_shows_value_and_gradient_of_a_box_on_one_line():
    """The dead ReLU has all zeros; the infinity stands where the norm would; boxes beside the longest way are there."""
    lines = trace_forms.text(samples.forward()).splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("FORWARD VALUES (pass 40,"))
    assert lines[head + 1].split() == ["BOX", "NORM", "|MAX|", "MEAN", "STD", "ZEROS", "GRADIENT"]
    rows = {line.split()[0]: line.split() for line in lines[head + 2 : head + 14]}
    assert rows["log"][1:3] == ["3", "Inf"]
    assert "mse_loss" in rows
    assert any(line.startswith("  relu") and "100 %" in line for line in lines)
    assert "  the forward of pass 7 first produced 3 Inf of 320 in log; its inputs were finite" in lines
    assert "FORWARD VALUES" not in trace_forms.text(samples.report())


def test_a_page_has_the_same_table():
    """HTML without scripts holds the same numbers."""
    html = page.render(samples.forward())
    assert '<th scope="col" class="tm-num">zeros</th>' in html
    assert "the forward of pass 7 first produced 3 Inf of 320 in log" in html
    assert "zeros</th>" not in page.render(samples.report())


def _numbers(**given: float) -> tuple[str, ...] | None:
    measures = {"abs_max": 2.0, "mean": 0.5, "std": 0.125, "zero": 0.0} | given
    norm = measures.pop("norm", 1.0)
    return forward_numbers(ForwardValues(array("f", [norm]), array("f", [*measures.values(), 0.0, 0.0])), 0)


@pytest.mark.parametrize(("share", "text"), [(0.0, ""), (1.0, "100 %"), (0.125, "13 %"), (0.0001, "0.01 %")])
def test_shares(share, text):
    """A share of zeros in percent, none where there are none."""
    assert _numbers(zero=share)[-1] == text


@pytest.mark.parametrize(("value", "text"), [(math.nan, "–"), (-0.25, "−0.25"), (1e-9, "1e−9")])
def test_values(value, text):
    """Four digits, a true minus, a dash for what is not there."""
    assert _numbers(mean=value)[2] == text


def test_what_was_not_seen_has_no_numbers():
    """A node whose output was never measured has no row."""
    assert _numbers(norm=-1.0) is None
