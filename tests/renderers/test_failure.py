"""A refused call as text and as a panel: what does not fit is framed and said, names and numbers are the person's."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tensormagic.renderers.basics.text_metrics import text_width
from tensormagic.renderers.document.document import trace_document
from tensormagic.renderers.failure import failure_html, failure_text
from tensormagic.renderers.failure.failure_words import marked, torch_said
from tensormagic.renderers.graph.crash_mark import with_crash
from tensormagic.renderers.trace import trace_html, trace_svg, trace_text
from tensormagic.reports import FailureReport, Location
from tests.renderers import samples_trace
from tests.renderers.markup_reader import Page, svg_of
from tests.renderers.samples_failure import SAMPLES
from tests.renderers.snapshots import assert_snapshot


@pytest.mark.parametrize("name", ["linear", "dtypes", "afterwards", "backward"])
def test_text_is_as_stored(name):
    """The whole text, character by character."""
    assert_snapshot(f"failure_{name}.txt", failure_text.render(SAMPLES[name]))


def test_panel_is_as_stored():
    """The whole panel of the commonest error."""
    assert_snapshot("failure_linear.html", failure_html.render(SAMPLES["linear"]))


@pytest.mark.parametrize("width", [20, 40, 72])
@pytest.mark.parametrize("name", SAMPLES)
def test_no_line_is_wider_than_asked_for(name, width):
    """Forty columns at least."""
    lines = failure_text.render(SAMPLES[name], width=width).splitlines()
    assert [line for line in lines if len(line) > max(width, 40)] == []


def framed(name):
    """Return the texts of what a panel frames as not fitting, each with what is said below it."""
    html = failure_html.render(SAMPLES[name])
    pieces = html.split('class="tm-dim tm-not">')[1:]
    return [Page(f"<p>{piece.split('</span>')[0]}</p>").text for piece in pieces]


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("linear", ["5408≠ 784", "784≠ 5408"]),
        ("dtypes", ["float64fits: float32"]),
        ("devices", ["cpufits: cuda:0", "cuda:0fits: cpu"]),
        ("view", ["(1, 4)does not fit"]),
        ("argument", ["(5, 5)≠ 12"]),
        ("unknown", []),
    ],
)
def test_what_does_not_fit_is_framed_and_said_in_words(name, frames):
    """Not by colour alone: a frame, and below it what would have fitted."""
    assert [text.replace(" ", "") for text in framed(name)] == [text.replace(" ", "") for text in frames]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("linear", "✖ the result of x.flatten(1): 5408 in dimension 1, ≠ 784"),
        ("dtypes", "✖ b: float64, fits: float32"),
        ("view", "✖ x: (1, 4), does not fit"),
        ("argument", "✖ shape: (5, 5), ≠ 12"),
    ],
)
def test_text_says_what_does_not_fit(name, line):
    """A line below the table."""
    assert line in failure_text.render(SAMPLES[name]).splitlines()


@pytest.mark.parametrize(
    ("text", "call", "parts"),
    [
        ("y = net(x) + 1", "net(x)", ("y = ", "net(x)", " + 1")),
        ("y = torch.cat(", "torch.cat( [a, b])", ("y = ", "torch.cat(", "")),
        ("y = 1", "net(x)", ("y = 1", "", "")),
        ("", "net(x)", ("", "", "")),
    ],
)
def test_the_call_is_marked_in_its_line(text, call, parts):
    """Also where it goes on in the next line."""
    assert marked(Location("a.py", 1, text), call) == parts


def test_the_page_on_backends_is_left_out():
    """A missing kernel's message goes on with a hundred lines about every backend; the first sentence says it."""
    said = "Could not run 'aten::view' with arguments from the 'SparseCPU' backend."
    page = " This could be because the operator doesn't exist for this backend, or was omitted. BackendSelect: …"
    report = FailureReport(error_type="NotImplementedError", error=said + page)
    assert torch_said(report) == f"NotImplementedError: {said}"


