"""Memory as a map of boxes, with their labels: in HTML, SVG and text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape, fitted, tag, text_width
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import ink_on, role
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.text_bars import barred
from tensormagic.views.pictures.timeline_stack import COLOURS, LETTERS, PLURALS
from tensormagic.views.pictures.treemap_layout import (
    ELSEWHERE,
    LEFT_OUT,
    MOST_CELLS,
    Box,
    Cell,
    Group,
    Tile,
    Treemap,
    treemap,
)
from tensormagic.views.svg_page import one_line, text_svg
from tensormagic.words import count, listed, number_of_bytes, percent, plural, shortened

# What is written on a rectangle: as much of a name as has room, and the part that tells the most.
#
# ``blocks.0.mlp.up.weight.grad`` on an orange cell need not say that it is a gradient, nor that it is a weight: it
# may be written ``blocks.0.mlp.up``, ``0.mlp.up`` or ``mlp.up``. Where not even that has room, the bytes stand alone.

SIZE = 12.0  # pixels of the letters
HEADER = 18.0  # pixels of the strip with a group's name
LINE = 15.0
PADDING = 10.0
_STATE = re.compile(r"(?:^|.*\.)state\[(?P<path>.+)\]\['(?P<key>\w+)'\]$")
_ENDING = re.compile(r"(?:\.weight)?(?:\.grad)?$|Backward\d*$")
_AFTER = re.compile(r"[:,]")
_SHORTEST = 3
_SURE = 0.9  # of the width that is counted with: a notebook's cell may be a little narrower
_NARROW = 48.0  # pixels of a name below which the bytes are left out


def has_header(group: Group) -> bool:
    """Say whether a group is worth a header, and has the room for one."""
    return len(group.cells) > 1 and group.label != ELSEWHERE and group.box.width >= 64 and group.box.height >= 44


def is_lowered(cell: Cell, group: Group) -> bool:
    """Say whether the header of its group lies over the top of a cell."""
    return has_header(group) and cell.box.y < group.box.y + HEADER


def cell_lines(cell: Cell, group: Group) -> list[str]:
    """Return what is written on a cell: its name, below it its bytes; one of both, or nothing, where room is short."""
    wide = cell.box.width * _SURE - PADDING
    rows = int((cell.box.height - (HEADER if is_lowered(cell, group) else 0) - 2) // LINE)
    words = (
        next((label for label in _labels(cell, group) if _fits(label, wide)), ""),
        number_of_bytes(cell.tile.nbytes),
    )
    return [word for word in words if word and _fits(word, wide)][: max(rows, 0)]


def header_words(group: Group) -> list[str]:
    """Return what stands in a header: the group's name (of a line of code, where room is short, its number), bytes."""
    nbytes = number_of_bytes(group.nbytes)
    short, room = group.label.partition("  ")[0], group.box.width * _SURE - PADDING
    beside = room - text_width(nbytes, SIZE, bold=True) - PADDING
    for label in (group.label, short, short.removeprefix("graph of ")):
        if text_width(label, SIZE, bold=True) <= beside:
            return [label, nbytes]
    short = short.removeprefix("graph of ")
    name = fitted(short, max(beside, _NARROW), SIZE, bold=True)
    return [name, nbytes] if beside >= _NARROW else [fitted(short, room, SIZE, bold=True)]


def _fits(text: str, room: float) -> bool:
    return text_width(text, SIZE) <= room


def _labels(cell: Cell, group: Group) -> Iterator[str]:
    """Return how a cell may be called, the longest first."""
    tile = cell.tile
    if tile.count > 1:
        without_larger = all(other.tile.count > 1 for other in group.cells) and group.label not in {ELSEWHERE, LEFT_OUT}
        words = plural(tile.count, "storage") if without_larger else tile.label
        yield from (words,) if has_header(group) or not group.label else (f"{group.label}: {words}", group.label, words)
        return
    if not has_header(group):
        yield tile.title.split("\n", maxsplit=1)[0] or tile.label
    yield from _shorter(tile.label)


def _shorter(name: str) -> Iterator[str]:
    """Return shorter and shorter forms of a path."""
    yield name
    found = _STATE.match(name)
    if found:
        tails = list(_shorter(found["path"]))
        yield from (f"{tail} {found['key']}" for tail in tails)
        yield from tails
        return
    path = _ENDING.sub("", _AFTER.split(name, maxsplit=1)[0])
    parts = path.split(".")
    yield from (
        ".".join(parts[at:]) for at in range(len(parts)) if len(".".join(parts[at:])) >= min(_SHORTEST, len(path))
    )


# A treemap: what is alive, each storage an area; in a terminal the same by name, as bars.
#
# As HTML its boxes are placed in per cent, so that it fits any width, takes the theme, and needs no script; where a
# host strips styles, the same markup reads as a list of names with their bytes.

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
    title = "\n".join(map(one_line, shortened_title(cell).splitlines()))
    shape = (
        f'<rect x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" height="{number(box.height)}" '
        f'fill="{ground}" stroke="{role("bg")}"><title>{escape(title)}</title></rect>'
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
