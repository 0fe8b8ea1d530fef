"""TM309, TM310, TM315, TM607, TM616 to TM619, TM625, TM703: what an optimizer steps on, and what comes of it.

Each is judged from what was seen of every step (see `tensormagic.reports.training`), and said only where it is the
habit of the loop: once may be meant, or an experiment.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from tensormagic.diagnoses.lines import (
    LONGEST,
    NO_GRAD,
    as_code,
    call_on,
    statement_of,
    text_of,
    update_by_hand,
)
from tensormagic.diagnoses.rule import (
    IN_A_ROW,
    grouped,
    held_by,
    in_steps,
    observed,
    optimizer_code,
    optimizers_of,
    related_lines,
    scientific,
    training_of,
    updaters_of,
)
from tensormagic.reports import (
    Accumulation,
    Clipping,
    Finding,
    Observation,
    OptimizerUse,
    ParameterSeries,
    StepKind,
    StepPattern,
    TraceReport,
)
from tensormagic.reports.base import Scalar
from tensormagic.words import count, is_or_are, listed, percent, plural

MOSTLY = 2  # times as many backward passes cleared as used: two optimizers that share a line clear one for each used


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


def _evidence(use: OptimizerUse, patterns: list[StepPattern]) -> dict[str, Scalar]:
    return {"steps": use.steps, "of these": _total(patterns), "first": min(pattern.first for pattern in patterns)}


def accumulated(report: TraceReport) -> Iterator[Finding]:
    """TM309: steps in a row used gradients in which a backward had added to what an earlier step used already."""
    told: set[tuple[str, int | None, int | None]] = set()
    for use in (one for one in updaters_of(report) if not one.follows):  # an average uses no gradient
        patterns = _of_kind(use, "accumulated")
        if not patterns or not (_in_a_row(patterns) or use.type_name == "LBFGS"):  # whose steps are loops themselves
            continue
        if (found := use.accumulation) and math.isclose(found.last_norm, found.last_pass_norm or 0.0, rel_tol=1e-3):
            continue  # it was replaced by what the last pass alone brought
        most, times = _most(patterns), _total(patterns)
        if (use.name, most.location, most.backward) in told:
            continue  # the optimizer of another round
        told.add((use.name, most.location, most.backward))
        grown = use.accumulation.parameter if use.accumulation is not None else None
        number = grown if grown is not None else next(iter(use.holds), None)
        leaf = "w" if number is None else report.parameters[number].name
        backward, step = report.location(most.backward), report.location(most.location)
        earlier = "an earlier step had already used"
        remedy = f"Zero them once per step, before the backward: `{optimizer_code(use, step)}.zero_grad()`"
        call = call_on(text_of(step), "step")
        if call is not None and (call.args or call.keywords) and "scaler" not in ast.unparse(call.func):  # a closure
            earlier = "an earlier call of the closure had brought"
            remedy = f"A step calls its closure several times: begin it with `{optimizer_code(use)}.zero_grad()`"
        message = (
            f"{use.name} steps on gradients that were not zeroed: {in_steps(times, use.steps)}, they included what "
            f"{earlier}"
        )
        if not use.name:  # an update by hand
            message = (
                f"{leaf}.grad is not zeroed between updates: in {count(times)} of {plural(use.steps, 'update')}, it "
                "included what an earlier update had already used"
            )
            remedy = f"Clear it after each update: `{as_code(leaf)}.grad = None`"
        yield Finding(
            code="TM309",
            severity="warning",
            message=f"{message}{_grown(report, use.accumulation)}.",
            location=step or backward,
            evidence=_evidence(use, patterns),
            remedy=remedy,
            subject=use.name or leaf,
            related=related_lines(("accumulates here", backward if step else None)),
        )


def _grown(report: TraceReport, found: Accumulation | None) -> str:
    if found is None:
        return ""
    name = "a parameter" if found.parameter is None else report.parameters[found.parameter].name
    brought = "" if found.last_pass_norm is None else f", the last pass alone gave {scientific(found.last_pass_norm)}"
    if found.last_norm > found.first_norm:
        norms = f"grew from {scientific(found.first_norm)} to {scientific(found.last_norm)}"
        return f"; the norm of {name}.grad {norms}{brought}"
    return f"; {name}.grad has a norm of {scientific(found.last_norm)}{brought}"


def emptied(report: TraceReport) -> Iterator[Finding]:
    """TM310: what a backward brought was cleared before the step could use it: in steps in a row, or in every one."""
    for use in optimizers_of(report):
        patterns, optimizer = _of_kind(use, "emptied"), optimizer_code(use)
        always = _total(patterns) == use.steps
        if patterns and (_in_a_row(patterns) or always):
            most = _most(patterns)
            cleared, step = report.location(most.cleared), report.location(most.location)
            yield Finding(
                code="TM310",
                severity="error" if always else "warning",
                message=f"{use.name} steps without gradients, {in_steps(_total(patterns), use.steps)}: they were "
                f"zeroed between the backward and the step{', so nothing is learned' if always else ''}.",
                location=cleared or step,
                evidence=_evidence(use, patterns),
                remedy=f"Clear before the backward, not after it: `{optimizer}.zero_grad(); loss.backward(); "
                f"{optimizer}.step()`",
                subject=use.name,
                related=related_lines(
                    ("brings the gradients", report.location(most.backward)),
                    ("steps without them", step if cleared is not None else None),
                ),
            )
        fresh = _of_kind(use, "fresh")
        used = sum(one.count for one in fresh if one.backward == use.discarded_at)
        since = used - 1 if used > IN_A_ROW else used  # what was cleared before the first step was not seen
        if use.discarded_at is not None and used >= IN_A_ROW and use.discarded >= MOSTLY * since:
            yield Finding(
                code="TM310",
                severity="warning",
                message=f"{use.name} used {count(used)} of {count(use.discarded + used)} backward passes that were "
                "followed: the gradients of the others were cleared before a step used them.",
                location=report.location(use.discarded_at),
                evidence={"steps": use.steps, "passes cleared": use.discarded, "passes used": used},
                remedy="To add up the gradients of several batches, clear them after the step, and not before each "
                f"backward: `{optimizer}.step(); {optimizer}.zero_grad()`; to learn from each batch, step after each "
                "backward.",
                subject=use.name,
                related=related_lines(("steps on the last of them", report.location(fresh[0].location))),
            )


def without_backward(report: TraceReport) -> Iterator[Finding]:
    """TM607: an optimizer stepped again on the same gradients, or a training in which backward is never called."""
    for use in optimizers_of(report):
        repeated, without, optimizer = _of_kind(use, "repeated"), _of_kind(use, "without"), optimizer_code(use)
        times = _total(repeated)
        if times >= IN_A_ROW or (repeated and times * 2 >= use.steps):
            most = _most(repeated)
            here = report.location(most.location)
            before = next((one.location for one in use.patterns if one.first == most.first - 1), None)
            instead = f"`loss.backward(); {optimizer}.step()`"
            if before != most.location:
                instead = f"leave out the second `{optimizer}.step()`"
            again = "once" if times == 1 else f"{count(times)} times"
            yield Finding(
                code="TM607",
                severity="warning",
                message=f"{use.name} stepped again on the same gradients, {again} in {plural(use.steps, 'step')}: no "
                "backward ran since the step before.",
                location=here,
                evidence=_evidence(use, repeated),
                remedy=f"Step once for each backward: {instead}",
                subject=use.name,
                related=related_lines(("the step before", report.location(before)), besides=here),
            )
        if use.steps == _total(without) >= IN_A_ROW and not report.passes_seen:
            yield Finding(
                code="TM607",
                severity="error",
                message=f"{use.name} stepped {count(use.steps)} times, and no backward has run: there are no "
                "gradients, so nothing is learned.",
                location=report.location(_most(without).location),
                evidence=_evidence(use, without),
                remedy=f"Call backward before the step: `loss.backward(); {optimizer}.step()`",
                subject=use.name,
            )


FEWEST_ANEW = 4  # optimizers that were made at one line for the same parameters
_WITHOUT_STATE = frozenset({"SGD", "LBFGS"})  # or without any that is to be kept


def made_anew(report: TraceReport) -> Iterator[Finding]:
    """TM616: optimizers for the same parameters that stepped at one line, one after another: their state is lost.

    A note for SGD, which has a state only with momentum, and where each made several steps: rounds may be meant.
    """
    on_one_line = (
        use for use in optimizers_of(report) if use.holds and len({one.location for one in use.patterns}) == 1
    )
    groups = grouped(on_one_line, lambda use: (use.type_name, use.patterns[0].location, use.holds))
    for (kind, line, holds), uses in groups.items():
        once, same = all(use.steps == 1 for use in uses), sum(use.again for use in uses) >= len(uses) - 1
        if len(uses) >= FEWEST_ANEW and same and (kind not in _WITHOUT_STATE or (once and kind == "SGD")):
            yield Finding(
                code="TM616",
                severity="note" if kind in _WITHOUT_STATE or not once else "warning",
                message=f"{count(len(uses))} {kind} optimizers of the same {plural(len(holds), 'parameter')} made "
                f"{'one step each' if once else 'a few steps each, one after another'}: what an optimizer remembers of "
                "earlier steps (momentum, averages, the number of the step) is lost every time.",
                location=report.location(line),
                evidence={"optimizers": len(uses), "parameters": len(holds)},
                remedy="Make it once, before the loop: "
                f"`{optimizer_code(uses[0], report.location(line))} = torch.optim.{kind}(…)`",
                subject=uses[0].name,
            )


FEWEST_MEASURED = 3
MOST_LOST, MUCH_LOST = 0.95, 0.6  # of the elements with a gradient: proven, worth a note
LEAST_SHARE = 0.1  # of the steps


def parameters_not_updating(report: TraceReport) -> Iterator[Finding]:
    """TM617: steps that come to nothing: no learning rate, updates rounded away, or an update of a name alone."""
    for gone in observed(report, "update lost"):
        if update := update_by_hand(gone.detail, of_leaf=gone.op == "step"):
            yield Finding(
                code="TM617",
                severity="warning",
                message=f"This update changes nothing: it gives the name {update.name} to a new tensor, and the "
                "parameter keeps its values.",
                location=report.location(gone.location),
                evidence={"updates": gone.calls},
                remedy=f"Change the parameter in place: `{update.in_place}`.",
                subject=update.name,
            )
    told = {gone.location for gone in observed(report, "update lost")}
    for gone in observed(report, "change lost"):
        if gone.location not in told:
            told.add(gone.location)
            yield _change_lost(report, gone)
    for use in optimizers_of(report):
        if use.rate == 0 and use.steps >= FEWEST_MEASURED:
            yield Finding(
                code="TM617",
                severity="warning",
                message=f"The {plural(use.steps, 'step')} of {use.name} changed nothing: its learning rate is 0.",
                location=report.location(use.patterns[-1].location) if use.patterns else None,
                evidence={"steps": use.steps, "largest rate": 0.0},
                remedy="A scheduler that warms up from 0 is stepped after each step of the optimizer: "
                "`scheduler.step()`; if it is, check the factor that it gives. Without one, give the optimizer "
                "a rate: `lr=1e-3`.",
                subject=use.name,
            )
        elif use.rate and use.zero_rate_steps >= FEWEST_MEASURED and use.zero_rate_steps >= LEAST_SHARE * use.steps:
            yield Finding(
                code="TM617",
                severity="warning",
                message=f"The last {count(use.zero_rate_steps)} of {plural(use.steps, 'step')} of {use.name} changed "
                f"nothing: its learning rate has fallen from {scientific(use.rate or 0)} to (almost) zero.",
                location=report.location(use.patterns[-1].location) if use.patterns else None,
                evidence={"steps": use.steps, "without a rate": use.zero_rate_steps, "largest rate": use.rate or 0.0},
                remedy="A scheduler that counts epochs is stepped once an epoch, outside the loop over the batches: "
                "`scheduler.step()`; give one that counts steps their real number.",
                subject=use.name,
            )
        elif use.rate:
            # Measured twice at least: the first may be an update of a rate that warms up.
            measured = (one for one in held_by(report, use) if sum(update >= 0 for update in one.updates) > 1)
            lost = [one for one in measured if one.lost >= MUCH_LOST]
            if lost:
                yield _rounded_away(report, use, lost)


def _change_lost(report: TraceReport, gone: Observation) -> Finding:
    """Return the finding about a change that makes a new tensor: it is bound to a name, or to none."""
    update = update_by_hand(gone.detail, of_leaf=True)
    mode, code = (NO_GRAD, gone.detail.removeprefix(NO_GRAD)) if gone.detail.startswith(NO_GRAD) else ("", gone.detail)
    statement = statement_of(code)
    if isinstance(statement, ast.Assign):
        name = ast.unparse(statement.targets[0])
        says = f"it gives the name {name} to a new tensor, and the parameter"
        in_place = f"{mode}{name}.copy_({ast.unparse(statement.value)})"
    else:
        name = update.name if update is not None else ""
        says, in_place = f"{gone.op} makes a new tensor, which nothing uses, and {name or 'the parameter'}", ""
    whole = update.in_place if update is not None else in_place
    what = "gradient" if name.removesuffix(".data").endswith(".grad") else "parameter"
    return Finding(
        code="TM617",
        severity="warning",
        message=f"This line changes nothing: {says} keeps its values.",
        location=report.location(gone.location),
        evidence={"calls": gone.calls},
        remedy=f"Change the {what} in place: `{whole or gone.op + '_(…)'}`.",
        subject=name,
    )


_DIGITS = {"bfloat16": "8", "float16": "11"}


def _rounded_away(report: TraceReport, use: OptimizerUse, lost: list[ParameterSeries]) -> Finding:
    share = sum(series.lost * series.numel for series in lost) / sum(series.numel for series in lost)
    names, dtype = [series.name for series in lost], lost[0].dtype
    more = f" and {count(len(names) - 2)} more" if len(names) > 2 else ""
    return Finding(
        code="TM617",
        severity="warning" if share >= MOST_LOST else "note",
        message=f"{percent(share)} of what the steps of {use.name} should have changed in {listed(names[:2])}{more} "
        f"stayed as it was: {dtype} keeps {_DIGITS.get(dtype, 'few')} binary digits, and the updates are below half of "
        "the last one.",
        location=report.location(use.patterns[-1].location) if use.patterns else None,
        evidence={series.name: round(series.lost, 4) for series in lost[:8]},
        remedy="Keep the weights in float32 and calculate in half precision: "
        f"`with torch.autocast(device_type, dtype=torch.{dtype}): …`",
        subject=names[0],
    )


def clipping_without_effect(report: TraceReport) -> Iterator[Finding]:
    """TM618: `clip_grad_norm_` after the step, before there are gradients, or of a generator that is used up."""
    uses = optimizers_of(report)
    optimizer = optimizer_code(uses[0]) if len(uses) == 1 else "optimizer"
    for clip in training_of(report).clips:
        place = report.location(clip.location)
        call = call_on(text_of(place), "clip_grad_norm_")
        text = ast.unparse(call) if call is not None else ""
        found = _clip(clip, text if 0 < len(text) < LONGEST else "torch.nn.utils.clip_grad_norm_(…)", optimizer)
        if found is not None:
            times, says, remedy = found
            of = f"all of its {count(clip.calls)} calls"
            if times < clip.calls:
                of = f"{count(times)} of {plural(clip.calls, 'call')}"
            yield Finding(
                code="TM618",
                severity="warning",
                message=f"clip_grad_norm_ {says.format(of=of)}.",
                location=place,
                evidence={name: getattr(clip, name) for name in ("calls", "late", "empty", "exhausted", "scaled")},
                remedy=remedy,
                subject="clip_grad_norm_",
            )


_NOTHING = "clipped nothing in {of}"
_STILL_SCALED = (
    "was given gradients with the GradScaler's factor in {of}: it clips as if they were that much larger, and "
    "`scaler.step` divides by the factor afterwards"
)


def _clip(clip: Clipping, call: str, optimizer: str) -> tuple[int, str, str] | None:
    between = f"Clip between the backward and the step: `loss.backward(); {call}; {optimizer}.step()`"
    if clip.exhausted:
        why = f"{_NOTHING}: it was given a generator that was used up, so no parameter at all"
        return clip.exhausted, why, "Pass the parameters again in each call, or keep a list of them: `list(…)`"
    if clip.late == clip.calls >= IN_A_ROW:
        why = f"{_NOTHING}: the optimizer had used the gradients already, and no backward ran since"
        return clip.late, why, between
    if clip.empty == clip.calls >= IN_A_ROW:
        return clip.empty, f"{_NOTHING}: no parameter had a gradient then", between
    if clip.scaled >= max(IN_A_ROW, clip.calls - 1):  # of several scalers, each is known from its first step on
        return clip.scaled, _STILL_SCALED, f"Unscale before: `scaler.unscale_({optimizer})`, and then clip"
    return None


def scaled_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM625: a loss was scaled by a GradScaler, and the optimizer stepped by itself: its gradients are too large."""
    for use in optimizers_of(report):
        if use.scaled:
            step = _most([one for one in use.patterns if one.kind == "fresh"] or list(use.patterns))
            backward, optimizer = report.location(step.backward), optimizer_code(use)
            yield Finding(
                code="TM625",
                severity="warning",
                message=f"{count(use.scaled)} of {plural(use.steps, 'step')} of {use.name} used gradients that are "
                "too large by the GradScaler's factor: the loss was scaled, and nothing unscaled them before the step.",
                location=report.location(step.location),
                evidence={"steps": use.steps, "scaled": use.scaled},
                remedy=f"Let the scaler step, which unscales first: `scaler.step({optimizer}); scaler.update()`",
                subject=use.name,
                related=related_lines(("scaled here", backward), besides=report.location(step.location)),
            )


