"""TM405: a leaf whose gradient is exactly zero, pass after pass, and the op on the way that lets nothing through."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, TypeVar

from tensormagic.diagnoses.rule import neighbours, reached
from tensormagic.reports import UNTOUCHED, Finding, Frame, Graph, Node, ParameterSeries, TraceReport
from tensormagic.words import count, is_or_are, listed, plural

# How the gradient travels through a graph: which ops use a weight, what reached them, and over which others it came.
#
# A weight's own gradient is large or small for two reasons: because of the gradient that comes down to the op that
# uses it, and because of that op's input. Only the first is vanishing or exploding; raw features of size 1e4 are
# neither. So the gradients are looked at where they arrive: at the matrix products and convolutions, seen from the
# loss.

# The ops that multiply a weight with an activation …
USERS = frozenset({
    "addmm", "mm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "mkldnn_linear", "convolution",
    "mkldnn_convolution", "cudnn_convolution", "embedding", "embedding_bag", "bilinear", "trilinear",
    "mkldnn_rnn_layer", "cudnn_rnn",
})  # fmt: skip
# … and those that stand between a weight and its user.
_BETWEEN = frozenset({
    "t", "transpose", "permute", "view", "reshape", "unsafe_view", "expand", "to_copy", "clone", "unsqueeze", "squeeze",
    "slice", "select", "split", "chunk", "contiguous", "as_strided",
})  # fmt: skip

Value = TypeVar("Value", bound=Any)  # anything that can be compared


class Paths:
    """One graph, looked at from the loss: the arriving gradient of every op that uses a weight.

    Made for being asked often while a run goes on: each question costs at most one walk over the edges.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._feeders, self._targets = neighbours(graph)
        self._leaves = {node.variable: node.index for node in graph.nodes if node.kind == "accumulate"}
        self._users = {node.index for node in graph.nodes if node.op in USERS}
        self._users_of: dict[str, list[int]] = {}
        self._arriving: dict[int, float] = {}
        self._last_layers: list[float] = []
        self._least: float | None = None
        self.first = self._first_users()

    def _first_users(self) -> set[int]:
        """Return the users that the gradient reaches before any other: the last layers of the forward."""
        below: set[int] = set()
        for node in reversed(self._graph.nodes):  # what made a node's input was made before it
            if any(feeder in below or feeder in self._users for feeder in self._feeders.get(node.index, ())):
                below.add(node.index)
        return self._users - below

    def users(self, leaf: str) -> list[int]:
        """Return the ops that multiply something with the leaf of that name."""
        if leaf not in self._users_of:
            self._users_of[leaf] = self._look_for_users(leaf)
        return self._users_of[leaf]

    def _look_for_users(self, leaf: str) -> list[int]:
        found, waiting = set(), [self._leaves[leaf]] if leaf in self._leaves else []
        while waiting:
            for feeder in self._feeders.get(waiting.pop(), ()):
                if feeder in self._users:
                    found.add(feeder)
                elif self._graph.nodes[feeder].op in _BETWEEN:
                    waiting.append(feeder)
        return sorted(found)

    def largest_above(self, values: Mapping[int, Value], least: Value) -> list[Value]:
        """Return for every node the largest of ``values`` on its paths from the loss, itself not counted.

        Args:
            values: By node.
            least: What represents a node without a value.
        """
        largest = [least] * len(self._graph.nodes)
        for node in self._from_the_loss():
            for feeder in self._feeders.get(node, ()):
                largest[node] = max(largest[node], largest[feeder], values.get(feeder, least))
        return largest

    def _from_the_loss(self) -> list[int]:
        """Return all nodes, each after those that send it a gradient."""
        waiting = {node: len(feeders) for node, feeders in self._feeders.items()}
        order = [node.index for node in reversed(self._graph.nodes) if node.index not in waiting]
        for node in order:  # grows while it is walked
            for target in self._targets.get(node, ()):
                waiting[target] -= 1
                if not waiting[target]:
                    order.append(target)
        return order

    def arriving(self, node: int) -> float:
        """Return the median of the finite norms above zero that a node received; 0 where there was none."""
        if node not in self._arriving:
            norms = [frame.norms[node] for frame in self._graph.frames if 0 < frame.norms[node] < math.inf]
            self._arriving[node] = median(norms) if norms else 0.0
        return self._arriving[node]

    def strongest(self, nodes: Iterable[int]) -> tuple[float, int]:
        """Return (norm, node) of the node at which the largest gradient arrives; (0, -1) where none does."""
        return max(((self.arriving(node), node) for node in nodes), default=(0.0, -1))

    def at_the_last_layer(self, node: int) -> float:
        """Return the largest norm that arrives at a last layer on the way to ``node``; 0 where there is none."""
        if not self._last_layers:
            self._last_layers = self.largest_above({user: self.arriving(user) for user in self.first}, 0.0)
        return self._last_layers[node]

    def least_at_a_last_layer(self) -> float:
        """Return the smallest norm above zero that arrives at a last layer; infinite where there is none."""
        if self._least is None:
            self._least = min((norm for node in self.first if (norm := self.arriving(node))), default=math.inf)
        return self._least


