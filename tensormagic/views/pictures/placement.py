"""Which rank holds which part of a tensor: the two dimensions that are cut most, as a grid with ranks in its cells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import DIVERGING, role
from tensormagic.renderers.terminal.text_canvas import wrapped
from tensormagic.reports import Placed
from tensormagic.views.nodes import Picture
from tensormagic.words import ELLIPSIS, count, is_or_are, listed, percent, plural, ranks_text, shortened, tuple_text

_MOST_ROWS, _MOST_COLUMNS = 10, 8
_ROW, _LEFT = 22.0, 96.0
_INK = "#1b1f24"  # on the light blue of a cell, in both schemes


def inline(inner: str, height: float, sentence: str) -> str:
    """Return a drawing of 720 units as it stands in a page, whose colours its letters take."""
    inner = inner.replace(role("ink-2"), "var(--ink-2)")
    return tag(
        "svg", tag("title", escape(sentence)), inner, viewBox=f"0 0 720 {number(height)}", role="img",
        aria_label=sentence, style="width:100%;max-width:720px;height:auto", xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


def words(x: float, y: float, text: str, *, colour: str = "", middle: bool = False) -> str:
    """Return letters of a drawing, for `lettered`."""
    style = ";".join([*([f"fill:{colour}"] if colour else []), *(["text-anchor:middle"] if middle else [])])
    return tag("text", escape(text), x=number(x), y=number(y), style=style or None)


def lettered(inner: str) -> str:
    """Return a drawing whose letters are small."""
    return tag("g", inner, style=f"font-size:10px;fill:{role('ink-2')}")


def placements_text(placed: Placed) -> str:
    """Return the placements in a line: ``dp: S(0), tp: R``."""
    return ", ".join(f"{name}: {how}" for name, how in zip(placed.dimensions, placed.placements, strict=True))


@dataclass(frozen=True)
class PlacementGrid(Picture):
    """A grid of pieces, in each the ranks that hold it."""

    placed: Placed

    @property
    def sentence(self) -> str:
        """What is to be seen, in a sentence."""
        one = self.placed
        mesh = ", ".join(f"{name} = {size}" for name, size in zip(one.dimensions, one.mesh_sizes, strict=True))
        held = sorted({math.prod(box.size) for box in one.boxes()})
        total = math.prod(one.shape)
        each = count(held[-1]) if len(held) == 1 else f"{count(held[0])} to {count(held[-1])}"
        share = f", {percent(held[-1], total)} of all" if total and held[-1] < total else ""
        pieces = one.holders()
        copies = len(next(iter(pieces.values()))) if pieces else 0
        told = [
            f"{tuple_text(one.shape)} on mesh {mesh}; {placements_text(one)}",
            f"a rank holds {each} elements{share}",
        ]
        if copies > 1:
            told.append(f"each piece is on {count(copies)} ranks")
        empty = [box.rank for box in one.boxes() if not math.prod(box.size)]
        if empty and total:
            told.append(f"{ranks_text(empty)} {'holds' if len(empty) == 1 else 'hold'} nothing")
        if parts := [name for name, how in zip(one.dimensions, one.placements, strict=True) if how.startswith("P")]:
            told.append(f"over {listed(parts)} these {is_or_are(2)} parts of a sum that is still to be taken")
        return "; ".join(told)

    def _grid(self) -> tuple[list[str], list[str], list[list[str]], str]:
        """Return what stands beside the rows, above the columns, in the cells, and which dimensions these are."""
        pieces = self.placed.holders()
        many = [sorted({(start[dim], size[dim]) for start, size in pieces}) for dim in range(len(self.placed.shape))]
        dims = sorted(sorted(range(len(many)), key=lambda dim: (-len(many[dim]), dim))[:2])
        if len(dims) == 2 and len(many[dims[0]]) == 1 < len(many[dims[1]]):
            dims = dims[::-1]
        rows = many[dims[0]] if dims else [(0, 1)]
        columns = many[dims[1]] if len(dims) == 2 else [(0, 1)]
        cells = [
            [
                self._holders(pieces, list(zip(dims, (row, column), strict=False)))
                for column in _some(columns, _MOST_COLUMNS)
            ]
            for row in _some(rows, _MOST_ROWS)
        ]
        down = [_range(row) if dims else "" for row in _some(rows, _MOST_ROWS)]
        across = [_range(column) if len(dims) == 2 else "" for column in _some(columns, _MOST_COLUMNS)]
        told = [f"down: dimension {dims[0]}"] if dims else []
        told += [f"across: dimension {dims[1]}"] if len(dims) == 2 else []
        return down, across, cells, ", ".join(told)

    def _holders(
        self, pieces: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]],
        at: list[tuple[int, tuple[int, int] | None]],
    ) -> str:  # fmt: skip
        if any(place is None for _, place in at):
            return ELLIPSIS
        held = {
            rank for (start, size), ranks in pieces.items()
            for rank in ranks if all((start[dim], size[dim]) == place for dim, place in at)
        }  # fmt: skip
        return ranks_text(sorted(held), most=2).removeprefix("ranks ").removeprefix("rank ") if held else ""

    def text(self, width: int) -> Iterable[str]:
        """Return the grid in characters."""
        down, across, cells, told = self._grid()
        left = max(map(len, down))
        room = max((width - left - 4) // max(len(across), 1) - 1, 6)
        wide = min(max(len(each) for each in [*across, *(cell for row in cells for cell in row)]) + 2, room)
        if any(across):
            yield f"  {'':{left}}  " + " ".join(each.center(wide) for each in across).rstrip()
        bar = f"  {'':{left}} +" + "+".join("-" * wide for _ in across) + "+"
        yield bar
        for label, row in zip(down, cells, strict=True):
            yield f"  {label.rjust(left)} |" + "|".join(shortened(each, wide).center(wide) for each in row) + "|"
            yield bar
        yield from wrapped(f"{self.sentence} ({told})" if told else self.sentence, width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the grid as boxes."""
        down, across, cells, told = self._grid()
        wide = min((width - _LEFT - 8) / len(across), 120.0)
        top = 16.0 if any(across) else 4.0
        drawn = [words(_LEFT + (at + 0.5) * wide, 11, each, middle=True) for at, each in enumerate(across) if each]
        for line, (label, row) in enumerate(zip(down, cells, strict=True)):
            y = top + line * _ROW
            drawn.append(words(4, y + 14, label))
            for at, each in enumerate(row):
                x = _LEFT + at * wide
                if each and each != ELLIPSIS:
                    box = f"M{number(x)},{number(y)}h{number(wide - 1)}v{number(_ROW - 1)}h-{number(wide - 1)}z"
                    drawn.append(tag("path", d=box, fill=DIVERGING[2]))
                colour = "" if each == ELLIPSIS else _INK
                drawn.append(words(x + wide / 2, y + 14, shortened(each, int(wide // 6)), colour=colour, middle=True))
        y = top + len(down) * _ROW + 12
        drawn.append(words(4, y, f"In each cell the ranks that hold it; {told}" if told else "The ranks that hold it"))
        return lettered("".join(drawn)), y + 8

    def html(self) -> str:
        """Return it as a picture with its words below."""
        inner, height = self.svg(720.0)
        return tag("p", escape(self.sentence), class_="quiet") + inline(inner, height, self.sentence)


def _some(every: list[tuple[int, int]], most: int) -> list[tuple[int, int] | None]:
    """Return all, or the first ones, None for those between, and the last."""
    return [*every] if len(every) <= most else [*every[: most - 2], None, every[-1]]


def _range(place: tuple[int, int] | None) -> str:
    return ELLIPSIS if place is None else f"{place[0]}:{place[0] + place[1]}"


def groups_of(spread: tuple[Placed, ...]) -> list[list[Placed]]:
    """Return tensors that are spread alike, the largest first in each group, and the group of the largest first."""
    found: dict[tuple[object, ...], list[Placed]] = {}
    for one in sorted(spread, key=lambda one: -math.prod(one.shape)):
        found.setdefault((one.placements, one.mesh_names, one.mesh_sizes, one.mesh_ranks), []).append(one)
    return list(found.values())


def group_name(group: list[Placed]) -> str:
    """Return what to call tensors that are spread alike."""
    more = f" and {plural(len(group) - 1, 'other')}" if len(group) > 1 else ""
    return f"{shortened(group[0].name, 48)}{more}"
