"""The numbers of a traced run for its viewer, in columns, and what changed since the last look."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from tensormagic.reports import MEASURES, UNREADABLE
from tensormagic.views.graph.drawing import BADGE_SIZE, DETAIL_SIZE, LABEL_SIZE, badge_rows
from tensormagic.views.graph.words import whole_shape
from tensormagic.views.markup import fitted
from tensormagic.views.panels.trace_words import norm_text
from tensormagic.words import count, percent, short_number

if TYPE_CHECKING:
    from tensormagic.reports import Edge, Frame, GradientStatistics, LiveFrame, Node
    from tensormagic.views.graph.drawing import Drawing


# How the viewer's document stays small: columns, a table of strings, norms as whole numbers, and thinned frames.
#
# A graph of two thousand nodes with its passes is a few megabytes as plain JSON objects. As columns of indices and
# small integers it packs to some tens of kilobytes, and a browser still reads it with nothing but ``JSON.parse``. Of
# the passes all norms are kept, all statistics of as many as there is room for.

Item = TypeVar("Item")
Code = int | str | None  # of a norm, see `norm_code`

CODES_PER_DECADE = 250  # a step of 0.9 %: norms are written with two digits


Table = dict[Any, int]  # distinct values, hashable and JSON-ready, each with its place


def place_in(table: Table, value: Any) -> int:
    """Return the place of ``value``; it is put in where it is not there yet."""
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


def code_changes(rows: Iterable[Iterable[Code]]) -> list[list[Code]]:
    """Return rows of codes with every number as its difference from the last number above it in its column.

    What moves little packs to little.
    """
    above: dict[int, int] = {}
    changed = []
    for row in map(list, rows):
        changed.append([code - above.get(at, 0) if isinstance(code, int) else code for at, code in enumerate(row)])
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


def node_columns(
    nodes: Sequence[Node], strings: Table, saved: Table, described: Container[int] = ()
) -> dict[str, list[Any]]:
    """Return one column for each thing the viewer shows of a node; texts are places in ``strings``.

    Tensors that nodes share are written down once, in ``saved``. Of a gradient's statistics only pass and count stand
    here where its pass is in ``described``: its frame has more. Else there are norm, largest magnitude, mean,
    deviation and zeros in words, then how many are NaN and infinite.
    """
    index = partial(place_in, strings)
    texts = ("op", "name", "kind", "module", "variable", "dtype", "device")
    columns: dict[str, list[Any]] = {name: [index(getattr(node, name)) for node in nodes] for name in texts}
    columns["shapes"] = [index(", ".join(map(whole_shape, node.shapes))) for node in nodes]
    columns["location"] = [node.location for node in nodes]
    columns["guessed"] = [node.index for node in nodes if not node.exact_location]
    columns["saved"] = []
    for node in nodes:
        told = [(index(one.name), index(whole_shape(one.shape)), index(one.dtype), one.nbytes, index(one.state))
                for one in node.saved]  # fmt: skip
        columns["saved"].append([place_in(saved, one) for one in told])
    columns["statistics"] = [_statistics(node.statistics, described) for node in nodes]
    return columns


def _statistics(numbers: GradientStatistics | None, described: Container[int]) -> list[Any] | None:
    if numbers is None:
        return None
    row = [numbers.pass_number, numbers.count]
    if numbers.pass_number in described:
        return row
    zeros = share_text(numbers.zero / (numbers.count or 1), numbers.count)
    return [*row, norm_text(numbers.norm), norm_text(numbers.abs_max), three_digits(numbers.mean),
            norm_text(numbers.std), zeros, numbers.nan, numbers.inf]  # fmt: skip


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
        made = full[0].forward
        measured = max(len(full[0].measures), len(made.measures) if made is not None else 0, 1)
        kept = thinned(full, max(most_values // measured, 2), keep=lambda _: False)
        described = {frame.pass_number for frame in kept}
    norms = code_changes(map(norm_code, frame.norms) for frame in frames)
    parts = code_changes(map(norm_code, frame.parts) for frame in frames)
    rows: list[dict[str, Any]] = []
    for frame, of_nodes, of_parts in zip(frames, norms, parts, strict=True):
        rows.append({"pass": frame.pass_number, "norms": of_nodes, "bad": _bad(frame.bad)})
        if of_parts:
            rows[-1]["parts"] = of_parts
        if frame.pass_number in described and len(frame.measures):
            rows[-1]["measures"] = dict(_columns(frame.measures, counts))
        if frame.pass_number in described and (made := frame.forward) is not None:
            codes = [*map(norm_code, made.norms)]
            rows[-1]["forward"] = {"norms": codes, "bad": _bad(made.bad), **dict(_columns(made.measures))}
    return rows


def _bad(bad: Mapping[str, tuple[int, int]]) -> list[list[int]]:
    return [[int(node), nan, inf] for node, (nan, inf) in bad.items()]


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

    The first parts of ``drawing.inside`` are the drawn boxes, which the document has already: the columns begin with
    the part whose place is the number of boxes. Nodes and leaves are listed of whole parts alone: those of the others
    are what lies inside them.

    Returns:
        ``parent`` (place of the part it lies in), ``label``, ``detail``, ``kind``, ``module``, ``width``, ``height``,
        ``nodes`` and ``leaves`` (empty where further parts lie inside; each number is the step from the one before it
        in the column, which packs to a third) with their ``names``, and ``written``, how many of them are written out.
        ``level`` has the place of each part's inside in ``levels``, the drawn boxes first; -1 where it has none.
        Of each of these: width, height, margin, the ends of the rows, the places of the children, and the lines.
    """
    shown, text = len(drawing.boxes), partial(place_in, strings)
    if len(drawing.inside) == shown:
        return {}
    distinct = {id(part.level): part.level for part in drawing.inside if part.level}  # those that are alike are one
    place_of, levels = {level: at for at, level in enumerate(distinct)}, []
    for edges, level in distinct.values():
        wires = [(*edge[::-1], *all_tenths(points[::-1])) for edge, points in zip(edges, level.routes, strict=True)]
        frame = tenths(level.width), tenths(level.height), tenths(level.margin), [*map(tenths, level.row_ends)]
        levels.append((*frame, [*all_tenths(level.positions)], wires))
    parts = drawing.inside[shown:]
    groups = [(part.group, *part.size, part.whole) for part in parts]
    return {
        "parent": [part.parent for part in parts],
        "label": [text(fitted(group.label, width - 8, LABEL_SIZE, bold=True)) for group, width, _, _ in groups],
        "detail": [text(fitted(group.detail, width - 6, DETAIL_SIZE)) for group, width, _, _ in groups],
        "kind": [text(group.kind) for group, *_ in groups],
        "module": [text(group.module) for group, *_ in groups],
        "width": [tenths(width) for _, width, _, _ in groups],
        "height": [tenths(height) for _, _, height, _ in groups],
        "nodes": _steps([group.nodes if whole else () for group, _, _, whole in groups]),
        "leaves": _steps([group.leaves if whole else () for group, _, _, whole in groups]),
        "names": [[text(fitted(badge.label, part.size[0] - 18, BADGE_SIZE)) for badge in part.badges if part.whole]
                  for part in parts],
        "written": [len(badge_rows(part.group.kind, part.badges)[0]) for part in parts],
        "level": [place_of.get(id(part.level), -1) for part in drawing.inside],
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
