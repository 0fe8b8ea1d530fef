"""Panels for everybody: what axe-core finds on all of them, by keyboard, read out, in high contrast, on a phone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tensormagic import views
from tensormagic.reports import Report
from tensormagic.views.page.document import trace_document
from tests.support import axe
from tests.support.lab import LabNotebook
from tests.views import samples_viewer
from tests.views.test_every_renderer import FORMS, SAMPLES

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]
# A panel is a part of somebody's page: title, main landmark and first heading are not its own.
NOT_OURS = ("document-title", "html-has-lang", "landmark-one-main", "page-has-heading-one", "region", "landmark-unique")


@cache
def chosen(which: str) -> dict[str, Report]:
    """Return a report of every kind: its first sample, or the one that says most."""
    pick = {"first": lambda some: next(iter(some.values())), "largest": lambda some: max(some.values(), key=_length)}
    return {kind: pick[which](SAMPLES[kind]) for kind in FORMS}


def _length(report: Report) -> int:
    return len(repr(report))


def _opened(page: Page) -> Page:
    """Open everything that is folded, and wait for the viewer of the traced run."""
    page.wait_for_selector(".tm-trace .tmv")
    page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true })")
    return _painted(page)


def _painted(page: Page) -> Page:
    """Wait until what has changed is on the screen: on a slow machine axe would see some colours of before."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page


@pytest.mark.parametrize("which", ["first", "largest"])
def test_axe_finds_nothing_on_any_panel(static_page: OpenPage, which: str) -> None:
    """One page holds a panel of every kind, all open, as a notebook does: no rule of axe is broken, nor in the dark."""
    panels = "\n".join(views.render(report, "html") for report in chosen(which).values())
    page = _opened(static_page(f'<!doctype html><html lang="en"><body>{panels}</body></html>'))
    for found in (axe.check(page, off=NOT_OURS), _in_the_dark(page)):
        assert (found.violations, found.open) == ([], [])


def _in_the_dark(page: Page) -> axe.Verdict:
    page.emulate_media(color_scheme="dark")
    return axe.check(_painted(page), only=("color-contrast", "link-in-text-block"))


@pytest.mark.parametrize("kind", ["trace", "tensor", "comparison", "memory run", "failure"])
def test_axe_finds_nothing_on_a_page_of_its_own(static_page: OpenPage, tmp_path: Path, kind: str) -> None:
    """A saved page has what a whole page needs: language, title, main part and heading; no rule is off."""
    path = tmp_path / "page.html"
    chosen("first")[kind].save(path)
    page = static_page(path)
    found = axe.check(page)
    assert found.violations == []
    assert found.open == []
    assert page.locator("main > h2").inner_text() == f"tensormagic: {kind}"


def test_axe_finds_nothing_where_something_is_open(static_page: OpenPage) -> None:
    """The drawer of a node, hits of a search, the line of exports; then a page of slides, turned once."""
    page = _opened(static_page(_page(samples_viewer.broken_run())))
    page.locator(".tmv .box", has_text="log").last.click()
    page.get_by_role("searchbox").fill("conv")
    page.locator(".tm-export > summary").click()
    expect(page.locator(".drawer")).to_be_visible()
    for found in (axe.check(page, off=NOT_OURS), _in_the_dark(page)):
        assert (found.violations, found.open) == ([], [])
    slides = views.render(chosen("largest")["tensor"], "html", slide=True)
    page = static_page(f'<!doctype html><html lang="en"><body>{slides}</body></html>')
    page.locator(".tm-stage").press("ArrowRight")
    for found in (axe.check(page, off=NOT_OURS), _in_the_dark(page)):
        assert (found.violations, found.open) == ([], [])


def _page(*reports: Report) -> str:
    panels = "\n".join(views.render(report, "html") for report in reports)
    return f'<!doctype html><html lang="en"><body>{panels}</body></html>'


def test_new_finding_is_announced_once_and_politely(static_page: OpenPage) -> None:
    """A document with one more finding is said to who listens; what was known is not, and the end of the run is."""
    report = samples_viewer.broken_run()
    calm = replace(report, findings=(), state="running")
    page = _mounted(static_page, calm)
    said = page.locator(".tm-sr[role=status]")
    expect(said).to_have_text("")
    page.evaluate("doc => panel.update(doc)", trace_document(replace(report, state="running")))
    first = report.findings[0]
    expect(said).to_contain_text(f"{first.severity}: {first.message.replace('`', '')}")
    page.evaluate("doc => panel.update(doc)", trace_document(report))
    expect(said).to_have_text(f"the run is {report.state}")


LISTEN = """() => {
    const region = document.querySelector(".tm-sr[role=status]");
    window.heard = [];
    const note = () => heard.push([performance.now(), region.textContent]);
    new MutationObserver(note).observe(region, { childList: true });
}"""
FEED = """async docs => {
    for (const doc of docs) {
        panel.update(doc);
        await new Promise(done => setTimeout(done, 100));
    }
}"""


