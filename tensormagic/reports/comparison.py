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
    """One of the two runs, in short.

    Attributes:
        name: What it is called in the comparison: ``"a"``, or the name the user gave it.
        title: The run's own title.
        state: As in `TraceReport.state`.
        steps_seen: How many steps it took.
        passes_seen: How many backward passes.
        seconds: How long it ran.
        nodes: Nodes of the graph that is compared; 0 without one.
        edges: Edges of it.
        loss_first: What its first kept pass was called on; None where that was not one number.
        loss_last: The same of the last kept pass.
        findings: How many findings it has.
        error: ``"ValueError: …"`` of a run that failed; empty otherwise.
    """

    name: str
    title: str
    state: State
    steps_seen: int
    passes_seen: int
    seconds: float
    nodes: int
    edges: int
    loss_first: float | None = None
    loss_last: float | None = None
    findings: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """Two norms of the same thing at the same step.

    Attributes:
        step: The step.
        left: Norm in the left run; the sentinels of `tensormagic.reports.graph` say that there is none.
        right: The same of the right run.
        ratio: log10(right / left); infinite where one of them is zero; NaN where the two cannot be compared.
    """

    step: int
    left: float
    right: float
    ratio: float


@dataclass(frozen=True, slots=True)
class NormDifference:
    """How the norms of a gradient differ over the steps that both runs kept.

    Attributes:
        compared: How many steps.
        first: At the first of them; None where none was.
        last: At the last of them.
        worst: Where they are furthest apart, the first such step; None where no two could be compared.
        from_step: The step from which on, up to the last, one is always `APART` times the other; None without one.
        apart_steps: How many compared steps that is.
        same: Whether they agree in every compared step, to five digits.
        bad_left: Compared steps at which the left one was NaN or infinite.
        bad_right: The same of the right one.
        bad_from_left: The first of these steps.
        bad_from_right: The same of the right one.
        silent_left: Compared steps at which the left run had no gradient here.
        silent_right: The same of the right one.
    """

    compared: int
    first: Moment | None = None
    last: Moment | None = None
    worst: Moment | None = None
    from_step: int | None = None
    apart_steps: int = 0
    same: bool = True
    bad_left: int = 0
    bad_right: int = 0
    bad_from_left: int | None = None
    bad_from_right: int | None = None
    silent_left: int = 0
    silent_right: int = 0

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
    """A node of one run.

    Attributes:
        index: Its index in its graph.
        op: What it is: ``"addmm"``.
        module: Path of the module that made it; empty outside modules.
        variable: The name of the leaf, or of the tensor that it made.
        shapes: Of its forward outputs.
        dtype: Of the first of them.
        location: The user's line that made it.
        statistics: Of the gradient in the first pass that reached it.
    """

    index: int
    op: str
    module: str = ""
    variable: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    location: Location | None = None
    statistics: GradientStatistics | None = None


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node that both graphs have, and what is different about it.

    Attributes:
        left: The node in the left run.
        right: The node in the right run.
        norms: How the norms of its gradient differ.
    """

    left: NodeMention
    right: NodeMention
    norms: NormDifference

    @property
    def reshaped(self) -> bool:
        """Whether its forward outputs have another shape or dtype."""
        return (self.left.shapes, self.left.dtype) != (self.right.shapes, self.right.dtype)


@dataclass(frozen=True, slots=True)
class ParameterDifference:
    """The gradient of a parameter that both runs have.

    Attributes:
        name: In the left run.
        name_right: In the right run.
        shape_left: Its shape in the left run.
        shape_right: Its shape in the right run.
        norms: How the norms of its gradient differ.
        touched_left: How many passes of the whole left run brought it a gradient.
        touched_right: The same of the right run.
    """

    name: str
    name_right: str
    shape_left: tuple[int, ...]
    shape_right: tuple[int, ...]
    norms: NormDifference
    touched_left: int = 0
    touched_right: int = 0


@dataclass(frozen=True, slots=True)
class GraphDifference:
    """Two graphs, matched node by node.

    Attributes:
        left: Number of the graph in the left run.
        right: Number in the right run.
        matched: How many nodes both have.
        same: Whether both have the same nodes and the same edges.
        equal: How many matched nodes have the same shapes, and the same norms in every compared step.
        nodes: The other matched nodes, the most different first; see ``nodes_found``.
        nodes_found: How many there are.
        only_left: Nodes that the left graph alone has, in order of creation; see ``only_left_found``.
        only_left_found: How many there are.
        only_right: Nodes that the right graph alone has.
        only_right_found: How many there are.
        edges_only_left: Edges of the left graph that the right one has not.
        edges_only_right: Edges of the right graph that the left one has not.
    """

    left: int
    right: int
    matched: int
    same: bool
    equal: int = 0
    nodes: tuple[NodeDifference, ...] = ()
    nodes_found: int = 0
    only_left: tuple[NodeMention, ...] = ()
    only_left_found: int = 0
    only_right: tuple[NodeMention, ...] = ()
    only_right_found: int = 0
    edges_only_left: int = 0
    edges_only_right: int = 0


@dataclass(frozen=True, slots=True)
class LossPair:
    """What backward was called on, in both runs at one step; None where that was not one number."""

    step: int
    left: float | None
    right: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport(Report):
    """Comparison of two traced runs.

    Attributes:
        left: The run that the other is compared with.
        right: The other run.
        steps_compared: How many passes were compared with one another.
        graphs: The graphs of both, paired by likeness; those of the left run's order, its main graph first.
        graphs_only_left: Graphs of the left run without a counterpart.
        graphs_only_right: Graphs of the right run without a counterpart.
        parameters: Parameters that both have, the most different first.
        parameters_only_left: Names of the others, in the left run.
        parameters_only_right: Names of the others, in the right run.
        losses: What backward was called on, step by step.
        findings_only_left: What was found in the left run alone.
        findings_only_right: What was found in the right run alone.
        findings_both: What was found in both, as the right run tells it.
        gaps: What could not be compared, and why.
    """

    kind_name: ClassVar[str] = "comparison"

    left: Side
    right: Side
    steps_compared: int = 0
    graphs: tuple[GraphDifference, ...] = ()
    graphs_only_left: int = 0
    graphs_only_right: int = 0
    parameters: tuple[ParameterDifference, ...] = ()
    parameters_only_left: tuple[str, ...] = ()
    parameters_only_right: tuple[str, ...] = ()
    losses: tuple[LossPair, ...] = ()
    findings_only_left: tuple[Finding, ...] = ()
    findings_only_right: tuple[Finding, ...] = ()
    findings_both: tuple[Finding, ...] = ()
    gaps: tuple[Gap, ...] = ()
