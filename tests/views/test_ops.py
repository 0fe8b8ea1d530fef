"""The operations of a run: the totals, the tables by operation and by line, and the viewer's columns."""

from __future__ import annotations

import re

import pytest

from tensormagic.views import to_html, to_text
from tensormagic.views.nodes import Table
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace
from tensormagic.views.panels import trace as trace_html
from tests.views import samples_ops, samples_trace, trace_forms
from tests.views.snapshots import assert_snapshot


def test_text_is_as_stored():
    """The whole text of a run with operations stands in ``tests/snapshots``."""
    assert_snapshot("trace_operations.txt", trace_forms.text(samples_ops.operations()))


def test_html_is_as_stored():
    """The section of the panel is in ``tests/snapshots``."""
    style = f"<style>{trace_html.viewer_style()}</style>"
    section = to_html.html(operations(samples_ops.operations())[0])
    assert_snapshot("trace_operations.html", f'{style}<section class="tm tm-trace">{section}</section>')


def test_totals_are_those_of_the_uses():
    """Calls, time, bytes and writes are sums; phases share the time; what has no line is told."""
    ops = samples_ops.operations().ops
    assert trace.summary(ops) == "30 calls in 10 ms · 1.1 MiB allocated · 17 writes"
    assert trace.split(ops) == "backward 67 %, forward 20 %, optimizer 8 %, other 5 %"
    assert trace.remarks(ops) == ["the line is unknown for 1 call, 5 % of the time"]


def operations(run):
    """Return the section of operations, and its two tables: by line, by operation."""
    section = trace.panel(run).body[-1]
    return section, *(node for node in section.body if isinstance(node, Table))


def test_rows_add_overloads_up_and_keep_other_namespaces():
    """``mm`` and ``mm.out`` are one row, longest first; an operation of another library keeps its library's name."""
    _, _, table = operations(samples_ops.operations())
    assert [row[0] for row in table.rows] == ["mm", "addmm", "add_", "mylib.fused"]
    assert [to_text.inline(cell) for cell in table.rows[0]] == [
        "mm", "9", "6.7 ms", to_text.inline(table.rows[0][3]), "67 %", "", "6.7 ms", "64 KiB", "1 to out",
    ]  # fmt: skip
    assert sum(row[3].share for row in table.rows) == pytest.approx(1)


def test_rows_by_line_have_the_line_that_made_the_node():
    """The backward of a node counts for its line; what has none stands under its own name."""
    _, table, _ = operations(samples_ops.operations())
    assert [row[0].text.partition(": ")[0] for row in table.rows] == [
        "cell 5, line 2", "cell 5, line 4", "cell 5, line 3", "line unknown",
    ]  # fmt: skip
    assert table.rows[0][5:7] == ["2.0 ms", "6.0 ms"]


def test_a_table_says_how_many_it_leaves_out():
    """Of 59 operations the longest are shown, in text and HTML, with the number of the others."""
    section, _, _ = operations(samples_ops.many_operations())
    assert "and 39 more" in to_html.html(section)
    assert "  and 49 more" in to_text.text(section, 100)


def test_time_of_an_accelerator_is_told_to_be_that_of_launching():
    """Where operations ran on a device that works on by itself, the output says what the time is."""
    said = "the time to launch an operation, not to run it"
    assert said in trace_forms.text(samples_ops.many_operations(), width=200)
    assert said not in trace_forms.text(samples_ops.operations(), width=200)


@pytest.mark.parametrize("width", [40, 60, 100, 160])
def test_text_keeps_its_width(width):
    """No line is wider than asked for; the columns that matter most stay."""
    for run in samples_ops.SAMPLES.values():
        lines = trace_forms.text(run, width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert any("TIME" in line for line in lines)


def test_nothing_is_shown_at_level_grad():
    """A run without recorded operations has no section, no text and no column."""
    run = samples_trace.one_pass()
    assert operations(run)[0].body == []
    assert "OPERATIONS" not in trace_forms.text(run)
    assert "backward_seconds" not in trace_document(run)["graphs"][0]["nodes"]


def test_names_cannot_break_out():
    """What a user or a library called something stays text."""
    section = to_html.html(operations(samples_ops.hostile_operations())[0])
    assert "<script" not in section
    assert re.search(r"&lt;script&gt;", section)
