"""What the heat maps of a tensor say, for who hears them: their range, where the ends of it lie, where it breaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tensormagic.renderers.tensor.kind_words import most_in_a_cell
from tensormagic.renderers.tensor.tensor_picture import Picture, index_at, is_slice
from tensormagic.renderers.tensor.tensor_shot_words import heading, notes
from tensormagic.renderers.tensor.tensor_slices_words import letter
from tensormagic.renderers.tensor.tensor_words import name
from tensormagic.reports import DimensionSlices, ImageFrame, SignalLine, StoredMap, Strip, TensorPicture, TensorReport
from tensormagic.words import MINUS, TIMES, count, listed, plural, series, short_number

MOST = 3  # places that are named

_NOT_FINITE: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("NaN", math.isnan),
    ("+Inf", lambda number: number == math.inf),
    (f"{MINUS}Inf", lambda number: number == -math.inf),
)
Place = tuple[float, int, int]  # a number of the grid, its row, its column


def offsets_alternative(report: TensorReport, picture: Picture) -> str:
    """Return what is drawn of the storage offsets, their range, and how far each dimension steps."""
    layout = picture.layout
    low, high = count(picture.low), count(picture.high)
    dims = [dim for dim in (picture.grid.row_dim, picture.grid.column_dim) if dim is not None]
    steps = ", ".join(f"{layout.stride[dim]} along {layout.dim_names[dim]}" for dim in dims)
    walk = "is contiguous, row by row" if _is_even(picture) else f"steps by {steps}" if steps else ""
    described = f"Storage offset at each index: {_size(report, picture)}, from {low} (darkest) to {high} (lightest)"
    return f"{described}{f'; it {walk}' if walk else ''}."


def _size(report: TensorReport, picture: Picture) -> str:
    grid = picture.grid
    drawn = f"{len(grid.rows)} by {len(grid.columns)}"
    whole = f"{count(grid.row_count)} by {count(grid.column_count)}"
    part = f"{drawn} elements" if drawn == whole else f"{drawn} of {whole} elements"
    return f"{part} of one slice of {name(report)}" if is_slice(picture.layout) else f"{part} of {name(report)}"


def _is_even(picture: Picture) -> bool:
    """Return whether what is drawn lies in the storage in the order in which it is drawn."""
    every = [offset for row in picture.grid.offsets for offset in row]
    return picture.grid.complete and every == list(range(every[0], every[0] + len(every)))


def values_alternative(report: TensorReport, picture: Picture, scale: tuple[float, float]) -> str:
    """Return the range of the values, where the smallest and the largest are, and where what is no number begins."""
    numbers = [(level, r, c) for r, row in enumerate(picture.grid.levels) for c, level in enumerate(row)]
    finite = [one for one in numbers if math.isfinite(one[0])]
    ends = f"from {short_number(scale[0])} (darkest) to {short_number(scale[1])} (lightest)"
    described = f"Value at each index: {_size(report, picture)}, {ends}"
    if finite:
        places = f"smallest at {_at(picture, min(finite))}, largest at {_at(picture, max(finite))}"
        described += f"; {places}" if min(finite)[0] < max(finite)[0] else "; all of them equal"
    return f"{described}{_broken(picture, numbers)}."


def _at(picture: Picture, place: Place) -> str:
    return f"[{', '.join(map(str, index_at(picture.grid, place[1], place[2])))}]"


def _broken(picture: Picture, numbers: Sequence[Place]) -> str:
    """Return how many values shown are no finite number, the first of them, and the rows that hold nothing else."""
    parts = []
    for label, is_one in _NOT_FINITE:
        found = [one for one in numbers if is_one(one[0])]
        if found:
            parts.append(f"; hatched: {count(len(found))} {label}, the first at {_at(picture, found[0])}")
            parts.append(_whole_rows(picture, found))
    return "".join(parts)


def _whole_rows(picture: Picture, found: Sequence[Place]) -> str:
    grid, held = picture.grid, dict[int, int]()
    for _, row, _ in found:
        held[row] = held.get(row, 0) + 1
    rows = [grid.rows[row] for row, number in held.items() if number == len(grid.columns)]
    if grid.row_dim is None or not rows or len(grid.columns) < 2:
        return ""
    return f", all along {picture.layout.dim_names[grid.row_dim]} = {series(rows)}"


def strip_alternative(report: TensorReport, strip: Strip) -> str:
    """Return which part of the storage is read, and from where to where."""
    read = [cell for cell in strip.cells if cell.distinct != 0]
    whole = f"Storage elements {count(strip.start)} to {count(strip.stop - 1)}"
    if not read:
        return f"{whole}: none is read."
    distinct = [cell.distinct for cell in strip.cells]
    described = f"{whole}, read by {name(report)} from {count(read[0].start)} to {count(read[-1].stop - 1)}"
    if None in distinct:
        return f"{described}."
    number = sum(cell or 0 for cell in distinct)
    gaps = _runs(cell.distinct == 0 for cell in strip.cells[strip.cells.index(read[0]) : strip.cells.index(read[-1])])
    between = f", with {plural(gaps, 'gap')} between" if gaps else ""
    return f"{described}: {count(number)} of {count(strip.stop - strip.start)} elements{between}."


def _runs(flags: Iterable[bool]) -> int:
    """Return how many stretches of true there are."""
    before, found = False, 0
    for flag in flags:
        found += flag and not before
        before = flag
    return found


def slices_alternative(report: TensorReport, each: DimensionSlices) -> str:
    """Return which slice along a dimension is largest and which smallest, which are zero, which hold NaN or Inf."""
    at = letter(report, each.dim)
    described = f"Mean magnitude, {plural(each.size, 'slice')} along {at}"
    finite = [(level, place) for place, level in enumerate(each.levels) if math.isfinite(level)]
    if finite:
        (high, largest), (low, smallest) = max(finite, key=_level), min(finite, key=_level)
        ends = f"largest {short_number(high)} at {_slice(each, largest)}, "
        described += f": {ends}smallest {short_number(low)} at {_slice(each, smallest)}"
    described += _named("all zeros", each.zero_count, each.zero)
    return f"{described}{_named('holding NaN or Inf', each.bad_count, [one.index for one in each.bad])}."


def _level(pair: tuple[float, int]) -> float:
    return pair[0]


def _slice(each: DimensionSlices, cell: int) -> str:
    """Return the slice of a cell of the row; of a cell for several, from which to which."""
    first = cell * each.cell_slices
    last = min(first + each.cell_slices, each.size) - 1
    return str(first) if last <= first else f"{first} to {last}"


def _named(what: str, number: int, places: Sequence[int]) -> str:
    if not number:
        return ""
    return f"; {what}: {listed(map(str, places), most=MOST, found=number)}"


def image_alternative(report: TensorReport, picture: TensorPicture, each: ImageFrame) -> str:
    """Return which image it is, how large, and how its values became colours."""
    title = f"{name(report)}[{each.label}]" if each.label else name(report)
    return f"{title} as an image of {each.width} {TIMES} {each.height} pixels; {'; '.join(notes(picture))}"


def signals_alternative(report: TensorReport, picture: TensorPicture) -> str:
    """Return how the signals were read, and for the first of them where the highest and the lowest value are."""
    ends = [
        described for line in picture.lines[:MOST] if (described := _ends(line.label or name(report), picture, line))
    ]
    more = len(picture.lines) - len(ends)
    rest = f"; and {plural(more, 'more signal')}" if more and ends else ""
    return "; ".join([f"{name(report)}: {heading(report, picture)}", *notes(picture), *ends]) + rest


def _ends(label: str, picture: TensorPicture, line: SignalLine) -> str:
    high = [(value, at * picture.step) for at, value in enumerate(line.high) if math.isfinite(value)]
    low = [(value, at * picture.step) for at, value in enumerate(line.low) if math.isfinite(value)]
    if not high or not low:
        return ""
    (top, where), (bottom, there) = max(high, key=_level), min(low, key=_level)
    return f"{label}: highest {short_number(top)} at {where}, lowest {short_number(bottom)} at {there}"


def stored_alternative(stored_map: StoredMap) -> str:
    """Return how the stored elements of a sparse tensor lie: how many cells hold some, and where it is fullest."""
    counts = [(number, r, c) for r, row in enumerate(stored_map.counts) for c, number in enumerate(row)]
    filled, most = sum(number > 0 for number, _, _ in counts), most_in_a_cell(stored_map)
    fullest = next(((r, c) for number, r, c in counts if number == most), (0, 0))
    cell = f"{stored_map.row_step} by {stored_map.column_step}"
    size = f"{count(stored_map.row_count)} by {count(stored_map.column_count)}"
    where = f"{stored_map.row_name} {fullest[0] * stored_map.row_step}, "
    where += f"{stored_map.column_name} {fullest[1] * stored_map.column_step}"
    described = (
        f"Stored elements of {size} places, {cell} a cell: {count(filled)} of {count(len(counts))} cells hold some"
    )
    return f"{described}, {count(most)} the fullest, at {where}."


def component_alternative(name_: str, levels: Sequence[Sequence[float]], scale: tuple[float, float]) -> str:
    """Return the range of a component's values, and what of it is no finite number."""
    every = [level for row in levels for level in row]
    kinds = [(label, sum(map(is_one, every))) for label, is_one in _NOT_FINITE]
    broken = listed(f"{count(number)} {label}" for label, number in kinds if number)
    ends = f"from {short_number(scale[0])} (darkest) to {short_number(scale[1])} (lightest)"
    return f"Values of {name_}, {len(levels)} by {len(levels[0])}, {ends}{f'; hatched: {broken}' if broken else ''}"
