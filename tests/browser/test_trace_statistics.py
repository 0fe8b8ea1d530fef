"""What the drawer says of a gradient at the pass that is shown: statistics, shares of a sum, the optimizer's step."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from tensormagic.reports import UNTOUCHED, TraceReport
from tensormagic.views.panels import trace as trace_html
from tests.views import samples_viewer

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]


def _measured() -> TraceReport:
    """Three passes, of which the first and the last were measured in full; every parameter then moved by 1e-3."""
    report = samples_viewer.calm_run(3)
    (graph,) = report.graphs
    numbers = (0.5, -0.25, 0.125, 0.5, 0.0, 0.25)
    first, second, third = graph.frames
    shared = tuple(at for at, edge in enumerate(graph.edges) if edge.source == graph.roots[0])
    third = replace(third, measures=array("f", numbers * len(graph.nodes)), parts=array("f", [0.125] * len(shared)))
    graph = replace(graph, frames=(first, second, third), shared_edges=shared)
    moves = array("f", [UNTOUCHED, UNTOUCHED, 0.001])
    parameters = tuple(replace(series, updates=moves) for series in report.parameters)
    return replace(report, graphs=(graph,), parameters=parameters)


def _open(static_page: OpenPage) -> Page:
    page = static_page(trace_html.render(_measured()))
    expect(page.locator(".canvas")).to_be_visible()
    return page


def test_statistics_are_those_of_the_pass_that_is_shown(static_page: OpenPage) -> None:
    """The last pass has its own numbers; at the one before, those of the first pass stand, and it is said."""
    page = _open(static_page)
    page.locator(".box").first.click()
    statistics = page.locator(".drawer .statistics")
    expect(statistics).to_contain_text("pass 3")
    for row in ("|max|0.5", "mean−0.25", "std0.13", "at the limit"):
        expect(statistics).to_contain_text(row)
    expect(statistics).to_contain_text("(50 %)")
    page.locator("input[type=range]").first.fill("1")
    expect(page.locator(".drawer")).to_contain_text("Gradient norm pass 2")
    expect(statistics).to_contain_text("pass 1")
    expect(statistics).not_to_contain_text("at the limit")


def test_where_several_send_to_one_slot_each_tells_its_own_share(static_page: OpenPage) -> None:
    """The norm beside an input is what went along that edge, not the sum that the receiver got."""
    page = _open(static_page)
    report = _measured()
    label = report.graphs[0].nodes[report.graphs[0].roots[0]].op
    page.locator(".box", has_text=label).last.click()
    cell = page.locator(".drawer td[title*='its share']").first
    expect(cell).to_have_text("0.12")


def test_the_step_that_followed_is_told_at_the_leaf(static_page: OpenPage) -> None:
    """The leaf's drawer says how far the optimizer moved it, at the passes after which that was measured."""
    page = _open(static_page)
    page.locator(".badge").first.click()
    expect(page.locator(".drawer .story")).to_have_text("The optimizer then changed it by 0.001 of its norm.")
    page.locator("input[type=range]").first.fill("0")
    expect(page.locator(".drawer .story")).to_have_text("")


def test_charts_are_drawn_where_all_stand_in_one_row(static_page: OpenPage) -> None:
    """A small healthy model, whose parameters fit into one row of the folded panel, has its curves."""
    report = samples_viewer.calm_run(8)
    page = static_page(trace_html.render(replace(report, parameters=report.parameters[:2])))
    expect(page.locator(".charts")).to_be_visible()
    expect(page.locator(".row .reading").first).not_to_have_text("")
    assert page.locator(".row path.series").first.get_attribute("d")
