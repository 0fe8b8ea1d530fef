"""Every key that the panels and their pages name: pressed, and compared with what a user sees then.

Keys of the search, of the path and of the slides have tests beside what they belong to.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tensormagic import views
from tests.browser.test_trace_viewer import _deep, _mounted
from tests.support.lab import LabNotebook
from tests.views import samples_sharing, samples_viewer
from tests.views.test_every_renderer import SAMPLES

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]

FOCUSED = "() => document.activeElement.querySelector?.('.name')?.textContent ?? document.activeElement.className"
ZOOM = "() => Number(document.querySelector('.world').getAttribute('transform').match(/scale\\((.+)\\)/)[1])"
NOT_TAKEN = """key => {
    const event = new KeyboardEvent("keydown", { key, ctrlKey: true, bubbles: true, cancelable: true });
    return document.activeElement.dispatchEvent(event);
}"""

IN_GRAPH = "() => document.activeElement.closest('.canvas') !== null"
FREE = """() => document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true }))"""
CELL = "() => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].indexOf(document.activeElement)"


def _walk(page: Page, *keys: str) -> list[str]:
    """Return the names of the boxes that have the focus after each key."""
    names = []
    for key in keys:
        page.keyboard.press(key)
        names.append(page.evaluate(FOCUSED))
    return names


def test_arrows_walk_along_the_edges_of_the_graph(static_page: OpenPage) -> None:
    """The gradient goes left; back again to the right, and at an end the focus stays; up and down where one lies."""
    page = _mounted(static_page, samples_viewer.broken_run())
    page.locator(".box", has_text="nll_loss").focus()
    assert _walk(page, "ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight", "ArrowRight") == [
        "log", "softmax", "log", "nll_loss", "nll_loss",
    ]  # fmt: skip
    assert _walk(page, "ArrowUp", "ArrowDown") == ["nll_loss", "nll_loss"]
    expect(page.locator(".box:focus")).to_be_in_viewport()


def test_enter_and_space_show_the_numbers_of_a_box(static_page: OpenPage) -> None:
    """Of a folded box Enter shows what is inside, and folds it; Shift+Enter and the space bar tell its numbers."""
    page = _mounted(static_page, _deep())
    drawer, folded = page.locator(".drawer"), page.locator(".box.folds").first
    for key in ("Shift+Enter", " "):
        folded.focus()
        page.keyboard.press(key)
        expect(drawer).to_be_visible()
        expect(page.locator(".frame")).to_have_count(0)
        page.keyboard.press("Escape")
        expect(drawer).to_be_hidden()
    folded.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".frame")).to_have_count(1)
    page.locator(".box:not(.folds, .unfolded)").first.focus()
    page.keyboard.press("Enter")
    expect(drawer).to_be_visible()
    expect(page.locator(".frame")).to_have_count(1)
    page.locator(".box.unfolded").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".frame")).to_have_count(0)


def test_signs_zoom_and_nought_shows_all(static_page: OpenPage) -> None:
    """Plus, also without Shift, and minus by a quarter; nought brings all of it back. With Ctrl none is taken."""
    page = _mounted(static_page, samples_viewer.large_run(120, passes=2))
    page.locator(".box[tabindex='0']").focus()
    page.keyboard.press("0")
    whole = page.evaluate(ZOOM)
    zooms = []
    for key in ("+", "=", "-", "-", "+", "0"):
        page.keyboard.press(key)
        zooms.append(page.evaluate(ZOOM) / whole)
    assert zooms == pytest.approx([1.25, 1.5625, 1.25, 1, 1.25, 1], rel=1e-3)
    assert [page.evaluate(NOT_TAKEN, key) for key in ("+", "-", "0", "p", "/", "Enter")] == [True] * 6
    assert page.evaluate(ZOOM) == pytest.approx(whole)
    expect(page.locator(".drawer")).to_be_hidden()


def test_slash_space_and_p_belong_to_the_whole_panel(static_page: OpenPage) -> None:
    """From anywhere in it, but not while something is typed; a capital P, with the key locked, is the same."""
    page = _mounted(static_page, samples_viewer.broken_run())
    page.get_by_label("speed of playing").select_option("0.25")
    page.locator(".tmv").focus()
    page.keyboard.press(" ")
    expect(page.locator(".order-text")).to_have_text("order: node 2 of 15")
    page.keyboard.press(" ")
    held = page.locator(".order-text").inner_text()
    page.keyboard.press("/")
    page.keyboard.type("p /")
    expect(page.locator(".search input")).to_have_value("p /")
    expect(page.locator(".way")).to_be_hidden()
    assert page.locator(".order-text").inner_text() == held
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert page.evaluate("() => document.activeElement.matches('.box')")
    page.keyboard.press("Shift+P")
    expect(page.locator(".way")).to_contain_text("path through")


def test_escape_takes_back_one_thing_after_the_other_and_is_the_pages_then(static_page: OpenPage) -> None:
    """The path, the numbers, the open box; then the key is not taken, and one Tab is past the whole graph."""
    page = _mounted(static_page, _deep())
    page.locator(".box.folds").first.focus()
    for key in ("Enter", "Shift+Enter", "p"):
        page.keyboard.press(key)
    told = []
    for _ in range(4):
        told.append([page.locator(what).locator("visible=true").count() for what in (".way", ".drawer", ".frame")])
        page.keyboard.press("Escape")
    assert told == [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert page.evaluate(IN_GRAPH)
    assert page.evaluate(FREE)
    page.keyboard.press("Tab")
    assert not page.evaluate(IN_GRAPH)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert not page.evaluate(IN_GRAPH)


def test_escape_leaves_the_graph_for_its_cell(notebook: Callable[..., LabNotebook]) -> None:
    """In a notebook the cell has the focus then, in command mode: arrows go on to the next cell, Enter writes in it."""
    cell = "%%tracegrad\nout = net(torch.ones(4)).sum(); out.backward(torch.tensor(float('nan')))"
    lab = notebook("%load_ext tensormagic\nimport torch\nnet = torch.nn.Linear(4, 2)", cell, "after = 1")
    lab.run()
    box = lab.output(1).locator(".box[tabindex='0']")
    expect(box).to_be_visible()
    box.focus()
    lab.page.keyboard.press("Escape")
    assert lab.page.evaluate(CELL) == 1
    lab.page.keyboard.press("ArrowDown")
    assert lab.page.evaluate(CELL) == 2
    lab.page.keyboard.press("Enter")
    lab.page.keyboard.type("x")
    expect(lab.page.locator(".jp-Notebook .jp-Cell").nth(2).locator(".cm-content")).to_contain_text("x")


def test_arrows_move_both_sliders(static_page: OpenPage) -> None:
    """A pass, or a node, at a time."""
    page = _mounted(static_page, samples_viewer.broken_run())
    for name in ("pass", "order"):
        slider, text = page.locator(f"input[aria-label={name}]"), page.locator(f".{name}-text")
        slider.focus()
        page.keyboard.press("Home")
        first = text.inner_text()
        page.keyboard.press("ArrowRight")
        second = text.inner_text()
        page.keyboard.press("ArrowLeft")
        assert (text.inner_text(), second != first) == (first, True)


def test_enter_folds_out_and_arrows_scroll(static_page: OpenPage) -> None:
    """What is folded opens at its heading; what is long scrolls where it is."""
    page = static_page(views.render(samples_viewer.broken_run(), "html"))
    heading = page.locator(".tm-folds summary").first
    heading.focus()
    page.keyboard.press("Enter")
    long = page.locator(".tm-fold[open] .tm-scroll")
    expect(long).to_be_visible()
    long.focus()
    page.keyboard.press("PageDown")
    page.wait_for_function("() => document.querySelector('.tm-fold[open] .tm-scroll').scrollTop > 0")
    heading.focus()
    page.keyboard.press(" ")
    expect(long).to_be_hidden()


def test_table_of_tensors_is_sorted_by_keys(static_page: OpenPage) -> None:
    """A head of the table is a button: Enter sorts by it, and once more the other way round."""
    page = static_page(views.render(samples_sharing.TABLES["many"], "html"))
    names, head = page.locator(".tm-rows tbody th"), page.get_by_role("button", name="shape")
    before = names.all_text_contents()
    head.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('[aria-sort=ascending], [aria-sort=descending]')")
    once = names.all_text_contents()
    page.keyboard.press("Enter")
    assert len({tuple(before), tuple(once), tuple(names.all_text_contents())}) >= 2
    assert once != names.all_text_contents()


def test_arrows_of_a_tensor_stop_at_its_edges_and_leave_the_browser_its_own(static_page: OpenPage) -> None:
    """All four in the grid, along the strip with two; with Ctrl held they move nothing."""
    page = static_page(views.render(SAMPLES["tensor"]["transpose_slice"], "html"))
    grid, now = page.locator(".tm-grid"), page.locator(".tm-now")
    page.wait_for_function("() => document.querySelector('section.tm-tensor').tensormagicPanel")
    grid.focus()
    told = []
    for key in (*["ArrowUp", "ArrowLeft"] * 4, "ArrowDown", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
        told.append(now.inner_text().split(" =")[0])
    assert told[-4:] == ["offset(0, 0)", "offset(1, 0)", "offset(1, 1)", "offset(0, 1)"]
    assert page.evaluate(NOT_TAKEN, "ArrowLeft")
    expect(now).to_contain_text("offset(0, 1) =")