# Exact zeros are often meant: layers that start at zero, rows of an embedding that no word asks for, a hinge loss
# that is satisfied. So the rule reports only leaves that get zero as a whole, together with all else of their layer, in
# several passes whose loss is not zero, and only where the gradient dies in an op that can be blamed for it: one that
# is flat where it is used. A product with zeros is not one: what starts at zero is such a product, and learns.

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
}  # fmt: skip
_OVER_ONE = frozenset({"softmax", "log_softmax"})
# What a loss does after its hinge; whatever else comes after an op says that it is a part of the model.
_REDUCING = frozenset({
    "sum", "mean", "add", "sub", "mul", "div", "neg", "maximum", "minimum", "view", "reshape", "squeeze", "unsqueeze",
    "stack", "cat", "select", "index", "to_copy", "expand", "pow", "square",
})  # fmt: skip


_Edge = tuple[int, int]  # from the op that still gets a gradient to the first that gets zero


@dataclass(frozen=True, slots=True)
class _Silent:
    """A leaf that gets nothing but zeros."""

    series: ParameterSeries  # Its norms.
    since: int  # The first kept pass from which on it got nothing else.
    always: bool  # Whether that is the first that reached it at all.


def gradient_exactly_zero(report: TraceReport) -> Iterator[Finding]:
    """TM405: the gradient of whole layers is exactly zero, although a path leads there."""
    silent = {found.series.name: found for series in report.parameters if (found := _silent(report, series))}
    if not silent:
        return
    described: set[str] = set()
    for at, graph in enumerate(report.graphs):
        for culprit, dead in _Blame(report, graph).of(silent).items():
            names = [name for name in dead.names if name not in described]
            flat = flat_of(report, graph.nodes[culprit])
            rests = flat is not None and not flat.always and _is_half_a_layer(report, names, silent)
            if names and not rests:
                described.update(names)
                yield _finding(report, (at, culprit), _Dead(names, dead.frames), silent[names[0]])


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


