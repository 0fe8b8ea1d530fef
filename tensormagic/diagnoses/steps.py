"""TM309, TM310, TM607: on what gradients an optimizer steps.

Each is judged from what was seen of every step (see `tensormagic.reports.training`), and said only where it is the
habit of the loop: once may be meant, or an experiment.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.phrases import scientific
from tensormagic.reports import Accumulation, Finding, OptimizerUse, RelatedLine, StepKind, StepPattern, TraceReport
from tensormagic.reports.finding import Scalar
from tensormagic.words import count, plural

IN_A_ROW = 2  # steps; a single one may be meant
MOSTLY = 2  # times as many backward passes cleared as used: two optimizers that share a line clear one for each used


def _users(report: TraceReport) -> Iterator[OptimizerUse]:
    if report.training is not None:
        yield from report.training.optimizers
        if report.training.by_hand is not None:
            yield report.training.by_hand


def _of_kind(use: OptimizerUse, kind: StepKind) -> list[StepPattern]:
    return [pattern for pattern in use.patterns if pattern.kind == kind]


def _total(patterns: list[StepPattern]) -> int:
    return sum(pattern.count for pattern in patterns)


def _most(patterns: list[StepPattern]) -> StepPattern:
    return max(patterns, key=lambda pattern: pattern.count)


def _in_a_row(patterns: list[StepPattern]) -> bool:
    """Return whether at least `IN_A_ROW` of these steps followed one another, also where they are of two patterns."""
    if any(pattern.longest >= IN_A_ROW for pattern in patterns):
        return True
    ends = {step for pattern in patterns for step in (pattern.first, pattern.last)}
    return any(step + 1 in ends for step in ends)


def _related(report: TraceReport, *lines: tuple[str, int | None]) -> tuple[RelatedLine, ...]:
    places = ((what, report.location(line)) for what, line in lines)
    return tuple(RelatedLine(what, place) for what, place in places if place is not None)


def _evidence(use: OptimizerUse, patterns: list[StepPattern]) -> dict[str, Scalar]:
    return {"steps": use.steps, "of these": _total(patterns), "first": min(pattern.first for pattern in patterns)}


def _called(use: OptimizerUse) -> str:
    return use.name if use.name.isidentifier() and use.name != use.type_name else "optimizer"


def _steps(number: int, use: OptimizerUse) -> str:
    """Return ``"in all 6 steps"`` or ``"in 5 of its 6 steps"``."""
    if number < use.steps:
        return f"in {count(number)} of its {plural(use.steps, 'step')}"
    return {1: "in its one step", 2: "in both of its steps"}.get(number, f"in all of its {count(number)} steps")


# -- TM309 --------------------------------------------------------------------------------------------------------


def accumulated(report: TraceReport) -> Iterator[Finding]:
    """TM309: steps in a row used gradients in which a backward had added to what an earlier step used already."""
    for use in _users(report):
        patterns = _of_kind(use, "accumulated")
        if patterns and _in_a_row(patterns):
            yield _accumulated(report, use, patterns)


def _accumulated(report: TraceReport, use: OptimizerUse, patterns: list[StepPattern]) -> Finding:
    most, times = _most(patterns), _total(patterns)
    backward, step = report.location(most.backward), report.location(most.location)
    grown = _grown(report, use.accumulation)
    if use.name:
        message = (
            f"{use.name} steps on gradients that were not zeroed: {_steps(times, use)}, they included what an "
            f"earlier step had already used{grown}."
        )
        remedy = f"Zero them once per step, before the backward: `{_called(use)}.zero_grad()`"
    else:
        name = _leaf(report, use)
        message = (
            f"{name}.grad is not zeroed between updates: in {count(times)} of {plural(use.steps, 'update')}, it "
            f"included what an earlier update had already used{grown}."
        )
        remedy = f"Clear it after each update: `{name}.grad = None`"
    return Finding(
        code="TM309",
        severity="warning",
        message=message,
        location=step or backward,
        evidence=_evidence(use, patterns),
        remedy=remedy,
        subject=use.name or _leaf(report, use),
        related=_related(report, ("accumulates here", most.backward)) if step else (),
    )


def _grown(report: TraceReport, found: Accumulation | None) -> str:
    if found is None:
        return ""
    name = "a parameter" if found.parameter is None else report.parameters[found.parameter].name
    brought = "" if found.brought is None else f", the last pass alone gave {scientific(found.brought)}"
    if found.last_norm > found.first_norm:
        norms = f"grew from {scientific(found.first_norm)} to {scientific(found.last_norm)}"
        return f"; the norm of {name}.grad {norms}{brought}"
    return f"; {name}.grad has a norm of {scientific(found.last_norm)}{brought}"


def _leaf(report: TraceReport, use: OptimizerUse) -> str:
    found = use.accumulation.parameter if use.accumulation is not None else None
    number = found if found is not None else next(iter(use.holds), None)
    return "w" if number is None else report.parameters[number].name


# -- TM310 --------------------------------------------------------------------------------------------------------


def emptied(report: TraceReport) -> Iterator[Finding]:
    """TM310: what a backward brought was cleared before the step could use it: in steps in a row, or in every one."""
    for use in report.training.optimizers if report.training is not None else ():
        patterns = _of_kind(use, "emptied")
        if patterns and (_in_a_row(patterns) or _total(patterns) == use.steps):
            yield _emptied(report, use, patterns)
        used = sum(one.count for one in _of_kind(use, "fresh") if one.backward == use.discarded_at)
        if use.discarded_at is not None and used >= IN_A_ROW and use.discarded >= MOSTLY * used:
            yield _discarded(report, use, used)


def _discarded(report: TraceReport, use: OptimizerUse, used: int) -> Finding:
    step = next(one.location for one in use.patterns if one.kind == "fresh")
    return Finding(
        code="TM310",
        severity="warning",
        message=f"{use.name} used {count(used)} of {count(use.discarded + used)} backward passes that were followed: "
        "the gradients of the others were cleared before a step used them.",
        location=report.location(use.discarded_at),
        evidence={"steps": use.steps, "passes cleared": use.discarded, "passes used": used},
        remedy="To add up the gradients of several batches, clear them after the step, and not before each backward: "
        f"`{_called(use)}.step(); {_called(use)}.zero_grad()`; to learn from each batch, step after each backward.",
        subject=use.name,
        related=_related(report, ("steps on the last of them", step)),
    )


def _emptied(report: TraceReport, use: OptimizerUse, patterns: list[StepPattern]) -> Finding:
    most, times = _most(patterns), _total(patterns)
    always = times == use.steps
    cleared = report.location(most.cleared)
    return Finding(
        code="TM310",
        severity="error" if always else "warning",
        message=f"{use.name} steps without gradients, {_steps(times, use)}: they were "
        f"zeroed between the backward and the step{', so nothing is learned' if always else ''}.",
        location=cleared or report.location(most.location),
        evidence=_evidence(use, patterns),
        remedy=f"Clear before the backward, not after it: `{_called(use)}.zero_grad(); loss.backward(); "
        f"{_called(use)}.step()`",
        subject=use.name,
        related=_related(
            report,
            ("brings the gradients", most.backward),
            *((("steps without them", most.location),) if cleared is not None else ()),
        ),
    )


# -- TM607 --------------------------------------------------------------------------------------------------------


def without_backward(report: TraceReport) -> Iterator[Finding]:
    """TM607: an optimizer stepped again on the same gradients, or a training in which backward is never called."""
    for use in report.training.optimizers if report.training is not None else ():
        repeated, without = _of_kind(use, "repeated"), _of_kind(use, "without")
        if _total(repeated) >= IN_A_ROW or (repeated and _total(repeated) * 2 >= use.steps):
            yield _repeated(report, use, repeated)
        if use.steps == _total(without) >= IN_A_ROW and not report.passes_seen:
            yield _without(report, use, without)


def _repeated(report: TraceReport, use: OptimizerUse, patterns: list[StepPattern]) -> Finding:
    most, times = _most(patterns), _total(patterns)
    before = next((one.location for one in use.patterns if one.first == most.first - 1), None)
    again = "once" if times == 1 else f"{count(times)} times"
    return Finding(
        code="TM607",
        severity="warning",
        message=f"{use.name} stepped again on the same gradients, {again} in {plural(use.steps, 'step')}: no backward "
        "ran since the step before.",
        location=report.location(most.location),
        evidence=_evidence(use, patterns),
        remedy=f"Step once for each backward: leave out the second `{_called(use)}.step()`"
        if before != most.location
        else f"Step once for each backward: `loss.backward(); {_called(use)}.step()`",
        subject=use.name,
        related=_related(report, ("the step before", before)) if before != most.location else (),
    )


def _without(report: TraceReport, use: OptimizerUse, patterns: list[StepPattern]) -> Finding:
    return Finding(
        code="TM607",
        severity="error",
        message=f"{use.name} stepped {count(use.steps)} times, and no backward has run: there are no gradients, so "
        "nothing is learned.",
        location=report.location(_most(patterns).location),
        evidence=_evidence(use, patterns),
        remedy=f"Call backward before the step: `loss.backward(); {_called(use)}.step()`",
        subject=use.name,
    )
