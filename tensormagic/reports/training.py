"""What a run says about the training loop: optimizer steps, losses, and the ranks that train together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensormagic.reports.base import Location
from tensormagic.reports.failure import Operand

# What single calls of the forward did that is worth knowing: plain facts, which the diagnoses judge.
#
# A watcher looks closely at the first calls of a line and at exponentially rarer ones after that, so that an
# `Observation` says three numbers: how often the line made the call, at how many of these it was looked, and in how
# many of those the thing was so.

ObservationKind = Literal[
    "copy", "mixed formats", "uninitialised", "both broadcast", "normalised", "draw", "synchronised", "promoted",
    "stretched", "regrouped", "same memory", "wrapped", "no logarithms", "normalised over", "last sample", "dropout",
    "dropout in eval", "same draws", "advantage", "target", "update lost", "change lost", "unfit target",
    "index repeats", "normalised alone",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One thing that the calls of one line did."""

    #: ``"copy"``: a call that gives a view where it can has copied; ``"mixed formats"``: operands in different memory
    #: formats met; ``"uninitialised"``: memory was read that nobody had written; ``"both broadcast"``: both operands
    #: grew, and what came out was reduced; ``"stretched"``: a loss broadcast its target; ``"normalised"``: a loss was
    #: given probabilities; ``"draw"``: random numbers came from the default generator, whose seed nobody chose;
    #: ``"synchronised"``: the host waited for a device; ``"promoted"``: float32 became float64 because it met float64;
    #: ``"regrouped"``: a view has the old sizes in another order; ``"same memory"``: tensors that were joined are views
    #: of the same elements; ``"wrapped"``: uint8 left its range; ``"no logarithms"``: `kl_div` was given none;
    #: ``"normalised over"``: a softmax went over another dimension than what follows sums or picks from; ``"last
    #: sample"``: the output of a recurrent layer that takes time first was indexed ``[:, -1]``, or that of attention
    #: that takes places first, ``[:, 0]`` or ``[:, -1]``; ``"same draws"``: every worker of a loader begins with the
    #: same generator, or goes through the same stream; ``"advantage"``: a score's logarithm was multiplied by a
    #: difference that has a gradient; ``"target"``: a loss compares with a target made by the network that is trained;
    #: ``"dropout"``, ``"dropout in eval"``: a dropout that the mode of the module around it does not reach; ``"update
    #: lost"``: a parameter and something else made a new tensor that is gone, and the parameter is as it was when its
    #: next gradient came (the detail is that statement); ``"unfit target"``: a loss was given a target that it does not
    #: take (the detail: which values it has, or that prediction and target changed places); ``"change lost"``: what was
    #: made of a parameter, its data or its gradient is bound to a name that nothing reads, or to none (the detail is
    #: that statement); ``"index repeats"``: a sum was written to places that its index names several times;
    #: ``"normalised alone"``: a normalisation went over one value at a time.
    kind: ObservationKind
    op: str  #: What was called, as a user knows it: ``"reshape"``, ``"mse_loss"``.
    location: int | None = None  #: Index into `TraceReport.locations` of the user's line; None if all is library code.
    module: str = ""  #: Path of the innermost module whose forward was running.
    calls: int = 1  #: How often this line made this call.
    looked: int = 1  #: At how many of these it was looked closely.
    seen: int = 1  #: In how many of those it was so.
    nbytes: int = 0  #: Bytes concerned, in the largest of them.
    operands: tuple[Operand, ...] = ()  #: What the call was given, the first time: only what the finding is about.
    result: Operand | None = None  #: What came out, the first time.
    made: int | None = None  #: Index of the line where the first operand was made, where that matters and is known.
    detail: str = ""  #: What only this kind needs, in a word: the op before a loss, the device, the seed.


# What a training loop did from step to step: which optimizers stepped, on what gradients, and what they hold.
#
# A million steps are a handful of patterns: steps of one optimizer that found their gradients in the same state, made
# at the same lines, are counted together.

