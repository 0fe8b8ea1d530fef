"""Every operation that ran under a trace at level ``ops``: how often, how long, how much memory, what it wrote to.

An operation is a call that reaches torch's dispatcher below autograd: what the user's own calls are made of, and
what autograd calls on their behalf in the backward. They are distinguished by operation, line, module and phase, and
summed up; nothing is kept of a single call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from tensormagic.reports.graph import Floats

Phase = Literal["forward", "backward", "optimizer", "other"]
Key = TypeVar("Key", bound=Hashable)

PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "other")


@dataclass(frozen=True, slots=True)
class OpUse:
    """All calls of one operation from one line, in one module and phase."""

    op: str  #: As torch names it: ``"aten.addmm.default"``.
    #: ``"forward"``: in a module, or recorded by autograd; ``"backward"``: on behalf of an autograd node;
    #: ``"optimizer"``: by ``torch.optim``; ``"other"``: everything else, such as preparing data and metrics.
    phase: Phase
    #: Index into `TraceReport.locations`: the user's line; in the backward, the line that made the node, or that called
    #: backward where the node has none. None where no line is known.
    location: int | None
    module: str  #: Path of the innermost module, as in `Node.module`.
    calls: int  #: How many, those that raised included.
    seconds: float  #: Wall time of the calls themselves on the host; on an accelerator that is the time to launch them.
    #: Bytes of the storages that they allocated for what they returned. A view and a write in place allocate none; a
    #: storage that several outputs share counts once. Of a meta or fake tensor, as many as it would take.
    nbytes: int
    mutated: tuple[str, ...] = ()  #: Names of the arguments that the operation writes to, as its schema says.
    mutations: int = 0  #: How many of the calls wrote to them.
    failed: int = 0  #: How many of the calls raised.


@dataclass(frozen=True, slots=True)
class Total:
    """Several uses added up."""

    calls: int = 0  #: As in `OpUse`.
    seconds: float = 0.0  #: As in `OpUse`.
    nbytes: int = 0  #: As in `OpUse`.
    mutations: int = 0  #: As in `OpUse`.
    forward_seconds: float = 0.0  #: The part of ``seconds`` in the forward.
    backward_seconds: float = 0.0  #: The part of it in the backward.

    @classmethod
    def of(cls, uses: Iterable[OpUse]) -> Total:
        """Return the sum of some uses."""
        every = list(uses)
        return cls(
            sum(use.calls for use in every),
            sum(use.seconds for use in every),
            sum(use.nbytes for use in every),
            sum(use.mutations for use in every),
            sum(use.seconds for use in every if use.phase == "forward"),
            sum(use.seconds for use in every if use.phase == "backward"),
        )


@dataclass(frozen=True, slots=True)
class NodeCosts:
    """What the operations of each node of one graph took, on average a pass."""

    graph: int  #: Number of the graph.
    forward_passes: int  #: How many passes the forward numbers are the mean of.
    backward_passes: int  #: Likewise for the backward.
    forward_seconds: Floats  #: By node index: host time of the operations that made the node, in the forward.
    forward_bytes: Floats  #: Likewise, bytes that they allocated.
    backward_seconds: Floats  #: By node index: host time of the operations that the node's backward called.
    backward_bytes: Floats  #: Likewise, bytes.


@dataclass(frozen=True, slots=True)
class OpsReport:
    """Every operation of a run."""

    uses: tuple[OpUse, ...] = ()  #: Those that took longest first.
    nodes: tuple[NodeCosts, ...] = ()  #: What each node of each graph took.
    devices: tuple[str, ...] = ()  #: Types of the devices that operations ran on: ``"cpu"``, ``"cuda"``.
    #: How many calls went into functions that ``torch.compile`` made. What they call of torch is here; the kernels that
    #: were generated for them are not.
    compiled_calls: int = 0

    @property
    def total(self) -> Total:
        """Everything added up."""
        return Total.of(self.uses)

    @property
    def unattributed(self) -> Total:
        """What no line of the user's is known for."""
        return Total.of(use for use in self.uses if use.location is None)

    @property
    def is_launch_time(self) -> bool:
        """Whether some operations ran on a device that works on after the call has returned."""
        return any(device not in {"cpu", "meta"} for device in self.devices)

    def by(self, key: Callable[[OpUse], Key]) -> list[tuple[Key, Total]]:
        """Return the totals of groups of uses, the longest first."""
        groups: dict[Key, list[OpUse]] = {}
        for use in self.uses:
            groups.setdefault(key(use), []).append(use)
        totals = [(name, Total.of(group)) for name, group in groups.items()]
        return sorted(totals, key=lambda pair: -pair[1].seconds)
