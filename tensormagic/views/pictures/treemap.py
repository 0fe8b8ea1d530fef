"""A treemap: what is alive, each storage an area; in a terminal the same by name, as bars.

As HTML its boxes are placed in per cent, so that it fits any width, takes the theme, and needs no script; where a host
strips styles, the same markup reads as a list of names with their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import ink_on, role
from tensormagic.renderers.trace.trace_text_lines import printable
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.categories import COLOURS, LETTERS, PLURALS
from tensormagic.views.pictures.cell_labels import (
    HEADER,
    LINE,
    SIZE,
    cell_lines,
    has_header,
    header_words,
    is_lowered,
)
from tensormagic.views.pictures.squarify import Box
from tensormagic.views.pictures.text_bars import barred
from tensormagic.views.pictures.treemap_layout import (
    ELSEWHERE,
    LEFT_OUT,
    MOST_CELLS,
    Cell,
    Group,
    Tile,
    Treemap,
    treemap,
)
from tensormagic.views.svg_page import text_svg
from tensormagic.words import count, listed, number_of_bytes, percent, plural, shortened

WIDTH = 932.0  # pixels inside of a panel of full width
HIGHER = 7 / 3  # times as high as in a page is it in a file of its own
MOST_NAMES = 12  # in a terminal
_TITLE = 160
NAME, MOST = 60, 4  # characters of a name, items that are named in words


@dataclass(frozen=True, slots=True)
class TreemapPicture(Picture):
    """A treemap of what is alive (memory, a run's memory, snapshots).

    Attributes:
        tiles: What it shows.
        what: That it shows: ``"what is alive on cpu"``.
        height: In a page, in pixels.
        most: So many storages have a cell of their own.
    """

    tiles: Sequence[Tile]
    what: str
    height: float
    most: int = MOST_CELLS

    @property
    def sentence(self) -> str:
        """How much is drawn, what it is by category, and the largest items."""
        return treemap_alternative(self.tiles, self.what)

    def html(self) -> str:
        """Return it as boxes for a container of whatever width."""
        map_ = treemap(self.tiles, WIDTH, self.height, most=self.most)
        inner = " ".join(_group(group, map_) for group in map_.groups)
        height = f"height:{map_.height:.0f}px"
        return tag("div", inner, class_="tm-map", style=height, role="img", aria_label=self.sentence)

    def text(self, width: int) -> Iterator[str]:
        """Return it by name: bytes as bars, and what they are of."""
        groups: dict[str, list[Tile]] = {}
        for tile in self.tiles:
            groups.setdefault(tile.group, []).append(tile)
        ranked = sorted(groups.items(), key=lambda item: -_bytes(item[1]))
        yield f"  by name, of {number_of_bytes(_bytes(self.tiles))}"
        yield from barred([_name_row(name, inner) for name, inner in ranked[:MOST_NAMES]], width)
        if rest := [tile for _, inner in ranked[MOST_NAMES:] for tile in inner]:
            yield f"  and {plural(len(ranked) - MOST_NAMES, 'more name')}, {number_of_bytes(_bytes(rest))}"

    def svg(self, width: float) -> tuple[str, float]:
        """Return it as rectangles, higher than in a page."""
        map_ = treemap(self.tiles, width, self.height * HIGHER, most=self.most)
        return "".join(map(_group_svg, map_.groups)), map_.height


def _name_row(name: str, inner: Sequence[Tile]) -> tuple[str, int, tuple[str, ...]]:
    kinds = dict.fromkeys(PLURALS[tile.category] for tile in sorted(inner, key=lambda tile: -tile.nbytes))
    storages = plural(sum(tile.count for tile in inner), "storage")
    return name, _bytes(inner), (number_of_bytes(_bytes(inner)), storages, listed(kinds, most=3))


def _bytes(tiles: Sequence[Tile]) -> int:
    return sum(tile.nbytes for tile in tiles)


# -- words -----------------------------------------------------------------------------------------------------------


def treemap_alternative(tiles: Sequence[Tile], what: str) -> str:
    """Return how much is drawn, what it is by category, and the largest items: ``net.fc.weight 4 MiB (47 %)``."""
    total = sum(tile.nbytes for tile in tiles)
    if not total:
        return f"Treemap of {what}: nothing"
    kinds = [
        f"{PLURALS[kind]} {percent(nbytes, total)}" for kind, nbytes in _largest(tiles, lambda tile: tile.category)
    ]
    items = _largest([tile for tile in tiles if tile.group != LEFT_OUT], _called)
    named = ", ".join(f"{name} {number_of_bytes(nbytes)} ({percent(nbytes, total)})" for name, nbytes in items)
    names = {name for name, _ in items}
    rest = sum(tile.count for tile in tiles if tile.group == LEFT_OUT or _called(tile) not in names)
    more = f"{' and ' if named else ''}{count(rest)} smaller" if rest else ""
    parts = f": {', '.join(kinds)}" if len(kinds) > 1 else ""
    return f"Treemap of {what}, {number_of_bytes(total)}{parts}. Largest: {named}{more}."


def _largest(tiles: Sequence[Tile], key: Callable[[Tile], str]) -> list[tuple[str, int]]:
    """Return what has the most bytes of all that ``key`` calls alike."""
    totals: dict[str, int] = {}
    for tile in tiles:
        totals[key(tile)] = totals.get(key(tile), 0) + tile.nbytes
    return sorted(((name, nbytes) for name, nbytes in totals.items() if nbytes), key=lambda pair: -pair[1])[:MOST]


def _called(tile: Tile) -> str:
    """Return a tile with the group it lies in, as the picture shows it: ``fc.weight in net``."""
    label, group = shortened(tile.label, NAME), shortened(tile.group, NAME)
    return f"{label} in {group}" if label and tile.group not in {ELSEWHERE, tile.label} else label or group


# -- HTML ------------------------------------------------------------------------------------------------------------


def _group(group: Group, map_: Treemap) -> str:
    cells = " ".join(_cell(cell, group, map_) for cell in group.cells)
    if not has_header(group):
        return cells
    return cells + " " + tag("span", _header(group), class_="tm-mh", style=_place(group.box, map_, high=False))


def _header(group: Group) -> str:
    name, *nbytes = header_words(group)
    return " ".join([tag("b", escape(name)), *(tag("i", words) for words in nbytes)])


def _cell(cell: Cell, group: Group, map_: Treemap) -> str:
    classes = f"tm-c{LETTERS[cell.tile.category]}{' tm-low' if is_lowered(cell, group) else ''}"
    words = cell_lines(cell, group)
    text = " ".join(escape(word) if at == 0 else tag("i", escape(word)) for at, word in enumerate(words))
    return tag("span", text, class_=classes, style=_place(cell.box, map_), title=shortened_title(cell))


def shortened_title(cell: Cell) -> str:
    """Return what pointing at a cell shows, each line at most so long."""
    tile = cell.tile
    if not tile.title:
        return f"{tile.label}, {number_of_bytes(tile.nbytes)}, {tile.category}"
    return "\n".join(shortened(line, _TITLE) for line in tile.title.split("\n"))


def _place(box: Box, map_: Treemap, *, high: bool = True) -> str:
    numbers = [("left", box.x / map_.width), ("top", box.y / map_.height), ("width", box.width / map_.width)]
    numbers += [("height", box.height / map_.height)] if high else []
    return ";".join(f"{name}:{_per_cent(value)}" for name, value in numbers)


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


# -- SVG -------------------------------------------------------------------------------------------------------------


def _group_svg(group: Group) -> str:
    cells = "".join(_cell_svg(cell, group) for cell in group.cells)
    return cells + (_header_svg(group) if has_header(group) else "")


def _cell_svg(cell: Cell, group: Group) -> str:
    box, ground = cell.box, COLOURS[cell.tile.category]
    shape = (
        f'<rect x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" height="{number(box.height)}" '
        f'fill="{ground}" stroke="{role("bg")}"><title>{escape(printable(shortened_title(cell)))}</title></rect>'
    )
    top = box.y + (HEADER if is_lowered(cell, group) else 0) + SIZE + 1
    words = enumerate(cell_lines(cell, group))
    return shape + "".join(
        text_svg(box.x + 4, top + at * LINE, word, size=SIZE, ink=ink_on(ground)) for at, word in words
    )


def _header_svg(group: Group) -> str:
    box, (name, *nbytes) = group.box, header_words(group)
    place = f'x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" height="{HEADER:.0f}"'
    ground = f'<rect {place} fill="{role("cap")}"/>'
    left = text_svg(box.x + 4, box.y + 13, name, size=SIZE, bold=True, ink=role("on-cap"))
    right = (
        text_svg(box.x + box.width - 4, box.y + 13, each, size=SIZE, anchor="end", ink=role("on-cap"))
        for each in nbytes
    )
    return ground + left + "".join(right)
