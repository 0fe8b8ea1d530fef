"""A running trace at the bottom of a terminal, and reports as wide and as coloured as the terminal is."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from array import array
from dataclasses import replace

import pytest

from tensormagic.reports import UNTOUCHED
from tensormagic.views.page import terminal
from tensormagic.views.page.terminal import ROWS, BottomRows, block, is_terminal
from tests.support.screen import Screen, Terminal
from tests.views import samples_tensor, samples_trace, samples_viewer, trace_forms

PLAIN = [f"line {number}" for number in range(40)]


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def screen():
    """An empty screen."""
    return Screen()


def rows_on(screen, count=3):
    stream = Terminal(screen)
    return BottomRows(stream, count, stream.size), stream


def test_the_lines_stand_at_the_bottom(screen):
    """The rows above them and the cursor are left as they are, also in the middle of a line."""
    rows, stream = rows_on(screen)
    stream.write("begun")
    rows.draw(["a", "b", "c"])
    stream.write(" and ended\n")
    assert screen.lines[-3:] == ["a", "b", "c"]
    assert screen.lines[0] == "begun and ended"
    assert (screen.row, screen.column) == (1, 0)


def test_nothing_that_is_printed_is_lost(screen):
    """Everything scrolls through above the lines, and all of it is there afterwards, in order.

    Begun at the bottom of a full screen, room is made by scrolling; a terminal that changes its size is taken anew.
    """
    rows, stream = rows_on(screen)
    for number, line in enumerate(PLAIN):
        rows.draw([f"at {number}", "b", "c"])
        stream.write(line + "\n")
        assert screen.lines[-3] == f"at {number}"
    rows.close()
    assert screen.everything == PLAIN
    assert screen.region == (0, 15)
    full = Screen()
    rows, stream = rows_on(full)
    stream.write("\n".join(PLAIN[:16]))
    rows.draw(["a", "b", "c"])
    stream.write("!\n")
    rows.close()
    assert full.everything == [*PLAIN[:15], "line 15!"]
    rows, _ = rows_on(screen)
    rows.draw(["a", "b", "c"])
    screen.rows = 12
    rows.draw(["d", "e", "f"])
    assert (screen.region, screen.lines[9:12]) == ((0, 8), ["d", "e", "f"])


def test_closing_twice_is_the_same_as_once(screen):
    """And closing what was never drawn writes nothing; nor is a low terminal drawn on: eight rows are the user's."""
    rows, stream = rows_on(screen)
    rows.close()
    assert stream.getvalue() == ""
    rows.draw(["a"])
    rows.close()
    written = stream.getvalue()
    rows.close()
    assert stream.getvalue() == written
    low, stream = rows_on(Screen(rows=8))
    low.draw(["a", "b", "c"])
    assert stream.getvalue() == ""


def test_a_fork_gives_nothing_back(screen, monkeypatch):
    rows, stream = rows_on(screen)
    rows.draw(["a", "b", "c"])
    written = stream.getvalue()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        rows.close()
    assert stream.getvalue() == written
    rows.close()


@pytest.mark.parametrize("term", ["dumb", ""])
def test_what_is_no_terminal(monkeypatch, term):
    """A pipe, a file, nothing, a closed stream, and a terminal that cannot place its cursor."""
    closed = io.StringIO()
    closed.close()
    assert not is_terminal(io.StringIO())
    assert not is_terminal(None)
    assert not is_terminal(closed)
    monkeypatch.setenv("TERM", term)
    assert not is_terminal(Terminal(Screen()))


def running():
    """A run in its third pass, and its newest numbers."""
    report = replace(samples_viewer.calm_run(3), state="running")
    return report, samples_viewer.live_frame(report, 3, 15)


def test_the_block_says_where_it_is():
    """The model, step, passes, time, the way of the loss, a bar a node, who gets most and least, findings.

    Six lines, none wider than the terminal, at any width.
    """
    head, step, loss, flow, gradients, findings = block(*running(), 100)
    assert head.startswith("── digits-cnn ──")
    assert step.startswith("step      3 · 2 backward passes · ")
    assert set(flow.split()[1]) <= set("▁▂▃▄▅▆▇█")
    assert gradients.startswith("gradients largest ")
    assert (loss, findings) == ("loss      none yet", "findings  none so far")
    for width in (30, 60, 89, 200):
        lines = block(*running(), width)
        assert (len(lines), max(map(len, lines)) <= width) == (ROWS, True)


