"""``%compare A B``: names and files as a user types them."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from tensormagic.reports import ComparisonReport
from tests.comparisons import samples


@pytest.fixture
def runs(shell, tmp_path):
    """Bind two runs, and save the second in a folder with a space in its name."""
    folder = tmp_path / "my runs"
    shell.user_ns.update(slow=samples.small(), fast=samples.small(factor=100.0, since=3))
    shell.user_ns["fast"].save(folder / "fast.json")
    return folder


def test_two_names(shell, cell, runs):
    """Both are called what the user called them; text, panel, and the report under a name."""
    ran = cell("%compare slow fast --into c --text")
    assert ran.error is None
    assert isinstance(shell.user_ns["c"], ComparisonReport)
    assert ran.out.startswith("── compare ── slow · fast ──")
    assert "Same graph; from step 3 on, gradients of net.2.weight are larger" in " ".join(ran.out.split())
    shown = cell("%compare slow fast").shown[-1]
    assert "are larger in fast" in shown["text/plain"]
    assert "tm-compare" in shown["text/html"]


def test_a_comma_between_two_runs_is_taken(cell, runs):
    """As between the expressions of %tensor."""
    assert cell("%compare slow, fast --text").out.startswith("── compare ── slow · fast ──")


def test_a_saved_file(shell, cell, runs):
    """A path in quotes, with a space: called by the file's name."""
    ran = cell(f"%compare slow '{runs / 'fast.json'}' --text")
    assert ran.out.startswith("── compare ── slow · fast ──")


def test_saved_in_several_forms(cell, runs):
    """--save may be given several times; each file is there, and named."""
    ran = cell(f"%compare slow fast --save '{runs / 'c.html'}' --save '{runs / 'deep' / 'c.json'}'")
    assert ComparisonReport.load(runs / "deep" / "c.json").right.name == "fast"
    assert "tm-compare" in (runs / "c.html").read_text()
    assert ran.out.splitlines() == [f"saved {runs / 'c.html'}", f"saved {runs / 'deep' / 'c.json'}"]


def test_the_figure(cell, runs):
    """--figure shows plotly's."""
    assert "application/vnd.plotly.v1+json" in cell("%compare slow fast --figure").shown[-1]


def test_tab_offers_runs_first(shell, runs):
    """Behind %compare the names of traced runs lead."""
    _, matches = shell.complete("", "%compare ", 9)
    assert matches[:2] == ["fast", "slow"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("slow", "takes two runs, but was given 1: slow"),
        ("slow fast slow", "takes two runs, but was given 3"),
        (
            "slow nosuch",
            "there is no name 'nosuch' here; a run is a name that %%tracegrad --into NAME bound; here are ",
        ),
        ("slow 3", "compare() takes traced runs: reports, traces, or saved .json files, not an int"),
        ("slow nosuch.json", "cannot read 'nosuch.json': No such file or directory"),
        ("slow fast --save x.pdf", "the file's extension selects the format"),
        ("slow 1+", "'1+' is not a Python expression"),
    ],
)
def test_misuse_is_a_plain_message(shell, cell, runs, monkeypatch, line, words):
    """What was given, and what would work."""
    monkeypatch.chdir(runs)
    with pytest.raises(UsageError) as refused:
        shell.run_line_magic("compare", line)
    assert words in str(refused.value)


def test_without_anything_it_helps(cell):
    """The help lists what can be compared."""
    ran = cell("%compare")
    assert "names that %%tracegrad --into bound, or .json files" in " ".join(ran.out.split())
