"""On paper: everything is open, nothing is cut, and nothing promises to react."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tensormagic import views
from tests.views import samples_viewer
from tests.views.test_files import KINDS, sample

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>paper</title>'
A4 = 718  # points between the margins
# What is cut off, what is folded, and what only a screen can use.
LEFT = """() => {
    const all = [...document.querySelectorAll("section.tm :not(.tm-export,.tm-export *)")];
    const shown = (one) => one.checkVisibility() && one.offsetWidth, style = getComputedStyle;
    const rolls = (one) => /auto|scroll/.test(style(one).overflowY) && one.scrollHeight > one.clientHeight + 2;
    const folded = all.filter((one) => one.parentElement.matches("details") && !shown(one) && one.textContent.trim());
    return {
        rolled: all.filter((one) => shown(one) && rolls(one)).map((one) => one.className),
        folded: folded.map((one) => one.textContent.slice(0, 40)),
        controls: all.filter((one) => shown(one) && one.matches("select,[type=range]")).map((one) => one.outerHTML),
        export: [...document.querySelectorAll(".tm-export")].filter(shown).length,
    };
}"""


@pytest.fixture
def paper(static_page: Callable[..., Page]) -> Callable[[str], Page]:
    """Return a function that lays a panel out for paper."""

    def lay_out(kind: str) -> Page:
        page = static_page(HEAD + views.render(sample(kind), "html"), width=A4)
        page.wait_for_function("() => !document.querySelector('.tm-static') || document.querySelector('.tmv')")
        page.emulate_media(media="print")
        return page

    return lay_out


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_open(kind, paper):
    """What is folded on the screen stands there, what scrolls is unrolled, and no control is drawn."""
    left = paper(kind).evaluate(LEFT)
    assert left == {"rolled": [], "folded": [], "controls": [], "export": 0}


def test_a_long_panel_goes_over_several_pages(paper):
    """A PDF of it has more than one, and the paper stays white."""
    page = paper("memory run")
    pages = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert pages >= 2
    assert page.locator("section.tm").evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(255, 255, 255)"


def test_paper_is_light_in_a_dark_host(paper):
    """Ink is dark and the ground white, whatever theme the notebook has."""
    page = paper("tensor")
    page.evaluate("() => { document.body.dataset.jpThemeLight = 'false' }")
    colours = "one => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]"
    page.emulate_media(media="screen")
    assert page.locator("section.tm").evaluate(colours)[0] == "rgb(233, 236, 240)"
    page.emulate_media(media="print")
    assert page.locator("section.tm").evaluate(colours) == ["rgb(27, 31, 36)", "rgb(255, 255, 255)"]


def test_map_of_a_graph_is_left_out(static_page):
    """There is nothing to point at."""
    page = static_page(HEAD + views.render(samples_viewer.large_run(300, passes=3), "html"))
    page.get_by_role("button", name="zoom in").click(click_count=6)
    expect(page.locator(".map")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator(".map")).to_be_hidden()
