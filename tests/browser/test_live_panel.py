"""The live panel in a real JupyterLab: closed and opened again while the cell runs."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

SET_UP = """
%load_ext tensormagic
import time, torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
"""
TRAIN = """
%%tracegrad --title reopened
print("a line of the person's own")
end = time.monotonic() + 5
while time.monotonic() < end:
    net(torch.randn(3, 4)).sum().backward()
    time.sleep(0.01)
done = True
"""


def test_a_page_that_is_reloaded_while_the_cell_runs_shows_how_it_ended(notebook, watch):
    """What was saved of the running panel becomes the finished one, as soon as the kernel can answer."""
    lab = notebook(SET_UP, TRAIN)
    lab.start()
    expect(lab.page.locator(".tmv .box").first).to_be_visible(timeout=30_000)
    lab.saved()
    watch.ignore("Comm not found")  # JupyterLab's own, of the kernel's late answers
    lab.page.reload()
    panel = lab.output(1).locator(".tmv")
    expect(panel).to_be_visible(timeout=60_000)
    expect(panel.locator(".head")).to_contain_text("finished")
    expect(panel.locator(".findings")).to_contain_text("No problems found in")
    expect(lab.output(1)).to_contain_text("a line of the person's own")
