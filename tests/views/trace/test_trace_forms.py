"""A traced run in every form: each kind as stored, its page, and what no stored run shows."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import replace
from itertools import accumulate
from xml.etree import ElementTree  # noqa: ICN001  (spelt out, as everything here)

import pytest

from tensormagic.reports import UNREADABLE, UNTOUCHED, Pass
from tensormagic.views import to_svg
from tensormagic.views.page import figures
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace as trace_html
from tensormagic.views.panels.trace_words import all_clear, norm_text, run_text
from tensormagic.views.pictures.norms import Norms, chosen, scale_of
from tensormagic.views.text_canvas import bar, bars, largest
from tests.views import samples_failure, samples_trace as samples, samples_viewer, trace_forms
from tests.views.snapshots import assert_snapshot
from tests.views.trace_forms import CASES


def texts(svg):
    """Return what is written, tooltips apart."""
    root = ElementTree.fromstring(svg)
    for tip in root.iter("{http://www.w3.org/2000/svg}title"):
        tip.text = ""
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", CASES)
def test_forms_are_as_stored(name):
    """Every kind of run has its text and its picture in ``tests/snapshots``; a change is seen there.

    A page may hold the picture twice: nothing in it has an id, or refers to one.
    """
    svg = trace_forms.svg(CASES[name]())
    assert_snapshot(f"trace_{name}.txt", trace_forms.text(CASES[name]()))
    assert_snapshot(f"trace_{name}.svg", svg)
    assert not re.search(r"<[^>]+\s(?:id|href|onload)=|url\(", svg)


def test_states_are_told_apart():
    """A run that has not ended, or not by itself, says so, and claims no more than it knows."""
    for state in ("running", "interrupted"):
        assert f"── digits-cnn ── {state} · " in trace_forms.text(replace(samples.report(), state=state))
    assert all_clear(samples.failed()).endswith("2 backward passes; the error comes from your code")


def test_a_refused_backward_is_the_last_of_the_passes_and_not_after_it():
    """The passes that are counted include the one that torch refused: none of them came before it that did not."""
    failure = samples_failure.backward()
    last = replace(samples.failed().passes[-1], outcome="failed")
    two = replace(samples.failed(), failure=failure, passes=(samples.failed().passes[0], last), passes_seen=2)
    assert all_clear(two).endswith("which torch refused, in the last of 2 backward passes")
    one = replace(two, passes=(last,), passes_seen=1)
    assert all_clear(one).endswith("which torch refused in the first backward")
    forward = replace(failure, phase="forward")
    assert all_clear(replace(two, failure=forward)).endswith("which torch refused; 2 backward passes before it")


def test_what_is_left_out_is_counted():
    """Of two graphs one is drawn, of many parameters forty are shown, of thinned passes those that were kept."""
    two = replace(samples.report(), graphs=(replace(samples.chain(3), number=2), *samples.report().graphs))
    assert "\n  1 graph with another structure not shown\n" in trace_forms.text(two)
    shown = texts(trace_forms.svg(two))
    assert shown.count("sin") == 3
    assert any("1 graph with another structure not shown" in text for text in shown)
    many = replace(samples.report(samples.resnet(10)), passes_seen=4000)
    assert f"not shown: {len(many.parameters) - 40} parameters more\n" in trace_forms.text(many)
    assert "40 of 4000 passes were kept and are shown\n" in trace_forms.text(many)


def test_bars_stand_for_norms():
    """Eight heights over the scale, and letters of their own for what is no height; a stretch shows its loudest."""
    assert [bar(10.0**exponent) for exponent in (-9, -5, -2, 0.9, 9)] == ["▁", "▁", "▅", "█", "█"]
    assert [bar(norm) for norm in (math.nan, math.inf, UNTOUCHED, 0.0, UNREADABLE)] == ["!", "!", "·", "0", "?"]
    norms = array("f", [1e-3] * 1000)
    norms[500] = math.nan
    assert bars(norms, 10, (-5, 1)) == "▃▃▃▃▃!▃▃▃▃"
    assert bars([UNREADABLE, 1.0, UNTOUCHED, UNREADABLE, UNTOUCHED, UNTOUCHED], 3, (-1, 0)) == "█?·"
    assert (largest([UNTOUCHED, 2.0, 1.0]), largest([])) == (2.0, UNTOUCHED)


@pytest.mark.parametrize(
    ("norm", "written"),
    [
        (1.0, "1"), (0.64, "0.64"), (24.2, "24"), (640.4, "640"), (9999.4, "9999"), (3.14e-5, "3.1e−5"),
        (1e-6, "1e−6"), (0.00123, "0.0012"), (0.125, "0.13"), (99.5, "100"), (123456.0, "1.2e5"),
        (0.0, "0"), (math.nan, "NaN"), (math.inf, "Inf"), (UNTOUCHED, "none"), (UNREADABLE, "not measurable"),
    ],
)  # fmt: skip
def test_norms_are_written_as_numbers(norm, written):
    """Two digits, as a user writes them; powers of ten only where there is no other way."""
    assert norm_text(norm) == written


@pytest.mark.parametrize(
    ("values", "locations", "words"),
    [
        ((2.3, 0.5, 0.125), (0, 0, 0), ", loss 2.3 → 0.125"),
        ((2.3, 0.5, math.nan), (0, 0, 0), ", loss 2.3 → NaN"),
        ((2.3,), (0,), ", loss 2.3"),
        ((2.3, 0.5), (0, 1), ""),  # two losses, as of a generator and its critic
        ((2.3, None), (0, 0), ""),  # not a number every time
    ],
)
def test_the_loss_is_told_where_there_is_one(values, locations, words):
    """First and last of what backward was called on, where that is one number, on one line."""
    passes = tuple(
        Pass(number, number, 1, "finished", 0.1, 3, location, value=value)
        for number, (value, location) in enumerate(zip(values, locations, strict=True), start=1)
    )
    report = replace(samples.broken(), passes=passes, own_seconds=0.0)
    assert run_text(report).endswith(words)
    assert ("loss" in run_text(report)) == bool(words)


def test_cuts_that_read_the_same_are_one_line():
    """The same call on the same line, used at twelve places alike: said once, with the number of places."""
    report = samples.cuts()
    (graph,) = report.graphs
    text = trace_forms.text(replace(report, graphs=(replace(graph, cuts=graph.cuts[:1] * 12),)))
    assert "12 cuts in the graph" in text
    assert text.count(f"{graph.cuts[0].op}, line") == 1
    assert " ".join(text.split()).count("at each of 12 places") == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pass_number": 12}, "NaN born here, pass 12"),
        ({"nan": 0, "inf": 3, "certain": False}, "Inf born here, or beside it"),
    ],
)
def test_what_was_born_when_is_said(changes, words):
    """An earlier pass than the one that is drawn is named; infinities alone are not called NaN; doubt is said."""
    whole = samples.broken()
    born = (replace(whole.graphs[0].first_nonfinite[0], **changes),)
    whole = replace(whole, graphs=(replace(whole.graphs[0], first_nonfinite=born),))
    assert f"◆ {words}" in texts(trace_forms.svg(whole))


def test_charts_share_one_scale_of_whole_decades():
    """The scale holds every finite norm; zero and NaN do not widen it, and it never spans more than 12 decades."""
    scale = scale_of([0.0, 3e-4, 20.0, math.nan, UNTOUCHED])
    assert (scale.low, scale.high, scale.text) == (-4, 2, "1e−4 to 100")
    assert [round(scale.share(norm), 3) for norm in (1e-4, 1e-1, 100.0, 0.0, 1e9)] == [0.0, 0.5, 1.0, 0.0, 1.0]
    wide = scale_of([1e-30, 1.0])
    assert (wide.low, wide.high) == (-11, 1)


def test_a_large_model_shows_the_parameters_that_matter_and_counts_the_rest():
    """NaN first, then those without gradient, then the order of the report; the others are counted.

    A teacher's parameters do not push out those that learn; one that alone got none in its model comes first.
    """
    whole = samples.report(samples.resnet(10), count=3)
    series = list(whole.parameters)
    series[50] = replace(series[50], norms=array("f", [1.0, math.nan, 1.0]))
    series[40] = replace(series[40], norms=array("f", [UNTOUCHED] * 3), touched=0)
    assert [each.name for each in chosen(series)][:3] == [series[at].name for at in (50, 40, 0)]
    shown = texts(trace_forms.svg(replace(whole, parameters=tuple(series))))
    assert f"{len(series) - 12} parameters more, not shown here" in shown
    reached = {("student", at) for at in (0, 1, 2, 4)}
    models = [
        replace(series[0], name=f"{owner}.{at}", owner=owner, touched=2 * ((owner, at) in reached),
                norms=array("f", [0.1 if (owner, at) in reached else UNTOUCHED] * 3))
        for owner in ("teacher", "student") for at in range(5)
    ]  # fmt: skip
    assert [one.name for one in chosen(models, most=4)] == ["student.3", "student.0", "student.1", "student.2"]
    assert [one.owner for one in chosen(models, most=40)] == ["student"] * 5 + ["teacher"] * 5


def heights(svg):
    """Return how far from the top the points of all lines of a chart are."""
    (path,) = re.findall(r'class="p" d="([^"]+)"', svg)
    pieces = [[float(one) for one in re.findall(r"-?\d*\.?\d+", piece)] for piece in re.split("[Ml]", path)[1:]]
    starts, steps = pieces[::2], pieces[1::2]
    return [y for start, step in zip(starts, steps, strict=True) for y in accumulate([start[1], *step[1::2]])]


def test_a_long_series_keeps_its_extremes():
    """Of 5,000 passes the one spike and the one NaN are still drawn; without a pass there is no empty frame."""
    (series,) = samples.parameters_of(samples.chain(1))
    norms = array("f", [0.01] * 5000)
    norms[3210], norms[1234] = 90.0, math.nan
    long = samples.report(samples.chain(1), count=5000, parameters=(replace(series, norms=norms),))
    svg, nothing = (Norms(report).svg(to_svg.WIDTH)[0] for report in (long, samples.empty()))
    assert min(heights(svg)) < 20 < max(heights(svg))
    assert [element.get("class", "") for element in ElementTree.fromstring(svg).iter()].count("b sbad") == 1
    assert len(svg) < 12_000
    assert nothing == ""


def unmeasured(*, always):
    """A run whose first parameter, and whose node nearest to the loss, could not be measured: always, or once."""
    base = samples_viewer.calm_run(4)
    graph, first = base.graphs[0], base.parameters[0]
    last = len(graph.nodes) - 1
    frames = tuple(replace(frame, norms=frame.norms[:last] + array("f", [UNREADABLE])) for frame in graph.frames)
    series = array("f", [UNREADABLE] * 4 if always else [0.5, 0.25, UNREADABLE, 0.125])
    parameters = (replace(first, norms=series), *base.parameters[1:])
    return replace(base, graphs=(replace(graph, frames=frames),), parameters=parameters)


def test_tables_keep_what_was_not_measured_out_of_smallest_and_largest():
    """The smallest and the largest norm are those that were measured; where none was, there are none."""
    nothing = ("not measurable", "not measurable", "", "")
    for always, cells in ((False, ("0.5", "0.13", "0.13", "0.5")), (True, nothing)):
        row = Norms(unmeasured(always=always)).html().split("<tr>")[2]
        assert row.split("</tr>")[0].endswith("".join(f"<td>{cell}</td>" for cell in cells))


def test_every_form_says_what_was_not_measured():
    """A word instead of numbers, and a mark that is explained; a box of its own style; a code; a mark in the figure."""
    run = unmeasured(always=True)
    text, svg, document = trace_forms.text(run), trace_forms.svg(run), trace_document(run)
    row = next(line for line in text.splitlines() if line.startswith("net.conv1.weight"))
    assert row.endswith("  not measurable")
    assert "????" in row
    assert "? not measurable" in text
    assert max(map(len, trace_forms.text(run, width=50).splitlines())) <= 50
    assert "−2.0e0" not in text
    assert 'class="b sblind"' in svg
    assert ">not measurable</text>" in svg
    calm = trace_forms.svg(samples_viewer.calm_run(4))
    assert 'class="b sblind"' not in calm
    assert "not measurable" not in calm
    assert document["parameters"][0]["norms"] == ["u"] * 4
    assert "u" in document["graphs"][0]["frames"][0]["norms"]
    drawn = figures.figure(unmeasured(always=False), "gradient_flow")
    assert tuple(next(each for each in drawn.data if each.name == "not measurable").x) == (3,)
    assert drawn.data[0].y[2] is None


def test_how_far_a_step_moved_a_weight_says_after_which_pass():
    """Where later steps were not measured, nobody takes the number for one of the last step."""
    report = samples.report(count=3)
    early, late = [0.5, UNTOUCHED, UNTOUCHED], [0.5, UNTOUCHED, 0.25]
    said = []
    for first, others in ((early, early), (late, late), (early, late)):
        moved = (replace(one, updates=array("d", others)) for one in report.parameters[1:])
        parameters = (replace(report.parameters[0], updates=array("d", first)), *moved)
        text = " ".join(" ".join(Norms(replace(report, parameters=parameters)).text(120)).split())
        said += re.findall(r"how far the optimizer's step after (.*?) changed it", text)
    assert said == ["pass 1", "pass 3", "pass 1 to 3"]


def test_tables_say_how_much_they_leave_out() -> None:
    """The tables of a large run name both numbers; of a run without a backward, what would make one."""
    assert "no backward was seen; call .backward() on a scalar loss" in trace_html.render(samples.empty())
    html = trace_html.render(samples_viewer.large_run(500, passes=60))
    assert "16 of 500 nodes of graph 1, norms of pass 60" in html
    assert "16 of 166 parameters" in html
    assert "8 of 60 passes, the last ones" in html


def test_the_page_of_a_small_run_is_as_stored() -> None:
    """Header, findings, gaps, tables, and the picture in its address."""
    assert_snapshot("trace_html_small.html", trace_html.render(samples_viewer.broken_run(passes=3, at=2)))
