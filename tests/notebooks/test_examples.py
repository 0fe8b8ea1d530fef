"""Every example runs, cell by cell, in a real kernel: a new one is picked up by lying in ``examples/``."""

from __future__ import annotations

import re
import struct
import zlib

import nbformat
import pytest

from tests.support.kernel import ROOT
from tools.outputs import png, stale, text_of

EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.stem)
def example(request):
    """Return the path of one example."""
    return request.param


@pytest.fixture(scope="module")
def executed(example, run_example):
    """Return the example after a run, in a copy of its folder, and the files that the run left there."""
    after = run_example(example)
    return after.notebook, after.written


def outputs(notebook):
    """Return every output of the code cells, with its cell."""
    return [(cell, output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_stored_outputs_are_what_github_shows(example):
    """Text and still pictures: no HTML, script or style sheet, no place or address of the machine that ran it."""
    notebook = nbformat.read(example, as_version=4)
    stored = [output for _, output in outputs(notebook)]
    kinds = {kind for output in stored for kind in output.get("data", {})}
    assert stored
    assert kinds <= {"text/plain", "image/png"}
    text = "\n".join(text_of(output) for output in stored)
    assert re.findall(rf"(?:{re.escape(str(ROOT))}|/site-packages/|/tmp/|/home/|\b0x[0-9a-f])\S*", text) == []
    numbers = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


def test_stored_outputs_are_small(example):
    """An example with its pictures is quickly fetched."""
    pictures = [output.data["image/png"] for _, output in outputs(nbformat.read(example, as_version=4))
                if "image/png" in output.get("data", {})]  # fmt: skip
    assert example.stat().st_size < 250_000
    assert max(map(len, pictures), default=0) < 70_000


def test_stored_outputs_are_fresh(example, executed):
    """They say what the code prints today; where they do not: ``make outputs``."""
    notebook, _ = executed
    assert stale(nbformat.read(example, as_version=4), notebook) == []


@pytest.mark.parametrize(
    ("source", "now", "is_stale"),
    [
        ("%tensor x", "x takes 7.1 MiB in 3 s, at 0x7f", False),
        ("%tensor x", "x needs 96 KiB in 2 s, at 0x55", True),
        ("%gpumem", "x needs 96 KiB in 2 s, at 0x55", False),
        ("%gpumem", "TM501 x takes 96 KiB", True),
        ("%tensor x", "x takes 96 KiB in 2 s, at 0x55, 6bfac1", False),
        ("%tensor x  # varies", "anything", False),
    ],
)
def test_words_make_an_output_stale(source, now, is_stale):
    """Words do, numbers, units and hashes do not; of what is in the memory of the machine, findings alone."""

    def notebook(text):
        tags = {"tags": ["varies"]} if "varies" in source else {}
        shown = [nbformat.v4.new_output("stream", text=text)]
        cell = nbformat.v4.new_code_cell(source, outputs=shown, metadata=tags, id="one")
        return nbformat.v4.new_notebook(cells=[cell])

    assert stale(notebook("x takes 96 KiB in 2 s, at 0x55"), notebook(now)) == (["one"] if is_stale else [])


def test_a_picture_of_few_colours_is_a_png():
    """Two rows of three pixels, as its decoder finds them."""
    picture = png(3, 2, bytes((255, 0, 0, 0, 0, 255)), bytes((0, 1, 0, 1, 1, 0)))
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture[16:24]) == (3, 2)
    data = picture[picture.index(b"IDAT") + 4 : picture.index(b"IEND") - 8]
    assert zlib.decompress(data) == bytes((0, 0, 1, 0, 0, 1, 1, 0))


def test_an_example_has_one_title(example):
    """Its first line, and no other of that size: on the site a second one would be a lesson of its own."""
    texts = [cell.source for cell in nbformat.read(example, as_version=4).cells if cell.cell_type == "markdown"]
    plain = [re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in texts]
    assert [at for at, text in enumerate(plain) for _ in re.findall(r"^# ", text, re.MULTILINE)] == [0]
    assert plain[0].startswith("# ")


def test_an_example_runs(executed):
    """Every cell runs; one that is meant to fail carries the tag ``raises-exception`` and does."""
    notebook, _ = executed
    failed = {cell.id for cell, output in outputs(notebook) if output.output_type == "error"}
    meant = {cell.id for cell in notebook.cells if "raises-exception" in cell.metadata.get("tags", [])}
    assert failed == meant


def test_an_example_says_nothing_on_the_side(executed):
    """Nothing is written to the error stream: no warning, no lost traceback."""
    notebook, _ = executed
    said = [output.text for _, output in outputs(notebook) if output.get("name") == "stderr"]
    assert said == []


def test_every_shown_output_has_text(executed):
    """Each bundle can be read in a terminal too, and none is left that needs a kernel to be seen."""
    notebook, _ = executed
    bundles = [output.data for _, output in outputs(notebook) if "data" in output]
    assert [list(bundle) for bundle in bundles if "text/plain" not in bundle] == []
    assert [list(bundle) for bundle in bundles if "application/vnd.jupyter.widget-view+json" in bundle] == []


def test_an_example_leaves_no_files(executed):
    """A run writes nothing beside the notebook."""
    _, written = executed
    assert written == []


def test_an_executed_example_is_small(executed):
    """With all its outputs it stays under 2 MB: small enough to send."""
    notebook, _ = executed
    assert len(nbformat.writes(notebook)) < 2_000_000
