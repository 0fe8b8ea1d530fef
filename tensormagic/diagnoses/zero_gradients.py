"""TM405: a leaf whose gradient is exactly zero, and the op that lets nothing through; TM318: that got none at all."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tensormagic.diagnoses.backward_failures import ignored_gradient
from tensormagic.diagnoses.lines import as_code
from tensormagic.diagnoses.paths import neighbours, reached, users_of
from tensormagic.diagnoses.rule import every_call, observed
from tensormagic.diagnoses.singular import HOOKED
from tensormagic.reports import UNTOUCHED, Finding, Frame, Graph, Node, ParameterSeries, TraceReport
from tensormagic.words import count, listed, plural, tuple_text

# Exact zeros are often meant: layers that start at zero, rows of an embedding that no word asks for, a hinge loss
# that is satisfied. So the rule reports only leaves that get zero as a whole, together with all else of their layer, in
# several passes whose loss is not zero, and only where the gradient dies in an op that can be blamed for it: one that
# is flat where it is used. A product with zeros is not one: what starts at zero is such a product, and learns. Or where
# several gradients meet that are not zero, and add up to exactly zero in every pass.

FEWEST_PASSES = 3
# One that has died on the way, as after a step that was too large, must have been dead for half of the run.
DIED_SHARE = 0.5
DIED_PASSES = 4
FAINT = 1e-20  # what underflows on its way has vanished (TM403), and was not cut off


class Flat(NamedTuple):
    """Why an op lets nothing through, and what to do."""

    why: str
    remedy: str
    always: bool = False  # its slope is zero whatever its input: one pass is enough
    loss_is_zero: bool = False  # and so may the loss be, for that very reason
    hinge: bool = False  # as the last op of a loss it is meant to be flat


_DEAD = Flat(
    "its input is nowhere above zero",
    "Lower the learning rate or the bias before it, initialise with nn.init.kaiming_normal_, or use nn.LeakyReLU, "
    "which keeps a slope below zero.",
    hinge=True,
)
_SATURATED = Flat(
    "its input is so far from zero that its slope is 0 in this dtype",
    "Bring its input nearer to zero: standardise the data, (x - x.mean(0)) / x.std(0), or put nn.BatchNorm1d or "
    "nn.LayerNorm before it.",
)
_CERTAIN = Flat(
    "one element of every row has all of the weight, and the slope of the others is 0 in this dtype",
    "Bring its input nearer to zero: divide the scores by the square root of their width, or normalise what they are "
    "computed from; and check that a mask leaves more than one element of each row.",
)
_CLAMPED = Flat(
    "its input is outside its bounds everywhere, and outside them its slope is 0",
    "Widen the bounds, or use a soft one in training (torch.sigmoid, torch.tanh) and clamp only when predicting.",
    hinge=True,
)
_STEPS = Flat(
    "it is a step function, whose slope is 0 everywhere",
    "Round under no_grad only for what is shown; to learn through it, let the gradient pass straight: "
    "`x + (x.round() - x).detach()`.",
    always=True,
)
_DRAWN = Flat(
    "what is drawn has no slope towards its mean and deviation",
    "Draw with noise of its own: `mean + std * torch.randn_like(std)`, or "
    "`torch.distributions.Normal(mean, std).rsample()`.",
    always=True,
)
_MASKED = Flat("its mask leaves nothing of it", "Look at the mask with `%tensor`: it takes the other side everywhere.")
_OTHER_OPERAND_WINS = Flat("the other operand wins everywhere", "Look at both operands with `%tensor`.", hinge=True)
_ALONE = Flat(
    "over a dimension of size 1 it is constant",
    "For one score per sample use torch.sigmoid and F.binary_cross_entropy_with_logits, or give the last layer one "
    "output per class.",
    loss_is_zero=True,
)
_DROPPED = Flat("it drops everything", "Lower its p: 1 drops every element.")
_MODULE_HOOK = Flat(
    "a hook of that module returns zeros",
    "Look at what the hook returns that `register_full_backward_hook` put there; one that only looks returns None.",
)

FLAT: dict[str, Flat] = {
    "relu": _DEAD, "threshold": _DEAD, "gelu": _DEAD, "silu": _DEAD, "elu": _DEAD,
    "sigmoid": _SATURATED, "tanh": _SATURATED, "softmax": _CERTAIN, "log_sigmoid_forward": _SATURATED,
    "clamp": _CLAMPED, "clamp_min": _CLAMPED, "clamp_max": _CLAMPED, "hardtanh": _CLAMPED, "hardsigmoid": _CLAMPED,
    "hardswish": _CLAMPED,
    "round": _STEPS, "floor": _STEPS, "ceil": _STEPS, "trunc": _STEPS, "sign": _STEPS,
    "normal": _DRAWN,
    "where": _MASKED, "masked_fill": _MASKED, "masked_scatter": _MASKED,
    "maximum": _OTHER_OPERAND_WINS, "minimum": _OTHER_OPERAND_WINS,
    "native_dropout": _DROPPED,
    "BackwardHookFunction": _MODULE_HOOK,
}  # fmt: skip
_OVER_ONE = frozenset({"softmax", "log_softmax"})
# What a loss does after its hinge; whatever else comes after an op says that it is a part of the model.
_REDUCING = frozenset({
    "sum", "mean", "add", "sub", "mul", "div", "neg", "maximum", "minimum", "view", "reshape", "squeeze", "unsqueeze",
    "stack", "cat", "select", "index", "to_copy", "expand", "pow", "square",
})  # fmt: skip


# From the op that still gets a gradient to the first that gets zero; twice the same where several arrive and cancel; to
# `_HOOK` where a hook makes zeros of what arrives.
_Edge = tuple[int, int]
_HOOK = -1


@dataclass(frozen=True, slots=True)
class _Silent:
    """A leaf that gets nothing but zeros."""

    series: ParameterSeries  # Its norms.
    since: int  # The first kept pass from which on it got nothing else.
    always: bool  # Whether that is the first that reached it at all.


def gradient_exactly_zero(report: TraceReport) -> Iterator[Finding]:
    """TM405: the gradient of whole layers is exactly zero, although a path leads there; norms of single values."""
    yield from _normalised_alone(report)
    found = (_silent(report, series) for series in report.parameters)
    silent = {one.series.name: one for one in found if one is not None}
    if not silent:
        return
    described: set[str] = set()
    for at, graph in enumerate(report.graphs):
        for (culprit, how), dead in _Blame(report, graph).of(silent).items():
            names = [name for name in dead.names if name not in described]
            flat = flat_of(report, graph.nodes[culprit]) if how == "flat" else None
            rests = (flat is None or not flat.always) and _is_half_a_layer(report, names, silent)
            if names and not rests:
                described.update(names)
                of_names = _Dead(names, dead.frames)
                if flat is not None:
                    yield _finding(report, (at, culprit), of_names, silent[names[0]], flat)
                else:
                    zeroed = _hooked if how == "hook" else _cancelled
                    yield zeroed(report, (at, culprit), of_names, silent[names[0]])


def _silent(report: TraceReport, series: ParameterSeries) -> _Silent | None:
    if next((norm for norm in reversed(series.norms) if norm != UNTOUCHED), 1.0) != 0:  # nearly all: asked first
        return None
    rows = [(done, norm) for done, norm in zip(report.passes, series.norms, strict=False) if norm != UNTOUCHED]
    zeros = next((at for at, (_, norm) in enumerate(reversed(rows)) if norm != 0), len(rows))
    if not zeros or (zeros < len(rows) and zeros < max(DIED_PASSES, DIED_SHARE * len(rows))):
        return None
    return _Silent(series, rows[-zeros][0].number, zeros == len(rows))


def _is_half_a_layer(report: TraceReport, names: list[str], silent: dict[str, _Silent]) -> bool:
    """Whether other parameters of the same modules learn: then it is not the op that is dead, but a bias that rests."""
    layers = {name.rpartition(".")[0] for name in names if "." in name}
    return any(
        series.touched and series.name not in silent and series.name.rpartition(".")[0] in layers
        for series in report.parameters
    )


@dataclass(frozen=True, slots=True)
class _Dead:
    """The leaves behind one op, and the frames in which all of them got zero."""

    names: list[str]
    frames: list[Frame]


def _how(edge: _Edge) -> str:
    return "hook" if edge[1] == _HOOK else "cancels" if edge[0] == edge[1] else "flat"


class _Blame:
    """Finds, in one graph, the op at which the gradient of a leaf becomes zero."""

    def __init__(self, report: TraceReport, graph: Graph) -> None:
        self._report, self._graph = report, graph
        self._values = {done.number: done.value for done in report.passes}
        self._feeders, self._targets = neighbours(graph)
        self._shared: dict[int, list[int]] = {}  # of a node that several send to: their places in `Frame.parts`
        for at, edge in enumerate(graph.shared_edges):
            self._shared.setdefault(graph.edges[edge].target, []).append(at)
        # Of a node, whether what is known to be sent to it is more than zero, although it receives zero.
        self._is_sent = {
            edge.target: graph.sent_to_zero[str(at)] > FAINT
            for at, edge in enumerate(graph.edges if graph.sent_to_zero else ())
            if str(at) in graph.sent_to_zero
        }

    def of(self, silent: dict[str, _Silent]) -> dict[tuple[int, str], _Dead]:
        """Return culprit, and how (`_how`) → the leaves that it cuts off."""
        found: dict[tuple[int, str], _Dead] = {}
        for frames, leaves in self._by_frames(silent).values():
            ends = self._ends(frames)
            blamed = {end: self._is_to_blame(end, frames) for end in {ends[leaf] for leaf in leaves} if end}
            for leaf in leaves:
                end = ends[leaf]
                if end is not None and blamed.get(end):
                    dead = found.setdefault((end[0], _how(end)), _Dead([], frames))
                    dead.names.append(self._graph.nodes[leaf].variable)
        return found

    def _by_frames(self, silent: dict[str, _Silent]) -> dict[tuple[int, ...], tuple[list[Frame], list[int]]]:
        """Return the silent leaves, together those that got zero in the same frames."""
        groups: dict[tuple[int, ...], tuple[list[Frame], list[int]]] = {}
        for node in self._graph.nodes:
            if node.kind == "accumulate" and node.variable in silent:
                since = silent[node.variable].since
                frames = [
                    each for each in self._graph.frames if each.pass_number >= since and not each.norms[node.index]
                ]
                if frames:
                    key = tuple(frame.pass_number for frame in frames)
                    groups.setdefault(key, (frames, []))[1].append(node.index)
        return groups

    def _ends(self, frames: list[Frame]) -> list[_Edge | None]:
        """Return for every node an edge of the one op on its way from the loss at which the gradient becomes zero.

        None where it does not, or where there are several such ops, or none that was seen.
        """
        dead = [all(frame.norms[index] == 0 for frame in frames) for index in range(len(self._graph.nodes))]
        leaves = [node for node in self._graph.nodes if node.kind == "accumulate"]
        weighs = any(len(shape) > 1 for node in leaves for shape in node.shapes[:1])
        nothing_learns = weighs and all(dead[node.index] for node in leaves)
        ends: list[_Edge | None] = [None] * len(dead)
        for index in range(len(dead) - 1, -1, -1):  # what sends a node its gradient was made after it
            # The last bias of a model whose outputs are subtracted from each other is meant to be so: all are not.
            is_leaf = self._graph.nodes[index].kind == "accumulate"
            # More than zero is sent to it, and a hook makes zeros of that before it is received.
            hooked = str(index) in self._graph.hooked or len(self._feeders.get(index, ())) == 1
            if dead[index] and hooked and self._is_sent.get(index, False):
                ends[index] = None if is_leaf else (index, _HOOK)  # who puts it on a parameter freezes it
            elif dead[index] and (not is_leaf or nothing_learns) and self._add_up_to_zero(index, frames):
                # Of a leaf, the op at which the ways of all that it receives come together, the nearest to it.
                ways = (reached(self._feeders, [sender]) for sender in self._feeders[index])
                joint = min(set.intersection(*ways), default=index) if is_leaf else index
                ends[index] = (joint, joint)
            elif dead[index]:
                above = {ends[at] if dead[at] else (at, index) for at in self._feeders.get(index, ())}
                seen = [end for end in above if end is not None]
                ops = {op for op, _ in seen}
                if nothing_learns and len(ops) > 1:  # a product with the zeros that a dead op makes dies of it, too
                    ops = {op for op in ops if self._graph.nodes[op].op in FLAT}
                seen = [end for end in seen if end[0] in ops] if len(ops) == 1 and None not in above else []
                ends[index] = min(seen, default=None)
        return ends

    def _add_up_to_zero(self, index: int, frames: list[Frame]) -> bool:
        """Whether parts of what an op or a leaf receives are more than zero, and exactly zero together."""
        parts = self._shared.get(index, ())
        return len(parts) == len(self._feeders.get(index, ())) > 1 and all(
            frame.parts and any(frame.parts[at] > FAINT for at in parts) for frame in frames
        )

    def _is_to_blame(self, end: _Edge, frames: list[Frame]) -> bool:
        """Whether an op is flat where it is used, and not meant to be."""
        source, target = end
        if _how(end) != "flat":
            return sum(self._values.get(frame.pass_number) != 0 for frame in frames) >= FEWEST_PASSES
        flat = flat_of(self._report, self._graph.nodes[source])
        if flat is None or any(not frame.norms[source] > FAINT for frame in frames):
            return False
        lost = [frame for frame in frames if flat.loss_is_zero or self._values.get(frame.pass_number) != 0]
        if not flat.always and len(lost) < FEWEST_PASSES:
            return False
        above = reached(self._feeders, self._feeders.get(source, ())) if flat.hinge else ()
        if flat.hinge and self._is_of_the_loss(above):
            return False
        others = [other for other in self._targets[source] if other != target]
        learns = any(frame.norms[other] != 0 for other in others for frame in frames)
        return not (learns and self._graph.nodes[source].op not in {"where", "maximum", "minimum"})

    def _is_of_the_loss(self, above: Collection[int]) -> bool:
        """Whether all that is made of an op only reduces it; what is squared as a difference is an output."""
        nodes = self._graph.nodes
        squared = {to for at in above if nodes[at].op in {"pow", "square"} for to in self._targets[at]}
        differs = any(nodes[at].op == "sub" for at in squared.intersection(above))
        return not differs and all(nodes[at].op in _REDUCING for at in above)


_OVER = re.compile(r"softmax\((?:.*?(?:dim\s*=|,))?\s*(-?\d+)\s*\)")  # the dimension, where a line names it


def flat_of(report: TraceReport, node: Node) -> Flat | None:
    """Return why an op may let nothing through, None where it cannot be blamed."""
    if node.op in _OVER_ONE and node.shapes:
        shape, place = node.shapes[0], report.location(node.location)
        if shape[-1:] == (1,):
            over = _OVER.search(place.text) if place is not None else None
            last = over is None or int(over[1]) in {-1, len(shape) - 1}
            return _ALONE if len(shape) == 2 and last else None  # attention over one token is not a mistake
    return FLAT.get(node.op)


_RANGES = {"tanh": "-1 and 1", "sigmoid": "0 and 1"}


def _before_the_loss(graph: Graph, node: Node) -> str:
    """Return what to do about an activation that is the last operation of the model: only a loss uses what it makes."""
    users = {user.op for user in users_of(graph, node.index)}
    if node.op in {"relu", "threshold"} and users and users <= _LOSSES:
        return (
            "It is the last operation before the loss: leave it out there, so that the output learns from below zero "
            "too (`F.softplus` where it must be positive)."
        )
    if node.op in _RANGES and users and users <= COMPARING:
        return (
            f"It is the last operation before the loss, and only makes numbers between {_RANGES[node.op]}: leave it "
            "out there, or scale the targets into that range."
        )
    return ""


COMPARING = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub", "rsub"})
_LOSSES = COMPARING | {
    "nll_loss", "log_softmax", "binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss",
}  # fmt: skip


def _gets_zero(report: TraceReport, dead: _Dead, first: _Silent) -> str:
    """Return which leaves get a gradient of exactly zero, and in which passes."""
    kept = "kept " if len(report.passes) < report.passes_seen else ""
    passes = plural(len(dead.frames), f"{kept}backward pass", f"{kept}backward passes")
    if len(dead.frames) > 1:
        passes = f"all {passes}" if first.always else f"the last {passes}"
    if not first.always:
        passes += f" of {count(report.passes_seen)}"
    gets = "gets" if len(dead.names) == 1 else "get"
    return f"{listed(dead.names)} {gets} a gradient of exactly zero in {passes}"


def _cancelled(report: TraceReport, where: tuple[int, int], dead: _Dead, first: _Silent) -> Finding:
    graph = report.graphs[where[0]]
    node = graph.nodes[where[1]]
    if dead.frames[-1].norms[where[1]]:  # it is the leaves at which it cancels
        names = [graph.nodes[at].variable for at in neighbours(graph)[1][where[1]]]
        parts = listed(names) if all(names) else f"both sides of {node.op}"
        location, cancels = report.location(node.location), f"what gets there through {parts} is not zero"
        remedy = (
            "One of the two must be a constant, as both come of the same parameters: `.detach()` it, or compute it "
            "under `torch.no_grad()`."
        )
    else:
        arrived = zip(graph.shared_edges, dead.frames[-1].parts, strict=True)
        senders = [graph.edges[at] for at, part in arrived if part and graph.edges[at].target == where[1]]
        users = [graph.nodes[edge.source] for edge in senders]
        location = report.location(max(users, key=lambda user: user.index).location)
        made = node.variable or f"the result of {node.op}"
        place = f" ({location.label})" if location else ""
        cancels = f"what {listed(sorted(user.op for user in users))} send back to {made}{place} is not zero"
        remedy = (
            f"Where {made} is added and subtracted again, one of the two must be a constant: `.detach()` it. A "
            "straight-through estimator is `z + (q - z).detach()`."
        )
    return Finding(
        code="TM405",
        severity="warning",
        message=f"{_gets_zero(report, dead, first)}: {cancels}, but cancels: it adds up to exactly zero.",
        location=location,
        evidence={"leaves": len(dead.names), "passes": len(dead.frames), "first": dead.frames[0].pass_number},
        remedy=remedy,
        subject=dead.names[0],
        node=where,
    )


def _hooked(report: TraceReport, where: tuple[int, int], dead: _Dead, first: _Silent) -> Finding:
    graph = report.graphs[where[0]]
    node = graph.nodes[where[1]]
    put, made = report.location(graph.hooked.get(str(node.index))), report.location(node.location)
    hook = f"the hook ({put.label})" if put else "a hook"
    return Finding(
        code="TM405",
        severity="warning",
        message=f"{_gets_zero(report, dead, first)}: what is sent to {node.variable or f'the result of {node.op}'}"
        f"{f' ({made.label})' if made else ''} is not zero, but {hook} makes it exactly zero.",
        location=put or made,
        evidence={"leaves": len(dead.names), "passes": len(dead.frames), "first": dead.frames[0].pass_number},
        remedy=HOOKED,
        subject=dead.names[0],
        node=where,
    )


def _finding(report: TraceReport, where: tuple[int, int], dead: _Dead, first: _Silent, flat: Flat) -> Finding:
    graph = report.graphs[where[0]]
    node = graph.nodes[where[1]]
    location = report.location(node.location)
    place = (f" in {node.module}" if node.module else "") + (f" ({location.label})" if location else "")
    return Finding(
        code="TM405",
        severity="warning",
        message=f"{_gets_zero(report, dead, first)}: {node.op}{place} lets nothing through, because {flat.why}.",
        location=location,
        evidence={"leaves": len(dead.names), "passes": len(dead.frames), "first": dead.frames[0].pass_number,
                  "arrives": round(float(dead.frames[-1].norms[node.index]), 12)},
        remedy=_before_the_loss(graph, node) or flat.remedy,
        subject=dead.names[0],
        node=where,
    )  # fmt: skip


def _normalised_alone(report: TraceReport) -> Iterator[Finding]:
    """Yield what normalises single values: its slope is zero, and what is measured of it is rounding."""
    told: set[str] = set()  # modules that other lines have called too
    for one in observed(report, "normalised alone"):
        if every_call(one) and one.module not in told:
            told |= {one.module} - {""}
            shape = one.operands[0].shape
            learns = ", and no gradient goes back through it" if one.operands[0].requires_grad else ""
            remedy = "Leave it out, or put it where each sample has several values, before the layer that makes one."
            if one.op == "group_norm" and len(shape) > 1 and shape[1] > 1:
                remedy = f"Give it fewer groups than channels: `nn.GroupNorm(1, {shape[1]})`"
            yield Finding(
                code="TM405",
                severity="warning",
                message=f"{one.op}{f' in {one.module}' if one.module else ''} normalises single values, as its input "
                f"has the shape {tuple_text(shape)}: each is its own mean, so the result is the bias whatever goes in"
                f"{learns}.",
                location=report.location(one.location),
                evidence={"calls": one.calls, "looked at": one.looked, "seen": one.seen},
                remedy=remedy,
                subject=one.module or one.op,
            )


# TM318: a leaf that a custom Function returns None for. Autograd hands on nothing then, and ``.grad`` stays None.

# Of torch's own Functions: a checkpoint returns None for what the function inside has not used, and those for gradients
# of each sample (`torch.nn.utils`) put them on the weights themselves.
_OF_TORCH = ("CheckpointFunction", "PerSampleGrad")


def unfit_backward(report: TraceReport) -> Iterator[Finding]:
    """TM318: a custom backward that never reads what arrives, or has nothing for an input that learns."""
    if report.silent_errors is not None:
        yield from ignored_gradient(report)
    yield from function_returns_none(report)


def function_returns_none(report: TraceReport) -> Iterator[Finding]:
    """TM318: the backward of a custom Function returns None for an input that leads to a leaf which asks for more."""
    for at, graph in enumerate(report.graphs):
        got_none = {  # the engine came there, and had nothing: zeros would have been measured
            node.index
            for node in graph.nodes
            if node.statistics is None and {frame.norms[node.index] for frame in graph.frames} - {UNTOUCHED} == {0.0}
        }
        feeders = neighbours(graph)[0] if got_none else {}
        given_none: dict[int, list[str]] = {}
        for leaf in (node for node in graph.nodes if node.kind == "accumulate" and node.index in got_none):
            on_the_way = reached(feeders, [leaf.index], got_none.__contains__)
            senders = {sender for index in on_the_way for sender in feeders.get(index, ())} - got_none
            if len(senders) == 1:
                given_none.setdefault(senders.pop(), []).append(leaf.variable)
        for sender, names in given_none.items():
            function = graph.nodes[sender]
            # A node of several results has no statistics: what one was made of gets nothing where that is not used.
            if function.kind == "custom" and not function.op.endswith(_OF_TORCH) and function.statistics is not None:
                yield _returns_none(report, (at, sender), names)


def _returns_none(report: TraceReport, where: tuple[int, int], names: list[str]) -> Finding:
    graph = report.graphs[where[0]]
    function = graph.nodes[where[1]]
    passes = sum(frame.norms[where[1]] > 0 for frame in graph.frames)
    gets, them = ("gets", "it") if len(names) == 1 else ("get", "them")
    frozen = "; ".join(f"{as_code(name)}.requires_grad_(False)" for name in names[:3])
    return Finding(
        code="TM318",
        severity="warning",
        message=f"{listed(names)} {gets} no gradient in {plural(passes, 'backward pass', 'backward passes')}: "
        f"{function.op}.backward returns None for {them}.",
        location=report.location(function.location),
        evidence={"leaves": len(names), "passes": passes},
        remedy=f"Return a gradient for {them}, of the same shape, and check one call: `tm.check({function.op}, …)`. If "
        f"{them.replace('them', 'they')} should stay fixed, freeze {them}: `{frozen}`.",
        subject=names[0],
        node=where,
    )
