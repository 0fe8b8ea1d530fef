"""Which two of many regions overlap, and how much: exactly, and in near-linear time where few of them do.

Regions are sorted by their first byte and swept once, so that only those whose ranges meet are compared; ranges that
meet without a common element (``x[:, 0]`` and ``x[:, 1]``) are told apart exactly, up to a bound that is admitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from tensormagic.collectors.aliasing.regions import region_in
from tensormagic.collectors.aliasing.sharing import Entry, Shared
from tensormagic.collectors.geometry.overlap import Region, overlap, overlap_elements
from tensormagic.collectors.objects.naming import nearest, telling
from tensormagic.reports import AliasPair

SMALL = 12  # up to so many members every two are compared
MOST_COMPARED = 2000  # in all groups of one report together
MOST_PAIRS = 200  # that overlap, of a group too large to compare all


@dataclass(slots=True)
class PairBudget:
    """How many pairs may still be compared."""

    left: int = MOST_COMPARED


def pairs_of(
    entries: Sequence[Entry], drawn: Sequence[Entry], piece: Shared, budget: PairBudget
) -> tuple[tuple[AliasPair, ...], bool]:
    """Return the pairs of a group that were compared, and whether no pair that overlaps was left out.

    Args:
        entries: The group's members.
        drawn: Those that are shown, whose pairs matter first.
        piece: The memory they lie in.
        budget: What all groups together may still compare.
    """
    if len(entries) <= SMALL:
        return _all_pairs(drawn, piece, budget)
    return _overlapping(entries, piece, budget)


def _all_pairs(drawn: Sequence[Entry], piece: Shared, budget: PairBudget) -> tuple[tuple[AliasPair, ...], bool]:
    regions = [(_name(entry), region_in(entry, piece)) for entry in drawn]
    found: list[AliasPair] = []
    for (left, one), (right, other) in combinations(regions, 2):
        if budget.left <= 0:
            return tuple(found), False
        budget.left -= 1
        found.append(compare(left, one, right, other))
    return tuple(found), True


def _overlapping(entries: Sequence[Entry], piece: Shared, budget: PairBudget) -> tuple[tuple[AliasPair, ...], bool]:
    found: list[AliasPair] = []
    regions = sorted(((_name(entry), region_in(entry, piece)) for entry in entries), key=lambda each: each[1].start)
    for (left, one), (right, other) in meeting(regions):
        if budget.left <= 0 or len(found) >= MOST_PAIRS:
            return tuple(found), False
        budget.left -= 1
        pair = compare(left, one, right, other)
        if pair.overlap != "no":
            found.append(pair)
    return tuple(found), True


Named = tuple[str, Region]


def meeting(regions: Sequence[Named]) -> Iterator[tuple[Named, Named]]:
    """Yield every two regions whose ranges of bytes meet; they come sorted by their first byte."""
    active: list[Named] = []
    for each in regions:
        if 0 in each[1].shape:
            continue
        active = [other for other in active if other[1].stop > each[1].start]
        for other in active:
            yield other, each
        active.append(each)


def compare(left: str, one: Region, right: str, other: Region) -> AliasPair:
    """Return how much two regions overlap, exactly where that can be told in bounded time."""
    answer = overlap(one, other)
    if answer == "no":
        return AliasPair(left, right, "no", 0, 0)
    return AliasPair(left, right, answer, overlap_elements(one, other), overlap_elements(other, one))


def _name(entry: Entry) -> str:
    return nearest(telling(entry.names))[0]
