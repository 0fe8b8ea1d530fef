"""Where the gradient of a graph is cut: the words for it, and where a drawing says so.

A cut is an input of a box from which nothing goes back, just as a leaf is one at which the way ends by nature: it is
written under the box that used the value, as leaves are. Where the box that made the value is drawn too, a cut wire
leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensormagic.views.graph.folding import Group, reachable, surroundings
from tensormagic.views.graph.words import op_label, shape_text
from tensormagic.words import count, plural

if TYPE_CHECKING:
    from tensormagic.reports import Cut, Graph, TraceReport

MOST_ROWS = 2
MOST_WIRES = 24  # cut wires of one drawing: more would hide the others

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CutRow:
    """One line under a box: what ended the way of something that the box used."""

    label: str  # ``"detach, line 10"``.
    cuts: tuple[int, ...]  # Indices into `Graph.cuts`.


def ends_of(
    graph: Graph, groups: Sequence[Group], wired: Mapping[Pair, object]
) -> tuple[list[tuple[CutRow, ...]], dict[Pair, int], dict[int, tuple[int, ...]]]:
    """Return where the cuts of ``graph`` stand; ``wired`` are the pairs of groups that have a wire already.

    Returns:
        For every box its lines; the cut of each ``(source, target)`` of boxes that a cut wire joins; the cuts of each
        box that made a value which some cut takes, or which was read, where no wire says so.
    """
    owner: dict[int | None, int] = {
        node: number for number, group in enumerate(groups) for node in (*group.leaves, *group.nodes)
    }
    places = [(owner.get(cut.source, -1), owner.get(cut.target, -1)) for cut in graph.cuts]
    pairs: dict[Pair, int] = {}
    stubs: dict[int, tuple[int, ...]] = {}
    for at, (cut, (source, target)) in enumerate(zip(graph.cuts, places, strict=True)):
        free = 0 <= source < target and (target, source) not in wired  # forward, where there is no other wire
        if cut.detachment and not cut.earlier and free and len(pairs) < MOST_WIRES:
            pairs.setdefault((source, target), at)
        elif source >= 0 and source != target and not cut.selects:
            stubs[source] = (*stubs.get(source, ()), at)
    return cut_rows(graph, groups, [[target] if target >= 0 else [] for _, target in places]), pairs, stubs


def cut_rows(graph: Graph, groups: Sequence[Group], places: Sequence[Sequence[int]]) -> list[tuple[CutRow, ...]]:
    """Return the lines below the box of each group; ``places`` are the groups that hold what each cut was used by."""
    labels: list[dict[str, tuple[int, ...]]] = [{} for _ in groups]
    for at, (cut, held) in enumerate(zip(graph.cuts, places, strict=True)):
        for place in held if cut.detachment else ():
            known, label = labels[place], cut_label(cut)
            known[label] = (*known.get(label, ()), at)
    below = []
    for found, group in zip(labels, groups, strict=True):
        rows = [CutRow(f"{label} ×{len(cuts)}" if len(cuts) > 1 else label, cuts) for label, cuts in found.items()]
        most = 1 if group.kind in {"module", "repeat"} else MOST_ROWS
        if len(rows) > most:
            rest = tuple(cut for row in rows[most - 1 :] for cut in row.cuts)
            words = f"{count(len(rest))} cuts" if most == 1 else f"{count(len(rest))} more cuts"
            rows[most - 1 :] = [CutRow(words, rest)]
        below.append(tuple(rows))
    return below


def cut_label(cut: Cut) -> str:
    """Return what ended the way, in short: ``detach, line 10``."""
    return f"{cut.op}, line {cut.line}" if cut.line else cut.op


def cut_target(graph: Graph, cut: Cut) -> str:
    """Return what used it: ``linear, input 1``; for what was only read, ``read``."""
    if cut.target is None:
        return "only read"
    if cut.selects:
        return f"only selects elements in {_node_name(graph, cut.target)}"
    where = f", input {cut.input_number}" if cut.input_number is not None else ""
    return f"{_node_name(graph, cut.target)}{where}"


def cut_sentence(report: TraceReport, graph: Graph | None, cut: Cut) -> str:
    """Return one line about a cut: ``detach, line 10: relu (line 8) // linear, input 1, 32×10 float32, 3 times``.

    The place has its file where that is not the traced cell. Without a graph backward was called on the value.
    """
    place, made = report.location(cut.location), report.location(cut.source_location)
    here = place is None or place.filename == report.cell.filename
    where = cut_label(cut) if place is None or here else f"{cut.op}, {place.label}"
    name = cut.source_name if graph is None or cut.source is None else _node_name(graph, cut.source)
    line, earlier = f" (line {made.line})" if made is not None else "", " of an earlier pass" if cut.earlier else ""
    target = "backward" if graph is None else cut_target(graph, cut)
    value = f"{shape_text(cut.shape)} {cut.dtype}" if cut.shape else cut.dtype
    times = f", {count(cut.count)} times" if cut.count > 1 else ""
    sign = "//" if graph is None or cut.detachment else "→"
    return f"{where}: {name or 'a value'}{line}{earlier} {sign} {target}, {value}{times}"


def cut_heading(graph: Graph) -> str:
    """Return how many there are: ``2 cuts in the graph; 1 value only read or used as a mask or index``."""
    detachment = sum(cut.detachment for cut in graph.cuts)
    others = len(graph.cuts) - detachment
    parts = [f"{plural(detachment, 'cut')} in the graph"] if detachment else []
    parts += [f"{plural(others, 'value')} only read or used as a mask or index"] if others else []
    return "; ".join(parts)


def cut_sentences(report: TraceReport, graph: Graph) -> list[tuple[str, int | None]]:
    """Return a line for each cut, one for those that read the same, and where in the source each is."""
    found: dict[str, list[int | None]] = {}
    for cut in graph.cuts:
        found.setdefault(cut_sentence(report, graph, cut), []).append(cut.location)
    return [
        (sentence if len(places) == 1 else f"{sentence}, at each of {count(len(places))} places", places[-1])
        for sentence, places in found.items()
    ]


def _node_name(graph: Graph, index: int) -> str:
    """Return what a node is called, as its box is."""
    _, _, inputs, side = surroundings(graph)
    hanging = [graph.nodes[at] for at in reachable(index, inputs, side)]
    return graph.nodes[index].variable or op_label(graph.nodes[index], hanging)
