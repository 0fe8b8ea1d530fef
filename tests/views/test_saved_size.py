"""How many bytes an output leaves in the notebook, its viewer and its plain text included: bounds, not habits."""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest

from tensormagic import views
from tensormagic.reports import Graph, Report, TraceReport
from tensormagic.views import theme
from tensormagic.views.page.files import bundle
from tests.support.kernel import ROOT
from tests.views import samples_trace as samples, samples_viewer
from tests.views.test_every_renderer import SAMPLES


def saved(report: Report) -> int:
    """Bytes of the output in a notebook: viewer, picture, tables, "Export", the beginning of its text for exports."""
    return len(bundle(report)["text/html"].encode())


def lean(report: Report) -> int:
    """Bytes of an output, "Export" and its text included, whose code another output of the notebook carries."""
    html = views.render(report, "html")
    shared = theme.deduplicate(html, dict.fromkeys(theme.elements(html)))
    return len(shared.encode()) + len(views.render(report, "txt").encode())


def noisy(report: TraceReport, decades: float = 0.12) -> TraceReport:
    """The same run with norms that go up and down by a third from pass to pass, as with small batches, or by more."""
    chance = random.Random(0)

    def shaken(one):
        return replace(one, norms=array("f", [norm * 10 ** chance.gauss(0, decades) for norm in one.norms]))

    graph = replace(report.graphs[0], frames=tuple(map(shaken, report.graphs[0].frames)))
    return replace(report, graphs=(graph,), parameters=tuple(map(shaken, report.parameters)))


def run(graph: Graph, count: int) -> TraceReport:
    """A run of so many passes through a graph, no two alike."""
    (first,) = graph.frames
    frames = tuple(replace(first, pass_number=number) for number in range(1, count + 1))
    return noisy(samples.report(replace(graph, frames=frames, passes_seen=count), count=count))


def large(nodes: int, passes: int, noise: float) -> TraceReport:
    return noisy(samples_viewer.large_run(nodes, passes=passes), noise)


NETWORKS = {  # of 180 to 220 nodes, and of 1900 to 2200
    "mlp": (samples.mlp, 39, 0), "cnn": (samples.resnet, 13, 132), "transformer": (samples.transformer, 5, 50),
    "lstm": (samples.lstm, 12, 130),
}  # fmt: skip
BOUNDS: dict[str, tuple[Callable[[Report], int], Callable[[], Report], int]] = {
    **{f"{name}, {count} passes": (saved, lambda of=of, count=count: run(of[0](of[1]), count), 130_000)
       for name, of in NETWORKS.items() for count in (20, 200)},
    **{f"{name} of 2000 nodes": (saved, lambda of=of: run(of[0](of[2]), 40), 300_000)
       for name, of in NETWORKS.items() if of[2]},
    # In picture, text and viewer.
    "a finding has room": (
        saved, lambda: replace(large(200, 200, 0.12), findings=samples_viewer.broken_run().findings), 130_000,
    ),
    # Thinned to what fits; noise that cannot be packed is no exception.
    "a thousand passes": (saved, lambda: large(200, 1000, 2), 300_000),
    "noise": (saved, lambda: large(2000, 40, 2), 300_000),
    **{f"tensor {name}": (saved, lambda report=report: report, 80_000) for name, report in SAMPLES["tensor"].items()},
    # What exports them included; ten thousand have their bounds in `test_every_renderer`.
    "a hundred storages": (lambda report: len(views.render(report, "html").encode()),
                           lambda: SAMPLES["memory"]["hundred"], 64_000),
    # In a notebook that holds the viewer once, a second run takes half of what the first takes.
    "each further mlp": (lean, lambda: run(samples.mlp(39), 200), 60_000),
    "each further transformer": (lean, lambda: run(samples.transformer(5), 200), 60_000),
    # The style sheet, which is not shared, is more than half of it.
    "each further tensor": (lean, lambda: SAMPLES["tensor"]["transpose_slice"], 48_000),
    # What is beside the panel for terminals and for PDF: a bar of a chart is five characters of LaTeX.
    "a run as text": (lambda report: len(bundle(report)["text/plain"].encode()),
                      lambda: run(samples.transformer(5), 200), 9_000),
    "a run as LaTeX": (lambda report: len(bundle(report)["text/latex"].encode()),
                       lambda: run(samples.transformer(5), 200), 7_000),
}  # fmt: skip


@pytest.mark.parametrize("case", BOUNDS)
def test_an_output_stays_small(case: str) -> None:
    size, make, most = BOUNDS[case]
    assert size(make()) <= most


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
    for size, name in zip(told.groups(), ("trace", "tensor", "export"), strict=True):
        assert abs(int(size) - pieces[name] / 1000) <= 2
