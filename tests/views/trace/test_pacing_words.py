"""Which steps were traced, in words: short in the header, in full below it."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

import pytest

from tensormagic.reports import UNTOUCHED, Pace
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels.trace_words import all_clear, asked_text, paced_text, pacing_lines, run_text, verdict
from tests.views import samples_trace as samples


def with_pacing(**changes):
    whole = samples.paced()
    return replace(whole, pacing=replace(whole.pacing, **changes))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Pace(budget=0.05), "budget 5 %"),
        (Pace(every=10), "every 10"),
        (Pace(start=10, stop=21), "steps 10 to 20"),
        (Pace(start=10, every=3), "steps from 10, every 3"),
        (Pace(stop=4), "steps 1 to 3"),
    ],
)
def test_what_was_asked_for(asked, text):
    """As a user would say it: the last step that is traced, not the first that is not."""
    assert asked_text(asked) == text


def test_the_header_says_how_many_of_how_many_and_the_cost():
    """Beside the share that was asked for; a run without pacing says what tracing cost as ever."""
    assert "traced 41 of 800 steps (budget 5 %: cost 4.6 %)" in run_text(samples.paced())
    assert paced_text(samples.report()) == ""
    assert "tracing +" in run_text(samples.report())


def test_which_steps_and_why():
    """Of many stretches the first and the last ones; how many were traced because of a finding."""
    first, *rest = pacing_lines(samples.paced())
    assert first == (
        "traced: steps 1, 20, 39, 58, 77, 96, … 29 more …, 666, 685, 704, 723, 742, 761; 3 of them because the step "
        "before had a finding"
    )
    assert rest == ["the last step, 800, was not traced; the 8 .grad left at the end have a total norm of 0.849"]


def test_few_stretches_are_told_in_full():
    """One step, and stretches of several."""
    lines = list(pacing_lines(with_pacing(ranges=((1, 1), (7, 12)), steps=7, after_finding=0, last_traced=True)))
    assert lines == ["traced: steps 1, 7–12"]


def test_a_budget_that_was_not_kept_is_said():
    """With the reason, where it was the first step."""
    lines = list(pacing_lines(with_pacing(cost=0.081, first_cost=0.07)))
    assert "the budget was not kept: the first step, in which every graph is new, already cost 7 %" in lines
    assert "the budget was not kept" in list(pacing_lines(with_pacing(cost=0.081, first_cost=0.001)))


def test_the_last_step_by_what_it_left():
    """Nothing, or gradients that hold NaN."""
    none, bad = array("f", [UNTOUCHED] * 2), array("f", [math.nan, 1.0, UNTOUCHED])
    assert list(pacing_lines(with_pacing(last_norms=none)))[-1] == (
        "the last step, 800, was not traced, and left no .grad"
    )
    assert list(pacing_lines(with_pacing(last_norms=bad)))[-1] == (
        "the last step, 800, was not traced; of the .grad left at the end 1 of 2 hold NaN or Inf"
    )


def test_while_it_rests():
    """How far the run has come, and about where it is traced again."""
    resting = replace(with_pacing(resting=True, next_step=830), state="running")
    assert list(pacing_lines(resting))[-1] == "paused: step 800, next traced about 830"


def test_no_more_is_claimed_than_was_looked_at():
    """No problems were found in the traced passes; where there were none, that is said."""
    assert all_clear(samples.paced()) == "no problems found in the 41 traced of 800 backward passes"
    assert all_clear(with_pacing(passes=0)) == "none of 800 backward passes was traced"


def test_the_viewer_is_told():
    """The words, how many passes were traced, and while the tracer rests the next step."""
    document = trace_document(samples.paced())
    assert document["cost"] == "traced 41 of 800 steps (budget 5 %: cost 4.6 %)"
    assert (document["passes_traced"], document["passes_seen"], document["rest"]) == (41, 800, -1)
    running = replace(with_pacing(resting=True, next_step=830), state="running")
    assert trace_document(running)["rest"] == 830
    assert trace_document(samples.report())["cost"] == "tracing +4.2 %"


def test_the_viewer_is_given_its_verdict():
    """What is said first of a run that has ended, ready; nothing while it runs, or where a finding says it."""
    calm = "no problems found in 40 backward passes"
    kind, words, error, more = verdict(samples.report())
    assert (kind, words, error) == ("healthy", calm, "")
    assert more == "23 nodes checked, parameter norms from 7.2e−5 to 0.11"
    assert "23 nodes checked, 2 cuts, " in verdict(samples.cuts())[3]
    dead = replace(samples.report().parameters[0], norms=(0.0,))
    more = verdict(replace(samples.report(), parameters=(dead, *samples.report().parameters[1:])))[3]
    assert more.endswith(f", 1 of {len(samples.report().parameters)} parameters got a gradient of zero")
    assert verdict(samples.broken()) is None
    assert verdict(replace(samples.report(), state="running")) is None
    note = replace(samples.broken().findings[0], severity="note")
    assert verdict(replace(samples.broken(), findings=(note,)))[1].startswith("1 note, no errors or warnings in ")
    failed = verdict(samples.failed())
    assert failed[:3] == ("failed", "the cell failed", "ValueError: expected 10 classes, got 11")
    assert verdict(replace(samples.failed(), passes_seen=0))[3] == "before any backward"
    assert verdict(samples.empty())[0] == "nothing"
