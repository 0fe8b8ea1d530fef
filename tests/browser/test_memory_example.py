"""Example 02 in a real JupyterLab: every panel is there, and answers the pointer."""

from __future__ import annotations

import nbformat
from playwright.sync_api import expect

from tests.support.kernel import ROOT

EXAMPLE = ROOT / "examples" / "02_memory.ipynb"


def test_every_panel_of_the_example_answers(notebook):
    """Copy or view, one strip for four tensors, the table, the watched writes, the slices, the graph.

    The fixture adds: no console error, no request that leaves the page.
    """
    places = {cell.id: place for place, cell in enumerate(nbformat.read(EXAMPLE, as_version=4).cells)}
    opened = notebook(EXAMPLE)
    opened.run(seconds=200)
    out = {name: opened.output(place) for name, place in places.items()}
    expect(out["verdict"]).to_contain_text("shares no memory with a: writing to it leaves a alone")
    expect(out["together"]).to_contain_text("no two of turned, row and raw have a byte in common")
    expect(out["aliases"]).to_contain_text("NumPy array of a")
    expect(out["writes"]).to_contain_text("TM201")
    expect(out["writes"]).to_contain_text("before")
    out["format"].get_by_role("slider").first.fill("1")
    expect(out["format"]).to_contain_text("slice images[1, 0, :, :]")
    expect(out["kinds"]).to_contain_text("sparse COO")
    out["graph"].locator(".box", has_text="relu").click()
    expect(out["graph"].locator(".drawer")).to_contain_text("result")
