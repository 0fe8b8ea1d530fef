"""A call that torch refused, a backward that raised or should have, and a backward on a value without a history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.graph import Graph
from tensormagic.reports.memory import MemoryReport, OutOfMemory

# What a backward stumbled over, or should have: tensors changed after they were saved, graphs gone through twice.
#
# Autograd's own messages name neither of the two lines that such a fault is made of. What raises is part of a
# `FailureReport`; what does not raise (a write that autograd cannot see, a ``.grad`` that stays None) is part of a
# `TraceReport`.

WriteKind = Literal["call", "out", "step", "data", "set data", "array"]
ReturnProblem = Literal["count", "shape", "device", "dtype", "layout", "not a tensor", "not None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWrite:
    """One write in place to memory that a node had saved.

    Attributes:
        call: What wrote, as torch names it: ``"add_"``, ``"__setitem__"``, ``"SGD.step"``.
        kind: ``"call"``; ``"out"`` (``out=``), ``"step"`` of an optimizer, ``"data"`` (through ``.data``), ``"set
            data"`` (``x.data = …``) or ``"array"`` (through the NumPy array that the call gave, or was given; the write
            itself was not seen).
        location: The user's line.
        module: Path of the module whose forward did it; empty where none, or where not known.
        version: Of what was written to, afterwards.
    """

    call: str
    kind: WriteKind = "call"
    location: Location | None = None
    module: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifiedSavedTensor:
    """A tensor that is no longer what it was when a node saved it for its backward.

    Attributes:
        op: Name of the node: ``"sigmoid"``.
        slot: What of it was saved: ``"result"``, ``"self"``, ``"mat2"``.
        name: What the user calls the tensor; empty where nothing leads to it any more.
        shape: Its shape.
        module: Path of the module whose forward made the node.
        location: The line that made the node: where it was saved.
        backward: The line that called backward.
        graph: Index into `TraceReport.graphs`; None outside a trace.
        node: Index into that graph's nodes; None outside a trace.
        saved_version: Its version when it was saved.
        version: Its version when backward came to it.
        writes: The writes since, the first ones, in order; empty where none was seen.
        writes_seen: How many were seen.
        others: How many other nodes had saved the same memory before the first of the writes.
    """

    op: str
    slot: str
    name: str = ""
    shape: tuple[int, ...] = ()
    module: str = ""
    location: Location | None = None
    backward: Location | None = None
    graph: int | None = None
    node: int | None = None
    saved_version: int = 0
    version: int = 0
    writes: tuple[SavedWrite, ...] = ()
    writes_seen: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedGraph:
    """A graph, or a part of one, whose saved tensors an earlier backward had freed.

    Attributes:
        op: The node that backward came to.
        location: The line that made this node.
        root: Name of what backward was called on; empty where it has none.
        backward: The line that called backward this time.
        whole: Whether the earlier backward started from the same node.
        first: The line of the earlier backward; None where it was not seen.
        known: Whether the earlier backward was seen: then the fields from here on say something.
        joint: The op whose result the earlier graph and this one share, seen from the loss.
        joint_name: What the user calls that result; empty where it has no name.
        joint_location: The line that made it.
        joint_again: Whether that line ran again since the earlier backward: then it is a state that is handed on.
        shared: How many nodes the two graphs share.
        graph: Index into `TraceReport.graphs`; None outside a trace.
        node: Index into that graph's nodes; None outside a trace.
    """

    op: str
    location: Location | None = None
    root: str = ""
    backward: Location | None = None
    whole: bool = False
    first: Location | None = None
    known: bool = False
    joint: str = ""
    joint_name: str = ""
    joint_location: Location | None = None
    joint_again: bool = False
    shared: int = 0
    graph: int | None = None
    node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongReturn:
    """What a custom Function's backward returned that autograd cannot use.

    Attributes:
        function: Name of the class.
        problem: What does not fit.
        arguments: Names of the forward's arguments, as many as gradients are expected.
        argument: The one whose gradient does not fit; empty where that is not known or it is about all of them.
        got: What was returned: ``"(2,)"``, ``"2"``, ``"float"``.
        expected: What fits.
        returns: The lines on which its backward returns.
        location: The line that applied the Function.
        backward: The line that called backward.
        graph: Index into `TraceReport.graphs`; None outside a trace.
        node: Index into that graph's nodes; None outside a trace.
    """

    function: str
    problem: ReturnProblem
    arguments: tuple[str, ...] = ()
    argument: str = ""
    got: str = ""
    expected: str = ""
    returns: tuple[Location, ...] = ()
    location: Location | None = None
    backward: Location | None = None
    graph: int | None = None
    node: int | None = None


@dataclass(frozen=True, slots=True)
class BackwardFault:
    """Why a backward raised, where it was for one of these reasons.

    Attributes:
        modified: A tensor was changed in place after it was saved.
        freed: The graph was gone through before.
        returned: A custom Function's backward returned what autograd cannot use.
    """

    modified: ModifiedSavedTensor | None = None
    freed: FreedGraph | None = None
    returned: WrongReturn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRead:
    """One line that read ``.grad`` of a tensor that is no leaf and keeps none.

    Attributes:
        name: What the user calls it; empty where it has no name there.
        op: What made it.
        shape: Its shape.
        location: The line that read.
        made: The line that made it; None where not known.
        leaf: Name of the leaf that it was made from; empty where there are several, or where it has none.
        single: Whether it was made from one leaf alone, in a straight line: scaled, converted, copied.
        passes: How many backward passes there had been before the first reading.
        count: How often that line read it.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    location: Location | None = None
    made: Location | None = None
    leaf: str = ""
    single: bool = False
    passes: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class SilentErrors:
    """What autograd lets pass.

    Attributes:
        unseen: Saved tensors that were changed without their version counter, in passes that went through them.
        reads: ``.grad`` of what keeps none.
    """

    unseen: tuple[ModifiedSavedTensor, ...] = ()
    reads: tuple[GradientRead, ...] = ()