def test_running_trace_says_at_most_one_thing_a_second(static_page: OpenPage) -> None:
    """Ten documents a second, a finding more in each: all are heard, once a second; a number that goes on is not."""
    report = samples_viewer.broken_run()
    page = _mounted(static_page, replace(report, findings=(), state="running"))
    found = [
        replace(report.findings[0], message=f"NaN in layer {letter}, in 7 steps", subject=letter)
        for letter in "abcdefghijklmnopqrstuvwx"
    ]
    running = [replace(report, findings=tuple(found[: at + 1]), state="running") for at in range(len(found))]
    counted = replace(found[-1], message=found[-1].message.replace("7", "8"))
    counting = replace(running[-1], findings=(*found[:-1], counted))
    page.evaluate(LISTEN)
    page.evaluate(FEED, [trace_document(each) for each in (*running, counting, counting)])
    page.wait_for_timeout(1100)
    heard = page.evaluate("() => heard")
    times = [moment for moment, _ in heard]
    assert min(later - before for before, later in pairwise(times)) >= 990
    assert 3 <= len(heard) <= 5
    words = ". ".join(text for _, text in heard)
    assert [words.count(f"layer {letter},") for letter in "abcdefghijklmnopqrstuvwx"] == [1] * 24


def _mounted(static_page: OpenPage, report: Report) -> Page:
    """Return a page whose panel is kept as ``window.panel``."""
    from tensormagic.views.markup import json_block
    from tensormagic.views.panels import trace as trace_html

    call = f"window.panel = new Panel(document.querySelector('section'), {json_block(trace_document(report))});"
    page = static_page(
        f'<style>{trace_html.viewer_style()}</style><section class="tm tm-trace"></section>'
        f'<script type="module">{trace_html.viewer_module()}\n{call}</script>'
    )
    page.wait_for_selector(".tmv")
    return page


def test_panels_lose_nothing_on_a_narrow_page(static_page: OpenPage) -> None:
    """At 320 pixels, which is also a laptop at 400 %, no panel is wider than the page: wide parts scroll inside."""
    panels = "\n".join(views.render(report, "html") for report in chosen("first").values())
    page = _opened(static_page(f'<!doctype html><html lang="en"><body>{panels}</body></html>', width=320))
    wide = page.evaluate(
        "() => [...document.querySelectorAll('section.tm')].filter(one => one.getBoundingClientRect().right > 321)"
        ".map(one => one.className + ' ' + one.getBoundingClientRect().right)"
    )
    assert wide == []


def test_focus_is_seen_and_nothing_moves_where_that_is_not_wanted(static_page: OpenPage) -> None:
    """The outline of the focus is two pixels of the accent; with reduced motion no element has a transition."""
    page = static_page(views.render(chosen("first")["trace"], "html"))
    _opened(page)
    page.emulate_media(reduced_motion="reduce")
    moving = page.evaluate(
        "() => [...document.querySelectorAll('.tm, .tm *')].map(one => getComputedStyle(one))"
        ".filter(style => style.animationName !== 'none' || parseFloat(style.transitionDuration) > 0).length"
    )
    assert moving == 0
    page.keyboard.press("Tab")
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineWidth")
    assert float(outline.removesuffix("px")) >= 2


def test_hostile_text_stays_text_in_the_viewers(static_page: OpenPage) -> None:
    """With markup in every field no program of it runs, no element of it comes to be, in all panels at once."""
    from tests.views.hostile import ALL_MARKUP, MARK, everywhere

    panels = "\n".join(views.render(everywhere(report, ALL_MARKUP), "html") for report in chosen("first").values())
    watch = f"<script>window.{MARK} = () => {{ window.ran = true }}</script>"
    page = _opened(static_page(f'<!doctype html><html lang="en"><body>{watch}{panels}</body></html>'))
    assert page.evaluate("() => window.ran") is None
    wrong = f".tm :is([onerror],[onload],[onfocus],[{MARK}],a[href^=javascript],img[src=x])"
    assert page.locator(wrong).count() == 0


SET_UP = "%load_ext tensormagic\nimport torch\nx = torch.ones(3, 4, requires_grad=True)"
STOPS = ".tm :is(summary, button, input, [tabindex='0'], a[href])"


def test_keys_in_a_panel_are_not_the_notebooks(notebook: Callable[..., LabNotebook]) -> None:
    """Wherever the focus is in a panel, two d delete no cell and b makes none; Escape leads out, and there they do."""
    lab = notebook(SET_UP, "%tensor x", "%gpumem", "%%tracegrad\n(x * 2).sum().backward()", "")
    lab.run()
    cells = lab.page.locator(".jp-Notebook .jp-Cell")
    before = cells.count()
    prompt = lab.page.locator(".jp-Notebook .jp-Cell .jp-InputPrompt").last
    prompt.click()  # command mode, in which a letter is a command
    for cell in (1, 2, 3):
        stops = lab.output(cell).locator(STOPS)
        expect(stops.first).to_be_attached()
        for at in range(min(stops.count(), 6)):
            if stops.nth(at).is_visible():
                stops.nth(at).focus()
                for key in "ddbbb":  # not as many deleted as made
                    lab.page.keyboard.press(key)
    assert cells.count() == before
    lab.page.keyboard.press("Escape")
    assert lab.page.evaluate("document.activeElement.className").startswith("lm-Widget jp-Cell")
    prompt.click()
    lab.page.keyboard.press("b")
    expect(cells).to_have_count(before + 1)
