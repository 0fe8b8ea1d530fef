"""The ranks of a run, compared with each other: findings, a table of ranks, and their gradients as a map."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from statistics import median

from tensormagic.reports import UNTOUCHED, RankReport, RankRow
from tensormagic.views.markup import text_width
from tensormagic.views.nodes import Column, Findings, Node, Panel, Picture, Section, table_of
from tensormagic.views.pictures.cells import patches
from tensormagic.views.pictures.placement import (
    PlacementGrid,
    RankLanes,
    group_name,
    groups_of,
    hatched,
    inline,
    lettered,
    placements_text,
    words,
)
from tensormagic.views.svg_paths import number
from tensormagic.views.text_canvas import wrapped
from tensormagic.views.theme import BAD_COLOUR, DIVERGING, MEDIAN_COLOUR
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

_MOST_ROWS, _MOST_COLUMNS = 24, 96
_LIMITS = (
    -1.0,
    -0.3,
    -0.05,
    0.05,
    0.3,
    1.0,
)  # log10 of a norm over the median of the ranks: where the next level begins
_SAME, _BAD, _NONE = 3, 7, 8  # levels: as the median; not finite; no gradient
_SIGNS = "≪<-·+>≫! "
_LEGEND = (
    "less than a tenth", "less than half", "a little less", "like the median of the ranks", "a little more",
    "more than twice", "more than ten times", "not finite", "no gradient",
)  # fmt: skip
_ROW, _LABEL, _SMALL, _NARROW = 13.0, 120.0, 10.0, 28.0

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
_MOST_GRIDS = 3
_OF_TIME = {"TM906", "TM915"}  # findings for which one looks at when ranks came


def view(report: RankReport) -> Panel:
    """Return the panel."""
    body: list[Node] = [
        Findings(report.findings, report.gaps, all_clear(report)),
        Section("Ranks", [table_of(RANKS, report.ranks, more=("rank", "ranks"), label="Ranks")]),
    ]
    step = f"step {count(report.compared_step)}"
    if report.compared_after:
        step = f"the step after pass {count(report.compared_after)}"
    maps = (
        ("Gradients before they are reduced", f"pass {count(report.compared_pass)}", report.brought),
        ("What the optimizer used", step, report.used),
    )
    for title, when, norms in maps:
        if len(norms) and len(report.ranks) > 1:
            body.append(
                Section(title, [RankMap(report, tuple(norms))], f"{when}, norms against the median of the ranks")
            )
    if report.arrivals is not None and len(report.arrivals.ranks) > 1:
        is_asked = any(finding.code in _OF_TIME for finding in report.findings)
        body.append(Section("When ranks came to collectives", [RankLanes(report.arrivals)], folded=not is_asked))
    if report.spread:
        note = "which rank holds which part of a parameter"
        body.append(Section("Placement", list(_placement(report)), note, folded=True))
    return Panel("ranks", "graph", "ranks", [summary(report)], body, label="Ranks of a run")


def _placement(report: RankReport) -> Iterable[Node]:
    groups = groups_of(report.spread)
    yield table_of(PLACEMENTS, groups, more=("group", "groups"), label="Placements")
    yield from (PlacementGrid(group[0]) for group in groups[:_MOST_GRIDS])


def summary(report: RankReport) -> str:
    """Return what was compared with each other, in one line."""
    there = plural(len(report.ranks), "rank")
    of = "" if len(report.ranks) == report.world_size else f" of {count(report.world_size)}"
    steps = max((one.steps for one in report.ranks), default=0)
    where = f", from `{shortened(report.title, 48)}`" if report.title else ""
    seconds = max((one.seconds for one in report.ranks), default=0.0)
    return f"{there}{of}, {plural(steps, 'step')} in {seconds_text(seconds)}{where}"


def all_clear(report: RankReport) -> str:
    """Return the sentence that is where nothing was found; it claims no more than was compared."""
    if any(one.state == "running" for one in report.ranks):
        return "Nothing found so far: some ranks still run."
    if not any(len(one.replicas) > 1 for one in report.ranks):
        return "Nothing found. Which ranks hold the same parameters is not known, so they were not compared."
    return "Nothing found: ranks that hold the same parameters used the same gradients, and stayed the same."


def levels(report: RankReport, norms: Sequence[float]) -> list[tuple[list[int], list[int]]]:
    """Return ranks that look alike, each with a level for each parameter, or for the furthest of several.

    A norm is held against the median of those that hold the same; where nobody is known to, against that of all.
    """
    width = len(report.names)
    rows = [norms[at * width : (at + 1) * width] for at in range(len(report.ranks))]
    replicas: dict[tuple[int, ...], list[Sequence[float]]] = {}
    for one, row in zip(report.ranks, rows, strict=True):
        replicas.setdefault(_replicas_of(one), []).append(row)
    middles = {of: [_middle([row[at] for row in held]) for at in range(width)] for of, held in replicas.items()}
    alike: dict[tuple[int, ...], list[int]] = {}
    for one, row in zip(report.ranks, rows, strict=True):
        each = tuple(_level(norm, middle) for norm, middle in zip(row, middles[_replicas_of(one)], strict=True))
        alike.setdefault(_joined(each), []).append(one.rank)
    return [(ranks, list(each)) for each, ranks in alike.items()]


def _replicas_of(one: RankRow) -> tuple[int, ...]:
    """Return the ranks that hold the same as this one; none where it is alone, or that is not known."""
    return one.replicas if len(one.replicas) > 1 else ()


def _middle(norms: Sequence[float]) -> float:
    finite = [norm for norm in norms if norm >= 0 and math.isfinite(norm)]
    return median(finite) if finite else 0.0


def _level(norm: float, middle: float) -> int:
    if norm < 0:
        return _NONE if norm == UNTOUCHED else _SAME
    if not math.isfinite(norm):
        return _BAD
    if norm == middle:
        return _SAME
    if not norm or not middle:
        return 6 if norm else 0
    return sum(math.log10(norm / middle) > limit for limit in _LIMITS)


def _joined(each: tuple[int, ...]) -> tuple[int, ...]:
    """Return at most so many columns as there is room for: of several the level that is furthest from the median."""
    if len(each) <= _MOST_COLUMNS:
        return each
    size = -(-len(each) // _MOST_COLUMNS)
    return tuple(max(each[at : at + size], key=_distance) for at in range(0, len(each), size))


def _distance(level: int) -> int:
    return -1 if level == _NONE else 9 if level == _BAD else abs(level - _SAME)


@dataclass(frozen=True)
class RankMap(Picture):
    """A row for ranks that look alike, a column for a parameter: its norm against the median of the ranks."""

    report: RankReport
    norms: tuple[float, ...]

    @cached_property
    def _found(self) -> tuple[list[tuple[str, list[int]]], str]:
        found = levels(self.report, self.norms)
        rows = [(ranks_text(ranks, most=2), each) for ranks, each in found[:_MOST_ROWS]]
        more = len(found) - len(rows)
        return rows, f"and {plural(more, 'row')} more" if more else ""

    @property
    def sentence(self) -> str:
        """What is to be seen, in a sentence."""
        rows, more = self._found
        bad = [ranks for ranks, each in rows if _BAD in each]
        first = f"{plural(len(self.report.names), 'parameter')} of {plural(len(self.report.ranks), 'rank')}"
        look = f"in {plural(len(rows), 'row')} of ranks that look alike{more and f', {more}'}"
        return f"{first}, {look}{f'; not finite on {bad[0]}' if bad else ''}"

    @cached_property
    def _names(self) -> list[str]:
        return [shortened(name, 40) for name in self.report.names]

    def _legend(self) -> list[int]:
        rows, _ = self._found
        return sorted({level for _, each in rows for level in each})

    def _columns(self) -> str:
        """Say which parameter a column is, where its head does not."""
        names = self._names
        several = "" if len(names) <= _MOST_COLUMNS else f", {-(-len(names) // _MOST_COLUMNS)} in each"
        return f"columns: {listed(names) if len(names) <= 4 else f'{names[0]} to {names[-1]}'}{several}"

    def text(self, width: int) -> Iterable[str]:
        """Return a sign for each parameter."""
        rows, more = self._found
        label = max(len(ranks) for ranks, _ in rows)
        room = max(width - label - 4, 8)
        for start in range(0, max(len(rows[0][1]), 1), room):
            for ranks, each in rows:
                signs = "".join(_SIGNS[level] for level in each[start : start + room])
                yield f"  {ranks.ljust(label)}  {signs}".rstrip()
        parts = [f"{_SIGNS[level]} {_LEGEND[level]}" for level in self._legend() if level != _NONE]
        yield from wrapped("; ".join([*parts, *([more] if more else []), self._columns()]), width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return a box for each parameter, with its name above where there is room, and a legend below."""
        rows, more = self._found
        columns, names = max(len(rows[0][1]), 1), self._names
        room = (width - _LABEL - 8) / columns
        needed = max((text_width(name, _SMALL) for name in names), default=0.0) + 6
        wide, top = (
            (max(needed, _NARROW), _ROW) if len(names) == columns and needed <= room else (min(room, _NARROW), 0)
        )
        drawn = [words(_LABEL + at * wide, 9.5, name) for at, name in enumerate(names if top else ())]
        for at, (ranks, each) in enumerate(rows):
            y = top + at * _ROW
            drawn.append(words(4, y + 11.5, shortened(ranks, 20)))
            fills = ["none" if level == _NONE else _colour(level) for level in each]
            drawn.append(patches([fills], (_LABEL, y + 2, wide, _ROW - 1.5), gap=0.6))
            for level, run in groupby(range(len(each)), key=each.__getitem__):
                if level == _BAD:
                    first, *others = run
                    across = wide * (1 + len(others)) - 0.6
                    drawn.append(hatched((_LABEL + first * wide, y + 2, across, _ROW - 1.5)))
        y = top + len(rows) * _ROW + 8
        for line in [*([] if top else [self._columns()]), *([more] if more else [])]:
            drawn.append(words(_LABEL, y + 4, line))
            y += 15
        legend, high = legend_svg(
            [(_colour(level), _LEGEND[level]) for level in self._legend() if level != _NONE], width
        )
        drawn.append(f'<g transform="translate(4,{number(y)})">{legend}</g>')
        return lettered("".join(drawn)), y + high + 4

    def html(self) -> str:
        """Return it as a picture with its words."""
        inner, height = self.svg(720.0)
        return inline(inner, height, self.sentence)


def _colour(level: int) -> str:
    return BAD_COLOUR if level == _BAD else MEDIAN_COLOUR if level == _SAME else DIVERGING[level]
