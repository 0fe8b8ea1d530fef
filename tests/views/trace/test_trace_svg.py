"""The picture of a traced run: what it shows of each kind of run, and that it stands alone in any host."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from xml.etree import ElementTree  # noqa: ICN001  (spelt out, as everything here)

import pytest

from tensormagic.reports import UNTOUCHED, Frame
from tensormagic.views import to_svg
from tensormagic.views.graph.drawing import draw
from tensormagic.views.graph.marks import Value, run_scale, value_of
from tensormagic.views.pictures.graph_svg import STYLE
from tensormagic.views.pictures.norms import Norms, chosen, scale_of
from tensormagic.views.theme import norm_level
from tests.views import samples_trace as samples
from tests.views import trace_forms
from tests.views.snapshots import assert_snapshot
from tests.views.trace_forms import CASES

NAMESPACE = "{http://www.w3.org/2000/svg}"


def chart(report):
    """Return the charts of all parameters, without the graph."""
    return Norms(report).svg(to_svg.WIDTH)[0]


def texts(svg):
    """Return what is written, tooltips apart."""
    found = ElementTree.fromstring(svg).iter(NAMESPACE + "text")
    return ["".join([element.text or "", *(_inner(child) for child in element)]) for element in found]


def _inner(child):
    return ("" if child.tag.endswith("title") else child.text or "") + (child.tail or "")


def count_of(svg, style):
    """Return how many shapes are drawn in that style."""
    paths = ElementTree.fromstring(svg).iter(NAMESPACE + "path")
    return sum(path.get("d").count("M") for path in paths if path.get("class") == style)


def classes(svg):
    return [element.get("class", "") for element in ElementTree.fromstring(svg).iter()]


@pytest.mark.parametrize("name", CASES)
def test_picture_is_as_stored(name):
    """Every kind of run has its picture in ``tests/snapshots``; a change is seen there."""
    assert_snapshot(f"trace_{name}.svg", trace_forms.svg(CASES[name]()))


@pytest.mark.parametrize("name", CASES)
def test_picture_stands_alone(name):
    """Well-formed, no script, no reference to anything, no id, an opaque ground: it can be an ``<img>``, and twice."""
    svg = trace_forms.svg(CASES[name]())
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(NAMESPACE) for element in root.iter()} <= {
        "svg", "style", "g", "rect", "path", "text", "tspan", "title", "circle",
    }  # fmt: skip
    assert not any(set(element.attrib) & {"id", "href", "onload"} for element in root.iter())
    assert "url(" not in svg
    ground = root.find(NAMESPACE + "rect")
    assert ground.get("fill") == "#fff"


@pytest.mark.parametrize("name", CASES)
def test_nothing_stands_outside_the_card(name):
    """Every text begins inside the card's width."""
    root = ElementTree.fromstring(trace_forms.svg(CASES[name]()))
    for element in root.findall(f"{NAMESPACE}g/{NAMESPACE}text"):
        assert 0 <= float(element.get("x", "0")) <= to_svg.WIDTH + 32


def test_the_first_nan_is_marked():
    """The node whose backward made the NaN is ringed and named, with the finding above."""
    shown = texts(trace_forms.svg(samples.broken()))
    assert "NaN born here" in shown
    assert "TM402 error" in shown
    assert "320 NaN" in shown


def test_the_first_nan_of_an_earlier_pass_says_in_which():
    """Where the picture shows a later pass than the one that made the NaN, the mark names the pass."""
    whole = samples.broken()
    first_nonfinite = (replace(whole.graphs[0].first_nonfinite[0], pass_number=12),)
    whole = replace(whole, graphs=(replace(whole.graphs[0], first_nonfinite=first_nonfinite),))
    assert "NaN born here, pass 12" in texts(trace_forms.svg(whole))


def test_infinity_without_nan_is_called_inf():
    """A first of infinities alone is not called NaN; one that is not certain says so."""
    whole = samples.broken()
    first_nonfinite = (replace(whole.graphs[0].first_nonfinite[0], nan=0, inf=3, certain=False),)
    whole = replace(whole, graphs=(replace(whole.graphs[0], first_nonfinite=first_nonfinite),))
    assert "Inf born here, or beside it" in texts(trace_forms.svg(whole))


