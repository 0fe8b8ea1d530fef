"""TM306: backward on a value that nothing leads back from: which line made it so, or why nothing ever led back.

Torch says "element 0 of tensors does not require grad and does not have a grad_fn", at the line that called backward;
what is to be changed stands elsewhere, as a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensormagic.diagnoses.caught_backwards import severity
from tensormagic.diagnoses.cut_remedies import call_words, instead
from tensormagic.diagnoses.graph_cuts import UNRECORDED
from tensormagic.reports import Cut, FailureReport, Finding, ModelInSight, RelatedLine, Rootless, Severity, TraceReport
from tensormagic.words import is_or_are, listed, plural

REFUSAL = "does not require grad and does not have a grad_fn"

Told = tuple[str, str]  # why there is no way back, as a clause; what to do
_SWITCH_ON = "Switch gradients on again: `torch.set_grad_enabled(True)`, or call backward outside `torch.no_grad()`."
_ASK = "Ask for gradients before you calculate: `x = torch.tensor([1.0], requires_grad=True)`, or `x.requires_grad_()`."
_UNSEEN = "it was made in `torch.no_grad()`, of detached values or numbers, or of nothing that asks for a gradient"
_WATCH = f"Run the cell under `%%tracegrad`: it says which line ended the way. {_ASK}"
_NOTHING = "nothing that it was made from asks for a gradient"


def backward_without_history(report: TraceReport) -> Iterator[Finding]:
    """TM306: a backward that torch refused, because the value has no history; and what ended or prevented it."""
    for one in report.rootless:
        cut = report.cuts[one.cut] if one.cut is not None else None
        why, remedy = _of_cut(report, cut) if cut is not None else _of_nothing(one)
        called, ended = report.location(one.location), report.location(cut.location if cut is not None else None)
        second = (RelatedLine("backward was called here", called),) if called and ended not in {None, called} else ()
        yield Finding(
            code="TM306",
            severity=_severity(report, one),
            message=f"{one.name or 'What backward was called on'} has no way back for a gradient: {why}.",
            location=ended or called,
            evidence={"shape": str(one.shape), "dtype": one.dtype, "grad mode": one.grad_enabled},
            remedy=remedy,
            subject=one.name,
            related=second,
        )


def _severity(report: TraceReport, one: Rootless) -> Severity:
    """Return that it is an error where it ended the run; else somebody caught what torch raised."""
    if REFUSAL in report.error:
        return "error"
    return "note" if one.expected else severity(report, one.location, one.count)


def refused_backward(report: FailureReport) -> Iterator[Finding]:
    """TM306: the same, of a call that was not traced: why the value has no history, as far as it tells itself."""
    if REFUSAL not in report.error:
        return
    root = next((one for one in report.operands if one.is_tensor and not one.requires_grad), None)
    dtype = root.dtype if root is not None else ""
    why, remedy = _of_integers(dtype) if dtype and not _is_differentiable(dtype) else (_UNSEEN, _WATCH)
    yield Finding(
        code="TM306",
        severity="error",
        message=f"{root.name if root and root.name else 'What backward was called on'} has no way back for a gradient: "
        f"{why}.",
        location=report.location,
        evidence={"dtype": dtype} if dtype else {},
        remedy=remedy,
        subject=root.name if root is not None else "",
    )


def _of_cut(report: TraceReport, cut: Cut) -> Told:
    place = report.location(cut.location)
    mend = instead(cut, place)
    what = "kept its calculation from being recorded" if cut.kind in UNRECORDED else "ended it"
    return f"{call_words(cut, place)} {what}", f"{mend[:1].upper()}{mend[1:]}." if mend else ""


def _of_nothing(one: Rootless) -> Told:
    """Return why there is no way back where nothing was seen to end it: there never was one."""
    if one.inference:
        return "it was made under `torch.inference_mode()`", "Calculate it outside `torch.inference_mode()`."
    if not one.grad_enabled:
        return "gradients are switched off", _SWITCH_ON
    if one.dtype and not _is_differentiable(one.dtype):
        return _of_integers(one.dtype)
    return _of_models(one.models)


def _of_integers(dtype: str) -> Told:
    return f"it is {dtype}, and only floating-point values have gradients", "Call backward on a floating-point loss."


def _of_models(models: Sequence[ModelInSight]) -> Told:
    if not models:
        return _NOTHING, _ASK
    asking = [model for model in models if model.frozen < model.parameters]
    names = listed([model.name for model in asking or models])
    if asking:
        free = sum(model.parameters - model.frozen for model in asking)
        why = f"{_NOTHING}, although {plural(free, 'parameter')} of {names} {'does' if free == 1 else 'do'}"
        return why, f"Calculate it from what {names} {'returns' if len(asking) == 1 else 'return'}."
    of = sum(model.parameters for model in models)
    why = f"{_NOTHING}; {'the one parameter' if of == 1 else f'all {of} parameters'} of {names} {is_or_are(of)} frozen"
    return why, f"Let the part that should learn ask for gradients: `{models[0].name}.requires_grad_(True)`."


def _is_differentiable(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))
