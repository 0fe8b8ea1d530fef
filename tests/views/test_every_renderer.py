"""What every renderer owes every report: a user's text stays text, findings and gaps are shown, size is kept.

A new panel is a line in ``PANELS``, a new renderer one in ``RENDERERS``, a new sample an entry in its samples:
everything here then runs on it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tensormagic import views
from tensormagic.reports import Report, RunReport
from tensormagic.views.markup import plain_report
from tensormagic.views.nodes import SHOWN_FINDINGS
from tensormagic.views.panels import trace as trace_html
from tests.views import (
    samples_comparison,
    samples_failure,
    samples_freeing,
    samples_memory,
    samples_memory_run,
    samples_model,
    samples_ops,
    samples_overlay,
    samples_ranks,
    samples_rng,
    samples_run,
    samples_sharing,
    samples_snapshot,
    samples_start,
    samples_tensor,
    samples_values,
    samples_watch,
    samples_why,
    samples_writes,
    trace_forms,
)
from tests.views.markup_reader import Page, as_github


@dataclass(frozen=True)
class Renderer:
    """A renderer under test: what it makes of which reports, at most how large, and what it owes."""

    name: str
    render: Callable[[Any], str]
    samples: Mapping[str, Report]
    output: str  # "html", "svg" or "text"
    most_bytes: int


TENSORS = samples_tensor.SAMPLES | samples_values.SAMPLES
TRACED = ("broken", "one_pass", "empty", "failed", "untouched", "cuts", "forward", "paced", "hostile")
TRACES = {name: trace_forms.CASES[name]() for name in TRACED} | samples_ops.SAMPLES

# Panels that are trees of nodes: name, samples, and at most how many bytes as HTML and as text.
PANELS = (
    ("aliases", samples_sharing.ALIASES, 120_000, 40_000),
    ("comparison", samples_comparison.SAMPLES, 100_000, 24_000),
    ("failure", samples_failure.SAMPLES, 40_000, 12_000),
    ("freeing", samples_freeing.SAMPLES, 40_000, 12_000),
    ("memory", samples_memory.SAMPLES, 150_000, 24_000),
    ("memory_run", samples_memory_run.SAMPLES, 120_000, 24_000),
    ("model", samples_model.SAMPLES, 120_000, 24_000),
    ("snapshot", samples_snapshot.SAMPLES, 120_000, 24_000),
    ("overlay", samples_overlay.SAMPLES, 100_000, 24_000),
    ("ranks", samples_ranks.SAMPLES, 64_000, 24_000),
    ("rng", samples_rng.SAMPLES, 40_000, 12_000),
    ("run", samples_run.SAMPLES, 60_000, 12_000),
    ("start", samples_start.SAMPLES, 40_000, 12_000),
    ("tensor", TENSORS, 64_000, 24_000),
    ("tensors", samples_sharing.TABLES, 200_000, 24_000),
    ("watch", samples_watch.SAMPLES, 60_000, 24_000),
    ("why", samples_why.SAMPLES, 30_000, 12_000),
    ("writes", samples_writes.SAMPLES, 140_000, 40_000),
)


def of_panels() -> Iterator[Renderer]:
    """Yield each panel in each form."""
    for name, samples, most_html, most_text in PANELS:
        yield Renderer(f"{name}_html", partial(views.draw, form="html"), samples, "html", most_html)
        yield Renderer(f"{name}_text", partial(views.draw, form="txt"), samples, "text", most_text)
        yield Renderer(f"{name}_svg", partial(views.draw, form="svg"), samples, "svg", 120_000)


RENDERERS = (
    *of_panels(),
    Renderer("trace_html", trace_html.render, TRACES, "html", 300_000),
    Renderer("trace_text", trace_forms.text, TRACES, "text", 24_000),
    Renderer("trace_svg", trace_forms.svg, TRACES, "svg", 120_000),
)

SAMPLES: dict[str, dict[str, Report]] = defaultdict(dict)  # by the kind of report: what tests of all panels go through
for each in RENDERERS:
    for known, report in each.samples.items():
        SAMPLES[report.kind_name][known] = report
FORMS = {kind: views.forms_of(type(next(iter(reports.values())))) for kind, reports in SAMPLES.items()}
PAGES, TEXTS = ([one for one in RENDERERS if one.output == output] for output in ("html", "text"))
CASES = [pytest.param(one, sample, id=f"{one.name}-{sample}") for one in RENDERERS for sample in one.samples]
SVG = "{http://www.w3.org/2000/svg}"
SHAPES = {"svg", "title", "image", "style", "defs", "pattern", "rect", "path", "text", "tspan", "use", "g", "circle"}
each_case = pytest.mark.parametrize(("renderer", "sample"), CASES)


def seen(renderer: Renderer, output: str) -> str:
    """What a user reads of an output, without spaces and line breaks, which renderers choose themselves.

    Of a page it is what GitHub leaves: no script, no style, no drawing that stands in the page.
    """
    if renderer.output == "html":
        output = Page(as_github(output)).text
    elif renderer.output == "svg":
        output = " ".join(ET.fromstring(output).itertext())
    return "".join(output.split())


def said(text: str) -> str:
    """A sentence as `seen` gives it back: no spaces, no backticks, no control characters."""
    return "".join(char for char in text if char.isprintable() and char not in " `")


@each_case
def test_output_is_well_formed_and_needs_nothing_from_outside(renderer: Renderer, sample: str) -> None:
    """HTML closes what it opens, SVG is XML of shapes alone, text holds no character that a terminal would obey.

    No output is larger than its renderer promises; no address but data is loaded, and no element has an id that a
    second copy would repeat.
    """
    output = renderer.render(renderer.samples[sample])
    assert len(output.encode()) <= renderer.most_bytes
    if renderer.output == "html":
        assert_page_stands_alone(output)
        return
    assert re.findall(r"""href=["'](?!#|data:image/)""", output) == []  # a shape of its own picture may be drawn twice
    if renderer.output == "svg":
        assert_picture_stands_alone(ET.fromstring(output))
    else:
        assert [char for char in output if not char.isprintable() and char not in "\n\u00a0"] == []


