"""What a tensor is made of: which cells are stored, how they lie in memory, and the tensors that it consists of.

Stored elements are coloured by their place in memory, in the matrix and in the arrays alike: the colour is the link
between the two, and needs no script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tensormagic.reports import NOT_STORED, OUTSIDE, Component, KindReport, StoredList, StoredMap
from tensormagic.views import theme
from tensormagic.views.markup import escape, tag
from tensormagic.views.nodes import Picture, clipped
from tensormagic.views.pictures import cells as drawing
from tensormagic.views.pictures.cells import CHARACTER, DENSITY, FULL, LEVELS, NOT_READ, PALETTE, SKIP, Cell, Cells, Row
from tensormagic.views.pictures.tensor_elements import value_range
from tensormagic.views.svg_paths import moved
from tensormagic.views.text_canvas import wrapped
from tensormagic.views.to_html import scroll, with_code
from tensormagic.words import ELLIPSIS, TIMES, count, number_of_bytes, plural, short_number, shortened, tuple_text

_MAP_SIDE, _SMALL_MAP = 232, 96  # pixels along the longer side of a map whose cells are joined, of a component's map
_TEXT = 10  # characters of a value in a cell
_PICTURE_ROWS, _PICTURE_COLUMNS = 6, 12  # cells of a component that are drawn with their numbers
_PREVIEW = 12  # values of a component in one line
_CELL, _MAP_LEFT = 34.0, 28.0  # of the SVG: pixels of a cell at least, of row numbers
_MOST_COLUMNS = 12  # cells beside a map
_SHADES = (NOT_READ, *DENSITY, FULL)
_VOID = "\u00b7"  # in a cell in which nothing is stored
_JOINED = (*PALETTE, SKIP)  # of cells that stand for several


@dataclass(frozen=True, slots=True)
class Stored(Picture):
    """Which cells of a tensor are stored, and how those lie in memory (sparse, nested)."""

    kind: KindReport

    def html(self) -> str:
        """Return map and arrays side by side."""
        stored, stored_map, drawn, arrays = self.kind.stored, self.kind.map, "", ""
        if stored_map is not None:
            if stored_map.places:
                of = stored.count if stored else 1 + max((max(row) for row in stored_map.places), default=0)
                directions = f"{stored_map.row_name} \u2193  {stored_map.column_name} \u2192"
                cells = _map_cells(stored_map, of, stored.example if stored else None)
                drawn = tag("p", escape(directions), class_="quiet tm-corner-names") + cells.html("tm-matrix")
            else:
                most, levels, side = _joined(stored_map)
                joined = drawing.image(levels, side, stored_sentence(stored_map), palette=_JOINED)
                scale = f"1 {drawing.scale_html()} {count(most)} stored in a cell {drawing.swatch(SKIP)} none"
                drawn = tag("div", joined, class_="tm-joined") + tag("p", scale, class_="quiet")
            drawn = tag("div", drawn, _quiet(map_caption(stored_map)), class_="tm-stored-map")
        if stored is not None and stored.shown:
            table = scroll("stored numbers", _list_cells(stored, stored.shown).html("tm-arrays"))
            arrays = tag("div", table, _quiet(_list_caption(stored)), class_="tm-stored-list")
        return tag("div", drawn, arrays, class_="tm-stored")

    def text(self, width: int) -> Iterator[str]:
        """Return the map, then as many places of the arrays as there is room for."""
        stored, stored_map = self.kind.stored, self.kind.map
        if stored_map is not None:
            framed = _map_cells(stored_map, 1).framed(width) if stored_map.places else None
            if framed:
                yield from framed[0].lines()
                yield f"  {map_caption(stored_map)}; {_VOID} is not stored"
            else:  # joined cells as shades, two characters each: they are twice as high as wide
                most = _joined(stored_map)[0]
                for row in stored_map.counts:
                    shades = (_SHADES[found * len(_SHADES) // (most + 1)] if found else _VOID for found in row)
                    yield "  " + "".join(shade * 2 for shade in shades)
                yield f"  {map_caption(stored_map)}"
                yield f"  {''.join(_SHADES)} 1 to {most} stored in a cell, {_VOID} none"
        if stored is not None and stored.shown:
            yield from [""] if stored_map is not None else []
            tries = (_list_cells(stored, shown).framed(width) for shown in range(stored.shown, 0, -1))
            found = next(filter(None, tries), None)
            yield from found[0].lines() if found else ()
            yield from [f"  {caption}"] if (caption := _list_caption(stored)) else []

    def svg(self, width: float) -> tuple[str, float]:
        """Return map and arrays side by side."""
        stored, stored_map, right, bottom, drawn = self.kind.stored, self.kind.map, -24.0, 0.0, ""
        if stored_map is not None:
            if stored_map.places:
                cells = _map_cells(stored_map, stored.count if stored else 1)
                drawn, right, bottom = cells.svg(), cells.right, cells.height
            else:
                _, levels, side = _joined(stored_map)
                drawn = drawing.patches(levels, (0, 0, side, side), palette=_JOINED)
                right, bottom = len(levels[0]) * float(side), len(levels) * float(side)
            lines = wrapped(map_caption(stored_map), 60)
            drawn += "".join(drawing.text(0, bottom + 14 + 17 * at, line, "q") for at, line in enumerate(lines))
            right, bottom = max(right, 200.0), bottom + 17 * len(lines) + 4
        if stored is not None and stored.shown:
            left, cells = right + 24, _list_cells(stored, stored.shown)
            room = width - left - cells.left
            fitting = max(min(stored.shown, int(room // cells.unit), _MOST_COLUMNS), 1)
            cells = _list_cells(stored, fitting)
            caption = _list_caption(replace(stored, shown=fitting))
            caption = shortened(caption, max(int((width - left - cells.left) // 7), 1))
            drawn += moved(left, 0, cells.svg() + drawing.text(cells.left, cells.height + 14, caption, "q"))
            bottom = max(bottom, cells.height + 20)
        return drawing.lettered(drawn), bottom


@dataclass(frozen=True, slots=True)
class Components(Picture):
    """The tensors that a tensor consists of, each with a small picture of its values."""

    components: Sequence[Component]

    def html(self) -> str:
        """Return a card each."""
        cards = []
        for each in self.components:
            title = tag("code", tag("b", escape(clipped(each.name, 60))))
            head = tag("p", title, " ", tag("code", escape(component_facts(each)), class_="quiet"))
            inner = (tag("p", tag("b", escape(kind.label)), " ", with_code(kind.summary)) for kind in _kinds_of(each))
            cards.append(tag("div", head, _quiet(each.role), _values_html(each), *inner, class_="tm-part"))
        return tag("div", *cards, class_="tm-parts")

    def text(self, width: int) -> Iterator[str]:
        """Return a paragraph each."""
        for each in self.components:
            caption = f"{each.role}: {component_values(each)}"
            yield from wrapped(f"{clipped(each.name, 40)}  {component_facts(each)}  {caption}", width, "  ", "    ")
            yield from (f"    {kind.label}: {kind.summary}" for kind in _kinds_of(each))

    def svg(self, width: float) -> tuple[str, float]:
        """Return a line each."""
        drawn = []
        for at, each in enumerate(self.components):
            line = f"{clipped(each.name, 40)}  {component_facts(each)}  {component_values(each)}"
            drawn.append(drawing.text(0, 12 + 17.0 * at, shortened(line, int(width // 7)), "q"))
        return drawing.lettered("".join(drawn)), 17.0 * len(drawn)


def _quiet(words: str) -> str:
    return tag("p", escape(words), class_="quiet") if words else ""


def cell_title(stored_map: StoredMap, row: int, column: int) -> str:
    """Return what a cell of a map with one cell an element is: ``row 2, column 0: 3, stored 2nd``."""
    where = f"{stored_map.row_name} {row}, {stored_map.column_name} {column}"
    place, found = stored_map.places[row][column], stored_map.counts[row][column]
    if place == OUTSIDE:
        return f"{where}: this {stored_map.row_name} has ended"
    if place == NOT_STORED:
        return f"{where}: not stored"
    words = f": {stored_map.texts[row][column]}" if stored_map.texts else ""
    return f"{where}{words}, " + (f"place {place}" if found == 1 else f"{found} stored values add up")


def map_caption(stored_map: StoredMap) -> str:
    """Return what a map shows: its size, how much one drawn cell stands for, and what was left out."""
    height, width = stored_map.row_count, stored_map.column_count
    parts = [f"{plural(height, stored_map.row_name)} {TIMES} {plural(width, stored_map.column_name)}"]
    if stored_map.row_step * stored_map.column_step > 1:
        parts.append(f"a cell is {count(stored_map.row_step)} {TIMES} {count(stored_map.column_step)}")
    if stored_map.sampled:
        parts.append(f"counted from {count(stored_map.sampled)} of the stored elements")
    return "; ".join([*parts, *([stored_map.title] if stored_map.title else [])])


def _joined(stored_map: StoredMap) -> tuple[int, list[list[int]], int]:
    """Return how many stored elements the fullest drawn cell has, the places of counts in `_JOINED`, a cell's pixels.

    Nothing has a colour of its own, one has the darkest.
    """
    counts, most = stored_map.counts, max((max(row, default=0) for row in stored_map.counts), default=0)
    levels = [[round((found - 1) / max(most - 1, 1) * (LEVELS - 1)) if found else LEVELS for found in row]
              for row in counts]  # fmt: skip
    return most, levels, max(_MAP_SIDE // max(len(counts), len(counts[0]) if counts else 0, 1), 3)


def stored_sentence(stored_map: StoredMap) -> str:
    """Return how the stored elements of a sparse tensor lie: how many cells hold some, and where it is fullest."""
    counts = [(found, r, c) for r, row in enumerate(stored_map.counts) for c, found in enumerate(row)]
    most, row, column = max(counts, key=lambda one: one[0], default=(0, 0, 0))
    size = f"{count(stored_map.row_count)} by {count(stored_map.column_count)} places"
    each = f"{stored_map.row_step} by {stored_map.column_step} a cell"
    place = f"{stored_map.row_name} {row * stored_map.row_step}, "
    place += f"{stored_map.column_name} {column * stored_map.column_step}"
    filled = f"{count(sum(found > 0 for found, _, _ in counts))} of {count(len(counts))} cells hold some"
    return f"Stored elements of {size}, {each}: {filled}, {count(most)} the fullest, at {place}."


def _list_caption(stored: StoredList) -> str:
    """Return how many of the stored elements are listed, and which groups own none."""
    caption = {0: "", 1: "the only one stored"}.get(stored.count, f"all {count(stored.count)} stored")
    if stored.shown < stored.count:
        caption = f"the first {stored.shown} of {count(stored.count)} stored"
    empty = [group.label for group in stored.groups if group.start >= group.stop]
    more = f", {ELLIPSIS}" if len(empty) > 6 else ""
    return "; ".join(filter(None, (caption, f"empty: {', '.join(empty[:6])}{more}" if empty else "")))


def component_facts(component: Component) -> str:
    """Return a component's shape, dtype and bytes: ``(5,) int64 40 B``."""
    report = component.report
    inner = ", ".join(kind.label for kind in _kinds_of(component))
    device = "" if report.device == "cpu" else f" {report.device}"
    size = f"{tuple_text(report.shape)} {report.dtype} {number_of_bytes(report.nbytes)}{device}"
    return size + (f", {shortened(inner, 40)}" if inner else "")


