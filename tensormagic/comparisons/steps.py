"""Which pass of one run is which of the other: runs are compared step by step, as far as both kept their passes."""

from __future__ import annotations

from dataclasses import dataclass

from tensormagic.reports import Frame, Graph, Pass, TraceReport


@dataclass(frozen=True, slots=True)
class PassPair:
    """A pass of the left run and its counterpart, and where they stand among the kept passes."""

    step: int
    left: Pass
    right: Pass
    left_place: int
    right_place: int


def pair_passes(left: TraceReport, right: TraceReport) -> list[PassPair]:
    """Return the passes that both runs kept, paired by step.

    Steps at which the runs kept different numbers of passes are left out: which is which cannot be said.
    """
    here, there = _by_step(left.passes), _by_step(right.passes)
    pairs = [
        PassPair(step, left.passes[at], right.passes[other], at, other)
        for step, places in here.items()
        if len(places) == len(there.get(step, ()))
        for at, other in zip(places, there[step], strict=True)
    ]
    if _one_pass_a_step(left) and _one_pass_a_step(right):
        return pairs
    return [pair for pair in pairs if _certain(pair, left, right)]


def pair_frames(left: Graph, right: Graph, pairs: list[PassPair]) -> list[tuple[int, Frame, Frame]]:
    """Return the step and both frames of every pair of passes through these two graphs, where both kept it."""
    mine = {frame.pass_number: frame for frame in left.frames}
    theirs = {frame.pass_number: frame for frame in right.frames}
    return [
        (pair.step, mine[pair.left.number], theirs[pair.right.number])
        for pair in pairs
        if (pair.left.graph, pair.right.graph) == (left.number, right.number)
        and pair.left.number in mine
        and pair.right.number in theirs
    ]


def _by_step(passes: tuple[Pass, ...]) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for place, one in enumerate(passes):
        places.setdefault(one.step, []).append(place)
    return places


def _one_pass_a_step(report: TraceReport) -> bool:
    return len({one.step for one in report.passes}) == len(report.passes)


def _certain(pair: PassPair, left: TraceReport, right: TraceReport) -> bool:
    """Where a step has several passes and some were thinned out, only equal numbers say that two are the same one."""
    whole = all(len(report.passes) == report.passes_seen for report in (left, right))
    return whole or pair.left.number == pair.right.number
