"""The graph that a traced run went through, and the values that went through it: a skeleton and its frames.

A training loop is one graph with a value per step, not a thousand graphs: a `Graph` is a skeleton, shared by every
pass of the same structure, and each `Frame` holds the values of one pass: the time axis.

Gradient norms are packed ``array("f")``. A Euclidean norm is never negative, which leaves -1.0 free to say
`UNTOUCHED`: no gradient came here. NaN means that the gradient holds a NaN, infinity that it holds an infinity
(or overflowed float32 in the norm itself; `Frame.bad` has the counts). -2.0, `UNREADABLE`, says that a gradient came
but could not be measured; the report's gaps say why. Whatever is below zero is therefore no norm.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tensormagic.reports.cuts import Cut
from tensormagic.reports.first_bad import FirstBad
from tensormagic.reports.forward import ForwardBirth, ForwardValues

if TYPE_CHECKING:
    Floats = array[float]
else:
    Floats = array  # subscriptable only since Python 3.12

UNTOUCHED = -1.0
UNREADABLE = -2.0

MEASURES = ("abs_max", "mean", "std", "zero_share", "subnormal_share", "saturated_share")  # in `Frame.measures`

NodeKind = Literal["op", "accumulate", "custom"]


def no_numbers() -> Floats:
    """Return an empty row."""
    return array("f")


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor that a node keeps for its backward.

    Attributes:
        name: The slot, as torch names it without the prefix: ``"self"``, ``"mat1"``, ``"result"``.
        shape: Its shape; empty where it could not be read.
        dtype: Without the prefix.
        nbytes: numel · element size.
        state: ``"ok"``, ``"changed in place"``, ``"freed"`` or ``"unreadable"``, when last looked at.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    state: str


@dataclass(frozen=True, slots=True)
class GradientStatistics:
    """Numbers over one gradient: all that came into a node in one pass.

    Attributes:
        pass_number: The pass they were measured in.
        count: Elements.
        norm: Euclidean norm.
        abs_max: Largest magnitude.
        mean: Mean of the finite elements.
        std: Standard deviation of the finite elements, divisor n.
        zero: How many are exactly zero.
        nan: How many are NaN.
        inf: How many are +Inf or -Inf.
        subnormal: How many are not zero, but below the smallest normal number of float16 or float8; 0 for wider types.
        saturated: How many are at the largest finite number of float16 or float8, or beyond; 0 for wider types.
    """

    pass_number: int
    count: int
    norm: float
    abs_max: float
    mean: float
    std: float
    zero: int
    nan: int
    inf: int
    subnormal: int = 0
    saturated: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a node sends the gradient of one of its forward inputs.

    Attributes:
        source: Index of the node that computes the gradient.
        target: Index of the node that receives it: the one that made that input.
        input_number: Which input of the source's forward op it is the gradient of (its place in
            ``next_functions``).
        slot: Which forward output of the target it belongs to.
    """

    source: int
    target: int
    input_number: int
    slot: int


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the autograd graph.

    Attributes:
        index: Its place in `Graph.nodes`: order of creation in the forward; leaves stand where first used.
        name: As autograd names it: ``"AddmmBackward0"``.
        op: The same, readable: ``"addmm"``.
        kind: ``"op"``, ``"accumulate"`` (a leaf that collects a gradient) or ``"custom"`` (an autograd.Function).
        location: Index into `TraceReport.locations`: the person's line that made it; None where not known.
        exact_location: False where the node was made by something the tracer did not see itself, and the line is
            that of the next call which used it.
        module: Path of the innermost module whose forward made it: ``"net.conv1"``; empty outside modules.
        variable: The name of the leaf (``"net.conv1.weight"``), or of the tensor it made where one holds it.
        shapes: Of its forward outputs, one a slot; as first seen.
        dtype: Of its first forward output, without the prefix.
        device: Of its first forward output.
        saved: What it keeps for backward.
        statistics: Of the gradient it received, in the first pass that reached it; None where none did.
    """

    index: int
    name: str
    op: str
    kind: NodeKind
    location: int | None = None
    exact_location: bool = True
    module: str = ""
    variable: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    device: str = ""
    saved: tuple[SavedTensor, ...] = ()
    statistics: GradientStatistics | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """The gradients of one pass through one graph.

    Attributes:
        pass_number: Which pass, from 1 over the whole trace.
        norms: Euclidean norm of the gradient each node received, by node index; see the module for sentinels.
        bad: Node index (as text) → (NaN count, Inf count), only where one of them is not zero.
        measures: For each node in turn the numbers that `MEASURES` names, `UNTOUCHED` each where there are none; empty
            for a pass of which the norms alone were taken.
        parts: For each of `Graph.shared_edges` in turn the norm of what went along it.
        forward: What the nodes made in the forward, where that was asked for.
    """

    pass_number: int
    norms: Floats
    bad: dict[str, tuple[int, int]] = field(default_factory=dict)
    measures: Floats = field(default_factory=no_numbers)
    parts: Floats = field(default_factory=no_numbers)
    forward: ForwardValues | None = None

    def measured(self, index: int) -> tuple[float, ...] | None:
        """Return the numbers that `MEASURES` names for a node, or None where they were not taken in this pass."""
        at = index * len(MEASURES)
        found = tuple(self.measures[at : at + len(MEASURES)])
        return found if found and found[0] != UNTOUCHED else None


@dataclass(frozen=True, slots=True)
class Birth:
    """Where a NaN or Inf came into being in a pass: a node that got a finite gradient and sent on one that is not.

    Attributes:
        pass_number: Which pass.
        node: Index of the node whose backward made it.
        receiver: Index of the node that received it.
        input_number: Which input of ``node``'s forward op the bad gradient is the gradient of.
        nan: How many elements of it are NaN.
        inf: How many are infinite.
        count: How many elements it has.
        incoming_norm: Norm of the finite gradient that ``node`` received.
        saved_name: The saved tensor that explains it (``"self"``), empty where none does.
        saved_zero: How many elements of that saved tensor are zero.
        saved_negative: How many are negative.
        saved_bad: How many are NaN or infinite.
        certain: False where several nodes feed the receiver and only their sum was seen.
        hooked: Whether a hook of the person's saw the gradient before the receiver did: it may have made it so.
    """

    pass_number: int
    node: int
    receiver: int
    input_number: int
    nan: int
    inf: int
    count: int
    incoming_norm: float
    saved_name: str = ""
    saved_zero: int = 0
    saved_negative: int = 0
    saved_bad: int = 0
    certain: bool = True
    hooked: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """One skeleton, and the values that went through it.

    Attributes:
        number: From 1, in order of first appearance.
        nodes: In order of creation.
        edges: From each node to those that made its inputs: the way the gradient flows.
        roots: Indices of the nodes that backward started from.
        order: Node indices in the order the engine reached them in the last pass.
        passes_seen: How many passes went through this skeleton.
        frames: The kept passes; fewer than ``passes_seen`` in a long run: then evenly thinned, and first, last
            and the first non-finite one are always kept.
        births: Where NaN and Inf were born, first passes first, at most a few.
        shared_edges: Indices of the edges that feed a slot together with others: only there does a node receive a sum,
            and `Frame.parts` says what each sent.
        cuts: Where the gradient's way ended although it could have gone on.
        forward_birth: Where a forward first made a NaN or Inf, where forward values were asked for and one did.
        first_bad: Where the forward of the first pass whose result was not finite first held a NaN or Inf, as far as
            the saved tensors tell.
    """

    number: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    passes_seen: int = 0
    frames: tuple[Frame, ...] = ()
    births: tuple[Birth, ...] = ()
    cuts: tuple[Cut, ...] = ()
    shared_edges: tuple[int, ...] = ()
    forward_birth: ForwardBirth | None = None
    first_bad: FirstBad | None = None
