"""The operations of a run: the totals, the tables by operation and by line, and the viewer's columns."""

from __future__ import annotations

import re

import pytest

from tensormagic.renderers.document.document import trace_document
from tensormagic.renderers.trace import ops_html, ops_text, ops_words, trace_html, trace_text
from tests.renderers import samples_ops, samples_trace
from tests.renderers.snapshots import assert_snapshot


def test_text_is_as_stored():
    """The whole text of a run with operations stands in ``tests/snapshots``."""
    assert_snapshot("trace_operations.txt", trace_text.render(samples_ops.operations()))


def test_html_is_as_stored():
    """The section of the panel stands in ``tests/snapshots``."""
    style = f"<style>{trace_html.viewer_style()}</style>"
    section = ops_html.operations_html(samples_ops.operations())
    assert_snapshot("trace_operations.html", f'{style}<section class="tm tm-trace">{section}</section>')


def test_totals_are_those_of_the_uses():
    """Calls, time, bytes and writes are sums; phases share the time; what has no line is told."""
    ops = samples_ops.operations().ops
    assert ops_words.summary(ops) == "30 calls in 10 ms · 1.1 MiB allocated · 17 writes"
    assert ops_words.split(ops) == "backward 67 %, forward 20 %, optimizer 8 %, other 5 %"
    assert ops_words.remarks(ops) == ["the line is unknown for 1 call, 5 % of the time"]


def test_rows_add_overloads_up_and_keep_other_namespaces():
    """``mm`` and ``mm.out`` are one row, longest first; an operation of another library keeps its library's name."""
    rows = ops_words.rows_by_operation(samples_ops.operations().ops)
    assert [row.label for row in rows] == ["mm", "addmm", "add_", "mylib.fused"]
    assert rows[0].cells == ("9", "6.7 ms", "67 %", "", "6.7 ms", "64 KiB", "1 to out")
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_rows_by_line_have_the_line_that_made_the_node():
    """The backward of a node counts for its line; what has none stands under its own name."""
    run = samples_ops.operations()
    rows = ops_words.rows_by_line(run, run.ops)
    assert [row.label.partition(": ")[0] for row in rows] == [
        "cell 5, line 2",
        "cell 5, line 4",
        "cell 5, line 3",
        "line unknown",
    ]
    assert rows[0].cells[3:5] == ("2.0 ms", "6.0 ms")


def test_a_table_says_how_many_it_leaves_out():
    """Of 59 operations the longest are shown, in text and HTML, with the number of all."""
    run = samples_ops.many_operations()
    assert "the 20 that took longest of 59" in ops_html.operations_html(run)
    assert "and 49 more" in "\n".join(ops_text.operations(run, 100))


def test_time_of_an_accelerator_is_told_to_be_that_of_launching():
    """Where operations ran on a device that works on by itself, the output says what the time is."""
    said = "the time to launch an operation, not to run it"
    assert said in trace_text.render(samples_ops.many_operations(), width=200)
    assert said not in trace_text.render(samples_ops.operations(), width=200)


@pytest.mark.parametrize("width", [40, 60, 100, 160])
def test_text_keeps_its_width(width):
    """No line is wider than asked for; the columns that matter most stay."""
    for run in samples_ops.SAMPLES.values():
        lines = ops_text.operations(run, width)
        assert max(map(len, lines)) <= width
        assert any("time" in line for line in lines)


def test_nothing_is_shown_at_level_grad():
    """A run without recorded operations has no section, no text and no column."""
    run = samples_trace.one_pass()
    assert ops_html.operations_html(run) == ""
    assert ops_text.operations(run, 100) == []
    assert "backward_seconds" not in trace_document(run)["graphs"][0]["nodes"]


def test_names_cannot_break_out():
    """What a person or a library called something stays text."""
    section = ops_html.operations_html(samples_ops.hostile_operations())
    assert "<script" not in section
    assert re.search(r"&lt;script&gt;", section)
