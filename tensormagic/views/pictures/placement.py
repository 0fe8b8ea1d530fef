"""Ranks as pictures: what each holds of a tensor, and what each does over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from tensormagic.reports import Arrivals, Placed
from tensormagic.views.markup import escape, tag
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.cells import PAPER, Cell, Cells, Row, lettered as code_lettered, text as words
from tensormagic.views.svg_paths import moved, number, point
from tensormagic.views.text_canvas import wrapped
from tensormagic.views.theme import BAD_COLOUR, DIVERGING, OTHER_COLOUR, role
from tensormagic.views.to_svg import legend_svg
from tensormagic.words import ELLIPSIS, count, listed, percent, plural, ranks_text, seconds_text, shortened, tuple_text

# Which rank holds which part of a tensor: the two dimensions that are cut most, as a grid with ranks in its cells.

_MOST_ROWS, _MOST_COLUMNS = 10, 8
_LEFT = 96.0


def inline(inner: str, height: float, sentence: str) -> str:
    """Return a drawing, 720 units wide, as it is in a page, whose colours its letters take."""
    themed = {
        role("ink-2"): "var(--ink-2)",
        f'fill="{role("ink")}"': 'fill="var(--ink)"',
        f"fill:{role('ink')}}}": "fill:var(--ink)}",
        f'stroke="{PAPER}"': 'stroke="var(--bg)"',
    }
    for light, variable in themed.items():
        inner = inner.replace(light, variable)
    return tag(
        "svg", tag("title", escape(sentence)), inner, viewBox=f"0 0 720 {number(height)}", role="img",
        aria_label=sentence, style="width:100%;max-width:720px;height:auto", xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


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
        spread = f"{tuple_text(one.shape)} on mesh {mesh}; {placements_text(one)}"
        phrases = [spread, f"a rank holds {each} elements{share}"]
        if copies > 1:
            phrases.append(f"each piece is on {count(copies)} ranks")
        empty = [box.rank for box in one.boxes() if not math.prod(box.size)]
        if empty and total:
            phrases.append(f"{ranks_text(empty)} {'holds' if len(empty) == 1 else 'hold'} nothing")
        if parts := [name for name, how in zip(one.dimensions, one.placements, strict=True) if how.startswith("P")]:
            phrases.append(f"over {listed(parts)} these are parts of a sum that is still to be taken")
        return "; ".join(phrases)

    def _cells(self, room: int, width: float = 720.0) -> tuple[Cells, str]:
        """Return the grid, with so many characters a cell, and which dimensions it shows.

        Of too many pieces along a dimension the first ones are shown, an ellipsis for those between, and the last.
        """
        pieces = self.placed.holders()
        many = [sorted({(start[dim], size[dim]) for start, size in pieces}) for dim in range(len(self.placed.shape))]
        dims = sorted(sorted(range(len(many)), key=lambda dim: (-len(many[dim]), dim))[:2])
        if len(dims) == 2 and len(many[dims[0]]) == 1 < len(many[dims[1]]):
            dims = dims[::-1]
        ways: list[list[tuple[int, int] | None]] = []
        for at, most in enumerate((_MOST_ROWS, _MOST_COLUMNS)):
            every = many[dims[at]] if at < len(dims) else [(0, 1)]
            ways.append([*every] if len(every) <= most else [*every[: most - 2], None, every[-1]])
        heads = [[ELLIPSIS if one is None else f"{one[0]}:{one[0] + one[1]}" for one in way] if at < len(dims) else [""]
                 for at, way in enumerate(ways)]  # fmt: skip
        rows = [Row("", [Cell(each) for each in heads[1]], "heads")] if any(heads[1]) else []
        for label, down in zip(heads[0], ways[0], strict=True):
            cells = []
            for across in ways[1]:
                wanted = dict(zip(dims, (down, across), strict=False))
                held = {rank for (start, size), ranks in pieces.items() for rank in ranks
                        if all((start[dim], size[dim]) == place for dim, place in wanted.items())}  # fmt: skip
                words = ELLIPSIS if None in wanted.values() else ranks_text(held, most=2).partition(" ")[2]
                cells.append(Cell(shortened(words, room), DIVERGING[2] if held else ""))
            rows.append(Row(label, cells))
        caption = ", ".join(f"{way}: dimension {dim}" for way, dim in zip(("down", "across"), dims, strict=False))
        return Cells(rows, _LEFT, min((width - _LEFT - 8) / len(ways[1]), 120.0)), caption

    def text(self, width: int) -> Iterable[str]:
        """Return the grid in characters."""
        caption = self._cells(0)[1]
        found = next(filter(None, (self._cells(room)[0].framed(width) for room in (24, 14, 9, 6, 4))), None)
        yield from found[0].lines() if found else ()
        yield from wrapped(f"{self.sentence} ({caption})" if caption else self.sentence, width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the grid as boxes."""
        cells, caption = self._cells(24, width)
        below = cells.height + 14
        said = f"In each cell the ranks that hold it; {caption}" if caption else "The ranks that hold it"
        return code_lettered(cells.svg()) + lettered(words(4, below, said)), below + 8

    def html(self) -> str:
        """Return it as a picture with its words below."""
        inner, height = self.svg(720.0)
        return tag("p", escape(self.sentence), class_="quiet") + inline(inner, height, self.sentence)


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


# When ranks came to collectives: a lane a rank, a tick a collective, and a hole where a rank is missing.

_MOST_LANES = 16
_LANE, _LANES_LEFT = 16.0, 72.0
_HOLE = "○"


