"""Runs the examples and stores in them what GitHub shows of their outputs: ``make outputs``.

GitHub runs no script and strips style sheets, so that nothing would be left of a panel but its words. Stored are
pictures of the panels, of each kind the first and the first with a finding, and of every panel its text: no HTML.
An example is written only where its words, or what its pictures look like, are no longer those that are stored, so that
a new run changes nothing.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Page, sync_playwright

from tests.support.kernel import ROOT, run_notebook
from tools.screenshots import chunk
from tools.system import find_chromium

EXAMPLES = ROOT / "examples"
WIDTH = 840
COLOURS = 16
_SECTION = re.compile(r'<section class="([^"]*)"')
_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{3,}(?![^\W_])")  # no part of a hash
_VARIES = frozenset(
    {"KiB", "MiB", "GiB", "tracing"}
)  # a unit depends on the number before it, as does the cost of tracing
VARIES = "varies"
_CODE = re.compile(r"\bTM\d{3}\b")
_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d[\d.,]*(?:e[-\u2212]?\d+)?|[\u2581-\u2588\u00b7\u2500]+")  # or a bar, a line
_SIGN = re.compile(r"[^\W\d_]|[(\u250c]")
_UNITS = frozenset({"s", "ms", "\u00b5s", "B"})
# Draws a screenshot with few colours: the most frequent ones, each pixel the nearest of them. One byte a pixel.
_FEWER = """async ([picture, most]) => {
  const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height), context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const pixels = context.getImageData(0, 0, bitmap.width, bitmap.height).data, counts = new Map();
  const key = at => (pixels[at] >> 3) << 10 | (pixels[at + 1] >> 3) << 5 | pixels[at + 2] >> 3;
  const sums = new Map();
  for (let at = 0; at < pixels.length; at += 4) {
    const sum = sums.get(key(at)) ?? sums.set(key(at), [0, 0, 0, 0]).get(key(at));
    for (let part = 0; part < 3; part++) sum[part] += pixels[at + part];
    sum[3]++;
  }
  const means = [...sums.values()].sort((a, b) => b[3] - a[3]).map(s => s.slice(0, 3).map(v => Math.round(v / s[3])));
  const apart = (a, b) => (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2;
  const palette = [];
  for (let least = 3000; palette.length < Math.min(most, means.length) && least > 1; least /= 2)
    for (const mean of means)
      if (palette.length < most && palette.every(one => apart(one, mean) > least)) palette.push(mean);
  const nearest = new Map(), indices = new Uint8Array(pixels.length / 4);
  for (const [k, s] of sums) {
    const mean = s.slice(0, 3).map(v => v / s[3]);
    nearest.set(k, palette.reduce((best, one, n) => apart(one, mean) < apart(palette[best], mean) ? n : best, 0));
  }
  for (let n = 0; n < indices.length; n++) indices[n] = nearest.get(key(4 * n));
  let text = "";
  for (let at = 0; at < indices.length; at += 32768) text += String.fromCharCode(...indices.subarray(at, at + 32768));
  return [bitmap.width, bitmap.height, palette.flat(), btoa(text)];
}"""

# How far two pictures of a panel are apart, of 255, drawn small: other numbers in the same places are hardly seen.
_APART = """async pictures => {
  const load = async picture => createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
  const both = await Promise.all(pictures.map(load));
  const width = 60, height = Math.ceil(both[0].height * width / both[0].width);
  const [one, other] = both.map(bitmap => {
    const context = new OffscreenCanvas(width, height).getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, 0, 0, width, height);
    return context.getImageData(0, 0, width, height).data;
  });
  return one.reduce((sum, value, at) => sum + Math.abs(value - other[at]), 0) / one.length;
}"""
ALIKE = 1.5  # at most so far apart are pictures whose numbers alone differ: 1.3 is seen, 1.7 where a strip is higher


def text_of(output: Any) -> str:
    """Return what an output says where nothing but text is shown."""
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return _ADDRESS.sub("0x…", text)


def words(cell: Any) -> set[str]:
    """Return what two runs of a cell have in common, as numbers and bars have not: words, and the codes of findings.

    How often a word comes is no part of it: rows of a table can be more on another processor.

    Of what is in the memory of the machine, it is the codes alone; of a cell with the tag ``varies``, which depends on
    time or on uninitialised memory, nothing.
    """
    if VARIES in cell.metadata.get("tags", []):
        return set()
    text = "\n".join(text_of(output).replace("0x…", "") for output in cell.outputs)
    said = [] if "%gpumem" in cell.source else [word for word in _WORD.findall(text) if word not in _VARIES]
    return {*said, *_CODE.findall(text)}


def stale(stored: Any, fresh: Any) -> list[str]:
    """Return the ids of the cells whose stored outputs do not say what they say in ``fresh``."""
    now = {cell.id: words(cell) for cell in fresh.cells if cell.cell_type == "code"}
    return [cell.id for cell in stored.cells if cell.cell_type == "code" and words(cell) != now[cell.id]]


def changed_looks(stored: Any, fresh: Any, apart: Any) -> list[str]:
    """Return the ids of the cells that look otherwise in ``fresh``; ``apart`` tells how far two PNG are apart."""
    now = {cell.id: cell for cell in fresh.cells}

    def is_alike(cell: Any) -> bool:
        pictures, taken = _pictures(cell), _pictures(now[cell.id])
        alike = len(pictures) == len(taken) and all(map(lambda *pair: apart(*pair) <= ALIKE, pictures, taken))
        return alike and _signs(cell) == _signs(now[cell.id])

    return [cell.id for cell in stored.cells if cell.cell_type == "code" and not is_alike(cell)]


def _pictures(cell: Any) -> list[str]:
    return [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]


def _signs(cell: Any) -> set[str]:
    """Return what stands around the numbers of a cell's text: titles, brackets, boxes; of what varies, nothing."""
    if VARIES in cell.metadata.get("tags", []) or "%gpumem" in cell.source:
        return set()
    pieces = _NUMBER.sub("", "\n".join(map(text_of, cell.outputs))).split()
    return {piece.strip(",.;:") for piece in pieces if _SIGN.search(piece)} - _VARIES - _UNITS


