"""TM6xx: modules, their parameters, and what trains them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensormagic.diagnoses.cut_remedies import call_words
from tensormagic.diagnoses.graph_cuts import hides_parameters, names_behind_cuts, read_only_cut
from tensormagic.diagnoses.parameter_names import as_code, passes_words, shortest
from tensormagic.reports import Finding, OptimizerUse, ParameterSeries, RelatedLine, TraceReport
from tensormagic.words import count, listed, plural

FEWEST_STEPS = 3  # without any gradient


def parameter_without_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM601: a parameter that asks for a gradient got none in any pass, although others of its model did.

    A model that no backward reached at all is not reported: in adversarial training that is meant. Nor is a
    parameter that a graph leads to: ``autograd.grad`` may have been asked for others only; nor one that its module
    got anew, as a moving average; nor one that a cut leaves out, which is TM303's to tell.
    """
    if hides_parameters(report):
        return
    cut_off = names_behind_cuts(report)
    for owner in dict.fromkeys(series.owner for series in report.parameters if series.touched and series.owner):
        of = [series for series in report.parameters if series.owner == owner]
        missing = [series for series in of if _is_missing(series) and series.name not in cut_off]
        if missing:
            yield _missing_finding(report, of, missing)
    yield from _models_without_gradient(report)


def _is_missing(series: ParameterSeries) -> bool:
    asks = series.is_parameter and series.requires_grad and not series.replaced
    return asks and not series.touched and not series.used


def _missing_finding(report: TraceReport, of: Sequence[ParameterSeries], missing: Sequence[ParameterSeries]) -> Finding:
    places = shortest([series.name for series in missing], [series.name for series in of])
    called = report.passes[-1].location if report.passes else None
    verb = "gets" if len(places) == 1 else "get"
    share = f"{count(len(missing))} of the {count(len(of))} parameters of {of[0].owner}"
    remedy, related = _remedy(report, missing)
    return Finding(
        code="TM601",
        severity="warning",
        message=f"{listed(places)} {verb} no gradient in {passes_words(report)}: no path leads there from the loss "
        f"({share}).",
        location=report.location(called),
        evidence={series.name: series.numel for series in missing[:8]},
        remedy=f"{remedy} If it is meant to stay as it is, say so: `{as_code(places[0])}.requires_grad_(False)`.",
        subject=missing[0].name,
        related=related,
    )


def _remedy(report: TraceReport, missing: Sequence[ParameterSeries]) -> tuple[str, tuple[RelatedLine, ...]]:
    """Return what to do, with the line at which what the parameters made was last seen, where one is known."""
    cut = read_only_cut(report, [series.name for series in missing])
    place = report.location(cut.location) if cut is not None else None
    if cut is None or place is None:
        return "Use it in forward, and what it makes in the loss.", ()
    call = call_words(cut, place)
    told = f"What it makes ends at {call} ({place.label}): if it belongs into the loss, let it go on there."
    return told, (RelatedLine("its way ends here", place),)


def _models_without_gradient(report: TraceReport) -> Iterator[Finding]:
    """Yield the optimizers that make steps although nothing that they hold had a gradient at any of them.

    Where a call was seen to end the way, that is TM303's to tell; where the model was made anew, TM604's.
    """
    training = report.training
    if training is None or report.state == "running" or _is_cut_or_replaced(report):
        return
    known = report.passes_traced == report.passes_seen and training.optimizers_seen == len(training.optimizers)
    for use in training.optimizers if known and report.passes_seen >= FEWEST_STEPS else ():
        idle = use.steps >= FEWEST_STEPS and all(pattern.kind == "idle" for pattern in use.patterns)
        held = [report.parameters[number] for number in use.holds]
        missing = [series for series in held if series.owner and _is_missing(series)]
        if idle and missing and len(missing) == len(held) and not (use.strangers or use.left_out):
            yield _idle_finding(report, use, missing)


def _is_cut_or_replaced(report: TraceReport) -> bool:
    """Return whether the run tells where a way ends, or a model that gets gradients is in no optimizer."""
    held = {number for use in report.training.optimizers for number in use.holds} if report.training else set()
    free = any(series.owner and series.touched and at not in held for at, series in enumerate(report.parameters))
    return free or any(cut.left_out for cut in (*report.cuts, *(cut for graph in report.graphs for cut in graph.cuts)))


def _idle_finding(report: TraceReport, use: OptimizerUse, missing: Sequence[ParameterSeries]) -> Finding:
    who = shortest([series.name for series in missing], [series.name for series in report.parameters])
    owners = list(dict.fromkeys(series.owner for series in missing))
    parameters = plural(len(missing), "parameter")
    return Finding(
        code="TM601",
        severity="warning",
        message=f"{use.name} makes {plural(use.steps, 'step')}, and no parameter of {listed(owners)} has a gradient "
        f"at any: {passes_words(report)} led to none of the {parameters} that it holds.",
        location=report.location(next((pattern.location for pattern in use.patterns), None)),
        evidence={"steps": use.steps, "parameters": len(missing)},
        remedy="Calculate the loss from what it makes with calls that autograd follows: `nn.Parameter(x)`, "
        "`torch.Tensor(x)` and NumPy make new values without a history.",
        subject=who[0],
    )
