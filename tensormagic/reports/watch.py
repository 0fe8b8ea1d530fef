"""What a watched session holds, and what the check of a model found before the first step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report

# What is in a session: what is kept alive by whom, what its modules do not know, what stood still.

# Parameters that stood still while others of their model were trained.


@dataclass(frozen=True, slots=True, kw_only=True)
class StillParameters:
    """Parameters of one model that ask for a gradient and that nothing changed while an optimizer made steps.

    Attributes:
        owner: Name of the model: ``"net"``.
        optimizer: Name of the optimizer that holds them, or of one that trains others of the model.
        held: Whether that optimizer holds them: then they had no gradient at any step. If not, no optimizer does, and
            they get gradients.
        names: All parameters of the model in order: ``"net.fc1.weight"``.
        numels: Elements of each.
        still: The numbers of those that stand still.
        trained: The numbers of those that an optimizer changed.
        alike: The numbers of those that stand still beside modules of the same make that are trained.
        watched: How far the optimizer got while they were seen to stand still: steps where ``steps`` is not 0, else
            in-place changes of the parameter that was changed most.
        steps: How many steps the optimizer has made in all by its own count; 0 where it keeps none.
        location: The line that makes them, or the optimizer that leaves them out; None where neither was found.
    """

    owner: str
    optimizer: str
    held: bool
    names: tuple[str, ...]
    numels: tuple[int, ...]
    still: tuple[int, ...]
    trained: tuple[int, ...]
    alike: tuple[int, ...] = ()
    watched: int = 0
    steps: int = 0
    location: Location | None = None


# What modules hold beside their registries: tensors and modules that ``parameters()`` does not list, and broken ties.
#
# Facts alone; whether one of them is a fault depends on what trains the module, which is reported here as well.

TieEvidence = Literal["was one", "one memory", "equal values"]


@dataclass(frozen=True, slots=True)
class UnregisteredTensor:
    """A tensor that is a plain attribute of a module: neither a parameter nor a buffer of it.

    Attributes:
        name: ``"net.scale"``.
        owner: Name of the outermost module: ``"net"``.
        module: Name of the module that has the attribute.
        shape: Its shape.
        dtype: Without the ``torch.`` prefix.
        device: As torch writes it.
        requires_grad: Whether autograd follows it.
        grad_fn: The node that made it; empty for a leaf.
        kept_elsewhere: Whether it, or each leaf that it was computed from, is registered with a module or has a name of
            its own besides.
        optimized: Whether an optimizer that could be found updates it, or all leaves it was computed from.
        siblings: How many parameters of the outermost module the optimizers that could be found update.
        registered: How many parameters the outermost module has.
        module_device: Where the outermost module's parameters lie, if all on one device; else empty.
        method: The method of the class that assigns it, the last one where several do; empty where none does.
        location: The line that does.
    """

    name: str
    owner: str
    module: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    grad_fn: str = ""
    kept_elsewhere: bool = False
    optimized: bool = False
    siblings: int = 0
    registered: int = 0
    module_device: str = ""
    method: str = ""
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class UnregisteredModules:
    """Modules or parameters in a plain list, tuple or dictionary of a module, which therefore does not know them.

    Attributes:
        name: ``"net.layers"``.
        owner: Name of the outermost module.
        container: ``"list"``, ``"tuple"`` or ``"dict"``.
        modules: How many modules lie in it.
        parameters: How many parameters that ask for a gradient are known to no module for it; those that lie in the
            container themselves included.
        numel: Elements of these.
        registered: How many parameters the outermost module has.
        optimized: How many of the hidden ones an optimizer that could be found updates.
        with_gradient: How many of the hidden ones have a gradient.
        trained: Whether parameters that the outermost module knows have one, or an optimizer made a step with them.
        location: The line that makes the container.
    """

    name: str
    owner: str
    container: str
    modules: int
    parameters: int
    numel: int
    registered: int = 0
    optimized: int = 0
    with_gradient: int = 0
    trained: bool = False
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class UntiedPair:
    """Two parameters of a module that were meant to be one, by all that can be seen.

    Attributes:
        first: ``"net.embedding.weight"``.
        second: ``"net.head.weight"``.
        owner: Name of the outermost module.
        evidence: ``"was one"``: they were one Parameter when the module was first seen; ``"one memory"``: two
            Parameters over the same memory; ``"equal values"``: an embedding's and a linear layer's weight, equal in
            every element that was compared.
        compared: How many elements were compared; 0 where none had to be.
        numel: Elements of each.
        location: The line that ties them, where one is found.
    """

    first: str
    second: str
    owner: str
    evidence: TieEvidence
    compared: int = 0
    numel: int = 0
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class RepeatedModule:
    """One module that stands several times, side by side, in a container.

    Attributes:
        container: ``"net.blocks"``.
        kind: The container's class: ``"Sequential"``.
        module: The class of the one module: ``"Linear"``.
        times: How often it is there in a row.
        parameters: How many parameters it has that ask for a gradient.
        location: The line that makes the container.
    """

    container: str
    kind: str
    module: str
    times: int
    parameters: int
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class FlagWithoutEffect:
    """An attribute that was to freeze something, and that nothing of torch's reads.

    Attributes:
        name: ``"net.body.requires_grad"``, ``"net.fc.weight.require_grad"``.
        of: What it was set on: ``"net.body"``.
        attribute: ``"requires_grad"``.
        is_module: Whether that is a module; else it is a parameter.
        asking: How many parameters there still ask for a gradient.
        optimized: How many of these an optimizer that could be found updates.
    """

    name: str
    of: str
    attribute: str
    is_module: bool
    asking: int
    optimized: int = 0


@dataclass(frozen=True, slots=True)
class ModulesReport:
    """What was found in the modules that were looked at; empty parts where nothing was."""

    unregistered_tensors: tuple[UnregisteredTensor, ...] = ()
    unregistered_modules: tuple[UnregisteredModules, ...] = ()
    untied: tuple[UntiedPair, ...] = ()
    repeated: tuple[RepeatedModule, ...] = ()
    flags: tuple[FlagWithoutEffect, ...] = ()


# What is in a session: what is kept alive by whom, and what its modules hold beside their registries.

KeptBy = Literal["history", "traceback", "both"]
GraphForm = Literal["items", "sum"]


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """A storage that no name of the user's leads to, and that something of the session keeps alive.

    Attributes:
        holders: What leads to it: ``"Out[5]"`` and ``"_5"``, or ``"the last error (ValueError), local y of f"``.
        kind: ``"history"``, ``"traceback"`` or ``"both"``.
        shape: Of the tensor that was found.
        dtype: Without the ``torch.`` prefix.
        device: As torch writes it.
        nbytes: Of the whole storage.
        location: Where the frame stands that holds it.
    """

    holders: tuple[str, ...]
    kind: KeptBy
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class LoneView:
    """A tensor that reads a part of a storage, and is all that keeps the storage alive.

    Attributes:
        name: What it is called.
        read: Bytes of its elements.
        nbytes: Of the storage.
    """

    name: str
    read: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """Autograd graphs that are alive because results are stored: losses in a list, a sum of losses.

    Attributes:
        name: What holds them: ``"losses"``, ``"history['loss']"``, ``"val_loss"``.
        form: ``"items"`` of a container, or ``"sum"``: one tensor that was added up.
        items: How many tensors are stored.
        graphs: How many of them have a graph that shares nothing but leaves with the others'; of a sum, of its terms.
        nodes: Their nodes in all.
        saved: Tensors that these nodes still keep for a backward.
        nbytes: Bytes of the storages of these that nothing else in reach keeps alive, each counted once; those of
            leaves left out.
        scalars: Whether all stored tensors hold one number.
        freed: Whether a backward has used and freed what they saved.
        complete: Whether all nodes were looked at; if not, there are more of everything.
        location: The line that stores them, where one is found.
    """

    name: str
    form: GraphForm
    items: int
    graphs: int
    nodes: int
    saved: int
    nbytes: int
    scalars: bool
    freed: bool
    complete: bool = True
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class HeldSize:
    """What a container, or a tensor with a name, holds: the number and the bytes of its tensors."""

    name: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What holds more after each run of the same code.

    Attributes:
        name: What grows: ``"activations"``.
        tensors: How many tensors it held after each of the runs, the oldest first.
        nbytes: What they take, after each of them.
        location: The line that makes it grow, where one is found.
    """

    name: str
    tensors: tuple[int, ...]
    nbytes: tuple[int, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport(Report):
    """What a look at everything that a user has named, and at what the session keeps besides, has found.

    Attributes:
        looked: How many objects were looked through.
        tensors: How many tensors were met.
        storages: In how many storages they lie.
        nbytes: What these take, each counted once.
        modules: What modules hold beside their registries.
        kept: Large storages that only the session's history or the last error keeps alive, the largest first.
        views: Views that alone keep a larger storage alive, the largest storage first.
        graphs: Graphs that stored results keep alive, the largest first.
        sizes: What holds the most, the largest first: containers, and tensors with a name.
        growing: What grew by the same amount from look to look; only where earlier looks were given.
        still: Parameters that nothing changed while others of their model were trained.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "watch"

    looked: int = 0
    tensors: int = 0
    storages: int = 0
    nbytes: int = 0
    modules: ModulesReport = field(default_factory=ModulesReport)
    kept: tuple[KeptMemory, ...] = ()
    views: tuple[LoneView, ...] = ()
    graphs: tuple[StoredGraph, ...] = ()
    sizes: tuple[HeldSize, ...] = ()
    growing: tuple[Growth, ...] = ()
    still: tuple[StillParameters, ...] = ()
    gaps: tuple[Gap, ...] = ()


# What a look before training has found, from one batch, on copies.

ProbeState = Literal["fine", "look", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, and its answer.

    Attributes:
        question: What was asked, in a few words: ``"initial loss"``.
        state: ``"fine"``, ``"look"`` (unusual), ``"wrong"``, or ``"unknown"`` where it could not be asked.
        answer: What was found, in a sentence without its full stop.
        remedy: What to do; empty where nothing is to be done.
    """

    question: str
    state: ProbeState
    answer: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The values of one tensor of the batch.

    Attributes:
        shape: Its shape.
        dtype: Without the ``torch.`` prefix.
        low: The smallest; None where there is none.
        high: The largest.
        mean: Their mean.
        std: Their standard deviation; 0 of one value.
        bad: How many are NaN or infinite; these are left out of the rest.
        different: How many different values there are, of integers; 0 of other dtypes.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    mean: float = 0.0
    std: float = 0.0
    bad: int = 0
    different: int = 0


@dataclass(frozen=True, slots=True)
class Overfit:
    """How far a copy of the model learned a handful of samples by heart.

    Attributes:
        samples: How many.
        steps: How many steps were made.
        first: The loss before the first.
        last: The loss before the last.
    """

    samples: int
    steps: int
    first: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport(Report):
    """What a look before training has found.

    Attributes:
        model: The model's name.
        optimizer: The optimizer's class; empty where none was given.
        parameters: How many parameters the model has.
        trainable: How many of them ask for a gradient.
        missing: Those that ask for one and are in no group of the optimizer; None without one.
        unknown_parameters: How many parameters the optimizer holds that are not the model's.
        training: Whether the model is in train mode.
        in_eval: Modules in it that are in eval mode, although it is in train mode, and to which that matters.
        inputs: What the model is given.
        target: What the loss compares with; None where there is nothing.
        outputs: The shape of what comes out; None where that is no tensor, or nothing came out.
        loss: What the loss is called; empty where there is none.
        value: The loss of the batch before training; None where there is none.
        expected: What it would be of a model that knows nothing; None where that is not known.
        without_gradient: Parameters that ask for a gradient and got none; None where no backward ran.
        zero_gradient: Parameters whose gradient is exactly zero.
        bad_gradient: Parameters whose gradient has NaN or infinities.
        mixes: Whether the result of one sample depends on the others, in eval mode; None where that was not asked.
        overfit: How far a copy learned a few samples; None where that was not tried.
        error: What the model or the loss raised; empty where nothing did.
        seconds: How long it took.
        probes: Questions and answers, in the order of a training.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "start"

    model: str = ""
    optimizer: str = ""
    parameters: int = 0
    trainable: int = 0
    missing: tuple[str, ...] | None = None
    unknown_parameters: int = 0
    training: bool = True
    in_eval: tuple[str, ...] = ()
    inputs: tuple[Extent, ...] = ()
    target: Extent | None = None
    outputs: tuple[int, ...] | None = None
    loss: str = ""
    value: float | None = None
    expected: float | None = None
    without_gradient: tuple[str, ...] | None = None
    zero_gradient: tuple[str, ...] = ()
    bad_gradient: tuple[str, ...] = ()
    mixes: bool | None = None
    overfit: Overfit | None = None
    error: str = ""
    seconds: float = 0.0
    probes: tuple[Probe, ...] = ()
    gaps: tuple[Gap, ...] = ()
