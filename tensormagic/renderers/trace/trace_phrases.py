"""The words and numbers of a traced run, said the same way in the terminal, the picture and the panel."""

from __future__ import annotations

import math

from tensormagic.renderers.trace.pacing_words import paced_text
from tensormagic.reports import UNTOUCHED, Kept, ParameterSeries, TraceReport
from tensormagic.words import (
    count,
    is_or_are,
    number_of_bytes,
    percent,
    plural,
    seconds_text,
    short_number,
    tidy_exponent,
)

NOT_MEASURABLE = "not measurable"

_LONG = 1.0  # seconds of a run from which on the tracer's share is told: before, it says nothing about any other run
UNTITLED = "traced run"  # what a run without a title is called
NO_BACKWARD_YET = "no backward was seen yet"
NO_BACKWARD = "no backward was seen; call .backward() on a scalar loss inside the traced code"


def touched(norm: float) -> bool:
    """Say whether a gradient came at all; NaN and infinity are gradients, and so is what could not be measured."""
    return norm != UNTOUCHED


def measured(norm: float) -> bool:
    """Say whether it is a norm: NaN and infinity are, the two numbers below zero that stand for none are not."""
    return not norm < 0


def norm_text(norm: float) -> str:
    """Return a norm in two digits, ``0.016``, ``24``, ``640``, ``3.1e−5``, ``NaN``; ``none``, ``not measurable``."""
    if not measured(norm):
        return NOT_MEASURABLE if touched(norm) else "none"
    if not math.isfinite(norm):
        return "NaN" if math.isnan(norm) else "Inf"
    above = math.nextafter(norm, math.inf) if norm else 0.0  # a tie is rounded up, as JavaScript does
    if norm == 0 or 1e-3 <= norm < 9999.5:
        return f"{above:.2g}" if norm < 99.5 else f"{above:.0f}"
    return tidy_exponent(f"{above:.1e}").replace(".0e", "e")


def bad_text(nan: int, inf: int) -> str:
    """Return ``3 NaN``, ``2 Inf`` or ``3 NaN, 2 Inf``."""
    parts = [f"{count(number)} {name}" for number, name in ((nan, "NaN"), (inf, "Inf")) if number]
    return ", ".join(parts) or "not finite"


def state_text(report: TraceReport) -> str:
    """Return the run's state in a word, with the error of a failed one."""
    return f"{report.state}: {report.error}" if report.error else report.state


def run_text(report: TraceReport) -> str:
    """Return what the run was: steps, passes, time, and the tracer's share of it."""
    if report.state == "drawn":
        return _drawn_text(report)
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    inner = plural(report.inner_passes_seen, "pass inside them", "passes inside them")
    passes += f" and {inner}" if report.inner_passes_seen else ""
    steps = f"{plural(report.steps_seen, 'step')}, " if report.steps_seen else ""
    loss = loss_text(report)
    cost = f", {paced_text(report)}" if report.pacing is not None else _overhead(report)
    return f"{steps}{passes} in {seconds_text(report.seconds)}{cost}{loss and f', {loss}'}"


def _drawn_text(report: TraceReport) -> str:
    """Return how large a graph that stands is, and what it keeps."""
    leaves = sum(node.kind == "accumulate" for node in report.nodes)
    size = f"{plural(len(report.nodes), 'node')}, {plural(leaves, 'leaf', 'leaves')}"
    return f"{size}{kept_text(report.kept) if report.kept else ''}"


def kept_text(kept: Kept) -> str:
    """Return ``, keeps 1.2 MiB in 3 storages for backward``, with the part of it that the leaves take anyway."""
    if not kept.slots:
        return ""
    of_leaves = f", {number_of_bytes(kept.leaf_bytes)} of it the leaves themselves" if kept.leaf_bytes else ""
    return f", keeps {number_of_bytes(kept.nbytes)} in {plural(kept.storages, 'storage')} for backward{of_leaves}"


