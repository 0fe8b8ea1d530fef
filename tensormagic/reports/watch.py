"""What a watched session holds, and what the check of a model found before the first step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedParameters:
    """Parameters of one model that ask for a gradient and that nothing changed while an optimizer made steps."""

    owner: str  #: Name of the model: ``"net"``.
    optimizer: str  #: Name of the optimizer that holds them, or of one that trains others of the model.
    held: bool  #: Whether that optimizer holds them, without a gradient at any step; else none does, and they get some.
    names: tuple[str, ...]  #: All parameters of the model in order: ``"net.fc1.weight"``.
    numels: tuple[int, ...]  #: Elements of each.
    unchanged: tuple[int, ...]  #: The numbers of those that stand still.
    trained: tuple[int, ...]  #: The numbers of those that an optimizer changed.
    alike: tuple[int, ...] = ()  #: The numbers of those that stand still beside trained modules of the same make.
    #: How far the optimizer got while they were seen to stand still: steps where ``steps`` is not 0, else in-place
    #: changes of the parameter that was changed most.
    watched: int = 0
    steps: int = 0  #: How many steps the optimizer has made in all by its own count; 0 where it keeps none.
    location: Location | None = None  #: The line that makes them, or the optimizer that leaves them out; if found.


# What modules hold beside their registries: tensors and modules that ``parameters()`` does not list, and broken ties.
#
# Facts alone; whether one of them is a fault depends on what trains the module, which is reported here as well.

TieEvidence = Literal["was one", "one memory", "equal values"]


@dataclass(frozen=True, slots=True)
class UnregisteredTensor:
    """A tensor that is a plain attribute of a module: neither a parameter nor a buffer of it."""

    name: str  #: ``"net.scale"``.
    owner: str  #: Name of the outermost module: ``"net"``.
    module: str  #: Name of the module that has the attribute.
    shape: tuple[int, ...]  #: Its shape.
    dtype: str  #: Without the ``torch.`` prefix.
    device: str  #: As torch writes it.
    requires_grad: bool  #: Whether autograd follows it.
    grad_fn: str = ""  #: The node that made it; empty for a leaf.
    #: Whether it, or each leaf that it was computed from, is registered with a module or has a name of its own besides.
    kept_elsewhere: bool = False
    optimized: bool = False  #: Whether an optimizer that could be found updates it, or all leaves it was computed from.
    siblings: int = 0  #: How many parameters of the outermost module the optimizers that could be found update.
    registered: int = 0  #: How many parameters the outermost module has.
    module_device: str = ""  #: Where the outermost module's parameters lie, if all on one device; else empty.
    method: str = ""  #: The method of the class that assigns it, the last one where several do; empty where none does.
    location: Location | None = None  #: The line that does.


@dataclass(frozen=True, slots=True)
class UnregisteredModules:
    """Modules or parameters in a plain list, tuple or dictionary of a module, which therefore does not know them."""

    name: str  #: ``"net.layers"``.
    owner: str  #: Name of the outermost module.
    container: str  #: ``"list"``, ``"tuple"`` or ``"dict"``.
    modules: int  #: How many modules lie in it.
    #: How many parameters that ask for a gradient are known to no module for it; those that lie in the container
    #: themselves included.
    parameters: int
    numel: int  #: Elements of these.
    registered: int = 0  #: How many parameters the outermost module has.
    optimized: int = 0  #: How many of the hidden ones an optimizer that could be found updates.
    with_gradient: int = 0  #: How many of the hidden ones have a gradient.
    trained: bool = False  #: Whether an optimizer has, or stepped with, parameters that the outermost module knows.
    location: Location | None = None  #: The line that makes the container.


@dataclass(frozen=True, slots=True)
class UntiedPair:
    """Two parameters of a module that were meant to be one, by all that can be seen."""

    first: str  #: ``"net.embedding.weight"``.
    second: str  #: ``"net.head.weight"``.
    owner: str  #: Name of the outermost module.
    #: ``"was one"``: they were one Parameter when the module was first seen; ``"one memory"``: two Parameters over the
    #: same memory; ``"equal values"``: an embedding's and a linear layer's weight, equal in every element that was
    #: compared.
    evidence: TieEvidence
    compared: int = 0  #: How many elements were compared; 0 where none had to be.
    numel: int = 0  #: Elements of each.
    location: Location | None = None  #: The line that ties them, where one is found.


@dataclass(frozen=True, slots=True)
class RepeatedModule:
    """One module that stands several times, side by side, in a container."""

    container: str  #: ``"net.blocks"``.
    kind: str  #: The container's class: ``"Sequential"``.
    module: str  #: The class of the one module: ``"Linear"``.
    times: int  #: How often it is there in a row.
    parameters: int  #: How many parameters it has that ask for a gradient.
    location: Location | None = None  #: The line that makes the container.


@dataclass(frozen=True, slots=True)
class FlagWithoutEffect:
    """An attribute that was to freeze something, and that nothing of torch's reads."""

    name: str  #: ``"net.body.requires_grad"``, ``"net.fc.weight.require_grad"``.
    of: str  #: What it was set on: ``"net.body"``.
    attribute: str  #: ``"requires_grad"``.
    is_module: bool  #: Whether that is a module; else it is a parameter.
    asking: int  #: How many parameters there still ask for a gradient.
    optimized: int = 0  #: How many of these an optimizer that could be found updates.


