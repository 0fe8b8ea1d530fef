"""A refused call as text and as a panel: what does not fit is framed and said, names and numbers are the user's."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tensormagic import views
from tensormagic.reports import FailureReport, Gap, Location
from tensormagic.views.graph.marks import with_crash
from tensormagic.views.markup import text_width
from tensormagic.views.nodes import Clash, Shape
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace as trace_html
from tensormagic.views.panels.refused_call import marked, operands, rule_nodes, torch_said, way
from tests.views import samples_trace, trace_forms
from tests.views.markup_reader import Page, svg_of
from tests.views.samples_failure import SAMPLES


def table(name):
    """The rows of a panel's operands, by the titles of their columns."""
    drawn = operands(SAMPLES[name])
    titles = [column.title for column in drawn.columns]
    return [dict(zip(titles, row, strict=True)) for row in drawn.rows]


@pytest.mark.parametrize(
    ("name", "column", "cells"),
    [
        ("dtypes", "dtype", ["float32", Clash("float64", "needs float32")]),
        ("devices", "device", [Clash("cpu", "needs cuda:0"), Clash("cuda:0", "needs cpu")]),
        ("view", "strides", [Clash("(1, 4)", "does not fit"), ""]),
        ("argument", "shape", [Shape(("4", "3")), Clash("(5, 5)", "≠ 12")]),
        ("afterwards", "shape", ["not kept", Shape(("4", "5"))]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_marked_where_it_stands(name, column, cells):
    """In its dimension, its dtype, its device or its strides; beside it, what would have fitted."""
    assert [row[column] for row in table(name)] == cells


def test_columns_without_anything_are_left_out():
    """No device where all are on the CPU; no line where none is known. A clash of dtypes has its sign in words."""
    assert [*table("dtypes")[0]] == ["operand", "given as", "shape", "dtype", "strides"]
    assert "✖float64 (needs float32)" in views.draw(SAMPLES["dtypes"], "txt")


def test_sizes_that_are_compared_from_the_right_stand_below_each_other():
    """What clashes in one dimension, counted from the right; the inner sizes of a product do not."""
    report = SAMPLES["linear"]
    assert operands(report).columns[2].look == "number"
    first, second = report.mismatch.parts
    inner = replace(report, mismatch=replace(report.mismatch, parts=(first, replace(second, dimension=0))))
    assert operands(inner).columns[2].look == ""


def test_operands_of_which_nothing_is_known_are_left_out():
    """No table of `not kept`, and no note about it: the finding says what torch's message tells."""
    report = SAMPLES["linear"]
    unknown = tuple(replace(one, is_tensor=False, shape=(), text="", dtype="") for one in report.operands)
    gap = Gap("operands", "not kept by Python after the error: the result of torch.ones(3)")
    drawn = views.draw(replace(report, operands=unknown, gaps=(gap,)), "txt")
    assert "not kept" not in drawn
    assert "not kept" in views.draw(replace(report, gaps=(gap,)), "txt")


@pytest.mark.parametrize(
    ("text", "call", "part"),
    [
        ("y = net(x) + 1", "net(x)", "net(x)"),
        ("y = torch.cat(", "torch.cat( [a, b])", "torch.cat("),
        ("y = 1", "net(x)", ""),
        ("", "net(x)", ""),
    ],
)
def test_the_call_is_marked_in_its_line(text, call, part):
    """Also where it goes on in the next line."""
    assert marked(Location("a.py", 1, text), call) == part


def test_the_way_leads_to_the_line_that_failed():
    """A long way without its middle, which is counted; files are told apart by headings."""
    lines = way(SAMPLES["afterwards"]).lines
    assert [line.number for line in lines] == [31, 0, 31, 31, 31, 31]
    assert lines[1].text == "… 5 lines more"
    assert [line.sign for line in lines] == [""] * 5 + ["error"]
    failed = SAMPLES["linear"]
    elsewhere = replace(failed, way=(Location("train.py", 3, "step()"), failed.location))
    assert [line.text for line in way(elsewhere).lines] == ["train.py", "step()", "cell 5", failed.location.text]


def test_the_page_on_backends_is_left_out():
    """A missing kernel's message goes on with a hundred lines about every backend; the first sentence says it."""
    said = "Could not run 'aten::view' with arguments from the 'SparseCPU' backend."
    page = " This could be because the operator doesn't exist for this backend, or was omitted. BackendSelect: …"
    report = FailureReport(error_type="NotImplementedError", error=said + page)
    assert torch_said(report) == f"NotImplementedError: {said}"


def test_what_a_finding_says_is_not_said_twice():
    """The rule and what works stand in the finding; without one they stand alone."""
    assert rule_nodes(SAMPLES["linear"]) == []
    index = SAMPLES["dtypes"].mismatch
    look = replace(index, works=(), maybe=("i.max()  # at most 9", "i.long()"))
    assert rule_nodes(replace(SAMPLES["dtypes"], mismatch=look))[1:] == [
        "try: `i.long()`",
        "check: `i.max()  # at most 9`",
    ]
    assert rule_nodes(SAMPLES["dtypes"]) == ["Both must be the same.", "works: `a + b.float()` or `a.double() + b`"]


RUN = replace(samples_trace.one_pass(), state="failed")


def test_a_run_that_failed_begins_with_the_refused_call():
    """Above the run's own panel, in a page and in text; what was found about it is not told twice."""
    run = replace(RUN, failure=SAMPLES["linear"], findings=SAMPLES["linear"].findings)
    page, text = Page(trace_html.render(run)).text, trace_forms.text(run)
    assert page.index("the shapes do not fit") < page.index("As text")
    assert "".join(page.split()).count("takes784(in_features)") == 1
    assert text.index("TM804") < text.index("  18 ✖ x = self.fc1(x.flatten(1))")
    assert text.count("takes 784") == 1


def picture_of(html):
    """Return the picture of a panel as SVG text."""
    return svg_of(re.findall(r'<img[^>]* src="(data:image/svg[^"]*)"', html)[0])


def test_the_crash_is_marked_in_the_graph_so_far():
    """A cross and words beside the refused call, in a picture that is wide enough for them."""
    svg = picture_of(views.draw(SAMPLES["recorded"], "html"))
    (words,) = re.findall(r'<text class="cw" x="([\d.]+)" y="[\d.]+">([^<]+)</text>', svg)
    assert words[1].startswith("torch refused this: RuntimeError, ")
    width = float(re.search(r'<svg[^>]* width="([\d.]+)"', svg)[1])
    shift = float(re.search(r"translate\(([\d.]+),", svg)[1])
    assert shift + float(words[0]) + text_width(words[1], 11, bold=True) <= width
    assert ">linear<" in svg


def test_the_node_that_failed_is_marked_in_the_runs_graph():
    """Once: what torch refused, above it, has no second picture of the same graph."""
    run = replace(RUN, failure=SAMPLES["backward"])
    html = trace_html.render(run)
    words = "backward failed here: RuntimeError, train.py, line 5</text>"
    pictures = [svg_of(source or "") for source in re.findall(r'src="(data:image/svg[^"]*)"', html)]
    assert [picture.count(words) for picture in pictures] == [1]


def test_a_forward_that_failed_before_any_backward_is_drawn_with_the_refused_call_once():
    """In the run's own picture, with solid lines and without the scale of norms; not in the block above it too."""
    run = replace(RUN, failure=SAMPLES["recorded"], graphs=(), passes=())
    html = trace_html.render(run)
    assert html.count(' src="data:image/svg+xml,') == 1
    svg = picture_of(html)
    assert "Graph so far" in svg
    assert svg.count("torch refused this: RuntimeError, ") == 1
    assert "gradient norm" not in svg


def test_after_passes_the_graph_up_to_the_refused_call_comes_last_for_the_viewer():
    """The graph of the passes stays the first; the block above keeps its picture."""
    run = replace(RUN, failure=SAMPLES["recorded"])
    drawn, crash = with_crash(run)
    document = trace_document(drawn, crash=crash)
    assert document["crash"][:2] == [len(run.graphs), SAMPLES["recorded"].graph.roots[0]]
    assert [graph["passes_seen"] > 0 for graph in document["graphs"]] == [True] * len(run.graphs) + [False]
    assert len({graph["number"] for graph in document["graphs"]}) == len(run.graphs) + 1
    assert trace_document(samples_trace.one_pass())["crash"] is None
    assert "torch refused this" in picture_of(trace_html.render(run))
    assert "torch refused this" not in trace_forms.svg(run)
