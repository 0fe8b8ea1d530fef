"""TM312, TM319, TM403, TM404: gradients that vanish or explode, and graphs and hooks that grow in number."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tensormagic.diagnoses.lines import as_code, assigned, atom, is_code, of_model, spliced, statement_of, text_of
from tensormagic.diagnoses.paths import Paths, users_of
from tensormagic.diagnoses.rule import FEWEST_STEPS, clipping, related_lines, scientific, training_of
from tensormagic.reports import (
    UNTOUCHED,
    Finding,
    GraphGrowth,
    HookKind,
    Location,
    ParameterSeries,
    RepeatedHook,
    TraceReport,
)
from tensormagic.words import count, listed, plural

# TM312: the graph grows from step to step, because something with a history is carried over into the next step.

FEWEST_GROWN = 4  # over which it grew, by the same number of nodes each time
_ONLY_THE_NUMBER = "Add only the number: `loss.item()`, or `loss.detach()`."


def growing_graph(report: TraceReport) -> Iterator[Finding]:
    """TM312: backward goes through the steps before as well, or a sum that backward never goes through keeps them."""
    for growth in training_of(report).growth:
        if growth.passes >= FEWEST_GROWN:
            yield _growing(report, growth)
    used = {node.location for graph in report.graphs for node in graph.nodes}
    for found in training_of(report).sums:
        if found.steps >= FEWEST_GROWN and found.location not in used and report.state != "running":
            place = report.location(found.location)
            name, remedy = _target_and_remedy(place)
            passes = plural(found.steps, "backward pass", "backward passes")
            yield Finding(
                code="TM312",
                severity="warning",
                message=f"{name} carries the graph of every step with it: over at least {passes}, values were added "
                "to it together with their graphs, and no backward uses the sum.",
                location=place,
                evidence={"backward passes": found.steps},
                remedy=remedy,
                subject=name,
            )


def _growing(report: TraceReport, growth: GraphGrowth) -> Finding:
    joined, reaches = report.location(growth.joined), report.location(growth.reaches)
    backward = report.location(growth.backward)
    carried_from = ("what it carries over is made here", reaches if reaches != joined else None)
    carried = assigned(reaches or joined)
    cut = f"`{carried[0]} = {carried[0]}.detach()`" if len(carried) == 1 else "`.detach()`"
    return Finding(
        code="TM312",
        severity="warning",
        message=f"The graph grows by {plural(growth.increment, 'node')} per step, from {count(growth.first_size)} to "
        f"{count(growth.last_size)} in {growth.passes} steps: "
        f"{plural(growth.older, 'node of it was', 'nodes of it were')} made in earlier steps, and backward goes "
        "through them again.",
        location=joined or backward,
        evidence={"nodes a step": growth.increment, "nodes": growth.last_size, "of earlier steps": growth.older},
        remedy=f"Detach what is carried into the next step: {cut} before it is used again; for a loss that is only "
        "logged, use `loss.item()`.",
        subject="graph",
        related=related_lines(carried_from, ("backward goes through all of it", backward)),
    )


def _target_and_remedy(place: Location | None) -> tuple[str, str]:
    """Return what is added to, and the line as it should be; plain words where the line is no simple one."""
    statement = statement_of(text_of(place))
    if isinstance(statement, ast.AugAssign):
        name = ast.unparse(statement.target)
        return name, f"Add only the number: `{name} += {atom(statement.value)}.item()`"
    if isinstance(statement, ast.Assign):
        name = ast.unparse(statement.targets[0])
        terms = list(_terms(statement.value, name))
        mended = spliced(text_of(place), terms[0], f"{atom(terms[0])}.item()") if len(terms) == 1 else ""
        return name, f"Add only the number: `{mended}`" if mended else _ONLY_THE_NUMBER
    return "A sum", _ONLY_THE_NUMBER


def _terms(value: ast.expr, name: str) -> Iterator[ast.expr]:
    """Yield what is added to a running value: of `0.9 * average + 0.1 * loss`, `loss`."""
    if isinstance(value, ast.BinOp):
        for side in (value.left, value.right):
            yield from _terms(side, name)
        return
    read = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    if not isinstance(value, ast.Constant) and name not in read:
        yield value


# TM403, TM404: gradients that vanish or explode, over depth or over steps.
#
# The thresholds are ratios wherever they can be: a network that has converged has small gradients everywhere, and a
# summed loss or raw units large ones; neither is ill. Over depth, two things must come together: a weight's own
# gradient, and the gradient that arrives at the op which uses it, compared with what that gradient was on its way
# (see `paths`). Only weights (two dimensions or more) are judged over depth: the gradient of a bias before a
# normalisation, or of an attention key, is zero up to rounding by construction.

# A weight whose gradient has a norm below 1e-6 does not move: Adam's own epsilon is 1e-8 an element. That is ill only
# if another weight on the same path gets 1e5 times as much per element: then the difference arose on the way, and the
# arriving gradient must have lost a factor of 100 of it (the rest can be the activations, which shrink as well).
VANISHING_NORM = 1e-6
VANISHING_RATIO = 1e-5
VANISHING_ARRIVAL = 1e-2
# One that began a thousand times as large was lost on the way: neither the activations nor the initialisation did it.
LOST_RATIO = 1e-3
# Healthy losses, summed or in raw units, start with norms of 1e6 and more; so growth alone
# counts. Training starts from small gradients (zero-initialised layers, warm-up) and may grow a hundredfold; a
# thousandfold, above a norm of 100, is a run that diverges, or a gradient that each layer multiplies.
EXPLODING_NORM = 1e2
EXPLODING_RATIO = 1e3

_SQUASHING = frozenset({"sigmoid", "tanh", "softmax", "hardsigmoid", "hardtanh", "log_sigmoid_forward"})
_SQUASHED = (
    "Use ReLU or GELU instead of sigmoid or tanh, a normalisation or residual connections between the layers, and an "
    "initialisation that fits the activation: `{init}`."
)
_NORMALISED = (
    "A softmax passes on no gradient where one score has all the weight, or where all its outputs count equally: "
    "divide the scores by the square root of their width, and check its dimension."
)
_SHRUNK = (
    "Initialise for the activation, `{init}` (torch's own default for nn.Linear shrinks a signal in every layer), or "
    "put a normalisation or residual connections between the layers."
)
_LOST = (
    "Its norm was {first} to begin with: training has brought this about, as steps that are too long do. Lower the "
    "learning rate or raise it slowly at the start, and clip before the step: `{clip}`."
)
_RAW = "Inputs that are far from zero do this too: standardise them, `(x - x.mean(0)) / x.std(0)`."
_GROWN = "Lower the learning rate, or clip before the step: `{clip}`. " + _RAW
_MULTIPLIED = (
    "Each layer multiplies it: check the initialisation (`{init}` keeps a signal's size), put a normalisation between "
    "the layers, or clip before the step: `{clip}`."
)

_NONE = (-1.0, 0)  # weaker than any weight


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight that got a gradient: its series, the typical norm over the kept passes, and the same per element."""

    series: ParameterSeries
    norm: float
    per_element: float

    @property
    def name(self) -> str:
        return self.series.name


