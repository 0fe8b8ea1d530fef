"""Two runs side by side: one sentence that is true, then what differs most."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tensormagic.comparisons import compare_traces
from tensormagic.errors import TensorMagicError
from tensormagic.reports import LossPair, Moment
from tensormagic.views.nodes import Bar, Findings, Noted, Section, Table, Words
from tensormagic.views.page.figures import figure
from tensormagic.views.panels.comparison import factor, summary, times, view
from tensormagic.views.pictures.losses import LossesPicture, loss_scale, loss_svg
from tests.comparisons import samples
from tests.views.samples_comparison import SAMPLES

SENTENCES = {
    "larger": (
        "same graph; from step 3 on, gradients of `net.2.weight` are larger in fast, 130 times in the end; "
        "loss 2.3 → 0.41 against 2.3 → 1.9"
    ),
    "equal": "same graph; all gradients equal in 6 steps; loss 2.3 → 0.41 in both",
    "nan": (
        "same graph; from step 4 on, gradients of `net.2.weight` are NaN or infinite only in broken; "
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


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (Moment(1, 1.0, 1.4, math.log10(1.4)), "×1.4"),
        (Moment(1, 1.0, 130.0, math.log10(130)), "×130"),
        (Moment(1, 1.0, 1e-7, -7.0), "×10⁻⁷"),
        (Moment(1, 1.0, 1.0, 0.0), "="),
        (Moment(1, 1.0, 1.01, math.log10(1.01)), "≈"),
        (Moment(1, 0.0, 1.0, math.inf), "0 → 1"),
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


def sections(name):
    return [node for node in view(SAMPLES[name]).body if isinstance(node, Section)]


def test_both_runs_stand_beside_each_other_and_their_losses_below():
    """A row for each thing that is told of a run; the picture says in words what its lines do."""
    table, losses = sections("larger")[0].body
    assert [column.title for column in table.columns] == ["run", "slow", "fast"]
    assert ("loss", "2.3 \u2192 0.41", "2.3 \u2192 1.9") in table.rows
    assert isinstance(losses, LossesPicture)
    assert losses.sentence.startswith(
        "Loss over 6 steps: slow from 2.3 to 0.41; fast from 2.3 to 1.9; furthest apart at"
    )


def test_the_most_different_parameter_is_first():
    """Its two norms as bars on one scale, the factor with the sign of who has more, and since when."""
    table = next(node for node in sections("larger")[1].body if isinstance(node, Table))
    name, bars, ratio, first, _, differ = table.rows[0]
    assert (name, first, differ) == (Noted("net.2.weight", ["(2, 3)"]), Words("=", "quiet"), "from step 3 on")
    assert [(bar.words, bar.ground) for bar in bars] == [("0.5", "tm-a"), ("65", "tm-b")]
    assert ratio == (Words("\u25b2", "up"), "\u00d7130")


def test_a_norm_that_is_not_finite_has_no_length():
    """It has a mark of its own."""
    table = next(node for node in sections("nan")[1].body if isinstance(node, Table))
    assert table.rows[0][1][1] == Bar(0.0, "NaN", "tm-b tm-bad")


def test_findings_say_which_run_has_them():
    """What only one has stands before what both have."""
    (found,) = [node for node in view(SAMPLES["nan"]).body if isinstance(node, Findings) and node.findings]
    assert found.where == [("only in", Words("broken", "right"))]


def test_nodes_of_one_run_alone_are_listed():
    """By run, with their lines."""
    alone = sections("deeper")[-1]
    assert (alone.title, alone.folded) == ("3 nodes only in one of them", True)
    assert [section.title for section in alone.body] == ["3 nodes only in `deep`"]