def _kinds_of(component: Component) -> list[KindReport]:
    return [kind for kind in component.report.kinds if kind.label and kind.key != "numpy"]


def component_values(component: Component) -> str:
    """Return a component's values in one line where there are few; else how many there are, and their range."""
    report, statistics = component.report, component.report.statistics
    grid = report.layout.grid if report.layout else None
    if grid is None or not grid.values:
        return "no values to read" if report.numel else "empty"
    if grid.complete and grid.row_count * grid.column_count == report.numel <= _PREVIEW:
        return ", ".join(words for row in grid.values for words in row)
    ends = ""
    if statistics is not None and statistics.minimum is not None:
        ends = f", {short_number(statistics.minimum)} to {short_number(statistics.maximum)}"
    return plural(report.numel, "value") + ends


def _map_cells(stored_map: StoredMap, of: int, example: int | None = None) -> Cells:
    """Return a map with one cell an element; ``of``: how many are stored, ``example``: the one worked through."""
    rows = [Row("", [Cell(str(at)) for at in range(len(stored_map.places[0]))], "heads", title="row and column")]
    for row, places in enumerate(stored_map.places):
        cells = []
        for column, place in enumerate(places):
            title = cell_title(stored_map, row, column)
            if place < 0:
                void = Cell(_VOID, SKIP, title, look="tm-void")
                cells.append(Cell(title=title, look="tm-ended") if place == OUTSIDE else void)
            else:
                words = shortened(stored_map.texts[row][column], _TEXT) if stored_map.texts else count(place)
                cells.append(Cell(words, _colour(place, of), title, on=place == example))
        rows.append(Row(str(row), cells))
    return Cells(rows, _MAP_LEFT, _unit(rows))


