"""The saved panel: what is in the markup itself, how large it is, and that nothing in it can act."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from tensormagic.views.markup import unpacked
from tensormagic.views.panels import trace as trace_html
from tests.views import samples_viewer

SNAPSHOT = Path(__file__).parents[2] / "snapshots" / "trace_html_small.html"


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
