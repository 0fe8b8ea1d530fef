"""A gradient that came but could not be measured: no norm, and not "no gradient" either, in every renderer."""

from __future__ import annotations

from array import array
from dataclasses import replace
from xml.etree import ElementTree  # noqa: ICN001  (spelt out, as everything here)

import pytest

from tensormagic.reports import UNREADABLE, UNTOUCHED, Frame, TraceReport
from tensormagic.views.graph.marks import Value, value_of
from tensormagic.views.page import figures
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels.trace_words import measured, norm_text, touched
from tensormagic.views.pictures.norms import Norms
from tensormagic.views.text_canvas import bar, bars
from tests.views import samples_viewer, trace_forms


def _run(*, always: bool) -> TraceReport:
    """A run whose first parameter, and whose node nearest to the loss, could not be measured: always, or once."""
    base = samples_viewer.calm_run(4)
    graph, first = base.graphs[0], base.parameters[0]
    frames = []
    for frame in graph.frames:
        norms = array("f", frame.norms)
        norms[graph.roots[0]] = UNREADABLE
        frames.append(replace(frame, norms=norms))
    measured_norms = [0.5, 0.25, 0.75, 0.125]
    series = array("f", [UNREADABLE] * 4 if always else [*measured_norms[:2], UNREADABLE, measured_norms[3]])
    parameters = (replace(first, norms=series), *base.parameters[1:])
    return replace(base, graphs=(replace(graph, frames=tuple(frames)),), parameters=parameters)


def test_words_tell_it_from_a_norm_and_from_nothing() -> None:
    """It came, but it is no norm; it is written as what it is."""
    assert (touched(UNREADABLE), measured(UNREADABLE)) == (True, False)
    assert (touched(UNTOUCHED), measured(UNTOUCHED)) == (False, False)
    assert (touched(float("nan")), measured(float("nan"))) == (True, True)
    assert norm_text(UNREADABLE) == "not measurable"
    assert bar(UNREADABLE) == "?"


def test_bars_show_a_norm_rather_than_that_there_was_none() -> None:
    """Of a stretch of passes a norm is shown first, then "not measurable", then "no gradient"."""
    assert bars([UNREADABLE, 1.0, UNTOUCHED, UNREADABLE, UNTOUCHED, UNTOUCHED], 3, (-1, 0)) == "█?·"


def test_value_of_a_box_counts_it_as_reached() -> None:
    """The box of a node that could not be measured says so; a NaN beside it still decides."""
    frame = Frame(1, array("f", [UNTOUCHED, UNREADABLE, 0.5, float("nan")]))
    value = value_of((0, 1, 2), frame)
    assert (value.style, value.text, value.untouched, value.bad) == ("blind", "gradient not measurable", False, False)
    assert value_of((1, 3), frame).style == "bad"
    assert Value().style == "none"


@pytest.mark.parametrize(("always", "cells"), [(False, ("0.5", "0.13", "0.13", "0.5")), (True, None)])
def test_tables_keep_it_out_of_smallest_and_largest(always: bool, cells: tuple[str, ...] | None) -> None:
    """The smallest and the largest norm are those that were measured; where none was, there are none."""
    row = Norms(_run(always=always)).html().split("<tr>")[2]
    wanted = cells or ("not measurable", "not measurable", "", "")
    assert row.split("</tr>")[0].endswith("".join(f"<td>{cell}</td>" for cell in wanted))


def test_text_says_it() -> None:
    """The terminal's table names it instead of numbers, and explains its mark; no line is wider than asked for."""
    text = trace_forms.text(_run(always=True))
    row = next(line for line in text.splitlines() if line.startswith("net.conv1.weight"))
    assert row.endswith("  not measurable")
    assert "????" in row
    assert "? not measurable" in text
    assert max(map(len, trace_forms.text(_run(always=True), width=50).splitlines())) <= 50
    assert "−2.0e0" not in text


def test_picture_draws_it_dotted_and_explains_it() -> None:
    """In the picture the box has a style of its own, its wire no number but a question mark, the legend a word."""
    svg = trace_forms.svg(_run(always=True))
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert 'class="b sblind"' in svg
    assert ">not measurable</text>" in svg
    calm = trace_forms.svg(samples_viewer.calm_run(4))
    assert 'class="b sblind"' not in calm
    assert "not measurable" not in calm


def test_document_has_a_code_for_it() -> None:
    """The viewer gets it as a code of its own, not as zero and not as untouched."""
    document = trace_document(_run(always=True))
    assert document["parameters"][0]["norms"] == ["u"] * 4
    assert "u" in document["graphs"][0]["frames"][0]["norms"]


def test_figure_marks_it() -> None:
    """The figure has a mark for every pass in which it could not be measured, and no point below zero."""
    pytest.importorskip("plotly")
    drawn = figures.figure(_run(always=False), "gradient_flow")
    marks = next(each for each in drawn.data if each.name == "not measurable")
    assert tuple(marks.x) == (3,)
    assert drawn.data[0].y[2] is None