def test_boxes_take_the_colour_of_their_norm():
    """Of eleven boxes seven are bad; the others have their level of the norm scale."""
    whole = samples.broken()
    drawing, frame = draw(whole.graphs[0]), whole.graphs[0].frames[0]
    values = [value_of(box.nodes, frame, run_scale(whole)) for box in drawing.boxes]
    assert sum(value.bad for value in values) == 7
    svg = trace_forms.svg(replace(whole, parameters=()), drawing=drawing)
    styles = Counter("bad" if value.bad else norm_level(value.norm, value.scale) for value in values)
    assert {style: count_of(svg, f"b s{style}") for style in styles} == styles


def test_untouched_nodes_are_dashed():
    """Where no gradient came the box is grey and dashed, and the wire to it too."""
    svg = trace_forms.svg(samples.untouched())
    assert count_of(svg, "w wnone") == 4
    assert count_of(svg, "b snone") == 4
    assert count_of(svg, "w snone") == 2


def test_value_of_a_box_is_that_of_its_first_reached_node():
    """The first of a box's nodes that was reached speaks for it; a bad one anywhere in it is louder."""
    frame = Frame(1, array("f", [UNTOUCHED, 0.5, 2.0, math.inf]), {"2": (1, 2)})
    assert value_of((0, 1), frame) == Value(0.5)
    assert value_of((1, 2), frame) == Value(2.0, 1, 2)
    assert value_of((0,), frame).untouched
    assert value_of((1, 3), frame).bad
    assert value_of((1, 2), None) == Value()
    assert [value_of((at,), frame).text for at in (0, 1, 2, 3)] == [
        "no gradient", "gradient norm 0.5", "1 NaN, 2 Inf", "Inf",
    ]  # fmt: skip


def test_wires_are_thicker_where_the_gradient_is_larger():
    """Each of the six levels has its own stroke width, rising; those that are drawn keep theirs."""
    style = re.findall(r"\.tms \.w(\d)\{stroke:#\w+;stroke-width:([\d.]+)\}", STYLE)
    widths = [float(width) for _, width in sorted(style)]
    assert len(widths) == 6
    assert widths == sorted(set(widths))


def test_a_given_drawing_is_drawn():
    """The picture can show the very boxes that the live panel showed."""
    whole = samples.report(samples.transformer(8))
    svg = trace_forms.svg(whole, drawing=draw(whole.graphs[0], max_boxes=9))
    assert "layers.7" in texts(svg)
    assert any("322 nodes drawn as 9 boxes" in text for text in texts(svg))


def test_another_graph_can_be_shown_and_the_rest_is_named():
    """Of two graphs one is drawn, and the other is said not to be."""
    whole = samples.report()
    whole = replace(whole, graphs=(*whole.graphs, replace(samples.chain(3), number=2)))
    shown = texts(trace_forms.svg(whole, place=1))
    assert shown.count("sin") == 3
    assert any("1 graph with another structure not shown" in text for text in shown)


def test_no_backward_says_what_would_make_one():
    """An empty trace is a sentence, not an empty picture."""
    assert "no backward was seen; call .backward() on a scalar loss inside the traced code" in texts(
        trace_forms.svg(samples.empty())
    )


def test_a_failed_run_shows_its_error():
    """The error stands in the header, what could not be seen below."""
    shown = texts(trace_forms.svg(samples.failed()))
    assert any(words.startswith("failed: ValueError: expected 10 classes, got 11") for words in shown)
    assert "saved tensors not shown: the graph was freed before they were read" in shown


@pytest.mark.parametrize("boxes", [200, 600])
def test_large_pictures_stay_small_files(boxes):
    """600 boxes take less than 150 KB."""
    whole = samples.report(samples.resnet(100))
    drawing = draw(whole.graphs[0], max_boxes=10_000)
    kept = replace(drawing, boxes=drawing.boxes[:boxes], wires=tuple(w for w in drawing.wires if w.source < boxes))
    assert len(kept.boxes) == boxes
    assert len(trace_forms.svg(whole, drawing=kept).encode()) < 150 * 1024


