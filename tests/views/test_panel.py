"""The parts of a panel, and its style sheet."""

from __future__ import annotations

import re

import pytest

from tensormagic.reports import Finding
from tensormagic.views import theme, to_html, to_svg, to_text
from tensormagic.views.nodes import SHOWN_FINDINGS, Findings, Panel
from tensormagic.views.theme import SIGNS
from tensormagic.views.to_html import findings_html
from tests.support.kernel import ROOT
from tests.views.markup_reader import Page
from tests.views.test_every_renderer import RENDERERS

STATIC = ROOT / "tensormagic" / "views" / "static"
OF_ONE_PANEL = {"slide.css", "trace_viewer.css"}  # which replaces what it dresses
PANELS = [one for one in RENDERERS if one.output == "html"]


def finding(number, severity="warning"):
    """A finding that says its number."""
    return Finding(f"TM{number}", severity, f"message {number}", evidence={"n": number}, remedy=f"remedy {number}")


@pytest.mark.parametrize("renderer", PANELS, ids=lambda one: one.name)
def test_every_panel_is_made_of_the_same_parts(renderer):
    """A section of class ``tm`` that holds its own style sheet and names what it shows in one header, by one class."""
    html = renderer.render(next(iter(renderer.samples.values())))
    assert re.match(r'<section [^>]*class="tm |<section class="tm ', html)
    assert html.count("<style>") >= 1
    page = Page(html)
    assert bool(page.with_class("tm-head")) == bool(page.with_class("tm-name"))
    assert page.with_class("tm-name") or renderer.name == "overlay_html"


@pytest.mark.parametrize("renderer", PANELS, ids=lambda one: one.name)
def test_a_panel_asks_for_no_token_that_it_lacks(renderer):
    """Every token that a rule or an element of this panel wants is declared."""
    html = renderer.render(next(iter(renderer.samples.values())))
    style = html.partition("<style>")[2].partition("</style>")[0]
    asked = set(re.findall(r"var\((--[\w-]+)\)", html))
    assert asked - set(re.findall(r"(--[\w-]+)\s*:", html)) <= {"--part", "--w"}  # of a bar, set where there is one
    assert len(style) < 28_000


def test_the_rules_of_a_kind_weigh_more_than_the_shared_ones():
    """Sheets count for the whole page: rules of a kind begin with three classes, those of all panels with ``.tm``."""
    begins = []
    for file in STATIC.glob("*.css"):
        rules = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        if nested := re.fullmatch(r"\s*(\.tm-[\w-]+\.tm\.tm)\{\n.*\n\}\s*", rules, flags=re.DOTALL):
            begins.append(nested[1])  # what is nested weighs as much as what it is nested in
            continue
        while "(" in rules:
            rules = re.sub(r"\([^()]*\)", "", rules)
        begins += re.findall(r"(?:^|[{},])\s*(\.tm[\w.-]*)(?=[^{}]*\{)", rules) if file.name not in OF_ONE_PANEL else []
    assert len(begins) > 200
    assert {
        begin for begin in begins if begin.startswith(".tm-") and not re.match(r"\.tm-[\w-]+\.tm\.tm", begin)
    } == set()


def test_every_class_that_a_viewer_gives_has_its_rule():
    """What the viewer of a tensor adds is dressed by the sheet of the panel."""
    scripts = " ".join((STATIC / name).read_text() for name in ("tensor_viewer.js", "tensor_slices.js"))
    given = set(re.findall(r'(?:className = |make\("\w+", |toggle\()"(tm-[\w-]+)', scripts))
    assert len(given) > 8
    assert {name for name in given if f".{name}" not in theme.sheet("tensor.css")} == set()


def test_the_likeliest_three_are_shown_and_the_rest_is_folded_and_complete():
    """Three rows are shown; the others stand behind a fourth, which says how many and which; errors are open."""
    found = [finding(300, "error"), *map(finding, range(301, 309))]
    html = findings_html(Findings(found))
    page = Page(html)
    assert "6 more findings: TM303, TM304, TM305, TM306, TM307, TM308" in page.text
    assert all(f"remedy {number}" in page.text for number in range(300, 309))
    assert html.count('open=""') == 1
    assert "1 more finding: TM303" in findings_html(Findings(found[:4]))
    assert "more finding" not in findings_html(Findings(found[:3]))
    script = (STATIC / "trace/headline.js").read_text()
    assert f"const SHOWN_FINDINGS = {SHOWN_FINDINGS};" in script  # the viewer shows as many


def test_what_is_folded_has_its_line_in_a_terminal_and_in_a_picture():
    """Nothing is lost: sign, severity, code and what was found."""
    text = to_text.render(Panel("rng", "rng", "Five", (), [Findings([*map(finding, range(300, 305))])]), width=70)
    assert "and 2 more findings:" in text
    lines = [line for line in text.splitlines() if "TM303" in line or "TM304" in line]
    assert lines == [f" {SIGNS['warning']} warning  TM{number}  message {number}" for number in (303, 304)]
    assert text.count("remedy: ") == 3
    assert "2 more findings: TM303, TM304" in to_svg.render(
        Panel("rng", "rng", "Five", (), [Findings([*map(finding, range(300, 305))])])
    )


def test_icons_stay_signs_without_styles():
    """A severity is a sign in the markup; its shape comes with the style sheet of the panels that use it."""
    assert Page(theme.icon("error")).text == "\u2716"
    assert theme.icon_style().count("--icon:") == len(theme.ICONS)


def test_empty_parts_leave_nothing():
    """A section, a disclosure and a row of disclosures without content are not there at all."""
    assert to_html.fold("Title", "") == to_html.folds("", "") == ""
