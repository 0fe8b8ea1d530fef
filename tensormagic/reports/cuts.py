"""Where the gradient's way ended although it could have gone on: what autograd does not keep.

``y.detach()`` leaves nothing behind in the graph: the node that uses the result simply has an input without a way
back. A `Cut` says which call ended the way, on which line, between which nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        op: What was called, as a person knows it: ``"detach"``, ``".data"``, ``"argmax"``; else as ``kind``.
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

    @property
    def severed(self) -> bool:
        """Whether a gradient would flow here, had the way not ended; otherwise the value was only read, or chose."""
        return self.target is not None and not self.selects
