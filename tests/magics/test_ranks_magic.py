"""``%ranks runs/a``: a folder or reports, as a user types them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
import torch
from IPython.core.error import UsageError

import tensormagic as tm
from tensormagic.reports import Parallel, RankReport


def write(folder, *ranks, rate=lambda rank: 0.1):
    """Write what ranks of two write: one step, at a rate each."""
    folder.mkdir(parents=True)
    for rank in ranks:
        lines = [
            {"k": "rank", "v": 1, "rank": rank, "world": 2, "host": "node", "pid": 7, "at": 0.0},
            {"k": "place", "kinds": ["DDP"], "replicas": [0, 1]},
            {"k": "pass", "n": 1, "loss": 1.0, "finite": True, "reduced": True, "line": "a.py, line 1", "at": 1.0,
             "norms": None},
            {"k": "step", "n": 1, "lr": [rate(rank)], "at": 1.0, "used": None},
            {"k": "end", "state": "finished", "error": "", "peak": 0, "at": 2.0},
        ]  # fmt: skip
        (folder / f"rank{rank:05d}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of a healthy run, below the one where the shell is."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "runs" / "a", 0, 1)
    write(tmp_path / "my runs", 0, 1, rate=lambda rank: 0.1 + rank)
    return tmp_path


def traced(rank):
    """Return a report as one rank of two would have made it."""
    with tm.trace() as trace:
        torch.ones(2, requires_grad=True).sum().backward()
    return replace(trace.report, parallel=Parallel(rank, 2))


def test_a_folder(shell, cell, folder):
    """Panel, text, and the report under a name."""
    ran = cell("%ranks runs/a --into found")
    assert ran.error is None
    assert "tm-ranks" in ran.shown[-1]["text/html"]
    assert isinstance(shell.user_ns["found"], RankReport)
    assert "2 ranks, 1 step" in " ".join(cell("%ranks runs/a --text").out.split())


def test_a_folder_with_a_space_in_its_name(cell, folder):
    """In quotes; its fault is found, and written to a file as well."""
    ran = cell("%ranks 'my runs' --text --save found.html")
    assert "TM903" in ran.out
    assert "TM903" in (folder / "found.html").read_text(encoding="utf-8")


def test_reports(shell, cell, folder):
    """A name of a list, and an expression that makes one."""
    shell.user_ns["reports"] = [traced(0), traced(1)]
    for given in ("reports", "reports[::-1]", "list(reports)"):
        assert "2 ranks" in cell(f"%ranks {given} --text").out


def test_the_full_report_of_a_rank(cell, folder):
    """The panel of its run."""
    assert "rank 0 left no full report: no rank of this run did" in str(cell("%ranks runs/a --rank 0").error)
    traced(0).save(folder / "runs" / "a" / "rank00000.report.json")
    ran = cell("%ranks runs/a --rank 0 --text")
    assert "rank 0 of 2" in ran.out
    assert "1 backward pass" in ran.out


def test_tab_offers_folders(shell, folder):
    """The folders here, then those below."""
    assert {"my runs", "runs"} <= set(shell.complete("", "%ranks ", 7)[1])
    assert "runs/a" in shell.complete("", "%ranks runs/", 12)[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("runs/a runs/b", "takes one run, but was given 2"),
        ("runs/nowhere", "is no folder"),
        ("~nobody-of-that-name/a", "%ranks: there is no home folder for '~nobody"),
        ("runs", "has no file rank*.jsonl"),
        ("nobody", "there is no folder or name 'nobody'"),
        ("number", "a folder, or the trace report of each rank"),
        ("[number]", "trace report of each rank"),
        ("runs/a --save x.docx", "docx"),
    ],
)
def test_what_cannot_be_compared_is_refused(shell, cell, folder, line, words):
    """With a sentence, and without a traceback."""
    shell.user_ns["number"] = 3
    error = cell(f"%ranks {line}").error
    assert isinstance(error, UsageError)
    assert words in str(error)


def test_help(cell):
    """Alone, it says what it takes."""
    assert "the folder that every rank was given" in cell("%ranks").out


def test_a_name_that_is_too_long_for_a_folder(cell, folder):
    """It is no folder, whatever the file system says of it; an expression of that length is evaluated."""
    assert "there is no folder or name" in str(cell("%ranks " + "x" * 300).error)
    why = "is no folder" if sys.version_info >= (3, 14) else "cannot be read (File name too long)"  # as Python tells
    assert why in str(cell("%ranks 'x" + "x" * 300 + "'").error)
    assert cell("%ranks (" + "'runs/a' or " * 40 + "'')").error is None
