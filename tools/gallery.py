"""Hangs every panel on one page, and takes the pictures of ``docs/design-system.md``: ``make gallery``.

The panels are those of `tools.exhibits`: small, huge and in trouble, light and dark. A user who changes how something
looks opens the page, looks at each, and commits the pictures with the change.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tensormagic.views.markup import escape
from tools.exhibits import EXHIBITS, Exhibit
from tools.system import find_chromium

ROOT = Path(__file__).resolve().parents[1]
PAGE = "<!doctype html><html lang='en'><meta charset='utf-8'><title>tensormagic: every panel</title><body>"
WIDTH = 992
# Of these the documentation shows a picture on either side.
SHOWN = (
    "tensor", "overlay", "tensors", "aliases", "writes", "trace", "trace_error", "comparison", "failure", "why_error",
    "watch", "memory", "memory_run", "snapshot", "freeing", "rng", "rng_run", "rng_compared",
)  # fmt: skip


def gallery() -> str:
    """Return the page: each panel twice, light beside dark."""
    rows = "".join(_row(one) for one in EXHIBITS)
    style = "body{margin:16px;font:14px system-ui}.two{display:grid;grid-template-columns:1fr 1fr;gap:12px}"
    sides = ".two>*{padding:12px;min-width:0}.dark{background:#111}"
    return f"{PAGE}<style>{style}{sides}</style>{rows}"


def _row(one: Exhibit) -> str:
    html, heading = one.html(), escape(f"{one.name}: {one.typed} ({one.size})")
    dark = html.replace('class="tm ', 'class="tm tm-dark ')
    return f"<h2>{heading}</h2><div class='two'><div>{html}</div><div class='dark'>{dark}</div></div>"


def take(page: Page, one: Exhibit, folder: Path, *, dark: bool) -> None:
    """Take one picture of a panel."""
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.goto("about:blank")
    page.set_content(f"{PAGE}<style>body{{margin:16px;background:{'#111' if dark else '#fff'}}}</style>{one.html()}")
    if one.viewer:
        page.locator(".tmv").wait_for()
        page.wait_for_timeout(300)
    page.screenshot(path=folder / f"{one.name}{'_dark' if dark else ''}.png", full_page=True)


def main() -> int:
    """Write the page, and take the pictures that the documentation shows."""
    parser = argparse.ArgumentParser(description="Every panel on one page, and the pictures of the design system.")
    parser.add_argument("--page", type=Path, default=ROOT / "build" / "gallery.html")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images" / "panels")
    given = parser.parse_args()
    for folder in (given.page.parent, given.folder):
        folder.mkdir(parents=True, exist_ok=True)
    given.page.write_text(gallery(), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 60})
        for one in (each for each in EXHIBITS if each.name in SHOWN):
            for dark in (False, True):
                take(page, one, given.folder, dark=dark)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
