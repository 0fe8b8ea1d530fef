"""Whoever works with keys is never thrown to the top of the page: not by a button that goes, nor by a run going on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tensormagic.views.page.document import trace_document
from tests.browser.test_trace_viewer import FEW, _deep, _mounted
from tests.views import samples_viewer

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]

HAS_FOCUS = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
FINDINGS = 5


def _running(passes: int) -> dict[str, Any]:
    """Return the document of a run that goes on, with more findings than are shown at first."""
    report = samples_viewer.broken_run(passes)
    words = ("first", "second", "third", "fourth", "fifth")
    found = [replace(report.findings[0], message=f"{word} fault") for word in words]
    return trace_document(replace(report, state="running", findings=tuple(found)), limits=FEW)


@pytest.fixture
def live(static_page: OpenPage) -> Page:
    """A panel of a run that goes on, at pass 36."""
    page = _mounted(static_page, samples_viewer.broken_run())
    page.evaluate("doc => { panel.dispose(); mountAgain(doc); }", _running(36))
    return page


@pytest.mark.parametrize("name", ["Show node", "Copy fix"])
def test_what_is_told_anew_keeps_the_focus(live: Page, name: str) -> None:
    """A newer document of the same findings leaves the focus on the button that had it."""
    live.get_by_role("button", name=name).nth(1).focus()
    live.evaluate("doc => panel.update(doc)", _running(37))
    expect(live.get_by_role("button", name=name).nth(1)).to_be_focused()


def test_all_findings_stay_shown(live: Page) -> None:
    """Who asked for all of them keeps them while the run goes on, and goes on reading at the first that was hidden."""
    expect(live.locator(".finding:visible")).to_have_count(3)
    live.locator(".more").focus()
    live.keyboard.press("Enter")
    expect(live.locator(".finding").nth(3)).to_be_focused()
    live.evaluate("doc => panel.update(doc)", _running(37))
    expect(live.locator(".finding:visible")).to_have_count(FINDINGS)
    expect(live.locator(".finding").nth(3)).to_be_focused()


def test_button_that_goes_hands_the_focus_on(static_page: OpenPage) -> None:
    """All boxes opened, then folded: each button gives way to the other; the end of a path leads back to its box."""
    page = _mounted(static_page, _deep())
    for name, other in (("open all boxes", "fold all boxes"), ("fold all boxes", "open all boxes")):
        page.get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name=other)).to_be_focused()
    box = page.locator(".box").nth(1)
    box.focus()
    page.keyboard.press("p")
    page.get_by_role("button", name="show the whole graph again").focus()
    page.keyboard.press("Enter")
    expect(box).to_be_focused()


def test_nodes_of_a_box_are_gone_through_with_arrows(static_page: OpenPage) -> None:
    """The drawer is written anew for each, and the field with their names keeps the focus."""
    page = _mounted(static_page, _deep())
    page.locator(".box").nth(1).focus()
    page.keyboard.press("Shift+Enter")
    field = page.locator(".drawer select")
    names = {field.evaluate("field => field.selectedOptions[0].textContent")}
    field.focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
        expect(field).to_be_focused()
        names.add(field.evaluate("field => field.selectedOptions[0].textContent"))
    assert len(names) == 3


def test_button_that_plays_is_called_pause_while_it_does(static_page: OpenPage) -> None:
    """Who hears the page hears what a press would do."""
    page = _mounted(static_page, samples_viewer.calm_run(passes=400))
    page.get_by_role("button", name="play the order of backward").press("Enter")
    button = page.get_by_role("button", name="pause the order of backward")
    expect(button).to_be_focused()
    button.press("Enter")
    expect(page.get_by_role("button", name="play the order of backward")).to_be_focused()


def test_space_plays_the_slider_that_is_there(live: Page) -> None:
    """Of a run that goes on only its passes can be played: the order of the nodes, hidden, stays where it is."""
    expect(live.locator(".player.order")).to_be_hidden()
    live.locator(".tmv").focus()
    live.keyboard.press(" ")
    expect(live.locator(".player.pass button").first).to_have_attribute("aria-label", "pause")


def test_line_of_source_tells_whether_it_is_lit(static_page: OpenPage) -> None:
    """A press lights its nodes and says so, another puts them out."""
    page = _mounted(static_page, samples_viewer.broken_run())
    line = page.locator(".source button.line").first
    for pressed in ("false", "true", "false"):
        expect(line).to_have_attribute("aria-pressed", pressed)
        line.click()
