"""Where the ends of the gradient's way stand in a drawing: written under the box that used the value, as leaves are.

A cut is an input of that box from which nothing goes back, just as a leaf is one at which the way ends by nature.
Where the box that made the value is drawn too, a severed wire leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensormagic.renderers.trace.cut_words import cut_label
from tensormagic.words import count

if TYPE_CHECKING:
    from tensormagic.renderers.graph.graph_folding import Group
    from tensormagic.reports import Cut, Graph

MOST_ROWS = 2
MOST_WIRES = 24  # severed wires of one drawing: more would hide the others

Pair = tuple[int, int]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CutRow:
    """One line under a box: what ended the way of something that the box used.

    Attributes:
        label: ``"detach, line 10"``.
        cuts: Indices into `Graph.cuts`.
    """

    label: str
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DetachedWire:
    """A line between two boxes along which no gradient goes, though the value went there.

    Attributes:
        source: Id of the box that made the value.
        target: Id of the box that used it.
        points: The line, from source to target.
        cut: Index into `Graph.cuts`.
    """

    source: int
    target: int
    points: tuple[Point, ...]
    cut: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The cuts of one drawing.

    Attributes:
        rows: For every box, its lines.
        pairs: ``(source, target)`` boxes of the severed wires, with the cut of each.
        stubs: Boxes that made a value which some cut takes, or which was read, where no wire says so: box → cuts.
    """

    rows: tuple[tuple[CutRow, ...], ...]
    pairs: dict[Pair, int]
    stubs: dict[int, tuple[int, ...]]


def ends_of(graph: Graph, groups: Sequence[Group], wired: Mapping[Pair, object]) -> Ends:
    """Return where the cuts of ``graph`` stand; ``wired`` are the pairs of groups that have a wire already."""
    if not graph.cuts:
        return Ends(((),) * len(groups), {}, {})
    owner = {node: number for number, group in enumerate(groups) for node in (*group.leaves, *group.nodes)}
    places = [(owner.get(_index(cut.source), -1), owner.get(_index(cut.target), -1)) for cut in graph.cuts]
    labels: list[dict[str, list[int]]] = [{} for _ in groups]
    pairs: dict[Pair, int] = {}
    stubs: dict[int, list[int]] = {}
    for at, (cut, (source, target)) in enumerate(zip(graph.cuts, places, strict=True)):
        if cut.detachment and target >= 0:
            labels[target].setdefault(cut_label(cut), []).append(at)
        if _has_wire(cut, source, target, wired) and len(pairs) < MOST_WIRES:
            pairs.setdefault((source, target), at)
        elif source >= 0 and source != target and not cut.selects:
            stubs.setdefault(source, []).append(at)
    rows = tuple(_rows(found, group.kind in {"module", "repeat"}) for found, group in zip(labels, groups, strict=True))
    return Ends(rows, pairs, {box: tuple(cuts) for box, cuts in stubs.items()})


def _index(index: int | None) -> int:
    return -1 if index is None else index


def _has_wire(cut: Cut, source: int, target: int, wired: Mapping[Pair, object]) -> bool:
    """Say whether a wire can be drawn: forward, and where there is no other."""
    return cut.detachment and not cut.earlier and 0 <= source < target and (target, source) not in wired


def _rows(found: Mapping[str, Sequence[int]], inside: bool) -> tuple[CutRow, ...]:  # noqa: FBT001  (of a folded box)
    rows = [CutRow(f"{label} ×{len(cuts)}" if len(cuts) > 1 else label, tuple(cuts)) for label, cuts in found.items()]
    most = 1 if inside else MOST_ROWS
    if len(rows) <= most:
        return tuple(rows)
    rest = tuple(cut for row in rows[most - 1 :] for cut in row.cuts)
    words = f"{count(len(rest))} cuts" if most == 1 else f"{count(len(rest))} more cuts"
    return (*rows[: most - 1], CutRow(words, rest))
