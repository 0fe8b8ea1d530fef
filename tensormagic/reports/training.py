"""What a run says about the training loop: optimizer steps, losses, and the ranks that train together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensormagic.reports.failure import Operand

# What a training loop did from step to step, and what single calls did.

# What single calls of the forward did that is worth knowing: plain facts, which the diagnoses judge.
#
# A watcher looks closely at the first calls of a line and at exponentially rarer ones after that, so that an
# `Observation` says three numbers: how often the line made the call, at how many of these it was looked, and in how
# many of those the thing was so.

ObservationKind = Literal[
    "copy", "mixed formats", "uninitialised", "both broadcast", "normalised", "draw", "synchronised", "promoted",
    "regrouped", "same memory", "wrapped", "no logarithms", "normalised over", "last sample", "dropout",
    "dropout in eval", "same draws", "advantage", "target",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One thing that the calls of one line did.

    Attributes:
        kind: ``"copy"``: a call that gives a view where it can has copied; ``"mixed formats"``: operands in different
            memory formats met; ``"uninitialised"``: memory was read that nobody had written; ``"both broadcast"``: both
            operands grew, and what came out was reduced; ``"normalised"``: a loss was given probabilities;
            ``"draw"``: random numbers came from the default generator, whose seed nobody chose; ``"synchronised"``:
            the host waited for a device; ``"promoted"``: float32 became float64 because it met float64;
            ``"regrouped"``: a view has the old sizes in another order; ``"same memory"``: tensors that were joined are
            views of the same elements; ``"wrapped"``: uint8 left its range; ``"no logarithms"``: `kl_div` was given
            none; ``"normalised over"``: a softmax went over another dimension than what follows sums or picks from;
            ``"last sample"``: the output of a recurrent layer that takes time first was indexed ``[:, -1]``, or that
            of attention that takes places first, ``[:, 0]`` or ``[:, -1]``;
            ``"same draws"``: every worker of a loader begins with the same generator, or goes through the same stream;
            ``"advantage"``: a score's logarithm was multiplied by a difference that has a gradient; ``"target"``: a
            loss compares with a target made by the network that is trained; ``"dropout"``, ``"dropout in eval"``: a
            dropout that the mode of the module around it does not reach.
        op: What was called, as a user knows it: ``"reshape"``, ``"mse_loss"``.
        location: Index into `TraceReport.locations` of the user's line; None where all of it is library code.
        module: Path of the innermost module whose forward was running.
        calls: How often this line made this call.
        looked: At how many of these it was looked closely.
        seen: In how many of those it was so.
        nbytes: Bytes concerned, in the largest of them.
        operands: What the call was given, the first time: only what the finding is about.
        result: What came out, the first time.
        made: Index of the line where the first operand was made, where that matters and is known.
        detail: What only this kind needs, in a word: the op before a loss, the device, the seed.
    """

    kind: ObservationKind
    op: str
    location: int | None = None
    module: str = ""
    calls: int = 1
    looked: int = 1
    seen: int = 1
    nbytes: int = 0
    operands: tuple[Operand, ...] = ()
    result: Operand | None = None
    made: int | None = None
    detail: str = ""


# What a training loop did from step to step: which optimizers stepped, on what gradients, and what they hold.
#
# A million steps are a handful of patterns: steps of one optimizer that found their gradients in the same state, made
# at the same lines, are counted together.

