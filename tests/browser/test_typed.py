"""What people type, in JupyterLab: Tab behind a dot, several tensors, a run that stops at a NaN, help."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.support.lab import LabNotebook

START = """%load_ext tensormagic
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
x, y = torch.randn(3), torch.zeros(2)"""
STOP = """%%tracegrad --stop nan
w = torch.zeros(3, requires_grad=True)
for step in range(5):
    loss = w.sqrt().sum()
    loss.backward()
    reached = step"""
AFTER = "print('reached' in globals(), w.grad)"


@pytest.fixture
def opened(notebook: Callable[..., LabNotebook]) -> LabNotebook:
    """A notebook whose first cells have run; the last holds nothing yet."""
    lab = notebook(START, "%tensor x, y", STOP, AFTER, "%tensor net[0].", "%tensor?")
    lab.page.evaluate("() => window.jupyterapp.commands.execute('notebook:deselect-all')")
    return lab


def _run(lab: LabNotebook, cell: int) -> None:
    shown = lab.page.locator(".jp-Notebook .jp-Cell").nth(cell)
    shown.locator(".cm-content").click()
    lab.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell')")


def test_what_is_typed_is_answered(opened: LabNotebook) -> None:
    """Two panels; a run that ends at the line of the NaN; parameters first behind a dot; help with an example."""
    for cell in range(4):
        _run(opened, cell)
    expect(opened.output(1).locator("section.tm-tensor:not(.tm-overlay)")).to_have_count(2, timeout=60_000)
    expect(opened.output(2)).to_contain_text("NonFiniteError", timeout=60_000)
    expect(opened.output(2)).to_contain_text("line 5")
    expect(opened.output(3)).to_contain_text("False")
    editor = opened.page.locator(".jp-Notebook .jp-Cell").nth(4).locator(".cm-content")
    editor.click()
    opened.page.keyboard.press("End")
    opened.page.keyboard.press("Tab")
    names = opened.page.locator(".jp-Completer-item .jp-Completer-match")
    expect(names.first).to_have_text("weight", timeout=20_000)
    expect(names.nth(1)).to_have_text("bias")
    assert not any(name.startswith("_") for name in names.all_inner_texts())
    opened.page.keyboard.press("Escape")
    _run(opened, 5)
    help_ = opened.page.locator(".jp-InspectorContent, .jp-OutputArea-output").last
    expect(help_).to_contain_text("%tensor x", timeout=20_000)


ANSWERED = (
    START,
    "%tensor torch.tensor([3.0, 1.0, float('nan')]) --line",
    "import tensormagic as tm\ntm.set_repr('line')\n{'x': x}",
    "%tensor x[:2]",
    "%tensormagic nan",
    "%%tracegrad\nopen('no such file')",
    "%%tracegrad\nx = = 3",
    "%tensor d['c']",
)


def test_short_questions_have_short_answers(notebook: Callable[..., LabNotebook]) -> None:
    """A tensor in a line, wherever it is printed; no finding on a view; no panel for an error that is not torch's."""
    lab = notebook(*ANSWERED)
    for cell in range(len(ANSWERED)):
        _run(lab, cell)
    expect(lab.output(1)).to_contain_text("Tensor (3,) float32 [3, 1, nan]", timeout=60_000)
    assert "\n" not in lab.output(1).inner_text().strip()
    expect(lab.output(2)).to_contain_text("{'x': ")
    assert lab.output(2).locator("section.tm").count() == 0
    expect(lab.output(3)).to_contain_text("view of x")
    assert "TM201" not in lab.output(3).inner_text()
    expect(lab.output(4)).to_contain_text("TM401")
    expect(lab.output(5)).to_contain_text("FileNotFoundError")
    expect(lab.output(6)).to_contain_text("SyntaxError")
    expect(lab.output(7)).to_contain_text("UsageError")
    assert [lab.output(cell).locator("section.tm, .tmv").count() for cell in range(4, 8)] == [0, 0, 0, 0]
    assert len(lab.output(6).inner_text().strip().splitlines()) <= 4
