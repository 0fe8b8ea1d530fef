"""The tensor panel in a browser: grid, strip and formula follow each other, by pointer and by keyboard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from tensormagic import api, views
from tests.views.samples_tensor import SAMPLES, as_html

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>panel</title><body>'


def panels(*names: str) -> str:
    """A page with the panels of these samples, one under the other."""
    return HEAD + "".join(as_html(SAMPLES[name]) for name in names)


def grid_cell(panel: Locator, row: int, column: int) -> Locator:
    """The cell of the index grid at a row and column, both from 0."""
    return panel.locator(".tm-grid tr").nth(row + 1).locator("td").nth(column)


def strip_cell(panel: Locator, at: int) -> Locator:
    """The cell of the storage strip with that number."""
    return panel.locator(".tm-strip td").nth(at)


@pytest.fixture
def panel(static_page: Callable[..., Page]) -> Locator:
    """The mockup's panel on a page of its own."""
    return static_page(panels("transpose_slice")).locator("section.tm-tensor")


def test_hovering_an_index_lights_its_storage_element(panel: Locator) -> None:
    """x[1, 0] is storage element 2: the strip's cell is ringed and the formula is filled in anew."""
    grid_cell(panel, 1, 0).hover()
    expect(strip_cell(panel, 2)).to_have_class("tm-on")
    expect(panel.locator(".tm-on").filter(has_text="15")).to_have_count(0)
    expect(panel.locator(".tm-now")).to_have_text("offset(1, 0) = 1 + 1·1 + 12·0 = 2")
    expect(panel.locator(".tm-notes")).to_contain_text("x[1, 0] = 2")
    expect(panel.locator(".tm-notes")).to_contain_text("the same element is a[0, 2]")


def test_hovering_the_storage_lights_the_index(panel: Locator) -> None:
    """Storage element 13 is x[0, 1]; element 5 is read by nothing and says so."""
    strip_cell(panel, 13).hover()
    expect(grid_cell(panel, 0, 1)).to_have_class("tm-on")
    expect(panel.locator(".tm-now")).to_have_text("offset(0, 1) = 1 + 1·0 + 12·1 = 13")
    strip_cell(panel, 5).hover()
    expect(panel.locator(".tm-grid .tm-on")).to_have_count(0)
    expect(panel.locator(".tm-notes")).to_have_text("not read by x; the same element is a[0, 5]")


def test_arrow_keys_move_and_stop_at_the_edges(panel: Locator) -> None:
    """Focus the grid: arrows move from the worked example, and not beyond the last row."""
    grid = panel.locator(".tm-grid")
    grid.focus()
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "ArrowDown"):
        grid.press(key)
    expect(panel.locator(".tm-now")).to_have_text("offset(3, 0) = 1 + 1·3 + 12·0 = 4")
    strip = panel.locator(".tm-strip")
    strip.focus()
    strip.press("ArrowLeft")
    expect(panel.locator(".tm-now")).to_have_text("offset(2, 0) = 1 + 1·2 + 12·0 = 3")


def test_wire_joins_the_two_cells(panel: Locator) -> None:
    """The line's arrow ends over the middle of the strip's cell."""
    grid_cell(panel, 0, 0).hover()
    arrow = panel.locator(".tm-wire path").last.bounding_box()
    cell = strip_cell(panel, 1).bounding_box()
    assert arrow["x"] + arrow["width"] / 2 == pytest.approx(cell["x"] + cell["width"] / 2, abs=1.5)
    assert arrow["y"] + arrow["height"] == pytest.approx(cell["y"], abs=5)


def test_no_wire_runs_through_words(static_page: Callable[..., Page]) -> None:
    """Where there is room it turns above the words; on a phone, where they lie below the grid, there is none."""
    page = static_page(panels("transpose_slice"), width=900)
    wire = page.locator(".tm-wire path").nth(1)
    level = """one => one.getBoundingClientRect().bottom
        - one.closest(".tm-picture").querySelector(".tm-jumps").getBoundingClientRect().bottom"""
    expect(wire).to_be_attached()
    assert wire.evaluate(level) > 7
    page.set_viewport_size({"width": 400, "height": 800})
    expect(page.locator(".tm-wire")).to_have_count(0)
    page.set_viewport_size({"width": 900, "height": 800})
    expect(wire).to_be_attached()