def _finite(series: ParameterSeries) -> list[float]:
    return [norm for norm in series.norms if norm > 0 and math.isfinite(norm)]


def _weights(report: TraceReport) -> list[_Weight]:
    rows = ((series, _finite(series)) for series in report.parameters if len(series.shape) > 1 and series.numel)
    typical = ((series, median(norms)) for series, norms in rows if norms)
    return [_Weight(series, norm, norm / math.sqrt(series.numel)) for series, norm in typical]


def _leaf_node(report: TraceReport, name: str) -> tuple[tuple[int, int] | None, Location | None]:
    """Return where a leaf is in the graphs, and the line of the op that uses it."""
    for number, graph in enumerate(report.graphs):
        leaf = next((node for node in graph.nodes if node.kind == "accumulate" and node.variable == name), None)
        if leaf is not None:
            users = users_of(graph, leaf.index)
            return (number, leaf.index), report.location(users[0].location) if users else None
    return None, None


def vanishing(report: TraceReport) -> Iterator[Finding]:
    """TM403: the gradient of a weight is a vanishing share of what another weight on the same path gets."""
    weights = _weights(report)
    most = max((weight.per_element for weight in weights), default=0.0)
    faint = [w for w in weights if w.norm < VANISHING_NORM and w.per_element < most * VANISHING_RATIO]
    passed = [_Passed(Paths(graph), weights) for graph in report.graphs] if faint else []
    for worst in sorted(faint, key=lambda weight: weight.per_element):
        best = _best_before(passed, worst)
        if best is not None:
            lost = sum(weight.per_element < best.per_element * VANISHING_RATIO for weight in faint)
            node, location = _leaf_node(report, worst.name)
            every = (series for series in report.parameters if len(series.shape) > 1)
            # In every pass: next to gradients below 1e-6, those have underflowed.
            zero = sum({norm for norm in series.norms if norm != UNTOUCHED} == {0} for series in every)
            others = f"; {plural(lost - 1, 'other weight')} as well" if lost > 1 else ""
            squashing = {each.op for graph in report.graphs for each in graph.nodes} & _SQUASHING
            remedy = _NORMALISED if squashing == {"softmax"} else _SQUASHED if squashing else _SHRUNK
            first = _finite(worst.series)[0]
            remedy = _LOST if worst.norm < first * LOST_RATIO else remedy
            beyond = f"; beyond it, {plural(zero, 'weight gets', 'weights get')} exactly zero" if zero else ""
            yield Finding(
                code="TM403",
                severity="warning",
                message=f"The gradient vanishes on its way to {worst.name}: its norm is {scientific(worst.norm)}, "
                f"against {scientific(best.norm)} at {best.name}{others}{beyond}.",
                location=location,
                evidence={worst.name: worst.norm, best.name: best.norm, "weights below": lost, "weights at zero": zero},
                remedy=remedy.format(
                    init=_init(worst.name), first=scientific(first), clip=clipping(report, worst.series.owner)
                ),
                subject=worst.name,
                node=node,
            )
            return


