"""axe on panels that are alive: in a real JupyterLab, while the cells run and when they have ended, light and dark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.test_accessibility import NOT_OURS
from tests.support import axe
from tests.support.lab import LabNotebook

pytestmark = pytest.mark.browser

SET_UP = """%load_ext tensormagic
import time, torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))"""
TRACED = """%%tracegrad
end = time.monotonic() + 6
while time.monotonic() < end:
    net(torch.randn(3, 4)).log().sum().backward()
    time.sleep(0.02)"""
MEASURED = """%%gpumem
kept = []
for _ in range(30):
    kept.append(torch.zeros(1 << 18))
    time.sleep(0.2)"""


def _clean(lab: LabNotebook) -> None:
    for _ in range(6):
        found = axe.check(lab.page, ".jp-OutputArea .tm", off=NOT_OURS)
        assert found.violations == []
        if not any("Unable to determine previous heading" in line for line in found.open):
            break
        lab.page.wait_for_timeout(700)  # the panel was drawn anew while axe went through its headings
    assert found.open == []


def test_axe_finds_nothing_on_live_panels(notebook: Callable[..., LabNotebook]) -> None:
    """Neither while a cell is traced or measured, nor when it has ended and the drawer of a node is open."""
    lab = notebook(SET_UP, TRACED, MEASURED)
    lab.start()
    expect(lab.output(1).locator(".tmv .state.running")).to_be_visible(timeout=30_000)
    _clean(lab)
    expect(lab.output(2).locator(".tm-memory-live").first).to_be_visible(timeout=30_000)
    _clean(lab)
    lab.wait()
    traced = lab.output(1)
    expect(traced.locator(".tmv .head")).to_contain_text("finished")
    traced.locator(".tmv .box").first.click()
    expect(traced.locator(".drawer")).to_be_visible()
    for dark in (False, True):
        lab.theme(dark=dark)
        _clean(lab)
    lab.theme(dark=False)
