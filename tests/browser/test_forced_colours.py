"""Panels in the colours of the system (forced-colors), at 200 % and on a phone: nothing is lost or invisible."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tensormagic import views
from tests.support import axe
from tests.views import samples_memory, samples_tensor, samples_viewer
from tests.views.test_every_renderer import SAMPLES

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]
NOT_OURS = ("document-title", "html-has-lang", "landmark-one-main", "page-has-heading-one", "region", "landmark-unique")
STYLE = "([one, name, pseudo]) => getComputedStyle(document.querySelector(one), pseudo ?? null)[name]"
# Elements that cut words off: not those that scroll, and not those that say the whole on pointing at them.
CUT = """() => [...document.querySelectorAll(".tm, .tm *")].filter((one) => {
  const style = getComputedStyle(one);
  return one.clientWidth && !one.closest(".tm-sr,svg,.tm-map,[title]") && ["hidden", "clip"].includes(style.overflowX)
    && one.scrollWidth > one.clientWidth + 1 && one.textContent.trim();
}).map((one) => `${one.tagName}.${one.getAttribute("class")} ${one.textContent.slice(0, 40)}`)"""


def _panels() -> str:
    reports = (samples_viewer.broken_run(), samples_tensor.transpose_slice(), samples_memory.gpt())
    reports += tuple(SAMPLES[kind][name] for kind, name in (("comparison", "larger"), ("tensors", "few")))
    html = "".join(views.render(one, "html") for one in reports)
    return f'<!doctype html><html lang="en"><body>{html}</body></html>'


@pytest.fixture
def forced(static_page: OpenPage) -> Callable[..., Page]:
    """Return a function that opens all panels in the colours of the system, on a light or a dark side."""

    def open_page(*, dark: bool) -> Page:
        page = static_page(_panels(), dark=dark)
        page.emulate_media(forced_colors="active", color_scheme="dark" if dark else "light")
        page.wait_for_selector(".tmv .box")
        page.evaluate("document.body.append(Object.assign(document.createElement('i'), {id: 'system'}))")
        return page

    return open_page


def _system(page: Page, colour: str) -> str:
    """What the system calls so, as it is computed here."""
    page.evaluate("([colour]) => { document.querySelector('#system').style.cssText = "
                  "`forced-color-adjust:none;color:${colour}` }", [colour])  # fmt: skip
    return page.evaluate(STYLE, ["#system", "color"])


def _grounds(page: Page, selector: str) -> set[str]:
    return set(page.locator(selector).evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)"))


def _fills(page: Page, selector: str) -> set[str]:
    """The colours that bars are filled with: the first of a gradient that ends where the amount does."""
    first = "one => getComputedStyle(one).backgroundImage.match(/(?:rgba?|color|oklab)[(][^)]*[)]/)?.[0] ?? 'none'"
    return set(page.locator(selector).evaluate_all(f"all => all.map({first})"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_panels_take_the_colours_of_the_system(forced: Callable[..., Page], dark: bool) -> None:
    """Ink and ground are the system's; cells, bars and kinds keep theirs; the focus and the chosen cell are seen."""
    page = forced(dark=dark)
    assert page.evaluate(STYLE, [".tm-trace", "color"]) == _system(page, "CanvasText")
    assert page.evaluate(STYLE, [".tm-trace", "backgroundColor"]) == _system(page, "Canvas")
    icon = page.evaluate(STYLE, [".tm-memory .tm-i-memory", "backgroundColor", "::before"])
    assert icon == _system(page, "CanvasText")
    assert page.evaluate(STYLE, [".tm-tensor .tm-grid td.tm-on", "boxShadow"]) != "none"
    assert len(_grounds(page, ".tm-tensor .tm-grid td")) == 8
    assert len(_grounds(page, ".tm-memory .tm-map > span:not(.tm-mh)")) >= 5
    assert len(_fills(page, ".tm-compare .tm-bars .tm-amount")) == 2
    page.locator(".tmv .box").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(STYLE, [".tmv .box:focus-visible .rim", "stroke"]) == _system(page, "Highlight")
    page.keyboard.press("Enter")
    assert page.evaluate(STYLE, [".tmv .chosen", "stroke"]) == _system(page, "Highlight")
    page.locator(".tm-export > summary").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineColor") == _system(page, "Highlight")
    found = axe.check(page, off=NOT_OURS)
    assert (found.violations, found.open) == ([], [])


def test_without_forced_colours_nothing_of_them_counts(static_page: OpenPage) -> None:
    """The same panels have the colours of the theme where no system forces its own."""
    page = static_page(_panels())
    page.wait_for_selector(".tmv .box")
    colours = page.evaluate("() => [...document.querySelectorAll('.tm')].map(one => getComputedStyle(one).color)")
    assert set(colours) == {"rgb(27, 31, 36)"}
    assert page.evaluate(STYLE, [".tm-memory .tm-sev", "color"]) != colours[0]


@pytest.mark.parametrize("width", [500, 320], ids=["200 %", "400 %"])
def test_nothing_is_lost_where_there_is_little_room(static_page: OpenPage, width: int) -> None:
    """Wide parts scroll in a box of their own: the page does not, and no word is cut off without a way to read it."""
    page = static_page(_panels(), width=width)
    page.wait_for_selector(".tmv .box")
    expect(page.locator(".tm-export")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT) == []
    strip = page.locator(".tm-tensor .tm-strip td").first
    assert strip.evaluate("cell => cell.clientWidth") >= 18  # a number fits