def graphed_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM315: every step used gradients with a graph of their own, through which nothing went: `create_graph` left in.

    Who needs it differentiates again, which is another backward pass.
    """
    by_hand = training_of(report).by_hand
    uses = optimizers_of(report) or ((by_hand,) if by_hand is not None else ())
    if not uses or report.inner_passes_seen:
        return
    use, steps = uses[0], max(one.steps for one in uses)
    always = all(one.graphed >= one.steps >= FEWEST_MEASURED for one in uses)
    if always and report.passes_seen <= steps + (use is by_hand):  # an update by hand is seen by the next pass
        backward = next((one.backward for one in use.patterns if one.backward is not None), None)
        whose = f"{count(use.steps)} steps of {use.name}"
        if use is by_hand:
            whose = f"{count(use.graphed)} backward passes"
        yield Finding(
            code="TM315",
            severity="warning",
            message=f"The gradients of all {whose} keep a graph of their own, and "
            "nothing differentiates them again: a whole pass stays in memory in a reference cycle.",
            location=report.location(backward if backward is not None else use.patterns[0].location),
            evidence={"steps": use.steps, "passes": report.passes_seen},
            remedy="Leave out `create_graph=True`; where second derivatives are needed, use `torch.autograd.grad`.",
            subject=use.name,
        )


def drifting_norms(report: TraceReport) -> Iterator[Finding]:
    """TM619: batch normalisations whose weights are frozen take statistics from the training's batches: a note."""
    training = training_of(report)
    if not training.optimizers and not training.by_hand:
        return
    frozen = {series.name for series in report.parameters if not series.requires_grad and not series.touched}
    norms = [norm for norm in training.drifting if f"{norm.module}.weight" in frozen and norm.batches > 1]
    if norms:
        owner = norms[0].module.partition(".")[0]
        step = training.optimizers[0].patterns[0].location if training.optimizers else None
        what = f"{plural(len(norms), 'batch normalisation')} of {owner} {is_or_are(len(norms))} frozen"
        yield Finding(
            code="TM619",
            severity="note",
            message=f"{what} and in train mode: the weights stay, and the running statistics follow "
            f"{plural(norms[0].batches, 'batch', 'batches')}.",
            location=report.location(step),
            evidence={norm.module: norm.batches for norm in norms[:8]},
            remedy="If all of it is to stay as it is, put the frozen part into eval mode after each "
            f"`{owner}.train()`: `{as_code(norms[0].module)}.eval()`",
            subject=norms[0].module,
        )


# TM703: random numbers that come again.

FEWEST_STATES = 2  # one may be put back on purpose, around something else that draws


def same_numbers_again(report: TraceReport) -> Iterator[Finding]:
    """TM703: the generator's states come back while one optimizer goes on: a note, for it may be meant."""
    for use in optimizers_of(report):
        if use.repeated >= FEWEST_STATES:
            yield Finding(
                code="TM703",
                severity="note",
                message=f"From step {count(use.repeated_at)} of {use.name} on, torch's random numbers are those from "
                f"step {count(use.repeated_of)} on again: the generator was seeded again in the training, so dropout, "
                "noise and shuffling repeat.",
                location=report.location(use.patterns[0].location) if use.patterns else None,
                evidence={"states that came back": use.repeated, "steps": use.steps},
                remedy="Seed once, before the training: `torch.manual_seed(0)` outside the loop.",
                subject=use.name,
            )
