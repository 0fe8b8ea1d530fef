"""Every kind of tensor on one page: all panels stand, each viewer mounts, nothing is cut off, nothing is an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tensormagic import api
from tests.support.zoo import ZOO
from tests.views.samples_tensor import as_html

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>zoo</title><body>'


@pytest.fixture(scope="module")
def zoo_page() -> str:
    """The panels of the whole zoo, one under the other."""
    reports = (one.visit(lambda x: api.inspect(x, "x", namespace={})) for one in ZOO.values())
    return HEAD + "".join(map(as_html, reports))


def test_the_whole_zoo_stands_on_one_page(static_page: Callable[..., Page], zoo_page: str) -> None:
    """As many panels as kinds; where index and storage are linked, a wire joins them; none is wider than the page."""
    page = static_page(zoo_page, width=1000)
    sections = page.locator("section.tm-tensor")
    assert sections.count() == len(ZOO)
    linked = sections.filter(has=page.locator(".tm-grid td.tm-on")).filter(has=page.locator(".tm-strip td.tm-on"))
    assert linked.count() > len(ZOO) // 3
    linked = linked.filter(has_not=page.locator("details .tm-grid"))  # of one element: nothing to choose
    expect(linked.filter(has=page.locator(".tm-wire"))).to_have_count(linked.count())
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000
    wide = sections.evaluate_all("all => all.filter(s => s.scrollWidth > s.clientWidth + 1).length")
    assert wide == 0


def test_stored_elements_have_one_colour_in_matrix_and_arrays(static_page: Callable[..., Page]) -> None:
    """The value stored third is as dark in the picture of a CSR matrix as in its array of values."""
    html = as_html(ZOO["csr"].visit(lambda x: api.inspect(x, "x", namespace={})))
    page = static_page(HEAD + html)
    colour = "cell => getComputedStyle(cell).backgroundColor"
    in_matrix = page.locator(".tm-matrix td").filter(has_text="3").first.evaluate(colour)
    in_values = page.locator('.tm-arrays td[title="values[2] = 3"]').evaluate(colour)
    assert in_matrix == in_values
    assert in_matrix != page.locator('.tm-arrays td[title="values[3] = 4"]').evaluate(colour)
