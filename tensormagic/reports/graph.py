"""The graph that a traced run went through, and the values that went through it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tensormagic.errors import ReportFormatError

# Where the gradient's way ended although it could have gone on: what autograd does not keep.
#
# ``y.detach()`` leaves nothing behind in the graph: the node that uses the result simply has an input without a way
# back. A `Cut` says which call ended the way, on which line, between which nodes.

CutKind = Literal[
    "detach", "data", "no_grad", "inference_mode", "item", "numpy", "copy", "cast", "non-differentiable", "frozen"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A leaf behind a cut that asks for a gradient and has none, and that no graph of the whole run led to.

    Attributes:
        name: ``"net.conv1.weight"``, ``"x"``; ``"leaf (3, 4)"`` where it has no name.
        owner: Name of the outermost module it belongs to; empty for a plain tensor.
        shape: Its shape.
        is_parameter: Whether it is an ``nn.Parameter``.
        held: Whether an optimizer that made a step in the run was given it; None where no optimizer made one.
        written: Whether something else writes to it or puts another in its place: a moving average keeps it up.
    """

    name: str
    owner: str = ""
    shape: tuple[int, ...] = ()
    is_parameter: bool = False
    held: bool | None = None
    written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One place where a tensor with a history went into a call, and its history did not come out.

    What went in and came out may have passed calls that autograd does not follow on its way to ``target``
    (``x.detach() * 2``). Equal cuts of all passes are one `Cut`, counted.

    Attributes:
        kind: ``"detach"``, ``"data"``, ``"no_grad"``, ``"inference_mode"``, ``"item"`` (also ``float(x)``),
            ``"numpy"`` (also ``tolist``), ``"copy"`` (``torch.tensor(x)``), ``"cast"`` (to integers or bool),
            ``"non-differentiable"`` (comparisons, argmax, sampling) or ``"frozen"`` (``requires_grad_(False)``).
        op: What was called, as a user knows it: ``"detach"``, ``".data"``, ``"argmax"``; else as ``kind``.
        location: Index into `TraceReport.locations` of that call, or of the ``with torch.no_grad():`` around it; None
            where not known.
        line: Its line number, for a drawing of the graph alone; 0 where not known.
        source: Index of the node that made what went in, or of the leaf that it was; None where it is not in this
            graph.
        source_name: The same in words, also where it is not in this graph: ``"sub"``, ``"target.0.weight"``.
        source_location: Index of the line that made it; None where not known, and for leaves.
        earlier: Whether an earlier pass went through ``source``: what was made in one step is used in the next.
        target: Index of the node that used what came out; None where nothing that backward went through did.
        input_number: Which input of ``target`` it is (its place in ``next_functions``); None where not known, or
            where ``target`` has none for it.
        selects: Whether it only chose elements (an index, a mask): ``target`` has no input that a gradient of it could
            take.
        shape: Of what came out.
        dtype: Of what came out, without the prefix; ``"float"`` and the like for a Python number.
        count: How often, over the whole run.
        left_out: The leaves behind it that got no gradient from anywhere, as far as they are known.
        by_library: Of ``"no_grad"``: whether code switched gradients off that is neither the user's own nor torch's
            on the user's behalf.
    """

    kind: CutKind
    op: str
    location: int | None = None
    line: int = 0
    source: int | None = None
    source_name: str = ""
    source_location: int | None = None
    earlier: bool = False
    target: int | None = None
    input_number: int | None = None
    selects: bool = False
    shape: tuple[int, ...] = ()
    dtype: str = ""
    count: int = 1
    left_out: tuple[LeftOut, ...] = ()
    by_library: bool = False

    @property
    def detachment(self) -> bool:
        """Whether a gradient would flow here, had the way not ended; otherwise the value was only read, or chose."""
        return self.target is not None and not self.selects


# Where a forward whose result is not finite first held a NaN or Inf, as far as its nodes' saved tensors show.

BadSource = Literal["made", "data", "leaf"]


@dataclass(frozen=True, slots=True)
class FirstBad:
    """The first NaN or Inf of a forward: made by a node, or there already in what went into it.

    Attributes:
        pass_number: Of the pass whose forward it was.
        node: Index of the node that made it, or that the data went into; of the leaf itself.
        source: ``"made"`` by the node, already in the ``"data"`` that it was given, or in a ``"leaf"``.
        nan: How many elements are NaN: of the node's result, of the data, or of the leaf.
        inf: How many are infinite.
        count: How many elements it has.
        name: Under which the user holds the data; empty where no name is known.
        shape: Of the data or the leaf; empty of what a node made.
        zero: Of what a node made: how many elements of its operand are zero, where that explains it.
        negative: The same of elements outside the op's domain: below zero, mostly.
        certain: Whether everything that went into the node was seen, and was finite.
    """

    pass_number: int
    node: int
    source: BadSource
    nan: int
    inf: int
    count: int
    name: str = ""
    shape: tuple[int, ...] = ()
    zero: int = 0
    negative: int = 0
    certain: bool = True


# The values that the forward made, node by node, in one pass: on demand, beside the gradients.

if TYPE_CHECKING:
    Floats = array[float]
else:
    Floats = array  # subscriptable only since Python 3.12


@dataclass(frozen=True, slots=True)
class ForwardValues:
    """What each node made in the forward of one pass; of a pass measured in full, also the leaves as they stood.

    Of a node with several outputs these are the numbers of all of them together. Nodes that a call made on the way to
    its result (the ``log_softmax`` inside ``cross_entropy``) have none.

    Attributes:
        norms: Euclidean norm, by node index, `UNTOUCHED` where none was seen; as in `Frame.norms`.
        measures: As in `Frame.measures`.
        bad: Node index (as text) → (NaN count, Inf count), only where one of them is not zero.
    """

    norms: Floats
    measures: Floats
    bad: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForwardNonfinite:
    """Where the forward first made a NaN or Inf.

    Attributes:
        pass_number: Of the pass whose forward it was.
        node: Index of the node; nothing that was seen of what it was made from, in this graph, had one.
        nan: How many elements of its output are NaN.
        inf: How many are infinite.
        count: How many elements it has.
        given: Whether something that went into the call held a NaN or Inf already: data, a parameter; None where that
            could not be asked without waiting for a device.
    """

    pass_number: int
    node: int
    nan: int
    inf: int
    count: int
    given: bool | None


# The graph that a traced run went through, and the values that went through it: a structure and its frames.
#
# A training loop is one graph with a value per step, not a thousand graphs: a `Graph` is a structure, shared by every
# pass of the same structure, and each `Frame` holds the values of one pass: the time axis.
#
# Gradient norms are packed ``array("f")``. A Euclidean norm is never negative, which leaves -1.0 free to say
# `UNTOUCHED`: no gradient came here. NaN means that the gradient holds a NaN, infinity that it holds an infinity (or
# overflowed float32 in the norm itself; `Frame.bad` has the counts). -2.0, `UNREADABLE`, says that a gradient came
# but could not be measured; the report's gaps say why. Whatever is below zero is therefore no norm.

UNTOUCHED = -1.0
UNREADABLE = -2.0

FEW_NODES, FEW_ELEMENTS = 20, 4  # a graph that is no larger shows its numbers themselves

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
        location: Index into `TraceReport.locations`: the user's line that made it; None where not known.
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


def is_small(nodes: Sequence[Node]) -> bool:
    """Return whether a graph is one to be checked by hand: few nodes, of few elements each."""
    known = [shape for node in nodes for shape in node.shapes]
    return bool(known) and len(nodes) <= FEW_NODES and all(math.prod(shape) <= FEW_ELEMENTS for shape in known)


@dataclass(frozen=True, slots=True)
class SmallValues:
    """The numbers of one pass through a small graph, element by element; empty where a tensor has more, or none came.

    Attributes:
        made: What each node made in the forward, or the leaf as it stood, by node index.
        gradients: What each received.
        sent: What went along each edge.
    """

    made: tuple[tuple[float, ...], ...]
    gradients: tuple[tuple[float, ...], ...]
    sent: tuple[tuple[float, ...], ...]


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
        values: The numbers themselves, of a small graph or where they were asked for.
    """

    pass_number: int
    norms: Floats
    bad: dict[str, tuple[int, int]] = field(default_factory=dict)
    measures: Floats = field(default_factory=no_numbers)
    parts: Floats = field(default_factory=no_numbers)
    forward: ForwardValues | None = None
    values: SmallValues | None = None

    def measured(self, index: int) -> tuple[float, ...] | None:
        """Return the numbers that `MEASURES` names for a node, or None where they were not taken in this pass."""
        at = index * len(MEASURES)
        found = tuple(self.measures[at : at + len(MEASURES)])
        return found if found and found[0] != UNTOUCHED else None


