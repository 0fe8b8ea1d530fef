"""A call that torch refused, a backward that raised or should have, and a backward on a value without a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.graph import Cut, Graph, check_cuts, require, within
from tensormagic.reports.memory import MemoryReport, OutOfMemory
from tensormagic.reports.watch import UnregisteredModules

# What a backward stumbled over, or should have: tensors changed after they were saved, graphs gone through twice.
#
# Autograd's own messages name neither of the two lines that such a fault is made of. What raises is part of a
# `FailureReport`; what does not raise (a write that autograd cannot see, a ``.grad`` that stays None) is part of a
# `TraceReport`.

WriteKind = Literal["call", "out", "step", "data", "set data", "array"]
ReturnProblem = Literal["count", "shape", "device", "dtype", "layout", "not a tensor", "not None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWrite:
    """One write in place to memory that a node had saved."""

    call: str  #: What wrote, as torch names it: ``"add_"``, ``"__setitem__"``, ``"SGD.step"``.
    #: ``"call"``; ``"out"`` (``out=``), ``"step"`` of an optimizer, ``"data"`` (through ``.data``), ``"set data"``
    #: (``x.data = …``) or ``"array"`` (through the NumPy array that the call gave, or was given; the write itself was
    #: not seen).
    kind: WriteKind = "call"
    location: Location | None = None  #: The user's line.
    module: str = ""  #: Path of the module whose forward did it; empty where none, or where not known.
    version: int = 0  #: Of what was written to, afterwards.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifiedSavedTensor:
    """A tensor that is no longer what it was when a node saved it for its backward."""

    op: str  #: Name of the node: ``"sigmoid"``.
    slot: str  #: What of it was saved: ``"result"``, ``"self"``, ``"mat2"``.
    name: str = ""  #: What the user calls the tensor; empty where nothing leads to it any more.
    shape: tuple[int, ...] = ()  #: Its shape.
    module: str = ""  #: Path of the module whose forward made the node.
    location: Location | None = None  #: The line that made the node: where it was saved.
    backward: Location | None = None  #: The line that called backward.
    graph: int | None = None  #: Index into `TraceReport.graphs`; None outside a trace.
    node: int | None = None  #: Index into that graph's nodes; None outside a trace.
    saved_version: int = 0  #: Its version when it was saved.
    version: int = 0  #: Its version when backward came to it.
    writes: tuple[SavedWrite, ...] = ()  #: The writes since, the first ones, in order; empty where none was seen.
    writes_seen: int = 0  #: How many were seen.
    others: int = 0  #: How many other nodes had saved the same memory before the first of the writes.


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedGraph:
    """A graph, or a part of one, whose saved tensors an earlier backward had freed."""

    op: str  #: The node that backward came to.
    location: Location | None = None  #: The line that made this node.
    root: str = ""  #: Name of what backward was called on; empty where it has none.
    backward: Location | None = None  #: The line that called backward this time.
    whole: bool = False  #: Whether the earlier backward started from the same node.
    first: Location | None = None  #: The line of the earlier backward; None where it was not seen.
    known: bool = False  #: Whether the earlier backward was seen: then the fields from here on say something.
    joint: str = ""  #: The op whose result the earlier graph and this one share, seen from the loss.
    joint_name: str = ""  #: What the user calls that result; empty where it has no name.
    joint_location: Location | None = None  #: The line that made it.
    joint_again: bool = False  #: Whether that line ran again since the earlier backward: then a state is handed on.
    joint_tuples: tuple[str, ...] = ()  #: Names on that line that are tuples of tensors, as the state of an LSTM is.
    shared: int = 0  #: How many nodes the two graphs share.
    graph: int | None = None  #: Index into `TraceReport.graphs`; None outside a trace.
    node: int | None = None  #: Index into that graph's nodes; None outside a trace.


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongReturn:
    """What a custom Function's backward returned that autograd cannot use."""

    function: str  #: Name of the class.
    problem: ReturnProblem  #: What does not fit.
    arguments: tuple[str, ...] = ()  #: Names of the forward's arguments, as many as gradients are expected.
    argument: str = ""  #: The one whose gradient does not fit; empty where unknown, or where it is about all of them.
    got: str = ""  #: What was returned: ``"(2,)"``, ``"2"``, ``"float"``.
    expected: str = ""  #: What fits.
    returns: tuple[Location, ...] = ()  #: The lines on which its backward returns.
    location: Location | None = None  #: The line that applied the Function.
    backward: Location | None = None  #: The line that called backward.
    graph: int | None = None  #: Index into `TraceReport.graphs`; None outside a trace.
    node: int | None = None  #: Index into that graph's nodes; None outside a trace.


