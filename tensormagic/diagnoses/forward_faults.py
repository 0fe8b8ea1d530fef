"""TM401 of a run: where the forward first held a NaN or Inf, if its loss does, or if nothing else explains a gradient.

It replaces TM402 where backward only hands on what the forward made. Where NaN first appears in the same op, TM402 has
more to say of it: which slope is infinite there, and what to write instead.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import NamedTuple

from tensormagic.diagnoses.lines import as_code, call_on, spliced, text_of
from tensormagic.diagnoses.paths import users_of
from tensormagic.diagnoses.rule import clipping, related_lines, scientific, updaters_of
from tensormagic.diagnoses.singular import (
    DOMAIN,
    LOSSES,
    NOT_FINITE_FORWARD,
    OVERFLOW,
    SINGULARITIES,
    first_nonfinite,
    loss_of,
    nan_in_where,
    nonfinite_kind,
    when,
)
from tensormagic.reports import (
    Finding,
    Graph,
    Location,
    Node,
    NonfiniteOrigin,
    NonfiniteSource,
    Severity,
    TraceReport,
)
from tensormagic.words import RECEIVED, count, is_or_are, part_of, plural

_MASKED_ROW = (
    "A row in which every score is -inf has no softmax: leave one element of it unmasked, or fill with a large "
    "negative number in {place}, `{code}`."
)
_ANY_ROW = (
    "A row that holds inf, or in which every score is -inf, has no softmax. If scores grow from step to step, lower "
    "the learning rate; in a masked row, leave one element unmasked, or fill with a large negative number, "
    "`{code}`."
)
_MASKED_TARGET = (
    "Scores of -inf went in, such as those of masked classes, and the loss is infinite where it takes one: leave the "
    "class of each target unmasked, or leave such samples out."
)
_FILLED = "An infinity masks scores in front of a softmax: fill anything else with 0."
_SOFTMAX = {"softmax", "log_softmax"}
_MINUS_INFINITY = {
    "float('-inf')",
    "float('-infinity')",
    "-float('inf')",
    *(f"-{of}.inf" for of in ("math", "torch", "np", "numpy")),
}
_MOST_STEPS = 4  # from a softmax to what masks its scores: a scale, a change of shape
_FORWARD_HALF = (
    "float16 holds at most 65504: compute this part in float32 (`with torch.autocast(..., enabled=False)` and "
    "`x.float()`), normalise the input, or use bfloat16."
)
_OVERFLOWS = "Look at the inputs of this line with `%tensor`: they are finite, but the result overflows its dtype."
_TOO_LONG = (
    "A target needs as many time steps as it has symbols, and one more between two that are equal: give it longer "
    "inputs, or leave it out with `zero_infinity=True`."
)
_OWN_FUNCTION = (
    "Look with `%tensor` at the inputs of this line and at what the forward computes from them: a logarithm, a root "
    "or a division at zero, or a result that overflows its dtype."
)


class Fault(NamedTuple):
    """Where a forward went wrong: the place of the graph, what is known of it, whether its inputs were finite."""

    at: int
    first: NonfiniteSource
    fed_well: bool


def forward_fault(report: TraceReport) -> Fault | None:
    """Return where the run's forward went wrong, where nothing else is known of it."""
    sources = ((at, graph.nonfinite_source) for at, graph in enumerate(report.graphs))
    searched = [Fault(at, source, source.certain) for at, source in sources if source is not None]
    found = min(searched, key=lambda fault: fault.first.pass_number, default=None) or _measured(report)
    return None if found is None or _has_better_finding(report, found) else found


