"""What autograd knows of one tensor, and why its gradient is as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.graph import Cut


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that the user had called with a gradient."""

    kind: str  #: ``"tensor hook"`` (before the gradient goes on), ``"post-accumulate hook"`` (``.grad`` was filled).
    function: str  #: Its name; ``"<lambda>"`` for one without.
    place: str = ""  #: ``"train.py, line 12"``: where it was defined; empty where that is not known.


@dataclass(frozen=True, slots=True)
class SavedState:
    """A tensor that a node keeps for its backward."""

    slot: str  #: ``"self"``, ``"result"``, ``"saved_tensors[0]"``.
    state: str  #: ``"fine"``, ``"changed in place"``, ``"freed"``, ``"packed by a hook"`` or ``"unreadable"``.
    name: str = ""  #: What the user calls it; empty where it has no name.
    shape: tuple[int, ...] = ()  #: Its shape, where readable.
    dtype: str = ""  #: Without the prefix, where readable.
    nbytes: int = 0  #: Bytes of its elements.
    saved_version: int | None = None  #: Version counter when it was saved; None where that is unknown.
    version: int | None = None  #: Version counter now.


@dataclass(frozen=True, slots=True)
class PathNode:
    """A node on the way from a tensor to its leaves."""

    op: str  #: ``"mul"``; the class of a custom ``autograd.Function``; empty for a leaf.
    node: str  #: As autograd names it: ``"MulBackward0"``.
    name: str = ""  #: What the user calls the leaf, or the tensor this node made; empty where it has no name.
    shape: tuple[int, ...] = ()  #: Of the leaf, or of the node's first output.
    is_leaf: bool = False  #: Whether a gradient is accumulated here.
    has_grad: bool = False  #: For a leaf, whether its ``.grad`` is there.
    #: For each input of the op the place, in `Path.nodes`, of what made it; `NOTHING` where no gradient is sent,
    #: `BEYOND` where it leads to a node that is not among those listed.
    inputs: tuple[int, ...] = ()
    saved: str = ""  #: ``"changed in place"`` or ``"freed"`` where one of its saved tensors is; empty otherwise.


NOTHING, BEYOND = -1, -2


@dataclass(frozen=True, slots=True)
class Path:
    """The nearest part of the graph that leads from a tensor to its leaves."""

    nodes: tuple[PathNode, ...]  #: Nearest first; the first is the tensor's own ``grad_fn``.
    walked: int  #: How many nodes were counted.
    complete: bool  #: Whether those are all there are.


@dataclass(frozen=True, slots=True)
class AutogradDetails:
    """What `AutogradReport` has no room for."""

    output_number: int  #: Which output of its node the tensor is.
    because: str  #: Why it is a leaf or not, and why it is tracked or not, in one clause.
    grad_because: str  #: Why its ``.grad`` is there or not, in one clause.
    hooks: tuple[Hook, ...] = ()  #: Those on the tensor. Hooks on its node cannot be listed: torch does not list them.
    saved: tuple[SavedState, ...] = ()  #: What saved tensors for backward.
    path: Path | None = None  #: The way to its leaves; None for a tensor that no node made.


