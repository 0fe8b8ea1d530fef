"""Comparison of two traced runs: what is the same, what is different, and from which step on.

The left run is the one that the other is compared with: a ratio is right over left. Numbers are those of the steps
that both runs kept; what only one of them has is listed, not guessed at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tensormagic.reports.base import Finding, Gap, Location, Report
from tensormagic.reports.graph import GradientStatistics
from tensormagic.reports.trace import State

APART = 3.0  # two norms are apart where one is more than this many times the other


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs, in short."""

    name: str  #: What it is called in the comparison: ``"a"``, or the name the user gave it.
    title: str  #: The run's own title.
    state: State  #: As in `TraceReport.state`.
    steps_seen: int  #: How many steps it took.
    passes_seen: int  #: How many backward passes.
    seconds: float  #: How long it ran.
    nodes: int  #: Nodes of the graph that is compared; 0 without one.
    edges: int  #: Edges of it.
    loss_first: float | None = None  #: What its first kept pass was called on; None where that was not one number.
    loss_last: float | None = None  #: The same of the last kept pass.
    findings: int = 0  #: How many findings it has.
    error: str = ""  #: ``"ValueError: …"`` of a run that failed; empty otherwise.


@dataclass(frozen=True, slots=True)
class Moment:
    """Two norms of the same thing at the same step."""

    step: int  #: The step.
    left: float  #: Norm in the left run; the sentinels of `tensormagic.reports.graph` say that there is none.
    right: float  #: The same of the right run.
    ratio: float  #: log10(right / left); infinite where one of them is zero; NaN where the two cannot be compared.


@dataclass(frozen=True, slots=True)
class NormDifference:
    """How the norms of a gradient differ over the steps that both runs kept."""

    compared: int  #: How many steps.
    first: Moment | None = None  #: At the first of them; None where none was.
    last: Moment | None = None  #: At the last of them.
    worst: Moment | None = None  #: Where they are furthest apart, first such step; None where none could be compared.
    from_step: int | None = None  #: The step from which on one is always `APART` times the other; None without one.
    apart_steps: int = 0  #: How many compared steps that is.
    same: bool = True  #: Whether they agree in every compared step, to five digits.
    differs_from: int | None = None  #: The first step in which they do not; None where there is none.
    bad_left: int = 0  #: Compared steps at which the left one was NaN or infinite.
    bad_right: int = 0  #: The same of the right one.
    bad_from_left: int | None = None  #: The first of these steps.
    bad_from_right: int | None = None  #: The same of the right one.
    silent_left: int = 0  #: Compared steps at which the left run had no gradient here.
    silent_right: int = 0  #: The same of the right one.

    @property
    def silenced(self) -> str:
        """Which run never had a gradient here while the other had one: ``"left"``, ``"right"`` or ``""``."""
        missing = (self.silent_left == self.compared, self.silent_right == self.compared)
        return "" if missing[0] == missing[1] else "left" if missing[0] else "right"

    @property
    def weight(self) -> float:
        """How much there is to see here: to sort by. A NaN in one run alone comes first, then a missing gradient."""
        if bool(self.bad_left) != bool(self.bad_right):
            return 3e6
        if self.silenced:
            return 2e6
        return min(abs(self.worst.ratio), 1e6) if self.worst is not None and not math.isnan(self.worst.ratio) else 0.0


@dataclass(frozen=True, slots=True)
class NodeMention:
    """A node of one run."""

    index: int  #: Its index in its graph.
    op: str  #: What it is: ``"addmm"``.
    module: str = ""  #: Path of the module that made it; empty outside modules.
    variable: str = ""  #: The name of the leaf, or of the tensor that it made.
    shapes: tuple[tuple[int, ...], ...] = ()  #: Of its forward outputs.
    dtype: str = ""  #: Of the first of them.
    location: Location | None = None  #: The user's line that made it.
    statistics: GradientStatistics | None = None  #: Of the gradient in the first pass that reached it.


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node that both graphs have, and what is different about it."""

    left: NodeMention  #: The node in the left run.
    right: NodeMention  #: The node in the right run.
    norms: NormDifference  #: How the norms of its gradient differ.

    @property
    def reshaped(self) -> bool:
        """Whether its forward outputs have another shape or dtype."""
        return (self.left.shapes, self.left.dtype) != (self.right.shapes, self.right.dtype)


@dataclass(frozen=True, slots=True)
class ParameterDifference:
    """The gradient of a parameter that both runs have."""

    name: str  #: In the left run.
    name_right: str  #: In the right run.
    shape_left: tuple[int, ...]  #: Its shape in the left run.
    shape_right: tuple[int, ...]  #: Its shape in the right run.
    norms: NormDifference  #: How the norms of its gradient differ.


@dataclass(frozen=True, slots=True)
class GraphDifference:
    """Two graphs, matched node by node."""

    left: int  #: Number of the graph in the left run.
    right: int  #: Number in the right run.
    matched: int  #: How many nodes both have.
    same: bool  #: Whether both have the same nodes and the same edges.
    equal: int = 0  #: How many matched nodes have the same shapes, and the same norms in every compared step.
    nodes: tuple[NodeDifference, ...] = ()  #: The other matched nodes, the most different first; see ``nodes_found``.
    nodes_found: int = 0  #: How many there are.
    only_left: tuple[NodeMention, ...] = ()  #: The first nodes that the left graph alone has, in order of creation.
    only_left_found: int = 0  #: How many there are.
    only_right: tuple[NodeMention, ...] = ()  #: Nodes that the right graph alone has.
    only_right_found: int = 0  #: How many there are.
    edges_only_left: int = 0  #: Edges of the left graph that the right one has not.
    edges_only_right: int = 0  #: Edges of the right graph that the left one has not.


@dataclass(frozen=True, slots=True)
class LossPair:
    """What backward was called on, in both runs at one step; None where that was not one number."""

    step: int
    left: float | None
    right: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport(Report):
    """Comparison of two traced runs."""

    kind_name: ClassVar[str] = "comparison"

    left: Side  #: The run that the other is compared with.
    right: Side  #: The other run.
    steps_compared: int = 0  #: How many passes were compared with one another.
    graphs: tuple[GraphDifference, ...] = ()  #: The graphs of both, paired by likeness, in the left run's order.
    graphs_only_left: int = 0  #: Graphs of the left run without a counterpart.
    graphs_only_right: int = 0  #: Graphs of the right run without a counterpart.
    parameters: tuple[ParameterDifference, ...] = ()  #: Parameters that both have, the most different first.
    parameters_only_left: tuple[str, ...] = ()  #: Names of the others, in the left run.
    parameters_only_right: tuple[str, ...] = ()  #: Names of the others, in the right run.
    losses: tuple[LossPair, ...] = ()  #: What backward was called on, step by step.
    findings_only_left: tuple[Finding, ...] = ()  #: What was found in the left run alone.
    findings_only_right: tuple[Finding, ...] = ()  #: What was found in the right run alone.
    findings_both: tuple[Finding, ...] = ()  #: What was found in both, as the right run tells it.
    gaps: tuple[Gap, ...] = ()  #: What could not be compared, and why.
