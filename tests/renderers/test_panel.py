"""The parts of a panel, and the style sheet that holds what it uses and no more."""

from __future__ import annotations

import re

import pytest

from tensormagic.renderers.basics import icons, panel, styling
from tensormagic.renderers.basics.finding_html import findings_html
from tensormagic.reports import Finding
from tests.renderers.markup_reader import Page
from tests.renderers.test_every_renderer import RENDERERS

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
    """What was left out of the style sheet is nothing that a rule or an element of this panel wants."""
    html = renderer.render(next(iter(renderer.samples.values())))
    style = html.partition("<style>")[2].partition("</style>")[0]
    asked = set(re.findall(r"var\((--[\w-]+)\)", html))
    assert asked - set(re.findall(r"(--[\w-]+)\s*:", html)) <= {"--part"}  # of a bar, set where there is one
    assert len(style) < 24_000


def test_rules_without_use_stay_out():
    """A rule stays where all of its classes are there; of a list of selectors those that can match stay."""
    rules = styling.used('<p class="tm-say"></p>', "why.css")
    assert rules == ""
    assert ".tm .tm-hint::after" not in styling.used('<details class="tm-fold">', "panel.css")
    assert ".tm .tm-fold>summary::before{" in styling.used('<details class="tm-fold">', "panel.css")


def test_the_rules_of_a_kind_weigh_more_than_the_shared_ones():
    """Sheets count for the whole page: rules of a kind begin with three classes, those of all panels with two."""
    own = styling.used("tm-why tm-stop", "why.css")
    assert re.findall(r"(?:^|\})([^{]*)\{", own)[0].startswith(".tm-why.tm.tm ")
    shared = styling.used("tm-fold tm-inside tm-section", "panel.css")
    begins = [one.split()[0] for rule in re.findall(r"([^{}]+)\{", shared) for one in rule.split(",")]
    assert max(begin.count(".tm") for begin in begins if begin.startswith(".tm")) == 2


def test_tokens_bring_those_they_are_made_of():
    """``--rule`` is drawn in ``--line``: who asks for the one gets both, and nothing else."""
    sheet = styling.tokens("border:var(--rule)")
    assert "--line:light-dark(" in sheet
    assert "--error" not in sheet


def test_a_long_strip_is_folded_and_complete():
    """Four rows are shown; the others stand behind a fifth, which says how many; errors are open."""
    html = findings_html([finding(300, "error"), *map(finding, range(301, 309))])
    page = Page(html)
    assert "5 more findings" in page.text
    assert all(f"remedy {number}" in page.text for number in range(300, 309))
    assert html.count('open=""') == 1
    assert "more findings" not in findings_html(map(finding, range(300, 305)))


def test_icons_stay_signs_without_styles():
    """A severity is a sign in the markup; its shape comes with the style sheet of the panels that use it."""
    assert Page(icons.icon("error")).text == "\u2716"
    assert icons.icon_style(icons.icon("error")).count("--icon:") == 1
    assert icons.icon_style("") == ""


def test_empty_parts_leave_nothing():
    """A section, a disclosure and a row of disclosures without content are not there at all."""
    assert panel.section("Title") == panel.fold("Title", "") == panel.folds("", "") == ""


def test_rules_under_a_condition_stay_under_it():
    """Of a block of rules for little room or forced colours those that can be used are kept, and no empty block."""
    rules = styling.used("tm-find <details><summary>", "access.css")
    assert rules.startswith("@media (max-width:520px){.tm.tm .tm-find summary{")
    assert ".tm-badges" not in rules
    assert re.sub(r"@media[^{]+\{(?:[^{}]+\{[^{}]*\})*\s*\}", "", rules).strip() == ""
    assert "520px" not in styling.used("tm-list", "access.css")