@dataclass(frozen=True, slots=True)
class BackwardFault:
    """Why a backward raised, where it was for one of these reasons."""

    modified: ModifiedSavedTensor | None = None  #: A tensor was changed in place after it was saved.
    freed: FreedGraph | None = None  #: The graph was gone through before.
    returned: WrongReturn | None = None  #: A custom Function's backward returned what autograd cannot use.


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRead:
    """One line that read ``.grad`` of a tensor that is not a leaf and keeps none."""

    name: str  #: What the user calls it; empty where it has no name there.
    op: str  #: What made it.
    shape: tuple[int, ...]  #: Its shape.
    location: Location | None = None  #: The line that read.
    made: Location | None = None  #: The line that made it; None where not known.
    leaf: str = ""  #: Name of the leaf that it was made from; empty where there are several, or where it has none.
    single: bool = False  #: Whether it was made from one leaf alone, in a straight line: scaled, converted, copied.
    passes: int = 0  #: How many backward passes there had been before the first reading.
    count: int = 1  #: How often that line read it.


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredGradient:
    """A custom Function whose backward never reads the gradient that it is given, and passes one on."""

    function: str  #: Name of the class.
    argument: str  #: What its backward calls that gradient.
    location: Location | None = None  #: A line on which its backward returns.
    applied: Location | None = None  #: The line that applied the Function.
    norm: float = 0.0  #: The norm of a gradient that arrived and was not all ones; 0 where each may have been.
    graph: int | None = None  #: Index into `TraceReport.graphs`.
    node: int | None = None  #: Index into that graph's nodes.


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwrittenGradient:
    """A custom Function whose backward writes into a gradient that it is given and that others hold as well."""

    function: str  #: Name of the class.
    argument: str = ""  #: What its backward calls that gradient; empty where no line was found that writes into one.
    location: Location | None = None  #: The line that writes; the first one of the backward where it was not found.
    applied: Location | None = None  #: The line that applied the Function.
    passes: int = 1  #: In how many passes.
    graph: int | None = None  #: Index into `TraceReport.graphs`.
    node: int | None = None  #: Index into that graph's nodes.


@dataclass(frozen=True, slots=True)
class SilentErrors:
    """What autograd lets pass."""

    #: Saved tensors that were changed without their version counter, in passes that went through them.
    unseen: tuple[ModifiedSavedTensor, ...] = ()
    reads: tuple[GradientRead, ...] = ()  #: ``.grad`` of what keeps none.
    ignored: tuple[IgnoredGradient, ...] = ()  #: Custom Functions whose backward does not read what it is given.
    overwritten: tuple[OverwrittenGradient, ...] = ()  #: Custom Functions whose backward writes into what it is given.