class _Blame:
    """Finds, in one graph, the op at which the gradient of a leaf becomes zero."""

    def __init__(self, report: TraceReport, graph: Graph) -> None:
        self._report, self._graph = report, graph
        self._values = {done.number: done.value for done in report.passes}
        self._feeders, self._targets = neighbours(graph)

    def of(self, silent: dict[str, _Silent]) -> dict[int, _Dead]:
        """Return culprit → the leaves that it cuts off."""
        found: dict[int, _Dead] = {}
        for frames, leaves in self._by_frames(silent).values():
            ends = self._ends(frames)
            blamed = {end: self._is_to_blame(end, frames) for end in {ends[leaf] for leaf in leaves} if end}
            for leaf in leaves:
                end = ends[leaf]
                if end is not None and blamed.get(end):
                    found.setdefault(end[0], _Dead([], frames)).names.append(self._graph.nodes[leaf].variable)
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
        ends: list[_Edge | None] = [None] * len(dead)
        for index in range(len(dead) - 1, -1, -1):  # what sends a node its gradient was made after it
            if dead[index]:
                above = {ends[at] if dead[at] else (at, index) for at in self._feeders.get(index, ())}
                seen = [end for end in above if end is not None]
                ends[index] = min(seen) if len(seen) == len(above) and len({op for op, _ in seen}) == 1 else None
        return ends

    def _is_to_blame(self, end: _Edge, frames: list[Frame]) -> bool:
        """Whether an op is flat where it is used, and not meant to be."""
        source, target = end
        flat = flat_of(self._report, self._graph.nodes[source])
        if flat is None or any(not frame.norms[source] > FAINT for frame in frames):
            return False
        lost = [frame for frame in frames if flat.loss_is_zero or self._values.get(frame.pass_number) != 0]
        if not flat.always and len(lost) < FEWEST_PASSES:
            return False
        above = reached(self._feeders, self._feeders.get(source, ())) if flat.hinge else ()
        if flat.hinge and all(self._graph.nodes[number].op in _REDUCING for number in above):
            return False  # it is the loss's own
        others = [other for other in self._targets[source] if other != target]
        learns = any(frame.norms[other] != 0 for other in others for frame in frames)
        return not (learns and self._graph.nodes[source].op not in {"where", "maximum", "minimum"})


_OVER = re.compile(r"softmax\((?:.*?(?:dim\s*=|,))?\s*(-?\d+)\s*\)")  # the dimension, where a line names it


def flat_of(report: TraceReport, node: Node) -> Flat | None:
    """Return why an op may let nothing through, None where it cannot be blamed."""
    if node.op in _OVER_ONE and node.shapes:
        shape, place = node.shapes[0], report.location(node.location)
        if shape[-1:] == (1,):
            over = _OVER.search(place.text) if place is not None else None
            last = over is None or int(over[1]) in {-1, len(shape) - 1}
            return _ALONE if len(shape) == 2 and last else None  # attention over one token is no mistake
    return FLAT.get(node.op)


def _before_the_loss(graph: Graph, node: Node) -> str:
    """Return what to do about a ReLU that is the last operation of the model: only a loss uses what it makes."""
    if node.op not in {"relu", "threshold"}:
        return ""
    users = {graph.nodes[edge.source].op for edge in graph.edges if edge.target == node.index}
    if not users or not users <= _LOSSES:
        return ""
    return (
        "It is the last operation before the loss: leave it out there, so that the output learns from below zero too "
        "(`F.softplus` where it must be positive)."
    )


_LOSSES = frozenset({
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "nll_loss", "log_softmax", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "poisson_nll_loss", "sub", "rsub",
})  # fmt: skip


def _finding(report: TraceReport, where: tuple[int, int], dead: _Dead, first: _Silent) -> Finding:
    graph = report.graphs[where[0]]
    node = graph.nodes[where[1]]
    flat, location = flat_of(report, node), report.location(node.location)
    assert flat is not None
    kept_passes = len(dead.frames)
    kept = "kept " if len(report.passes) < report.passes_seen else ""
    passes = plural(kept_passes, f"{kept}backward pass", f"{kept}backward passes")
    shown = "" if kept_passes == 1 else "all " if first.always else "the last "
    place = f" in {node.module}" * bool(node.module) + (f" ({location.label})" if location else "")
    names, gets = listed(dead.names), "gets" if is_or_are(len(dead.names)) == "is" else "get"
    yet = "" if first.always else f" of {count(report.passes_seen)}"
    return Finding(
        code="TM405",
        severity="warning",
        message=f"{names} {gets} a gradient of exactly zero in {shown}{passes}{yet}: {node.op}{place} lets nothing "
        f"through, because {flat.why}.",
        location=location,
        evidence={"leaves": len(dead.names), "passes": kept_passes, "first": dead.frames[0].pass_number,
                  "arrives": round(float(dead.frames[-1].norms[node.index]), 12)},
        remedy=_before_the_loss(graph, node) or flat.remedy,
        subject=dead.names[0],
        node=where,
    )  # fmt: skip
