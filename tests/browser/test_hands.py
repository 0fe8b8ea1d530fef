"""The graph under a mouse, fingers and a screen reader; and what is painted, when the page changes round it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_trace_viewer import _deep, _mounted

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]

WHERE = "document.querySelector('.world').getAttribute('transform')"
# Moves of a pointer of which no release was ever heard.
MOVED = """([kind, buttons, dx, dy]) => {
  const canvas = document.querySelector(".canvas"), box = canvas.getBoundingClientRect();
  for (let at = 0; at < 6; at += 1)
    canvas.dispatchEvent(new PointerEvent(at ? "pointermove" : "pointerdown", {
      pointerId: 1, pointerType: kind, button: 0, buttons: at ? buttons : 1, bubbles: true,
      clientX: box.left + 40 + at * dx, clientY: box.top + 40 + at * dy,
    }));
}"""
DARKEST = """() => Math.min(...[...document.querySelectorAll(".map .specks *")].flatMap((speck) => {
  const { fill, stroke } = getComputedStyle(speck);
  return [fill, stroke].map((colour) => colour.match(/[\\d.]+/g)?.slice(0, 3).map(Number))
    .filter((numbers) => numbers?.length === 3).map(([red, green, blue]) => red + green + blue);
}))"""


@pytest.fixture
def page(static_page: OpenPage) -> Page:
    """A graph that does not fit, with a map beside it."""
    page = _mounted(static_page, _deep(300))
    page.evaluate("const box = document.querySelector('.canvas'); box.setPointerCapture = () => {}")
    for _ in range(6):
        page.get_by_role("button", name="zoom in").click()
    expect(page.locator(".map")).to_be_visible()
    return page


def test_graph_does_not_stick_to_a_mouse_without_a_button(page: Page) -> None:
    """Where the release was lost, to a menu or another window, the graph stays; with the button down it moves."""
    before = page.evaluate(WHERE)
    page.evaluate(MOVED, ["mouse", 0, 10, 10])
    page.mouse.move(300, 300)
    assert page.evaluate(WHERE) == before
    page.evaluate(MOVED, ["mouse", 1, 10, 10])
    page.wait_for_function(f"before => {WHERE} !== before", arg=before)


def test_second_button_of_a_mouse_moves_nothing(page: Page) -> None:
    """It needs a menu."""
    before, box = page.evaluate(WHERE), page.locator(".canvas").bounding_box() or {}
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down(button="right")
    page.mouse.move(box["x"] + 140, box["y"] + 90, steps=4)
    page.mouse.up(button="right")
    assert page.evaluate(WHERE) == before


def test_finger_up_and_down_is_the_pages_until_the_graph_has_the_focus(page: Page) -> None:
    """Before: the graph goes sideways only, and the browser scrolls; then it goes where the finger does."""
    height = f"Number({WHERE}.match(/ (-?[\\d.]+)\\)/)[1])"
    canvas, before = page.locator(".canvas"), page.evaluate(height)
    assert canvas.evaluate("canvas => getComputedStyle(canvas).touchAction") == "pan-y"
    page.evaluate(MOVED, ["touch", 1, 5, -10])
    page.wait_for_timeout(100)
    assert page.evaluate(height) == before
    page.locator(".box").first.evaluate("box => box.focus({preventScroll: true})")
    assert canvas.evaluate("canvas => getComputedStyle(canvas).touchAction") == "none"
    page.evaluate(MOVED, ["touch", 1, 5, -10])
    page.wait_for_function(f"before => {height} < before", arg=before)


def test_click_of_a_screen_reader_counts_after_a_drag(page: Page) -> None:
    """It comes without a pointer, so that nothing says before it that the drag is over."""
    page.evaluate(MOVED, ["mouse", 1, 10, 10])
    page.locator(".box:not(.folds)").first.dispatch_event("click")
    expect(page.locator(".drawer")).to_be_visible()


def test_map_is_painted_anew_on_the_other_side(page: Page) -> None:
    """Dark ink on a light page, light ink on a dark one, whether the system or the host says which it is."""
    light = page.evaluate(DARKEST)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => ({DARKEST})() > light", arg=light)
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    page.wait_for_function(f"light => ({DARKEST})() === light", arg=light)


def test_map_has_room_after_a_pull_at_the_corner(page: Page) -> None:
    """What is painted on it is made for the height that the graph has now."""
    page.get_by_role("button", name="open all boxes").click()
    fits = """([map, room]) => {
      const { height } = map.getBoundingClientRect(), own = map.querySelector(".specks").getBoundingClientRect().height;
      return own > 8 && height <= room && own <= height;
    }"""
    for height in (400, 145, 400):
        page.locator(".graph").evaluate("(graph, height) => { graph.style.height = `${height}px` }", height)
        page.wait_for_function(fits, arg=[page.query_selector(".map"), height - 30])
