"""TM608, TM611, TM612, TM626: what losses are given: softmax twice, missing or elsewhere, and unfit targets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tensormagic.diagnoses.rule import about_calls, observed, related_lines
from tensormagic.reports import Finding, Observation, Severity, TraceReport
from tensormagic.words import binding, count, listed, plural, tuple_text

# TM608: losses that are given what they make themselves.


class _Clash(NamedTuple):
    """What is wrong where a loss meets something normalised: ``{x}`` is the operand, ``{made}`` what made it."""

    severity: Severity
    says: str
    remedy: str


_RAW = "Pass the raw scores (logits) of the last layer: leave out the {made} in training."
_CROSS_ENTROPY = _Clash(
    "warning",
    "cross_entropy applies softmax itself, and {x} is already the result of {made}: all scores are between 0 "
    "and 1{floor}",
    _RAW,
)
_BINARY = _Clash(
    "warning",
    "binary_cross_entropy_with_logits applies sigmoid itself, and {x} is already the result of {made}: every "
    "probability is {range}",
    _RAW + " `BCELoss` is the loss that takes probabilities.",
)
_SAME = _Clash(
    "note",
    "cross_entropy applies log_softmax itself, and {x} is already the result of log_softmax: the result is right, but "
    "computed twice",
    "Leave out the log_softmax, or use `nn.NLLLoss`, which takes log-probabilities.",
)
_LIKELIHOOD = _Clash(
    "warning",
    "nll_loss takes log-probabilities, and {x} is the result of {made}: the loss is minus a probability, without a "
    "logarithm",
    "Use `log_softmax` in place of softmax, or `cross_entropy` on the scores.",
)
_RAW_LIKELIHOOD = _Clash(
    "warning",
    "nll_loss takes log-probabilities, and {x} is what a layer made, without log_softmax: the loss has no lower bound",
    "Use `cross_entropy`, which applies log_softmax itself.",
)
_ALIGNMENT = _Clash(
    "warning",
    "ctc_loss takes log-probabilities, and {x} is the result of {made}",
    "Use `log_softmax` in place of {made}.",
)
_RAW_ALIGNMENT = _Clash(
    "warning",
    "ctc_loss takes log-probabilities, and {x} is what a layer made, without log_softmax: the loss has no lower bound",
    "Normalise over the classes first: `{it}.log_softmax(-1)`",
)
_TWICE = _Clash(
    "warning",
    "binary_cross_entropy is given {x}, to which {made} and then sigmoid were applied: every probability is {range}",
    "Apply one of them: `torch.sigmoid` either in the model or before the loss.",
)

_CLASHES: dict[tuple[str, str], _Clash] = {
    **{("cross_entropy", made): _CROSS_ENTROPY for made in ("softmax", "sigmoid")},
    ("cross_entropy", "log_softmax"): _SAME,
    **{
        ("binary_cross_entropy_with_logits", made): _BINARY
        for made in ("softmax", "sigmoid", "log_softmax", "logsigmoid")
    },
    **{("nll_loss", made): _LIKELIHOOD for made in ("softmax", "sigmoid")},
    ("nll_loss", "layer"): _RAW_LIKELIHOOD,
    **{("ctc_loss", made): _ALIGNMENT for made in ("softmax", "sigmoid", "logsigmoid")},
    ("ctc_loss", "layer"): _RAW_ALIGNMENT,
    **{("binary_cross_entropy", made): _TWICE for made in ("softmax", "sigmoid")},
}


def normalised_twice(report: TraceReport) -> Iterator[Finding]:
    """TM608: softmax or sigmoid, and then a loss that applies it itself; or neither where a loss expects it."""
    for one in observed(report, "normalised"):
        clash = _CLASHES.get((one.op, one.detail))
        if clash is None or not one.operands:
            continue
        here, name = report.location(one.location), one.operands[0].name or "its input"
        side = "above" if one.detail in {"softmax", "sigmoid"} else "below"
        made = "made here" if one.detail == "layer" else f"{one.detail} applied here"
        it = binding(one.operands[0].name or "scores")
        words = {"x": name, "it": it, "made": one.detail, "floor": _floor(one), "range": f"{side} 0.5"}
        yield Finding(
            code="TM608",
            severity=clash.severity,
            message=clash.says.format(**words) + ".",
            location=here,
            evidence={"loss": one.op, "made by": one.detail, "calls": one.calls},
            remedy=clash.remedy.format(**words),
            subject=one.operands[0].name,
            related=related_lines((made, report.location(one.made)), besides=here),
        )


def _floor(one: Observation) -> str:
    """Return below what the loss cannot fall: the best of scores from 0 to 1 are 1 for one class, 0 for the rest."""
    classes = (0, *one.operands[0].shape[:2])[-1]
    if classes < 2:
        return ""
    least = math.log1p((classes - 1) / math.e)
    return f", so that the loss cannot fall below {least:.3g} with {plural(classes, 'class', 'classes')}"


# TM611: `kl_div` of what is no logarithm; TM612: a softmax over another dimension.


def no_logarithms(report: TraceReport) -> Iterator[Finding]:
    """TM611: `kl_div` was given probabilities or scores where it takes logarithms, or logarithms as its target."""
    for one in observed(report, "no logarithms"):
        first, second = (operand.name for operand in one.operands)
        if one.detail == "target":
            says = f"kl_div takes probabilities as its target, and {second or 'its target'} has values below 0"
            call = f"F.kl_div({first or 'log_p'}, {second or 'log_q'}, log_target=True)"
            remedy = f"If {second or 'its target'} holds logarithms: `{call}`"
        else:
            what = "probabilities" if one.detail == "probabilities" else "values above 0"
            says = f"kl_div takes logarithms of probabilities, and {first or 'its input'} holds {what}"
            remedy = f"Pass logarithms: `F.log_softmax({first or 'scores'}, dim=-1)`"
            if one.detail == "probabilities" and first:
                remedy = f"Pass logarithms: `F.log_softmax(…)` in place of softmax, or `{binding(first)}.log()`"
        says += ": the result is not a divergence."
        yield about_calls(report, "TM611", one, "warning", says, remedy, "made here")


def softmax_elsewhere(report: TraceReport) -> Iterator[Finding]:
    """TM612: a softmax whose dimension is not that over which the next call sums, or from which it picks.

    Proven where a likelihood picks classes from it and where it weighs the samples of a batch against each other;
    else a note: slots and capsules compete on purpose.
    """
    proven = {
        one.made for one in observed(report, "normalised over") if not one.detail.startswith(("samples", "alone"))
    }
    for one in observed(report, "normalised over"):
        if not (one.detail.startswith("samples") and one.location in proven):
            found = about_calls(report, "TM612", one, *_softmax(one), "softmax applied here")
            if found.related and found.location is not None:  # the line to mend comes first
                read = related_lines(("and read here", found.location))
                found = replace(found, location=found.related[0].location, related=read)
            yield found


def _softmax(one: Observation) -> tuple[Severity, str, str]:
    kind, dim, *rest = one.detail.split()
    name = one.operands[0].name or "its input"
    if kind == "alone":
        says = f"{one.op} goes over dimension {dim} of {name}, of shape {tuple_text(one.operands[0].shape)}"
        without = "the loss is 0" if one.op == "cross_entropy" else "the result is 1"
        says += f": with one score to choose from, {without} everywhere, and no gradient goes back."
        for_one = "For yes or no by one score: `F.binary_cross_entropy_with_logits(scores, targets)`"
        if one.op != "cross_entropy":
            for_one += "; for weights over places: normalise the dimension that is summed"
        return "warning", says, for_one
    if kind == "classes":
        says = f"{one.op} picks classes from dimension 1 of {name}, and its softmax went over dimension {dim}"
        return "warning", f"{says}: samples compete with each other for each class.", "Over the classes: `dim=1`"
    if kind == "samples":
        shape = one.operands[0].shape
        says = f"{one.op} goes over dimension {dim} of {name}, of shape {tuple_text(shape)}"
        rows = f"each column sums to 1 over {count(shape[int(dim)])} rows"
        return "note", f"{says}: {rows}.", "If rows are samples, normalise each of them: `dim=1`"
    says = f"{name} sums to 1 over dimension {dim}, and {one.op} sums over dimension {rest[0]}: " + (
        "samples of the batch compete with each other" if kind == "batch" else "the sums are not weighted averages"
    )
    return "warning" if kind == "batch" else "note", f"{says}.", "Normalise what is summed: `softmax(dim=-1)`"


# TM626: a target that its loss does not take.

_LABELS_OF_0 = {
    "cosine_embedding_loss": "pairs of 0 count nothing",
    "margin_ranking_loss": "pairs of 0 have the same loss in either order",
    "soft_margin_loss": "what has 0 has the same loss whatever its score",
    "hinge_embedding_loss": "what has 0 is drawn together, as what has 1 is",
}
_MASK = re.compile(r"mask|valid|weight|keep|pad", re.IGNORECASE)


def unfit_target(report: TraceReport) -> Iterator[Finding]:
    """TM626: labels as another loss has them, values outside what a loss takes, or the prediction as the target.

    Where 0 means that a pair does not count, which only a name tells, nothing is said.
    """
    for one in observed(report, "unfit target"):
        scores, target = one.operands[0].name, one.operands[-1].name
        it = binding(target or "y")
        if one.detail == "exchanged":
            says = f"{scores or 'its input'}, given as scores, has no gradient, and {target or 'its target'} has one"
            message = f"{one.op} takes scores first and targets second: {says}."
            remedy = f"Exchange them: `F.{one.op}({target or 'scores'}, {scores or 'targets'})`"
        elif one.op not in _LABELS_OF_0:
            message, remedy = _outside(one, it)
        elif _MASK.search(target):
            continue
        else:
            says = f"takes targets of 1 and \u22121, and {target or 'its target'} has 0 and 1"
            message = f"{one.op} {says}: {_LABELS_OF_0[one.op]}."
            wide = f"{it}.float()" if one.operands[-1].dtype in {"uint8", "bool"} else it
            remedy = f"Turn 0 into \u22121: `2 * {wide} - 1`"
        yield about_calls(report, "TM626", replace(one, operands=one.operands[-1:]), "warning", message, remedy)


def _outside(one: Observation, it: str) -> tuple[str, str]:
    """Return what is said of a target with values outside those that its loss takes, and the remedy."""
    kind, *values = one.detail.split()
    written = [value.replace("-", "\u2212") for value in values]
    has = f"has {listed(written)}" if kind == "values" else f"goes from {written[0]} to {written[1]}"
    says = f"and {one.operands[-1].name or 'its target'} {has}"
    if one.op == "poisson_nll_loss":
        remedy = "For values that are no counts: `F.gaussian_nll_loss` or `F.mse_loss`"
        return f"poisson_nll_loss takes counts, {says}: below 0, the best rate is 0 for all.", remedy
    if one.op == "cross_entropy":
        message = f"cross_entropy takes classes or probabilities, {says}: below 0, the loss has no lower bound."
        turned = f"`{it}.softmax(dim={min(len(one.operands[-1].shape), 2) - 1})`"
        return message, f"Turn scores into probabilities: {turned}; for other values: `F.mse_loss`"
    message = f"{one.op} takes targets from 0 to 1, {says}: beyond these, the loss has no lower bound."
    if one.op == "binary_cross_entropy":
        message = message.replace("the loss has no lower bound", "a probability of 0 or 1 is best")
    beyond = [value for value in values if not 0 <= float(value) <= 1]
    if values == ["-1", "1"]:
        return message, f"Turn \u22121 into 0: `({it} + 1) / 2`"
    if values == ["0", "255"]:
        return message, f"If 255 stands for 1: `{it} / 255`"
    if kind == "values" and len(beyond) == 1:
        x, sign = binding(one.operands[0].name or "scores"), beyond[0].replace("-", "\u2212")
        kept = f"`keep = {it} != {beyond[0]}`, `F.{one.op}({x}[keep], {it}[keep])`"
        return message, f"If {sign} marks what does not count, leave it out: {kept}"
    return message, "For values of any size: `F.mse_loss`; for class numbers: `F.cross_entropy`"
