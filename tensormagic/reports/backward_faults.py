"""What a backward stumbled over, or should have: tensors changed after they were saved, graphs gone through twice.

Autograd's own messages name neither of the two lines that such a fault is made of. What raises is part of a
`FailureReport`; what does not raise (a write that autograd cannot see, a ``.grad`` that stays None) is part of a
`TraceReport`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensormagic.reports.finding import Location

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
        location: The person's line.
        module: Path of the module whose forward did it; empty where none, or where not known.
        version: Of what was written to, afterwards.
    """

    call: str
    kind: WriteKind = "call"
    location: Location | None = None
    module: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoiltTensor:
    """A tensor that is no longer what it was when a node saved it for its backward.

    Attributes:
        op: Name of the node: ``"sigmoid"``.
        slot: What of it was saved: ``"result"``, ``"self"``, ``"mat2"``.
        name: What the person calls the tensor; empty where nothing leads to it any more.
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
        joint_name: What the person calls that result; empty where it has no name.
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
        spoilt: A tensor was changed in place after it was saved.
        freed: The graph was gone through before.
        returned: A custom Function's backward returned what autograd cannot use.
    """

    spoilt: SpoiltTensor | None = None
    freed: FreedGraph | None = None
    returned: WrongReturn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRead:
    """One line that read ``.grad`` of a tensor that is no leaf and keeps none.

    Attributes:
        name: What the person calls it; empty where it has no name there.
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
class QuietFaults:
    """What autograd lets pass.

    Attributes:
        unseen: Saved tensors that were changed in a way that no version tells of, in passes that went through them.
        reads: ``.grad`` of what keeps none.
    """

    unseen: tuple[SpoiltTensor, ...] = ()
    reads: tuple[GradientRead, ...] = ()
