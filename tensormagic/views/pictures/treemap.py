"""Memory as a map of boxes, with their labels: in HTML, SVG and text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter

from tensormagic.views import to_text
from tensormagic.views.markup import escape, fitted, tag, text_width
from tensormagic.views.nodes import Bar, Column, Picture, Table
from tensormagic.views.svg_paths import rect
from tensormagic.views.theme import CATEGORY_COLOURS, CATEGORY_LETTERS, CATEGORY_WORDS, MIXED, ink_on, role
from tensormagic.views.to_svg import one_line, text_svg
from tensormagic.words import count, listed, number_of_bytes, percent, plural, shortened

# Divides a rectangle among numbers, so that each piece has its share of the area and is nearly a square.
#
# The algorithm is that of Bruls, Huizing and van Wijk ("Squarified Treemaps", 2000): pieces are laid in rows along
# the shorter side of what is left, and a row takes one more piece as long as its worst piece becomes no longer by it.


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, its corner at the top left."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        """Width times height."""
        return self.width * self.height


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Return a rectangle for each size, in their order; together they fill ``box``.

    Args:
        sizes: None negative. Sorted from the largest to the smallest the pieces come nearest to squares.
        box: What is divided; a size has the share of its area that it has of the sum.
    """
    total = sum(sizes)
    if total <= 0 or box.area <= 0:
        return [Box(box.x, box.y, 0.0, 0.0) for _ in sizes]
    areas = [size * (box.area / total) for size in sizes]
    placed: list[Box] = []
    while len(placed) < len(areas):
        upright = box.width >= box.height  # a row lies along the shorter side of what is left
        side, across = (box.height, box.width) if upright else (box.width, box.height)
        rest, end = areas[len(placed) :], 1
        while end < len(rest) and _longest(rest[: end + 1], side) <= _longest(rest[:end], side):
            end += 1
        total, at = sum(rest[:end]), 0.0
        thick = across if end == len(rest) or side <= 0 else min(total / side, across)
        for area in rest[:end]:
            long = side * area / total if total > 0 else 0.0
            placed.append(Box(box.x, box.y + at, thick, long) if upright else Box(box.x + at, box.y, long, thick))
            at += long
        box = (Box(box.x + thick, box.y, box.width - thick, box.height) if upright
               else Box(box.x, box.y + thick, box.width, box.height - thick))  # fmt: skip
    return placed


def _longest(row: Sequence[float], side: float) -> float:
    """Return the ratio of the sides of the longest piece of a row along ``side``."""
    total, least = sum(row), min(row)
    sided = least > 0 and side > 0
    return max(side * side * max(row) / (total * total), total * total / (side * side * least)) if sided else inf


# Three levels: groups (the name a user would begin with, or a line of code), categories inside of a group, storages
# inside of a category. Nothing takes area but bytes: headers and gaps are drawn onto the rectangles, so that two
# equal areas are equal amounts of memory wherever they lie.

MOST_CELLS = 300
SMALLEST = 36.0  # square pixels of a rectangle of its own
ELSEWHERE = ""  # the group of what is small and scattered
LEFT_OUT = "not listed"  # the group of what the report itself sums up
_GROUP: Callable[[Tile], str] = attrgetter("group")
_KIND: Callable[[Tile], str] = attrgetter("category")


@dataclass(frozen=True, slots=True)
class Tile:
    """What a rectangle stands for."""

    group: str  # What it lies in.
    label: str  # What is written on it, where there is room.
    category: str  # Of its memory: decides its colour.
    nbytes: int  # Its area.
    title: str = ""  # All that is known of it, in a few lines.
    count: int = 1  # How many storages it stands for.


@dataclass(frozen=True, slots=True)
class Cell:
    """A tile in its place."""

    box: Box
    tile: Tile