# A call that torch refused: what it was given, so that the error can be explained without running anything again.

MismatchKind = Literal["shape", "dtype", "device", "view", "layout", "index", "argument"]
Phase = Literal["forward", "backward", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One thing that the call was given.

    Attributes:
        name: What the user calls it (``"x"``, ``"net.fc1.weight"``), or where it came from (``"the result of
            x.mean()"``); empty where it is not known.
        role: What torch calls it: ``"self"``, ``"mat2"``, ``"weight"``; empty where not known.
        is_tensor: Whether it is a tensor; if not, only ``text`` says more.
        shape: Of a tensor.
        dtype: Of a tensor, without the prefix.
        device: Of a tensor.
        stride: Of a strided tensor; empty otherwise.
        layout: ``"strided"``, ``"sparse_coo"``, …; empty where it is no tensor.
        requires_grad: Whether the tensor asks for a gradient.
        is_leaf: Whether it is a leaf of the graph.
        text: A number, a tuple, a string: what was given, as one would write it, shortened; empty for a tensor.
        location: The user's line that made it, where known.
        place: Which list it is in and where, for ``torch.cat([a, b])``: ``"tensors[1]"``; empty otherwise.
        least: The least number that it held, where it is small and in the computer's own memory; None where that was
            not read.
        most: The greatest.
    """

    name: str = ""
    role: str = ""
    is_tensor: bool = True
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    stride: tuple[int, ...] = ()
    layout: str = ""
    requires_grad: bool = False
    is_leaf: bool = True
    text: str = ""
    location: Location | None = None
    place: str = ""
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Clashing:
    """One part of an operand that does not fit: a dimension of its shape, or the whole.

    Attributes:
        operand: Index into `FailureReport.operands`.
        dimension: Which of its dimensions, from 0; None where it is not about one.
        got: What it is: ``"64"``, ``"float64"``, ``"cuda:0"``.
        expected: What would have fitted, as far as that can be said; empty otherwise.
    """

    operand: int
    dimension: int | None = None
    got: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What did not fit together, worked out from the operands and from torch's message.

    Attributes:
        kind: What clashes.
        rule: What the call asks for, in one sentence: ``"The last dimension of input must be in_features, 128."``
        parts: Where it is violated; the operands named here are those that clash.
        works: Calls that would have worked, as code, the likeliest first; tried on stand-ins of the operands.
        maybe: What may help and could not be tried, as code: ``"net.eval()"``, ``"i.max()  # at most 9"``.
    """

    kind: MismatchKind
    rule: str
    parts: tuple[Clashing, ...] = ()
    works: tuple[str, ...] = ()
    maybe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport(Report):
    """An exception that torch raised, and what stood around it.

    Attributes:
        error_type: ``"RuntimeError"``.
        error: Its message, whole.
        function: The call that was refused, as a user writes it: ``"torch.matmul"``, ``"Tensor.view"``,
            ``"Tensor.backward"``; empty where it is not known.
        phase: Whether it happened in the forward, within a backward, or in neither.
        location: The user's innermost line.
        way: The user's lines that led there, the outermost first, ``location`` last.
        module: Path of the innermost module whose forward was running: ``"net.fc1"``.
        operands: What the call was given, in order.
        exact: Whether the operands are those of the call itself, as it was made; False where they were read afterwards
            from the names in the failing line.
        mismatch: What did not fit, where that is what was wrong; filled in by the diagnoses.
        gaps: What could not be read.
        call: What failed in ``location``, as written there: ``"self.fc1(x)"``, ``"a @ b"``; empty where not known.
        inside: The function of torch's within which it made the refused call on something of its own; else empty.
        node: ``(graph, node)``, indices into the trace's graphs: the node that was running, where a backward failed.
        backward: Why a backward failed, where it was for one of the usual reasons.
        graph: What autograd had recorded of the operands, the refused call its last node; its nodes have no lines. None
            where it had recorded nothing, or too much to be drawn.
    """

    kind_name: ClassVar[str] = "failure"

    error_type: str
    error: str
    function: str = ""
    phase: Phase = "forward"
    location: Location | None = None
    way: tuple[Location, ...] = ()
    module: str = ""
    operands: tuple[Operand, ...] = ()
    exact: bool = True
    mismatch: Mismatch | None = None
    gaps: tuple[Gap, ...] = ()
    call: str = ""
    inside: str = ""
    node: tuple[int, int] | None = None
    backward: BackwardFault | None = None
    graph: Graph | None = None
    out_of_memory: OutOfMemory | None = None
    memory: MemoryReport | None = None


# A backward that torch refused and whose exception did not end the run: the code around it caught it.


@dataclass(frozen=True, slots=True, kw_only=True)
class SwallowedError:
    """Backwards of one line that torch refused for one reason, and that the run has survived.

    Attributes:
        error_type: ``"RuntimeError"``.
        error: torch's message the first time.
        fault: Why.
        location: Index into `TraceReport.locations` of the line that called backward; None where not known.
        expected: Whether the code says that it expects the error, with ``pytest.raises``, ``assertRaises`` or
            ``contextlib.suppress``, or catches it elsewhere than in an ``except`` of the user's.
        count: How often.
    """

    error_type: str
    error: str
    fault: BackwardFault
    location: int | None = None
    expected: bool = False
    count: int = 1


# A value without a history that backward was called on: what stood around it, so that it can be said why.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInSight:
    """A model that the code which called backward can name.

    Attributes:
        name: ``"net"``, ``"self.model"``.
        parameters: How many parameters it has.
        frozen: How many of them do not ask for a gradient.
    """

    name: str
    parameters: int
    frozen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWithoutGraph:
    """A backward called on a value that does not ask for a gradient and that nothing leads back from: torch refuses.

    Attributes:
        name: What the user calls the value; empty where it has no name there.
        location: Index into `TraceReport.locations` of the line that called backward; None where not known.
        shape: Of the value.
        dtype: Of the value, without the prefix.
        grad_enabled: Whether gradients were being recorded when backward was called.
        inference: Whether the value was made under ``inference_mode``.
        cut: Index into `TraceReport.cuts` of what ended its way; None where that was not seen.
        models: The models that the calling code can name.
        count: How often this line did it.
        expected: Whether the code says that it expects the error; see `SwallowedError`.
    """

    name: str = ""
    location: int | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    grad_enabled: bool = True
    inference: bool = False
    cut: int | None = None
    models: tuple[ModelInSight, ...] = ()
    count: int = 1
    expected: bool = False
