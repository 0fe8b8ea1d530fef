"""Says which steps of a run were traced, in a few words and in full."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensormagic.reports import UNTOUCHED, Pace, Pacing, TraceReport
from tensormagic.words import count, percent, plural

MOST_STRETCHES = 12


def paced_text(report: TraceReport) -> str:
    """Return ``traced 41 of 800 steps (budget 5 %: cost 4.6 %)``; empty where all were to be traced."""
    pacing = report.pacing
    if pacing is None:
        return ""
    mark = "," if pacing.asked.budget is None else ":"
    cost = "" if not pacing.cost else f"{mark} cost {percent(pacing.cost)}"
    return f"traced {count(pacing.steps)} of {plural(report.steps_seen, 'step')} ({asked_text(pacing.asked)}{cost})"


def pacing_lines(report: TraceReport) -> Iterator[str]:
    """Yield sentences: which steps, what cost more than was asked for, what was left out, and what the end was."""
    pacing = report.pacing
    if pacing is None or not report.steps_seen:
        return
    if pacing.steps:
        yield f"traced: {_which(pacing)}"
    if pacing.unpaced:
        yield pacing.unpaced
    yield from _cost(pacing)
    if pacing.partial:
        yield (
            f"{plural(pacing.partial, 'step')} requested could not be traced completely: their graphs began before "
            "the first backward pass"
        )
    if report.state == "running":
        yield from _resting(report, pacing)
    else:
        yield from _end(report, pacing)


def asked_text(asked: Pace) -> str:
    """Return what was asked for: ``budget 5 %``, ``every 10``, ``steps 10 to 20``, ``steps from 10, every 5``."""
    if asked.budget is not None:
        return f"budget {percent(asked.budget)}"
    parts = [f"steps from {asked.start}" if asked.stop is None else f"steps {asked.start} to {asked.stop - 1}"]
    if asked.start == 1 and asked.stop is None:
        parts = []
    return ", ".join([*parts, f"every {asked.every}"] if asked.every > 1 else parts)


def resting_text(step: int, pacing: Pacing) -> str:
    """Return ``resting: step 312, next traced about 320``."""
    ahead = f", next traced about {count(pacing.next_step)}" if pacing.next_step else ""
    return f"paused: step {count(step)}{ahead}"


def _which(pacing: Pacing) -> str:
    """Return the traced steps as stretches; of many the first and the last ones, and how many lie between."""
    ranges = [_stretch(*ends) for ends in pacing.ranges]
    hidden = pacing.left_out
    if len(ranges) > MOST_STRETCHES:
        hidden += len(ranges) - MOST_STRETCHES
        half = MOST_STRETCHES // 2
        ranges = [*ranges[:half], *ranges[-half:]]
    elif not hidden:
        return f"{_word(pacing)} {', '.join(ranges)}{_why(pacing)}"
    half = len(ranges) // 2
    between = f"… {count(hidden)} more …"
    return f"{_word(pacing)} {', '.join([*ranges[:half], between, *ranges[half:]])}{_why(pacing)}"


def _stretch(first: int, last: int) -> str:
    return count(first) if first == last else f"{count(first)}–{count(last)}"


def _word(pacing: Pacing) -> str:
    return "step" if pacing.steps == 1 else "steps"


def _why(pacing: Pacing) -> str:
    after = pacing.after_finding
    return f"; {count(after)} of them because the step before had a finding" if after else ""


def _cost(pacing: Pacing) -> Iterator[str]:
    budget, cost = pacing.asked.budget, pacing.cost
    if budget is not None and cost is not None and cost > 1.05 * budget:
        reason = (
            f": the first step, in which every graph is new, already cost {percent(pacing.first_cost)}"
            if pacing.first_cost > budget / 2
            else ""
        )
        yield f"the budget was not kept{reason}"


def _resting(report: TraceReport, pacing: Pacing) -> Iterator[str]:
    if pacing.resting:
        yield resting_text(report.steps_seen, pacing)


def _end(report: TraceReport, pacing: Pacing) -> Iterator[str]:
    if not pacing.steps:
        yield f"no step was traced: the run had {plural(report.steps_seen, 'step')}"
    if pacing.last_traced or not pacing.steps:
        return
    there = [norm for norm in pacing.last_norms if norm != UNTOUCHED]
    finite = [norm for norm in there if 0 <= norm < math.inf]
    bad = sum(not math.isfinite(norm) for norm in there)
    last = f"the last step, {count(report.steps_seen)}, was not traced"
    if not there:
        yield f"{last}, and left no .grad"
    elif bad:
        yield f"{last}; of the .grad left at the end {count(bad)} of {count(len(there))} hold NaN or Inf"
    else:
        norm = f"{math.hypot(*finite):.3g}"
        yield f"{last}; the {count(len(there))} .grad left at the end have a total norm of {norm}"
