"""TM4xx: values and gradients that are NaN, infinite, vanishing or exploding.

The thresholds are ratios wherever they can be: a network that has converged has small gradients everywhere, and a
summed loss large ones; neither is ill. Only weights (two dimensions or more) are judged for vanishing and exploding:
the gradient of a bias before a normalisation, or of an attention key, is zero up to rounding by construction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from tensormagic.diagnoses.words import counted, grouped, scientific
from tensormagic.reports import Birth, Finding, Graph, Location, Node, ParameterSeries, TensorReport, TraceReport

VANISHING_NORM = 1e-6  # a norm below this …
VANISHING_RATIO = 1e-5  # … and below this share of the largest, per element: nothing is learned there
EXPLODING_NORM = 1e2  # a norm above this …
EXPLODING_RATIO = 1e3  # … and this many times an earlier step's, or the smallest weight's per element times ten

_REMEDIES = {
    "log": "Keep its argument away from zero, or use a fused form that never makes the zero: "
    "F.log_softmax instead of softmax and log, F.binary_cross_entropy_with_logits instead of sigmoid and log; "
    "else x.clamp_min(1e-8).log()",
    "sqrt": "The slope of sqrt is infinite at zero: torch.sqrt(x + 1e-8)",
    "rsqrt": "Add a small number inside: torch.rsqrt(x + 1e-8)",
    "div": "Keep the divisor away from zero: x / (y + 1e-8), or mask y before the division "
    "(torch.where after it does not help: the branch not taken still gives 0 · inf = NaN)",
    "reciprocal": "Keep the argument away from zero before taking 1/x",
    "pow": "A fractional or negative power has no finite slope at zero: clamp the base first",
    "norm": "The norm has no slope at the zero vector: add a small number inside, (x.square().sum() + 1e-12).sqrt()",
    "std": "The standard deviation has no slope where all elements are equal: (x.var() + 1e-8).sqrt()",
    "acos": "The slope is infinite at ±1: clamp to (-1 + 1e-6, 1 - 1e-6) first",
    "asin": "The slope is infinite at ±1: clamp to (-1 + 1e-6, 1 - 1e-6) first",
    "exp": "exp overflows float32 above 88: subtract the maximum first, or use logsumexp or softmax",
}
_SAME_REMEDY = {"log2": "log", "log10": "log", "log1p": "log", "linalg_vector_norm": "norm", "acosh": "acos"}


# -- TM401 --------------------------------------------------------------------------------------------------------


def bad_values(report: TensorReport) -> Iterator[Finding]:
    """TM401: the tensor holds NaN (a warning) or infinities (a note: masks are made of them)."""
    numbers = report.statistics
    if numbers is None:
        return
    inf = numbers.positive_infinity + numbers.negative_infinity
    if not numbers.nan and not inf:
        return
    at = "" if numbers.first_nan is None else f"; the first is {report.name}[{', '.join(map(str, numbers.first_nan))}]"
    seen = counted(numbers.count, "element") + (" looked at" if numbers.count < numbers.of else "")
    kind, count = ("NaN", numbers.nan) if numbers.nan else ("infinite", inf)
    yield Finding(
        code="TM401",
        severity="warning" if numbers.nan else "note",
        message=f"{grouped(count)} of {seen} {'is' if count == 1 else 'are'} {kind}{at}.",
        evidence={"nan": numbers.nan, "+inf": numbers.positive_infinity, "-inf": numbers.negative_infinity},
        remedy="Find where it came from: run the cell that made it under %%tracegrad." if numbers.nan else "",
        subject=report.name,
    )


# -- TM402 --------------------------------------------------------------------------------------------------------


def first_bad_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM402: where the first NaN or infinite gradient was born, and what made it."""
    candidates = [(graph.births[0].pass_number, graph) for graph in report.graphs if graph.births]
    if candidates:
        _, graph = min(candidates, key=lambda pair: pair[0])
        yield _birth_finding(report, graph, graph.births[0])
        return
    bad = [(frame.pass_number, graph) for graph in report.graphs for frame in graph.frames if frame.bad]
    if bad:
        yield _bad_from_the_start(report, *min(bad, key=lambda pair: pair[0]))


