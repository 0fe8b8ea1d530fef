"""The table of %tensors in a browser: sorted and filtered, over all rows, twice on a page, and without scripts."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tensormagic import views
from tests.views.samples_memory import small
from tests.views.samples_sharing import ALIASES, TABLES

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>tables</title><body>'
# How far a pixel of two pictures is apart at most, of 255.
FURTHEST = """async pictures => {
  const read = async picture => {
    const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    return context.getImageData(0, 0, bitmap.width, bitmap.height).data;
  };
  const [one, other] = await Promise.all(pictures.map(read));
  return one.reduce((most, value, at) => Math.max(most, Math.abs(value - other[at])), 0);
}"""


@pytest.fixture
def tables(static_page: Callable[..., Page]) -> list[Locator]:
    """A table of two thousand rows twice on a page, and a collection with its panels."""
    many = views.draw(TABLES["many"], "html")
    page = static_page(HEAD + many + many + views.draw(TABLES["collection"], "html"))
    return [page.locator("section.tm-sharing").nth(at) for at in range(3)]


def first(table: Locator) -> Locator:
    """The name in the first row."""
    return table.locator(".tm-rows tbody th").first


def heading(table: Locator, word: str) -> Locator:
    """The button in a heading."""
    return table.locator(".tm-rows thead button", has_text=word)


def test_sorting_turns_round_and_back(tables: list[Locator]) -> None:
    """The largest first; names from the first on, numbers in them as numbers; the other way; as they came."""
    table = tables[0]
    expect(first(table)).to_have_text("ts[1999]")
    heading(table, "name").click()
    expect(first(table)).to_have_text("ts[0]")
    expect(table.locator("th[aria-sort=ascending]")).to_have_text("name")
    expect(table.locator(".tm-rows tbody th").nth(10)).to_have_text("ts[10]")
    heading(table, "name").click()
    expect(first(table)).to_have_text("ts[1999]")
    heading(table, "name").click()
    expect(first(table)).to_have_text("ts[0]")
    expect(table.locator("th[aria-sort=ascending],th[aria-sort=descending]")).to_have_count(0)


def test_filtering_looks_at_all_rows(tables: list[Locator]) -> None:
    """Rows that the static table leaves out are found; every word must be there; the other table stays as it was."""
    table = tables[0]
    table.locator("input").fill("ts[7 float32")
    expect(table.locator("[aria-live]")).to_have_text("111 of 2000 match")
    expect(table.locator(".tm-more")).to_contain_text("100 of 111 shown: show more")
    table.locator(".tm-more button").click()
    expect(table.locator(".tm-rows tbody tr")).to_have_count(111)
    expect(table.locator(".tm-more")).to_be_hidden()
    expect(tables[1].locator("[aria-live]")).to_have_text("2000 rows")


def test_panels_below_a_collection_work(tables: list[Locator]) -> None:
    """Opened, a panel answers to the pointer as it does by itself, though its viewer stands there once."""
    table = tables[2]
    expect(table.locator(".tm-tools")).to_be_hidden()
    table.get_by_text("The panel of each").click()
    table.locator(".tm-panels summary").first.click()
    table.locator(".tm-grid tr").nth(2).locator("td").first.hover()
    expect(table.locator(".tm-now").first).to_have_text("offset(1, 0) = 1 + 1·1 + 12·0 = 2")


def test_without_scripts_the_table_is_there(static_page: Callable[..., Page]) -> None:
    """A hundred rows and what is left out, in words; no tool that would not work."""
    page = static_page(HEAD + views.draw(TABLES["many"], "html"), scripts=False)
    expect(page.locator(".tm-rows tbody tr")).to_have_count(100)
    expect(page.locator(".tm-listed")).to_have_text("The 100 largest of 2000 are listed; the totals are over all.")
    expect(page.locator("input, button")).to_have_count(0)


@pytest.mark.parametrize("width", [700, 1100])
def test_cards_of_aliases_fit(static_page: Callable[..., Page], width: int) -> None:
    """In a narrow notebook cell and a wide one nothing runs over the panel's edge, and strips stand on one axis."""
    page = static_page(HEAD + views.render(ALIASES["slices"], "html"), width=width)
    section = page.locator("section.tm-aliases")
    assert section.evaluate("each => each.scrollWidth - each.clientWidth") <= (240 if width < 800 else 0)
    lefts = page.locator(".tm-reach").evaluate_all("all => all.map(each => each.getBoundingClientRect().left)")
    assert len(set(lefts)) == 1


def test_a_table_wider_than_its_panel_keeps_the_names(static_page: Callable[..., Page]) -> None:
    """In a window of 700 points columns are out of sight: a shadow says so, and a row's name stays beside them."""
    page = static_page(HEAD + views.render(TABLES["few"], "html"), width=700)
    rows = page.locator(".tm-rows .tm-scroll")
    assert rows.evaluate("each => each.scrollWidth - each.clientWidth") > 50
    assert rows.evaluate("each => getComputedStyle(each).backgroundImage").count("linear-gradient") == 2
    name = rows.locator("tbody th").first
    before = name.bounding_box()
    rows.evaluate("each => each.scrollTo(1000, 0)")
    assert name.bounding_box() == before
    expect(rows.get_by_text("gradient", exact=True)).to_be_in_viewport()


@pytest.mark.parametrize("scale", [1, 1.25, 1.5, 4])
def test_a_table_that_fits_throws_no_shadow(browser: Browser, scale: float) -> None:
    """Nor a part of one: on a screen whose points are no whole pixels, edges of boxes are not where they were meant."""
    page = browser.new_page(viewport={"width": 1000, "height": 700}, device_scale_factor=scale)
    page.set_content(f"<body style='margin:16px'>{views.render(small(), 'html')}")
    assert page.locator(":has(> .tm-list)").count()
    page.locator(".tm-export").first.wait_for(state="attached")
    drawn = page.screenshot()
    page.add_style_tag(content=".tm.tm.tm :has(>.tm-list){background:none}")
    pictures = [base64.b64encode(one).decode() for one in (drawn, page.screenshot())]
    assert page.evaluate(FURTHEST, pictures) <= 16, "more than where the edge of a box meets that of the panel"
    page.close()
