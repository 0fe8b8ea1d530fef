"""Forward values in text and tables: beside the gradient, and only where they were asked for."""

from __future__ import annotations

import pytest

from tensormagic.renderers.trace import trace_html, trace_text
from tensormagic.renderers.trace.forward_words import share_text, value_text
from tests.renderers import samples_trace as samples


def test_text_shows_value_and_gradient_of_a_box_on_one_line():
    """The dead ReLU has all zeros; the infinity stands where the norm would."""
    lines = trace_text.render(samples.forward()).splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("forward values of pass 40"))
    assert lines[head + 1].split() == ["norm", "|max|", "mean", "std", "zeros", "gradient"]
    rows = {line.split()[0]: line.split() for line in lines[head + 2 : head + 12]}
    assert rows["log"][1:3] == ["3", "Inf"]
    assert any(line.startswith("relu") and "100 %" in line for line in lines)
    assert "the forward of pass 7 first produced 3 Inf of 320 in log; its inputs were finite" in lines
    assert "forward values" not in trace_text.render(samples.report())


def test_the_table_of_nodes_gets_the_columns():
    """HTML without scripts holds the same numbers."""
    html = trace_html.render(samples.forward())
    assert '<th scope="col">value norm<' in html
    assert '<th scope="col">gradient norm<' in html
    assert "value norm" not in trace_html.render(samples.report())


@pytest.mark.parametrize(("share", "text"), [(0.0, ""), (1.0, "100 %"), (0.125, "13 %"), (0.0001, "0.01 %")])
def test_shares(share, text):
    """A share of zeros in percent, none where there are none."""
    assert share_text(share) == text


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "–"), (-0.25, "−0.25"), (1e-9, "1e-9".replace("-", "−"))])
def test_values(value, text):
    """Four digits, a true minus, a dash for what is not there."""
    assert value_text(value) == text