def _measured(report: TraceReport) -> Fault | None:
    """Return the same from the forward's values, where they were asked for: the first NaN of a pass that went wrong."""
    wrong = {done.number for done in report.passes if not done.finite or _is_bad(done.value)}
    rows = [
        (frame.pass_number, at, frame)
        for at, each in enumerate(report.graphs)
        for frame in each.frames
        if frame.pass_number in wrong and frame.forward is not None and frame.forward.bad
    ]
    if not rows:
        return None
    _, at, frame = min(rows, key=lambda row: row[:2])
    assert frame.forward is not None
    graph = report.graphs[at]
    nan = [int(index) for index, (number, _) in frame.forward.bad.items() if number]
    nonfinite = graph.forward_nonfinite
    lost = _is_bad(loss_of(report, frame.pass_number)) or nan
    if lost and nonfinite is not None and nonfinite.pass_number == frame.pass_number and nonfinite.given is False:
        first = NonfiniteSource(
            nonfinite.pass_number, nonfinite.node, "made", nonfinite.nan, nonfinite.inf, nonfinite.count
        )
        return Fault(at, first, fed_well=True)
    if not nan:
        return None
    index = min(nan)
    shape = (graph.nodes[index].shapes or ((),))[0]
    source: NonfiniteOrigin = "leaf" if graph.nodes[index].kind == "accumulate" else "made"
    counts = frame.forward.bad[str(index)]
    first = NonfiniteSource(frame.pass_number, index, source, *counts, math.prod(shape), shape=shape)
    return Fault(at, first, fed_well=False)