def _birth_finding(report: TraceReport, graph: Graph, birth: Birth) -> Finding:
    node, receiver = graph.nodes[birth.node], graph.nodes[birth.receiver]
    kind, count = ("NaN", birth.nan) if birth.nan else ("infinite", birth.inf)
    reached = [frame for frame in graph.frames if frame.pass_number == birth.pass_number]
    spread = f"; from there it reaches {len(reached[0].bad)} of {len(graph.nodes)} nodes" if reached else ""
    location = report.location(node.location)
    return Finding(
        code="TM402",
        severity="error",
        message=f"The first {kind} gradient is born in {node.op}{_where(location)}: {_because(birth, node)}"
        f"{counted(count, 'element')} of the {birth.count} it sends to {_receiver(receiver)} "
        f"{'is' if count == 1 else 'are'} {kind}{_when(report, birth.pass_number)}{spread}.",
        location=location,
        evidence={
            "nan": birth.nan, "inf": birth.inf, "elements": birth.count, "incoming norm": birth.incoming_norm,
            "input": birth.input_number, "zeros saved": birth.saved_zero, "pass": birth.pass_number,
        },
        remedy=_remedy(node, birth),
        subject=node.op,
        node=(report.graphs.index(graph), node.index),
    )  # fmt: skip


def _because(birth: Birth, node: Node) -> str:
    certainty = "" if birth.certain else "it is one of several that feed the same gradient; "
    held = [
        counted(count, noun, plural)
        for count, noun, plural in (
            (birth.saved_zero, "zero", "zeros"),
            (birth.saved_negative if node.op.startswith(("log", "sqrt")) else 0, "negative number", "negative numbers"),
            (birth.saved_bad, "NaN or infinite element", "NaN or infinite elements"),
        )
        if count
    ]
    if not held:
        return certainty + f"it receives a finite gradient (norm {scientific(birth.incoming_norm)}), but "
    slot = {"self": "its input", "other": "its divisor" if node.op.startswith("div") else "its second input"}
    return certainty + f"{slot.get(birth.saved_name, 'its ' + birth.saved_name)} holds {' and '.join(held)}, so "


def _receiver(node: Node) -> str:
    return node.variable or node.op


def _where(location: Location | None) -> str:
    return f", {location.label}" if location else ""


def _when(report: TraceReport, pass_number: int) -> str:
    return f" in backward pass {pass_number} of {report.passes_seen}" if report.passes_seen > 1 else ""


def _remedy(node: Node, birth: Birth) -> str:
    if birth.saved_bad and not birth.saved_zero:
        return "The forward was not finite already: look at what goes into this line with %tensor."
    op = _SAME_REMEDY.get(node.op, node.op)
    return _REMEDIES.get(op, "Look at what goes into this line with %tensor; clamp or mask it before, not after.")


def _bad_from_the_start(report: TraceReport, pass_number: int, graph: Graph) -> Finding:
    called = next((done.location for done in report.passes if done.number == pass_number), None)
    root = graph.nodes[graph.roots[0]] if graph.roots else graph.nodes[-1]
    return Finding(
        code="TM402",
        severity="error",
        message=f"Backward was started with a gradient that is not finite: {root.op} receives it"
        f"{_when(report, pass_number)}.",
        location=report.location(called),
        evidence={"pass": pass_number},
        remedy="Look at the gradient argument of backward(), or at a loss scale that overflowed.",
        subject=root.op,
        node=(report.graphs.index(graph), root.index),
    )


# -- TM403, TM404 -------------------------------------------------------------------------------------------------


def _typical(series: ParameterSeries) -> float | None:
    """Return the median finite norm over the kept passes, or None where there is none above zero."""
    finite = [norm for norm in series.norms if norm > 0 and math.isfinite(norm)]
    return median(finite) if finite else None


