"""From an autograd graph to a drawing: fold what a person does not think of as a step, then lay the rest out.

Everything that draws the graph (the static picture, the live panel) starts from the same `Drawing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensormagic.reports.trace import Graph


@dataclass(frozen=True, slots=True)
class Badge:
    """A leaf that collects a gradient, folded into a box that uses it.

    Attributes:
        node: Index of the accumulate node.
        label: Its name, short; with ``×3`` where the same leaf is a badge of three boxes.
    """

    node: int
    label: str


@dataclass(frozen=True, slots=True)
class Box:
    """One box of the drawing.

    Attributes:
        id: Its place in `Drawing.boxes`.
        nodes: Indices of the graph's nodes it stands for, badges not included. The gradient of the first one that was
            reached is the gradient of the box: the others were folded into it.
        label: What it does.
        detail: Shape of what it makes.
        kind: ``"op"``, ``"custom"``, ``"accumulate"``, ``"views"``, ``"module"`` or ``"repeat"``.
        badges: Leaves folded into it.
        x: Left side.
        y: Top.
        width: Of the box, badges included.
        height: Of the box, badges included.
    """

    id: int
    nodes: tuple[int, ...]
    label: str
    detail: str
    kind: str
    badges: tuple[Badge, ...]
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Wire:
    """A line between two boxes.

    Attributes:
        source: Id of the box that sends the gradient (drawn at the right).
        target: Id of the box that receives it.
        points: The line, from source to target.
        edges: Indices of the graph's edges it stands for.
    """

    source: int
    target: int
    points: tuple[tuple[float, float], ...]
    edges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph, folded and laid out.

    Attributes:
        width: Of the whole, in pixels.
        height: Of the whole.
        boxes: In forward order.
        wires: Between them.
        node_count: Nodes of the graph.
        folded: How many of them do not have a box of their own.
        note: What was folded, in one sentence; empty where every node has its box.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    node_count: int
    folded: int
    note: str


def draw(graph: Graph, *, max_boxes: int = 160) -> Drawing:
    """Return the drawing of ``graph``, folded into at most ``max_boxes`` boxes."""
    raise NotImplementedError
