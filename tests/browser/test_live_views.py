"""A run that is looked at in two places at once: JupyterLab's "Create New View for Cell Output" while the cell runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.support.lab import LabNotebook

pytestmark = pytest.mark.browser

SET_UP = """%load_ext tensormagic
import time, torch
from pathlib import Path
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
"""
TRAIN = """%%tracegrad
while not enough.exists():
    net(torch.randn(3, 4)).sum().backward()
    time.sleep(0.02)"""
NEW_VIEW = """async () => {
    const { shell, commands } = window.jupyterapp, { currentWidget: notebook } = shell;
    notebook.content.activeCellIndex = 1;
    await commands.execute("notebook:create-output-view");
    shell.activateById(notebook.id);
}"""
CLOSE = """() => ["main", "down"].flatMap(area => [...window.jupyterapp.shell.widgets(area)])
    .find(one => one.node.matches(".jp-LinkedOutputView, :has(.jp-LinkedOutputView)")).close()"""


def _goes_on(panel: Locator) -> None:
    """Wait until a panel tells of a later step than now."""
    head = panel.locator(".head")
    expect(head).to_contain_text("backward", timeout=30_000)
    before = head.inner_text()
    expect(head).not_to_have_text(before, use_inner_text=True)


def test_two_views_of_a_run_live_side_by_side(notebook: Callable[..., LabNotebook], tmp_path: Path) -> None:
    """Both go on; what is chosen in one is not in the other; one is closed and the other goes on, to the end."""
    enough = tmp_path / "enough"
    lab = notebook(f"{SET_UP}enough = Path({str(enough)!r})", TRAIN)
    lab.start()
    first, second = lab.output(1).locator(".tmv"), lab.page.locator(".jp-LinkedOutputView .tmv")
    expect(first.locator(".state.running")).to_be_visible(timeout=60_000)
    lab.page.evaluate(NEW_VIEW)
    expect(second.locator(".state.running")).to_be_visible(timeout=30_000)
    _goes_on(first)
    _goes_on(second)
    second.locator(".box", has_text="relu").click()
    expect(second.locator(".drawer .title b")).to_have_text("relu")
    expect(first.locator(".drawer")).to_be_hidden()
    lab.page.evaluate(CLOSE)
    expect(second).to_have_count(0)
    _goes_on(first)
    lab.page.evaluate(NEW_VIEW)
    expect(second.locator(".state.running")).to_be_visible(timeout=30_000)
    enough.touch()
    lab.wait()
    for panel in (first, second):
        expect(panel.locator(".head")).to_contain_text("finished", timeout=30_000)
        expect(panel).to_have_count(1)
