"""The numbers of a traced run for its viewer, in columns, and what changed since the last look."""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from tensormagic.reports import MEASURES, UNREADABLE
from tensormagic.views.graph.drawing import BADGE_SIZE, DETAIL_SIZE, LABEL_SIZE, written_out
from tensormagic.views.graph.words import gradient_text, value_text, whole_shape, wire_text
from tensormagic.views.markup import fitted
from tensormagic.views.panels.trace_words import norm_text
from tensormagic.words import count, percent, short_number

if TYPE_CHECKING:
    from tensormagic.reports import Edge, Frame, Graph, LiveFrame, Node
    from tensormagic.views.graph.drawing import Drawing


# How the viewer's document stays small: columns, a table of strings, norms as whole numbers, and thinned frames.
#
# A graph of two thousand nodes with its passes is a few megabytes as plain JSON objects. As columns of indices and
# small integers it packs to some tens of kilobytes, and a browser still reads it with nothing but ``JSON.parse``. Of
# the passes all norms are kept, all statistics of as many as there is room for. What lies inside the folded boxes
# comes as columns too, one entry a part: the first parts of `inside.hierarchy` are the drawn boxes, which the
# document has already, so that the columns begin with the part whose place is the number of boxes. Nodes and leaves
# are listed of whole parts alone: those of the others are what lies inside them.

Item = TypeVar("Item")
Code = int | str | None  # of a norm, see `norm_code`

CODES_PER_DECADE = 250  # a step of 0.9 %: norms are written with two digits


Table = dict[Any, int]  # distinct values, each with its place


def place_in(table: Table, value: Any) -> int:
    """Return the place of ``value``, which is hashable and JSON-ready; it is put in where it is not there yet."""
    return table.setdefault(value, len(table))


def norm_code(norm: float) -> Code:
    """Return a norm as the viewer reads it.

    Returns:
        250 · log10(norm), rounded; ``None`` for untouched, ``"u"`` for a gradient that could not be measured, ``"n"``
        NaN, ``"i"`` infinite, ``"z"`` exactly zero.
    """
    if norm < 0:
        return "u" if norm == UNREADABLE else None
    if not math.isfinite(norm):
        return "n" if math.isnan(norm) else "i"
    return round(CODES_PER_DECADE * math.log10(norm)) if norm > 0 else "z"


def norm_codes(norms: Iterable[float]) -> list[Code]:
    """Return `norm_code` of each."""
    return [norm_code(norm) for norm in norms]


def code_changes(rows: Iterable[Sequence[Code]]) -> list[list[Code]]:
    """Return rows of codes with every number as its difference from the last number above it in its column.

    What moves little packs to little.
    """
    above: dict[int, int] = {}
    changed = []
    for row in rows:
        changed.append([code if not isinstance(code, int) else code - above.get(at, 0) for at, code in enumerate(row)])
        above.update((at, code) for at, code in enumerate(row) if isinstance(code, int))
    return changed


def rounded(value: float) -> float | str:
    """Return ``value`` with four significant digits, or its name where JSON has no number for it."""
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


