"""Runs examples in JupyterLab and takes the pictures that README and docs show: ``make screenshots``.

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
EXAMPLES = ROOT / "examples"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
PAUSE = 600  # milliseconds for colours to change and fonts to settle
# Example → picture → the id of the cell that it shows, and what of it: the cell with its source, or one panel.
CELL = ""
PICTURES = {
    "01_first_light": {"first_light": ("broken", CELL), "tensor": ("slice", CELL)},
    "12_memory": {"gpumem": ("held", ".tm-memory"), "gpumem_cell": ("leak", CELL)},
    "17_errors": {"refused_call": ("shapes", ".tm-failure")},
}
WIDTH, HEIGHT = 1080, 1600  # high enough for the longest output: what has to be scrolled to is cut


@contextmanager
def _page(width: int, height: int) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=2)
        browser.close()


def _opened(page: Page, server: Server, example: Path) -> tuple[LabNotebook, dict[str, int]]:
    """Open an example in JupyterLab, the file browser folded; return it with the place of every cell by its id."""
    content = nbformat.read(example, as_version=4)
    path = server.folder / example.name
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


def take(folder: Path, example: Path, pictures: dict[str, tuple[str, str]], size: tuple[int, int]) -> None:
    """Run an example and take its pictures, light and dark, into ``folder``; see `PICTURES`."""
    with tempfile.TemporaryDirectory() as place, lab_server(Path(place)) as server, _page(*size) as page:
        notebook, places = _opened(page, server, example)
        notebook.run(seconds=300)
        for ending, dark in (("", False), ("_dark", True)):
            notebook.theme(dark=dark)
            for name, (cell, part) in pictures.items():
                shown = page.locator(".jp-Notebook .jp-Cell").nth(places[cell])
                _take(shown.locator(part).first if part else shown, folder / f"{name}{ending}.png")
        notebook.close()


def _every_cell(example: Path) -> dict[str, tuple[str, str]]:
    cells = nbformat.read(example, as_version=4).cells
    return {f"{example.stem}_{cell.id}": (cell.id, CELL) for cell in cells if cell.cell_type == "code"}


def main() -> int:
    """Take the pictures of the documentation, or of every cell into another folder."""
    parser = argparse.ArgumentParser(description="Run examples in JupyterLab and take pictures of them.")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--all", action="store_true", help="every cell, not only those the documentation shows")
    parser.add_argument("--example", default="", metavar="NAME", help="only examples whose file name begins so: 17")
    parser.add_argument("--size", type=int, nargs=2, default=(WIDTH, HEIGHT), metavar=("WIDTH", "HEIGHT"))
    given: Any = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for example in sorted(EXAMPLES.glob(f"{given.example}*.ipynb")):
        pictures = _every_cell(example) if given.all else PICTURES.get(example.stem, {})
        if pictures:
            take(given.folder, example, pictures, tuple(given.size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