def test_what_a_finding_says_is_not_said_twice():
    """The rule and what works stand in the finding; without one they stand alone."""
    assert failure_text.render(SAMPLES["linear"]).count("takes 784") == 1
    assert "works: a + b.float()" in failure_text.render(SAMPLES["dtypes"])


def picture_of(html):
    """Return the picture of a panel as SVG text."""
    return svg_of(re.findall(r'<img[^>]* src="(data:image/svg[^"]*)"', html)[0])


def test_the_crash_is_marked_in_the_graph_so_far():
    """A cross and words beside the refused call, in a picture that is wide enough for them."""
    svg = picture_of(failure_html.render(SAMPLES["recorded"]))
    (words,) = re.findall(r'<text class="cw" x="([\d.]+)" y="[\d.]+">([^<]+)</text>', svg)
    assert words[1].startswith("torch refused this: RuntimeError, ")
    width = float(re.search(r'<svg[^>]* width="([\d.]+)"', svg)[1])
    shift = float(re.search(r"translate\(([\d.]+),", svg)[1])
    assert shift + float(words[0]) + text_width(words[1], 11, bold=True) <= width
    assert ">linear<" in svg


def test_a_run_that_failed_begins_with_the_refused_call():
    """Above the run's own panel; what was found about it is not told twice."""
    run = replace(samples_trace.one_pass(), state="failed", failure=SAMPLES["linear"],
                  findings=SAMPLES["linear"].findings)  # fmt: skip
    page = Page(trace_html.render(run)).text
    assert page.index("the shapes do not fit") < page.index("As text")
    assert "".join(page.split()).count("takes784(in_features)") == 1


def test_the_node_that_failed_is_marked_in_the_runs_graph():
    """In the first picture of the panel, beside the words."""
    run = replace(samples_trace.one_pass(), state="failed", failure=SAMPLES["backward"])
    html = trace_html.render(run)
    words = "backward failed here: RuntimeError, train.py, line 5</text>"
    pictures = [svg_of(source or "") for source in re.findall(r'src="(data:image/svg[^"]*)"', html)]
    assert [picture.count(words) for picture in pictures] == [1, 1]


def test_a_forward_that_failed_before_any_backward_is_drawn_with_the_refused_call_once():
    """In the run's own picture, with solid lines and without the scale of norms; not in the block above it too."""
    run = replace(samples_trace.one_pass(), state="failed", failure=SAMPLES["recorded"], graphs=(), passes=())
    html = trace_html.render(run)
    assert html.count(' src="data:image/svg+xml,') == 1
    svg = picture_of(html)
    assert "Graph so far" in svg
    assert svg.count("torch refused this: RuntimeError, ") == 1
    assert "gradient norm" not in svg
    assert svg == trace_svg.render(run, tips=False).replace(".tms .", ".")


def test_after_passes_the_graph_up_to_the_refused_call_comes_last_for_the_viewer():
    """The graph of the passes stays the first; the block above keeps its picture."""
    run = replace(samples_trace.one_pass(), state="failed", failure=SAMPLES["recorded"])
    drawn, crash = with_crash(run)
    document = trace_document(drawn, crash=crash)
    assert document["crash"][:2] == [len(run.graphs), SAMPLES["recorded"].graph.roots[0]]
    assert [graph["passes_seen"] > 0 for graph in document["graphs"]] == [True] * len(run.graphs) + [False]
    assert len({graph["number"] for graph in document["graphs"]}) == len(run.graphs) + 1
    assert trace_document(samples_trace.one_pass())["crash"] is None
    assert "torch refused this" in picture_of(trace_html.render(run))
    assert "torch refused this" not in trace_svg.render(run)


def test_the_text_of_a_run_tells_the_refused_call_below_its_findings():
    """The line and the operands."""
    run = replace(samples_trace.one_pass(), state="failed", failure=SAMPLES["linear"],
                  findings=SAMPLES["linear"].findings)  # fmt: skip
    text = trace_text.render(run)
    assert text.index("TM804 error") < text.index("→ cell 5, line 18  x = self.fc1(x.flatten(1))")
    assert text.count("takes 784") == 1
