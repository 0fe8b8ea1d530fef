"""A report learns the cells of its lines; nothing else in it changes."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.reports import Location, MemoryReport
from tensormagic.reports.base import with_cells
from tests.reports.samples_memory import memory_report


def test_lines_of_cells_are_numbered_wherever_they_stand():
    """In findings, holders and storages; a line that has a number keeps it, one of a file has none."""
    report = memory_report()
    (storage,) = report.storages
    (holder,) = storage.holders
    there = Location("/tmp/ipykernel_1/2.py", 8, "y = f(x)")
    bare = replace(report, storages=(replace(storage, holders=(replace(holder, location=there),)),))
    told = with_cells(bare, {"/tmp/ipykernel_1/2.py": 5, "cell.py": 9}.get)
    assert told.storages[0].holders[0].location.label == "cell 5, line 8"
    assert told.storages[0].location.cell == 3
    assert with_cells(bare, lambda _: None) is bare


def test_nothing_else_changes():
    """The rest is equal, and a report without lines is the very same."""
    report = MemoryReport(title="x")
    assert with_cells(report, lambda _: 1) is report
    told = with_cells(memory_report(), lambda _: 1)
    assert replace(told, findings=()) == replace(memory_report(), findings=())
