"""The saved panel: what is in the markup itself, how large it is, and that nothing in it can act."""

from __future__ import annotations

import json
import random
import re
from array import array
from dataclasses import replace
from pathlib import Path

from tensormagic.reports import TraceReport
from tensormagic.views.markup import unpacked
from tensormagic.views.panels import trace as trace_html
from tests.views import samples_viewer

SNAPSHOT = Path(__file__).parents[2] / "snapshots" / "trace_html_small.html"
EVIL = "</script><script>alert(1)</script><!-- \" ' &amp; \u2028"


def _document(html: str) -> dict[str, object]:
    (packed,) = re.findall(r'class="tm-document">([^<]+)<', html)
    document: dict[str, object] = json.loads(unpacked(packed))
    return document


def _without_packed(html: str) -> str:
    """The markup that a reader can check: without style, picture, script and packed data."""
    html = re.sub(r"<style>.*?</style>", "<style>…</style>", html, flags=re.DOTALL)
    html = re.sub(r'<script(| type="text/plain"[^>]*)>.*?</script>', r"<script\1>…</script>", html, flags=re.DOTALL)
    html = re.sub(r'(data-tm-code="\w+)-\w+', r"\1-…", html)
    html = re.sub(r'svg\+xml,[^"]+', "svg+xml,…", html)
    return re.sub(r"(</(?:p|table|details|div|section)>|(?=<(?:p|tr)\b))", r"\1\n", html)


def test_small_run_reads_as_expected() -> None:
    """Header, findings, gaps and tables of a small broken run stand in the markup, to the letter."""
    html = _without_packed(trace_html.render(samples_viewer.broken_run(passes=3, at=2)))
    assert html == SNAPSHOT.read_text(encoding="utf-8")


def test_document_in_the_page_is_the_reports() -> None:
    """The packed document unpacks to the run's own."""
    document = _document(trace_html.render(samples_viewer.broken_run()))
    assert document["title"] == "digits-cnn"
    assert document["passes_seen"] == 37


def test_same_report_gives_the_same_bytes() -> None:
    """A notebook run again does not change its saved output."""
    report = samples_viewer.broken_run()
    assert trace_html.render(report) == trace_html.render(report)


def _noisy(report: TraceReport) -> TraceReport:
    """The same run with norms that cannot be packed: no two alike."""
    chance = random.Random(0)
    graph = report.graphs[0]
    frames = tuple(
        replace(frame, norms=array("f", [10 ** chance.uniform(-6, 1) for _ in frame.norms])) for frame in graph.frames
    )
    series = tuple(
        replace(one, norms=array("f", [10 ** chance.uniform(-6, 1) for _ in one.norms])) for one in report.parameters
    )
    return replace(report, graphs=(replace(graph, frames=frames),), parameters=series)


def test_two_thousand_nodes_stay_under_300_kilobytes() -> None:
    """The whole output of a 2,000-node graph with forty noisy passes and 666 parameters is under 300 KB."""
    report = _noisy(samples_viewer.large_run(2000, passes=40))
    assert len(report.graphs[0].nodes) == 2000
    assert len(trace_html.render(report).encode()) < 300_000


def test_many_passes_do_not_grow_the_output() -> None:
    """A thousand kept passes are thinned to what fits."""
    report = _noisy(samples_viewer.large_run(200, passes=1000))
    assert len(trace_html.render(report).encode()) < 300_000


def test_hostile_text_stays_text() -> None:
    """Names, messages and source lines that look like markup open no element and close no script."""
    base = samples_viewer.broken_run(passes=2, at=1)
    finding = replace(base.findings[0], message=EVIL, remedy=EVIL, subject=EVIL)
    parameter = replace(base.parameters[0], name=EVIL)
    location = replace(base.locations[1], text=EVIL, function=EVIL)
    report = replace(
        base,
        title=EVIL,
        error=EVIL,
        findings=(finding,),
        parameters=(parameter,),
        locations=(base.locations[0], location, *base.locations[2:]),
    )
    html = trace_html.render(report)
    assert len(re.findall(r"<script[ >]", html)) == html.count("</script>") == 3  # the viewer, the document, the loader
    assert html.count("<script>") == 1
    assert "<!--" not in html
    assert "alert(1)</script>" not in html


def test_nothing_is_requested() -> None:
    """No address of any kind stands in the output outside the packed data, the SVG name space excepted."""
    html = trace_html.render(samples_viewer.broken_run())
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r'<(link|iframe|object|embed)\b|@import|url\((?!#|"data:image/)', html)


def test_no_id_in_the_markup() -> None:
    """The fragment has no id: the same output may stand twice on a page."""
    assert not re.search(r"<[a-z]+[^>]*\sid=", trace_html.render(samples_viewer.broken_run()))


def test_run_without_backward_says_so() -> None:
    """A cell without a backward has a readable output: no picture of a graph, and what would make one."""
    base = samples_viewer.calm_run(1)
    report = replace(base, graphs=(), parameters=(), passes=(), passes_seen=0, steps_seen=0)
    assert "no backward was seen; call .backward() on a scalar loss" in trace_html.render(report)


def test_tables_say_how_much_they_leave_out() -> None:
    """The tables of a large run name both numbers."""
    html = trace_html.render(samples_viewer.large_run(500, passes=60))
    assert "16 of 500 nodes of graph 1, norms of pass 60" in html
    assert "16 of 166 parameters" in html
    assert "8 of 60 passes, the last ones" in html


def test_static_part_holds_no_script() -> None:
    """What is shown while a cell runs in hosts without widgets is a picture and nothing that acts."""
    html = trace_html.render_static(samples_viewer.broken_run())
    assert "<script" not in html
    assert "<img" in html
    assert "<img" not in trace_html.render_static(samples_viewer.broken_run(), picture=False)


def test_viewer_module_keeps_its_code() -> None:
    """What makes the module small drops comments and types, and no code, not even code behind a type on its line."""
    lines = trace_html.viewer_module().splitlines()
    assert not any(line.startswith(("//", "* ")) for line in lines)
    assert "passes = [];" in lines
    assert not any("/** @" in line for line in lines)
    assert lines[-1] == "export default { render };"
