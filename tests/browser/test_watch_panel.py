"""%tensormagic watch on in JupyterLab: where a panel stands and where none does, readable on both sides."""

from __future__ import annotations

import os
from collections.abc import Callable

from playwright.sync_api import expect

from tests.support.lab import LabNotebook

START = "%load_ext tensormagic\n%tensormagic watch on\nimport torch\nfrom torch import nn"
HIDDEN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(64, 64) for _ in range(3)]
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)

net = Net()"""
LOSSES = "losses = []\nfor _ in range(6):\n    losses.append(net(torch.randn(16384, 64)).square().mean())"


def test_a_panel_stands_below_the_cell_that_went_wrong_and_below_no_other(notebook: Callable[..., LabNotebook]) -> None:
    """Small: one line a finding, its remedy a click away; text of enough contrast in both themes."""
    opened = notebook(START, "x = torch.ones(3)", HIDDEN, LOSSES, "y = x + 1", "torch.zeros(24, 2**18)")
    opened.run()
    panels = [opened.output(cell).locator("section.tm-watch") for cell in range(6)]
    for cell, count in enumerate((0, 0, 1, 1, 0, 1)):
        expect(panels[cell]).to_have_count(count)
    expect(panels[2].locator("summary").first).to_contain_text("net.layers is a plain list of 3 modules")
    expect(panels[5].locator("summary").first).to_contain_text("Out[6] keeps 24 MiB alive")
    assert panels[2].bounding_box()["height"] < 110
    panels[3].locator("summary").first.click()
    expect(panels[3].locator(".tm-fix")).to_contain_text("cell 4, line 3: losses.append(")
    colours = []
    for dark in (False, True):
        opened.theme(dark=dark)
        colours.append(panels[3].evaluate("panel => getComputedStyle(panel).backgroundColor"))
        if folder := os.environ.get("TM_PICTURES"):
            opened.page.screenshot(path=f"{folder}/watch_lab_{'dark' if dark else 'light'}.png", full_page=True)
    opened.theme(dark=False)
    assert colours[0] != colours[1]
