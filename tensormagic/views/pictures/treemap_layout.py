"""Where the boxes of a treemap lie."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from tensormagic.views.pictures.timeline_stack import MIXED
from tensormagic.words import count

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
    rest = box
    while len(placed) < len(areas):
        end = _row_end(areas, len(placed), min(rest.width, rest.height))
        row, rest = _row(areas[len(placed) : end], rest, last=end == len(areas))
        placed += row
    return placed


def _row_end(areas: Sequence[float], start: int, side: float) -> int:
    """Return behind which piece the row that begins with ``start`` ends."""
    total = smallest = largest = areas[start]
    worst = _longest(total, smallest, largest, side)
    for at in range(start + 1, len(areas)):
        total, smallest, largest = total + areas[at], min(smallest, areas[at]), max(largest, areas[at])
        longer = _longest(total, smallest, largest, side)
        if longer > worst:
            return at
        worst = longer
    return len(areas)


def _longest(total: float, smallest: float, largest: float, side: float) -> float:
    """Return the ratio of the sides of the longest piece in a row of that area along that side."""
    if smallest <= 0 or side <= 0:
        return float("inf")
    return max(side * side * largest / (total * total), total * total / (side * side * smallest))


def _row(areas: Sequence[float], rest: Box, *, last: bool) -> tuple[list[Box], Box]:
    """Lay a row along the shorter side of ``rest``; return its pieces and what is left."""
    total, upright = sum(areas), rest.width >= rest.height
    side, across = (rest.height, rest.width) if upright else (rest.width, rest.height)
    thick = across if last or side <= 0 else min(total / side, across)
    placed, at = [], 0.0
    for area in areas:
        long = side * area / total if total > 0 else 0.0
        placed.append(Box(rest.x, rest.y + at, thick, long) if upright else Box(rest.x + at, rest.y, long, thick))
        at += long
    if upright:
        return placed, Box(rest.x + thick, rest.y, rest.width - thick, rest.height)
    return placed, Box(rest.x, rest.y + thick, rest.width, rest.height - thick)


# A treemap as plain data: which rectangle stands for which storage, and what is too small to be drawn by itself.
#
# Three levels: groups (the name a person would begin with, or a line of code), categories inside of a group, storages
# inside of a category. Nothing takes area but bytes: headers and gaps are drawn onto the rectangles, so that two
# equal areas are equal amounts of memory wherever they lie.

MOST_CELLS = 300
SMALLEST = 36.0  # square pixels of a rectangle of its own
ELSEWHERE = ""  # the group of what is small and scattered
LEFT_OUT = "not listed"  # the group of what the report itself sums up


@dataclass(frozen=True, slots=True)
class Tile:
    """What a rectangle stands for.

    Attributes:
        group: What it lies in.
        label: What is written on it, where there is room.
        category: Of its memory: decides its colour.
        nbytes: Its area.
        title: All that is known of it, in a few lines.
        count: How many storages it stands for.
    """

    group: str
    label: str
    category: str
    nbytes: int
    title: str = ""
    count: int = 1


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


@dataclass(frozen=True, slots=True)
class Treemap:
    """A rectangle of ``width`` and ``height`` pixels, filled by groups, the largest first."""

    width: float
    height: float
    groups: tuple[Group, ...]


def treemap(tiles: Iterable[Tile], width: float, height: float, *, most: int = MOST_CELLS) -> Treemap:
    """Return the tiles in their places; those too small, or beyond the ``most`` largest, are put together."""
    whole = Box(0.0, 0.0, width, height)
    groups = _grouped(_drawable([tile for tile in tiles if tile.nbytes > 0], whole.area, most), lambda tile: tile.group)
    return Treemap(width, height, tuple(_group(box, label, inner) for box, label, inner in _laid(groups, whole)))


def _group(box: Box, label: str, tiles: Sequence[Tile]) -> Group:
    cells: list[Cell] = []
    for area, _, same in _laid(_grouped(tiles, lambda tile: tile.category), box):
        ranked = sorted(same, key=lambda tile: (-tile.nbytes, tile.label))
        places = squarify([tile.nbytes for tile in ranked], area)
        cells += [Cell(place, tile) for place, tile in zip(places, ranked, strict=True)]
    return Group(box, label, tuple(cells))


def _laid(groups: dict[str, list[Tile]], box: Box) -> list[tuple[Box, str, list[Tile]]]:
    """Return each group with its rectangle, the largest first."""
    ranked = sorted(groups.items(), key=lambda item: (-_bytes(item[1]), item[0]))
    boxes = squarify([_bytes(tiles) for _, tiles in ranked], box)
    return [(place, label, tiles) for place, (label, tiles) in zip(boxes, ranked, strict=True)]


def _grouped(tiles: Iterable[Tile], key: Callable[[Tile], str]) -> dict[str, list[Tile]]:
    groups: dict[str, list[Tile]] = {}
    for tile in tiles:
        groups.setdefault(key(tile), []).append(tile)
    return groups


def _drawable(tiles: Sequence[Tile], area: float, most: int) -> list[Tile]:
    """Return tiles of which each is large enough; the small are joined with others of their group, then of their kind.

    What is still too small is one tile of several kinds, however small that is.
    """
    least = SMALLEST * _bytes(tiles) / area if area > 0 else 0.0
    ranked = sorted(tiles, key=lambda tile: -tile.nbytes)
    drawn = [tile for tile in ranked[:most] if tile.nbytes >= least]
    rest: list[Tile] = ranked[len(drawn) :]
    keys: tuple[Callable[[Tile], Hashable], ...] = (
        lambda tile: (tile.group, tile.category),
        lambda tile: tile.category,
    )
    for at, key in enumerate(keys):
        joined = [_joined(same, None if at == 0 else ELSEWHERE) for same in _by(rest, key)]
        drawn += [tile for tile, _ in joined if tile.nbytes >= least]
        rest = [small for tile, parts in joined if tile.nbytes < least for small in parts]
    return drawn + ([replace(_joined(rest, ELSEWHERE)[0], category=MIXED)] if rest else [])


def _within_group(tile: Tile) -> Hashable:
    return tile.group, tile.category


def _of_category(tile: Tile) -> Hashable:
    return tile.category


def _by(tiles: Iterable[Tile], key: Callable[[Tile], Hashable]) -> list[list[Tile]]:
    groups: dict[Hashable, list[Tile]] = {}
    for tile in tiles:
        groups.setdefault(key(tile), []).append(tile)
    return list(groups.values())


def _joined(tiles: Sequence[Tile], group: str | None) -> tuple[Tile, Sequence[Tile]]:
    """Return one tile for several, and these."""
    first, number = tiles[0], sum(tile.count for tile in tiles)
    where = first.group if group is None else group
    if len(tiles) == 1 and where == first.group:
        return first, tiles
    return Tile(where, f"{count(number)} smaller", first.category, _bytes(tiles), "", number), tiles


def _bytes(tiles: Iterable[Tile]) -> int:
    return sum(tile.nbytes for tile in tiles)
