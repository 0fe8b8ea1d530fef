"""Precision and recall are counted rightly: by hand-made programs that say whatever a test asks for."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from tensormagic.reports import Finding, Location
from tests.corpus.cases import Case
from tests.corpus.score import Score, complaints, judge, judge_all, scores, table


def finding(code, text="", severity="warning"):
    return Finding(code, severity, f"{code} is said.", Location("a.py", 1, text))


def saying(*findings, **expected):
    """Return the verdict on a program of which this is said."""

    def run():
        return SimpleNamespace(findings=findings)

    return judge(Case(run, **expected))


def counted(*verdicts):
    (score,) = scores(verdicts, ["TM309"])
    return score.programs, score.found, score.false, score.nearly


def test_found_at_its_line():
    """Code and line must be right."""
    assert counted(saying(finding("TM309", "loss.backward()"), code="TM309", line="backward")) == (1, 1, 0, 0)


def test_found_at_another_line_is_a_miss_and_a_false_alarm():
    """A user looks at that line."""
    assert counted(saying(finding("TM309", "x = 1"), code="TM309", line="backward")) == (1, 0, 1, 0)


def test_nothing_said_is_a_miss():
    """Recall falls, precision does not."""
    assert counted(saying(code="TM309")) == (1, 0, 0, 0)


def test_said_of_another_program():
    """Above a note it is a false alarm, unless the program has that fault too."""
    other = finding("TM309")
    assert counted(saying(other)) == (0, 0, 1, 0)
    assert counted(saying(other, code="TM601")) == (0, 0, 1, 0)
    assert counted(saying(other, code="TM601", also=("TM309",))) == (0, 0, 0, 0)
    assert counted(saying(finding("TM309", severity="note"))) == (0, 0, 0, 0)


def test_a_note_is_a_false_alarm_in_a_program_that_nearly_has_the_fault():
    """There the code must say nothing at all."""
    assert counted(saying(finding("TM309", severity="note"), nearly="TM309")) == (0, 0, 1, 1)


def test_a_program_that_raises_is_told_and_missed():
    """The table goes on."""

    def broken():
        message = "no"
        raise ValueError(message)

    verdict = judge(Case(broken, code="TM309"))
    assert counted(verdict) == (1, 0, 0, 0)
    assert complaints([verdict]) == ["raised  broken: ValueError: no"]


def test_shares():
    """Recall of three in four, precision of three in five; a dash where there is nothing to divide by."""
    assert (Score("TM309", 4, 3, 2, 0).recall, Score("TM309", 4, 3, 2, 0).precision) == (0.75, 0.6)
    assert (Score("TM309", 0, 0, 0, 0).recall, Score("TM309", 0, 0, 0, 0).precision) == (None, None)


def test_the_table_and_the_complaints():
    """Every column is there, and a line for each thing that is not as it must be."""
    rows = table([Score("TM309", 4, 3, 2, 1), Score("TM310", 0, 0, 0, 0)]).splitlines()
    assert rows[0].split("  ")[0] == " code"
    assert rows[1].split() == ["TM309", "4", "3", "75", "%", "2", "60", "%", "1"]
    assert rows[2].split() == ["TM310", "0", "0", "\N{EN DASH}", "0", "\N{EN DASH}", "0"]
    assert len({len(row) for row in rows}) == 1
    told = complaints([saying(code="TM309"), saying(finding("TM601"))])
    assert told == ["missed  TM309  run", "false   TM601  run: TM601 is said."]


def test_programs_are_judged_alone():
    """What the caller of a program holds is not among the names of the running functions that it can be asked about."""
    seen = []

    def run():
        frame = sys._getframe()
        while frame is not None:
            seen.append(frame.f_code.co_name)
            frame = frame.f_back
        return SimpleNamespace(findings=())

    first, second = judge_all([Case(run), Case(run)])
    assert (first.raised, second.raised) == ("", "")
    assert "test_programs_are_judged_alone" not in seen