@dataclass(frozen=True)
class RankLanes(Picture):
    """Lanes along one axis of time; where clocks of several machines differ they are moved to agree."""

    come: Arrivals

    @property
    def _rows(self) -> list[list[float]]:
        """When each rank came to each collective."""
        size = len(self.come.numbers)
        return [list(self.come.seconds[at * size : (at + 1) * size]) for at in range(len(self.come.ranks))]

    def _lanes(self) -> tuple[list[tuple[str, list[float]]], list[float], int]:
        """Return the lanes that are drawn, when the last rank came to each collective, and how many are not.

        Among many those with holes and the latest ones are drawn.
        """
        rows = self._rows

        def rank(at: int) -> tuple[int, float]:
            came = [each for each in rows[at] if not math.isnan(each)]
            return len(came), -sum(came)

        chosen = sorted(range(len(rows)), key=rank)[:_MOST_LANES] if len(rows) > _MOST_LANES else range(len(rows))
        last = [max(itertools.filterfalse(math.isnan, column), default=0.0) for column in zip(*rows, strict=True)]
        return [(f"rank {self.come.ranks[at]}", rows[at]) for at in sorted(chosen)], last, len(rows) - len(chosen)

    @property
    def sentence(self) -> str:
        """What is to be seen, in a sentence."""
        come = self.come
        span = seconds_text(max(self._lanes()[1], default=0.0))
        what = f"{plural(len(come.numbers), 'collective')} of group {come.group}"
        parts = [f"The last {what if come.group else plural(len(come.numbers), 'step')}, in {span}"]
        missing = [rank for rank, row in zip(come.ranks, self._rows, strict=True) if any(map(math.isnan, row))]
        parts += [f"{ranks_text(missing)} did not come to all of them"] if missing else []
        return "; ".join(parts)

    @property
    def _caption(self) -> str:
        """The sentence, and what the collectives are, each once."""
        each = dict.fromkeys(zip(self.come.operations, self.come.lines, strict=True))
        found = [f"{operation}{f' ({line})' if line else ''}" for operation, line in each]
        return f"{self.sentence}: {listed(found, most=4)}"

    def text(self, width: int) -> Iterable[str]:
        """Return a lane of characters for each rank: ``|`` where it came, ``-`` where it waits for the last."""
        lanes, last, more = self._lanes()
        label = max(len(named) for named, _ in lanes)
        room = max(width - label - 4, 16)
        scale = (room - 1) / (max(last, default=0.0) or 1.0)
        for named, row in lanes:
            lane, missing = [" "] * room, [math.isnan(moment) for moment in row]
            for moment, until in zip(row, last, strict=True):
                for place in range(int(moment * scale) + 1, int(until * scale)) if not math.isnan(moment) else ():
                    lane[place] = "-"
            for moment, until, hole in zip(row, last, missing, strict=True):
                lane[int((until if hole else moment) * scale)] = _HOLE if hole else "|"
            yield f"  {named.ljust(label)}  {''.join(lane)}".rstrip()
        rest = f"; {plural(more, 'rank')} not drawn" if more else ""
        legend = f"| a {'collective' if self.come.group else 'step'}, - waits for the last rank, {_HOLE} did not come"
        yield from wrapped(f"{self._caption}. {legend}{rest}", width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return lanes with ticks, bars for waiting, and lines that join the same collective."""
        rows, last, more = self._lanes()
        span = max(last, default=0.0)
        scale = (width - _LANES_LEFT - 20) / (span or 1.0)
        ticks, waits, lanes, holes, drawn = [], [], [], [], []
        joined: list[list[tuple[float, float]]] = [[] for _ in last]
        for line, (named, row) in enumerate(rows):
            y = 8 + line * _LANE
            drawn.append(words(4, y + 4, named))
            lanes.append(f"M{point(_LANES_LEFT, y)}H{number(width - 12)}")
            for place, (moment, until) in enumerate(zip(row, last, strict=True)):
                x, end = _LANES_LEFT + moment * scale, _LANES_LEFT + until * scale
                if math.isnan(moment):
                    holes.append(tag("circle", cx=number(end), cy=number(y), r="4", fill="none", stroke=BAD_COLOUR,
                                     stroke_width="1.6"))  # fmt: skip
                    continue
                ticks.append(f"M{point(x, y - 5)}v10")
                joined[place].append((x, y))
                waits += [f"M{point(x, y - 2.5)}H{number(end)}v5H{number(x)}z"] if end - x > 1.5 else []
        lines = ["M" + "L".join(point(*each) for each in points) for points in joined if len(points) > 1]
        parts = [
            tag("path", d="".join(lanes), stroke=OTHER_COLOUR, stroke_width=".5", fill="none"),
            tag("path", d="".join(waits), fill=DIVERGING[4]) if waits else "",
            tag("path", d="".join(lines), stroke=OTHER_COLOUR, stroke_width=".8", fill="none"),
            tag("path", d="".join(ticks), stroke=role("ink-2"), stroke_width="1.4", fill="none"),
            *holes,
        ]
        y = 8 + len(rows) * _LANE + 6
        drawn += [words(_LANES_LEFT, y, "0"), words(width - 60, y, seconds_text(span))]
        keys = [(DIVERGING[4], "waits for the last rank"), *([(BAD_COLOUR, "did not come")] if holes else [])]
        legend, high = legend_svg(keys, width)
        parts.append(moved(4, y + 8, legend))
        y += 8 + high
        drawn += [words(4, y + 6, f"{count(more)} more ranks")] if more else []
        return lettered("".join([*parts, *drawn])), y + 8

    def html(self) -> str:
        """Return it as a picture with its words above."""
        inner, height = self.svg(720.0)
        return tag("p", escape(self._caption), class_="quiet") + inline(inner, height, self.sentence)