@dataclass(frozen=True, slots=True)
class FirstNonfinite:
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
        hooked: Whether a hook of the user's saw the gradient before the receiver did: it may have made it so.
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
    """One structure, and the values that went through it.

    Attributes:
        number: From 1, in order of first appearance.
        nodes: In order of creation.
        edges: From each node to those that made its inputs: the way the gradient flows.
        roots: Indices of the nodes that backward started from.
        order: Node indices in the order the engine reached them in the last pass.
        passes_seen: How many passes went through this structure.
        frames: The kept passes; fewer than ``passes_seen`` in a long run: then evenly thinned, and first, last
            and the first non-finite one are always kept.
        first_nonfinite: Where NaN and Inf were born, first passes first, at most a few.
        shared_edges: Indices of the edges that feed a slot together with others: only there does a node receive a sum,
            and `Frame.parts` says what each sent.
        cuts: Where the gradient's way ended although it could have gone on.
        forward_birth: Where a forward first made a NaN or Inf, where forward values were asked for and one did.
        first_bad: Where the forward of the first pass whose result was not finite first held a NaN or Inf, as far as
            the saved tensors show.
    """

    number: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    passes_seen: int = 0
    frames: tuple[Frame, ...] = ()
    first_nonfinite: tuple[FirstNonfinite, ...] = ()
    cuts: tuple[Cut, ...] = ()
    shared_edges: tuple[int, ...] = ()
    forward_birth: ForwardNonfinite | None = None
    first_bad: FirstBad | None = None