LOSSES = {
    "falling": ([4.0, 3.0, 2.0, 1.0, 0.0], "4 █▇▅▃▁ 0"),
    "many": ([8.0, 0.0] * 96, "8 " + "▁" * 48 + " 0"),
    "turns NaN": ([1.0, 0.0, math.nan], "1 █▁! NaN"),
    "huge": ([1.5e308, -1.5e308, 0.0], "1.5e308 █▁▅ 0"),
    "never changes": ([2.0, 2.0], "2 ▁▁ 2"),
    "one": ([2.0], "2"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_is_a_line_of_its_own(name):
    """From its least to its greatest, on a linear scale; what is not finite stands out in its place."""
    values, line = LOSSES[name]
    report, frame = running()
    passes = tuple(replace(report.passes[0], value=value) for value in values)
    assert block(replace(report, passes=passes), frame, 100)[2] == f"loss      {line}"


def test_findings_stand_in_the_last_line_and_a_nan_above():
    """The first in full, how many there are, and the line cut at the edge; no name moves the cursor.

    One parameter with a NaN is what counts, not who has the largest norm.
    """
    run, frame = running()
    norms = array("f", [math.nan, math.inf, *frame.parameter_norms[2:]])
    silent = array("f", [UNTOUCHED] * len(norms))
    told = [block(run, replace(frame, parameter_norms=each), 100)[4] for each in (norms, silent)]
    assert told == [f"gradients NaN or Inf in {run.parameters[0].name} and 1 other", "gradients none yet"]
    report = samples_trace.broken()
    found = block(report, samples_viewer.live_frame(report, 1, 1), 80)[5]
    assert found.startswith(f"findings  {report.findings[0].code} {report.findings[0].severity}")
    assert len(found) <= 80
    hostile = samples_trace.hostile()
    assert all(line.isprintable() for line in block(hostile, samples_viewer.live_frame(hostile, 1, 1), 80))


def printed(report, **environment):
    screen = Screen(rows=400, columns=72)
    stream = Terminal(screen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "72")
        for name, value in environment.items():
            patch.setenv(name, value)
        terminal.print_report(report, stream)
    return stream.getvalue(), screen.lines


def test_a_terminal_gets_colours_at_its_width():
    """Codes of findings, NaN and bars are coloured; the words are those of the plain text at that width.

    Sign, word and code of a finding in one colour, wherever the code stands; a count of no NaN alarms nobody.
    """
    report = samples_trace.broken()
    text, lines = printed(report)
    assert "\x1b[" in text
    plain = terminal.views.render(report, "txt", width=72)
    assert [line for line in lines if line] == [line.rstrip() for line in plain.splitlines() if line]
    text, _ = printed(samples_tensor.SAMPLES["every_severity"])
    for words, colour in (("error    TM900", 31), ("warning  TM901", 33), ("note     TM902", 34)):
        assert re.search(rf"\x1b\[1;{colour}m[▲○]? {words}", text), words
    assert "NaN 0 · Inf 0" in text


def test_no_color_is_respected_and_a_pipe_gets_plain_text(monkeypatch):
    """https://no-color.org: the same words, without a colour; a pipe what ``print(report)`` gives, of 100 columns.

    So does a terminal where rich is not installed, and nothing is shown there while a cell runs.
    """
    text, _ = printed(samples_trace.broken(), NO_COLOR="1")
    assert not re.search(r"38;|\[31m|\[36m", text)
    report, out, stream = samples_trace.broken(), io.StringIO(), Terminal(Screen(rows=400, columns=120))
    terminal.print_report(report, out)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal.print_report(report, stream)
    assert out.getvalue() == stream.getvalue() == trace_forms.text(report) + "\n"
    monkeypatch.setattr(sys, "stderr", stream)
    assert terminal.terminal_sender() is None


def test_the_sender_shows_a_run_and_takes_itself_away(monkeypatch):
    """Nothing before the first state, six rows while it runs, nothing after."""
    screen = Screen(rows=20, columns=90)
    stream = Terminal(screen)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(BottomRows, "width", property(lambda _: 89))
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: stream.size())
    monkeypatch.setattr(stream, "fileno", lambda: 2)
    sender = terminal.terminal_sender()
    report, frame = running()
    assert stream.getvalue() == ""
    sender.document(report)
    sender.delta(frame)
    assert [line.split()[0] for line in screen.lines[-6:]] == ["──", "step", "loss", "flow", "gradients", "findings"]
    sender.close()
    assert screen.everything == []
