"""The check of a GPU on a machine without one: what runs is right, and what is skipped is named."""

from __future__ import annotations

import sys

import pytest

from tests.gpu import __main__ as program, parts, rows
from tests.gpu.workloads import CUDA


@pytest.fixture
def ran(monkeypatch, tmp_path, capsys):
    """Return a function that runs parts, and returns the exit code, the rows and what was printed."""
    monkeypatch.setattr(program, "HERE", tmp_path)

    def run(*parts):
        monkeypatch.setattr(sys, "argv", ["gpu", "--parts", ",".join(parts)])
        code = program.main()
        return code, list(rows.ROWS), capsys.readouterr().out

    return run


@pytest.mark.skipif(CUDA, reason="there is a CUDA device here: nothing is skipped")
def test_what_needs_a_device_is_skipped_and_named(ran, tmp_path):
    """The table has a row for each such part, and so has the file; the rest ran."""
    code, found, printed = ran("device", "nan", "memory", "graphs")
    assert code == 0
    assert [each.part for each in found if each.verdict == "skipped"] == ["memory", "graphs"]
    assert [each.verdict for each in found if each.part == "nan"] == ["ok", "ok"]
    assert "skipped without a CUDA device: memory, graphs" in printed
    assert "| skipped | memory |" in (tmp_path / "build" / "gpu.md").read_text(encoding="utf-8")


def test_a_part_that_fails_is_bad_and_the_others_go_on(ran, monkeypatch):
    """An error of the check itself is a row, and the exit code says so."""
    monkeypatch.setitem(program.PARTS, "nan", lambda: 1 / 0)
    code, found, _ = ran("nan", "device")
    assert (code, found[0].verdict, found[1].part) == (1, "BAD", "device")
    assert "ZeroDivisionError" in found[0].note


def test_time_counts_from_the_start_of_the_check(ran, monkeypatch):
    """Not from the import of its modules, which in a run of all tests is minutes earlier; past the limit it stops."""
    rows.BEGAN[0] -= 2 * parts.LIMIT
    code, found, _ = ran("device", "nan")
    assert (code, [each.what for each in found if "left out" in each.what]) == (0, [])
    monkeypatch.setattr(parts, "LIMIT", -1.0)
    code, found, _ = ran("device", "nan")
    assert (code, [each.what for each in found]) == (0, ["left out: time"] * 2)


def test_there_are_thirteen_parts():
    """As many as the page says."""
    assert len(program.PARTS) == 13