def loss_text(report: TraceReport) -> str:
    """Return what backward was called on, first and last; empty where that is not one number of one line."""
    if not report.passes or len({one.location for one in report.passes}) > 1:
        return ""
    first, last = report.passes[0].value, report.passes[-1].value
    if first is None or last is None:
        return ""
    numbers = short_number(first), short_number(last)
    return f"loss {' → '.join(numbers if len(report.passes) > 1 else numbers[:1])}"


def _overhead(report: TraceReport) -> str:
    described = overhead_text(report)
    return f", {described}" if described else ""


def overhead_text(report: TraceReport) -> str:
    """Return the tracer's share of the run, ``tracing +3 %``; empty where it is not known, and of a short run."""
    rest = report.seconds - report.own_seconds
    if report.own_seconds <= 0 or rest <= 0 or report.seconds < _LONG:
        return ""
    return f"tracing +{percent(report.own_seconds, rest)}"


def all_clear(report: TraceReport) -> str:
    """Return the sentence for a run without findings; it claims no more than was looked at."""
    if report.state == "drawn" and report.kept is not None:
        return _standing(report.kept)
    if report.failure is not None:
        return f"the run ended with the call above, which torch refused{_until(report)}"
    if not report.passes_seen:
        return _no_backward(report)
    if not report.passes_traced:
        return f"none of {plural(report.passes_seen, 'backward pass', 'backward passes')} was traced"
    passes = _looked_at(report)
    if report.state == "failed":
        return f"no problems found in the gradients of {passes}; the error comes from your code"
    return f"no problems found in {passes}{' so far' if report.state == 'running' else ''}"


def _no_backward(report: TraceReport) -> str:
    """Return that no backward was seen, and what to do; where processes were forked, that nobody looked there."""
    if not report.forked:
        return NO_BACKWARD_YET if report.state == "running" else NO_BACKWARD
    were = f"{plural(report.forked, 'process was', 'processes were')} forked in this run, and"
    where = "trace inside the function that runs there, with tensormagic.trace()"
    return f"{were} {is_or_are(report.forked)} not traced from here: {where}"


def _until(report: TraceReport) -> str:
    """Return what came before the call that ended the run; where that was a backward, it is the last of the passes."""
    within = bool(report.failure and report.failure.phase == "backward") and bool(report.passes)
    if within and report.passes[-1].outcome == "failed":
        earlier = report.passes_seen - 1
        return f", in the last of {count(report.passes_seen)} backward passes" if earlier else " in the first backward"
    return f"; {_looked_at(report)} before it" if report.passes_seen else " before any backward ran"


def _looked_at(report: TraceReport) -> str:
    """Return how many passes were looked at: ``800 backward passes``, ``the 41 traced of 800 backward passes``."""
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    traced = report.passes_traced
    return passes if traced >= report.passes_seen else f"the {count(traced)} traced of {passes}"


def can_run(kept: Kept) -> bool:
    """Return whether nothing that a graph saved stands in the way of its backward."""
    return not kept.freed and not kept.changed


def _standing(kept: Kept) -> str:
    """Return whether backward can run through a graph that stands, as far as what it saved says."""
    if kept.freed:
        return "backward already ran through this graph and freed its saved tensors: it cannot run again"
    if kept.changed:
        what = "saved tensor was" if kept.changed == 1 else "saved tensors were"
        return f"backward would fail: {count(kept.changed)} {what} changed in place afterwards"
    hidden = f"; {plural(kept.unread, 'saved tensor')} could not be read" if kept.unread else ""
    return f"backward can run through this graph: no saved tensor was freed or changed{hidden}"


def last_move(series: ParameterSeries) -> float:
    """Return how far the last step of an optimizer that was measured moved a parameter; `UNTOUCHED` without one."""
    return next((ratio for ratio in reversed(series.updates) if touched(ratio)), UNTOUCHED)


def move_text(series: ParameterSeries) -> str:
    """Return the same in words: as a share of the parameter's norm; empty where no step was measured."""
    ratio = last_move(series)
    if not touched(ratio):
        return ""
    return "from all zeros" if ratio == math.inf else f"{norm_text(ratio)} of its norm"
