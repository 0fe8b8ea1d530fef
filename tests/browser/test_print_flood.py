"""A cell that prints without end beside its live panel: the server's limits are left to the user's own lines."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.frames import Traffic

pytestmark = pytest.mark.browser

LINES = 20_000
FLOOD = f"""
%%tracegrad --title flood
for number in range({LINES}):
    print("line", number)
    if number % 10 == 0:
        net(x).sum().backward()
"""
SET_UP = """
%load_ext tensormagic
import torch
from torch import nn
torch.set_num_threads(1)
net, x = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(16, 16), nn.ReLU())]), torch.randn(3, 16)
"""
WINDOW, ALLOWED = 3.0, 3000  # the server drops everything beyond 1,000 messages a second, over three seconds
OURS = frozenset({"comm_open", "comm_msg", "comm_close", "display_data", "update_display_data"})


def test_no_printed_line_is_lost_beside_a_live_panel(notebook, lab_page: Page) -> None:
    """All of 20,000 lines stand in the saved notebook, in order; the panel sends a tenth of what may be sent."""
    traffic = Traffic()
    traffic.watch(lab_page)
    lab = notebook(SET_UP, FLOOD)
    lab.run(seconds=180)
    expect(lab.output(1).locator(".tmv .head")).to_contain_text("finished", timeout=60_000)
    streams = [output for output in lab.saved().cells[1].outputs if output.output_type == "stream"]
    assert {output.name for output in streams} == {"stdout"}
    assert "".join(output.text for output in streams).splitlines() == [f"line {at}" for at in range(LINES)]
    counted, busiest = traffic.counted(), traffic.busiest(WINDOW, OURS)
    assert counted["comm_msg"] > 10, "the panel was not live"
    assert busiest <= 0.1 * ALLOWED, f"{busiest} messages of the panel in {WINDOW:g} s"
