"""What stands behind a tensor's place in autograd: the node that made it, what it keeps, the way to the leaves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that the person had called with a gradient.

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
        name: What the person calls it; empty where it has no name.
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
        name: What the person calls the leaf, or the tensor this node made; empty where it has no name.
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
        hooks: Those on the tensor. Hooks on its node cannot be listed: torch does not tell them.
        saved: What saved tensors for backward.
        path: The way to its leaves; None for a tensor that no node made.
    """

    output_number: int
    because: str
    grad_because: str
    hooks: tuple[Hook, ...] = ()
    saved: tuple[SavedState, ...] = ()
    path: Path | None = None
