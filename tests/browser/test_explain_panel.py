"""%tensormagic explain on in JupyterLab, and the crash in the graph: beside the traceback, readable on both sides."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import unquote

import pytest
import torch
from playwright.sync_api import Page, expect

import tensormagic as tm
from tensormagic.views.panels import trace as trace_html
from tests.support.lab import LabNotebook
from tests.views import samples_trace
from tests.views.samples_failure import SAMPLES

pytestmark = pytest.mark.browser

START = "%load_ext tensormagic\n%tensormagic explain on\nimport torch\nfrom torch import nn"
NET = "net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(32, 10))\nimages = torch.rand(16, 784)"


def test_a_failing_cell_shows_the_explanation_below_its_traceback(notebook: Callable[..., LabNotebook]) -> None:
    """Both are there, the traceback first and unchanged."""
    opened = notebook(START, NET, "net(images)")
    opened.run()
    output = opened.output(2)
    expect(output.locator("section.tm-failure")).to_have_count(1)
    panel = output.locator("section.tm-failure")
    expect(panel).to_contain_text("net.2 takes 32 (in_features)")
    traceback = output.locator("[data-mime-type='application/vnd.jupyter.stderr'], [data-mime-type*='error']").first
    expect(traceback).to_contain_text("mat1 and mat2 shapes cannot be multiplied (16x64 and 32x10)")
    assert traceback.bounding_box()["y"] < panel.bounding_box()["y"]
    image = panel.locator(".tm-graph img")
    said = "Graph of 4 operations back to 4 leaves, net.0.weight, net.0.bias and 2 more; "
    said += "torch refused this: RuntimeError, cell 3, line 1: linear."
    expect(image).to_have_attribute("alt", said)
    sides = []  # the picture turns dark by itself where the element that shows it is dark
    for dark in (False, True):
        opened.theme(dark=dark)
        sides.append(image.evaluate("image => getComputedStyle(image).colorScheme"))
        if folder := os.environ.get("TM_PICTURES"):
            panel.scroll_into_view_if_needed()
            opened.page.screenshot(path=f"{folder}/explain_lab_{'dark' if dark else 'light'}.png", full_page=True)
    opened.theme(dark=False)
    assert sides == ["light", "dark"]
    assert "prefers-color-scheme:dark" in unquote(image.get_attribute("src").partition(",")[2])


COVERED = """() => {
  const words = document.querySelector(".crash text").getBoundingClientRect();
  return [...document.querySelectorAll(".canvas :is(.plate,.tag)")].filter((one) => {
    const { left, right, top, bottom } = one.getBoundingClientRect();
    return left < words.right && right > words.left && top < words.bottom && bottom > words.top;
  }).length;
}"""


def test_where_torch_refused_a_call_no_parameter_is_covered(static_page: Callable[..., Page]) -> None:
    """The box before it has its parameters below, where the words had their place."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    with pytest.raises(RuntimeError), tm.trace(namespace={"net": net}) as trace:
        torch.nn.functional.mse_loss(net(torch.rand(64, 64)), torch.rand(64))
    for width in (1400, 900):
        page = static_page(trace_html.render(trace.report), width=width)
        expect(page.locator(".badge .tag")).to_have_count(4)
        assert page.evaluate(COVERED) == 0


@pytest.mark.parametrize("dark", [False, True])
def test_the_viewer_marks_where_a_backward_failed(static_page: Callable[..., Page], dark: bool) -> None:
    """A frame round the box and the words at it, inside the drawing."""
    run = replace(samples_trace.one_pass(), state="failed", failure=SAMPLES["backward"])
    page = static_page(trace_html.render(run), dark=dark)
    mark = page.locator(".canvas .crash")
    expect(mark.locator("text")).to_have_text("backward failed here: RuntimeError, train.py, line 5")
    words, canvas = mark.locator("text").bounding_box(), page.locator(".canvas").bounding_box()
    assert canvas["y"] <= words["y"]
    assert words["y"] + words["height"] <= canvas["y"] + canvas["height"]


def test_the_viewer_shows_the_graph_up_to_the_refused_call(static_page: Callable[..., Page]) -> None:
    """Where no backward came; else it is one of the graphs to choose."""
    failed = replace(samples_trace.one_pass(), state="failed", failure=SAMPLES["recorded"])
    page = static_page(trace_html.render(replace(failed, graphs=(), passes=(), passes_seen=0)))
    expect(page.locator(".canvas .crash text")).to_contain_text("torch refused this: RuntimeError")
    page = static_page(trace_html.render(failed))
    expect(page.locator(".canvas .crash")).to_have_count(0)
    expect(page.locator("option", has_text="up to the refused call")).to_have_count(1)