def _weights(report: TraceReport) -> list[tuple[ParameterSeries, float, float]]:
    """Return (weight, its typical norm, the same per element) for every weight that got a gradient."""
    typical = ((series, _typical(series)) for series in report.parameters if len(series.shape) > 1)
    return [(series, norm, norm / math.sqrt(series.numel)) for series, norm in typical if norm is not None]


def _leaf_node(report: TraceReport, name: str) -> tuple[tuple[int, int] | None, Location | None]:
    """Return where a leaf is in the graphs, and the line of the op that uses it."""
    for number, graph in enumerate(report.graphs):
        leaf = next((node for node in graph.nodes if node.kind == "accumulate" and node.variable == name), None)
        if leaf is not None:
            users = [graph.nodes[edge.source] for edge in graph.edges if edge.target == leaf.index]
            return (number, leaf.index), report.location(users[0].location) if users else None
    return None, None


def vanishing(report: TraceReport) -> Iterator[Finding]:
    """TM403: the gradient of a weight is a vanishing share of the largest one."""
    weights = _weights(report)
    if len(weights) < 2:  # noqa: PLR2004  (a ratio needs two)
        return
    best = max(weights, key=lambda weight: weight[2])
    limit = best[2] * VANISHING_RATIO
    lost = [weight for weight in weights if weight[1] < VANISHING_NORM and weight[2] < limit]
    if not lost:
        return
    worst = min(lost, key=lambda weight: weight[2])
    node, location = _leaf_node(report, worst[0].name)
    others = f"; {counted(len(lost) - 1, 'other weight')} likewise" if len(lost) > 1 else ""
    yield Finding(
        code="TM403",
        severity="warning",
        message=f"The gradient vanishes on its way to {worst[0].name}: typical norm {scientific(worst[1])}, "
        f"against {scientific(best[1])} at {best[0].name}{others}.",
        location=location,
        evidence={worst[0].name: worst[1], best[0].name: best[1], "weights below": len(lost)},
        remedy="Use ReLU or GELU instead of sigmoid or tanh, a normalisation or residual connections between the "
        "layers, and an initialisation that fits the activation (nn.init.kaiming_normal_).",
        subject=worst[0].name,
        node=node,
    )


def exploding(report: TraceReport) -> Iterator[Finding]:
    """TM404: the gradient of a weight grows without bound, over depth or over steps."""
    over_steps = [(series, *growth) for series in report.parameters if (growth := _growth(series)) is not None]
    if over_steps:
        series, first, last = max(over_steps, key=lambda row: row[2] / row[1])
        yield _exploding(report, series, f"grew from {scientific(first)} to {scientific(last)} over the steps",
                         {"early": first, "largest": last})  # fmt: skip
        return
    weights = _weights(report)
    if len(weights) > 1:
        least, most = min(weights, key=lambda w: w[2]), max(weights, key=lambda w: w[2])
        if most[1] > EXPLODING_NORM and most[2] > least[2] * EXPLODING_RATIO * 10:
            text = f"is {scientific(most[1])}, against {scientific(least[1])} at {least[0].name}"
            yield _exploding(report, most[0], text, {most[0].name: most[1], least[0].name: least[1]})


def _growth(series: ParameterSeries) -> tuple[float, float] | None:
    """Return (typical early norm, largest later norm) where the later one is beyond all proportion."""
    finite = [norm for norm in series.norms if norm > 0 and math.isfinite(norm)]
    if len(finite) < 4:  # noqa: PLR2004  (fewer steps are no trend)
        return None
    early, late = median(finite[: max(len(finite) // 4, 2)]), max(finite[len(finite) // 2 :])
    return (early, late) if late > EXPLODING_NORM and late > early * EXPLODING_RATIO else None


def _exploding(report: TraceReport, series: ParameterSeries, text: str, evidence: dict[str, float]) -> Finding:
    node, location = _leaf_node(report, series.name)
    return Finding(
        code="TM404",
        severity="warning",
        message=f"The gradient explodes: the norm at {series.name} {text}.",
        location=location,
        evidence=dict(evidence),
        remedy="Lower the learning rate, clip before the step with "
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0), or check the initialisation.",
        subject=series.name,
        node=node,
    )
