"""What is said about the kinds of a tensor, and which colour a stored element has: shared by all renderers."""

from __future__ import annotations

from tensormagic.renderers.basics import theme
from tensormagic.reports import (
    NOT_STORED,
    OUTSIDE,
    Component,
    Fact,
    KindReport,
    StoredGroup,
    StoredList,
    StoredMap,
)
from tensormagic.words import (
    ELLIPSIS,
    TIMES,
    count,
    number_of_bytes,
    plural,
    short_number,
    shortened,
    tuple_text,
)

PREVIEW = 12  # values of a component in one line


def is_large(kind: KindReport) -> bool:
    """Return whether a kind needs room of its own, rather than one line among others."""
    return bool(kind.map or kind.stored or kind.components or kind.placed or len(kind.facts) > 3)


def fact_line(fact: Fact) -> str:
    """Return a fact in one line: ``density 31.2 % (5 of 16 elements)``."""
    return f"{fact.label} {fact.value}" + (f" ({fact.note})" if fact.note else "")


def colour_of(place: int, stored: int) -> str:
    """Return the colour of a stored element by its place among the stored ones: dark first, light last."""
    return theme.offset_colour(place / (stored - 1) if stored > 1 else 0.0)


def cell_title(stored_map: StoredMap, row: int, column: int) -> str:
    """Return what a cell of a map with one cell an element is: ``row 2, column 0: 3, stored 2nd``."""
    where = f"{stored_map.row_name} {row}, {stored_map.column_name} {column}"
    place, number = stored_map.places[row][column], stored_map.counts[row][column]
    if place == OUTSIDE:
        return f"{where}: this {stored_map.row_name} has ended"
    if place == NOT_STORED:
        return f"{where}: not stored"
    text = f": {stored_map.texts[row][column]}" if stored_map.texts else ""
    return f"{where}{text}, " + (f"place {place}" if number == 1 else f"{number} stored values add up")


def map_caption(stored_map: StoredMap) -> str:
    """Return what a map shows: its size, how much one drawn cell stands for, and what was left out."""
    height, width = stored_map.row_count, stored_map.column_count
    rows, columns = plural(height, stored_map.row_name), plural(width, stored_map.column_name)
    parts = [f"{rows} {TIMES} {columns}"]
    if stored_map.row_step * stored_map.column_step > 1:
        parts.append(f"a cell is {count(stored_map.row_step)} {TIMES} {count(stored_map.column_step)}")
    if stored_map.sampled:
        parts.append(f"counted from {count(stored_map.sampled)} of the stored elements")
    if stored_map.title:
        parts.append(stored_map.title)
    return "; ".join(parts)


def most_in_a_cell(stored_map: StoredMap) -> int:
    """Return how many stored elements the fullest drawn cell has."""
    return max((max(row, default=0) for row in stored_map.counts), default=0)


def list_caption(stored: StoredList) -> str:
    """Return how many of the stored elements are listed."""
    if stored.shown < stored.count:
        return f"the first {stored.shown} of {count(stored.count)} stored"
    return f"all {count(stored.count)} stored" if stored.count > 1 else "the only one stored" if stored.count else ""


def group_title(stored: StoredList, group: StoredGroup) -> str:
    """Return which stored elements a row, column or item owns."""
    if group.start >= group.stop:
        return f"{group.label} is empty: {stored.group_name} assigns it no elements"
    return f"{group.label} owns places {group.start} to {group.stop - 1}, says {stored.group_name}"


def empty_groups(stored: StoredList) -> str:
    """Return which groups own no stored element, in words; nothing where all do."""
    empty = [group.label for group in stored.groups if group.start >= group.stop]
    if not empty:
        return ""
    return f"empty: {', '.join(empty[:6])}" + (f", {ELLIPSIS}" if len(empty) > 6 else "")


def component_facts(component: Component) -> str:
    """Return a component's shape, dtype and bytes: ``(5,) int64 40 B``."""
    report = component.report
    size = number_of_bytes(report.nbytes)
    inner = ", ".join(kind.label for kind in report.kinds if kind.label and kind.key != "numpy")
    device = "" if report.device == "cpu" else f" {report.device}"
    return f"{tuple_text(report.shape)} {report.dtype} {size}{device}" + (f", {shortened(inner, 40)}" if inner else "")


def component_values(component: Component) -> str:
    """Return a component's values in one line where there are few; else how many there are, and their range."""
    report = component.report
    grid = report.layout.grid if report.layout else None
    if grid is None or not grid.values:
        return "no values to read" if report.numel else "empty"
    whole = grid.complete and grid.row_count * grid.column_count == report.numel
    if whole and report.numel <= PREVIEW:
        return ", ".join(text for row in grid.values for text in row)
    statistics = report.statistics
    if statistics is None or statistics.minimum is None:
        return plural(report.numel, "value")
    low, high = short_number(statistics.minimum), short_number(statistics.maximum)
    return f"{plural(report.numel, 'value')}, {low} to {high}"