def _colour(place: int, of: int) -> str:
    return theme.offset_colour(drawing.fraction(place, 0, of - 1))


def _unit(rows: Sequence[Row]) -> float:
    """Return how many pixels of the SVG a column takes."""
    widest = max((len(each.text) for row in rows if row.kind != "brackets" for each in row.cells), default=0)
    return max(_CELL, widest * CHARACTER + 8)


def _list_cells(stored: StoredList, shown: int) -> Cells:
    """Return the arrays, the last one coloured, between the places and the brackets of who owns them."""
    rows = [Row("place", [Cell(str(at)) for at in range(shown)], "heads", "tm-places")]
    for line in stored.lines:
        last = line is stored.lines[-1]
        cells = [Cell(shortened(words, _TEXT), _colour(place, stored.count) if last else "",
                      f"{line.name}[{place}] = {words}", on=last and place == stored.example)
                 for place, words in enumerate(line.texts[:shown])]  # fmt: skip
        rows.append(Row(line.name, cells))
    owners, at = list[Cell](), 0
    for group in sorted(stored.groups, key=lambda one: one.start):
        stop = min(group.stop, shown)
        if stop <= group.start or group.start < at:
            continue
        if group.start > at:
            owners.append(Cell(title="not owned by any item: a hole", span=group.start - at, look="tm-hole"))
        title = f"{group.label} owns places {group.start} to {group.stop - 1}, says {stored.group_name}"
        owners.append(Cell(group.label, title=title, span=stop - group.start))
        at = stop
    rows += [Row(stored.group_name, owners, "brackets", "tm-rows")] if owners else []
    left = 7 * max(len(name) for name in (*(line.name for line in stored.lines), stored.group_name)) + 10
    return Cells(rows, left, _unit(rows))


