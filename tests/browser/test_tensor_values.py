"""Slices, pictures and the way to the leaves in a browser without scripts: every image is one, sharp and in place."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Page, expect

import tensormagic as tm
from tensormagic import views
from tests.views.samples_tensor import as_html, colour, images, signals
from tests.views.samples_values import SAMPLES

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>panel</title><body>'
BROKEN = "() => [...document.images].filter(image => !image.complete || !image.naturalWidth).map(image => image.alt)"
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_image_is_drawn(static_page: Callable[..., Page], *, dark: bool) -> None:
    """PNG and SVG alike are read by the browser, in a narrow page too, without a script."""
    reports = [*SAMPLES.values(), images(), colour(), signals()]
    page = static_page(HEAD + "".join(map(as_html, reports)), dark=dark, scripts=False, width=640)
    assert page.locator("img").count() > 10
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(WIDE) <= 0


def test_what_is_wrong_stands_open(static_page: Callable[..., Page]) -> None:
    """Where NaN lies, and that backward must fail, is seen without a click; what is well stays folded."""
    page = static_page(HEAD + as_html(SAMPLES["bad_item"]) + as_html(SAMPLES["graph"]))
    expect(page.get_by_text("All 12 NaN lie in i=5 (one of 8).")).to_be_visible()
    expect(page.get_by_text("backward() would raise")).to_be_visible()
    expect(page.locator(".tm-path img")).to_be_visible()
    folded = static_page(HEAD + as_html(SAMPLES["sampled"]))
    expect(folded.get_by_text("Memory and holders")).to_be_visible()
    expect(folded.locator(".tm-folds dl")).to_be_hidden()


def test_statistics_of_a_sample_are_whole_where_it_is_narrow(static_page: Callable[..., Page]) -> None:
    """What was sampled is a long sentence: it wraps, and moves the numbers below it out of sight nowhere."""
    page = static_page(f"{HEAD}{views.render(tm.inspect(torch.randn(64, 3, 224, 224)), 'html')}")
    page.set_viewport_size({"width": 730, "height": 900})
    section = page.locator(".tm-section:has(> .tm-histogram)")
    expect(section).to_contain_text("dimension 3")
    panel, words, numbers = (
        one.bounding_box()
        for one in (page.locator(".tm-tensor"), section.locator(".tm-about"), section.locator(".tm-list"))
    )
    assert panel is not None
    assert words is not None
    assert numbers is not None
    assert words["x"] + words["width"] <= panel["x"] + panel["width"]
    assert numbers["x"] + numbers["width"] <= panel["x"] + panel["width"]


def test_a_complex_number_has_both_its_parts(static_page: Callable[..., Page]) -> None:
    """As in the page that has no scripts, when the cells are written anew."""
    x = torch.tensor([[-0.83712 - 0.51942j, 2 + 1.5j], [1e-7 + 3j, 1j]])
    page = static_page(f"{HEAD}{views.render(tm.inspect(x, name='x'), 'html')}")
    cells = page.locator(".tm-grid td")
    expect(cells).to_have_text(["-0.84-0.52j 0", "2+1.5j 1", "1e-07+3j 2", "0+1j 3"])
    page.get_by_role("button", name="offset", exact=True).click()
    page.get_by_role("button", name="value", exact=True).click()
    expect(cells).to_have_text(["-0.84-0.52j 0", "2+1.5j 1", "1e-07+3j 2", "0+1j 3"])


def test_bars_are_seen_where_style_sheets_are_stripped(static_page: Callable[..., Page]) -> None:
    """An untrusted notebook keeps what is written at the elements: an empty cell would have no width."""
    html = re.sub(r"<style>.*?</style>", "", views.render(tm.inspect(torch.arange(50.0)), "html"), flags=re.DOTALL)
    page = static_page(f"{HEAD}<style>td{{padding:6px}}</style>{html}", scripts=False)
    bars = page.locator("table.tm-bars td[title] div")
    assert bars.count() > 5
    assert all(bar.evaluate("one => one.offsetWidth") >= 3 for bar in bars.all())


def test_a_pixel_keeps_its_colour(static_page: Callable[..., Page]) -> None:
    """One pixel of red 255, green 128, blue 0 arrives as that."""
    page = static_page(HEAD + as_html(colour()))
    read = """() => {
        const canvas = document.createElement('canvas');
        canvas.getContext('2d').drawImage(document.querySelector('.tm-frames img'), 0, 0, 1, 1);
        return [...canvas.getContext('2d').getImageData(0, 0, 1, 1).data];
    }"""
    assert page.evaluate(read) == [255, 128, 0, 255]
