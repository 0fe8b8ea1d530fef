"""Cells of the lessons on memory in a real JupyterLab: every kind of panel is there, and answers the pointer."""

from __future__ import annotations

import nbformat
from playwright.sync_api import expect

from tests.support.kernel import ROOT

LOAD, FORMAT = "%load_ext tensormagic\nimport numpy as np\nimport torch", ("04_contiguity", "format")
CELLS = (
    ("02_storage", "first"),
    ("02_storage", "column"),
    ("02_storage", "part"),
    ("02_storage", "together"),
    ("03_views_and_copies", "reshape"),
    ("04_contiguity", "rule"),
    FORMAT,
    ("06_backward", "kept"),
    ("08_aliasing_and_numpy", "share"),
    ("08_aliasing_and_numpy", "writes"),
)


def source(example: str, name: str) -> str:
    """Return the source of one cell of an example."""
    cells = nbformat.read(ROOT / "examples" / f"{example}.ipynb", as_version=4).cells
    return next(cell.source for cell in cells if cell.id == name)


def test_every_panel_of_the_lessons_answers(notebook):
    """Copy or view, one strip for four tensors, the table, the watched writes, the slices, the graph.

    The fixture adds: no console error, no request that leaves the page.
    """
    opened = notebook(LOAD, *(source(*cell) for cell in CELLS))
    opened.run(seconds=200)
    out = {cell: opened.output(place) for place, cell in enumerate(CELLS, start=1)}
    together = out["02_storage", "together"]
    expect(together).to_contain_text("nothing in common: column and part")
    expect(together.locator("section.tm-tensor:not(.tm-overlay)").first).not_to_be_visible()
    together.locator("summary", has_text="turned (4, ").click()
    expect(together.locator("section[aria-label='Tensor turned']")).to_be_visible()
    expect(out["03_views_and_copies", "reshape"]).to_contain_text("writing to it leaves a alone")
    out[FORMAT].get_by_role("slider").first.fill("1")
    expect(out[FORMAT]).to_contain_text("slice images[1, 0, :, :]")
    out["06_backward", "kept"].locator(".box", has_text="exp").click()
    expect(out["06_backward", "kept"].locator(".drawer")).to_contain_text("result")
    expect(out["08_aliasing_and_numpy", "share"]).to_contain_text("NumPy array of x")
    expect(out["08_aliasing_and_numpy", "writes"]).to_contain_text("TM204")
    expect(out["08_aliasing_and_numpy", "writes"]).to_contain_text("best")
