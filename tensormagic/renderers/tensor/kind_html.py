"""The kinds of a tensor as HTML: which cells are stored, how they lie in memory, and the tensors it is made of.

Stored elements are coloured by their place in memory, in the matrix and in the arrays alike: the colour is the link
between the two, and needs no script.
"""

from __future__ import annotations

from tensormagic.renderers.alternatives.tensor_alternative import component_alternative, stored_alternative
from tensormagic.renderers.basics import svg_paths, theme
from tensormagic.renderers.basics.markup import corner, escape, tag
from tensormagic.renderers.basics.panel import scroll, with_code
from tensormagic.renderers.tensor.kind_words import (
    cell_title,
    colour_of,
    component_facts,
    component_values,
    empty_groups,
    fact_line,
    group_title,
    is_large,
    list_caption,
    map_caption,
    most_in_a_cell,
)
from tensormagic.renderers.tensor.tensor_maps import PALETTE, value_cells
from tensormagic.renderers.tensor.tensor_picture import LEVELS, value_range
from tensormagic.reports import (
    OUTSIDE,
    Component,
    Fact,
    KindReport,
    StoredGroup,
    StoredList,
    StoredMap,
    TensorReport,
)
from tensormagic.views.pictures.placement import PlacementGrid
from tensormagic.words import count, shortened

VOID = theme.role("skip")  # the colour of a cell in which nothing is stored
MAP_SIDE = 232  # pixels along the longer side of a map whose cells are joined
TEXT = 10  # characters of a value in a cell
NOTE = 150  # characters of a fact's note
PICTURE_ROWS, PICTURE_COLUMNS = 6, 12  # cells of a component that are drawn with their numbers
SMALL_MAP = 96  # pixels along a component's map


def kinds_html(report: TensorReport) -> str:
    """Return what a tensor is besides plain memory; nothing where it is nothing else."""
    kinds = [kind for kind in report.kinds if kind.label]
    if not kinds:
        return ""
    large = [_large(kind) for kind in kinds if is_large(kind)]
    small = [_small(kind) for kind in kinds if not is_large(kind)]
    lines = tag("div", *small, class_="tm-roles") if small else ""
    return tag("div", *large, lines, class_="tm-section tm-kinds")


def _small(kind: KindReport) -> str:
    facts = "; ".join(fact_line(fact) for fact in kind.facts)
    more = tag("span", " ", escape(facts), class_="quiet") if facts else ""
    return tag("p", tag("b", escape(shortened(kind.label, 40))), " ", with_code(kind.summary), more)


def _large(kind: KindReport) -> str:
    head = tag("p", tag("b", escape(shortened(kind.label, 60))), " ", with_code(kind.summary), class_="tm-kind-head")
    pictures = [part for part in (_map(kind), _stored(kind)) if part]
    body = tag("div", *pictures, class_="tm-stored") if pictures else ""
    reading = "" if kind.stored else _reading(kind)
    placed = PlacementGrid(kind.placed).html() if kind.placed is not None else ""
    return tag("div", head, body, _facts(kind.facts), placed, reading, _components(kind), class_="tm-kind")


def _reading(kind: KindReport) -> str:
    return "".join(tag("p", escape(line)) for line in kind.reading)


def _facts(facts: tuple[Fact, ...]) -> str:
    if not facts:
        return ""
    return tag("dl", *(_fact(fact) for fact in facts), class_="tm-facts")


def _fact(fact: Fact) -> str:
    value = tag("b", escape(shortened(fact.value, 120)))
    note = tag("span", " ", escape(shortened(fact.note, NOTE)), class_="quiet") if fact.note else ""
    return tag("div", tag("dt", escape(fact.label)), " ", tag("dd", value, " ", note))


# -- which cells are stored ---------------------------------------------------------------------------------------


def _map(kind: KindReport) -> str:
    stored_map = kind.map
    if stored_map is None:
        return ""
    of = kind.stored.count if kind.stored else 1 + max((max(row) for row in stored_map.places), default=0)
    picture = _cells(stored_map, of, kind.stored) if stored_map.places else _joined_cells(stored_map)
    return tag("div", picture, tag("p", escape(map_caption(stored_map)), class_="quiet"), class_="tm-stored-map")


def _cells(stored_map: StoredMap, of: int, stored: StoredList | None) -> str:
    example = stored.example if stored else None
    width = len(stored_map.places[0])
    head = tag("tr", corner("row and column"), *(tag("th", str(column)) for column in range(width)))
    rows = [
        tag("tr", tag("th", str(row)), *(_cell(stored_map, (row, column), of, example) for column in range(width)))
        for row in range(len(stored_map.places))
    ]
    directions = f"{stored_map.row_name} \u2193  {stored_map.column_name} \u2192"
    table = tag("table", head, *rows, class_="tm-cells tm-matrix")
    return tag("p", escape(directions), class_="quiet tm-corner-names") + table


def _cell(stored_map: StoredMap, at: tuple[int, int], of: int, example: int | None) -> str:
    row, column = at
    place, title = stored_map.places[row][column], cell_title(stored_map, row, column)
    if place == OUTSIDE:
        return tag("td", class_="tm-ended", title=title)
    if place < 0:
        return tag(
            "td", "\u00b7", class_="tm-void", style=f"background-color:{VOID};color:{theme.role('ink-2')}", title=title
        )
    text = stored_map.texts[row][column] if stored_map.texts else ""
    return _coloured(text or count(place), colour_of(place, of), title=title, on=place == example)


def _coloured(text: str, colour: str, *, title: str, on: bool = False) -> str:
    style = f"background-color:{colour};color:{theme.ink_on(colour)}"
    return tag("td", escape(shortened(text, TEXT)), class_="tm-on" if on else None, style=style, title=title)


