"""TM606: a model is trained in the mode that is meant for evaluation, or evaluated in that meant for training."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.reports import Finding, Location, ModelMode, TraceReport, UntrainedNorm
from tensormagic.words import count, plural

FEWEST_STEPS = 2  # in a row
FEWEST_BATCHES = 3  # in a row: samples that are drawn now and then, and pairs of views, are fewer


def wrong_mode(report: TraceReport) -> Iterator[Finding]:
    """TM606: trained in the mode for evaluation, or evaluated in the mode for training."""
    yield from _trained_in_eval_mode(report)
    yield from _evaluated_in_train_mode(report)


def _trained_in_eval_mode(report: TraceReport) -> Iterator[Finding]:
    """Yield the models that an optimizer steps while all their dropouts and normalisations are in eval mode.

    A model that is in train mode itself, and of which parts are in eval mode, is left alone: that is how a backbone or
    its normalisations are frozen. The whole model in eval mode from the first step on, with statistics that an earlier
    training has left, may be meant so: a note.
    """
    for mode in report.training.modes if report.training is not None else ():
        if mode.longest >= FEWEST_STEPS:
            yield _finding(report, mode)


def _finding(report: TraceReport, mode: ModelMode) -> Finding:
    always = mode.eval_steps == mode.steps
    kept = mode.norms > mode.unused_norms
    return Finding(
        code="TM606",
        severity="note" if always and kept else "warning",
        message=f"{mode.model} is trained in eval mode, {_when(mode)}: {_effect(mode)}.",
        location=_step_line(report, mode),
        evidence={"steps": mode.steps, "in eval mode": mode.eval_steps, "dropouts": mode.dropouts, "norms": mode.norms},
        remedy=f"Go back to train mode before training, and after each evaluation: `{mode.model}.train()`",
        subject=mode.model,
    )


def _when(mode: ModelMode) -> str:
    if mode.eval_steps == mode.steps:
        return f"in all of its {count(mode.steps)} steps" if mode.steps > FEWEST_STEPS else "in both of its steps"
    return f"in {count(mode.eval_steps)} of its {count(mode.steps)} steps, from step {count(mode.first)} on"


def _effect(mode: ModelMode) -> str:
    told = []
    if mode.dropouts:
        told.append(f"{plural(mode.dropouts, 'dropout')} {'does' if mode.dropouts == 1 else 'do'} nothing")
    if mode.norms:
        what = plural(mode.norms, "batch normalisation")
        verb = "uses" if mode.norms == 1 else "use"
        fresh = ", which have never seen a batch" if mode.unused_norms == mode.norms else ""
        told.append(f"{what} {verb} running statistics instead of the batch{fresh}")
    return ", and ".join(told)


def _step_line(report: TraceReport, mode: ModelMode) -> Location | None:
    """Return the line that steps parameters of the model."""
    for use in report.training.optimizers if report.training is not None else ():
        if any(report.parameters[number].owner == mode.model for number in use.holds):
            return report.location(next((pattern.location for pattern in use.patterns), None))
    return None


def _evaluated_in_train_mode(report: TraceReport) -> Iterator[Finding]:
    """Yield the trained models whose batch normalisations take statistics from batches that are only looked at.

    Left alone is what a training uses: targets, teachers, samples of a generator. Its values come back as a cut in the
    graph of a backward; an evaluation's do not.
    """
    training = report.training
    if training is None:
        return
    trained = {report.parameters[number].owner for use in training.optimizers for number in use.holds}
    used = {cut.location for graph in report.graphs for cut in graph.cuts if cut.target is not None}
    found: dict[tuple[str, int | None], list[UntrainedNorm]] = {}
    for norm in training.norms:
        owner = next((name for name in trained if name and f"{norm.module}.".startswith(f"{name}.")), "")
        if owner and norm.longest >= FEWEST_BATCHES and norm.location not in used:
            found.setdefault((owner, norm.location), []).append(norm)
    for (owner, line), norms in found.items():
        yield _evaluated(owner, report.location(line), norms)


def _evaluated(owner: str, place: Location | None, norms: list[UntrainedNorm]) -> Finding:
    batches = max(norm.batches for norm in norms)
    return Finding(
        code="TM606",
        severity="warning",
        message=f"{owner} is evaluated in train mode: with gradients off, {plural(len(norms), 'batch normalisation')} "
        f"took statistics from {plural(batches, 'batch', 'batches')} that nothing was learned from.",
        location=place,
        evidence={"norms": len(norms), "batches": batches, "in a row": max(norm.longest for norm in norms)},
        remedy=f"Switch the mode for the evaluation: `{owner}.eval()` before it, `{owner}.train()` after it.",
        subject=owner,
    )
