"""The kinds of a tensor in characters: the matrix of what is stored, the arrays under each other, the components."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.tensor.kind_words import (
    component_facts,
    component_values,
    empty_groups,
    fact_line,
    list_caption,
    map_caption,
    most_in_a_cell,
)
from tensormagic.renderers.tensor.tensor_text_layout import DENSITY, FULL, NOT_READ
from tensormagic.reports import OUTSIDE, Component, KindReport, StoredList, StoredMap, TensorReport
from tensormagic.views.pictures.placement import PlacementGrid
from tensormagic.words import shortened

TEXT = 9  # characters of a value in a cell
SHADES = (NOT_READ, *DENSITY, FULL)


def kind_lines(report: TensorReport, width: int) -> list[str]:
    """Return what a tensor is besides plain memory, a block for each kind; nothing where it is nothing else."""
    blocks = [_kind(kind, width) for kind in report.kinds if kind.label]
    apart = [bool(at) and max(len(block), len(blocks[at - 1])) > 2 for at, block in enumerate(blocks)]
    return [line for block, gap in zip(blocks, apart, strict=True) for line in ([""] if gap else []) + block]


def _kind(kind: KindReport, width: int) -> list[str]:
    lines = textwrap.wrap(
        f"{kind.label}: {kind.summary}",
        width,
        initial_indent=" KIND  ",
        subsequent_indent="   ",
        break_on_hyphens=False,
    )
    facts = "; ".join(fact_line(fact) for fact in kind.facts)
    lines += textwrap.wrap(facts, width, initial_indent="   ", subsequent_indent="   ", break_on_hyphens=False)
    lines += ["", *PlacementGrid(kind.placed).text(width)] if kind.placed is not None else []
    lines += ["", *_map(kind.map)] if kind.map else []
    lines += ["", *_stored(kind.stored, width)] if kind.stored and kind.stored.shown else []
    lines += [wrapped for step in kind.reading for wrapped in textwrap.wrap(step, width - 3, initial_indent="   ",
                                                                           subsequent_indent="     ")]  # fmt: skip
    lines += [""] if kind.components else []
    return lines + [line for component in kind.components for line in _component(component, width)]


def _map(stored_map: StoredMap) -> list[str]:
    return _cells(stored_map) if stored_map.places else _joined(stored_map)


def _cells(stored_map: StoredMap) -> list[str]:
    rows = [[_cell(stored_map, row, column) for column in range(len(stored_map.places[0]))]
            for row in range(len(stored_map.places))]  # fmt: skip
    cell = max(len(text) for row in rows for text in row) + 1
    left = len(str(len(rows) - 1)) + 3
    head = " " * left + "".join(str(at).rjust(cell) for at in range(len(rows[0])))
    body = [str(at).rjust(left) + "".join(text.rjust(cell) for text in row) for at, row in enumerate(rows)]
    return [head, *body, f"   {map_caption(stored_map)}; \u00b7 is not stored"]


def _cell(stored_map: StoredMap, row: int, column: int) -> str:
    place = stored_map.places[row][column]
    if place < 0:
        return " " if place == OUTSIDE else "\u00b7"
    return shortened(stored_map.texts[row][column], TEXT) if stored_map.texts else str(place)


def _joined(stored_map: StoredMap) -> list[str]:
    """Draw joined cells as shades, two rows in one line left out: characters are twice as high as wide."""
    most = most_in_a_cell(stored_map)
    rows = ["   " + "".join(_shade(number, most) * 2 for number in row) for row in stored_map.counts]
    return [*rows, f"   {map_caption(stored_map)}", f"   {''.join(SHADES)} 1 to {most} stored in a cell, \u00b7 none"]


def _shade(number: int, most: int) -> str:
    if not number:
        return "\u00b7"
    return SHADES[min(int(number / (most + 1) * len(SHADES)), len(SHADES) - 1)]


def _stored(stored: StoredList, width: int) -> list[str]:
    names = ["place", *(line.name for line in stored.lines), stored.group_name if stored.groups else ""]
    left = max(map(len, names)) + 4
    columns = [_column(stored, at) for at in range(stored.shown)]
    widths = [max(map(len, column)) + 2 for column in columns]
    fitting = max(sum(sum(widths[: at + 1]) <= width - left for at in range(len(widths))), 1)
    cells = list(zip(columns[:fitting], widths, strict=False))
    lines = [
        "   " + name.ljust(left - 3) + "".join(column[at].rjust(size) for column, size in cells)
        for at, name in enumerate(names[:-1])
    ]
    notes = "; ".join(note for note in (list_caption(stored), empty_groups(stored)) if note)
    return [*lines, *_brackets(stored, widths[:fitting], left), *([f"   {notes}"] if notes else [])]


def _column(stored: StoredList, at: int) -> list[str]:
    return [str(at), *(shortened(line.texts[at], TEXT) for line in stored.lines)]


def _brackets(stored: StoredList, widths: list[int], left: int) -> list[str]:
    """Return the line that says which row, column or item owns which places."""
    owners = [(group, sum(widths[: group.start]), sum(widths[group.start : group.stop])) for group in stored.groups
              if group.start < min(group.stop, len(widths))]  # fmt: skip
    if not owners:
        return []
    line = " " * (left + sum(widths))
    for group, start, size in owners:
        label = group.label if len(group.label) <= size - 3 else group.label.rsplit(" ", 1)[-1]
        label = label if len(label) <= size - 3 else ""
        drawn = " \u2514" + label.center(size - 3, "\u2500") + "\u2518"
        line = line[: left + start] + drawn + line[left + start + size :]
    return ["   " + stored.group_name.ljust(left - 3) + line[left:].rstrip()]


def _component(component: Component, width: int) -> list[str]:
    head = f"   {shortened(component.name, 40)}  {component_facts(component)}  "
    inner = [f"     {kind.label}: {kind.summary}" for kind in component.report.kinds
             if kind.label and kind.key != "numpy"]  # fmt: skip
    text = f"{component.role}: {component_values(component)}"
    return textwrap.wrap(head + text, width, subsequent_indent="     ", break_on_hyphens=False) + inner
