"""The panels of memory in a browser: readable on both sides and at any width, complete without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Page, expect

import tensormagic as tm
from tensormagic import views
from tests.support.lab import LabNotebook
from tests.views.samples_memory import SAMPLES
from tests.views.samples_memory_run import SAMPLES as RUNS

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>memory</title><body>'
# The lowest contrast of any text on a treemap, a bar or a line: its ink against the ground that it is on.
LOWEST_CONTRAST = """panel => {
  const numbers = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = each => {
    for (let at = each; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const told = each => [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  return Math.min(...[...panel.querySelectorAll("*")].filter(told).filter(each => each.checkVisibility()).map(each => {
    const pair = [light(numbers(getComputedStyle(each).color)), light(ground(each))].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  }));
}"""


def shown(report) -> str:
    return HEAD + views.render(report, "html")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("report", [SAMPLES["gpt"], RUNS["died"]], ids=["now", "run"])
def test_every_text_has_contrast(static_page: Callable[..., Page], report, dark: bool) -> None:
    """At least 4.5 : 1, on rectangles of every colour too."""
    page = static_page(shown(report), dark=dark)
    page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true })")
    assert page.locator("section.tm-memory").evaluate(LOWEST_CONTRAST) >= 4.5


@pytest.mark.parametrize("width", [400, 640, 900, 1100])
@pytest.mark.parametrize("report", [SAMPLES["gpt"], RUNS["training"]], ids=["now", "run"])
def test_nothing_runs_over_the_edge(static_page: Callable[..., Page], report, width: int) -> None:
    """In a narrow notebook cell and a wide one all of it is inside of the panel."""
    page = static_page(shown(report), width=width)
    section = page.locator("section.tm-memory")
    assert section.evaluate("each => each.scrollWidth - each.clientWidth") <= 0


@pytest.mark.parametrize("width", [900, 1100])
def test_code_has_the_room_that_numbers_leave(static_page: Callable[..., Page], width: int) -> None:
    """The columns of numbers are as wide as these are: a line of code need not be broken beside empty ones."""
    page = static_page(shown(RUNS["training"]), width=width)
    table = page.locator(".tm-code").first
    share = table.evaluate("all => all.querySelector('td.tm-text').clientWidth / all.clientWidth")
    assert share > 0.5


@pytest.mark.parametrize("width", [400, 900, 1400])
def test_every_line_is_visible_with_its_bars_beside_the_numbers(static_page: Callable[..., Page], width: int) -> None:
    """The list of a cell does not scroll; a bar begins where its number ends; swatches belong to the map by line."""
    page = static_page(shown(RUNS["training"]), width=width)
    listing = page.locator(".tm-scroll:has(> .tm-code)").first
    assert listing.evaluate("each => [each.scrollHeight - each.clientHeight, each.scrollWidth - each.clientWidth]") == [
        0,
        0,
    ]
    assert listing.locator("tbody tr").count() > 8
    free = listing.locator(".tm-amount").evaluate_all(
        """all => all.map(each => {
          const range = document.createRange();
          range.selectNodeContents(each);
          const bar = Number.parseFloat(getComputedStyle(each).backgroundSize);
          return each.getBoundingClientRect().right - bar - range.getBoundingClientRect().right;
        })"""
    )
    assert free
    assert min(free) >= 0
    expect(listing.locator(".tm-swatch").first).to_be_hidden()
    page.get_by_label("by line", exact=True).first.check()
    expect(listing.locator(".tm-swatch").first).to_be_visible()


def test_rectangles_are_as_large_as_their_bytes(static_page: Callable[..., Page]) -> None:
    """Measured in the page: 4 KiB take twice the area of 2 KiB."""
    page = static_page(shown(SAMPLES["small"]))
    sizes = page.locator(".tm-map > span[title]").evaluate_all(
        "all => all.map(each => [each.title.split('\\n')[0], each.offsetWidth * each.offsetHeight])"
    )
    areas = dict(sizes)
    assert areas["net.weight"] / areas["x"] == pytest.approx(2, rel=0.02)


def test_the_timeline_is_switched_without_scripts(static_page: Callable[..., Page]) -> None:
    """By category or by line; each of two panels on a page has its own switch; Enter does nothing."""
    page = static_page(shown(RUNS["training"]) + views.render(RUNS["training"], "html"), scripts=False)
    first, second = page.locator("section.tm-memory").nth(0), page.locator("section.tm-memory").nth(1)
    expect(first.locator(".tm-by-category")).to_be_visible()
    expect(first.locator(".tm-by-line")).to_be_hidden()
    first.get_by_label("by line", exact=True).check()
    expect(first.locator(".tm-by-line")).to_be_visible()
    expect(first.locator(".tm-by-category")).to_be_hidden()
    expect(second.locator(".tm-by-category")).to_be_visible()
    page.keyboard.press("Enter")
    expect(first.locator(".tm-by-line")).to_be_visible()


def test_a_short_run_is_no_needle_where_style_sheets_are_stripped(static_page: Callable[..., Page]) -> None:
    """As in an untrusted notebook: a run of few operations is as wide there as a long one."""
    with tm.track_memory() as run:
        kept = [torch.ones(100) for _ in range(5)]
    assert len(kept) == 5
    html = re.sub(r"<style>.*?</style>", "", views.render(run.report, "html"), flags=re.DOTALL)
    image = (
        static_page(f"<style>img{{max-width:100%;height:auto}}</style>{html}", scripts=False)
        .locator(".tm-plot img")
        .first
    )
    assert image.evaluate("one => one.offsetWidth / one.offsetHeight") > 2


def test_the_mark_of_the_peak_stands_on_the_picture(static_page: Callable[..., Page]) -> None:
    """The dotted line ends where the areas do: its height is the peak's share of the scale."""
    page = static_page(shown(RUNS["training"]))
    plot = page.locator(".tm-by-category .tm-plot")
    mark = plot.locator(".tm-peak").bounding_box()
    box = plot.bounding_box()
    assert mark["height"] / box["height"] == pytest.approx(1 / 1.12, abs=0.02)
    assert box["x"] <= mark["x"] <= box["x"] + box["width"]


LEAK = """%%gpumem
losses = []
for _ in range(8):
    losses.append(net(x).square().mean())"""
START = "%load_ext tensormagic\nimport torch\nfrom torch import nn\nnet, x = nn.Linear(64, 64), torch.randn(16384, 64)"


def test_both_panels_in_jupyterlab(notebook: Callable[..., LabNotebook]) -> None:
    """The run with its leak, then what is alive: the switch works there, and both follow the theme."""
    opened = notebook(START, LEAK, "%gpumem")
    opened.run()
    run, now = (opened.output(cell).locator("section.tm-memory") for cell in (1, 2))
    expect(run.locator(".tm-find")).to_contain_text("TM503")
    expect(run.locator(".tm-code")).to_contain_text("losses.append(net(x).square().mean())")
    run.get_by_label("by line", exact=True).check()
    expect(run.locator(".tm-by-line")).to_be_visible()
    expect(now.locator(".tm-list tbody th").first).to_have_text("del losses")
    expect(now.locator(".tm-mh").first).to_contain_text("graph of losses")
    colours = []
    for dark in (False, True):
        opened.theme(dark=dark)
        colours.append(now.evaluate("panel => getComputedStyle(panel).backgroundColor"))
        assert min(panel.evaluate(LOWEST_CONTRAST) for panel in (run, now)) >= 4.5
    opened.theme(dark=False)
    assert colours[0] != colours[1]


LIVE = """%%gpumem
import time
kept = []
for _ in range(40):
    kept.append(torch.zeros(1 << 18))
    time.sleep(0.1)"""


def test_the_bytes_move_while_the_cell_runs(notebook: Callable[..., LabNotebook]) -> None:
    """More and more of them, with the line; what was opened stays open; then the panel alone stands there."""
    opened = notebook(START, LIVE)
    opened.start()
    output = opened.output(1)
    words = output.locator(".tm-now p")
    expect(words).to_contain_text("alive", timeout=60_000)
    expect(words).to_contain_text("line 5")
    output.get_by_label("by line", exact=True).check(timeout=20_000)
    expect(output.locator(".tm-now svg")).to_be_hidden()  # one chart, one header, one peak
    expect(output.locator(".tm-memory .tm-head")).to_be_hidden()
    folded = output.locator("details").first
    folded.locator("summary").first.click()
    first = words.inner_text()
    expect(words).not_to_have_text(first)
    opened.page.wait_for_timeout(1500)
    assert opened.is_running()
    expect(output.get_by_label("by line", exact=True)).to_be_checked()
    expect(folded).to_have_attribute("open", "")
    assert output.locator(".tm-now-area").get_attribute("d").count("V") > 3
    opened.wait()
    expect(output.locator(".tm-now")).to_have_count(0)
    expect(output.locator(".tm-code")).to_contain_text("kept.append(torch.zeros(1 << 18))")
    bundle = opened.saved().cells[1].outputs[0]["data"]
    assert set(bundle) == {"text/html", "text/latex", "text/plain"}
