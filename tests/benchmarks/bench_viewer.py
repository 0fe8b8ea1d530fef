"""How smoothly the trace viewer moves: what a pan or zoom costs the page, with everything opened.

The bounds are the page's own work, which decides whether a frame is missed: a frame at 60 a second has 16.7 ms. Frame
times themselves are printed; on a machine without a graphics card they hold what painting in software costs.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from tensormagic.views.markup import json_block
from tensormagic.views.page.document import Limits, trace_document
from tensormagic.views.panels import trace as trace_html
from tests.browser.conftest import FLAGS
from tests.support.missing import missing
from tests.views import samples_viewer
from tools.system import find_chromium

pytestmark = pytest.mark.benchmark

FRAMES = 40
MOVE = """async ([what, zoom, count]) => {
  const { graphView: view } = panel.panel;
  view.fit();
  view.zoom(zoom / view.view.k);
  const own = [], frames = [];
  let last = performance.now();
  for (let at = 0; at < count; at += 1) {
    await new Promise(requestAnimationFrame);
    const start = performance.now();
    frames.push(start - last);
    last = start;
    if (what === 'pan') { view.view.x += 9 * Math.sin(at / 8); view.view.y -= 6; view.moved = true; view.show(); }
    else view.zoom(at % 40 < 20 ? 1.04 : 1 / 1.04);
    own.push(performance.now() - start);
  }
  const middle = times => times.sort((a, b) => a - b)[times.length >> 1];
  return [middle(own), middle(frames.slice(1)), view.graph.boxes.length];
}"""


def _page(page: Page, count: int) -> dict[str, Any]:
    """Open a graph of so many nodes, every box of it; return what opening took, in milliseconds."""
    document = json_block(trace_document(samples_viewer.large_run(count, passes=2), limits=Limits(boxes=40)))
    style = f"<style>{trace_html.viewer_style()}</style>"
    call = f"const doc = {document}; const start = performance.now(); window.panel = new Panel(document.body, doc);"
    page.set_content(f"{style}<body class='tm tm-trace'><script type='module'>{trace_html.viewer_module()}\n{call}"
                     "window.mounted = performance.now() - start;</script>")  # fmt: skip
    page.wait_for_function("() => window.panel")
    if (button := page.get_by_role("button", name="Open graph")).is_visible():  # as where it is higher than the screen
        button.click()
    opened = page.evaluate(
        "() => { const start = performance.now(); panel.unfoldButton.click(); return performance.now() - start }"
    )
    return {"mounted": page.evaluate("() => window.mounted"), "opened": opened}


@pytest.mark.parametrize(("count", "most"), [(2_000, 5.0), (20_000, 12.0)])
def test_pan_and_zoom_leave_the_frame_its_time(count: int, most: float) -> None:
    """With every box open, moving takes the page a fraction of a frame, near and far; opening takes a moment."""
    chromium = find_chromium() or missing("no Chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1240, "height": 1000})
        took = _page(page, count)
        print(f"\n{count} nodes: mounted in {took['mounted']:.0f} ms, all opened in {took['opened']:.0f} ms")
        for zoom in (1.0, 0.2, 0.05):
            for what in ("pan", "zoom"):
                own, frame, boxes = page.evaluate(MOVE, [what, zoom, FRAMES])
                print(f"  {what:4} at {zoom:.2f}, {boxes} boxes: own {own:.2f} ms, frame {frame:.1f} ms")
                assert own < most
        browser.close()
    assert took["mounted"] < 1_500
