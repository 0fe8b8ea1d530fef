"""How many bytes an output leaves in the notebook, its viewer and its plain text included: bounds, not habits."""

from __future__ import annotations

import random
import re
from array import array
from dataclasses import replace

import pytest

from tensormagic import views
from tensormagic.reports import Graph, Report, TraceReport
from tensormagic.views import theme
from tensormagic.views.page.files import bundle
from tests.support.kernel import ROOT
from tests.views import samples_trace as samples, samples_viewer
from tests.views.test_every_renderer import SAMPLES

SMALL, LARGE = 130_000, 300_000  # of about 200 nodes, of about 2,000


def _bytes(report: Report) -> int:
    """Bytes of the output in a notebook: viewer, picture, tables, "Export", the beginning of its text for exports."""
    return len(bundle(report)["text/html"].encode())


def _noisy(report: TraceReport, decades: float = 0.12) -> TraceReport:
    """The same run with norms that go up and down by a third from pass to pass, as with small batches, or by more."""
    chance = random.Random(0)

    def shaken(one):
        return replace(one, norms=array("f", [norm * 10 ** chance.gauss(0, decades) for norm in one.norms]))

    graph = replace(report.graphs[0], frames=tuple(map(shaken, report.graphs[0].frames)))
    return replace(report, graphs=(graph,), parameters=tuple(map(shaken, report.parameters)))


def _run(graph: Graph, count: int) -> TraceReport:
    """A run of so many passes through a graph, no two alike."""
    (first,) = graph.frames
    frames = tuple(replace(first, pass_number=number) for number in range(1, count + 1))
    return _noisy(samples.report(replace(graph, frames=frames, passes_seen=count), count=count))


@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize(
    "graph",
    [samples.mlp(39), samples.resnet(13), samples.transformer(5), samples.lstm(12)],
    ids=["mlp", "cnn", "transformer", "lstm"],
)
def test_a_run_of_two_hundred_nodes(graph: Graph, count: int) -> None:
    """Networks of some 200 nodes, few passes and many, stay below 130 KB, all that can be done with them included."""
    assert 180 <= len(graph.nodes) <= 220
    assert _bytes(_run(graph, count)) <= SMALL


def test_the_text_of_a_run_and_its_form_for_latex_are_short() -> None:
    """What is beside the panel for terminals and for PDF: a bar of a chart is five characters of LaTeX."""
    shown = bundle(_run(samples.transformer(5), 200))
    assert len(shown["text/plain"].encode()) <= 9_000
    assert len(shown["text/latex"].encode()) <= 7_000


@pytest.mark.parametrize("graph", [samples.resnet(132), samples.transformer(50), samples.lstm(130)])
def test_a_run_of_two_thousand_nodes(graph: Graph) -> None:
    """Networks of some 2,000 nodes stay below 300 KB."""
    assert 1900 <= len(graph.nodes) <= 2200
    assert _bytes(_run(graph, 40)) <= LARGE


@pytest.mark.parametrize(
    ("nodes", "passes", "noise", "findings", "most"),
    [
        (200, 200, 0.12, samples_viewer.broken_run().findings, SMALL),
        (200, 1000, 2, (), LARGE),
        (2000, 40, 2, (), LARGE),
    ],
    ids=["a finding has room", "a thousand passes", "noise"],
)
def test_what_a_run_may_hold_besides(nodes: int, passes: int, noise: float, findings: tuple, most: int) -> None:
    """A finding in full, in picture, text and viewer, fits into the same.

    A thousand kept passes are thinned to what fits; noise that cannot be packed is no exception.
    """
    run = _noisy(samples_viewer.large_run(nodes, passes=passes), noise)
    assert _bytes(replace(run, findings=findings)) <= most


@pytest.mark.parametrize("name", SAMPLES["tensor"])
def test_a_tensor_stays_small(name: str) -> None:
    """As it is saved, with the viewer, all that can be exported, and the text for exports that are sanitised: 80 KB."""
    assert _bytes(SAMPLES["tensor"][name]) <= 80_000


def test_a_hundred_storages_are_told_in_64_kilobytes() -> None:
    """What exports them included; ten thousand have their bounds in `test_every_renderer`."""
    assert len(views.render(SAMPLES["memory"]["hundred"], "html").encode()) <= 64_000


def _lean(report: Report) -> int:
    """Bytes of an output, "Export" and its text included, whose code another output of the notebook carries."""
    html = views.render(report, "html")
    return len(theme.deduplicate(html, dict.fromkeys(theme.elements(html))).encode()) + len(
        views.render(report, "txt").encode()
    )


@pytest.mark.parametrize("graph", [samples.mlp(39), samples.transformer(5)], ids=["mlp", "transformer"])
def test_each_further_run_of_two_hundred_nodes(graph: Graph) -> None:
    """In a notebook that holds the viewer once, a second run takes half of what the first takes."""
    assert _lean(_run(graph, 200)) <= 60_000


def test_each_further_tensor() -> None:
    """Of a tensor the style sheet, which is not shared, is more than half of what is left."""
    assert _lean(SAMPLES["tensor"]["transpose_slice"]) <= 48_000


def test_what_the_code_takes() -> None:
    """Each piece, once a notebook, and what every panel needs to find it; the page about hosts tells these sizes.

    To two kilobytes: it is told that a notebook holds so much once.
    """
    panels = [
        views.render(next(iter(SAMPLES[kind].values())), "html") for kind in ("trace", "tensor", "tensors", "overlay")
    ]
    pieces = {key.split("-")[0]: len(element) for html in panels for key, element in theme.elements(html).items()}
    bounds = {"trace": 75_000, "tensor": 12_000, "export": 12_000, "tensors": 3_000, "overlay": 2_000}
    assert pieces.keys() == bounds.keys()
    assert {name: size for name, size in pieces.items() if size > bounds[name]} == {}
    assert len(theme.loader()) <= 2_800
    text = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")
    told = re.search(r"(\d+) KB \(compressed\) for a traced run, (\d+) KB for a tensor and (\d+) KB for", text)
    assert told is not None
    sizes = [pieces[name] / 1000 for name in ("trace", "tensor", "export")]
    assert [abs(int(one) - size) <= 2 for one, size in zip(told.groups(), sizes, strict=True)] == [True] * 3
