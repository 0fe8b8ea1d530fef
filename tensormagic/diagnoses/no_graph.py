"""TM306: backward on a value that nothing leads back from: which line made it so, or why nothing ever led back.

Torch says "element 0 of tensors does not require grad and does not have a grad_fn", at the line that called
backward; what is to be changed stands elsewhere, as a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensormagic.diagnoses.backward_failures import severity_of_caught
from tensormagic.diagnoses.graph_cuts import UNRECORDED, call_words, instead_of_cut
from tensormagic.diagnoses.lines import UPDATE_IN_PLACE, text_of, under_no_grad, update_by_hand
from tensormagic.diagnoses.rule import is_differentiable, related_lines
from tensormagic.reports import Cell, Cut, FailureReport, Finding, LossWithoutGraph, Severity, TraceReport
from tensormagic.words import capitalised, is_or_are, listed, plural

REFUSAL = "does not require grad and does not have a grad_fn"

Described = tuple[str, str]  # why there is no way back, as a clause; what to do
_SWITCH_ON = "Switch gradients on again: `torch.set_grad_enabled(True)`, or call backward outside `torch.no_grad()`."
_ASK = "Require gradients before you compute: `x = torch.tensor([1.0], requires_grad=True)`, or `x.requires_grad_()`."
_UNSEEN = "it was made under `torch.no_grad()`, or from values without a graph"
_WATCH = (
    f"Run the cell under `%%tracegrad`: it finds the line that cut the gradient. {_ASK} "
    "A gradient has a graph if it was computed with `create_graph=True`."
)
_NOTHING = "nothing it was made from requires a gradient"
_CONSTANT = (
    f"{_NOTHING}. The gradient of a linear function, or of a Function with `@once_differentiable`, has no graph",
    "Compute that gradient from a loss that is not linear in what you ask about; else leave this backward out.",
)


def backward_without_history(report: TraceReport) -> Iterator[Finding]:
    """TM306: a backward that torch refused, because the value has no history; and what ended or prevented it."""
    for one in report.losses_without_graph:
        cut = report.cuts[one.cut] if one.cut is not None else None
        called, ended, called_from = report.location(one.location), None, None
        why, remedy = _of_nothing(one)
        if cut is not None:
            ended, called_from = report.location(cut.location), report.location(cut.call_location)
            why, remedy = _of_cut(report, cut)
        made = called_from or ended
        if update := update_by_hand(text_of(made), of_leaf=called_from is not None):
            new = f"a new {update.name}, which requires"
            if update.several:
                new = f"new tensors for {update.name}, which require"
            why, ended = f"an update made {new} no gradient", made
            remedy = UPDATE_IN_PLACE.format(
                update.in_place if called_from is not None else under_no_grad(update.in_place)
            )
        traced = (text_of(report.location(step.location)) for step in report.passes)
        asked = re.search(r"\bgrad\(\w+(?:\.\w+\(\))?, (\w+)", text_of(called))
        if remedy == _ASK and any("create_graph=True" in line for line in traced):
            why, remedy = _CONSTANT
        elif remedy == _ASK and asked is not None:
            remedy = f"Require gradients before you compute: `{asked[1]}.requires_grad_()`."
        caught: Severity = "note" if one.expected else severity_of_caught(report, one.location, one.count)
        yield Finding(
            code="TM306",
            severity="error" if REFUSAL in report.error else caught,
            message=f"{one.name.replace('the result', 'The result') or 'The tensor'} has no graph for backward: {why}.",
            location=ended or called,
            evidence={"shape": str(one.shape), "dtype": one.dtype, "grad mode": one.grad_enabled},
            remedy=remedy,
            subject=one.name,
            related=related_lines(("backward was called here", called if ended else None), besides=ended),
        )


def refused_backward(report: FailureReport) -> Iterator[Finding]:
    """TM306: the same, of a call that was not traced: why the value has no history, as far as the source shows it."""
    if report.losses_without_graph:
        seen = TraceReport(
            title="", state="failed", cell=Cell("", None, ()), seconds=0.0, own_seconds=0.0, error=report.error,
            losses_without_graph=report.losses_without_graph, cuts=report.cuts, locations=report.locations,
        )  # fmt: skip
        yield from backward_without_history(seen)
        return
    root = next((one for one in report.operands if one.is_tensor and not one.requires_grad), None)
    name, dtype = (root.name, root.dtype) if root is not None else ("", "")
    why, remedy = _of_integers(dtype) if dtype and not is_differentiable(dtype) else (_UNSEEN, _WATCH)
    yield Finding(
        code="TM306",
        severity="error",
        message=f"{name or 'The tensor that backward was called on'} has no graph for backward: {why}.",
        location=report.location,
        evidence={"dtype": dtype} if dtype else {},
        remedy=remedy,
        subject=name,
    )


def _of_cut(report: TraceReport, cut: Cut) -> Described:
    place = report.location(cut.location)
    mend = instead_of_cut(report, cut, starts=True)
    what = "kept autograd from recording it" if cut.kind in UNRECORDED else "cut it off"
    return f"{call_words(cut, place)} {what}", f"{capitalised(mend)}." if mend else ""


def _of_nothing(one: LossWithoutGraph) -> Described:
    """Return why there is no way back where nothing was seen to end it: there never was one."""
    if one.inference:
        return "it was made under `torch.inference_mode()`", "Compute it outside `torch.inference_mode()`."
    if not one.grad_enabled:
        return "gradients are switched off", _SWITCH_ON
    if one.dtype and not is_differentiable(one.dtype):
        return _of_integers(one.dtype)
    models = one.models
    if not models:
        return _NOTHING, _ASK
    asking = [model for model in models if model.frozen < model.parameters]
    names = listed([model.name for model in asking or models])
    if asking:
        free = sum(model.parameters - model.frozen for model in asking)
        why = f"{_NOTHING}, although {plural(free, 'parameter')} of {names} {'does' if free == 1 else 'do'}"
        return why, f"Compute it from what {names} {'returns' if len(asking) == 1 else 'return'}."
    of = sum(model.parameters for model in models)
    why = f"{_NOTHING}; {'the one parameter' if of == 1 else f'all {of} parameters'} of {names} {is_or_are(of)} frozen"
    return why, f"Turn on gradients for the part that should learn: `{models[0].name}.requires_grad_(True)`."


def _of_integers(dtype: str) -> Described:
    return f"it is {dtype}, and only floating-point values have gradients", "Call backward on a floating-point loss."
