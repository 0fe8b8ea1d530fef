"""Plotly figures of memory, and the pictures as SVG files."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tensormagic import views
from tensormagic.errors import TensorMagicError
from tensormagic.views.page import figures
from tensormagic.views.page.figures_panels import MOST_TILES
from tests.views.samples_memory import SAMPLES
from tests.views.samples_memory_run import SAMPLES as RUNS


def test_the_kinds_of_both_reports() -> None:
    """What is alive has a treemap; a run has a timeline and its lines besides."""
    assert figures.kinds_of(SAMPLES["small"]) == ("treemap",)
    assert figures.kinds_of(RUNS["training"]) == ("treemap", "timeline", "lines")


@pytest.mark.parametrize("report", [SAMPLES["gpt"], SAMPLES["many"], RUNS["training"]], ids=["gpt", "many", "run"])
def test_a_treemap_adds_up(report) -> None:
    """Every rectangle has the bytes of those inside of it, as plotly asks for; each has an id of its own."""
    drawn = figures.figure(report, "treemap").data[0]
    assert len(set(drawn.ids)) == len(drawn.ids)
    inside: dict[str, int] = {}
    for parent, value in zip(drawn.parents, drawn.values, strict=True):
        inside[parent] = inside.get(parent, 0) + value
    own = dict(zip(drawn.ids, drawn.values, strict=True))
    assert {parent: value for parent, value in inside.items() if parent} == {node: own[node] for node in inside if node}
    assert len(drawn.ids) < MOST_TILES + 100


def test_the_timeline_stacks_what_is_alive() -> None:
    """The last value of all areas together is what was alive at the end; the peak is marked; axes speak in bytes."""
    report = RUNS["training"]
    figure = figures.figure(report, "timeline")
    assert sum(area.y[-1] for area in figure.data) == report.timelines[0].live[-1]
    assert figure.layout.annotations[0].text == "peak 86.2 MiB"
    assert figure.layout.yaxis.ticktext == ("0", "20 MiB", "40 MiB", "60 MiB", "80 MiB")


def test_lines_are_bars() -> None:
    """Allocated, alive at the peak and kept, a bar each, beside the line as it is."""
    drawn = figures.figure(RUNS["training"], "lines").data
    assert [one.name for one in drawn] == ["allocated", "at the peak", "kept"]
    assert drawn[2].y[3] == "line 8  optimizer.step()"
    assert drawn[2].customdata[3] == "30 MiB"


@pytest.mark.parametrize("kind", ["treemap", "timeline", "lines"])
def test_nothing_to_draw_is_said(kind: str) -> None:
    """A cell without a tensor has none of the figures, and the message says why."""
    with pytest.raises(TensorMagicError, match=f'no "{kind}" figure'):
        figures.figure(RUNS["empty"], kind)


def test_the_svg_of_what_is_alive() -> None:
    """A rectangle a storage with what is known of it; the categories with their bytes below."""
    drawn = views.render(SAMPLES["small"], "svg")
    assert re.findall(r"<title>([^\n<]+)", drawn)[1:] == ["net.weight", "net.bias", "x"]
    assert "parameters 4.1 KiB" in drawn
    assert "no tensor is alive" in views.render(SAMPLES["empty"], "svg")


def test_the_svg_of_a_run() -> None:
    """The peak is marked in the chart; without memory there is no chart, in words."""
    assert ">peak 86.2 MiB<" in views.render(RUNS["training"], "svg")
    assert "no operation allocated anything" in views.render(replace(RUNS["empty"], gaps=()), "svg")