class _Passed:
    """The strongest weight that the gradient has passed before it comes to a node, for every node of a graph."""

    def __init__(self, paths: Paths, weights: list[_Weight]) -> None:
        self.paths = paths
        own: dict[int, tuple[float, int]] = {}
        for number, weight in enumerate(weights):
            for user in paths.users(weight.name):
                own[user] = max(own.get(user, _NONE), (weight.per_element, -number))
        self._weights = weights
        self._strongest = paths.largest_above(own, _NONE)

    def before(self, node: int) -> _Weight | None:
        strength, number = self._strongest[node]
        return self._weights[-number] if strength >= 0 else None


def _best_before(passed: list[_Passed], weight: _Weight) -> _Weight | None:
    """Return the strongest weight that the gradient passed before ``weight``, if it vanished in between, else None."""
    found: list[_Weight] = []
    for each in passed:
        path = each.paths
        arriving, user = path.strongest(path.users(weight.name))
        if user >= 0:
            if arriving > path.at_the_last_layer(user) * VANISHING_ARRIVAL:
                return None
            best = each.before(user)
            found += [best] if best is not None else []
    best = max(found, key=lambda other: other.per_element, default=None)
    return best if best is not None and weight.per_element < best.per_element * VANISHING_RATIO else None


def exploding(report: TraceReport) -> Iterator[Finding]:
    """TM404: the gradient grows without bound, over the steps or from layer to layer within one backward."""
    finding = _over_steps(report) or _over_depth(report)
    if finding is not None:
        yield finding


def _over_steps(report: TraceReport) -> Finding | None:
    """Judge every parameter by the largest early norm in its model: one that only catches up does not explode."""
    ends = ((series, _ends(series)) for series in report.parameters)
    rows = [(series, *known) for series, known in ends if known is not None]
    early: dict[str, float] = {}
    for series, first, _ in rows:
        early[series.owner] = max(early.get(series.owner, 0.0), first)
    grown = [row for row in rows if row[2] > max(EXPLODING_NORM, early[row[0].owner] * EXPLODING_RATIO)]
    if not grown:
        return None
    series, first, last = max(grown, key=lambda row: (row[2] / row[1], row[0].numel))
    return _exploding(report, series, f"the norm at {series.name} grew from {scientific(first)} to {scientific(last)} "
                      "over the steps", {"early": first, "largest": last}, _maximised(report) or _GROWN)  # fmt: skip


# Losses that are nowhere below zero, and are 0 where the prediction is right.
_MINIMISED = frozenset({
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "nll_loss", "nll_loss2d", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "ctc_loss",
})  # fmt: skip


def _maximised(report: TraceReport) -> str:
    """Return what to do about a loss with the wrong sign, that falls without bound; nothing of any other."""
    values = [done.value for done in report.passes if done.value is not None and math.isfinite(done.value)]
    if not values or not values[-1] < min(values[0], 0) or len(report.graphs) != 1:
        return ""
    turned = [
        made.op
        for made in report.graphs[0].nodes
        if made.op in _MINIMISED and [user.op for user in users_of(report.graphs[0], made.index)] == ["neg"]
    ]
    if not turned:
        return ""
    return (
        f"Leave out the minus before {turned[0]}: with it, training makes the error larger (the loss went from "
        f"{scientific(values[0])} to {scientific(values[-1])})."
    )