def thinned(items: Sequence[Item], most: int, *, keep: Callable[[Item], bool]) -> list[Item]:
    """Return at most about ``most`` of ``items``: evenly spread, with first, last and the first that ``keep`` wants."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    places = {round(step * last / max(most - 2, 1)) for step in range(max(most - 1, 2))}
    places |= {next((place for place, item in enumerate(items) if keep(item)), 0), 0, last}
    return [items[place] for place in sorted(places)]


def steps(numbers: Iterable[int]) -> list[int]:
    """Return each number as its difference from the one before, the first from 0: neighbours pack to almost nothing."""
    return [after - before for before, after in pairwise((0, *numbers))]


def edge_columns(edges: Sequence[Edge]) -> list[list[int]]:
    """Return sources as `steps`, targets as their distance below the source, and the numbers of the inputs."""
    below = [edge.source - edge.target for edge in edges]
    return [steps(edge.source for edge in edges), below, [edge.input_number for edge in edges]]


def likeness(graph: Graph) -> int:
    """Return a number by which the viewer knows a graph again: the same where its nodes and edges are the same."""
    nodes = [(node.op, node.variable) for node in graph.nodes]
    return zlib.crc32(repr((nodes, edge_columns(graph.edges))).encode())


def node_columns(
    nodes: Sequence[Node], strings: Table, saved: Table, described: Container[int] = ()
) -> dict[str, list[Any]]:
    """Return one column for each thing the viewer shows of a node; texts are places in ``strings``.

    Tensors that nodes share are written down once, in ``saved``. Of a gradient's statistics only pass and count stand
    here where its pass is in ``described``: its frame has more. Else there are norm, largest magnitude, mean,
    deviation and zeros in words, then how many are NaN and infinite.
    """
    index = partial(place_in, strings)
    shapes = {one: ", ".join(map(whole_shape, one)) for one in dict.fromkeys(node.shapes for node in nodes)}
    columns: dict[str, list[Any]] = {
        name: [index(getattr(node, name)) for node in nodes] for name in ("op", "name", "kind")
    }
    columns["location"] = [node.location for node in nodes]
    columns["guessed"] = [node.index for node in nodes if not node.exact_location]
    columns |= {name: [index(getattr(node, name)) for node in nodes] for name in ("module", "variable")}
    columns["shapes"] = [index(shapes[node.shapes]) for node in nodes]
    columns |= {name: [index(getattr(node, name)) for node in nodes] for name in ("dtype", "device")}
    known: dict[int, int] = {}
    for tensor in chain.from_iterable(node.saved for node in nodes):
        if id(tensor) not in known:
            words = whole_shape(tensor.shape), tensor.name, tensor.dtype, tensor.state
            shape, name, dtype, state = map(index, words)
            known[id(tensor)] = place_in(saved, (name, shape, dtype, tensor.nbytes, state))
    columns["saved"] = [[known[id(tensor)] for tensor in node.saved] for node in nodes]
    rows: list[list[Any] | None] = []
    for numbers in (node.statistics for node in nodes):
        row: list[Any] = [] if numbers is None else [numbers.pass_number, numbers.count]
        if numbers is not None and numbers.pass_number not in described:
            row += norm_text(numbers.norm), norm_text(numbers.abs_max), three_digits(numbers.mean)
            row += norm_text(numbers.std), share_text(numbers.zero / (numbers.count or 1), numbers.count)
            row += numbers.nan, numbers.inf
        rows.append(row or None)
    return {**columns, "statistics": rows}


# -- passes -----------------------------------------------------------------------------------------------------------

# How the viewer calls each of `reports.MEASURES`.
_CALLED = ("|max|", "mean", "std", "zeros", "too small", "at the limit")


def frame_rows(frames: Sequence[Frame], most_values: int, counts: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return a row for each pass; with ``measures`` where it was measured in full and is one of those that fit.

    ``norms`` and ``parts`` are codes, each as its difference from the last number of that node in the rows before.
    ``measures`` holds a column of words for each of `reports.MEASURES` that says anything, by node index, None where
    there is none. What the forward made is in the same form, where it was asked for.

    Args:
        frames: The passes.
        most_values: How many other numbers than norms there may be in all of them.
        counts: How many elements the gradient of each node has, 0 where that is not known.
    """
    full = [frame for frame in frames if len(frame.measures) or frame.forward is not None]
    described: set[int] = set()
    if full and most_values:
        of_forward = full[0].forward
        measured = max(len(full[0].measures), len(of_forward.measures) if of_forward is not None else 0, 1)
        kept = thinned(full, max(most_values // measured, 2), keep=lambda _: False)
        described = {frame.pass_number for frame in kept}
    norms = code_changes(norm_codes(frame.norms) for frame in frames)
    parts = code_changes(norm_codes(frame.parts) for frame in frames)
    rows = []
    for frame, of_nodes, of_parts in zip(frames, norms, parts, strict=True):
        row: dict[str, Any] = {"pass": frame.pass_number, "norms": of_nodes, "bad": _bad(frame.bad)}
        row |= {"parts": of_parts} if of_parts else {}
        if frame.pass_number in described:
            row |= {"measures": dict(_columns(frame.measures, counts))} if len(frame.measures) else {}
            if (made := frame.forward) is not None:
                forward = {"norms": norm_codes(made.norms), "bad": _bad(made.bad), **dict(_columns(made.measures))}
                row["forward"] = forward
        rows.append(row)
    return rows


def _bad(bad: Mapping[str, tuple[int, int]]) -> list[list[int]]:
    return [[int(node), nan, inf] for node, (nan, inf) in bad.items()]


def value_words(graph: Graph, wires: Sequence[Sequence[int]], frame: Frame) -> dict[str, Any]:
    """Return the words of a small graph in one pass: in each node, over it, and on each wire."""
    if (values := frame.values) is None:
        return {}
    said = [wire_text(graph, values, edges) for edges in wires]
    return {"values": [[*map(value_text, values.made)], [*map(gradient_text, values.gradients)], said]}


def _columns(measures: array[float], counts: Sequence[int] = ()) -> Iterator[tuple[str, list[str | None]]]:
    """Yield columns that say anything: magnitudes, and shares, as counts where it is known of how many elements."""
    width = len(MEASURES)
    there = [value >= 0 or math.isnan(value) for value in measures[::width]]  # the first is a magnitude
    for place, name in enumerate(_CALLED):
        column = measures[place::width]
        if name in {"|max|", "std"}:
            texts = map(norm_text, column)
        elif not any(value for value, here in zip(column, there, strict=True) if here):
            continue
        elif name == "mean":
            texts = map(three_digits, column)
        else:
            texts = map(share_text, column, counts or [0] * len(column))
        yield name, [text if here else None for text, here in zip(texts, there, strict=True)]


def share_text(share: float, elements: int) -> str:
    """Return ``12  (3 %)`` of so many elements; the share alone where their number is not known."""
    if not elements:
        return percent(share)
    number = round(share * elements)
    return f"{count(number)}  ({percent(number, elements)})" if number else "0"


def three_digits(value: float) -> str:
    """Return a number that may be negative, in three digits."""
    return short_number(float(f"{value:.3g}"))


# -- parts inside boxes -----------------------------------------------------------------------------------------------


def part_columns(drawing: Drawing, strings: Table) -> dict[str, list[Any]]:
    """Return the parts inside the boxes of ``drawing``; texts are places in ``strings``, sizes are pixels.

    Returns:
        ``parent`` (place of the part it lies in), ``label``, ``detail``, ``kind``, ``module``, ``width``, ``height``,
        ``nodes`` and ``leaves`` (empty where further parts lie inside; each number is the step from the one before it
        in the column, which packs to a third) with their ``names``, and ``written``, how many of them are written out.
        ``level`` has the place of each part's inside in ``levels``, the drawn boxes first; -1 where it has none.
        Of each of these: width, height, margin, the ends of the rows, the places of the children, and the lines.
    """
    inside, shown = drawing.inside, len(drawing.boxes)
    if len(inside.parts) == shown:
        return {}
    parts, sizes = inside.parts[shown:], inside.sizes[shown:]
    groups, text = (
        [(part.group, width) for part, (width, _) in zip(parts, sizes, strict=True)],
        partial(place_in, strings),
    )
    marks = [badges if part.whole else () for badges, part in zip(inside.badges[shown:], parts, strict=True)]
    distinct = {id(level): level for level in inside.levels.values()}  # those that are alike are one
    place_of = {level: at for at, level in enumerate(distinct)}
    levels = []
    for level in distinct.values():
        wires = tuple((to, tail, *all_tenths(points[::-1])) for tail, to, points in level.wires)
        frame = tenths(level.width), tenths(level.height), tenths(level.margin), (*map(tenths, level.row_ends),)
        levels.append((*frame, (*all_tenths(level.positions),), wires))
    return {
        "parent": [part.parent for part in parts],
        "label": [text(fitted(group.label, width - 8, LABEL_SIZE, bold=True)) for group, width in groups],
        "detail": [text(fitted(group.detail, width - 6, DETAIL_SIZE)) for group, width in groups],
        "kind": [text(group.kind) for group, _ in groups],
        "module": [text(group.module) for group, _ in groups],
        "width": [tenths(width) for _, width in groups],
        "height": [tenths(height) for _, height in sizes],
        "nodes": _steps([group.nodes if part.whole else () for part in parts for group in [part.group]]),
        "leaves": _steps([group.leaves if part.whole else () for part in parts for group in [part.group]]),
        "names": [[text(fitted(badge.label, width - 18, BADGE_SIZE)) for badge in badges]
                  for badges, (_, width) in zip(marks, groups, strict=True)],
        "written": [written_out(group.kind, len(group.leaves)) for group, _ in groups],
        "level": [place_of[id(inside.levels[at])] if at in inside.levels else -1 for at in range(len(inside.parts))],
        "levels": levels,
    }  # fmt: skip


def all_tenths(points: Iterable[tuple[float, float]]) -> Iterator[float]:
    """Return `tenths` of both numbers of each point, one after the other."""
    return map(tenths, chain.from_iterable(points))


def _steps(rows: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return the rows with every number as its difference from the one before, over all rows."""
    every = iter(steps(chain.from_iterable(rows)))
    return [list(islice(every, len(row))) for row in rows]


def tenths(value: float) -> float:
    """Return a length as it is written: to a tenth of a pixel, whole ones without a point."""
    rough = round(value, 1)
    return int(rough) if rough == int(rough) else rough


# What changed since the last look, as the bytes that a live panel's page is sent: thirty times a second.
#
# One buffer holds all of it: numbers, then norms. There is no JSON to write here and to read there, and what is
# around the buffer is the same each time, so that it is made once (live.py). `viewer.js` takes it apart again.

_NUMBERS = struct.Struct("<13d")  # what counts steps is exact in a float64; the norms after them stay aligned


def pack_delta(frame: LiveFrame) -> bytes:
    """Return thirteen float64, in the order of `NUMBERS` in `viewer.js`, then float32: node norms, parameter norms."""
    numbers = _NUMBERS.pack(
        frame.structure, frame.graph, frame.pass_number, frame.step, frame.running, frame.cursor, frame.reached,
        frame.finished_pass, frame.seconds, frame.paused, frame.next_step,
        len(frame.norms), len(frame.parameter_norms),
    )  # fmt: skip
    return numbers + frame.norms.tobytes() + frame.parameter_norms.tobytes()