# What must hold between the parts of a trace that was read from a file: every number points at something.
#
# A report that a run left is sound by the way it is made. One from a file may be cut, edited or hostile, and is read
# by people and by code that trust it: it is refused as a whole, with a sentence, before anything indexes with it.


def check_graph(graph: Graph, lines: int) -> None:
    """Raise ReportFormatError where a part of a graph, in a report of so many lines, points at what is not there."""
    size = len(graph.nodes)
    require(all(node.index == at for at, node in enumerate(graph.nodes)), "the nodes are numbered")
    require(within((node.location for node in graph.nodes), lines), "a node stands on a line")
    require(within((end for edge in graph.edges for end in (edge.source, edge.target)), size), "an edge joins nodes")
    require(within((*graph.roots, *graph.order), size), "backward reached a node")
    require(
        within((end for one in graph.first_nonfinite for end in (one.node, one.receiver)), size),
        "a NaN is born in a node",
    )
    require(within((end for cut in graph.cuts for end in (cut.source, cut.target)), size), "a cut is between nodes")
    ends = (line for cut in graph.cuts for line in (cut.location, cut.source_location))
    require(within(ends, lines), "a cut stands on a line")
    require(all(len(frame.norms) == size for frame in graph.frames), "a pass has a norm for a node")
    require(within(graph.shared_edges, len(graph.edges)), "an edge shares its end")
    wide = all(len(frame.measures) in {0, size * len(MEASURES)} for frame in graph.frames)
    require(
        wide and all(len(frame.parts) in {0, len(graph.shared_edges)} for frame in graph.frames), "a pass is measured"
    )
    forward = [frame.forward for frame in graph.frames if frame.forward is not None]
    sizes = {(len(values.norms), len(values.measures)) for values in forward}
    require(sizes <= {(size, size * len(MEASURES))}, "a forward is measured")
    small = [frame.values for frame in graph.frames if frame.values is not None]
    every = {(len(one.made), len(one.gradients), len(one.sent)) for one in small}
    require(every <= {(size, size, len(graph.edges))}, "a pass has numbers")
    birth = graph.forward_birth
    require(birth is None or 0 <= birth.node < size, "a forward made a NaN")
    first = graph.first_bad
    require(first is None or 0 <= first.node < size, "a forward held a NaN")
    bad = [
        *(node for frame in graph.frames for node in frame.bad),
        *(node for values in forward for node in values.bad),
    ]
    require(all(node.isdecimal() and int(node) < size for node in bad), "a NaN is counted in a node")


def within(numbers: Iterable[int | None], size: int) -> bool:
    """Return whether all numbers that are there are places in something of this size."""
    return all(number is None or 0 <= number < size for number in numbers)


def require(holds: bool, what: str) -> None:  # noqa: FBT001  (the one thing that is asked)
    """Raise ReportFormatError where something does not hold that a trace says."""
    if not holds:
        raise ReportFormatError(f"this trace contradicts itself where {what}: the file is damaged or was edited")
