"""Several tensors on one strip in a browser: pointing at an element tells what else lies over its bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from tensormagic import api, views
from tests.views.samples_overlay import SAMPLES

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>overlay</title><body>'


@pytest.fixture
def overlay(static_page: Callable[..., Page]) -> Callable[[str], Locator]:
    """Put an overlay on a page, twice: the second must not disturb the first."""

    def open_overlay(name: str) -> Locator:
        html = views.draw(SAMPLES[name], "html")
        return static_page(HEAD + html + html).locator("section.tm-overlay").first

    return open_overlay


def test_an_element_lights_those_over_the_same_bytes(overlay: Callable[[str], Locator]) -> None:
    """A float32 of bytes 4 to 7 lies over four int8 and no half of the float16 view but one."""
    panel = overlay("bytes")
    panel.locator(".tm-strip").nth(0).locator("td").nth(1).hover()
    expect(panel.locator(".tm-said")).to_have_text(
        "f[1] (bytes 4 to 7)  ·  b[1], b[2], b[3], b[4]  ·  h[1] (bytes 6 to 7)"
    )
    expect(panel.locator(".tm-strip td.tm-on")).to_have_text(["1", "1", "2", "3", "4", "1"])


def test_arrow_keys_walk_along_the_ruler(overlay: Callable[[str], Locator]) -> None:
    """Byte by byte, not beyond the first."""
    panel = overlay("bytes")
    table = panel.locator("table.tm-storage")
    table.focus()
    for _ in range(4):
        table.press("ArrowRight")
    expect(panel.locator(".tm-said")).to_have_text("f[0] (bytes 0 to 3)  ·  b[0] (byte 3)  ·  h[0] (bytes 2 to 3)")
    for _ in range(6):
        table.press("ArrowLeft")
    expect(panel.locator(".tm-said")).to_have_text("f[0] (bytes 0 to 3)")


def test_runs_of_bytes_say_how_much_is_read(overlay: Callable[[str], Locator]) -> None:
    """Where elements are too many: how much of the run each reads."""
    panel = overlay("large")
    panel.locator(".tm-strip").nth(1).locator("td").nth(5).hover()
    expect(panel.locator(".tm-said")).to_contain_text("odd: ")
    expect(panel.locator(".tm-said")).to_contain_text(" read")
    expect(panel.locator(".tm-strip td.tm-on")).to_have_count(2)  # the row that reads nothing there is left alone


def test_four_tensors_fit_into_900_pixels(static_page: Callable[..., Page]) -> None:
    """What each has in common with each of the others is all there."""
    base = torch.arange(48.0).view(6, 8)
    report = api.overlay({"base": base, "rows": base[1:3], "columns": base[:, 2:5], "row": base[2]})
    page = static_page(HEAD + f'<div style="width:740px">{views.draw(report, "html")}</div>', width=900)
    wide = page.locator(".tm-section").evaluate_all("all => all.map(each => each.scrollWidth - each.clientWidth)")
    assert max(wide) <= 0
    expect(page.locator("thead th").last).to_be_in_viewport()
