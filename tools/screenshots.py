"""Runs the first example in JupyterLab and takes the pictures that README and docs show: ``make screenshots``.

Every picture is of a real run: nothing in it is drawn by hand, so a change of what the tool shows is one command away
from being in the README.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page, sync_playwright

from tests.support.lab import LabNotebook, Server, lab_server
from tools.system import find_chromium

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "01_first_light.ipynb"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
PAUSE = 600  # milliseconds for colours to change and fonts to settle
# Picture → the id of the cell whose output it shows; with the cell's own source above it.
PICTURES = {"first_light": "broken", "tensor": "slice"}
WIDTH, HEIGHT = 1080, 1600  # high enough for the longest output: what has to be scrolled to is cut


@contextmanager
def _page(width: int, height: int) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=2)
        browser.close()


def _opened(page: Page, server: Server) -> tuple[LabNotebook, dict[str, int]]:
    """Open the example in JupyterLab, the file browser folded; return it with the place of every cell by its id."""
    content = nbformat.read(EXAMPLE, as_version=4)
    path = server.folder / EXAMPLE.name
    nbformat.write(content, path)
    opened = LabNotebook(page, path)
    opened.open(f"{server.url}/doc/tree/{path.name}")
    page.evaluate("() => window.jupyterapp.shell.collapseLeft?.()")
    return opened, {cell.id: place for place, cell in enumerate(content.cells)}


def _take(cell: Locator, file: Path) -> None:
    cell.scroll_into_view_if_needed()
    cell.page.mouse.move(0, 0)
    cell.page.wait_for_timeout(PAUSE)
    cell.screenshot(path=file)
    print(f"{file.relative_to(ROOT) if ROOT in file.parents else file}  {file.stat().st_size / 1e3:.0f} kB")


def take(folder: Path, cells: dict[str, str], size: tuple[int, int]) -> None:
    """Take the picture of every cell in ``cells``, light and dark, into ``folder``."""
    with tempfile.TemporaryDirectory() as place, lab_server(Path(place)) as server, _page(*size) as page:
        notebook, places = _opened(page, server)
        notebook.run(seconds=300)
        for ending, dark in (("", False), ("_dark", True)):
            notebook.theme(dark=dark)
            for name, cell in cells.items():
                _take(page.locator(".jp-Notebook .jp-Cell").nth(places[cell]), folder / f"{name}{ending}.png")
        notebook.close()


def main() -> int:
    """Take the pictures of the documentation, or of every cell into another folder."""
    parser = argparse.ArgumentParser(description="Run the first example in JupyterLab and take pictures of it.")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--all", action="store_true", help="every cell, not only those the documentation shows")
    parser.add_argument("--size", type=int, nargs=2, default=(WIDTH, HEIGHT), metavar=("WIDTH", "HEIGHT"))
    given: Any = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    example = nbformat.read(EXAMPLE, as_version=4)
    every = {cell.id: cell.id for cell in example.cells if cell.cell_type == "code"}
    take(given.folder, every if given.all else PICTURES, tuple(given.size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