def test_the_header_answers_first(panel: Locator) -> None:
    """Shape as Python writes it, dtype, device; smallest, largest, mean, NaN and Inf, with a small histogram."""
    expect(panel.locator(".tm-line")).to_contain_text("x (4, 2) float32 cpu")
    expect(panel.locator(".tm-lead")).to_have_text("min 1 max 16 mean 7.714 NaN 1 Inf 0")
    expect(panel.locator(".tm-lead .tm-failed")).to_have_text("1")
    bars = panel.locator(".tm-spark i")
    heights = [bar.bounding_box()["height"] for bar in bars.all()]
    assert len(heights) == 8
    assert max(heights) > 12
    assert heights.count(0) == 4


def test_values_are_large_and_offsets_small_until_the_switch_turns_them_round(panel: Locator) -> None:
    """The value above, in larger letters; the switch changes places, and back."""
    cell = grid_cell(panel, 1, 1)
    expect(cell).to_have_text("nan 14")
    size = "one => parseFloat(getComputedStyle(one).fontSize)"
    assert cell.evaluate(size) >= 1.3 * cell.locator("small").evaluate(size)
    panel.get_by_role("button", name="offset").click()
    expect(cell).to_have_text("14 nan")
    expect(cell.locator("small")).to_have_text("nan")
    panel.get_by_role("button", name="value").click()
    expect(cell).to_have_text("nan 14")


def test_the_strip_repeats_the_values(panel: Locator) -> None:
    """With the offsets below; there is no third way of counting."""
    expect(strip_cell(panel, 15)).to_have_text("15")
    expect(strip_cell(panel, 2)).to_have_text("2")
    expect(panel.locator(".tm-strip th")).to_have_text("value")
    expect(panel).not_to_contain_text("read order")


def test_indices_that_read_the_same_element_light_together(static_page: Callable[..., Page]) -> None:
    """In an expanded tensor all six rows of a column are one element."""
    panel = static_page(panels("expanded")).locator("section.tm-tensor")
    grid_cell(panel, 0, 3).hover()
    expect(panel.locator(".tm-grid td.tm-near")).to_have_count(5)
    expect(strip_cell(panel, 3)).to_have_class("tm-on")


def test_the_same_output_twice_works_twice(static_page: Callable[..., Page]) -> None:
    """Two copies of one panel: each follows its own pointer and leaves the other alone."""
    both = static_page(panels("transpose_slice", "transpose_slice")).locator("section.tm-tensor")
    grid_cell(both.nth(1), 0, 0).hover()
    expect(both.nth(0).locator(".tm-now")).to_contain_text("offset(2, 1)")
    expect(both.nth(1).locator(".tm-now")).to_contain_text("offset(0, 0)")
    grid_cell(both.nth(0), 3, 1).hover()
    expect(both.nth(0).locator(".tm-now")).to_contain_text("offset(3, 1)")
    expect(both.nth(1).locator(".tm-now")).to_contain_text("offset(0, 0)")
    expect(both.locator(".tm-wire")).to_have_count(2)
    expect(both.nth(0).locator(".tm-choice")).to_have_count(1)


def test_maps_of_a_large_tensor_are_linked_too(static_page: Callable[..., Page]) -> None:
    """Pointing into the map of values picks the sampled index and its storage cell."""
    panel = static_page(panels("causal_scores")).locator("section.tm-tensor")
    values = panel.locator('.tm-map[data-kind="value"] img')
    values.hover(position={"x": 3, "y": values.bounding_box()["height"] - 3})
    expect(panel.locator(".tm-now")).to_have_text("offset(0, 992, 0) = 0 + 1048576·0 + 1024·992 + 1·0 = 1015808")
    rings = panel.locator(".tm-map .tm-ring")
    expect(rings).to_have_count(2)
    strip_cell(panel, 2).hover()
    expect(panel.locator(".tm-now")).to_contain_text("offset(2, 0, 0)")
    expect(panel.locator(".tm-notes")).to_contain_text("in another slice: click to turn to it")
    expect(rings.first).to_be_hidden()


def test_a_tap_picks_an_element(browser, tmp_path) -> None:
    """Without a mouse: a touch does what hovering does."""
    context = browser.new_context(has_touch=True)
    page = context.new_page()
    page.set_content(panels("transpose_slice"))
    page.locator(".tm-strip td").nth(16).tap()
    expect(page.locator(".tm-now")).to_have_text("offset(3, 1) = 1 + 1·3 + 12·1 = 16")
    context.close()