@dataclass(frozen=True, slots=True)
class ModulesReport:
    """What was found in the modules that were looked at; empty parts where nothing was."""

    unregistered_tensors: tuple[UnregisteredTensor, ...] = ()
    unregistered_modules: tuple[UnregisteredModules, ...] = ()
    untied: tuple[UntiedPair, ...] = ()
    repeated: tuple[RepeatedModule, ...] = ()
    flags: tuple[FlagWithoutEffect, ...] = ()

    def with_those_of(self, other: ModulesReport, roots: Collection[str]) -> ModulesReport:
        """Return this with what another report has of outermost modules of these names."""
        fields = ("unregistered_tensors", "unregistered_modules", "untied", "repeated", "flags")
        theirs = {name: [one for one in getattr(other, name) if _is_inside(one, roots)] for name in fields}
        return ModulesReport(**{name: (*getattr(self, name), *more) for name, more in theirs.items()})


RetainedBy = Literal["history", "traceback", "both"]
GraphForm = Literal["items", "sum"]


def _is_inside(found: object, roots: Collection[str]) -> bool:
    if isinstance(found, RepeatedModule | FlagWithoutEffect):
        path = found.container if isinstance(found, RepeatedModule) else found.of
        return any(f"{path}.".startswith(f"{root}.") for root in roots)
    return getattr(found, "owner", "") in roots


@dataclass(frozen=True, slots=True)
class RetainedMemory:
    """A storage that no name of the user's leads to, and that something of the session keeps alive."""

    #: What leads to it: ``"Out[5]"`` and ``"_5"``, or ``"the last error (ValueError), local y of f"``.
    holders: tuple[str, ...]
    kind: RetainedBy  #: ``"history"``, ``"traceback"`` or ``"both"``.
    shape: tuple[int, ...]  #: Of the tensor that was found.
    dtype: str  #: Without the ``torch.`` prefix.
    device: str  #: As torch writes it.
    nbytes: int  #: Of the whole storage.
    location: Location | None = None  #: Where the frame stands that holds it.


