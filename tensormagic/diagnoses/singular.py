"""Backward formulas where they are singular, and which birth of a NaN a finding is about."""

from __future__ import annotations

from dataclasses import dataclass

from tensormagic.reports import TraceReport
from tensormagic.words import count

# Which birth of a NaN or infinite gradient a run's finding is about: the first, in the outermost pass that has it.


def first_nonfinite(report: TraceReport) -> int | None:
    """Return the place of the graph whose first birth is the run's first; None where none was seen being born."""
    inner = {done.graph for done in report.inner_passes}  # what was born in these was born in a node of the others too
    first_nonfinite = [
        (graph.first_nonfinite[0].pass_number, graph.number not in inner, at)
        for at, graph in enumerate(report.graphs)
        if graph.first_nonfinite
    ]
    first_shown = first_bad(report)
    if first_nonfinite and (first_shown is None or min(first_nonfinite)[0] <= first_shown[0]):
        return min(first_nonfinite)[2]
    return None


def first_bad(report: TraceReport) -> tuple[int, int] | None:
    """Return (pass, place of the graph) of the first kept pass with a gradient that is not finite, if any."""
    shown = [(frame.pass_number, at) for at, graph in enumerate(report.graphs) for frame in graph.frames if frame.bad]
    return min(shown, default=None)


def value_of(report: TraceReport, pass_number: int) -> float | None:
    """Return what a kept pass began with, where that is one number: the loss."""
    return next((done.value for done in report.passes if done.number == pass_number), None)


def when(report: TraceReport, pass_number: int) -> str:
    """Return ", in backward pass 3 of 10"; empty where there was only one."""
    return f", in backward pass {pass_number} of {count(report.passes_seen)}" if report.passes_seen > 1 else ""


# What backward formulas do where they are singular, and what to write instead: by op, as one readable table.
#
# From the formulas in torch's ``derivatives.yaml``: which saved tensor a formula divides by or takes the logarithm
# of.


@dataclass(frozen=True, slots=True)
class Singularity:
    """Where the slope of an op has no finite value.

    Attributes:
        remedy: What to write instead.
        zero: What a zero in the saved tensor means, with ``{n}`` for how many; empty where zeros are harmless.
        negative: The same for a number below zero.
        bad: The same for a NaN or infinity.
        always: The reason where the saved tensor need not be looked at; empty where it must.
    """

    remedy: str
    zero: str = "its input holds {n}"
    negative: str = ""
    bad: str = "its input is already not finite"
    always: str = ""


_LOG = Singularity(
    "Keep its argument away from zero, or use a fused form that never makes the zero: "
    "`F.log_softmax` instead of `softmax` and `log`, `F.binary_cross_entropy_with_logits` instead of `sigmoid` and "
    "`log`; else `x.clamp_min(1e-8).log()`",
    negative="its input holds {n}",
)
_POWER = Singularity("A fractional or negative power has no finite slope at zero: clamp the base first")
_NORM = Singularity(
    "The norm has no slope at the zero vector: add a small number inside, `(x.square().sum() + 1e-12).sqrt()`"
)
_AT_ONE = Singularity(
    "The slope is infinite at ±1: clamp to `(-1 + 1e-6, 1 - 1e-6)` first", zero="",
    always="its input is not strictly between -1 and 1 everywhere",
)  # fmt: skip

SINGULARITIES: dict[str, Singularity] = {
    "log": _LOG,
    "log2": _LOG,
    "log10": _LOG,
    "xlogy": _LOG,
    "log1p": Singularity(
        "Keep its argument above -1: `x.clamp_min(-1 + 1e-6).log1p()`", zero="",
        always="its input is not above -1 everywhere",
    ),
    "sqrt": Singularity(
        "The slope of `sqrt` is infinite at zero: `torch.sqrt(x + 1e-8)`",
        bad="its input is already negative or not finite",
    ),
    "rsqrt": Singularity("Add a small number inside: `torch.rsqrt(x + 1e-8)`", bad="it divides by zero"),
    "reciprocal": Singularity("Keep the argument away from zero before taking `1/x`", bad="it divides by zero"),
    "div": Singularity(
        "Keep the divisor away from zero: `x / (y + 1e-8)`, or mask y before the division "
        "(`torch.where` after it does not help: the branch not taken still gives 0 · inf = NaN)",
        zero="its divisor holds {n}", bad="its divisor is already not finite",
    ),
    "pow": _POWER,
    "norm": _NORM,
    "linalg_vector_norm": _NORM,
    "std": Singularity(
        "The standard deviation has no slope where all elements are equal: `(x.var() + 1e-8).sqrt()`; of one element "
        "it does not exist: `correction=0`",
        zero="its result holds {n}", bad="its result is not finite (of a single element it does not exist)",
    ),
    "var": Singularity(
        "The variance of one element does not exist: `correction=0`, or more than one element",
        zero="", always="the variance of a single element does not exist, or its input is already not finite",
    ),
    "acos": _AT_ONE,
    "asin": _AT_ONE,
    "atanh": _AT_ONE,
    "acosh": Singularity(
        "The slope is infinite at 1: clamp to at least 1 + 1e-6 first", zero="",
        always="its input is not above 1 everywhere",
    ),
    "exp": Singularity(
        "`exp` overflows float32 above 88 (float16 above 11): subtract the maximum first, or use `logsumexp` or "
        "`softmax`",
        zero="", bad="its result is not finite", always="its result is not finite",
    ),
}  # fmt: skip

# Where nothing was saved that explains it: what remains, by what the op does.
PRODUCTS = frozenset({"mul", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "convolution"})
LOSSES = frozenset({"mse_loss", "log_softmax", "nll_loss", "nll_loss2_d", "binary_cross_entropy",
                    "binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss", "kl_div", "softmax",
                    "logsumexp", "native_layer_norm", "native_batch_norm"})  # fmt: skip
NOT_FINITE_FORWARD = (
    "The forward was already not finite: look at what goes into this line with `%tensor`, which counts NaN and Inf."
)
OVERFLOW = (
    "The gradient overflowed its dtype: lower the learning rate, clip before the step with "
    "`torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)`, or check the initialisation."
)
HALF_OVERFLOW = (
    "float16 holds at most 65504: scale the loss less (`torch.amp.GradScaler` finds the scale by skipping such steps), "
    "or use `bfloat16`."
)
HOOKED = "Look at what the hook returns or writes into the gradient: it runs before the next node receives it."
ANY = "Look at the inputs of this line with `%tensor`; clamp or mask it before, not after."