def test_charts_share_one_scale_of_whole_decades():
    """The scale holds every finite norm; zero and NaN do not widen it, and it never spans more than 12 decades."""
    (series,) = samples.parameters_of(samples.chain(1))
    norms = array("f", [0.0, 3e-4, 20.0, math.nan, UNTOUCHED])
    scale = scale_of([replace(series, norms=norms)])
    assert (scale.low, scale.high, scale.text) == (-4, 2, "1e−4 to 100")
    assert [round(scale.share(norm), 3) for norm in (1e-4, 1e-1, 100.0, 0.0, 1e9)] == [0.0, 0.5, 1.0, 0.0, 1.0]
    wide = scale_of([replace(series, norms=array("f", [1e-30, 1.0]))])
    assert (wide.low, wide.high) == (-11, 1)


def test_a_large_model_shows_the_parameters_that_matter_and_counts_the_rest():
    """NaN first, then those without gradient, then the order of the report; the others are counted."""
    whole = samples.report(samples.resnet(10), count=3)
    series = list(whole.parameters)
    series[50] = replace(series[50], norms=array("f", [1.0, math.nan, 1.0]))
    series[40] = replace(series[40], norms=array("f", [UNTOUCHED] * 3), touched=0)
    names = [each.name for each in chosen(series)]
    assert names[:3] == [series[50].name, series[40].name, series[0].name]
    shown = texts(trace_forms.svg(replace(whole, parameters=tuple(series))))
    assert f"{len(series) - 12} parameters more, not shown here" in shown


def heights(svg):
    """Return how far from the top the points of all lines of a chart are."""
    (path,) = re.findall(r'class="p" d="([^"]+)"', svg)
    pieces = [[float(one) for one in re.findall(r"-?\d*\.?\d+", piece)] for piece in re.split("[Ml]", path)[1:]]
    starts, steps = pieces[::2], pieces[1::2]
    return [y for start, step in zip(starts, steps, strict=True) for y in accumulate([start[1], *step[1::2]])]


def test_a_long_series_keeps_its_extremes():
    """Of 5,000 passes the one spike and the one NaN are still drawn."""
    (series,) = samples.parameters_of(samples.chain(1))
    norms = array("f", [0.01] * 5000)
    norms[3210], norms[1234] = 90.0, math.nan
    whole = samples.report(samples.chain(1), count=5000, parameters=(replace(series, norms=norms),))
    svg = chart(whole)
    assert min(heights(svg)) < 20 < max(heights(svg))
    assert classes(svg).count("b sbad") == 1
    assert len(svg) < 12_000


def test_chart_alone_is_a_picture_and_nothing_where_no_pass_was_kept():
    """The charts can be shown without the graph; without a pass there is no empty frame."""
    assert ElementTree.fromstring(chart(samples.report())).tag == "g"
    assert chart(samples.empty()) == ""


def test_code_in_findings_is_set_as_code():
    """What a finding quotes between backticks stands in the code font, over a line's end too; no backtick is left."""
    run = samples.broken()
    long = "`F.binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None)`"
    told = replace(
        run.findings[0], message="`a < b` is born", remedy=f"{'Keep away from zero. ' * 3}Use {long} here; a ` stays"
    )
    svg = trace_forms.svg(replace(run, findings=(told,)))
    root = ElementTree.fromstring(svg)
    spans = [span.text for span in root.iter("{http://www.w3.org/2000/svg}tspan") if span.get("font-family")]
    assert spans[0] == "a < b"
    assert " ".join(spans[1:]) == long.strip("`")
    assert len(spans) == 3
    assert svg.count("`") == 1


def test_models_without_any_gradient_stand_last():
    """A teacher's parameters do not push out those that learn; one that alone got none in its model comes first."""
    (like, *_) = samples.report().parameters

    def series(owner, name, touched):
        norms = array("f", [0.1 if touched else UNTOUCHED] * len(like.norms))
        return replace(like, name=f"{owner}.{name}", owner=owner, touched=touched, norms=norms)

    teacher = [series("teacher", str(at), 0) for at in range(5)]
    student = [series("student", str(at), 0 if at == 3 else 2) for at in range(5)]
    names = [one.name for one in chosen([*teacher, *student], most=4)]
    assert names == ["student.3", "student.0", "student.1", "student.2"]
    assert [one.owner for one in chosen([*teacher, *student], most=40)] == ["student"] * 5 + ["teacher"] * 5
