"""TM601, TM602 as a look at a session finds them: parameters that stood still while their model was trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensormagic.diagnoses.optimizers import MOST_SHARE
from tensormagic.diagnoses.parameter_names import as_code, shortest
from tensormagic.reports import Finding, Severity, StillParameters, WatchReport
from tensormagic.words import count, listed, part_of, plural

LEAST_STEPS = 10  # fewer may be chance: a branch that was not taken, a layer that was dropped


def without_gradient(report: WatchReport) -> Iterator[Finding]:
    """TM601: an optimizer steps others of a model, and these had no gradient at any of its steps.

    A note where that was not watched: they may have joined the optimizer, or been unfrozen, a moment ago. A note as
    well of experts and other modules of which the data choose: others of the same make are trained.
    """
    for still in report.still:
        steps = still.watched if still.watched >= LEAST_STEPS else still.steps
        if still.held and steps >= LEAST_STEPS:
            sure = tuple(number for number in still.still if number not in still.alike)
            if sure:
                yield _without_gradient(still, sure, steps, "warning" if still.watched >= LEAST_STEPS else "note")
            if still.alike:
                yield _without_gradient(still, still.alike, steps, "note")


def _without_gradient(still: StillParameters, numbers: Sequence[int], steps: int, severity: Severity) -> Finding:
    names = [still.names[number] for number in numbers]
    places = shortest(names, still.names)
    it = "it" if len(places) == 1 else "them"
    share = f"{count(len(names))} of the {count(len(still.names))} parameters of {still.owner}"
    during = f"in {plural(steps, 'step')}"
    if not still.steps:
        during = f"while it changed others of {still.owner} {plural(steps, 'time')}"
    return Finding(
        code="TM601",
        severity=severity,
        message=f"{still.optimizer} holds {listed(places)} and had no gradient for {it} {during}: no path leads there "
        f"from the loss ({share}).",
        location=still.location,
        evidence={"steps": steps, "parameters": len(names), "elements": sum(still.numels[one] for one in numbers)},
        remedy=f"Use {it} in forward, and the result in the loss. What is meant to stay as it is, freeze: "
        f"`{as_code(places[0])}.requires_grad_(False)`.",
        subject=names[0],
    )


def in_no_optimizer(report: WatchReport) -> Iterator[Finding]:
    """TM602: parameters get gradients, others of their model are stepped, and nothing changes these.

    A note where the last layers are trained and those before them are not, or a small part in the midst of many.
    """
    for still in report.still:
        if not still.held and still.watched >= LEAST_STEPS:
            yield _in_no_optimizer(still)


def _in_no_optimizer(still: StillParameters) -> Finding:
    names = shortest([still.names[number] for number in still.still], still.names)
    gets, are, them = ("gets", "is", "it") if len(names) == 1 else ("get", "are", "them")
    meant = _is_meant(still)
    trained = part_of(len(still.trained), len(still.names), "parameter")
    return Finding(
        code="TM602",
        severity="note" if meant else "warning",
        message=f"{listed(names)} {gets} gradients but {are} in no optimizer: {still.optimizer} steps {trained} of "
        f"{still.owner}, and nothing changes {them}.",
        location=still.location,
        evidence={"without an optimizer": len(still.still), "stepped": len(still.trained), "steps": still.watched},
        remedy=_remedy(still, names[0], meant=meant),
        subject=still.names[still.still[0]],
    )


def _remedy(still: StillParameters, first: str, *, meant: bool) -> str:
    if meant:
        return (
            "If only a part is to be trained, freeze the rest: `requires_grad_(False)` saves the time of its gradients."
        )
    code = as_code(first)
    what = f"[{code}]" if first in still.names else f"{code}.parameters()"
    return (
        f"Make {still.optimizer} after the model is complete, of all its parameters; or add them: "
        f'`{still.optimizer}.add_param_group({{"params": {what}}})`'
    )


def _is_meant(still: StillParameters) -> bool:
    """Return whether the last layers alone are trained, or a small part that is not the first layers."""
    are_layers = all(still.names[number].count(".") > still.owner.count(".") + 1 for number in still.still)
    if are_layers and max(still.still) < min(still.trained):
        return True
    if max(still.trained) < min(still.still) and len(still.trained) > 1:
        return False
    without, with_one = (sum(still.numels[one] for one in some) for some in (still.still, still.trained))
    return without > MOST_SHARE * (without + with_one)
