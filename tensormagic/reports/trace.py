"""What a traced run did: the graphs autograd built, and the gradients that went through them, pass by pass.

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
from typing import TYPE_CHECKING, ClassVar, Literal

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap, Location

if TYPE_CHECKING:
    Floats = array[float]
else:
    Floats = array  # subscriptable only since Python 3.12

UNTOUCHED = -1.0
UNREADABLE = -2.0

State = Literal["running", "finished", "failed", "interrupted", "drawn"]
NodeKind = Literal["op", "accumulate", "custom"]


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
    """

    pass_number: int
    norms: Floats
    bad: dict[str, tuple[int, int]] = field(default_factory=dict)


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
    """

    number: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    passes_seen: int = 0
    frames: tuple[Frame, ...] = ()
    births: tuple[Birth, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """One call of backward.

    Attributes:
        number: From 1 over the whole trace.
        step: From 1: passes between which no new forward ran share a step.
        graph: Number of the graph it went through.
        outcome: ``"finished"``, ``"failed"`` or ``"running"``.
        seconds: How long the engine took, the tracer's own share included.
        reached: How many nodes it reached.
        location: Index into `TraceReport.locations` of the line that called backward; None where not known.
        finite: Whether every gradient in it was finite.
        value: What backward was called on, where that is one number: the loss. None where it is not, or is unreadable.
    """

    number: int
    step: int
    graph: int
    outcome: str
    seconds: float
    reached: int
    location: int | None = None
    finite: bool = True
    value: float | None = None


@dataclass(frozen=True, slots=True)
class ParameterSeries:
    """The gradient of one leaf, over the kept passes.

    Attributes:
        name: ``"net.conv1.weight"``, or ``"leaf (3, 4)"`` where no name is known.
        shape: Its shape.
        dtype: Without the prefix.
        numel: Elements.
        is_parameter: Whether it is an ``nn.Parameter`` of a module that was found.
        requires_grad: Whether it asks for a gradient.
        used: Whether a node of any traced graph leads to it.
        owner: Name of the outermost module it belongs to (``"net"``); empty for a plain tensor.
        norms: Norm of the gradient it received, one a pass of `TraceReport.passes`; `UNTOUCHED` where none came.
        touched: How many passes of the whole run brought it a gradient.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    numel: int
    is_parameter: bool
    requires_grad: bool
    used: bool
    owner: str
    norms: Floats
    touched: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What a graph that stands keeps for its backward; told of a graph that is drawn, not of a run.

    Attributes:
        slots: Saved tensors that are there; one that two nodes save counts twice.
        storages: Different storages behind them.
        nbytes: Bytes of these storages, each counted once and whole.
        leaf_bytes: The part of it that belongs to leaves of the graph, which live without it.
        freed: Saved tensors that a backward has used and freed.
        changed: Saved tensors that were changed in place since.
        unread: Saved tensors that could not be looked at: packed by hooks, or of a kind that has no storage.
    """

    slots: int = 0
    storages: int = 0
    nbytes: int = 0
    leaf_bytes: int = 0
    freed: int = 0
    changed: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """The source that was traced: one notebook cell, or the file a plain ``with trace()`` stands in.

    Attributes:
        filename: As Python names it.
        count: The execution count, or None.
        lines: Its lines; empty where they cannot be read.
    """

    filename: str
    count: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport(Report):
    """What a traced run did.

    Attributes:
        title: A name for the run: the model's name where one is known.
        state: ``"running"``, ``"finished"``, ``"failed"`` or ``"interrupted"``; ``"drawn"`` for a graph that was only
            looked at.
        error: ``"ValueError: …"`` of a run that failed; empty otherwise.
        cell: The traced source.
        seconds: Wall time from start to end (or to now, while running).
        own_seconds: The part of it spent inside the tracer's own hooks.
        locations: The person's lines that anything here points to.
        graphs: Most used first.
        passes: The kept passes; see ``passes_seen``.
        passes_seen: How many there were.
        steps_seen: How many steps there were.
        forward_nodes: How many autograd nodes the forward made, whether or not a backward reached them.
        parameters: Every leaf that took part and every parameter of every module that took part.
        gaps: What could not be seen, and why.
        kept: What the graph keeps for its backward; None for a run.
    """

    kind_name: ClassVar[str] = "trace"

    title: str
    state: State
    error: str = ""
    cell: Cell
    seconds: float
    own_seconds: float
    locations: tuple[Location, ...] = ()
    graphs: tuple[Graph, ...] = ()
    passes: tuple[Pass, ...] = ()
    passes_seen: int = 0
    steps_seen: int = 0
    forward_nodes: int = 0
    parameters: tuple[ParameterSeries, ...] = ()
    gaps: tuple[Gap, ...] = ()
    kept: Kept | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the main graph: the one most passes went through."""
        return self.graphs[0].nodes if self.graphs else ()

    def location(self, index: int | None) -> Location | None:
        """Return the location with that index, or None."""
        return None if index is None else self.locations[index]


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """What changes while the run goes on: small enough to be taken many times a second.

    Attributes:
        structure: Goes up whenever graphs or parameters were added or renamed: time to fetch a whole report.
        graph: Number of the graph being walked, 0 before the first pass.
        pass_number: The pass being walked, or the last one.
        step: Its step.
        running: Whether backward is under way right now.
        cursor: Index of the node reached last; -1 before the first.
        reached: How many nodes of this pass were reached so far.
        norms: For each node of the graph: its norm in this pass, `UNTOUCHED` where backward has not come yet.
        finished_pass: Number of the last finished pass, 0 before the first.
        parameter_norms: For each parameter, in the report's order: its norm in that pass.
        seconds: Since the start.
    """

    structure: int
    graph: int
    pass_number: int
    step: int
    running: bool
    cursor: int
    reached: int
    norms: Floats
    finished_pass: int
    parameter_norms: Floats
    seconds: float
