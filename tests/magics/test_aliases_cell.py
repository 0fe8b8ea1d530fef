"""``%%aliases``: options, what is shown, and that the cell's own outcome stands."""

from __future__ import annotations

import json

import pytest
from IPython.core.error import UsageError

from tensormagic.reports import WritesReport


def test_the_panel_says_what_the_cell_changed(notebook, cell):
    """B shares a's memory: the finding, its line, and the marked line of the listing."""
    ran = cell("%%aliases\nb[0] = 7\nb.shape[0]")
    assert ran.value == 4
    (shown,) = ran.shown
    assert "Writing to b changes 3 of the 12 elements of a, the first is a[0, 0]." in shown["text/html"]
    assert "   2 ○ b[0] = 7  ← b" in shown["text/plain"]


def test_a_failing_cell_fails_after_its_report(notebook, cell):
    """What torch refuses is said at its line, and raised."""
    ran = cell("%%aliases\nx = torch.arange(6.0)\nx[1:] += x[:-1]")
    assert isinstance(ran.error, RuntimeError)
    assert "This line reads 4 of the 5 elements that it writes in x: torch refuses that." in ran.shown[0]["text/plain"]


def test_text_file_and_name(cell, tmp_path):
    """--text prints, --save writes, --into binds; also where the cell failed."""
    path = tmp_path / "writes.json"
    ran = cell(f"%%aliases --text --save {path} --into report\na.add_(1)\nraise KeyError('lost')")
    assert isinstance(ran.error, KeyError)
    assert "Writing to a changes all 12 elements of b." in ran.out
    report = WritesReport.from_dict(json.loads(path.read_text()))
    assert (report.state, report.writes[0].target) == ("failed", "a")
    assert ran.shown == []
    assert cell("report.writes_seen").value == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--figure", "no figure"),
        ("--save x.pdf", "the file's extension selects the format"),
        ("--into 1x", "takes a name"),
        ("a b", "unrecognized arguments"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_cell_runs(cell, line, words):
    """One message, and nothing has run."""
    ran = cell(f"%%aliases {line}\nran = True")
    assert isinstance(ran.error, UsageError)
    assert words in str(ran.error)
    assert isinstance(cell("ran").error, NameError)


def test_help_does_not_run_the_cell(cell):
    """--help lists the options."""
    ran = cell("%%aliases --help\nran = True")
    assert "--into NAME" in ran.out
    assert isinstance(cell("ran").error, NameError)


def test_without_a_cell_it_is_the_line_magic(cell):
    """%aliases shows who shares memory."""
    assert "a" in cell("%aliases a --text").out
