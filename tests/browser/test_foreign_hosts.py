"""Hosts that cannot be run here, by what they do with an output.

VS Code sets innerHTML and runs the scripts anew; Colab and marimo put each output into a frame of its own.
"""

from __future__ import annotations

import json
from html import escape

from playwright.sync_api import expect

from tensormagic.views.panels import trace as trace_html
from tests.views import samples_tensor, samples_viewer
from tests.views.samples_tensor import as_html

OUTPUTS = (
    trace_html.render(samples_viewer.calm_run(2)),
    trace_html.render(samples_viewer.calm_run(2)),
    as_html(samples_tensor.SAMPLES["transpose_slice"]),
)
# As VS Code's renderer of text/html does: a copy of each script, because one that came with innerHTML does not run.
AS_VS_CODE = """
for (const html of OUTPUTS) {
  const place = document.body.appendChild(document.createElement('div'));
  place.innerHTML = html;
  for (const old of [...place.querySelectorAll('script')]) {
    const script = document.createElement('script');
    for (const {name, value} of old.attributes) script.setAttribute(name, value);
    script.textContent = old.textContent;
    old.replaceWith(script);
  }
}
"""


def test_as_in_vs_code(static_page):
    """Both runs are live, each once, dark as the class of the body says; the grid answers the pointer."""
    outputs = json.dumps(OUTPUTS).replace("<", "\\u003c")
    page = static_page(f"<body class='vscode-dark'><script>{AS_VS_CODE.replace('OUTPUTS', outputs)}</script></body>")
    expect(page.locator(".tmv")).to_have_count(2)
    expect(page.locator(".tm-static")).to_have_count(0)
    colour = page.locator(".tm").first.evaluate("panel => getComputedStyle(panel).colorScheme")
    assert colour == "dark"
    page.locator("body > div").nth(2).get_by_text("13", exact=True).first.hover()
    expect(page.locator("body")).to_contain_text("offset(0, 1) = 1 + 1·0 + 12·1 = 13")


def test_as_in_colab(static_page):
    """In a frame that may run scripts and nothing else each output is live, and knows of no other."""
    frames = "".join(f'<iframe sandbox="allow-scripts" srcdoc="{escape(html)}"></iframe>' for html in OUTPUTS)
    page = static_page(f"<body>{frames}</body>")
    for place in (0, 1):
        expect(page.frame_locator("iframe").nth(place).locator(".tmv")).to_have_count(1)
    tensor = page.frame_locator("iframe").nth(2)
    tensor.get_by_text("13", exact=True).first.hover()
    expect(tensor.locator("body")).to_contain_text("offset(0, 1) = 1 + 1·0 + 12·1 = 13")
