"""The live panel in a real JupyterLab: closed and opened again while the cell runs."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tensormagic.views.panels import trace as trace_html
from tests.views import samples_viewer

pytestmark = pytest.mark.browser

SET_UP = """
%load_ext tensormagic
import time, torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
torch.manual_seed(0)
"""
TRAIN = """
%%tracegrad --title reopened
print("a line of the person's own")
end = time.monotonic() + 5
while time.monotonic() < end:
    net(torch.randn(3, 4)).sum().backward()
    time.sleep(0.04)
done = True
"""


def test_a_page_that_is_reloaded_while_the_cell_runs_shows_how_it_ended(notebook, watch):
    """What was saved of the running panel becomes the finished one, as soon as the kernel can answer."""
    lab = notebook(SET_UP, TRAIN)
    lab.start()
    expect(lab.page.locator(".tmv .box").first).to_be_visible(timeout=30_000)
    lab.saved()
    watch.ignore("Comm not found")  # JupyterLab's own, of the kernel's late answers
    watch.ignore("widget model not found")  # where its widget manager gave up: see below
    panel = _reopened(lab)
    expect(panel).to_be_visible(timeout=60_000)
    expect(panel.locator(".head")).to_contain_text("finished")
    expect(panel.locator(".findings")).to_contain_text("No problems found in")
    expect(lab.output(1)).to_contain_text("a line of the person's own")


def _reopened(lab):
    """Reload the page, as often as a user would.

    Once in a few dozen loads on a busy machine JupyterLab's widget manager asks the kernel twice at the same time and
    ends without the model; the kernel still has it, and the next load shows it.
    """
    for _ in range(3):
        lab.page.reload()
        panel, given_up = lab.output(1).locator(".tmv"), lab.output(1).get_by_text("model not found")
        expect(panel.or_(given_up).first).to_be_visible(timeout=60_000)
        if panel.count():
            break
    return panel


KERNEL = "window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel"
LOOKED_AT = "() => document.querySelector('.tmv .world').getAttribute('transform')"


def test_a_kernel_that_is_restarted_while_the_cell_runs_is_not_waited_for(notebook, watch):
    """The panel says that the kernel has gone, and when; run again, the cell is looked at as before, to its end."""
    watch.ignore("Canceled future|Kernel .* restart|Comm not found")
    lab = notebook(SET_UP, TRAIN)
    lab.start()
    panel, head = lab.output(1).locator(".tmv"), lab.output(1).locator(".tmv .head")
    panel.locator(".box", has_text="relu").click(timeout=60_000)
    panel.get_by_role("button", name="Show path").click()
    lab.page.evaluate(f"() => {KERNEL}.restart()")
    expect(head).to_contain_text("kernel gone", timeout=30_000)
    expect(panel.locator(".callout")).to_contain_text("The kernel was restarted, or died, while the cell ran")
    expect(panel.locator(".way")).to_contain_text("path through relu")
    lab.page.wait_for_function(f"() => {KERNEL}.status === 'idle'")
    lab.run()
    expect(head).to_contain_text("finished")
    expect(panel.locator(".drawer .title b")).to_have_text("relu")
    expect(panel.locator(".way")).to_contain_text("path through relu")
    panel.get_by_role("button", name="zoom in").click()
    lab.page.wait_for_timeout(300)  # it is written down once it rests
    looked_at = lab.page.evaluate(LOOKED_AT)
    lab.run()
    expect(head).to_contain_text("finished")
    assert lab.page.evaluate(LOOKED_AT) == looked_at


def test_what_was_saved_before_a_restart_shows_the_last_picture(notebook, watch):
    """Saved while the cell runs, opened again after the kernel was restarted: the graph, and no "model not found"."""
    watch.ignore("Canceled future|Kernel .* restart|Comm not found|widget model not found")
    lab = notebook(SET_UP, TRAIN.replace("+ 5", "+ 60"))
    lab.start()
    expect(lab.output(1).locator(".tmv .box").first).to_be_visible(timeout=60_000)
    last = lab.output(1).locator(".tm-last")
    expect(last).to_have_count(1, timeout=30_000)
    expect(last).to_be_hidden()
    expect(lab.output(1).locator(".tmv .toggle")).to_be_hidden()  # the graph is open while the cell runs
    lab.saved()
    lab.page.evaluate(f"() => {KERNEL}.restart()")
    expect(lab.output(1).locator(".tmv .head")).to_contain_text("kernel gone", timeout=30_000)
    expect(last).to_be_hidden()
    lab.page.reload()
    expect(last).to_be_visible(timeout=60_000)
    expect(last).to_contain_text("the kernel was restarted since")
    expect(last.locator("svg, img").first).to_be_visible()
    lab.page.wait_for_timeout(3000)  # the widget manager gives up late
    expect(lab.output(1).get_by_text("model not found")).to_be_hidden()


def test_a_long_run_that_ends_leaves_nothing_of_its_last_picture(notebook):
    """What was kept for a restart is gone, and takes no room."""
    lab = notebook(SET_UP, TRAIN.replace("+ 5", "+ 8"))
    lab.start()
    expect(lab.output(1).locator(".tm-last")).to_have_count(1, timeout=60_000)
    expect(lab.output(1).locator(".tmv .head")).to_contain_text("finished", timeout=30_000)
    expect(lab.output(1).locator(".tm-last")).to_have_count(0)
    heights = "all => all.map((one) => one.offsetHeight)"
    rows = lab.output(1).locator(".jp-OutputArea-child").evaluate_all(heights)
    assert [height for height in rows if height > 40] == [max(rows)]


def test_many_outputs_of_a_page_share_one_style_sheet(static_page):
    """Thirty copies of the rules would slow every change that a thirty-first, live, panel makes."""
    page = static_page(trace_html.render(samples_viewer.calm_run(2)) * 30)
    expect(page.locator(".tmv")).to_have_count(30)
    assert page.evaluate("document.adoptedStyleSheets.length") == 1
    assert page.locator(".tm-trace style").count() == 0
    padding = "[...document.querySelectorAll('.tmv .head')].map(one => getComputedStyle(one).display)"
    assert page.evaluate(padding) == ["flex"] * 30


def test_a_run_that_rests_says_how_far_it_has_come(notebook):
    """Between traced steps the head counts on, says that the tracer rests, and at the end which steps were traced."""
    lab = notebook(SET_UP, TRAIN.replace("--title reopened", "--every 400").replace("0.04", "0.002"))
    lab.start()
    head = lab.output(1).locator(".tmv .head")
    expect(head).to_contain_text("paused: step", timeout=30_000)
    expect(head).to_contain_text("next traced about 401")
    expect(head).to_contain_text("finished", timeout=30_000)
    expect(head).to_contain_text("(every 400")
    expect(lab.output(1).locator(".tmv .paced").first).to_contain_text("Traced: step")