def _values_html(component: Component) -> str:
    """Return its values as a table where they are few, else as a small map; without values how many there are."""
    report = component.report
    grid = report.layout.grid if report.layout else None
    if grid is not None and grid.values and len(grid.rows) <= _PICTURE_ROWS and len(grid.columns) <= _PICTURE_COLUMNS:
        title = clipped(component.name, 60)
        fields = ((tag("td", escape(shortened(words, _TEXT)), title=title) for words in row) for row in grid.values)
        whole = grid.row_count * grid.column_count >= report.numel
        rest = "" if whole else f"the first of {count(report.numel)} values"
        return tag("table", *(tag("tr", *row) for row in fields), class_="tm-cells tm-plain") + _quiet(rest)
    scale, drawn = value_range(grid, None) if grid is not None and grid.values else None, ""
    if grid is not None and scale is not None:
        cells = drawing.steps(grid.levels, scale)
        size = max(_SMALL_MAP // max(len(cells), len(cells[0])), 3) if len(cells) > 1 else 8
        drawn = tag("div", drawing.image(cells, size, values_sentence(component, scale)), class_="tm-joined")
    return drawn + _quiet(component_values(component))


def values_sentence(component: Component, scale: tuple[float, float]) -> str:
    """Return the range of a component's values, and what of it is no finite number."""
    assert component.report.layout is not None
    levels = component.report.layout.grid.levels
    bad = drawing.broken(component.report.layout.grid)
    size = f"{len(levels)} by {len(levels[0])}"
    return f"Values of {component.name}, {size}, {drawing.ends(scale)}{f'; hatched: {bad}' if bad else ''}"
