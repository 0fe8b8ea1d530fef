"""What autograd knows of one tensor, and why its gradient is as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report

# What is behind a tensor's place in autograd: the node that made it, what it keeps, the way to the leaves.


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that the user had called with a gradient.

    Attributes:
        kind: ``"tensor hook"`` (before the gradient goes on) or ``"post-accumulate hook"`` (after ``.grad`` was
            filled).
        function: Its name; ``"<lambda>"`` for one without.
        place: ``"train.py, line 12"``: where it was defined; empty where that is not known.
    """

    kind: str
    function: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A tensor that a node keeps for its backward.

    Attributes:
        slot: ``"self"``, ``"result"``, ``"saved_tensors[0]"``.
        state: ``"fine"``, ``"changed in place"``, ``"freed"``, ``"packed by a hook"`` or ``"unreadable"``.
        name: What the user calls it; empty where it has no name.
        shape: Its shape, where readable.
        dtype: Without the prefix, where readable.
        nbytes: Bytes of its elements.
        saved_version: Version counter when it was saved; None where that is unknown.
        version: Version counter now.
    """

    slot: str
    state: str
    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    nbytes: int = 0
    saved_version: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class PathNode:
    """A node on the way from a tensor to its leaves.

    Attributes:
        op: ``"mul"``; the class of a custom ``autograd.Function``; empty for a leaf.
        node: As autograd names it: ``"MulBackward0"``.
        name: What the user calls the leaf, or the tensor this node made; empty where it has no name.
        shape: Of the leaf, or of the node's first output.
        is_leaf: Whether a gradient is accumulated here.
        has_grad: For a leaf, whether its ``.grad`` is there.
        inputs: For each input of the op the place, in `Path.nodes`, of what made it; `NOTHING` where no gradient is
            sent, `BEYOND` where it leads to a node that is not among those listed.
        saved: ``"changed in place"`` or ``"freed"`` where one of its saved tensors is; empty otherwise.
    """

    op: str
    node: str
    name: str = ""
    shape: tuple[int, ...] = ()
    is_leaf: bool = False
    has_grad: bool = False
    inputs: tuple[int, ...] = ()
    saved: str = ""


NOTHING, BEYOND = -1, -2


@dataclass(frozen=True, slots=True)
class Path:
    """The nearest part of the graph that leads from a tensor to its leaves.

    Attributes:
        nodes: Nearest first; the first is the tensor's own ``grad_fn``.
        walked: How many nodes were counted.
        complete: Whether those are all there are.
    """

    nodes: tuple[PathNode, ...]
    walked: int
    complete: bool


@dataclass(frozen=True, slots=True)
class AutogradDetails:
    """What `AutogradReport` has no room for.

    Attributes:
        output_number: Which output of its node the tensor is.
        because: Why it is a leaf or not, and why it is tracked or not, in one clause.
        grad_because: Why its ``.grad`` is there or not, in one clause.
        hooks: Those on the tensor. Hooks on its node cannot be listed: torch does not list them.
        saved: What saved tensors for backward.
        path: The way to its leaves; None for a tensor that no node made.
    """

    output_number: int
    because: str
    grad_because: str
    hooks: tuple[Hook, ...] = ()
    saved: tuple[SavedState, ...] = ()
    path: Path | None = None


# Why a gradient is what it is: what was seen of a tensor, the way from it to the loss, and the answer.

GradState = Literal["none", "present", "unreadable"]
StepKind = Literal["tensor", "op", "cut", "more", "loss", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWay:
    """The way from a tensor to something computed from it, as the graph stands now.

    Attributes:
        end: What the user calls what was computed: ``"loss"``.
        is_scalar: Whether that is one number, on which backward can be called.
        ops: The operations, from the tensor on; by the names of what they made where these have one.
        freed: Whether a backward has gone through and freed what was saved.
    """

    end: str
    is_scalar: bool = True
    ops: tuple[str, ...] = ()
    freed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFacts:
    """What a tensor itself, and the names around it, show about its gradient.

    Attributes:
        name: What the user calls it; a parameter by its path.
        expression: What was asked for, where that is another word for it; empty otherwise.
        shape: Its shape.
        dtype: Without the prefix.
        requires_grad: Whether it asks for a gradient.
        is_leaf: Whether no recorded operation made it.
        retains_grad: Whether ``retain_grad()`` was called on it.
        is_parameter: Whether it is an ``nn.Parameter``.
        inference: Whether it was made under ``inference_mode``.
        made_by: The operation that made it: ``"mul"``; empty for a leaf.
        leaves: Where its gradient goes on to, at most a few.
        grad: What ``.grad`` is.
        numel: Elements of the gradient.
        norm: Its Euclidean norm; None where there is none, or it could not be read.
        zero: How many of its elements are exactly zero.
        nan: How many are NaN.
        inf: How many are infinite.
        relative: A tensor that asks for a gradient and shares memory with this one, which does not.
        copies: Names that share its memory but not its history.
        loss: What the user says backward was called on; empty where nothing was said.
        way: The way to that loss, or to something computed from it that has a name; None where there is none.
        scale: The factor of a ``GradScaler`` in sight; 1 where there is none.
        searched: How many things with a history were looked through for a way.
        seen: Whether the last traced run met this very tensor as a leaf; None where that is unknown.
        optimizer: The name of the optimizer that holds it; empty where none with a name does.
    """

    name: str
    expression: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    requires_grad: bool = False
    is_leaf: bool = True
    retains_grad: bool = False
    is_parameter: bool = False
    inference: bool = False
    made_by: str = ""
    leaves: tuple[str, ...] = ()
    grad: GradState = "none"
    numel: int = 0
    norm: float | None = None
    zero: int = 0
    nan: int = 0
    inf: int = 0
    relative: str = ""
    copies: tuple[str, ...] = ()
    loss: str = ""
    way: LiveWay | None = None
    scale: float = 1.0
    searched: int = 0
    seen: bool | None = None
    optimizer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayStep:
    """One stop on the way from a tensor to the loss.

    Attributes:
        label: ``"x"``, ``"relu"``, ``"loss"``; what ended the way for a cut; ``"12 more"``.
        kind: What it is; ``"nothing"`` where the way ends for no reason that is known.
        detail: A few words more: a shape, what the gradient is here.
        location: The line, where known.
        norm: Norm of the gradient that came here in the last pass; None where that was not measured.
        bad: Whether the trouble is here.
    """

    label: str
    kind: StepKind = "op"
    detail: str = ""
    location: Location | None = None
    norm: float | None = None
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyGroup:
    """Parameters of a module that have the same answer.

    Attributes:
        reason: In a word or two: ``"cut off"``.
        names: What they are called, modules that are wholly in it as such.
        count: How many there are.
        answer: The sentence, of the first of them.
        fine: Whether nothing is wrong.
    """

    reason: str
    names: tuple[str, ...]
    count: int
    answer: str
    fine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyReport(Report):
    """Why the gradient of a tensor is what it is.

    Attributes:
        name: What was asked about.
        reason: In a word or two, stable: ``"cut off"``, ``"no backward yet"``, ``"fine"``.
        answer: One sentence.
        evidence: What it rests on, a sentence each.
        way: From the tensor towards the loss; empty where nothing is known of it.
        remedy: What to do: code, or a sentence with code in backticks.
        location: The line it is about, where there is one.
        facts: What the tensor itself shows; None for a module.
        groups: Of a module: its parameters by answer.
        source: Which run this was read from; empty where none was.
        gaps: What could not be looked at.
    """

    kind_name: ClassVar[str] = "why"

    name: str
    reason: str
    answer: str
    evidence: tuple[str, ...] = ()
    way: tuple[WayStep, ...] = ()
    remedy: tuple[str, ...] = ()
    location: Location | None = None
    facts: GradientFacts | None = None
    groups: tuple[WhyGroup, ...] = ()
    source: str = ""
    gaps: tuple[Gap, ...] = ()
