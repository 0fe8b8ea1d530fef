"""Cuts and forward values in the saved page: drawn, told in the drawer, and counted where the run is summed up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tensormagic.views.panels import trace as trace_html
from tests.views import samples_trace as samples

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]


def opened(static_page: OpenPage, report, **options) -> Page:
    return static_page(trace_html.render(report), **options)


@pytest.mark.parametrize("dark", [False, True])
def test_cuts_are_drawn_where_python_drew_them(static_page: OpenPage, dark: bool) -> None:
    """One cut wire, a line under each of two boxes, one cap; and the legend says what that is."""
    page = opened(static_page, samples.cuts(), dark=dark)
    expect(page.locator(".canvas .cut.row text")).to_have_text(["detach, line 10", "no_grad, line 3"])
    expect(page.locator(".canvas .cut .cap")).to_have_count(1)
    expect(page.locator(".canvas .cut:not(.row) .strokes")).to_have_count(1)
    expect(page.locator(".legend .key.cut")).to_have_text("cut")
    expect(page.locator(".callout")).to_contain_text("23 nodes checked, 2 cuts")


def test_a_click_on_a_cut_tells_it(static_page: OpenPage) -> None:
    """The drawer of the box says what went in and what used it; the link leads to the line."""
    page = opened(static_page, samples.cuts())
    page.locator(".cut.row", has_text="detach").click()
    told = page.locator(".drawer .node-cuts")
    expect(told).to_contain_text("detach, line 10: view (line 10) // linear, input 1, 32×512 float32, 40 times")
    expect(told.get_by_role("button", name="detach, line 10")).to_be_visible()


def test_forward_values_stand_beside_the_gradient(static_page: OpenPage) -> None:
    """The drawer of a node has a table of what the forward made, counts of NaN and Inf first."""
    page = opened(static_page, samples.forward())
    page.locator(".box", has_text="log").first.click()
    values = page.locator(".drawer .forward")
    expect(values).to_contain_text("Forward value pass 40")
    expect(values.locator("td.bad")).to_have_text("3 Inf")
    expect(values.locator("tr", has_text="mean")).to_contain_text("−0.25")


def test_a_run_without_either_says_nothing_of_them(static_page: OpenPage) -> None:
    """No key, no mark, no section."""
    page = opened(static_page, samples.report())
    page.locator(".box", has_text="log").first.click()
    expect(page.locator(".cut")).to_have_count(0)
    expect(page.locator(".drawer .node-cuts")).to_have_count(0)
    expect(page.locator(".drawer .forward")).to_have_text("")
