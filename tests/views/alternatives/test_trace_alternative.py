"""What is said of the picture of a graph: where it broke, the largest and the smallest gradient, what got none."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

import pytest

from tensormagic.reports import UNTOUCHED, TraceReport
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace as trace_html
from tensormagic.views.pictures.gradient_graph import EndedGraph, trace_alternative
from tests.views import samples_trace, samples_viewer, trace_forms
from tests.views.hostile import HOSTILE, everywhere
from tests.views.markup_reader import Page

SIZE = "Backward graph of digits-cnn: 9 operations back to 6 leaves, net.conv1.weight, net.conv1.bias"


def _with_norms(norms: dict[int, float]) -> TraceReport:
    """A calm run whose last pass has these gradients, by node, and 1 elsewhere."""
    report = samples_viewer.calm_run(3)
    graph = report.graphs[0]
    values = array("f", [norms.get(node.index, 1.0) for node in graph.nodes])
    last = replace(graph.frames[-1], norms=values)
    return replace(report, graphs=(replace(graph, frames=(*graph.frames[:-1], last)),))


def test_what_broke_is_said_with_its_place_and_its_pass() -> None:
    """Which node is red first, on which line, since when, how far it spread, and what was found."""
    said = trace_alternative(samples_viewer.broken_run())
    assert said == (
        f"{SIZE} and 4 more; gradients of pass 37 of 37. "
        "NaN was born in log (cell 5, line 6: logp = p.log()), in pass 31. "
        "In this pass 13 of 15 nodes hold NaN or Inf, net.conv1.weight, net.conv1.bias and 4 more among them. "
        "Largest finite gradient norm 0.11 in nll_loss (cell 5, line 7), "
        "smallest 0.1 in log (cell 5, line 6). "
        "error TM402, cell 5, line 6: the first NaN gradient is born in log: its input holds 3 zeros."
    )


def test_largest_and_smallest_are_those_of_the_pass_that_is_drawn() -> None:
    """The ends of the range are named with their nodes; zero and no gradient are no ends, and are counted."""
    said = trace_alternative(_with_norms({2: 300.0, 4: 2e-7, 5: 0.0, 6: UNTOUCHED, 7: UNTOUCHED}))
    assert "Largest finite gradient norm 300 in convolution of net.conv1 (cell 5, line 2)," in said
    assert "smallest 2e\u22127 in net.conv2.weight" in said
    assert "No gradient in 2 nodes, exactly zero in 1 node." in said


def test_not_finite_without_a_place_of_birth_is_named() -> None:
    """Where nobody saw it come into being, the nodes that hold it are named themselves."""
    said = trace_alternative(_with_norms({0: math.nan, 3: math.inf}))
    assert "NaN or Inf in 2 of 15 nodes: net.conv1.weight and relu (cell 5, line 2: h = F.relu(net.conv1(x)))." in said


def test_all_equal_gradients_have_a_range_and_a_single_one_has_none() -> None:
    """A graph of which one node alone was reached has no largest and smallest."""
    nodes = len(samples_viewer.calm_run(3).graphs[0].nodes)
    alone = dict.fromkeys(range(nodes - 1), UNTOUCHED)
    assert "Largest" not in trace_alternative(_with_norms(alone))


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (samples_trace.empty(), "this run: no backward graph, 0 backward passes in 12.4 s, tracing +4.2 %."),
        (samples_trace.failed(), "The run failed: ValueError: expected 10 classes, got 11."),
    ],
    ids=["empty", "failed"],
)
def test_a_run_without_a_picture_or_an_end_says_so(report: TraceReport, said: str) -> None:
    """No graph is no list of numbers; an error is said after what was seen."""
    assert trace_alternative(report).endswith(said)


def test_a_crash_is_said_with_its_node() -> None:
    """The graph with a crash in it: how large it is, and where the cross is."""
    graph = samples_viewer.calm_run(1).graphs[0]
    said = EndedGraph(graph, 2, "torch refused this").sentence
    assert said.endswith("net.conv1.bias and 4 more; torch refused this: convolution.")


def test_panel_picture_file_and_viewer_say_the_same() -> None:
    """One sentence for the static picture, the saved file and the live graph; while it runs the viewer says less."""
    report = samples_viewer.broken_run()
    said = trace_alternative(report)
    assert Page(trace_html.render(report, viewer=False)).attributes("img")[0]["alt"] == said
    assert said in [drawn.get("aria-label") for drawn in Page(trace_forms.svg(report)).attributes("g")]
    assert trace_document(report)["graphs"][0]["said"] == said
    assert trace_document(replace(report, state="running"))["graphs"][0]["said"] == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text_and_short(name: str) -> None:
    """Whatever a name holds, the sentences stay short, and in markup no element comes out of the attribute."""
    hostile = everywhere(samples_viewer.broken_run(), HOSTILE[name])
    assert len(trace_alternative(hostile)) < 2000
    page = Page(trace_html.render(hostile, viewer=False))
    assert len(page.attributes("img")) == 1