GradState = Literal["none", "present", "unreadable"]
StepKind = Literal["tensor", "op", "cut", "more", "loss", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePath:
    """The way from a tensor to something computed from it, as the graph stands now."""

    end: str  #: What the user calls what was computed: ``"loss"``.
    is_scalar: bool = True  #: Whether that is one number, on which backward can be called.
    ops: tuple[str, ...] = ()  #: The operations, from the tensor on; by the names of what they made, where named.
    freed: bool = False  #: Whether a backward has gone through and freed what was saved.
    custom: tuple[str, ...] = ()  #: The classes of custom Functions among the operations: their backward decides.


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFacts:
    """What a tensor itself, and the names around it, show about its gradient."""

    name: str  #: What the user calls it; a parameter by its path.
    expression: str = ""  #: What was asked for, where that is another word for it; empty otherwise.
    shape: tuple[int, ...] = ()  #: Its shape.
    dtype: str = ""  #: Without the prefix.
    requires_grad: bool = False  #: Whether it asks for a gradient.
    is_leaf: bool = True  #: Whether no recorded operation made it.
    retains_grad: bool = False  #: Whether ``retain_grad()`` was called on it.
    is_parameter: bool = False  #: Whether it is an ``nn.Parameter``.
    inference: bool = False  #: Whether it was made under ``inference_mode``.
    made_by: str = ""  #: The operation that made it: ``"mul"``; empty for a leaf.
    leaves: tuple[str, ...] = ()  #: Where its gradient goes on to, at most a few.
    grad: GradState = "none"  #: What ``.grad`` is.
    numel: int = 0  #: Elements of the gradient.
    norm: float | None = None  #: Its Euclidean norm; None where there is none, or it could not be read.
    zero: int = 0  #: How many of its elements are exactly zero.
    nan: int = 0  #: How many are NaN.
    inf: int = 0  #: How many are infinite.
    relative: str = ""  #: A tensor that asks for a gradient and shares memory with this one, which does not.
    copies: tuple[str, ...] = ()  #: Names that share its memory but not its history.
    loss: str = ""  #: What the user says backward was called on; empty where nothing was said.
    path: LivePath | None = None  #: The way to that loss, or to a named tensor computed from it; None without one.
    scale: float = 1.0  #: The factor of a ``GradScaler`` in sight; 1 where there is none.
    searched: int = 0  #: How many things with a history were looked through for a way.
    seen: bool | None = None  #: Whether the last traced run met this very tensor as a leaf; None where that is unknown.
    optimizer: str = ""  #: The name of the optimizer that holds it; empty where none with a name does.
    cut: Cut | None = None  #: What ended its way to that loss, as the source shows it; None where that is not certain.
    locations: tuple[Location, ...] = ()  #: The lines that the cut points to.
    hooks: tuple[Hook, ...] = ()  #: Hooks on it, which are called with its gradient.


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One stop on the way from a tensor to the loss."""

    label: str  #: ``"x"``, ``"relu"``, ``"loss"``; what ended the way for a cut; ``"12 more"``.
    kind: StepKind = "op"  #: What it is; ``"nothing"`` where the way ends for no reason that is known.
    detail: str = ""  #: A few words more: a shape, what the gradient is here.
    location: Location | None = None  #: The line, where known.
    norm: float | None = None  #: Norm of the gradient that came here in the last pass; None where not measured.
    bad: bool = False  #: Whether the trouble is here.


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyGroup:
    """Parameters of a module that have the same answer."""

    reason: str  #: In a word or two: ``"cut off"``.
    names: tuple[str, ...]  #: What they are called, modules that are wholly in it as such.
    count: int  #: How many there are.
    answer: str  #: The sentence, of the first of them.
    fine: bool = False  #: Whether nothing is wrong.


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyReport(Report):
    """Why the gradient of a tensor is what it is."""

    kind_name: ClassVar[str] = "why"

    name: str  #: What was asked about.
    reason: str  #: In a word or two, stable: ``"cut off"``, ``"no backward yet"``, ``"fine"``.
    answer: str  #: One sentence.
    evidence: tuple[str, ...] = ()  #: What it rests on, a sentence each.
    path: tuple[PathStep, ...] = ()  #: From the tensor towards the loss; empty where nothing is known of it.
    remedy: tuple[str, ...] = ()  #: What to do: code, or a sentence with code in backticks.
    location: Location | None = None  #: The line it is about, where there is one.
    facts: GradientFacts | None = None  #: What the tensor itself shows; None for a module.
    groups: tuple[WhyGroup, ...] = ()  #: Of a module: its parameters by answer.
    source: str = ""  #: Which run this was read from; empty where none was.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at.