StepKind = Literal["fresh", "accumulated", "emptied", "repeated", "without", "inside", "idle", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPattern:
    """Steps of one optimizer that are alike.

    Attributes:
        kind: What the step found in its parameters' ``.grad``: ``"fresh"`` (brought since the step before, cleared in
            between), ``"accumulated"`` (a backward added to what a step had used already), ``"emptied"`` (a backward
            brought gradients, and at the step they were gone), ``"repeated"`` (those of the step before, no backward
            ran in between), ``"without"`` (none, although there was a forward; no backward has run at all),
            ``"inside"`` (backward ran inside the step, in a closure), ``"idle"`` (none, for another reason) or
            ``"unseen"`` (not everything before it was seen).
        location: Index into `TraceReport.locations` of the line that made the step; None where not known. Of an update
            by hand it is not known.
        backward: Index of the line of the last backward before it.
        cleared: Index of the line that cleared the gradients last, where that was seen.
        count: How many such steps there were.
        first: The number of the first of them among the optimizer's steps, from 1.
        last: The number of the last.
        longest: The most in a row.
    """

    kind: StepKind
    location: int | None = None
    backward: int | None = None
    cleared: int | None = None
    count: int = 1
    first: int = 1
    last: int = 1
    longest: int = 1


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How a gradient grew that was never cleared: of one parameter, as steps used it.

    Attributes:
        parameter: Index into `TraceReport.parameters`; None where it is not among them.
        first_step: The first step that was measured.
        first_norm: The norm that this step used.
        last_step: The last step that was measured.
        last_norm: The norm that this one used.
        brought: The norm of what the one backward before it brought; None where there were several.
    """

    parameter: int | None
    first_step: int
    first_norm: float
    last_step: int
    last_norm: float
    brought: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerUse:
    """One optimizer that stepped.

    Attributes:
        name: What the user calls it, else its class; empty for updates by hand, without an optimizer.
        type_name: Its class; empty for updates by hand.
        steps: How often it stepped.
        patterns: How, in order of first appearance.
        left_out: Steps of further patterns, which are not listed.
        holds: Indices into `TraceReport.parameters` of those that it was given; of updates by hand, of a few that were
            looked at.
        unknown_parameters: How many it was given besides: of no module that ran, in no graph.
        unknown_shapes: Their shapes, at most a few.
        unknown_owner: The name of the module that they are parameters of, where one has a name.
        unknown_idle: Whether none of these had a gradient at any step that was looked at.
        accumulation: How a gradient grew that was never cleared.
        discarded: How many backward passes of one line brought gradients that were cleared before any step used them.
        discarded_at: Index into `TraceReport.locations` of that line, the one with most of them.
        rate: The largest learning rate of any step; None where it was not read.
        repeated: How many different states of torch's generator came back at later steps: it was seeded anew.
        repeated_at: The first such step; 0 where there is none.
        repeated_of: The step that had the state before.
        graphed: How many of its steps used gradients that keep a graph of their own.
        resting: How many of the last steps in a row had none to speak of: less than a ten-millionth of that.
        foreign: How many of its steps used gradients to which two backward passes had added, the first of which another
            optimizer had used before the second ran.
        foreign_at: Index into `TraceReport.locations` of the line of that first backward.
        again: Whether an optimizer before it stepped the same tensors, and not those of another model of that name.
    """

    name: str
    type_name: str
    steps: int
    patterns: tuple[StepPattern, ...] = ()
    left_out: int = 0
    holds: tuple[int, ...] = ()
    unknown_parameters: int = 0
    unknown_shapes: tuple[tuple[int, ...], ...] = ()
    unknown_owner: str = ""
    unknown_idle: bool = True
    accumulation: Accumulation | None = None
    discarded: int = 0
    discarded_at: int | None = None
    rate: float | None = None
    resting: int = 0
    graphed: int = 0
    repeated: int = 0
    repeated_at: int = 0
    repeated_of: int = 0
    foreign: int = 0
    foreign_at: int | None = None
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """Calls of `clip_grad_norm_` of one line.

    Attributes:
        location: Index into `TraceReport.locations` of the line.
        calls: How often it was called.
        late: How often an optimizer had used the gradients already, and no backward had run since.
        empty: How often none of the parameters had a gradient.
        exhausted: How often it was given no parameter at all: a generator that was used up.
        scaled: How often the gradients still had the factor of the ``GradScaler`` that steps.
    """

    location: int | None
    calls: int = 0
    late: int = 0
    empty: int = 0
    exhausted: int = 0
    scaled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleOptimizer:
    """An optimizer that made no step in the run, though it holds parameters that got gradients.

    Attributes:
        name: What the user calls it, else its class.
        holds: Indices into `TraceReport.parameters`.
    """

    name: str
    holds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedUpIterator:
    """A loop over an iterator inside another loop that does not make it anew: from the second round on it is empty.

    Attributes:
        location: Index into `TraceReport.locations` of the inner ``for``.
        name: What the iterator is called.
        type_name: Its class.
        rounds: How many rounds the outer loop makes; -1 where that is not known.
    """

    location: int | None
    name: str
    type_name: str
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SameOrder:
    """A loader whose DistributedSampler was not given the epoch: the second round had the order of the first.

    Attributes:
        location: Index into `TraceReport.locations` of the inner ``for``.
        loader: What the loader is called.
        epoch: The variable of the outer loop.
    """

    location: int | None
    loader: str
    epoch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLoad:
    """A call of ``load_state_dict`` that was given keys which the module does not have, or its own tensors.

    Attributes:
        location: Index into `TraceReport.locations` of the line.
        module: What the user calls the module, else its class.
        given: How many keys it was given.
        unexpected: How many of them the module does not have.
        missing: How many of its own it was not given.
        example: The first key that it does not have.
        wanted: The first that it was not given.
        strip: What has to be taken from the beginning of each given key, so that all of them fit; else empty.
        own: Whether it was given its own parameters: nothing changes.
    """

    location: int | None
    module: str
    given: int
    unexpected: int = 0
    missing: int = 0
    example: str = ""
    wanted: str = ""
    strip: str = ""
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphGrowth:
    """A graph that is larger in each step than in the one before, because it reaches into the steps before.

    Attributes:
        backward: Index into `TraceReport.locations` of the line of the backward.
        passes: How many passes in a row it grew by the same number of nodes, when last looked at.
        first_size: Nodes of the first of these.
        last_size: Nodes of the last.
        increment: How many more each had than the one before.
        older: How many nodes of the last were made before the pass that came before it.
        joined: Index of the line that joined new nodes to these.
        reaches: Index of the line that had made what was joined.
    """

    backward: int | None
    passes: int
    first_size: int
    last_size: int
    increment: int
    older: int
    joined: int | None = None
    reaches: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSum:
    """A number with a history that each step adds to: it keeps the graphs of all steps.

    Attributes:
        location: Index into `TraceReport.locations` of the line.
        steps: Over how many steps it was followed, each with a backward of its own.
    """

    location: int | None
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMode:
    """In which mode a model was when its parameters were stepped.

    Attributes:
        model: Its name.
        steps: Steps of optimizers that hold parameters of it.
        eval_steps: How many of these found it, and all in it that this matters to, in eval mode.
        longest: The most of these in a row.
        first: The first of these, from 1; 0 where there was none.
        dropouts: How many dropouts there are in it.
        norms: How many normalisations with running statistics.
        unused_norms: How many of these had never seen a batch in train mode before the first step.
    """

    model: str
    steps: int
    eval_steps: int
    longest: int
    first: int
    dropouts: int
    norms: int
    unused_norms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedNorm:
    """A batch normalisation that was in train mode while gradients were off: it took statistics all the same.

    Attributes:
        module: Its path.
        location: Index into `TraceReport.locations` of the line that switched gradients off.
        batches: How many batches it took statistics from in this way, after the first backward pass.
        longest: The most of these with no backward pass in between.
    """

    module: str
    location: int | None
    batches: int
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the training loop did.

    Attributes:
        optimizers: Those that stepped, in order of first step.
        optimizers_seen: How many there were.
        by_hand: Updates of leaves that no optimizer holds: in-place changes between backward passes. None where there
            were none.
        elsewhere: Indices into `TraceReport.parameters` of those that are trained by other means: changed in place, or
            held by an optimizer that did not step. None as long as that was not looked for: while the run goes on.
        growth: Graphs that grow from step to step.
        sums: Numbers that keep the graphs of all steps.
        norms: Normalisations that took statistics while gradients were off.
        modes: In which mode each stepped model was.
        clips: Calls of `clip_grad_norm_`, by line.
        drifting: Normalisations whose weights are frozen and that took statistics all the same, with gradients on.
        alike: Indices into `TraceReport.parameters` of weights whose rows are all the same at the end of the run.
        idle: Optimizers that made no step.
        used_up: Loops over iterators that are empty from the second round on.
        same_order: Loaders that gave their data in the same order in two rounds of a loop.
        loads: Calls of ``load_state_dict(strict=False)`` with keys that do not fit.
        names: The names of each module that has several.
    """

    optimizers: tuple[OptimizerUse, ...] = ()
    optimizers_seen: int = 0
    by_hand: OptimizerUse | None = None
    elsewhere: tuple[int, ...] | None = None
    growth: tuple[GraphGrowth, ...] = ()
    sums: tuple[RunningSum, ...] = ()
    norms: tuple[UntrainedNorm, ...] = ()
    modes: tuple[ModelMode, ...] = ()
    clips: tuple[Clipping, ...] = ()
    drifting: tuple[UntrainedNorm, ...] = ()
    alike: tuple[int, ...] = ()
    idle: tuple[IdleOptimizer, ...] = ()
    used_up: tuple[UsedUpIterator, ...] = ()
    same_order: tuple[SameOrder, ...] = ()
    loads: tuple[StateLoad, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()


# What a rank knows of its place in a run of several processes, by itself.

Spread = Literal["DDP", "FSDP1", "FSDP2", "DTensor"]


@dataclass(frozen=True, slots=True)
class Whole:
    """Parameters that lie whole on every rank of their mesh, beside others that are cut.

    Attributes:
        largest: The name of the largest.
        count: How many.
        of: How many parameters are DTensors on a mesh of several ranks.
        elements: How many elements they have.
        of_elements: How many all of these have.
    """

    largest: str
    count: int
    of: int
    elements: int
    of_elements: int


@dataclass(frozen=True, slots=True)
class TakenPart:
    """A part of a sum over ranks that a loss was computed from as if it were the whole.

    Attributes:
        over: The dimensions of the mesh over which the parts are to be added up.
        placements: Of the DTensor, one for each dimension of its mesh.
        location: Index into the report's locations: where ``to_local()`` was called, or the library did.
    """

    over: str
    placements: tuple[str, ...]
    location: int | None


@dataclass(frozen=True, slots=True)
class Parallel:
    """The place of a process in a run of several.

    Attributes:
        rank: Its number, from 0.
        world_size: How many processes there are.
        kinds: By what the parameters are spread that got gradients: ``"DDP"`` (each process holds all of them, and
            gradients are reduced), ``"FSDP1"``, ``"FSDP2"`` (each holds a shard, gradients are reduced and sharded),
            ``"DTensor"`` (the gradients are DTensors themselves, as under tensor parallelism).
        whole: Parameters that lie whole on each rank, where others are cut; None without such.
        parts: Parts of sums that were taken for the whole.
    """

    rank: int
    world_size: int
    kinds: tuple[Spread, ...] = ()
    whole: Whole | None = None
    parts: tuple[TakenPart, ...] = ()
