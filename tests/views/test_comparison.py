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
from tensormagic.views.pictures.norms import LossesPicture, loss_scale, loss_svg
from tests.comparisons import samples
from tests.views.samples_comparison import SAMPLES

SILENT, LOUD = (
    samples.run(samples.layers("net.0"), {"net.0.weight": [norm] * 2}, title=title)
    for norm, title in ((-1.0, "silent"), (1.0, "loud"))
)


def drifting(norms):
    """Two runs: the gradient of one weight is 1 in each step, and in the other run what is given."""
    rows = [[1.0] * len(norms), norms]
    steady, other = (samples.run(samples.layers("net.0"), {"net.0.weight": row}, title="net") for row in rows)
    return compare_traces(steady, other)


def widened():
    """Two runs of one layer: in the other run its node gives more columns."""
    narrow = samples.run(samples.layers("net.0"), {"net.0.weight": [1.0]}, title="net")
    graph = narrow.graphs[0]
    nodes = tuple(replace(node, shapes=((2, 9),)) if node.op == "relu" else node for node in graph.nodes)
    return compare_traces(narrow, replace(narrow, graphs=(replace(graph, nodes=nodes),)))


(GRAPH,) = SAMPLES["deeper"].graphs
TWICE = replace(
    SAMPLES["deeper"], graphs=(replace(GRAPH, only_right=GRAPH.only_right * 2, only_right_found=6),)
)  # fmt: skip


@pytest.mark.parametrize(
    ("say", "given", "words"),
    [
        (factor, Moment(1, 1.0, 1.4, math.log10(1.4)), "×1.4"),
        (factor, Moment(1, 1.0, 1e-7, -7.0), "×10⁻⁷"),
        (factor, Moment(1, 1.0, 1.0, 0.0), "="),
        (factor, Moment(1, 1.0, 1.01, math.log10(1.01)), "≈"),
        (factor, Moment(1, 0.0, 1.0, math.inf), "0 → 1"),
        (factor, Moment(1, math.nan, 1.0, math.nan), ""),
        (factor, None, ""),
        (times, 0.5, "3.2 times"),
        (times, -1.0, "10 times"),
        (times, 5.2, "10⁵ times"),
        # Graph, gradients, loss, each in a few words; a kind of node is told once.
        (summary, TWICE, ("7 nodes in both, 6 only in deep (model.1.weight ×2, mul ×2 and relu ×2); gradients differ "
                          "from the first step on, by up to a factor of 2; loss 2.3 → 0.41 against 2.3 → 2.3")),
        # What differs a little is told with the step from which on.
        (summary, drifting([1.0, 1.0, 1.02]), "same graph; gradients differ from step 3 on, by up to 2 %"),
        (summary, drifting([1.0, 1.5, 1.02]), "same graph; gradients differ from step 2 on, by up to a factor of 1.5"),
        (summary, drifting([1.0001]), "same graph; gradients differ, by up to 0.01 %"),
        (summary, widened(), "same graph with other shapes or dtypes in 1 node; all gradients equal in 1 step"),
        (summary, compare_traces(LOUD, SILENT), "same graph; `net.0.weight` gets no gradient in silent"),
    ],
)  # fmt: skip
def test_the_words_of_a_comparison(say, given, words):
    """Right over left, and the size of a ratio, whichever way it goes, in the fewest digits that say it."""
    assert say(given) == words


def test_the_loss_picture_has_a_line_for_each_run_and_marks_what_is_not_finite():
    """A NaN breaks the line and is a cross at the top; the scale is over the finite ones, a log scale over decades."""
    losses = SAMPLES["nan"].losses
    scale = loss_scale(loss for pair in losses for loss in (pair.left, pair.right))
    assert (scale.low, scale.high, scale.logarithmic) == (0.41, 2.3, False)
    decades = loss_scale([10.0, 10.0, 0.01, 9.0])
    assert (decades.logarithmic, decades.share(0.01), decades.share(10.0)) == (True, 0.0, 1.0)
    assert loss_scale([None, math.nan]) is None
    picture = loss_svg(losses, scale)
    assert (picture.count("<path"), picture.count("l6,6m0,-6l-6,6")) == (3, 3)
    single = replace(SAMPLES["nan"], losses=(LossPair(1, 1.0, 2.0),))
    sides = (next(node for node in view(each).body if isinstance(node, Section)) for each in (SAMPLES["nan"], single))
    drawn = [any(isinstance(node, LossesPicture) for node in side.body) for side in sides]
    assert drawn == [True, False], "a line needs two points"


def test_the_figure_has_a_bar_for_each_parameter():
    """Decades to the right: larger in the right run; nothing to draw is told."""
    drawn = figure(SAMPLES["larger"], "gradient_ratio")
    assert list(drawn.data[0].y) == ["net.2.weight", "net.0.weight"]
    assert drawn.data[0].x[0] == pytest.approx(math.log10(130), abs=1e-6)
    with pytest.raises(TensorMagicError, match="no gradient of the two runs can be compared"):
        figure(SAMPLES["empty"], "gradient_ratio")


def test_what_only_one_of_the_runs_has():
    """A norm that is not finite has a mark and no length, a finding says whose it is."""
    body = view(SAMPLES["nan"]).body
    gradients = [node for node in body if isinstance(node, Section)][1]
    table = next(node for node in gradients.body if isinstance(node, Table))
    assert table.rows[0][1][1] == Bar(0.0, "NaN", "tm-b tm-bad")
    (found,) = [node for node in body if isinstance(node, Findings) and node.findings]
    assert found.where == [("only in", Words("broken", "right"))]


def test_a_layer_whose_number_shifted_has_both_names():
    """In the tables of parameters and of inner nodes; another name of the model alone is not repeated."""
    left, right = (
        samples.run(samples.layers(*modules), {f"{module}.weight": [norm] for module in modules})
        for modules, norm in ((("net.0", "net.1"), 1.0), (("model.0", "model.3"), 9.0))
    )
    widened = tuple(replace(node, shapes=((2, 9),)) if node.op == "relu" else node for node in right.graphs[0].nodes)
    body = view(compare_traces(left, replace(right, graphs=(replace(right.graphs[0], nodes=widened),)))).body
    tables = [table for node in body if isinstance(node, Section) for table in node.body if isinstance(table, Table)]
    names = {row[0].text for table in tables for row in table.rows if isinstance(row[0], Noted)}
    assert names == {"net.0.weight", "net.1.weight | model.3.weight", "relu in net.0", "relu in net.1 | model.3"}