@dataclass(frozen=True, slots=True)
class Group:
    """The cells of one group, and the rectangle that they fill."""

    box: Box
    label: str
    cells: tuple[Cell, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all its cells."""
        return sum(cell.tile.nbytes for cell in self.cells)


def treemap(tiles: Iterable[Tile], whole: Box, *, most: int = MOST_CELLS) -> list[Group]:
    """Return the tiles in their places, which fill ``whole``; those too small, or beyond the largest, are together."""

    def laid(groups: dict[str, list[Tile]], box: Box) -> Iterator[tuple[Box, str, list[Tile]]]:  # the largest first
        ranked = sorted(groups.items(), key=lambda item: (-bytes_of(item[1]), item[0]))
        boxes = squarify([bytes_of(alike) for _, alike in ranked], box)
        return ((place, *item) for place, item in zip(boxes, ranked, strict=True))

    placed = []
    drawn = _drawable([tile for tile in tiles if tile.nbytes > 0], whole.area, most)
    for box, label, inner in laid(grouped(drawn, _GROUP), whole):
        cells: list[Cell] = []
        for area, _, same in laid(grouped(inner, _KIND), box):
            ranked = sorted(same, key=lambda tile: (-tile.nbytes, tile.label))
            cells += map(Cell, squarify([tile.nbytes for tile in ranked], area), ranked)
        placed.append(Group(box, label, tuple(cells)))
    return placed


def grouped(tiles: Iterable[Tile], key: Callable[[Tile], str]) -> dict[str, list[Tile]]:
    """Return the tiles that ``key`` calls alike, in their order."""
    groups: dict[str, list[Tile]] = {}
    for tile in tiles:
        groups.setdefault(key(tile), []).append(tile)
    return groups


def _drawable(tiles: Sequence[Tile], area: float, most: int) -> list[Tile]:
    """Return tiles of which each is large enough; the small are joined with others of their group, then of their kind.

    What is still too small is one tile of several kinds, however small that is.
    """

    def joined(alike: Sequence[Tile], where: str) -> Tile:
        number = sum(tile.count for tile in alike)
        one = Tile(where, f"{count(number)} smaller", alike[0].category, bytes_of(alike), "", number)
        return alike[0] if len(alike) == 1 and where == alike[0].group else one

    least = SMALLEST * bytes_of(tiles) / area if area > 0 else 0.0
    ranked = sorted(tiles, key=lambda tile: -tile.nbytes)
    drawn = [tile for tile in ranked[:most] if tile.nbytes >= least]
    rest: list[Tile] = ranked[len(drawn) :]
    for where in (_GROUP, lambda _: ELSEWHERE):
        groups: dict[tuple[str, str], list[Tile]] = {}
        for tile in rest:
            groups.setdefault((tile.category, where(tile)), []).append(tile)
        rest = []
        for (_, group), same in groups.items():
            one = joined(same, group)
            drawn += [one] if one.nbytes >= least else []
            rest += same if one.nbytes < least else []
    return drawn + ([replace(joined(rest, ELSEWHERE), category=MIXED)] if rest else [])


def bytes_of(tiles: Iterable[Tile]) -> int:
    """Return how many bytes tiles stand for."""
    return sum(tile.nbytes for tile in tiles)


# What is written on a rectangle: as much of a name as has room, and of it the part that differs.
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
    labels = (label.split("\n") for label in _labels(cell, group) if label.count("\n") < rows)
    fitting = next((lines for lines in labels if all(text_width(line, SIZE) <= wide for line in lines)), [])
    nbytes = number_of_bytes(cell.tile.nbytes)
    fitting += [nbytes] if text_width(nbytes, SIZE) <= wide else []
    return [word for word in fitting if word][: max(rows, 0)]


def header_words(group: Group) -> list[str]:
    """Return what is in a header: the group's name (of a line of code, where room is short, its number), bytes."""
    nbytes = number_of_bytes(group.nbytes)
    room = group.box.width * _SURE - PADDING
    beside = room - text_width(nbytes, SIZE, bold=True) - PADDING
    short = group.label.partition("  ")[0]
    last = short.removeprefix("graph of ")
    name = next((each for each in (group.label, short) if text_width(each, SIZE, bold=True) <= beside), last)
    if text_width(name, SIZE, bold=True) > beside and beside < _NARROW:
        return [fitted(name, room, SIZE, bold=True)]
    return [fitted(name, beside, SIZE, bold=True), nbytes]


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
    yield from () if has_header(group) else (group.label, group.label.removeprefix("graph of "))


def _shorter(name: str) -> Iterator[str]:
    """Return shorter and shorter forms of a path."""
    yield name
    if found := _STATE.match(name):
        tails = list(_shorter(found["path"]))
        yield from (f"{tail}{between}{found['key']}" for between in (" ", "\n") for tail in tails)  # else below it
        yield from tails
        return
    path = _ENDING.sub("", _AFTER.split(name, maxsplit=1)[0])
    parts = path.split(".")
    tails = [".".join(parts[at:]) for at in range(len(parts))]
    yield from (tail for tail in tails if len(tail) >= min(_SHORTEST, len(path)))


# A treemap: what is alive, each storage an area; in a terminal the same by name, as bars.
#
# As HTML its boxes are placed in per cent, so that it fits any width, takes the theme, and needs no script; where a
# host strips styles, the same markup reads as a list of names with their bytes.

WIDTH = 932.0  # pixels inside of a panel of full width
HIGHER = 7 / 3  # times as high as in a page is it in a file of its own
MOST_NAMES, _NAMED = 12, 36  # in a terminal; characters of a name there
_TITLE = 160
NAME, MOST = 60, 4  # characters of a name, items that are named in words


@dataclass(frozen=True, slots=True)
class TreemapPicture(Picture):
    """A treemap of what is alive (memory, a run's memory, snapshots)."""

    tiles: Sequence[Tile]  # What it shows.
    what: str  # That it shows: ``"what is alive on cpu"``.
    height: float  # In a page, in pixels.
    most: int = MOST_CELLS  # So many storages have a cell of their own.

    @property
    def sentence(self) -> str:
        """How much is drawn, what it is by category, and the largest items: ``net.fc.weight 4 MiB (47 %)``."""
        tiles, total = self.tiles, bytes_of(self.tiles)
        if not total:
            return f"Treemap of {self.what}: nothing"

        def called(tile: Tile) -> str:  # with the group it lies in, as the picture shows it: ``fc.weight in net``
            label, group = shortened(tile.label, NAME), shortened(tile.group, NAME)
            return f"{label} in {group}" if label and tile.group not in {ELSEWHERE, tile.label} else label or group

        def largest(tiles: Sequence[Tile], key: Callable[[Tile], str]) -> list[tuple[str, int]]:
            totals = [(name, bytes_of(alike)) for name, alike in grouped(tiles, key).items()]
            return sorted((pair for pair in totals if pair[1]), key=lambda pair: -pair[1])[:MOST]

        kinds = [f"{CATEGORY_WORDS[kind]} {percent(nbytes, total)}" for kind, nbytes in largest(tiles, _KIND)]
        items = largest([tile for tile in tiles if tile.group != LEFT_OUT], called)
        named = ", ".join(f"{name} {number_of_bytes(nbytes)} ({percent(nbytes, total)})" for name, nbytes in items)
        names = {name for name, _ in items}
        rest = sum(tile.count for tile in tiles if tile.group == LEFT_OUT or called(tile) not in names)
        more = f"{' and ' if named else ''}{count(rest)} smaller" if rest else ""
        parts = f": {', '.join(kinds)}" if len(kinds) > 1 else ""
        return f"Treemap of {self.what}, {number_of_bytes(total)}{parts}. Largest: {named}{more}."

    def html(self) -> str:
        """Return it as boxes for a container of whatever width."""
        whole, parts = Box(0.0, 0.0, WIDTH, self.height), []
        for group in treemap(self.tiles, whole, most=self.most):
            if has_header(group):
                name, *nbytes = header_words(group)
                head = " ".join([tag("b", escape(name)), *(tag("i", words) for words in nbytes)])
                parts.append(tag("span", head, class_="tm-mh", style=_place(group.box, whole, high=False)))
            for cell in group.cells:
                classes = f"tm-c{CATEGORY_LETTERS[cell.tile.category]}{' tm-low' if is_lowered(cell, group) else ''}"
                words = cell_lines(cell, group)
                text = " ".join(tag("i", escape(word)) if at else escape(word) for at, word in enumerate(words))
                look = {"class_": classes, "style": _place(cell.box, whole), "title": shortened_title(cell)}
                parts.append(tag("span", text, **look))
        height = f"--high:{self.height:.0f}px"  # hosts that drop styles drop it: words stand there without a box
        return tag("div", " ".join(parts), class_="tm-map", style=height, role="img", aria_label=self.sentence)

    def text(self, width: int) -> Iterator[str]:
        """Return it by name: bytes as bars, and what they are of."""
        yield f"  by name, of {number_of_bytes(bytes_of(self.tiles))}"
        ranked = sorted(grouped(self.tiles, _GROUP).items(), key=lambda item: -bytes_of(item[1]))
        sizes, rows = [bytes_of(inner) for _, inner in ranked], []
        for (name, inner), nbytes in zip(ranked, sizes, strict=True):
            largest = sorted(inner, key=lambda tile: -tile.nbytes)
            kinds = listed(dict.fromkeys(CATEGORY_WORDS[tile.category] for tile in largest), most=3)
            storages = plural(sum(tile.count for tile in inner), "storage")
            bar = Bar(nbytes / (sizes[0] or 1))
            rows.append((shortened(name, _NAMED), bar, number_of_bytes(nbytes), storages, kinds))
        columns = Column(look="name"), Column(), Column(look="number"), Column(look="number"), Column()
        most, more = (MOST_NAMES, MOST_NAMES), ("more name", "more names")
        yield from to_text.text(Table(columns, rows, most, more, nbytes=sizes), width)

    def svg(self, width: float) -> tuple[str, float]:
        """Return it as rectangles, higher than in a page."""
        whole, parts = Box(0.0, 0.0, width, self.height * HIGHER), list[str]()
        for group in treemap(self.tiles, whole, most=self.most):
            for cell in group.cells:
                box, ground = cell.box, CATEGORY_COLOURS[cell.tile.category]
                title = "\n".join(map(one_line, shortened_title(cell).splitlines()))
                parts.append(rect(box.x, box.y, box.width, box.height, title=title, fill=ground, stroke=role("bg")))
                top = box.y + (HEADER if is_lowered(cell, group) else 0) + SIZE + 1
                parts += [text_svg(box.x + 4, top + at * LINE, word, size=SIZE, ink=ink_on(ground))
                          for at, word in enumerate(cell_lines(cell, group))]  # fmt: skip
            if has_header(group):
                box, (name, *nbytes), ink = group.box, header_words(group), role("on-cap")
                parts.append(rect(box.x, box.y, box.width, HEADER, fill=role("cap")))
                parts.append(text_svg(box.x + 4, box.y + 13, name, size=SIZE, bold=True, ink=ink))
                end = box.x + box.width - 4
                parts += [text_svg(end, box.y + 13, each, size=SIZE, anchor="end", ink=ink) for each in nbytes]
        return "".join(parts), whole.height


def shortened_title(cell: Cell) -> str:
    """Return what pointing at a cell shows, each line at most so long."""
    tile = cell.tile
    if not tile.title:
        return f"{tile.label}, {number_of_bytes(tile.nbytes)}, {tile.category}"
    return "\n".join(shortened(line, _TITLE) for line in tile.title.split("\n"))


def _place(box: Box, whole: Box, *, high: bool = True) -> str:
    shares = [("left", box.x / whole.width), ("top", box.y / whole.height), ("width", box.width / whole.width)]
    shares += [("height", box.height / whole.height)] if high else []
    numbers = ((name, f"{100 * share:.2f}".rstrip("0").rstrip(".")) for name, share in shares)
    return ";".join(f"{name}:{number}%" for name, number in numbers)