@dataclass(frozen=True, slots=True)
class StorageKeepingView:
    """A tensor that reads a part of a storage, and is all that keeps the storage alive."""

    name: str  #: What it is called.
    read: int  #: Bytes of its elements.
    nbytes: int  #: Of the storage.


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """Autograd graphs that are alive because results are stored: losses in a list, a sum of losses."""

    name: str  #: What holds them: ``"losses"``, ``"history['loss']"``, ``"val_loss"``.
    form: GraphForm  #: ``"items"`` of a container, or ``"sum"``: one tensor that was added up.
    items: int  #: How many tensors are stored.
    graphs: int  #: How many of them share nothing but leaves with the others' graphs; of a sum, of its terms.
    nodes: int  #: Their nodes in all.
    saved: int  #: Tensors that these nodes still keep for a backward.
    nbytes: int  #: Bytes of the storages of these that nothing else in reach keeps, each once, leaves left out.
    scalars: bool  #: Whether all stored tensors hold one number.
    freed: bool  #: Whether a backward has used and freed what they saved.
    complete: bool = True  #: Whether all nodes were looked at; if not, there are more of everything.
    location: Location | None = None  #: The line that stores them, where one is found.


@dataclass(frozen=True, slots=True)
class HeldSize:
    """What a container, or a tensor with a name, holds: the number and the bytes of its tensors."""

    name: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What holds more after each run of the same code."""

    name: str  #: What grows: ``"activations"``.
    tensors: tuple[int, ...]  #: How many tensors it held after each of the runs, the oldest first.
    nbytes: tuple[int, ...]  #: What they take, after each of them.
    location: Location | None = None  #: The line that makes it grow, where one is found.


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport(Report):
    """What a look at everything that a user has named, and at what the session keeps besides, has found."""

    kind_name: ClassVar[str] = "watch"

    looked: int = 0  #: How many objects were looked through.
    tensors: int = 0  #: How many tensors were met.
    storages: int = 0  #: In how many storages they lie.
    nbytes: int = 0  #: What these take, each counted once.
    modules: ModulesReport = field(default_factory=ModulesReport)  #: What modules hold beside their registries.
    #: Large storages that only the session's history or the last error keeps alive, the largest first.
    retained: tuple[RetainedMemory, ...] = ()
    views: tuple[StorageKeepingView, ...] = ()  #: Views that alone keep a larger storage alive, the largest first.
    graphs: tuple[StoredGraph, ...] = ()  #: Graphs that stored results keep alive, the largest first.
    sizes: tuple[HeldSize, ...] = ()  #: What holds the most, the largest first: containers, and tensors with a name.
    growing: tuple[Growth, ...] = ()  #: What grew by the same amount from look to look, given earlier looks.
    unchanged: tuple[UnchangedParameters, ...] = ()  #: Parameters that nothing changed while others were trained.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.


ProbeState = Literal["fine", "look", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, and its answer."""

    question: str  #: What was asked, in a few words: ``"initial loss"``.
    state: ProbeState  #: ``"fine"``, ``"look"`` (unusual), ``"wrong"``, or ``"unknown"`` where it could not be asked.
    answer: str  #: What was found, in a sentence without its full stop.
    remedy: str = ""  #: What to do; empty where nothing is to be done.


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The values of one tensor of the batch."""

    shape: tuple[int, ...]  #: Its shape.
    dtype: str  #: Without the ``torch.`` prefix.
    low: float | None = None  #: The smallest; None where there is none.
    high: float | None = None  #: The largest.
    mean: float = 0.0  #: Their mean.
    std: float = 0.0  #: Their standard deviation; 0 of one value.
    bad: int = 0  #: How many are NaN or infinite; these are left out of the rest.
    different: int = 0  #: How many different values there are, of integers; 0 of other dtypes.


@dataclass(frozen=True, slots=True)
class ArgumentCheck:
    """The gradient of one argument of a custom Function, in one direction."""

    name: str  #: What its forward calls it.
    by_backward: float | None  #: What its backward says; None where it returns nothing.
    by_differences: float  #: What differences of the forward say.
    agrees: bool  #: Whether `torch.autograd.gradcheck` accepts all of it.
    kink: bool = False  #: Whether it does so close by alone, as the forward has a kink here.


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCheck:
    """One call of a custom Function, in float64, and what its backward makes of it."""

    arguments: tuple[ArgumentCheck, ...] = ()  #: Those that have a gradient, in order.
    #: By what its gradients grow when the one that arrives is doubled: 2 of a backward that uses it, 1 of one that does
    #: not; None where all are zero.
    doubled: float | None = None
    location: Location | None = None  #: A line on which its backward returns.


@dataclass(frozen=True, slots=True)
class Overfit:
    """How far a copy of the model overfitted a few samples."""

    samples: int  #: How many.
    steps: int  #: How many steps were made.
    first: float  #: The loss before the first.
    last: float  #: The loss before the last.


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """What is set for one group of an optimizer's parameters."""

    parameters: int  #: How many it has.
    rate: float  #: Its learning rate.
    decay: float  #: Its weight decay.
    decoupled: bool  #: Whether the decay is multiplied by the rate, and not part of the gradient.
    maximizes: bool  #: Whether it climbs.
    scheduled: bool  #: Whether a scheduler sets the rate.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport(Report):
    """What the check before training found."""

    kind_name: ClassVar[str] = "start"

    model: str = ""  #: The model's name.
    optimizer: str = ""  #: The optimizer's class; empty where none was given.
    parameters: int = 0  #: How many parameters the model has.
    trainable: int = 0  #: How many of them ask for a gradient.
    settings: tuple[OptimizerSettings, ...] = ()  #: Of each group of the optimizer.
    #: Those that ask for one and are in no group of the optimizer; None without one.
    missing: tuple[str, ...] | None = None
    unknown_parameters: int = 0  #: How many parameters the optimizer holds that are not the model's.
    training: bool = True  #: Whether the model is in train mode.
    in_eval: tuple[str, ...] = ()  #: Modules to which it matters, in eval mode inside a model in train mode.
    batch: bool = False  #: Whether a loader or a batch was given.
    shuffled: bool = False  #: Whether it is a loader that changes the order of its dataset.
    fits: bool = True  #: Whether the model takes a batch like this, as far as its signature tells.
    guessed: bool = False  #: Whether what the loss is to be given was guessed from more than one tensor.
    inputs: tuple[Extent, ...] = ()  #: What the model is given.
    target: Extent | None = None  #: What the loss compares with; None where there is nothing.
    outputs: tuple[int, ...] | None = None  #: The shape of what comes out; None where that is not a tensor, or nothing.
    loss: str = ""  #: What the loss is called; empty where there is none.
    #: What the model ends with: ``"softmax"``, ``"log_softmax"`` or ``"sigmoid"``; empty for others, and where the loss
    #: is not torch's own.
    last: str = ""
    out_of_range: bool = False  #: Whether a class among the targets has no output.
    connected: bool = True  #: Whether the outputs have a gradient.
    loss_has_gradient: bool | None = None  #: Whether the loss has; None where there is no loss.
    loss_shape: tuple[int, ...] = ()  #: Of the loss; its mean is used where it has several numbers.
    normalises: bool = False  #: Whether the first module with weights that is called is a normalisation.
    first_input: Extent | None = None  #: What that module is given; None where none was seen.
    value: float | None = None  #: The loss of the batch before training; None where there is none.
    expected: float | None = None  #: What it would be of a model that knows nothing; None where that is not known.
    #: Parameters that ask for a gradient and got none; None where no backward ran.
    without_gradient: tuple[str, ...] | None = None
    cut_off: tuple[str, ...] = ()  #: Those of them whose module was called.
    zero_gradient: tuple[str, ...] = ()  #: Parameters whose gradient is exactly zero.
    bad_gradient: tuple[str, ...] = ()  #: Parameters whose gradient has NaN or infinities.
    mixes: bool | None = None  #: Whether the result of one sample depends on others, in eval mode; None: not asked.
    #: The loss of the batch before and after one step of a copy of the optimizer; None where that was not tried.
    step: tuple[float, float] | None = None
    overfit: Overfit | None = None  #: How far a copy learned a few samples; None where that was not tried.
    error: str = ""  #: What the model or the loss raised; empty where nothing did.
    function: FunctionCheck | None = None  #: Of a custom Function, in place of a model; None of a model.
    seconds: float = 0.0  #: How long it took.
    probes: tuple[Probe, ...] = ()  #: Questions and answers, in the order of a training.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.
