"""Runs examples in JupyterLab and takes the pictures that README and docs show: ``make screenshots``.

Every picture is of a real run: nothing in it is drawn by hand, so a change of what the tool shows is one command away
from being in the README.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import zlib
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
    "19_several_questions": {"several_questions": ("run", ".tm-run")},
}
WIDTH, HEIGHT = 1080, 1600  # high enough for the longest output: what has to be scrolled to is cut


@contextmanager
def _page(width: int, height: int, scale: float = 2) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
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


# The moving picture: a saved run whose graph lights up in the order of backward, as an animated PNG.

MOVING = """import torch, torch.nn.functional as F
from torch import nn
import tensormagic as tm
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 13 * 13, 10))
images, labels = torch.rand(64, 1, 28, 28), torch.randint(10, (64,))
with tm.trace(namespace=globals()) as trace:
    for step in range(12):
        loss = F.cross_entropy(net(images), labels)
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight -= 0.1 * weight.grad
trace.report.save(path)
"""
FRAME, LAST = 160, 1800  # milliseconds


def moving_picture(folder: Path) -> Path:
    """Take the moving picture of README."""
    with tempfile.TemporaryDirectory() as place, _page(980, 700, 1.5) as page:
        path = Path(place) / "run.html"
        exec(compile(MOVING, "train.py", "exec"), {"path": path})  # noqa: S102  (the program above)
        page.goto(path.as_uri())
        slider, shown = page.get_by_label("order", exact=True), page.locator(".stage")
        nodes = int(slider.get_attribute("max") or 0)
        frames = []
        for at in range(nodes + 1):
            slider.fill(str(at))
            page.wait_for_timeout(PAUSE // 4)
            frames.append(shown.screenshot())
    file = folder / "tracegrad.png"
    file.write_bytes(animated(frames, [FRAME] * nodes + [LAST]))
    print(f"{file.name}  {file.stat().st_size / 1e3:.0f} kB")
    return file


def animated(pictures: list[bytes], milliseconds: list[int]) -> bytes:
    """Return PNG pictures of one size as one animated PNG, shown again and again."""
    first = _chunks(pictures[0])
    head = dict(first)[b"IHDR"]
    made = [chunk(b"IHDR", head), chunk(b"acTL", struct.pack(">II", len(pictures), 0))]
    number = 0
    for at, (picture, time) in enumerate(zip(pictures, milliseconds, strict=True)):
        assert dict(_chunks(picture))[b"IHDR"] == head
        made.append(chunk(b"fcTL", struct.pack(">I8sIIHHBB", number, head[:8], 0, 0, time, 1000, 0, 0)))
        number += 1
        for data in (data for kind, data in _chunks(picture) if kind == b"IDAT"):
            made.append(chunk(b"IDAT", data) if not at else chunk(b"fdAT", struct.pack(">I", number) + data))
            number += bool(at)
    return b"\x89PNG\r\n\x1a\n" + b"".join(made) + chunk(b"IEND", b"")


def _chunks(picture: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(picture):
        size = int.from_bytes(picture[at : at + 4], "big")
        found.append((picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]))
        at += 12 + size
    return found


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return one chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


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
    if not given.all and not given.example:
        moving_picture(given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