StepKind = Literal["fresh", "accumulated", "emptied", "repeated", "without", "inside", "idle", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPattern:
    """Steps of one optimizer that are alike."""

    #: What the step found in its parameters' ``.grad``: ``"fresh"`` (brought since the step before, cleared in
    #: between), ``"accumulated"`` (a backward added to what a step had used already), ``"emptied"`` (a backward brought
    #: gradients, and at the step they were gone), ``"repeated"`` (those of the step before, no backward ran in
    #: between), ``"without"`` (none, although there was a forward; no backward has run at all), ``"inside"`` (backward
    #: ran inside the step, in a closure), ``"idle"`` (none, for another reason) or ``"unseen"`` (not everything before
    #: it was seen).
    kind: StepKind
    #: Index into `TraceReport.locations` of the line that made the step; None where not known. Of an update by hand it
    #: is not known.
    location: int | None = None
    backward: int | None = None  #: Index of the line of the last backward before it.
    cleared: int | None = None  #: Index of the line that cleared the gradients last, where that was seen.
    count: int = 1  #: How many such steps there were.
    first: int = 1  #: The number of the first of them among the optimizer's steps, from 1.
    last: int = 1  #: The number of the last.
    longest: int = 1  #: The most in a row.


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How a gradient grew that was never cleared: of one parameter, as steps used it."""

    parameter: int | None  #: Index into `TraceReport.parameters`; None where it is not among them.
    first_step: int  #: The first step that was measured.
    first_norm: float  #: The norm that this step used.
    last_step: int  #: The last step that was measured.
    last_norm: float  #: The norm that this one used.
    last_pass_norm: float | None = None  #: The norm that the one backward before it brought; None where several ran.


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerUse:
    """One optimizer that stepped."""

    name: str  #: What the user calls it, else its class; empty for updates by hand, without an optimizer.
    type_name: str  #: Its class; empty for updates by hand.
    steps: int  #: How often it stepped.
    patterns: tuple[StepPattern, ...] = ()  #: How, in order of first appearance.
    left_out: int = 0  #: Steps of further patterns, which are not listed.
    #: Indices into `TraceReport.parameters` of those that it was given; of updates by hand, of a few that were looked
    #: at.
    holds: tuple[int, ...] = ()
    #: Those of them in whose place a model had another tensor at a step that was looked at: they are among the unknown.
    outlived: tuple[int, ...] = ()
    unknown_parameters: int = 0  #: How many it was given besides: of no module that ran, in no graph.
    unknown_shapes: tuple[tuple[int, ...], ...] = ()  #: Their shapes, at most a few.
    unknown_owner: str = ""  #: The name of the module that they are parameters of, where one has a name.
    unknown_idle: bool = True  #: Whether none of these had a gradient at any step that was looked at.
    accumulation: Accumulation | None = None  #: How a gradient grew that was never cleared.
    discarded: int = 0  #: How many backwards of one line brought gradients that were cleared before a step used them.
    discarded_at: int | None = None  #: Index into `TraceReport.locations` of that line, the one with most of them.
    rate: float | None = None  #: The largest learning rate of any step; None where it was not read.
    zero_rate_steps: int = 0  #: How many of the last steps in a row had less than a ten-millionth of that.
    graphed: int = 0  #: How many of its steps used gradients with a graph of their own; by hand, passes that left such.
    scaled: int = 0  #: How many of its steps used gradients with the factor of a ``GradScaler``, which did not step.
    repeated: int = 0  #: How many different states of torch's generator came back at later steps: it was seeded anew.
    repeated_at: int = 0  #: The first such step; 0 where there is none.
    repeated_of: int = 0  #: The step that had the state before.
    #: How many of its steps used gradients to which two backward passes had added, the first of which another optimizer
    #: had used before the second ran.
    foreign: int = 0
    foreign_at: int | None = None  #: Index into `TraceReport.locations` of the line of that first backward.
    #: Of updates by hand: whether values of other leaves were written to these, as a moving average does.
    follows: bool = False
    #: Whether an optimizer before it stepped the same tensors, not another model's of that name, and it has not taken
    #: over the state of one.
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """Calls of `clip_grad_norm_` of one line."""

    location: int | None  #: Index into `TraceReport.locations` of the line.
    calls: int = 0  #: How often it was called.
    late: int = 0  #: How often an optimizer had used the gradients already, and no backward had run since.
    empty: int = 0  #: How often none of the parameters had a gradient.
    exhausted: int = 0  #: How often it was given no parameter at all: a generator that was used up.
    scaled: int = 0  #: How often the gradients still had the factor of the ``GradScaler`` that steps.


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenUpdate:
    """A parameter that asks for no gradient, and that steps of an optimizer moved without one that was new."""

    parameter: str  #: Its name.
    optimizer: str  #: What the user calls the optimizer, else its class.
    steps: int  #: In how many steps it was seen to move; it is looked at in a few.
    zero: bool  #: Whether its ``.grad`` was a tensor of zeros; otherwise it was left over from before.
    momentum: bool  #: Whether the optimizer goes on by what it remembers of earlier steps.
    weight_decay: float  #: That of its group.
    location: int | None = None  #: Index into `TraceReport.locations` of the line that steps.
    frozen: int | None = None  #: Of the line that switched its gradient off; None where that was not seen.
    cleared: int | None = None  #: Of the line that called ``zero_grad``; None where that was not seen.


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleOptimizer:
    """An optimizer that made no step in the run, though it holds parameters that got gradients."""

    name: str  #: What the user calls it, else its class.
    holds: tuple[int, ...]  #: Indices into `TraceReport.parameters`.
    #: Index into `TraceReport.locations` of the line that called its ``zero_grad`` last, where several calls were seen.
    cleared: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedUpIterator:
    """A loop over an iterator inside another loop that does not make it anew: from the second round on it is empty."""

    location: int | None  #: Index into `TraceReport.locations` of the inner ``for``.
    name: str  #: What the iterator is called.
    type_name: str  #: Its class.
    rounds: int  #: How many rounds the outer loop makes; -1 where that is not known.
    own: bool = False  #: Whether the function that loops binds the name itself, or is the cell.


@dataclass(frozen=True, slots=True, kw_only=True)
class SameOrder:
    """A loader whose DistributedSampler was not given the epoch: the second round had the order of the first."""

    location: int | None  #: Index into `TraceReport.locations` of the inner ``for``.
    loader: str  #: What the loader is called.
    epoch: str  #: The variable of the outer loop.


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLoad:
    """A call of ``load_state_dict`` that was given keys which the module does not have, or its own tensors."""

    location: int | None  #: Index into `TraceReport.locations` of the line.
    module: str  #: What the user calls the module, else its class.
    given: int  #: How many keys it was given.
    unexpected: int = 0  #: How many of them the module does not have.
    missing: int = 0  #: How many of its own it was not given.
    example: str = ""  #: The first key that it does not have.
    wanted: str = ""  #: The first that it was not given.
    strip: str = ""  #: What has to be taken from the beginning of each given key, so that all of them fit; else empty.
    own: bool = False  #: Whether it was given its own parameters: nothing changes.


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphGrowth:
    """A graph that is larger in each step than in the one before, because it reaches into the steps before."""

    backward: int | None  #: Index into `TraceReport.locations` of the line of the backward.
    passes: int  #: How many passes in a row it grew by the same number of nodes, when last looked at.
    first_size: int  #: Nodes of the first of these.
    last_size: int  #: Nodes of the last.
    increment: int  #: How many more each had than the one before.
    older: int  #: How many nodes of the last were made before the pass that came before it.
    joined: int | None = None  #: Index of the line that joined new nodes to these.
    reaches: int | None = None  #: Index of the line that had made what was joined.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSum:
    """A number with a history that each step adds to: it keeps the graphs of all steps."""

    location: int | None  #: Index into `TraceReport.locations` of the line.
    steps: int  #: Over how many steps it was followed, each with a backward of its own.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMode:
    """In which mode a model was when its parameters were stepped."""

    model: str  #: Its name.
    steps: int  #: Steps of optimizers that hold parameters of it.
    eval_steps: int  #: How many of these found it, and all in it that this matters to, in eval mode.
    longest: int  #: The most of these in a row.
    first: int  #: The first of these, from 1; 0 where there was none.
    dropouts: int  #: How many dropouts there are in it.
    norms: int  #: How many normalisations with running statistics.
    unused_norms: int  #: How many of these had never seen a batch in train mode before the first step.


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedNorm:
    """A batch normalisation that was in train mode while gradients were off: it took statistics all the same."""

    module: str  #: Its path.
    location: int | None  #: Index into `TraceReport.locations` of the line that switched gradients off.
    batches: int  #: How many batches it took statistics from in this way, after the first backward pass.
    longest: int  #: The most of these with no backward pass in between.


HookKind = Literal["tensor", "post-accumulate", "forward", "forward pre", "full backward", "full backward pre"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedHook:
    """One function of the user's that was put several times on the same tensor or module, as it is at a run's end."""

    #: What calls it: ``"tensor"`` (``register_hook``) and ``"post-accumulate"`` of a tensor; ``"forward"``,
    #: ``"forward pre"``, ``"full backward"`` and ``"full backward pre"`` of a module.
    kind: HookKind
    function: str  #: Its name: ``"halve"``, ``"<lambda>"``.
    on: tuple[str, ...]  #: The first of the tensors or modules that have it so often: ``"net.0.weight"``.
    targets: int  #: How many have it so often.
    times: int  #: How often each has it.
    same: bool = True  #: Whether all are the same to the last value that they were given; else only of the same code.
    grown: int = 0  #: How many of them came after the first backward of the run.
    changes: bool = False  #: Whether its code returns something or writes in place: then it changes what it is given.
    location: Location | None = None  #: Where it is defined.
    registered: Location | None = None  #: The line that registered it in the run, where that was seen.


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the training loop did."""

    optimizers: tuple[OptimizerUse, ...] = ()  #: Those that stepped, in order of first step.
    optimizers_seen: int = 0  #: How many there were.
    #: Updates of leaves that no optimizer holds: in-place changes between backward passes. None where there were none.
    by_hand: OptimizerUse | None = None
    #: Indices into `TraceReport.parameters` of those that are trained by other means: changed in place, or held by an
    #: optimizer that did not step. None as long as that was not looked for: while the run goes on.
    elsewhere: tuple[int, ...] | None = None
    growth: tuple[GraphGrowth, ...] = ()  #: Graphs that grow from step to step.
    sums: tuple[RunningSum, ...] = ()  #: Numbers that keep the graphs of all steps.
    norms: tuple[UntrainedNorm, ...] = ()  #: Normalisations that took statistics while gradients were off.
    modes: tuple[ModelMode, ...] = ()  #: In which mode each stepped model was.
    clips: tuple[Clipping, ...] = ()  #: Calls of `clip_grad_norm_`, by line.
    #: Normalisations whose weights are frozen and that took statistics all the same, with gradients on.
    drifting: tuple[UntrainedNorm, ...] = ()
    alike: tuple[int, ...] = ()  #: Indices into `TraceReport.parameters` of weights with all rows the same at the end.
    frozen: tuple[FrozenUpdate, ...] = ()  #: Parameters that are frozen and move.
    idle: tuple[IdleOptimizer, ...] = ()  #: Optimizers that made no step.
    used_up: tuple[UsedUpIterator, ...] = ()  #: Loops over iterators that are empty from the second round on.
    same_order: tuple[SameOrder, ...] = ()  #: Loaders that gave their data in the same order in two rounds of a loop.
    loads: tuple[StateLoad, ...] = ()  #: Calls of ``load_state_dict(strict=False)`` with keys that do not fit.
    names: tuple[tuple[str, ...], ...] = ()  #: The names of each module that has several.


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedGraph:
    """Graphs that one line records or keeps, and that no backward goes through."""

    kind: Literal["kept", "evaluation"]  #: By ``retain_graph=True``, or made by a model in eval mode.
    location: int | None  #: Index into `TraceReport.locations`: of the backward, or of the line that calls the model.
    times: int  #: How many passes kept theirs, or in how many rounds between two passes the model was evaluated.
    model: str = ""  #: The name of the model; empty for a graph that is kept.


Spread = Literal["DDP", "FSDP1", "FSDP2", "DTensor"]


@dataclass(frozen=True, slots=True)
class UnshardedParameters:
    """Parameters that lie whole on every rank of their mesh, beside others that are sharded."""

    largest: str  #: The name of the largest.
    count: int  #: How many.
    of: int  #: How many parameters are DTensors on a mesh of several ranks.
    elements: int  #: How many elements they have.
    of_elements: int  #: How many all of these have.


@dataclass(frozen=True, slots=True)
class PartialSum:
    """A part of a sum over ranks that a loss was computed from as if it were the whole."""

    over: str  #: The dimensions of the mesh over which the parts are to be added up.
    placements: tuple[str, ...]  #: Of the DTensor, one for each dimension of its mesh.
    location: int | None  #: Index into the report's locations: where ``to_local()`` was called, or the library did.


@dataclass(frozen=True, slots=True)
class Parallel:
    """The place of a process in a run of several."""

    rank: int  #: Its number, from 0.
    world_size: int  #: How many processes there are.
    #: By what the parameters are spread that got gradients: ``"DDP"`` (each process holds all of them, and gradients
    #: are reduced), ``"FSDP1"``, ``"FSDP2"`` (each holds a shard, gradients are reduced and sharded), ``"DTensor"``
    #: (the gradients are DTensors themselves, as under tensor parallelism).
    kinds: tuple[Spread, ...] = ()
    unsharded: UnshardedParameters | None = None  #: Parameters that lie whole on each rank, where others are cut.
    partial_sums: tuple[PartialSum, ...] = ()  #: Parts of sums that were taken for the whole.
