"""Turning a tensor of three dimensions or more in a browser: offsets are those of torch, values never made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

import tensormagic as tm
from tests.views.samples_tensor import as_html

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>panel</title><body>'
PERMUTED = torch.arange(60.0).reshape(3, 4, 5).permute(2, 0, 1)  # (5, 3, 4) with stride (1, 20, 5)
IMAGES = torch.zeros(8, 3, 64, 48).contiguous(memory_format=torch.channels_last)


@pytest.fixture
def panel(static_page: Callable[..., Page]) -> Callable[[torch.Tensor], Locator]:
    """Put the panel of a tensor named x on a page."""

    def open_panel(x: torch.Tensor) -> Locator:
        html = as_html(tm.inspect(x, "x", namespace={}))
        return static_page(HEAD + html).locator("section.tm-tensor")

    return open_panel


def offsets(panel: Locator) -> list[list[int]]:
    """The offsets in the grid, small below the values, row by row."""
    rows = panel.locator(".tm-grid tr").all()[1:]
    return [[int(text.split()[-1]) for text in row.locator("td").all_inner_texts()] for row in rows]


def values(panel: Locator) -> list[list[int]]:
    """The values in the grid, row by row."""
    rows = panel.locator(".tm-grid tr").all()[1:]
    return [[int(text.split()[0]) for text in row.locator("td").all_inner_texts()] for row in rows]


def test_a_slider_shows_another_slice(panel: Callable[[torch.Tensor], Locator]) -> None:
    """I from 0 to 3: the grid, the colours of the storage, the sentence, and the values that are carried."""
    shown = panel(PERMUTED)
    expect(shown.locator(".tm-turn select")).to_have_count(2)
    shown.locator(".tm-turn input").fill("3")
    assert offsets(shown) == PERMUTED[3].int().tolist()  # its values are its offsets
    expect(shown.locator(".tm-shown")).to_have_text("Showing slice x[3, :, :], one of 5")
    expect(shown.locator(".tm-turn output")).to_have_text("i=3 of 5")
    expect(shown.locator(".tm-legend p").first).to_have_text("offset 3  58")
    expect(shown.locator(".tm-notes")).to_contain_text("x[3, 1, 2] = 33")
    other = "rgb(170, 177, 186)"
    expect(shown.locator(".tm-strip td").nth(0)).to_have_css("background-color", other)
    expect(shown.locator(".tm-strip td").nth(3)).to_have_css("background-color", "rgb(0, 34, 78)")
    shown.locator(".tm-turn input").fill("0")
    assert offsets(shown) == PERMUTED[0].int().tolist()
    expect(shown.locator(".tm-strip td").nth(3)).to_have_css("background-color", other)


def test_other_dimensions_span_the_grid(panel: Callable[[torch.Tensor], Locator]) -> None:
    """Rows along i; the dimension it takes the place of slides. Choosing the other side's own swaps the two."""
    shown = panel(PERMUTED)
    shown.locator(".tm-turn select").nth(0).select_option("0")
    assert offsets(shown) == PERMUTED[:, 0, :].int().tolist()
    expect(shown.locator(".tm-turn output")).to_have_text("j=0 of 3")
    shown.locator(".tm-turn select").nth(1).select_option("0")
    assert offsets(shown) == PERMUTED[:, 0, :].t().int().tolist()
    expect(shown.locator(".tm-shown")).to_have_text("Showing slice x[:, 0, :], one of 3")


def test_a_storage_element_turns_to_its_slice(panel: Callable[[torch.Tensor], Locator]) -> None:
    """Storage element 22 is x[2, 1, 0]: pointed at it says so, clicked it shows that slice."""
    shown = panel(PERMUTED)
    cell = shown.locator(".tm-strip td").nth(22)
    cell.hover()
    expect(shown.locator(".tm-notes")).to_contain_text("x[2, 1, 0]")
    expect(shown.locator(".tm-notes")).to_contain_text("in another slice: click to turn to it")
    cell.click()
    expect(shown.locator(".tm-shown")).to_have_text("Showing slice x[2, :, :], one of 5")
    expect(shown.locator(".tm-grid td.tm-on")).to_have_text("22 22")


def test_cells_show_values_of_every_slice(panel: Callable[[torch.Tensor], Locator]) -> None:
    """The choice of what cells say large is kept as slices turn."""
    shown = panel(PERMUTED * 10)
    shown.locator(".tm-turn input").fill("4")
    assert values(shown) == (PERMUTED[4] * 10).int().tolist()
    shown.get_by_role("button", name="offset").click()
    shown.locator(".tm-turn input").fill("3")
    assert offsets(shown) == (PERMUTED[3] * 10).int().tolist()


def test_values_that_are_not_there_are_not_shown(panel: Callable[[torch.Tensor], Locator]) -> None:
    """73 728 elements are not carried: another slice has its offsets, and says that its values are missing."""
    shown = panel(IMAGES)
    expect(shown.locator('.tm-map[data-kind="value"]')).to_have_count(1)
    expect(shown.locator(".tm-shown")).not_to_contain_text("not in this output")
    shown.locator(".tm-turn select").nth(0).select_option("0")
    expect(shown.locator('.tm-map[data-kind="value"]')).to_have_count(0)
    expect(shown.locator(".tm-shown")).to_contain_text(
        "8 × 32 of 8 × 48; slice x[:, 0, 0, :], one of 192; its values are not in this output"
    )
    expect(shown.locator(".tm-notes")).to_contain_text("x[4, 0, 0, 24]")
    expect(shown.locator(".tm-notes")).to_contain_text("value not in this output")
    shown.locator(".tm-turn select").nth(0).select_option("2")
    expect(shown.locator('.tm-map[data-kind="value"]')).to_have_count(1)
    expect(shown.locator(".tm-shown")).not_to_contain_text("not in this output")


def test_two_dimensions_have_nothing_to_turn(panel: Callable[[torch.Tensor], Locator]) -> None:
    """A matrix, and one with dimensions of size 1, keep their plain panel."""
    expect(panel(PERMUTED[0])).to_be_visible()
    expect(panel(torch.zeros(1, 3, 4)).locator(".tm-turn")).to_have_count(0)


def test_in_jupyterlab_slider_and_strip_obey_pointer_and_keys(notebook) -> None:
    """``%tensor t t[1]``: one strip for both, then panels; JupyterLab leaves the arrow keys to the slider."""
    setup = "import torch\n%load_ext tensormagic\nt = torch.arange(60.).reshape(3, 4, 5).permute(2, 0, 1)"
    opened = notebook(setup, "%tensor t t[1]")
    opened.run()
    output = opened.output(1)
    overlay, panel = output.locator("section.tm-overlay"), output.locator("section.tm-tensor:has(.tm-turn)")
    overlay.locator(".tm-strip").nth(1).locator("td").nth(1).hover()
    expect(overlay.locator(".tm-said")).to_have_text("t[1, 0, 0] (bytes 4 to 7)  ·  t[1][0, 0] (bytes 4 to 7)")
    output.locator("summary", has_text="t (5, ").click()
    slider = panel.locator(".tm-turn input")
    slider.focus()
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    expect(panel.locator(".tm-shown")).to_have_text("Showing slice t[2, :, :], one of 5")
    assert offsets(panel) == PERMUTED[2].int().tolist()
    grid = panel.locator(".tm-grid")
    grid.focus()
    grid.press("ArrowDown")
    expect(panel.locator(".tm-now")).to_have_text("offset(2, 2, 2) = 0 + 1·2 + 20·2 + 5·2 = 52")
