"""What a traced run did: the graphs autograd built, the passes that went through them, and what each brought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.failure import FailureReport, LossWithoutGraph, SilentErrors, SwallowedError, check_losses
from tensormagic.reports.graph import Cut, Floats, Graph, Node, check_graph, no_numbers, require, within
from tensormagic.reports.ops import OpsReport
from tensormagic.reports.training import Observation, Parallel, RepeatedHook, Training, UnusedGraph
from tensormagic.reports.watch import ModulesReport


@dataclass(frozen=True, slots=True)
class PassContext:
    """Where a pass ran."""

    #: Number of the pass that was running already, where this one ran inside it and shares its number: in a re-entrant
    #: checkpoint, a custom Function's backward, or a hook; 0 where it ran by itself.
    inside: int = 0
    graph: int = 0  #: Number of the graph from whose backward it was called; 0 where it ran by itself.
    node: int | None = None  #: Index, in that graph, of the node whose backward made the call; None where not known.
    thread: str = ""  #: Name of the thread, where it was not the traced one.
    #: What wrapped its tensors, the outermost first: ``("vmap", "grad")`` for per-sample gradients with ``torch.func``,
    #: ``("is_grads_batched",)`` for ``autograd.grad`` with that argument. Under ``vmap`` and ``is_grads_batched`` the
    #: numbers are of the gradients of the whole batch together.
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """What was asked for. A budget stands alone; the others may come together."""

    budget: float | None = None  #: The share of the untraced run's time that tracing may take, as 0.05; None: no limit.
    every: int = 1  #: Trace one step in so many, the first of them first.
    start: int = 1  #: The first step that may be traced, from 1.
    stop: int | None = None  #: The step before which tracing ends, as in a slice; None: never.

    def wants(self, step: int) -> bool:
        """Return whether the step with that number was asked for by number."""
        return self.start <= step < (self.stop or step + 1) and (step - self.start) % self.every == 0


@dataclass(frozen=True, slots=True)
class StepSampling:
    """What came of it."""

    asked: Schedule  #: What was asked for.
    steps: int = 0  #: How many of the run's steps were traced.
    passes: int = 0  #: How many of its backward passes were traced.
    ranges: tuple[tuple[int, int], ...] = ()  #: The traced stretches, (first, last) step; of very many the ends.
    left_out: int = 0  #: How many stretches between these are not listed.
    #: What tracing cost so far, as a share of the untraced run's time: measured where it was the tracer's own code,
    #: else estimated from the times of traced and of untraced steps. None where there is nothing to compare.
    cost: float | None = None
    first_cost: float = 0.0  #: The part of `cost` that the first traced step had, in which every graph is new.
    after_finding: int = 0  #: How many of the steps were traced because the one before had shown something.
    partial: int = 0  #: How many steps were asked for, but could not be traced whole: their graphs were begun before.
    last_traced: bool = True  #: Whether the last step of the run so far was traced.
    #: Where the last step was not traced: the norm of each parameter's ``.grad`` as it stood when the run ended, one
    #: for each of `TraceReport.parameters`; `UNTOUCHED` where there was none. Empty otherwise.
    last_norms: Floats = field(default_factory=no_numbers)
    paused: bool = False  #: Whether the run goes on untraced right now.
    next_step: int = 0  #: About the step that will be traced next; 0 where none is known.
    unsampled: str = ""  #: Why the tracer could not leave between the steps; empty where it could.


# What a traced run did: the graphs autograd built, the passes that went through them, and what each leaf got.
#
# The graphs themselves, and the sentinels of packed norms, are in `tensormagic.reports.graph`.

Level = Literal["grad", "ops"]
State = Literal["running", "finished", "failed", "interrupted", "drawn"]


@dataclass(frozen=True, slots=True)
class Pass:
    """One call of backward."""

    number: int  #: From 1 over the whole trace.
    step: int  #: From 1: passes between which no new forward ran share a step.
    graph: int  #: Number of the graph it went through.
    outcome: str  #: ``"finished"``, ``"failed"`` or ``"running"``.
    seconds: float  #: How long the engine took, the tracer's own share included.
    reached: int  #: How many nodes it reached.
    location: int | None = None  #: Index into `TraceReport.locations` of the line that called backward, if known.
    finite: bool = True  #: Whether every gradient in it was finite.
    value: float | None = None  #: What backward was called on, the loss; None: not one number, or unreadable.
    pass_context: PassContext | None = None  #: Where it ran; None: called on the traced thread, outside any other.
    #: In a run of several processes, whether the gradients that it brought were reduced over them in it; None where
    #: nothing there reduces gradients, or it is not known.
    reduced: bool | None = None
    returned: bool = False  #: Whether `autograd.grad` returned what came, so that it filled no ``.grad``.


@dataclass(frozen=True, slots=True)
class ParameterSeries:
    """The gradient of one leaf, over the kept passes."""

    name: str  #: ``"net.conv1.weight"``, or ``"leaf (3, 4)"`` where no name is known.
    shape: tuple[int, ...]  #: Its shape.
    dtype: str  #: Without the prefix.
    numel: int  #: Elements.
    is_parameter: bool  #: Whether it is an ``nn.Parameter`` of a module that was found.
    requires_grad: bool  #: Whether it asks for a gradient.
    used: bool  #: Whether a node of any traced graph leads to it.
    owner: str  #: Name of the outermost module it belongs to (``"net"``); empty for a plain tensor.
    norms: Floats  #: Norm of the gradient it received, one a pass of `TraceReport.passes`; `UNTOUCHED` where none came.
    touched: int  #: How many passes of the whole run brought it a gradient.
    #: How far the optimizer's step after each of these passes moved it: the norm of the change over the norm before, of
    #: at most 65,536 evenly spaced elements; `UNTOUCHED` where no step was measured; infinite where it was all zero
    #: before.
    updates: Floats = field(default_factory=no_numbers)
    replaced: bool = False  #: Whether its module got another one in its place, at least once.
    #: In a run of several processes, the norm of what lay of its ``.grad`` in this one when an optimizer stepped after
    #: each of these passes: reduced, unscaled and clipped; `UNTOUCHED` where it was not measured.
    stepped: Floats = field(default_factory=no_numbers)
    #: Of weights in half precision, the share of the elements with a gradient that measured steps left where they were;
    #: -1 where none was measured.
    lost: float = -1.0


@dataclass(frozen=True, slots=True)
class SavedTotals:
    """What an existing graph keeps for its backward; known of a graph that is drawn, not of a run."""

    slots: int = 0  #: Saved tensors that are there; one that two nodes save counts twice.
    storages: int = 0  #: Different storages behind them.
    nbytes: int = 0  #: Bytes of these storages, each counted once and whole.
    leaf_bytes: int = 0  #: The part of it that belongs to leaves of the graph, which live without it.
    freed: int = 0  #: Saved tensors that a backward has used and freed.
    changed: int = 0  #: Saved tensors that were changed in place since.
    unread: int = 0  #: Saved tensors that could not be looked at: packed by hooks, or of a kind that has no storage.


@dataclass(frozen=True, slots=True)
class Cell:
    """The source that was traced: one notebook cell, or the file a plain ``with trace()`` stands in."""

    filename: str  #: As Python names it.
    count: int | None  #: The execution count, or None.
    lines: tuple[str, ...]  #: Its lines; empty where they cannot be read.


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport(Report):
    """What a traced run did."""

    kind_name: ClassVar[str] = "trace"

    title: str  #: A name for the run: the model's name where one is known.
    state: State  #: ``"running"``, ``"finished"``, ``"failed"``, ``"interrupted"``; ``"drawn"``: only looked at.
    error: str = ""  #: ``"ValueError: …"`` of a run that failed; empty otherwise.
    cell: Cell  #: The traced source.
    seconds: float  #: Wall time from start to end (or to now, while running).
    own_seconds: float  #: The part of it spent inside the tracer's own hooks.
    locations: tuple[Location, ...] = ()  #: The user's lines that anything here points to.
    graphs: tuple[Graph, ...] = ()  #: Most used first.
    passes: tuple[Pass, ...] = ()  #: The kept passes; see ``passes_seen``.
    passes_seen: int = 0  #: How many there were.
    #: Passes that ran inside others, in the order in which they ended, thinned as these; they have the numbers of the
    #: passes that they ran in, and are not among ``passes``.
    inner_passes: tuple[Pass, ...] = ()
    inner_passes_seen: int = 0  #: How many of these there were.
    steps_seen: int = 0  #: How many steps there were.
    forward_nodes: int = 0  #: How many autograd nodes the forward made, whether or not a backward reached them.
    parameters: tuple[ParameterSeries, ...] = ()  #: Every leaf, and every parameter of every module, that took part.
    gaps: tuple[Gap, ...] = ()  #: What could not be seen, and why.
    saved: SavedTotals | None = None  #: What the graph keeps for its backward; None for a run.
    #: What ended the way of values that backward was called on, where nothing was left to go back along; those within a
    #: graph are in `Graph.cuts`.
    cuts: tuple[Cut, ...] = ()
    ops: OpsReport | None = None  #: Every operation that ran; None but at level ``"ops"``.
    sampling: StepSampling | None = None  #: Which steps were traced, and what that cost; None where all were to be.
    failure: FailureReport | None = None  #: The call that ended the run, where it was one of torch's that failed.
    observations: tuple[Observation, ...] = ()  #: What single calls of the forward did that is worth knowing.
    training: Training | None = None  #: What the training loop did from step to step; None where nothing was trained.
    losses_without_graph: tuple[LossWithoutGraph, ...] = ()  #: Values without a history on which backward was refused.
    modules: ModulesReport | None = None  #: What its modules hold beside their registries; None before its end.
    silent_errors: SilentErrors | None = None  #: What autograd let pass although it is wrong; None where nothing.
    swallowed_errors: tuple[SwallowedError, ...] = ()  #: Backwards that torch refused, and that did not end the run.
    parallel: Parallel | None = None  #: The place of this process in a run of several; None in a run of one.
    hooks: tuple[RepeatedHook, ...] = ()  #: Hooks of the user's that stand several times on one tensor or module.
    unused_graphs: tuple[UnusedGraph, ...] = ()  #: Graphs that were kept or recorded for no backward, by line.
    forked: int = 0  #: How many processes were forked in the run, known at its end: nothing that they did is in here.

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there."""
        lines = len(self.locations)
        for graph in self.graphs:
            check_graph(graph, lines)
        check_losses(self.losses_without_graph, self.cuts, lines)
        caught = (one.location for one in self.swallowed_errors)
        require(within(caught, lines), "a backward that was caught stands on a line")
        require(within((one.location for one in (*self.passes, *self.inner_passes)), lines), "a pass stands on a line")
        seen = (line for one in self.observations for line in (one.location, one.made))
        require(within(seen, lines), "something was seen on a line")
        widths = {len(series.norms) for series in self.parameters}
        require(widths <= {len(self.passes)}, "a parameter has a norm for a pass")
        moves = {len(series.updates) for series in self.parameters}
        require(moves <= {0, len(self.passes)}, "a step after a pass moved a parameter")
        steps = {len(series.stepped) for series in self.parameters}
        require(steps <= {0, len(self.passes)}, "a step after a pass used a gradient")
        standing = 0 if self.sampling is None else len(self.sampling.last_norms)
        require(standing in {0, len(self.parameters)}, "a parameter's .grad stands at the end")
        sizes = [len(graph.nodes) for graph in self.graphs]
        places = [*(finding.node for finding in self.findings if finding.node), *self._fault_places()]
        known = (0 <= graph < len(sizes) and 0 <= node < sizes[graph] for graph, node in places)
        require(all(known), "a finding is about a node")

    def _fault_places(self) -> Iterator[tuple[int, int]]:
        """Yield the nodes that something went wrong at, by what was collected."""
        raised = self.failure.backward if self.failure is not None else None
        every = [raised, *(one.fault for one in self.swallowed_errors)]
        faults = (fault for one in every if one is not None for fault in (one.modified, one.freed, one.returned))
        silent = self.silent_errors
        found = [(fault.graph, fault.node) for fault in faults if fault is not None]
        found += [(one.graph, one.node) for one in silent.unseen] if silent is not None else []
        found += [(one.graph, one.node) for one in silent.ignored] if silent is not None else []
        found += [(one.graph, one.node) for one in silent.overwritten] if silent is not None else []
        yield from ((graph, node) for graph, node in found if graph is not None and node is not None)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the main graph: the one most passes went through."""
        return self.graphs[0].nodes if self.graphs else ()

    @property
    def passes_traced(self) -> int:
        """How many of the passes were traced: all, where nothing else was asked for."""
        return self.passes_seen if self.sampling is None else self.sampling.passes

    def location(self, index: int | None) -> Location | None:
        """Return the location with that index, or None."""
        return None if index is None else self.locations[index]


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """What changes while the run goes on: small enough to be taken many times a second."""

    structure: int  #: Goes up whenever graphs or parameters were added or renamed: time to fetch a whole report.
    graph: int  #: Number of the graph being walked, 0 before the first pass.
    pass_number: int  #: The pass being walked, or the last one.
    step: int  #: Its step.
    running: bool  #: Whether backward is under way right now.
    cursor: int  #: Index of the node reached last; -1 before the first.
    reached: int  #: How many nodes of this pass were reached so far.
    norms: Floats  #: For each node of the graph: its norm in this pass, `UNTOUCHED` where backward has not come yet.
    finished_pass: int  #: Number of the last finished pass, 0 before the first.
    parameter_norms: Floats  #: For each parameter, in the report's order: its norm in that pass.
    seconds: float  #: Since the start.
    paused: bool = False  #: Whether the run goes on untraced right now; ``step`` is then the one that it has come to.
    next_step: int = 0  #: While it is paused: about the step that will be traced next; 0 where none is known.
