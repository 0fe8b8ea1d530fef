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
    "detach",
    "data",
    "no_grad",
    "inference_mode",
    "item",
    "numpy",
    "copy",
    "cast",
    "non-differentiable",
    "frozen",
    "grad",
]


#: Cuts that somebody wrote; what comes out may be used where nobody sees it.
EXPLICIT_CUTS = frozenset({"detach", "data", "item", "numpy", "copy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A leaf behind a cut that asks for a gradient and has none, and that no graph of the whole run led to."""

    name: str  #: ``"net.conv1.weight"``, ``"x"``; ``"leaf (3, 4)"`` where it has no name.
    owner: str = ""  #: Name of the outermost module it belongs to; empty for a plain tensor.
    shape: tuple[int, ...] = ()  #: Its shape.
    is_parameter: bool = False  #: Whether it is an ``nn.Parameter``.
    held: bool | None = None  #: Whether an optimizer that stepped in the run was given it; None where none stepped.
    written: bool = False  #: Whether something else writes to it or replaces it, as a moving average does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One place where a tensor with a history went into a call, and its history did not come out.

    What went in and came out may have passed calls that autograd does not follow on its way to ``target``
    (``x.detach() * 2``). Equal cuts of all passes are one `Cut`, counted.
    """

    #: ``"detach"``, ``"data"``, ``"no_grad"``, ``"inference_mode"``, ``"item"`` (also ``float(x)``), ``"numpy"`` (also
    #: ``tolist``), ``"copy"`` (``torch.tensor(x)``), ``"cast"`` (to integers or bool), ``"non-differentiable"``
    #: (comparisons, argmax, sampling), ``"frozen"`` (``requires_grad_(False)``) or ``"grad"`` (``torch.autograd.grad``
    #: without ``create_graph=True``).
    kind: CutKind
    op: str  #: What was called, as a user knows it: ``"detach"``, ``".data"``, ``"argmax"``; else as ``kind``.
    #: Index into `TraceReport.locations` of that call, or of the ``with torch.no_grad():`` around it; None where not
    #: known.
    location: int | None = None
    line: int = 0  #: Its line number, for a drawing of the graph alone; 0 where not known.
    source: int | None = None  #: Index of the node that made what went in, or of that leaf; None outside this graph.
    source_name: str = ""  #: The same in words, also where it is not in this graph: ``"sub"``, ``"target.0.weight"``.
    source_location: int | None = None  #: Index of the line that made it; None where not known, and for leaves.
    earlier: bool = False  #: Whether an earlier pass went through ``source``: made in one step, used in the next.
    target: int | None = None  #: Index of the node that used what came out; None where backward went through none.
    #: Which input of ``target`` it is (its place in ``next_functions``); None where not known, or where ``target`` has
    #: none for it.
    input_number: int | None = None
    selects: bool = False  #: Whether it only chose elements (index, mask): ``target`` has no input for their gradient.
    shape: tuple[int, ...] = ()  #: Of what came out.
    dtype: str = ""  #: Of what came out, without the prefix; ``"float"`` and the like for a Python number.
    count: int = 1  #: How often, over the whole run.
    left_out: tuple[LeftOut, ...] = ()  #: The leaves behind it that got no gradient from anywhere, where known.
    #: Of ``"no_grad"``: whether code switched gradients off that is neither the user's own nor torch's on the user's
    #: behalf. Of ``"non-differentiable"``: whether a distribution of torch's or of a library's did it.
    by_library: bool = False
    #: Where ``location`` is a ``with torch.no_grad():`` and a leaf went in: index of the line of the call below it.
    call_location: int | None = None
    #: Whether it is the value of a leaf that went on as NumPy or as numbers in the forward of a module, and no leaf of
    #: which that is so here got a gradient.
    outside: bool = False

    @property
    def detachment(self) -> bool:
        """Whether a gradient would flow here, had the way not ended; otherwise the value was only read, or chose."""
        return self.target is not None and not self.selects


NonfiniteOrigin = Literal["made", "data", "leaf"]


@dataclass(frozen=True, slots=True)
class NonfiniteSource:
    """The first NaN or Inf of a forward: made by a node, or there already in what went into it."""

    pass_number: int  #: Of the pass whose forward it was.
    node: int  #: Index of the node that made it, or that the data went into; of the leaf itself.
    source: NonfiniteOrigin  #: ``"made"`` by the node, already in the ``"data"`` that it was given, or in a ``"leaf"``.
    nan: int  #: How many elements are NaN: of the node's result, of the data, or of the leaf.
    inf: int  #: How many are infinite.
    count: int  #: How many elements it has.
    name: str = ""  #: Under which the user holds the data; empty where no name is known.
    shape: tuple[int, ...] = ()  #: Of the data or the leaf; empty of what a node made.
    zero: int = 0  #: Of what a node made: how many elements of its operand are zero, where that explains it.
    negative: int = 0  #: The same of elements outside the op's domain: below zero, mostly.
    certain: bool = True  #: Whether everything that went into the node was seen, and was finite.


if TYPE_CHECKING:
    Floats = array[float]
else:
    Floats = array  # subscriptable only since Python 3.12


@dataclass(frozen=True, slots=True)
class ForwardValues:
    """What each node made in the forward of one pass; of a pass measured in full, also the leaves as they stood.

    Of a node with several outputs these are the numbers of all of them together. Nodes that a call made on the way to
    its result (the ``log_softmax`` inside ``cross_entropy``) have none.
    """

    norms: Floats  #: Euclidean norm, by node index, `UNTOUCHED` where none was seen; as in `Frame.norms`.
    measures: Floats  #: As in `Frame.measures`.
    #: Node index (as text) → (NaN count, Inf count), only where one of them is not zero.
    bad: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForwardNonfinite:
    """Where the forward first made a NaN or Inf."""

    pass_number: int  #: Of the pass whose forward it was.
    node: int  #: Index of the node; nothing that was seen of what it was made from, in this graph, had one.
    nan: int  #: How many elements of its output are NaN.
    inf: int  #: How many are infinite.
    count: int  #: How many elements it has.
    #: Whether something that went into the call held a NaN or Inf already: data, a parameter; None where that could not
    #: be asked without waiting for a device.
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
    """A tensor that a node keeps for its backward."""

    name: str  #: The slot, as torch names it without the prefix: ``"self"``, ``"mat1"``, ``"result"``.
    shape: tuple[int, ...]  #: Its shape; empty where it could not be read.
    dtype: str  #: Without the prefix.
    nbytes: int  #: numel · element size.
    state: str  #: ``"ok"``, ``"changed in place"``, ``"freed"`` or ``"unreadable"``, when last looked at.


@dataclass(frozen=True, slots=True)
class GradientStatistics:
    """Numbers over one gradient: all that came into a node in one pass."""

    pass_number: int  #: The pass they were measured in.
    count: int  #: Elements.
    norm: float  #: Euclidean norm.
    abs_max: float  #: Largest magnitude.
    mean: float  #: Mean of the finite elements.
    std: float  #: Standard deviation of the finite elements, divisor n.
    zero: int  #: How many are exactly zero.
    nan: int  #: How many are NaN.
    inf: int  #: How many are +Inf or -Inf.
    subnormal: int = 0  #: How many are not zero, but below the smallest normal float16 or float8; 0 for wider types.
    saturated: int = 0  #: How many are at the largest finite number of float16 or float8, or beyond; 0 for wider types.


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a node sends the gradient of one of its forward inputs."""

    source: int  #: Index of the node that computes the gradient.
    target: int  #: Index of the node that receives it: the one that made that input.
    input_number: int  #: Which input of the source's forward op it is the gradient of (as in ``next_functions``).
    slot: int  #: Which forward output of the target it belongs to.


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the autograd graph."""

    index: int  #: Its place in `Graph.nodes`: order of creation in the forward; leaves stand where first used.
    name: str  #: As autograd names it: ``"AddmmBackward0"``.
    op: str  #: The same, readable: ``"addmm"``.
    kind: NodeKind  #: ``"op"``, ``"accumulate"`` (a leaf that collects a gradient) or ``"custom"`` (autograd.Function).
    location: int | None = None  #: Index into `TraceReport.locations` of the user's line that made it; None if unknown.
    #: False where the node was made by something the tracer did not see itself, and the line is that of the next call
    #: which used it.
    exact_location: bool = True
    module: str = ""  #: Path of the innermost module whose forward made it: ``"net.conv1"``; empty outside modules.
    variable: str = ""  #: The name of the leaf (``"net.conv1.weight"``), or of the tensor it made where one holds it.
    shapes: tuple[tuple[int, ...], ...] = ()  #: Of its forward outputs, one a slot; as first seen.
    dtype: str = ""  #: Of its first forward output, without the prefix.
    device: str = ""  #: Of its first forward output.
    saved: tuple[SavedTensor, ...] = ()  #: What it keeps for backward.
    statistics: GradientStatistics | None = None  #: Of the gradient it received, in the first pass that reached it.


def is_small(nodes: Sequence[Node]) -> bool:
    """Return whether a graph is one to be checked by hand: few nodes, of few elements each."""
    known = [shape for node in nodes for shape in node.shapes]
    return bool(known) and len(nodes) <= FEW_NODES and all(math.prod(shape) <= FEW_ELEMENTS for shape in known)


@dataclass(frozen=True, slots=True)
class SmallValues:
    """The numbers of one pass through a small graph, element by element; empty where a tensor has more or none came."""

    made: tuple[tuple[float, ...], ...]  #: What each node made in the forward, or the leaf as it stood, by node index.
    gradients: tuple[tuple[float, ...], ...]  #: What each received.
    sent: tuple[tuple[float, ...], ...]  #: What went along each edge.


@dataclass(frozen=True, slots=True)
class Frame:
    """The gradients of one pass through one graph."""

    pass_number: int  #: Which pass, from 1 over the whole trace.
    norms: Floats  #: Euclidean norm of the gradient each node received, by node index; see the module for sentinels.
    #: Node index (as text) → (NaN count, Inf count), only where one of them is not zero.
    bad: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: For each node in turn the numbers that `MEASURES` names, `UNTOUCHED` each where there are none; empty for a pass
    #: of which the norms alone were taken.
    measures: Floats = field(default_factory=no_numbers)
    parts: Floats = field(default_factory=no_numbers)  #: The norms of what went along `Graph.shared_edges`, in turn.
    forward: ForwardValues | None = None  #: What the nodes made in the forward, where that was asked for.
    values: SmallValues | None = None  #: The numbers themselves, of a small graph or where they were asked for.

    def measured(self, index: int) -> tuple[float, ...] | None:
        """Return the numbers that `MEASURES` names for a node, or None where they were not taken in this pass."""
        at = index * len(MEASURES)
        found = tuple(self.measures[at : at + len(MEASURES)])
        return found if found and found[0] != UNTOUCHED else None


@dataclass(frozen=True, slots=True)
class FirstNonfinite:
    """Where a NaN or Inf came into being in a pass: a node that got a finite gradient and sent on one that is not."""

    pass_number: int  #: Which pass.
    node: int  #: Index of the node whose backward made it.
    receiver: int  #: Index of the node that received it.
    input_number: int  #: Which input of ``node``'s forward op the bad gradient is the gradient of.
    nan: int  #: How many elements of it are NaN.
    inf: int  #: How many are infinite.
    count: int  #: How many elements it has.
    incoming_norm: float  #: Norm of the finite gradient that ``node`` received.
    saved_name: str = ""  #: The saved tensor that explains it (``"self"``), empty where none does.
    saved_zero: int = 0  #: How many elements of that saved tensor are zero.
    saved_negative: int = 0  #: How many are negative.
    saved_bad: int = 0  #: How many are NaN or infinite.
    certain: bool = True  #: False where several nodes feed the receiver and only their sum was seen.
    hooked: bool = False  #: Whether a hook of the user's saw the gradient before the receiver, and may have made it so.


@dataclass(frozen=True, slots=True)
class Graph:
    """One structure, and the values that went through it."""

    number: int  #: From 1, in order of first appearance.
    nodes: tuple[Node, ...]  #: In order of creation.
    edges: tuple[Edge, ...]  #: From each node to those that made its inputs: the way the gradient flows.
    roots: tuple[int, ...] = ()  #: Indices of the nodes that backward started from.
    order: tuple[int, ...] = ()  #: Node indices in the order the engine reached them in the last pass.
    passes_seen: int = 0  #: How many passes went through this structure.
    #: The kept passes; fewer than ``passes_seen`` in a long run: then evenly thinned, and first, last and the first
    #: non-finite one are always kept.
    frames: tuple[Frame, ...] = ()
    first_nonfinite: tuple[FirstNonfinite, ...] = ()  #: Where NaN and Inf were born, first passes first, at most a few.
    cuts: tuple[Cut, ...] = ()  #: Where the gradient's way ended although it could have gone on.
    #: Indices of the edges that feed a slot together with others: only there does a node receive a sum, and
    #: `Frame.parts` says what each sent.
    shared_edges: tuple[int, ...] = ()
    #: Index of an edge (as text) → the norm of what was last sent along it to a node that received exactly zero: above
    #: zero where a hook in between made it zero, or where it cancelled with what others sent.
    sent_to_zero: dict[str, float] = field(default_factory=dict)
    #: Node index (as text) → index of the line that put a hook on its result, None where not known: of the nodes whose
    #: gradient was zero or not finite in a pass, those of which that hook saw it first.
    hooked: dict[str, int | None] = field(default_factory=dict)
    #: Where a forward first made a NaN or Inf, where forward values were asked for and one did.
    forward_nonfinite: ForwardNonfinite | None = None
    #: Where the forward of the first pass whose result was not finite first held a NaN or Inf, as far as the saved
    #: tensors show.
    nonfinite_source: NonfiniteSource | None = None


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
    born = (end for one in graph.first_nonfinite for end in (one.node, one.receiver))
    require(within(born, size), "a NaN is born in a node")
    require(within((end for cut in graph.cuts for end in (cut.source, cut.target)), size), "a cut is between nodes")
    check_cuts(graph.cuts, lines)
    require(all(len(frame.norms) == size for frame in graph.frames), "a pass has a norm for a node")
    require(within(graph.shared_edges, len(graph.edges)), "an edge shares its end")
    require(within(graph.hooked.values(), lines), "a hook stands on a line")
    wide = all(len(frame.measures) in {0, size * len(MEASURES)} for frame in graph.frames)
    parted = all(len(frame.parts) in {0, len(graph.shared_edges)} for frame in graph.frames)
    require(wide and parted, "a pass is measured")
    forward = [frame.forward for frame in graph.frames if frame.forward is not None]
    sizes = {(len(values.norms), len(values.measures)) for values in forward}
    require(sizes <= {(size, size * len(MEASURES))}, "a forward is measured")
    small = [frame.values for frame in graph.frames if frame.values is not None]
    every = {(len(one.made), len(one.gradients), len(one.sent)) for one in small}
    require(every <= {(size, size, len(graph.edges))}, "a pass has numbers")
    nonfinite = graph.forward_nonfinite
    require(nonfinite is None or 0 <= nonfinite.node < size, "a forward made a NaN")
    first = graph.nonfinite_source
    require(first is None or 0 <= first.node < size, "a forward held a NaN")
    bad = [
        *(node for frame in graph.frames for node in frame.bad),
        *(node for values in forward for node in values.bad),
    ]
    require(_are_places(bad, size), "a NaN is counted in a node")
    require(_are_places(graph.hooked, size), "a node has a hook")
    require(_are_places(graph.sent_to_zero, len(graph.edges)), "an edge leads to zero")


def _are_places(texts: Iterable[str], size: int) -> bool:
    return all(text.isdecimal() and int(text) < size for text in texts)


def check_cuts(cuts: Iterable[Cut], lines: int) -> None:
    """Raise ReportFormatError where a cut, in a report of so many lines, stands on none of them."""
    ends = (line for cut in cuts for line in (cut.location, cut.source_location, cut.call_location))
    require(within(ends, lines), "a cut stands on a line")


def within(numbers: Iterable[int | None], size: int) -> bool:
    """Return whether all numbers that are there are places in something of this size."""
    return all(number is None or 0 <= number < size for number in numbers)


def require(holds: bool, what: str) -> None:  # noqa: FBT001  (the one thing that is asked)
    """Raise ReportFormatError where something does not hold that a trace says."""
    if not holds:
        raise ReportFormatError(f"this trace contradicts itself where {what}: the file is damaged or was edited")
