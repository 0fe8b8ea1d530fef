"""The ranks of a run, compared with each other: findings, a table of ranks, and their gradients as a map."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from statistics import median
from typing import NamedTuple

from tensormagic.reports import UNTOUCHED, RankReport
from tensormagic.views import svg_paths
from tensormagic.views.markup import tag, text_width
from tensormagic.views.nodes import Column, Findings, Node, Panel, Picture, Section, Table, table_of
from tensormagic.views.pictures.cells import PAPER, text as words
from tensormagic.views.pictures.placement import (
    PlacementGrid,
    RankLanes,
    group_name,
    groups_of,
    inline,
    lettered,
    placements_text,
)
from tensormagic.views.svg_paths import hatching, moved, number
from tensormagic.views.text_canvas import wrapped
from tensormagic.views.theme import BAD_COLOUR, MEDIAN_COLOUR
from tensormagic.views.to_html import scroll
from tensormagic.views.to_svg import legend_svg
from tensormagic.words import (
    count,
    listed,
    number_of_bytes,
    plural,
    ranks_text,
    seconds_text,
    short_number,
    shortened,
    tuple_text,
)

_MOST_ROWS, _MOST_COLUMNS = 1024, 590  # cells of the image: as many as 720 pixels have room for
_TEXT_ROWS, _TEXT_LABEL = 24, 32
_MOST_BEHIND = 60  # rows of the table behind the image
_LIMITS = (-1.0, -0.3, -0.05, 0.05, 0.3, 1.0)  # log10 of a norm over the median: where the next level begins
_SAME, _BAD, _NONE = 3, 7, 8  # levels: as the median; not finite; no gradient
_USUAL = {_SAME, _NONE}
_SIGNS = "≪<-·+>≫! "
_LEGEND = (
    "less than a tenth", "less than half", "a little less", "like the median of the ranks", "a little more",
    "more than twice", "more than ten times", "not finite", "no gradient",
)  # fmt: skip
_ROW, _LABEL, _SMALL, _NARROW, _MOST_HIGH = 13.0, 120.0, 10.0, 28.0, 390.0
# Far from the median is far from the ground, light or dark: a hue, more and more opaque.
_LESS, _MORE, _OPAQUE = "42,118,196", "208,100,16", (0.0, 0.42, 0.7, 1.0)
_APART, _BETWEEN = 5.0, 12.0  # pixels of a cell that is kept apart from the next; between ranks beside the image

RANKS = (
    Column("rank", lambda one: str(one.rank), "number"),
    Column("host", lambda one: shortened(one.host, 16)),
    Column("spread by", lambda one: ", ".join([*one.kinds, *(f"{name} {at}" for name, at in one.coordinate)])),
    Column("state", lambda one: f"{one.state}: {shortened(one.error, 40)}" if one.error else one.state),
    Column("passes", lambda one: count(one.passes), "number"),
    Column("steps", lambda one: count(one.steps), "number"),
    Column("last loss", lambda one: "" if one.loss is None else short_number(one.loss), "number"),
    Column("peak", lambda one: number_of_bytes(one.peak) if one.peak else "", "number"),
    Column("last backward", lambda one: one.line, "quiet"),
)
PLACEMENTS = (
    Column("parameters", group_name, "name"),
    Column("shape of the first", lambda group: tuple_text(group[0].shape)),
    Column("placements", lambda group: placements_text(group[0])),
)
BEHIND = (
    Column("rank", lambda one: str(one[0]), "number"),
    Column("parameter", lambda one: shortened(one[1], 60), "name"),
    Column("norm", lambda one: short_number(one[2]), "number"),
    Column("median of the ranks", lambda one: short_number(one[3]), "number"),
    Column("times the median", lambda one: short_number(one[2] / one[3]) if one[3] else "", "number"),
)
_MOST_GRIDS = 3
_OF_TIME = {"TM906", "TM915"}  # findings for which one looks at when ranks came
_OF_BITS = {"start", "gradients", "parameters"}  # differences by which a rank saves its full report


def view(report: RankReport) -> Panel:
    """Return the panel."""
    there, every = list(report.reports), {one.rank for one in report.ranks}
    differ = {rank for one in report.differences if one.what in _OF_BITS for rank in one.ranks} | {*report.bad_ranks}
    failed = {one.rank for one in report.ranks if one.state != "finished"}
    ended = any(one.state != "running" for one in report.ranks)
    missing = sorted(({0} | differ | failed) & every - {*there}) if ended else []
    command = f"`--rank {there[-1]}` or " if there and report.title else ""
    reports = "full report" if len(there) == 1 else "full reports"
    parts = [f"{reports} of {ranks_text(there)}: {command}`.reports[{there[-1]}]`"] if there else []
    if missing and (there or report.title):
        why = "killed, unable to write, or found to differ only here"
        parts.append(f"{'none' if there else 'no full report'} of {ranks_text(missing)}: {why}")
    body: list[Node] = [
        Findings(report.findings, report.gaps, all_clear(report)),
        Section("Ranks", [table_of(RANKS, report.ranks, more=("rank", "ranks"), label="Ranks")], "; ".join(parts)),
    ]
    after = f"the step after pass {count(report.compared_after)}"
    step = after if report.compared_after else f"step {count(report.compared_step)}"
    maps = (
        ("Gradients before they are reduced", f"pass {count(report.compared_pass)}", report.pass_norms),
        ("What the optimizer used", step, report.step_norms),
    )
    for title, when, norms in maps:
        if len(norms) and len(report.ranks) > 1:
            drawn = RankMap(report, norms)
            inside: list[Node] = [drawn, Section("The norms that differ", [drawn.behind()], folded=True)]
            body.append(Section(title, inside, f"{when}, norms against the median of the ranks"))
    if report.arrivals is not None and len(report.arrivals.ranks) > 1:
        is_asked = any(finding.code in _OF_TIME for finding in report.findings)
        what = "collectives" if report.arrivals.group else "steps"
        body.append(Section(f"When ranks came to {what}", [RankLanes(report.arrivals)], folded=not is_asked))
    if report.spread:
        groups = groups_of(report.spread)
        placements = table_of(PLACEMENTS, groups, more=("group", "groups"), label="Placements")
        grids = [PlacementGrid(group[0]) for group in groups[:_MOST_GRIDS]]
        note = "which rank holds which part of a parameter"
        body.append(Section("Placement", [placements, *grids], note, folded=True))
    of = "" if len(report.ranks) == report.world_size else f" of {count(report.world_size)}"
    steps = max((one.steps for one in report.ranks), default=0)
    seconds = max((one.seconds for one in report.ranks), default=0.0)
    where = f", from `{shortened(report.title, 48)}`" if report.title else ""
    summary = f"{plural(len(report.ranks), 'rank')}{of}, {plural(steps, 'step')} in {seconds_text(seconds)}{where}"
    return Panel("ranks", "graph", "ranks", [summary], body, label="Ranks of a run")


def all_clear(report: RankReport) -> str:
    """Return the sentence that is where nothing was found; it claims no more than was compared."""
    if any(one.state == "running" for one in report.ranks):
        return "Nothing found so far: some ranks still run."
    own = [rank for rank in report.reports if rank] or [one.rank for one in report.ranks if one.state == "failed"]
    more = f" What was found in the run of {ranks_text(own)} alone is in its own report." if own else ""
    if not (report.compared_pass or report.compared_step):
        return f"Nothing found, and nothing compared: no pass of a backward ended on all ranks.{more}"
    if not any(len(one.replicas) > 1 for one in report.ranks):
        return f"Nothing found. Which ranks hold the same parameters is not known, so they were not compared.{more}"
    return f"Nothing found: ranks that hold the same parameters used the same gradients, and stayed the same.{more}"


class _Measured(NamedTuple):
    """The norms of a rank, the medians that they are held against, and a level for each."""

    rank: int
    norms: Sequence[float]
    middles: Sequence[float]
    levels: tuple[int, ...]


Rows = list[tuple[list[int], tuple[int, ...]]]


def _folded(rows: Rows, most: int) -> Rows:
    """Return ranks that look alike, each with at most so many levels: of several the furthest from the median."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for ranks, each in rows:
        size = -(-len(each) // most) or 1
        parts = (each[at : at + size] for at in range(0, len(each), size))
        alike.setdefault(tuple(max(part, key=_distance) for part in parts), []).extend(ranks)
    return [(ranks, each) for each, ranks in alike.items()]


def _level(norm: float, middle: float) -> int:
    if norm == middle:
        return _SAME
    if norm < 0:
        return _NONE if norm == UNTOUCHED else _SAME
    if not math.isfinite(norm):
        return _BAD
    if not norm or not middle:
        return 6 if norm else 0
    return bisect_left(_LIMITS, math.log10(norm / middle))


def _distance(level: int) -> int:
    return {_NONE: -1, _BAD: 9}.get(level, abs(level - _SAME))


@dataclass(frozen=True)
class RankMap(Picture):
    """An image with a row for ranks that look alike and a cell for a parameter: its norm against the median."""

    report: RankReport
    norms: Sequence[float]

    @cached_property
    def _measured(self) -> list[_Measured]:
        """Each norm beside the median of those that hold the same; where nobody is known to, beside that of all."""
        report, width = self.report, len(self.report.names)
        rows = [self.norms[at * width : (at + 1) * width] for at in range(len(report.ranks))]
        held_by = [one.replicas if len(one.replicas) > 1 else () for one in report.ranks]
        replicas: dict[tuple[int, ...], list[Sequence[float]]] = {}
        for of, row in zip(held_by, rows, strict=True):
            replicas.setdefault(of, []).append(row)
        middles: dict[tuple[int, ...], list[float]] = {}
        for of, held in replicas.items():
            finite = ([norm for norm in one if norm >= 0 and math.isfinite(norm)] for one in zip(*held, strict=True))
            middles[of] = [median(column) if column else 0.0 for column in finite]
        return [
            _Measured(one.rank, row, middles[of], tuple(map(_level, row, middles[of])))
            for one, of, row in zip(report.ranks, held_by, rows, strict=True)
        ]

    @cached_property
    def rows(self) -> Rows:
        """Ranks that look alike, with a level for each parameter."""
        return _folded([([one.rank], one.levels) for one in self._measured], _MOST_COLUMNS)

    def behind(self) -> Table:
        """Return the numbers of the norms that are not like the median, the furthest first."""
        places = ((one, at) for one in self._measured for at, level in enumerate(one.levels) if level not in _USUAL)
        odd = [
            (one.rank, self.report.names[at], one.norms[at], one.middles[at])
            for one, at in sorted(places, key=lambda place: -_distance(place[0].levels[place[1]]))
        ]
        left = (len(odd[_MOST_BEHIND:]), 0)
        return table_of(BEHIND, odd[:_MOST_BEHIND], most=(_MOST_BEHIND, 12), more=("norm", "norms"), left_out=left,
                        label="Norms")  # fmt: skip

    @property
    def sentence(self) -> str:
        """What is to be seen, in a sentence."""
        first = f"{plural(len(self.report.names), 'parameter')} of {plural(len(self.report.ranks), 'rank')}"
        bad = sorted(rank for ranks, each in self.rows if _BAD in each for rank in ranks)
        look = f"in {plural(len(self.rows), 'row')} of ranks that look alike"
        return f"{first}, {look}{f'; not finite on {ranks_text(bad, most=2)}' if bad else ''}"

    def _legend(self) -> list[int]:
        return sorted({level for _, each in self.rows for level in each} - {_NONE})

    def _columns(self, columns: int) -> str:
        """Return which parameter a column is."""
        names = [shortened(name, 40) for name in self.report.names]
        several = "" if len(names) <= columns else f", {-(-len(names) // columns)} in each"
        return f"columns: {listed(names) if len(names) <= 4 else f'{names[0]} to {names[-1]}'}{several}"

    def text(self, width: int) -> Iterable[str]:
        """Return a sign for each parameter, or for several."""
        every = _folded(self.rows, max(width - _TEXT_LABEL - 4, 4))
        shown = [(shortened(ranks_text(ranks, most=2), _TEXT_LABEL), each) for ranks, each in every[:_TEXT_ROWS]]
        label = max(len(ranks) for ranks, _ in shown)
        for ranks, each in shown:
            yield f"  {ranks.ljust(label)}  {''.join(_SIGNS[level] for level in each)}".rstrip()
        legend = [f"{_SIGNS[level]} {_LEGEND[level]}" for level in self._legend()]
        more = [f"and {plural(len(every) - _TEXT_ROWS, 'row')} more"] if len(every) > _TEXT_ROWS else []
        yield from wrapped("; ".join([*legend, *more, self._columns(len(every[0][1]))]), width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the image, ranks beside it, parameters above it where there is room, else below it; and a legend."""
        rows, names = self.rows[:_MOST_ROWS], [shortened(name, 40) for name in self.report.names]
        columns, room = max(len(rows[0][1]), 1), width - _LABEL - 8
        wide = max([_NARROW, *(text_width(name, _SMALL) + 6 for name in names)])
        if named := len(names) == columns and wide * columns <= room:
            drawn = [words(_LABEL + at * wide, 9.5, name) for at, name in enumerate(names)]
        else:
            wide, drawn = min(room / columns, _NARROW), []
        top, high = _ROW * named, min(max(_MOST_HIGH / len(rows), 1.0), _ROW)
        stripes = _BAD if min(wide, high) >= _APART else _STRIPE  # there is no room for a line across a cell
        lines = [
            bytes(stripes if level == _BAD and (y + x) % 4 == 0 else level for x, level in enumerate(each))
            for y, (_, each) in enumerate(rows)
        ]
        size = {"width": number(wide * columns), "height": number(high * len(rows)), "preserveAspectRatio": "none"}
        pixels = svg_paths.indexed(lines, _PALETTE)
        drawn.append(
            tag("image", x=number(_LABEL), y=number(top), **size, href=pixels, style="image-rendering:pixelated")
        )
        drawn += self._over(rows, (_LABEL, top, wide, high))
        below = [] if named else [self._columns(columns)]
        below += [f"and {plural(len(self.rows) - _MOST_ROWS, 'row')} more"] if len(self.rows) > _MOST_ROWS else []
        bottom = top + len(rows) * high
        drawn += [words(_LABEL, bottom + 12 + 15 * at, line) for at, line in enumerate(below)]
        legend, deep = legend_svg([(_colour(level), _LEGEND[level]) for level in self._legend()], width)
        bottom += 15.0 * len(below) + 6
        return lettered("".join(drawn)) + moved(4, bottom, legend), bottom + deep

    def _over(self, rows: Rows, cell: tuple[float, float, float, float]) -> Iterator[str]:
        """Yield what lies over the image: lines between its cells, hatching, and ranks beside rows with room.

        ``cell`` says where the first cell is, its width and its height.
        """
        left, top, wide, high = cell
        columns = len(rows[0][1])
        if min(wide, high) >= _APART:
            right, bottom = number(left + wide * columns), number(top + high * len(rows))
            across = (f"M{number(left)} {number(top + at * high)}H{right}" for at in range(1, len(rows)))
            down = (f"M{number(left + at * wide)} {number(top)}V{bottom}" for at in range(1, columns))
            yield tag("path", d="".join([*across, *down]), stroke=PAPER, stroke_width="1", fill="none")
            for y, (_, each) in enumerate(rows):
                for level, run in groupby(range(columns), key=each.__getitem__):
                    x, *others = run
                    if level == _BAD:
                        lines = hatching(left + x * wide, top + y * high, wide * (1 + len(others)), high, 5)
                        yield tag("path", d=lines, stroke=PAPER, stroke_width="1.4", fill="none")
        furthest = [max(map(_distance, each), default=0) for _, each in rows]
        shown: list[int] = []
        for at in sorted(range(len(rows)), key=lambda at: -furthest[at]):  # the worst have their ranks beside them
            if all(abs(at - other) * high >= _BETWEEN for other in shown):
                shown.append(at)
                text = ranks_text(rows[at][0], most=4)
                label = text if len(text) <= 20 else plural(len(rows[at][0]), "rank")
                middle = max(top + (at + 0.5) * high, 6.0)
                yield words(4, middle + 3.5, label, title="" if label == text else text)

    def html(self) -> str:
        """Return it as a picture; one with small cells keeps its size, and is scrolled."""
        drawn = inline(*self.svg(720.0), self.sentence)
        if len(self.rows) <= 30 and len(self.rows[0][1]) <= 60:
            return drawn
        return scroll("Ranks by parameters", drawn.replace("width:100%;max-width", "width"), class_="tm-tall")


def _colour(level: int) -> str:
    if level == _BAD:
        return BAD_COLOUR
    return MEDIAN_COLOUR if level == _SAME else f"rgba({_LESS if level < _SAME else _MORE},{_OPAQUE[_distance(level)]})"


_STRIPE = _NONE + 1
_PALETTE = [*map(_colour, range(_NONE)), "", f"{BAD_COLOUR}59"]