def still(notebook: Any, picture: Any) -> None:
    """Leave of the outputs what GitHub shows; ``picture`` returns the PNG of a panel's HTML."""
    seen: set[tuple[str, bool]] = set()
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    for number, cell in enumerate((one for one in notebook.cells if one.cell_type == "code"), 1):
        cell.execution_count = number
        cell.metadata.pop("execution", None)
        outputs = (_still(output, number, picture, seen) for output in cell.outputs)
        cell.outputs = [output for output in outputs if output.get("data") != {"text/plain": ""}]  # what was live


def _still(output: Any, number: int, picture: Any, seen: set[tuple[str, bool]]) -> Any:
    """Return one output without scripts, styles, addresses, and the frames of a traceback."""
    text = text_of(output)
    if output.output_type == "stream":
        return nbformat.v4.new_output("stream", name=output.name, text=text)
    if output.output_type == "error":
        return nbformat.v4.new_output("error", ename=output.ename, evalue=output.evalue, traceback=[text])
    data = {"text/plain": text}
    if panel := _SECTION.search(html := output.data.get("text/html", "")):
        kind = panel[1], _CODE.search(text) is not None
        if kind not in seen:
            data = {"image/png": base64.b64encode(picture(html)).decode(), **data}
            seen.add(kind)
    if output.output_type == "execute_result":
        return nbformat.v4.new_output("execute_result", data=data, execution_count=number)
    return nbformat.v4.new_output("display_data", data=data)


def _photographed(page: Page, html: str) -> bytes:
    page.set_content(f"<!doctype html><body style='margin:0;background:#fff'>{html}")
    page.wait_for_timeout(400 if "data-tm-waiting" in html else 0)  # the viewer draws the panel anew
    taken = page.locator("section.tm").first.screenshot()
    page.goto("about:blank")
    width, height, palette, pixels = page.evaluate(_FEWER, [base64.b64encode(taken).decode(), COLOURS])
    return png(width, height, bytes(palette), base64.b64decode(pixels))


def png(width: int, height: int, palette: bytes, pixels: bytes) -> bytes:
    """Return a picture with a palette, of one byte a pixel, as PNG."""
    rows = b"".join(b"\0" + pixels[at : at + width] for at in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in chunks)


@contextmanager
def _photographer() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 600})
        yield lambda html: _photographed(page, html), lambda *pictures: page.evaluate(_APART, list(pictures))
        browser.close()


def refresh(example: Path, picture: Any, apart: Any, *, anyway: bool) -> str:
    """Run an example; where its words or looks have changed, store its outputs anew. Returns what was done."""
    stored = nbformat.read(example, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "examples"
        shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
        fresh = nbformat.read(example, as_version=4)
        run_notebook(fresh, folder, seconds=300, settings=Path(place), widget_state=False)
    changed = stale(stored, fresh)
    still(fresh, picture)
    changed += [name for name in changed_looks(stored, fresh, apart) if name not in changed]
    if not (changed or anyway):
        return "as stored"
    nbformat.write(fresh, example)
    return f"{len(changed)} cells changed, {example.stat().st_size / 1e3:.0f} kB"


def main() -> int:
    """Refresh the outputs of the examples."""
    parser = argparse.ArgumentParser(description="Store in the examples the outputs that GitHub shows.")
    parser.add_argument("--example", default="", metavar="NAME", help="only examples whose file name begins so: 17")
    parser.add_argument("--anyway", action="store_true", help="also where words and looks are those that are stored")
    given = parser.parse_args()
    with _photographer() as (picture, apart):
        for example in sorted(EXAMPLES.glob(f"{given.example}*.ipynb")):
            print(f"{example.name}: {refresh(example, picture, apart, anyway=given.anyway)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
