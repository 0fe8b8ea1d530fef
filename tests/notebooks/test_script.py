"""Example 14: an ordinary program asks the same questions as the notebooks, and gets the same answers."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.kernel import ROOT, jupyter_environment

SCRIPT = ROOT / "examples" / "14_script.py"

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return what the script printed, in one line, and the page that it wrote, after a run in an empty folder."""
    folder = tmp_path_factory.mktemp("script")
    page = folder / "page.html"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(page)],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=jupyter_environment(folder),
    )
    assert done.stderr == ""
    assert list(folder.glob("*.html")) == [page]
    return " ".join(done.stdout.split()), page


def line_of(code):
    """Return the number of the line on which some code stands."""
    return SCRIPT.read_text(encoding="utf-8").split("\n").index(code) + 1


def test_the_nan_is_blamed_on_its_line(ran):
    """The same finding as in the notebook: the logarithm, its line, and the zero that went in."""
    said, _ = ran
    line = line_of("    return p.log()")
    assert f"TM402 error: The first NaN gradient appears in log, 14_script.py, line {line}" in said
    assert re.search(r"its input holds \d+ zeros?", said)


def test_the_page_needs_nothing_else(ran):
    """It opens offline and holds the finding."""
    html = ran[1].read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert "TM402" in html
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?https?:", html)


def test_seeds_are_told(ran):
    """The seed of the script is torch's; NumPy's generator and Python's have none of ours."""
    said, _ = ran
    assert "torch, CPU seed 0 numpy.random not seeded by us random not seeded by us" in said


def test_the_runs_are_compared(ran):
    """Both steps of the mistake stand against the one call that mends it; the mended network reads digits."""
    said, _ = ran
    assert "2 only in softmax, then log (softmax and log), 1 only in log_softmax (log_softmax)" in said
    assert int(re.search(r"(\d+)% of the digits are read right", said).group(1)) >= 90


def test_stored_graphs_are_found(ran):
    """``losses`` keeps the graph of each step: 92 of them."""
    said, _ = ran
    assert re.search(r"TM503 note: losses stores 92 tensors with their graphs", said)
    assert "optimizer state" in said