def test_without_scripts_the_picture_stands(static_page: Callable[..., Page]) -> None:
    """Scripts off: table, formula and marked example are there, findings open by themselves."""
    panel = static_page(panels("transpose_slice"), scripts=False).locator("section.tm-tensor")
    expect(panel.locator(".tm-now")).to_have_text("offset(2, 1) = 1 + 1·2 + 12·1 = 15")
    expect(panel.locator(".tm-grid td")).to_have_count(8)
    panel.locator(".tm-find summary").first.click()
    expect(panel.locator(".tm-fix").first).to_be_visible()


def test_hostile_names_stay_text(static_page: Callable[..., Page]) -> None:
    """Hovering writes names and values into the page again: as text."""
    page = static_page(panels("hostile"))
    grid_cell(page.locator("section"), 0, 0).hover()
    expect(page.locator(".tm-now")).to_contain_text("offset(0, 0)")
    assert page.locator("[onload]").count() == 0
    expect(page.locator(".tm-notes")).to_contain_text("</script><!--")


@pytest.mark.parametrize("width", [700, 1100])
@pytest.mark.parametrize("name", ["transpose_slice", "expanded", "causal_scores", "channels", "every_severity"])
def test_panel_fits_its_column(static_page: Callable[..., Page], name: str, width: int) -> None:
    """At notebook widths nothing is cut off at the right."""
    page = static_page(panels(name), width=width)
    section = page.locator("section.tm-tensor")
    assert section.evaluate("s => s.scrollWidth - s.clientWidth") <= 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_notebooks_own_rules_do_not_reach_the_panel(static_page: Callable[..., Page]) -> None:
    """JupyterLab styles every table, row and code of an output; the panel keeps its own look."""
    rules = (
        ".jp-RenderedHTMLCommon :not(pre)>code{background-color:red;padding:1px 5px}"
        ".jp-RenderedHTMLCommon tbody tr:nth-child(odd){background:red}"
        ".jp-RenderedHTMLCommon td{padding:.5em;text-align:right;max-width:none}"
    )
    html = f'<div class="jp-RenderedHTMLCommon"><style>{rules}</style>{panels("transpose_slice")}</div>'
    panel = static_page(html).locator("section.tm-tensor")
    for selector in ("code", "tbody tr"):
        background = panel.locator(selector).first.evaluate("e => getComputedStyle(e).backgroundColor")
        assert background == "rgba(0, 0, 0, 0)"
    assert grid_cell(panel, 0, 0).evaluate("e => getComputedStyle(e).textAlign") == "center"


def test_a_value_is_in_the_middle_of_its_cell(static_page: Callable[..., Page]) -> None:
    """Also in a grid of many rows, whose cells show the offset behind it: that does not make them higher."""
    report = api.inspect(torch.arange(28.0).reshape(7, 4), "x", namespace={})
    cell = static_page(HEAD + views.render(report, "html")).locator(".tm-grid td").first
    assert cell.evaluate("each => each.getBoundingClientRect().height") == 20
    off = """each => { const range = document.createRange(), {top, height} = each.getBoundingClientRect();
      range.selectNodeContents(each.querySelector("b") ?? each.firstChild);
      const text = range.getBoundingClientRect();
      return Math.abs(text.top + text.height / 2 - top - height / 2); }"""
    assert cell.evaluate(off) < 1.5


@pytest.mark.parametrize("width", [1400, 900])
def test_a_short_strip_and_short_components_are_whole(static_page: Callable[..., Page], width: int) -> None:
    """Neither a long name at the left of the strip nor a second component takes the room of its cells."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    torch.nn.init.uniform_(net[0].weight, -0.99, -0.11)
    nested = torch.nested.nested_tensor([torch.rand(3), torch.rand(5)], layout=torch.jagged)
    for x, name in ((net[0].weight, "net[0].weight"), (nested, "nested")):
        page = static_page(HEAD + views.render(api.inspect(x, name, namespace={"net": net}), "html"), width=width)
        cut = page.locator(".tm-tensor :is(.tm-layout,.tm-part,.tm-scroll)").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.className)"
        )
        assert cut == []
