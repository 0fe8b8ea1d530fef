"""Two runs side by side: one sentence that is true, then what differs most."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tensormagic.comparisons import compare_traces
from tensormagic.errors import TensorMagicError
from tensormagic.renderers.comparison import comparison_html, comparison_text
from tensormagic.renderers.comparison.comparison_chart import loss_scale, loss_svg
from tensormagic.renderers.comparison.comparison_words import factor, summary, times
from tensormagic.renderers.figures import figure
from tensormagic.reports import LossPair, Moment
from tests.comparisons import samples
from tests.renderers.samples_comparison import SAMPLES
from tests.renderers.snapshots import assert_snapshot


@pytest.mark.parametrize("name", SAMPLES)
def test_text_and_panel_are_as_stored(name):
    """Every kind of comparison has its text and its panel in ``tests/snapshots``."""
    assert_snapshot(f"comparison_{name}.txt", comparison_text.render(SAMPLES[name]))
    assert_snapshot(f"comparison_{name}.html", comparison_html.render(SAMPLES[name]))


SENTENCES = {
    "larger": (
        "same graph; from step 3 on, gradients of `net.2.weight` are larger in fast, 130 times in the end; "
        "loss 2.3 → 0.41 against 2.3 → 1.9"
    ),
    "equal": "same graph; all gradients equal in 6 steps; loss 2.3 → 0.41 in both",
    "nan": (
        "same graph; from step 4 on, gradients of `net.2.weight` are NaN or infinite in broken alone; "
        "loss 2.3 → 0.41 against 2.3 → NaN"
    ),
    "deeper": (
        "7 nodes in both, 3 only in deep (model.1.weight, mul and relu); all gradients within a factor of 2 "
        "in 6 steps; loss 2.3 → 0.41 against 2.3 → 2.3"
    ),
    "empty": "neither run has a backward graph",
}


@pytest.mark.parametrize(("name", "words"), SENTENCES.items())
def test_the_sentence(name, words):
    """Graph, gradients, loss: each in a few words."""
    assert summary(SAMPLES[name]) == words


def test_a_kind_of_node_is_told_once():
    """With how many there are of it."""
    report = SAMPLES["deeper"]
    (graph,) = report.graphs
    more = replace(graph, only_right=(*graph.only_right, *graph.only_right), only_right_found=6)
    words = summary(replace(report, graphs=(more,)))
    assert "6 only in deep (model.1.weight ×2, mul ×2 and relu ×2)" in words


@pytest.mark.parametrize("width", [40, 60, 100, 200])
@pytest.mark.parametrize("name", SAMPLES)
def test_no_line_is_wider_than_asked_for(name, width):
    """Tables are cut at the edge with an ellipsis, sentences are broken."""
    assert max(map(len, comparison_text.render(SAMPLES[name], width=width).splitlines())) <= width


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (Moment(1, 1.0, 1.4, math.log10(1.4)), "×1.4"),
        (Moment(1, 1.0, 130.0, math.log10(130)), "×130"),
        (Moment(1, 1.0, 1e-7, -7.0), "×10⁻⁷"),
        (Moment(1, 1.0, 1.0, 0.0), "="),
        (Moment(1, 1.0, 1.01, math.log10(1.01)), "≈"),
        (Moment(1, 0.0, 1.0, math.inf), "0 → 1.0e0"),
        (Moment(1, math.nan, 1.0, math.nan), ""),
        (None, ""),
    ],
)
def test_factors(moment, words):
    """Right over left, in the fewest digits that say it."""
    assert factor(moment) == words


@pytest.mark.parametrize(("ratio", "words"), [(0.5, "3.2 times"), (-1.0, "10 times"), (5.2, "10⁵ times")])
def test_times(ratio, words):
    """The size of a ratio, whichever way it goes."""
    assert times(ratio) == words


def test_the_loss_picture_has_a_line_for_each_run_and_marks_what_is_not_finite():
    """A NaN breaks the line and is a cross at the top; the scale is over the finite ones."""
    losses = SAMPLES["nan"].losses
    scale = loss_scale(losses)
    assert (scale.low, scale.high, scale.logarithmic) == (0.41, 2.3, False)
    picture = loss_svg(losses, scale)
    assert picture.count("<path") == 3
    assert picture.count("l6,6m0,-6l-6,6") == 3


def test_a_loss_over_decades_is_drawn_on_a_log_scale():
    """0.01 to 10: a straight scale would show nothing of the lower run."""
    scale = loss_scale([LossPair(1, 10.0, 10.0), LossPair(2, 0.01, 9.0)])
    assert scale.logarithmic
    assert scale.share(0.01) == 0.0
    assert scale.share(10.0) == 1.0


def test_one_step_has_no_picture():
    """A line needs two points."""
    assert loss_scale([LossPair(1, 1.0, 2.0)]) is None
    assert loss_scale([LossPair(1, None, 2.0), LossPair(2, None, math.nan)]) is not None


def test_the_figure_has_a_bar_for_each_parameter():
    """Decades to the right: larger in the right run."""
    drawn = figure(SAMPLES["larger"], "gradient_ratio")
    assert list(drawn.data[0].y) == ["net.2.weight", "net.0.weight"]
    assert drawn.data[0].x[0] == pytest.approx(math.log10(130), abs=1e-6)


def test_no_figure_without_gradients():
    """Nothing to draw is told."""
    with pytest.raises(TensorMagicError, match="no gradient of the two runs can be compared"):
        figure(SAMPLES["empty"], "gradient_ratio")


def test_a_parameter_without_gradient_in_one_run_is_told():
    """It comes before mere differences of size."""
    silent = samples.run(samples.layers("net.0"), {"net.0.weight": [-1.0, -1.0]}, title="silent")
    loud = samples.run(samples.layers("net.0"), {"net.0.weight": [1.0, 1.0]}, title="loud")
    assert summary(compare_traces(loud, silent)) == "same graph; `net.0.weight` gets no gradient in silent"