def _is_bad(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


def _has_better_finding(report: TraceReport, found: Fault) -> bool:
    """Whether TM402 or TM406 says more: the gradient's NaN is older, of the same op, or of a branch not taken."""
    born = first_nonfinite(report)
    if born is None:
        return False
    if nan_in_where(report) is not None:
        return True
    graph = report.graphs[born]
    nonfinite = graph.first_nonfinite[0]
    if nonfinite.pass_number < found.first.pass_number:
        return True
    same = born == found.at and nonfinite.node == found.first.node
    return same and found.first.source == "made" and graph.nodes[nonfinite.node].op in SINGULARITIES


def forward_not_finite(report: TraceReport) -> Iterator[Finding]:
    """TM401: where the forward first held a NaN or Inf; of a loss alone, where no more is known."""
    found = forward_fault(report)
    if found is not None:
        if not is_half_overflow(report, found):
            yield fault_finding(report, found)
    else:
        yield from _bad_loss(report)


def is_half_overflow(report: TraceReport, found: Fault) -> bool:
    """Whether it is float16 that could not hold a result: TM407."""
    node, first = report.graphs[found.at].nodes[found.first.node], found.first
    return (
        first.source == "made" and found.fed_well and first.inf > 0 and not first.zero and node.dtype == "float16"
        and node.op not in SINGULARITIES
    )  # fmt: skip


def fault_finding(report: TraceReport, found: Fault) -> Finding:
    """Put a fault of the forward into words; as TM407, where it is one of float16."""
    first, graph = found.first, report.graphs[found.at]
    node = graph.nodes[first.node]
    place = _place_of(report, graph, node)
    half = is_half_overflow(report, found)
    message, remedy = _words(report, found, place)
    hands_on = node.op in _SOFTMAX or not found.fed_well
    filled = _mask_line(report, graph, node) if first.source == "made" and hands_on else None
    if filled is not None and node.op not in _SOFTMAX:
        remedy = _FILLED
    if half:
        message = message.replace("The forward makes its first infinite value in", "The forward overflows float16 in")
    return Finding(
        code="TM407" if half else "TM401",
        severity=_severity(report, first.pass_number),
        message=message,
        location=place,
        evidence={"nan": first.nan, "inf": first.inf, "elements": first.count, "pass": first.pass_number},
        remedy=_FORWARD_HALF if half else remedy,
        subject=first.name or node.variable or node.op,
        node=(found.at, first.node),
        related=related_lines(("-inf is filled in here", filled), besides=place),
    )


def _mask_line(report: TraceReport, graph: Graph, softmax: Node) -> Location | None:
    """Return the line that filled the scores of a softmax, where it stands a few ops before it."""
    at = softmax.index
    for _ in range(_MOST_STEPS):
        before = [graph.nodes[edge.target] for edge in graph.edges if edge.source == at]
        filling = next((node for node in before if node.op == "masked_fill"), None)
        if filling is not None or len(before) != 1:
            return report.location(filling.location) if filling is not None else None
        at = before[0].index
    return None


def _severity(report: TraceReport, pass_number: int) -> Severity:
    """Return a warning where no gradient was bad, or the last pass is finite again."""
    kept = [done for done in report.passes if done.number == pass_number]
    last = report.passes[-1] if report.passes else None
    recovers = last is not None and last.number > pass_number and last.finite and not _is_bad(last.value)
    return "warning" if recovers or (kept and kept[0].finite) else "error"


def _place_of(report: TraceReport, graph: Graph, node: Node) -> Location | None:
    """Return a node's line; of a leaf, that of the first op that uses it."""
    if node.kind != "accumulate":
        return report.location(node.location)
    users = sorted(users_of(graph, node.index), key=lambda user: user.index)
    return report.location(next((user.location for user in users if user.location is not None), None))


def _words(report: TraceReport, found: Fault, place: Location | None) -> tuple[str, str]:
    """Return the sentence and the remedy."""
    first, node = found.first, report.graphs[found.at].nodes[found.first.node]
    kind, bad = nonfinite_kind(first.nan, first.inf)
    at = when(report, first.pass_number)
    line = f", {place.label}" if place else ""
    if first.source == "made":
        opening = f"The forward makes its first {kind} value in"
        if not first.certain:
            opening = f"The first {kind} value that can be seen in the forward is made by"
        grown = _grown(report, report.graphs[found.at].number, first.pass_number) if first.inf else 0.0
        before = f"; before that, the loss had reached {scientific(grown)}" if grown else ""
        cure = _cure(report, node, found)
        cure = _DIVERGES if grown and cure in {_OVERFLOWS, NOT_FINITE_FORWARD} else cure
        return f"{opening} {node.op}{_inside(node)}{line}{at}: {_why(node, found)}{before}.", cure
    held = plural(bad, "NaN", "NaN") if first.nan else plural(bad, "infinite element")
    of = f"among its {count(first.count)} elements" if first.count > 1 else "and nothing else"
    if first.source == "leaf":
        text = f"{node.variable} holds {held} {of} before the forward begins{at}"
        look = f"Look where its values come from: `%tensor {as_code(node.variable)}` counts them."
        if node.variable.startswith(RECEIVED):
            return f"{text}: it came from the previous stage.", "Look at the report of the rank that holds that stage."
        if first.pass_number == 1:
            return f"{text}: it was there from the start.", look
        steps = {number for use in updaters_of(report) for number in use.holds}
        known = [(at, each) for at, each in enumerate(report.parameters) if each.name == node.variable]
        if any(each.is_parameter or at in steps for at, each in known):
            return f"{text}: an earlier optimizer step produced it.", OVERFLOW.format(clip=clipping(report))
        return f"{text}.", look
    name, code = first.name or f"The data of shape {first.shape}", first.name or "x"
    cure = (
        f"Look at the data with `%tensor {code}`, and clean it first: `{code} = torch.nan_to_num({code})`, or leave "
        "such samples out."
    )
    if node.op in LOSSES and first.name:
        code = code if code.isidentifier() else "y"
        cure = (
            f"Look at the data with `%tensor {code}`, and leave out what is missing: `known = {code}.isfinite()`, and "
            f"the loss of `prediction[known]` and `{code}[known]`."
        )
    return f"{name}, which goes into {node.op}{_inside(node)}{line}{at}, already holds {held} {of}.", cure


def _inside(node: Node) -> str:
    return f" of {node.module}" if node.module else ""


def _why(node: Node, found: Fault) -> str:
    """Return what it made, and of what."""
    first = found.first
    kind, bad = nonfinite_kind(first.nan, first.inf)
    share = f"{part_of(bad, max(first.count, bad))} of its result {is_or_are(bad)} {kind}"
    if first.zero or first.negative:
        held = [plural(first.zero, "zero")] if first.zero else []
        if first.negative and node.op.startswith("log"):
            held.append(plural(first.negative, "negative number"))
        elif first.negative:
            held.append(f"{plural(first.negative, 'element')} outside its domain")
        operand = "divisor" if node.op == "div" else "input"
        return f"its {operand} holds {' and '.join(held)}, so {share}"
    if found.fed_well:
        return f"{share}, although all inputs are finite"
    return share


def _cure(report: TraceReport, node: Node, found: Fault) -> str:
    first = found.first
    if node.op in _SOFTMAX and first.nan:
        return _cure_of_a_row(_mask_line(report, report.graphs[found.at], node), node)
    if node.op == "log_softmax" and node.dtype != "float16":  # which may overflow itself
        return _MASKED_TARGET
    overflows = node.op == "exp" and first.inf and not first.nan  # its input is not saved, and is hardly ever infinite
    if node.op in SINGULARITIES and (found.fed_well or first.zero or first.negative or overflows):
        return DOMAIN if first.negative and node.op != "div" else SINGULARITIES[node.op].remedy
    if not found.fed_well:
        return NOT_FINITE_FORWARD
    own = _OWN_FUNCTION if node.kind == "custom" else _OVERFLOWS
    return {"ctc_loss": _TOO_LONG, "masked_fill": _FILLED, "where": _FILLED}.get(node.op, own)


def _cure_of_a_row(line: Location | None, softmax: Node) -> str:
    """Return what to do about a row of -inf: the very ``line`` that fills it in, mended, where that is known."""
    finite = "-1e4" if softmax.dtype == "float16" else "-1e9"  # float16 ends at 65504
    fill = call_on(text_of(line), "masked_fill", "masked_fill_")
    if line is not None and fill is not None and len(fill.args) >= 2:
        filled = ast.unparse(fill.args[-1]).replace('"', "'").lower()
        mended = spliced(line.text, fill.args[-1], finite) if filled in _MINUS_INFINITY else ""
        if mended:
            return _MASKED_ROW.format(place=line.label, code=mended)
    return _ANY_ROW.format(code=f"scores.masked_fill(mask, {finite})")


DIVERGED, VAST = 1e6, 1e12  # a loss that has grown by the first, or beyond the second, overflows by growing further
_DIVERGES = "The training diverges: lower the learning rate, and standardise inputs and targets that are far from 0."


def _grown(report: TraceReport, graph: int, pass_number: int) -> float:
    """Return the last loss that is known from before a pass, where it had grown so much as to overflow; else 0."""
    alike = (done for done in report.passes if done.graph == graph and done.number < pass_number)
    earlier = [abs(done.value or 0.0) for done in alike] or [0.0]
    grown = earlier[-1] > min(DIVERGED * max(earlier[0], 1.0), max(VAST, 10 * earlier[0]))
    return earlier[-1] if grown else 0.0


def _bad_loss(report: TraceReport) -> Iterator[Finding]:
    """TM401: the loss is NaN or infinite while its gradients are not: nothing else would give it away."""
    bad = next((done for done in report.passes if _is_bad(done.value)), None)
    if bad is None or not bad.finite:
        return
    number, graph = next((at, graph) for at, graph in enumerate(report.graphs) if graph.number == bad.graph)
    root = graph.nodes[graph.roots[0]]
    name = f"The loss {root.variable}" if root.variable and root.variable != "loss" else "The loss"
    nan = math.isnan(bad.value or 0.0)
    grown = 0.0 if nan else _grown(report, bad.graph, bad.number)
    before = f"; before that, it had reached {scientific(grown)}" if grown else ""
    yield Finding(
        code="TM401",
        severity="warning",
        message=f"{name} is {'NaN' if nan else 'infinite'}{when(report, bad.number).removeprefix(',')}, although every "
        f"gradient is finite{before}.",
        location=report.location(root.location),
        evidence={"loss": bad.value, "pass": bad.number},
        remedy=_DIVERGES
        if grown
        else "Look at the inputs of this line with `%tensor`: the logarithm or the root of a negative number, data "
        "that is not finite, or a mean over no elements, such as under a mask that is False everywhere, or of targets "
        "that are all ignored.",
        subject=root.op,
        node=(number, root.index),
    )