def _ends(series: ParameterSeries) -> tuple[float, float] | None:
    """Return (typical early norm, largest later norm); of one that came back to where it began, the norm there.

    A line search tries steps that are too long, and throws them away: what it ends with is small.
    """
    finite = _finite(series)
    if len(finite) < FEWEST_GROWN:
        return None
    quarter = max(len(finite) // 4, 2)
    early, late = median(finite[:quarter]), median(finite[-quarter:])
    return early, late if late <= early else max(finite[len(finite) // 2 :])


def _over_depth(report: TraceReport) -> Finding | None:
    large = [weight for weight in _weights(report) if weight.norm > EXPLODING_NORM]
    paths = [Paths(graph) for graph in report.graphs] if large else []
    grown = ((*_growth(path, weight.name), weight) for path in paths for weight in large)
    growth, first, weight = max(grown, key=lambda row: row[0], default=(0.0, 0.0, None))
    if weight is None or growth <= EXPLODING_RATIO:
        return None
    text = (
        f"on its way to {weight.name} it grows {scientific(growth)} times, from a norm of {scientific(first)} "
        f"at the last layer to {scientific(growth * first)}"
    )
    evidence = {weight.name: weight.norm, "arrives": growth * first, "last layer": first}
    return _exploding(report, weight.series, text, evidence, _MULTIPLIED)


def _growth(path: Paths, name: str) -> tuple[float, float]:
    """Return (growth on the way to a weight, norm at the last layer); zeros where it is below the threshold anyway."""
    arriving, user = path.strongest(path.users(name))
    if arriving <= path.least_at_a_last_layer() * EXPLODING_RATIO:
        return 0.0, 0.0
    reference = path.at_the_last_layer(user)
    return (arriving / reference, reference) if reference else (0.0, 0.0)


def _init(name: str) -> str:
    return f"nn.init.kaiming_normal_({as_code(name)})"


def _exploding(
    report: TraceReport, series: ParameterSeries, text: str, evidence: dict[str, float], remedy: str
) -> Finding:
    node, location = _leaf_node(report, series.name)
    return Finding(
        code="TM404",
        severity="warning",
        message=f"The gradient explodes: {text}.",
        location=location,
        evidence=dict(evidence),
        remedy=remedy.format(clip=clipping(report, series.owner), init=_init(series.name)),
        subject=series.name,
        node=node,
    )


# TM319: the same hook several times on one tensor or module. All of them are called.

_AT: dict[HookKind, tuple[str, str, str]] = {  # what registers it, what it may change, when it is called
    "tensor": ("register_hook", "a gradient", "for each gradient"),
    "post-accumulate": ("register_post_accumulate_grad_hook", "the gradient", "for each gradient"),
    "forward": ("register_forward_hook", "an output", "in each call"),
    "forward pre": ("register_forward_pre_hook", "an input", "in each call"),
    "full backward": ("register_full_backward_hook", "a gradient", "in each backward"),
    "full backward pre": ("register_full_backward_pre_hook", "a gradient", "in each backward"),
}


def repeated_hooks(report: TraceReport) -> Iterator[Finding]:
    """TM319: a hook that stands several times on one tensor or module.

    A warning where it may change what it is given, else a note. Hooks of one line that were given different things are
    left alone, unless each step put one more there.
    """
    for one in report.hooks:
        each_step = one.grown >= max(FEWEST_STEPS, report.steps_seen) - 1
        if one.same or each_step:
            yield _repeated_hook(one, each_step=each_step)


def _repeated_hook(one: RepeatedHook, *, each_step: bool) -> Finding:
    registers, changed, called = _AT[one.kind]
    times = "twice" if one.times == 2 else f"{count(one.times)} times"
    function, given = (f"`{one.function}`", one.function) if one.function != "<lambda>" else ("`lambda`", "…")
    what = f"the {one.kind} hook {function} {times}" if one.same else f"{count(one.times)} {one.kind} hooks {function}"
    since = f", since each step registers {'it again' if one.same else 'one more'}" if each_step else ""
    follows = f"what it does to {changed} is done {times}" if one.changes else f"it is called {times} {called}"
    name = of_model(one.on[0])
    handle = f"`handle = {name if is_code(name) else 'x'}.{registers}({given})`, then `handle.remove()`"
    where, defined = one.registered or one.location, one.location
    if where is not None and defined is not None and (where.filename, where.line) == (defined.filename, defined.line):
        defined = None
    return Finding(
        code="TM319",
        severity="warning" if one.changes else "note",
        message=f"{listed(one.on, most=3, found=one.targets)} {'has' if one.targets == 1 else 'each have'} {what}"
        f"{since}: {follows if one.same else 'all of them are called'}.",
        location=where,
        evidence={"hooks": one.times, "tensors or modules": one.targets},
        remedy=f"Register it once, before the loop; or remove it when the step is over: {handle}."
        if each_step
        else f"Register it once; before the cell runs again, remove the last one: {handle}. Made anew, the "
        f"{'tensor' if one.kind in {'tensor', 'post-accumulate'} else 'module'} has none.",
        subject=one.on[0],
        related=related_lines(("the hook", defined)),
    )
