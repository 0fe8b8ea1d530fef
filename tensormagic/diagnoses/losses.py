"""TM608: losses that are given what they make themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tensormagic.diagnoses.observed import called, of_kind
from tensormagic.reports import Finding, Observation, RelatedLine, Severity, TraceReport
from tensormagic.words import plural


class _Clash(NamedTuple):
    """What is wrong where a loss meets something normalised: ``{x}`` is the operand, ``{made}`` what made it."""

    severity: Severity
    says: str
    remedy: str


_RAW = "Give it the scores as they come out of the last layer: leave out the {made} in training."
_CROSS_ENTROPY = _Clash(
    "warning",
    "cross_entropy applies a softmax of its own, and {x} is the result of {made} already: all scores lie between 0 "
    "and 1{floor}",
    _RAW,
)
_BINARY = _Clash(
    "warning",
    "binary_cross_entropy_with_logits applies a sigmoid of its own, and {x} is the result of {made} already: every "
    "probability is {range}",
    _RAW + " `BCELoss` is the loss that takes probabilities.",
)
_SAME = _Clash(
    "note",
    "cross_entropy applies log_softmax of its own, and {x} is the result of log_softmax already: the numbers are "
    "right, and computed twice",
    "Leave out the log_softmax, or use `nn.NLLLoss`, which takes log-probabilities.",
)
_LIKELIHOOD = _Clash(
    "warning",
    "nll_loss takes log-probabilities, and {x} is the result of {made}: the loss is minus a probability, without a "
    "logarithm",
    "Use `log_softmax` in place of softmax, or `cross_entropy` on the scores.",
)
_TWICE = _Clash(
    "warning",
    "binary_cross_entropy is given {x}, to which {made} and then sigmoid were applied: every probability is {range}",
    "Apply one of them: `torch.sigmoid` either in the model or before the loss.",
)

_CLASHES: dict[tuple[str, str], _Clash] = {
    **{("cross_entropy", made): _CROSS_ENTROPY for made in ("softmax", "sigmoid")},
    ("cross_entropy", "log_softmax"): _SAME,
    **{("binary_cross_entropy_with_logits", made): _BINARY for made in ("softmax", "sigmoid")},
    **{("binary_cross_entropy_with_logits", made): _BINARY for made in ("log_softmax", "logsigmoid")},
    **{("nll_loss", made): _LIKELIHOOD for made in ("softmax", "sigmoid")},
    **{("binary_cross_entropy", made): _TWICE for made in ("softmax", "sigmoid")},
}


def normalised_twice(report: TraceReport) -> Iterator[Finding]:
    """TM608: softmax or sigmoid, and then a loss that applies it itself."""
    for one in of_kind(report, "normalised"):
        clash = _CLASHES.get((one.op, one.detail))
        if clash is not None and one.operands:
            yield _finding(report, one, clash)


def _finding(report: TraceReport, one: Observation, clash: _Clash) -> Finding:
    made = report.location(one.made)
    here = report.location(one.location)
    name = called(one.operands[0], "its input")
    words = {"x": name, "made": one.detail, "floor": _floor(one), "range": _range(one.detail)}
    return Finding(
        code="TM608",
        severity=clash.severity,
        message=clash.says.format(**words) + ".",
        location=here,
        evidence={
            "loss": one.op,
            "made by": one.detail,
            "calls": one.calls,
        },
        remedy=clash.remedy.format(**words),
        subject=one.operands[0].name,
        related=() if made is None or made == here else (RelatedLine(f"{one.detail} applied here", made),),
    )


def _floor(one: Observation) -> str:
    """Return below what the loss cannot fall: the best of scores from 0 to 1 are 1 for one class, 0 for the rest."""
    shape = one.operands[0].shape
    classes = shape[1] if len(shape) > 1 else shape[0] if shape else 0
    if classes < 2:
        return ""
    least = math.log1p((classes - 1) / math.e)
    return f", so that the loss cannot fall below {least:.3g} with {plural(classes, 'class', 'classes')}"


def _range(made: str) -> str:
    return "above 0.5" if made in {"softmax", "sigmoid"} else "below 0.5"
