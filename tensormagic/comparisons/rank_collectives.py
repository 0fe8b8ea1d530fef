"""Holds the collectives of ranks against each other: where ranks part, who comes last, and when each came."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tensormagic.comparisons.rank_files import Begun, Facts
from tensormagic.comparisons.rank_habits import odd_ranks
from tensormagic.reports import Arrivals, Difference

MOST_SHOWN = 48
_SAME_SIZES = ("all_reduce", "allreduce", "broadcast", "reduce_scatter", "all_gather_into_tensor", "_allgather_base")
_FEWEST_STEPS, _LONG = 8, 1.0  # steps, and seconds: for less a rank may come last because its core was busy
_LAG, _SHARE, _OFTEN = 10e-3, 0.25, 0.9  # seconds, and of a step; the share of steps in which one comes last


class _Joint:
    """The collectives of one group, on the ranks of it that told theirs.

    Attributes:
        group: The name of the group.
        members: The ranks.
        moments: Seconds by rank and collective; NaN where a rank did not come, or it is not known.
        first: The number of the first collective that is known of all.
    """

    def __init__(self, group: str, members: list[Facts]) -> None:
        self.group, self.members = group, members
        rows = [_rows(one.begun, group) for one in members if one.begun is not None]
        self.first = max(int(numbers[0]) for numbers, _, _ in rows)
        self.last = [int(numbers[-1]) for numbers, _, _ in rows]
        size = max(max(self.last) - self.first + 1, 0)
        self.kinds = np.full((len(rows), size), -1, np.int64)
        self.moments = np.full((len(rows), size), np.nan)
        for at, (numbers, kinds, moments) in enumerate(rows):
            known = numbers >= self.first
            self.kinds[at, numbers[known] - self.first] = kinds[known]
            self.moments[at, numbers[known] - self.first] = moments[known]
        self.moments -= self._offsets()[:, None]

    def kind(self, row: int, at: int) -> tuple[str, str, str]:
        """Return what a rank did there: kind, sizes, line."""
        begun = self.members[row].begun
        assert begun is not None
        _, _, operation, sizes, line = begun.kinds[int(self.kinds[row, at])]
        return operation.rpartition(":")[2], sizes, line

    def _offsets(self) -> Any:
        """Return how far each clock is ahead of the first: nobody leaves a collective before the last has come."""
        if len({one.row.get("host") for one in self.members}) < 2 or not self.moments.size:
            return np.zeros(len(self.members))
        apart = self.moments - self.moments[:1]
        known = ~np.isnan(apart).any(axis=0)
        return np.median(apart[:, known], axis=1) if known.any() else np.zeros(len(self.members))


def _rows(begun: Begun, group: str) -> tuple[Any, Any, Any]:
    """Return numbers, kinds and moments of the collectives of a group."""
    of_group = np.array([one[0] == group for one in begun.kinds], bool)
    mine = of_group[begun.which]
    return begun.numbers[mine], begun.which[mine], begun.moments[mine]


def _joints(found: Sequence[Facts]) -> list[_Joint]:
    """Return the collectives of each group of which several ranks told theirs, that of most ranks first."""
    members: dict[tuple[str, tuple[int, ...]], list[Facts]] = {}
    for one in found:
        for group in dict.fromkeys(kind[:2] for kind in one.begun.kinds) if one.begun is not None else ():
            members.setdefault(group, []).append(one)
    several = [_Joint(group, each) for (group, ranks), each in members.items() if len(ranks) > 1 and len(each) > 1]
    return sorted(several, key=lambda joint: -len(joint.members))


def collectives(found: Sequence[Facts]) -> Iterator[Difference]:
    """Yield where ranks of a group did not begin the same collective, and which comes last again and again."""
    joints = _joints(found)
    parted = [each for each in map(_parted, joints) if each is not None]
    yield from parted
    if not parted:
        for joint in joints[:1]:
            yield from _last(joint)


def _parted(joint: _Joint) -> Difference | None:
    ranks = [one.rank for one in joint.members]
    common = min(joint.last) - joint.first + 1
    for at in range(common):
        if (joint.kinds[:, at] < 0).any():
            return None  # what was recorded has a hole: nothing after it can be told
        each = [joint.kind(row, at) for row in range(len(ranks))]
        same = {(one[0], one[1] if one[0].startswith(_SAME_SIZES) else "") for one in each}
        if len(same) > 1:
            told = tuple((rank, _told(*one)) for rank, one in zip(ranks, each, strict=True))
            odd = odd_ranks({rank: one[:2] for rank, one in zip(ranks, each, strict=True)})
            return Difference(what="collectives", step=joint.first + at, ranks=odd, names=(joint.group,), told=told)
    ahead = int(np.argmax(joint.last))
    waits = joint.members[ahead].row.get("state") in {"failed", "interrupted"}
    if min(joint.last) == max(joint.last) or not waits or common < 0:
        return None
    behind = tuple(rank for rank, last in zip(ranks, joint.last, strict=True) if last < max(joint.last))
    told = ((ranks[ahead], _told(*joint.kind(ahead, common))),)
    return Difference(what="absence", step=joint.first + common, ranks=behind, names=(joint.group,), told=told)


def _told(operation: str, sizes: str, line: str) -> str:
    of = f" of {sizes[1:-1]}" if len(sizes) > 2 else ""
    return f"{operation}{of}{f' ({line})' if line else ''}"


def _last(joint: _Joint) -> Iterator[Difference]:
    """Yield a rank that comes last to a collective of nearly every step, and how long the others wait for it.

    Backward is equally long on all of them, as they reduce in it: durations say nothing, moments of arrival do. On a
    GPU these are when the host came, which says little of the device: then nothing is told.
    """
    begun = joint.members[0].begun
    kinds = begun.kinds if begun is not None else []
    if any(not operation.startswith("gloo:") for _, _, operation, _, _ in kinds):
        return
    ends = [step.at for _, step in sorted(joint.members[0].steps.items())][1:]
    if len(ends) <= _FEWEST_STEPS or ends[-1] - ends[0] < _LONG or np.isnan(joint.moments).all():
        return
    full = np.flatnonzero(~np.isnan(joint.moments).any(axis=0))
    arrived = np.sort(joint.moments[:, full], axis=0)
    waited, last = arrived[-1] - arrived[-2], joint.moments[:, full].argmax(axis=0)
    when = joint.moments[0, full]
    worst = []
    for begin, end in pairwise(ends):
        inside = np.flatnonzero((begin < when) & (when <= end))
        if len(inside):
            worst.append(int(inside[waited[inside].argmax()]))
    if len(worst) < _FEWEST_STEPS:
        return
    row = int(np.bincount(last[worst]).argmax())
    own = [at for at in worst if last[at] == row]
    lag = float(np.median([waited[at] for at in own]))
    step = float(np.median(np.diff(ends)))
    least = float(np.quantile([waited[at] for at in own], 0.25))
    if len(own) >= _OFTEN * len(worst) and least > max(_LAG, _SHARE * step):
        kind = joint.kind(row, int(full[own[-1]]))
        yield Difference(
            what="waits", step=0, ranks=(joint.members[row].rank,), count=len(own), of=len(worst),
            values=((joint.members[row].rank, lag), (-1, step)), line=kind[2], names=(kind[0],),
        )  # fmt: skip


def arrivals(found: Sequence[Facts]) -> Arrivals | None:
    """Return when each rank came to the last collectives of the largest group, or of the one in which they part."""
    joints = _joints(found)
    joint = next((each for each in joints if _parted(each) is not None), next(iter(joints), None))
    if joint is None or not joint.moments.size:
        return None
    known = ~np.isnan(joint.moments).all(axis=0)
    shown = np.flatnonzero(known)[-MOST_SHOWN:]
    moments = joint.moments[:, shown]
    if not moments.size:
        return None
    first = [int(np.flatnonzero(~np.isnan(column))[0]) for column in moments.T]
    kinds = [joint.kind(row, int(at)) for row, at in zip(first, shown, strict=True)]
    seconds = (moments - np.nanmin(moments)).astype(np.float32)
    ranks, numbers = tuple(one.rank for one in joint.members), tuple(int(at) + joint.first for at in shown)
    return Arrivals(
        group=joint.group, ranks=ranks, numbers=numbers,
        operations=tuple(kind[0] for kind in kinds), lines=tuple(kind[2] for kind in kinds),
        seconds=array("f", seconds.tobytes()),
    )  # fmt: skip