MismatchKind = Literal["shape", "dtype", "device", "view", "layout", "index", "argument"]
Phase = Literal["forward", "backward", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One thing that the call was given."""

    #: What the user calls it (``"x"``, ``"net.fc1.weight"``), or where it came from (``"the result of x.mean()"``);
    #: empty where it is not known.
    name: str = ""
    role: str = ""  #: What torch calls it: ``"self"``, ``"mat2"``, ``"weight"``; empty where not known.
    is_tensor: bool = True  #: Whether it is a tensor; if not, only ``text`` says more.
    shape: tuple[int, ...] = ()  #: Of a tensor.
    dtype: str = ""  #: Of a tensor, without the prefix.
    device: str = ""  #: Of a tensor.
    stride: tuple[int, ...] = ()  #: Of a strided tensor; empty otherwise.
    layout: str = ""  #: ``"strided"``, ``"sparse_coo"``, …; empty where it is not a tensor.
    requires_grad: bool = False  #: Whether the tensor asks for a gradient.
    is_leaf: bool = True  #: Whether it is a leaf of the graph.
    text: str = ""  #: Anything else that was given: a number, a tuple, a string, as one would write it, shortened.
    location: Location | None = None  #: The user's line that made it, where known.
    place: str = ""  #: Which list it is in and where, for ``torch.cat([a, b])``: ``"tensors[1]"``; empty otherwise.
    #: The least number that it held, where it is small and in the computer's own memory; None where that was not read.
    least: float | None = None
    most: float | None = None  #: The greatest.


#: How code writes an operand without a name, by its role, where that is not the role itself.
PLAIN_NAMES = {"self": "x", "input": "x", "mat1": "x", "mat2": "other", "vec2": "other"}


@dataclass(frozen=True, slots=True)
class Clashing:
    """One part of an operand that does not fit: a dimension of its shape, or the whole."""

    operand: int  #: Index into `FailureReport.operands`.
    dimension: int | None = None  #: Which of its dimensions, from 0; None where it is not about one.
    got: str = ""  #: What it is: ``"64"``, ``"float64"``, ``"cuda:0"``.
    expected: str = ""  #: What would have fitted, as far as that can be said; empty otherwise.


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What did not fit together, worked out from the operands and from torch's message."""

    kind: MismatchKind  #: What clashes.
    rule: str  #: What the call asks for, in one sentence: ``"The last dimension of input must be in_features, 128."``
    parts: tuple[Clashing, ...] = ()  #: Where it is violated; the operands named here are those that clash.
    works: tuple[str, ...] = ()  #: Calls that would have worked, as code, the likeliest first; tried on stand-ins.
    maybe: tuple[str, ...] = ()  #: What may help and could not be tried: ``"net.eval()"``, ``"i.max()  # at most 9"``.


@dataclass(frozen=True, slots=True)
class NothingToTrain:
    """A module of which an optimizer got no parameter."""

    name: str  #: As the failing line writes it: ``"model"``.
    kind: str  #: Its class: ``"Net"``.
    parameters: int  #: How many parameters it has.
    frozen: int = 0  #: How many of these ask for no gradient.
    hidden: tuple[UnregisteredModules, ...] = ()  #: What lies in plain containers of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport(Report):
    """An exception that torch raised, and what stood around it."""

    kind_name: ClassVar[str] = "failure"

    error_type: str  #: ``"RuntimeError"``.
    error: str  #: Its message, whole.
    #: The call that was refused, as a user writes it: ``"torch.matmul"``, ``"Tensor.view"``, ``"Tensor.backward"``;
    #: empty where it is not known.
    function: str = ""
    phase: Phase = "forward"  #: Whether it happened in the forward, within a backward, or in neither.
    location: Location | None = None  #: The user's innermost line.
    stack: tuple[Location, ...] = ()  #: The user's lines that led there, the outermost first, ``location`` last.
    module: str = ""  #: Path of the innermost module whose forward was running: ``"net.fc1"``.
    #: The call that makes that module, as the user's code writes it, else with all of its arguments; empty where it is
    #: none of torch's.
    layer_call: str = ""
    operands: tuple[Operand, ...] = ()  #: What the call was given, in order.
    #: Whether the operands are those of the call itself, as it was made; False where they were read afterwards from the
    #: names in the failing line.
    exact: bool = True
    mismatch: Mismatch | None = None  #: What did not fit, where that is what was wrong; filled in by the diagnoses.
    gaps: tuple[Gap, ...] = ()  #: What could not be read.
    call: str = ""  #: What failed in ``location``, as written there: ``"self.fc1(x)"``, ``"a @ b"``; else empty.
    near: tuple[str, ...] = ()  #: Names that an object of torch's has where it lacks the one that was asked for.
    #: Which of the usual names of torch's modules, ``"F"`` and ``"nn"``, the failing code does not know.
    unnamed: tuple[str, ...] = ()
    #: Classes and functions of this session's cells that worker processes were to have and could not import.
    unimportable: tuple[str, ...] = ()
    inside: str = ""  #: The function of torch's within which the refused call was made, on something of its own.
    #: ``(graph, node)``, indices into the trace's graphs: the node that was running, where a backward failed.
    node: tuple[int, int] | None = None
    backward: BackwardFault | None = None  #: Why a backward failed, where it was for one of the usual reasons.
    #: What autograd had recorded of the operands, the refused call its last node; its nodes have no lines. None where
    #: it had recorded nothing, or too much to be drawn.
    graph: Graph | None = None
    out_of_memory: OutOfMemory | None = None
    memory: MemoryReport | None = None
    nothing_to_train: NothingToTrain | None = None  #: Where an optimizer got no parameter, of which module.
    #: The value without a graph that backward was called on, where the source shows why it has none.
    losses_without_graph: tuple[LossWithoutGraph, ...] = ()
    cuts: tuple[Cut, ...] = ()  #: What ended the way of that value.
    locations: tuple[Location, ...] = ()  #: The lines that these two point to.

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there."""
        check_losses(self.losses_without_graph, self.cuts, len(self.locations))


@dataclass(frozen=True, slots=True, kw_only=True)
class SwallowedError:
    """Backwards of one line that torch refused for one reason, and that the run has survived."""

    error_type: str  #: ``"RuntimeError"``.
    error: str  #: torch's message the first time.
    fault: BackwardFault  #: Why.
    location: int | None = None  #: Index into `TraceReport.locations` of the line that called backward, if known.
    #: Whether the code says that it expects the error, with ``pytest.raises``, ``assertRaises`` or
    #: ``contextlib.suppress``, or catches it elsewhere than in an ``except`` of the user's.
    expected: bool = False
    count: int = 1  #: How often.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInScope:
    """A model that the code which called backward can name."""

    name: str  #: ``"net"``, ``"self.model"``.
    parameters: int  #: How many parameters it has.
    frozen: int  #: How many of them do not ask for a gradient.


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWithoutGraph:
    """A backward called on a value that does not ask for a gradient and that nothing leads back from: torch refuses."""

    name: str = ""  #: What the user calls the value; empty where it has no name there.
    location: int | None = None  #: Index into `TraceReport.locations` of the line that called backward, if known.
    shape: tuple[int, ...] = ()  #: Of the value.
    dtype: str = ""  #: Of the value, without the prefix.
    grad_enabled: bool = True  #: Whether gradients were being recorded when backward was called.
    inference: bool = False  #: Whether the value was made under ``inference_mode``.
    cut: int | None = None  #: Index into `TraceReport.cuts` of what ended its way; None where that was not seen.
    models: tuple[ModelInScope, ...] = ()  #: The models that the calling code can name.
    count: int = 1  #: How often this line did it.
    expected: bool = False  #: Whether the code says that it expects the error; see `SwallowedError`.


def check_losses(losses: Sequence[LossWithoutGraph], cuts: Sequence[Cut], lines: int) -> None:
    """Raise ReportFormatError where one, in a report of so many lines, points at what is not there."""
    require(within((one.location for one in losses), lines), "a backward that was refused stands on a line")
    require(within((one.cut for one in losses), len(cuts)), "a backward was refused for a cut")
    check_cuts(cuts, lines)
