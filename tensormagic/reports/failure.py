"""A call that torch refused: what it was given, so that the error can be explained without running anything again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.backward_faults import BackwardFault
from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap, Location
from tensormagic.reports.graph import Graph
from tensormagic.reports.memory import MemoryReport
from tensormagic.reports.out_of_memory import OutOfMemory

MismatchKind = Literal["shape", "dtype", "device", "view", "layout", "index", "argument"]
Phase = Literal["forward", "backward", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One thing that the call was given.

    Attributes:
        name: What the person calls it (``"x"``, ``"net.fc1.weight"``), or where it came from (``"the result of
            x.mean()"``); empty where nobody knows.
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
        location: The person's line that made it, where known.
        place: Which list it stands in and where, for ``torch.cat([a, b])``: ``"tensors[1]"``; empty otherwise.
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
    """What did not fit together, worked out from the operands and from what torch said.

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
        function: The call that was refused, as a person writes it: ``"torch.matmul"``, ``"Tensor.view"``,
            ``"Tensor.backward"``; empty where it is not known.
        phase: Whether it happened in the forward, within a backward, or in neither.
        location: The person's innermost line.
        way: The person's lines that led there, the outermost first, ``location`` last.
        module: Path of the innermost module whose forward was running: ``"net.fc1"``.
        operands: What the call was given, in order.
        exact: Whether the operands are those of the call itself, as it was made; False where they were read afterwards
            from the names in the failing line.
        mismatch: What did not fit, where that is what was wrong; filled in by the diagnoses.
        gaps: What could not be read.
        call: What failed in ``location``, as it stands there: ``"self.fc1(x)"``, ``"a @ b"``; empty where not known.
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
