"""Orders the nodes within every column, so that few edges cross.

Second step of the layered layout: barycenter sweeps to and fro, the best order seen is kept, then neighbours are
swapped wherever that saves a crossing. Crossings between two columns are inversions, counted with a Fenwick tree
(Barth, Mutzel and Jünger, 2004, doi:10.7155/jgaa.00088).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The work of one sweep grows with the edges; a picture that is this large is not read edge by edge.
_SWEEP_BUDGET = 400_000
_SWEEPS = 24
_SWAP_ROUNDS = 8
_SHUFFLES = 8
_SHUFFLE_BUDGET = 2_000  # the work of a shuffle grows with the edges as well
_SWAPS_EACH_SWEEP = 600  # edges, up to which neighbours are tried after every sweep, not only at the end


@dataclass(frozen=True, slots=True)
class Columns:
    """A layered graph: every edge leads from one column to the next.

    Attributes:
        members: The items of each column, top to bottom.
        following: For each item, the items of the next column that it leads to.
        preceding: For each item, the items of the column before that lead to it.
    """

    members: list[list[int]]
    following: list[list[int]]
    preceding: list[list[int]]

    @property
    def edge_count(self) -> int:
        """How many edges there are between neighbouring columns."""
        return sum(len(heads) for heads in self.following)


def order(columns: Columns) -> int:
    """Order ``columns.members`` in place and return how many crossings are left."""
    best_count, best = crossings(columns), [list(column) for column in columns.members]
    for start in _starts(columns):
        columns.members[:] = start
        count, found = _sweep(columns)
        if count < best_count:
            best_count, best = count, found
        if not best_count:
            break
    columns.members[:] = best
    return _swap(columns, best_count) if best_count else 0


def crossings(columns: Columns) -> int:
    """Return how many pairs of edges cross, over all neighbouring columns."""
    return sum(_crossings_after(columns, number) for number in range(len(columns.members) - 1))


def _crossings_after(columns: Columns, number: int) -> int:
    left, right = columns.members[number], columns.members[number + 1]
    place = {item: at for at, item in enumerate(right)}
    heads = (at for item in left for at in sorted(place[head] for head in columns.following[item]))
    return inversions(heads, len(right))


def inversions(values: Iterable[int], size: int) -> int:
    """Return how many pairs of ``values`` (each in 0 … size - 1) stand in falling order."""
    tree, total, seen = [0] * (size + 1), 0, 0
    for value in values:
        at, below = value + 1, 0
        while at:
            below += tree[at]
            at -= at & -at
        total += seen - below
        seen, at = seen + 1, value + 1
        while at <= size:
            tree[at] += 1
            at += at & -at
    return total


def _starts(columns: Columns) -> Iterable[list[list[int]]]:
    """Yield orders to start from: depth first from the left, depth first from the right, as given, and shuffled."""
    given = [list(column) for column in columns.members]
    forward = _depth_first(columns.following, [item for column in given for item in column])
    backward = _depth_first(columns.preceding, [item for column in reversed(given) for item in column])
    for place in (forward, backward):
        yield [sorted(column, key=place.__getitem__) for column in given]
    yield given
    chance = random.Random(0)  # noqa: S311  (the same shuffles every time: a drawing never rests on chance)
    for _ in range(min(_SHUFFLES, _SHUFFLE_BUDGET // max(columns.edge_count, 1))):
        yield [chance.sample(column, len(column)) for column in given]


def _depth_first(neighbours: Sequence[Sequence[int]], roots: Sequence[int]) -> list[int]:
    place = [-1] * len(neighbours)
    stack, count = list(reversed(roots)), 0
    while stack:
        item = stack.pop()
        if place[item] < 0:
            place[item] = count
            count += 1
            stack.extend(other for other in reversed(neighbours[item]) if place[other] < 0)
    return place


def _sweep(columns: Columns) -> tuple[int, list[list[int]]]:
    best_count, best = crossings(columns), [list(column) for column in columns.members]
    rounds = max(2, min(_SWEEPS, _SWEEP_BUDGET // max(columns.edge_count, 1)))
    stale = 0
    for number in range(rounds):
        if not best_count or stale >= 8:
            break
        _sweep_once(columns, rightwards=number % 2 == 0, turn_ties=number % 4 >= 2)
        count = crossings(columns)
        if columns.edge_count <= _SWAPS_EACH_SWEEP:
            count = _swap(columns, count)
        stale += 1
        if count < best_count:
            best_count, best, stale = count, [list(column) for column in columns.members], 0
    return best_count, best


def _sweep_once(columns: Columns, *, rightwards: bool, turn_ties: bool) -> None:
    """Order one column after the other by its neighbours; ``turn_ties``: what is equal changes places."""
    neighbours = columns.preceding if rightwards else columns.following
    last = len(columns.members) - 1
    for number in range(1, last + 1) if rightwards else range(last - 1, -1, -1):
        fixed = columns.members[number - 1 if rightwards else number + 1]
        place = {item: at for at, item in enumerate(fixed)}
        column = columns.members[number][::-1] if turn_ties else columns.members[number]
        columns.members[number] = _by_barycenter(column, neighbours, place)


def _by_barycenter(column: list[int], neighbours: list[list[int]], place: dict[int, int]) -> list[int]:
    """Sort by the mean place of the neighbours; an item without any stays at its place, the others pass round it."""
    movable = [item for item in column if neighbours[item]]
    mean = {item: sum(place[other] for other in neighbours[item]) / len(neighbours[item]) for item in movable}
    movable.sort(key=mean.__getitem__)
    moved = iter(movable)
    return [next(moved) if neighbours[item] else item for item in column]


def _swap(columns: Columns, count: int) -> int:
    """Swap neighbours while that saves crossings; return how many are left."""
    for _ in range(_SWAP_ROUNDS):
        saved = sum(_swap_column(columns, number) for number in range(len(columns.members)))
        count -= saved
        if not saved or not count:
            break
    return count


def _swap_column(columns: Columns, number: int) -> int:
    column, saved = columns.members[number], 0
    sides = []
    for neighbours, other in ((columns.preceding, number - 1), (columns.following, number + 1)):
        if 0 <= other < len(columns.members):
            place = {item: at for at, item in enumerate(columns.members[other])}
            sides.append({item: sorted(place[near] for near in neighbours[item]) for item in column})
    for at in range(len(column) - 1):
        gain = sum(_pair_gain(side[column[at]], side[column[at + 1]]) for side in sides)
        if gain > 0:
            column[at], column[at + 1] = column[at + 1], column[at]
            saved += gain
    return saved


def _pair_gain(upper: list[int], lower: list[int]) -> int:
    """Return how many crossings two neighbours lose when they change places (less than 0: they gain some)."""
    return sum((above > below) - (above < below) for above in upper for below in lower)