def _joined_cells(stored_map: StoredMap) -> str:
    most = most_in_a_cell(stored_map)
    height, width = len(stored_map.counts), len(stored_map.counts[0])
    size = max(MAP_SIDE // max(height, width), 3)
    cells = [[_level(number, most) for number in row] for row in stored_map.counts]
    source = svg_paths.heatmap(cells, (*PALETTE, VOID), size=size)
    alt = escape(stored_alternative(stored_map))
    image = f'<img src="{source}" width="{width * size}" height="{height * size}" alt="{alt}">'
    bar = svg_paths.heatmap([list(range(LEVELS))], PALETTE, size=5)
    scale = f'<img src="{bar}" width="{5 * LEVELS}" height="10" alt="dark to light">'
    swatch = tag("span", "&nbsp;" * 3, class_="tm-swatch", style=f"background-color:{VOID}")
    legend = tag("p", "1 ", scale, escape(f" {count(most)} stored in a cell "), swatch, " none", class_="quiet")
    return tag("div", image, class_="tm-joined") + legend


def _level(number: int, most: int) -> int:
    """Return the place of a count in the palette: nothing has a colour of its own, one has the darkest."""
    if not number:
        return LEVELS
    return round((number - 1) / (most - 1) * (LEVELS - 1)) if most > 1 else 0


# -- how they lie in memory ---------------------------------------------------------------------------------------


def _stored(kind: KindReport) -> str:
    stored = kind.stored
    if stored is None or not stored.shown:
        return ""
    lines = [_line(stored, at) for at in range(len(stored.lines))]
    head = tag("tr", tag("th", "place"), *(tag("td", str(at)) for at in range(stored.shown)), class_="tm-places")
    table = tag("table", head, *lines, _group_row(stored), class_="tm-cells tm-arrays")
    notes = "; ".join(note for note in (list_caption(stored), empty_groups(stored)) if note)
    caption = tag("p", escape(notes), class_="quiet") if notes else ""
    return tag("div", scroll("stored numbers", table), caption, _reading(kind), class_="tm-stored-list")


def _line(stored: StoredList, at: int) -> str:
    line, last = stored.lines[at], at == len(stored.lines) - 1
    if last:
        cells = (_coloured(text, colour_of(place, stored.count), title=f"{line.name}[{place}] = {text}",
                           on=place == stored.example) for place, text in enumerate(line.texts))  # fmt: skip
    else:
        cells = (tag("td", escape(shortened(text, TEXT)), title=f"{line.name}[{place}] = {text}")
                 for place, text in enumerate(line.texts))  # fmt: skip
    return tag("tr", tag("th", escape(line.name)), *cells)


def _group_row(stored: StoredList) -> str:
    """Return brackets under the places that one row, column or item owns; places that nobody owns stay bare."""
    cells, at = [], 0
    for group in sorted(stored.groups, key=lambda one: one.start):
        if group.stop <= group.start or group.start < at:
            continue
        if group.start > at:
            cells.append(tag("td", class_="tm-hole", colspan=group.start - at, title="not owned by any item: a hole"))
        cells.append(_bracket(stored, group))
        at = group.stop
    return tag("tr", tag("th", escape(stored.group_name)), *cells, class_="tm-rows") if cells else ""


def _bracket(stored: StoredList, group: StoredGroup) -> str:
    return tag("td", escape(group.label), colspan=group.stop - group.start, title=group_title(stored, group))


# -- what it is made of -------------------------------------------------------------------------------------------


def _components(kind: KindReport) -> str:
    if not kind.components:
        return ""
    return tag("div", *(_component(component) for component in kind.components), class_="tm-parts")


def _component(component: Component) -> str:
    head = tag("p", tag("code", tag("b", escape(shortened(component.name, 60)))), " ",
               tag("code", escape(component_facts(component)), class_="quiet"))  # fmt: skip
    role = tag("p", escape(component.role), class_="quiet")
    kinds = (kind for kind in component.report.kinds if kind.label and kind.key != "numpy")
    inner = "".join(tag("p", tag("b", escape(kind.label)), " ", with_code(kind.summary)) for kind in kinds)
    return tag("div", head, role, _component_picture(component), inner, class_="tm-part")


def _component_picture(component: Component) -> str:
    report = component.report
    grid = report.layout.grid if report.layout else None
    if grid is None or not grid.values:
        return tag("p", escape(component_values(component)), class_="quiet")
    if len(grid.rows) > PICTURE_ROWS or len(grid.columns) > PICTURE_COLUMNS:
        return _component_map(component)
    rows = [tag("tr", *(_component_cell(text, component.name) for text in row)) for row in grid.values]
    table = tag("table", *rows, class_="tm-cells tm-plain")
    more = grid.row_count * grid.column_count < report.numel
    return table + (tag("p", escape(f"the first of {count(report.numel)} values"), class_="quiet") if more else "")


def _component_cell(text: str, name: str) -> str:
    return tag("td", escape(shortened(text, TEXT)), title=shortened(name, 60))


def _component_map(component: Component) -> str:
    report = component.report
    assert report.layout is not None
    grid, scale = report.layout.grid, value_range(report.layout.grid, None)
    values = tag("p", escape(component_values(component)), class_="quiet")
    if scale is None:
        return values
    cells = value_cells(grid, scale)
    size = max(SMALL_MAP // max(len(cells), len(cells[0])), 3) if len(cells) > 1 else 8
    source = svg_paths.heatmap(cells, PALETTE, size=size)
    width, height = len(cells[0]) * size, len(cells) * size
    sentence = escape(component_alternative(component.name, grid.levels, scale))
    image = f'<img src="{source}" width="{width}" height="{height}" alt="{sentence}">'
    return tag("div", image, class_="tm-joined") + values