def assert_page_stands_alone(output: str) -> None:
    """Assert that a page is well-formed, loads nothing and has no ids."""
    assert "http" not in re.sub(r"http://www\.w3\.org/(2000/svg|1999/xlink)", "", output)
    assert not re.search(r'<(link|iframe|object|embed)\b|@import|url\((?!#|"data:image/)', output)
    page = Page(output)
    assert page.left_open == []
    for _, attributes in page.elements:
        assert "id" not in attributes
        assert (attributes.get("src") or "data:image/").startswith("data:image/")
        assert not (attributes.get("href") or "").startswith("http")


def assert_picture_stands_alone(picture: ET.Element) -> None:
    """Assert that a picture is shapes alone, on an opaque ground of its size, and that none begins outside of it."""
    assert picture.tag == f"{SVG}svg"
    assert {element.tag.removeprefix(SVG) for element in picture.iter()} <= SHAPES
    ground, size = picture.find(f"{SVG}rect"), [picture.get("width"), picture.get("height")]
    assert [ground.get(name) for name in ("fill", "width", "height")] == ["#fff", *size]
    for way in ("text", "rect", f"g/{SVG}text"):
        for shape in picture.findall(f"{SVG}{way}"):
            for name, most in zip("xy", size, strict=True):
                assert 0 <= float(shape.get(name, 0)) <= float(most)


@pytest.mark.parametrize(("renderer", "sample"), [case for case in CASES if case.values[0] in TEXTS])
def test_no_line_is_wider_than_the_terminal(renderer: Renderer, sample: str) -> None:
    """At 40, 80, 120 and 200 columns."""
    for width in (40, 80, 120, 200):
        lines = renderer.render(renderer.samples[sample], width=width).splitlines()
        assert max(map(len, lines), default=0) <= width


@each_case
def test_findings_and_gaps_are_told(renderer: Renderer, sample: str) -> None:
    """Each finding is there with code, severity, message and remedy; of one that no form can unfold, at least its code.

    A terminal and a picture show the likeliest three, and name the others. Everything that could not be read is named,
    with the reason.
    """
    report = plain_report(renderer.samples[sample])
    text = "".join(char for char in seen(renderer, renderer.render(report)) if char.isprintable() and char != "\ufffd")
    in_full = []
    for finding in report.findings:
        parts = (finding.code, finding.severity, finding.message, finding.remedy)
        missing = [part for part in parts if said(part) not in text]
        assert not set(missing) & set({"text": parts[:3], "svg": parts[:1]}.get(renderer.output, parts))
        in_full.append(not missing)
    first = sorted(in_full, reverse=True) if isinstance(report, RunReport) else in_full  # a run shows them by line
    assert all(first[:SHOWN_FINDINGS])
    for gap in getattr(report, "gaps", ()):
        assert said(gap.section) in text
        assert said(gap.reason) in text


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_brief_text_leaves_out_what_is_folded_and_nothing_else(kind: str) -> None:
    """Of every kind of report; what it shows stands in the whole text as well."""
    for report in SAMPLES[kind].values():
        brief, whole = (views.render(report, "txt", brief=brief) for brief in (True, False))
        told, named, _ = brief.partition("with --text also:")
        assert set(told.rstrip().split("\n")) <= set(whole.split("\n"))
        assert len(brief) < len(whole) if named else brief == whole
