"""Example 01 shows what it says it shows: a network that learns, a NaN on its line, and a run that is mended."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.kernel import ROOT

EXAMPLE = ROOT / "examples" / "01_first_light.ipynb"
TENSOR_CELLS = ("batch", "transpose", "slice", "weight")
TRACE_CELLS = ("train", "broken", "fix")

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module")
def cells(run_example):
    """Return the cells of the executed example by their id."""
    return {cell.id: cell for cell in run_example(EXAMPLE).notebook.cells}


def shown(cell):
    """Return the one rich output of a cell; what a long run kept for a restart is empty when it has ended."""
    bundles = [output.data for output in cell.outputs if "data" in output and output.data != {"text/plain": ""}]
    assert len(bundles) == 1
    return bundles[0]


def printed(cell):
    """Return what a cell printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def per_cent(text):
    """Return the first percentage in a text."""
    return int(re.search(r"(\d+)%", text).group(1))


@pytest.mark.parametrize("name", [*TENSOR_CELLS, *TRACE_CELLS])
def test_an_output_is_static_html_and_text(cells, name):
    """A saved notebook holds no widget, which could not be shown without its kernel."""
    assert sorted(shown(cells[name])) == ["text/html", "text/latex", "text/plain"]


@pytest.mark.parametrize("name", [*TENSOR_CELLS, *TRACE_CELLS])
def test_an_output_is_small(cells, name):
    """``%tensor`` stays under 100 kB and ``%%tracegrad`` under 300 kB, as they lie in the file."""
    size = len(json.dumps(shown(cells[name]), ensure_ascii=False).encode())
    assert size < (100_000 if name in TENSOR_CELLS else 300_000)


def test_the_slices_are_said_to_share(cells):
    """A slice, a transpose and a slice of that all read the storage of ``images``. Nothing wrote to it: no finding."""
    for name, tensor in (("batch", "batch"), ("transpose", "turned"), ("slice", "coarse")):
        text = " ".join(shown(cells[name])["text/plain"].split())
        assert "view of images" in text
        assert f"── {tensor} ──" in text
        assert re.findall(r"TM\d+", text) == []


def test_the_offsets_of_the_slice_are_those_of_its_strides(cells):
    """``coarse = image.t()[1:, ::2]`` begins at 1 and goes in steps of 1 and 16."""
    text = shown(cells["slice"])["text/plain"]
    assert "stride (1, 16); contiguous would be (4, 1) · storage offset 1" in text
    assert "offset(i, j) = 1 + 1·i + 16·j" in text


def test_the_network_learns_without_a_finding(cells):
    """The honest run is without a finding, and reads at least 19 of 20 unseen digits."""
    assert "no problems found in 120 backward passes" in shown(cells["train"])["text/plain"]
    assert per_cent(printed(cells["accuracy"])) >= 95


def test_the_nan_is_found_on_its_line(cells):
    """TM402 names the cell as the notebook numbers it, the line of the logarithm, and the cause."""
    cell = cells["broken"]
    line = cell.source.split("\n").index("    log_p = p.log()") + 1  # as in the margin
    where = f"cell {cell.execution_count}, line {line}"
    text = " ".join(shown(cell)["text/plain"].split())
    assert f"error TM402 The first NaN gradient appears in log, {where}" in text
    assert re.search(r"its input holds \d+ zeros?", text)
    assert printed(cells["finding"]).startswith(f"TM402 · {where} · log_p = p.log()\n")
    assert printed(cells["finding"]).count("TM") == 1


def test_the_nan_comes_in_the_middle_of_a_run_that_learned(cells):
    """There are steps before it and steps after it, and after it the network is worth nothing."""
    text = " ".join(shown(cells["broken"])["text/plain"].split())
    born = int(re.search(r"in backward pass (\d+) of 92", text).group(1))
    assert 10 < born < 90
    assert printed(cells["broken-accuracy"]).rstrip().endswith("right, and loss = nan")
    assert per_cent(printed(cells["broken-accuracy"])) < 20


def test_the_mended_run_is_clean(cells):
    """With ``log_softmax`` the same training has no finding, and learns."""
    assert "no problems found in 92 backward passes" in shown(cells["fix"])["text/plain"]
    assert printed(cells["fix-accuracy"]).endswith("right, and 0 findings\n")
    assert per_cent(printed(cells["fix-accuracy"])) >= 85


def test_the_lines_of_the_model_are_shown_with_their_cell(cells):
    """The operations inside ``forward`` are blamed on the cell that holds the class."""
    assert f"cell {cells['net'].execution_count}" in shown(cells["broken"])["text/html"]
