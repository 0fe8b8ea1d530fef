"""The steps of a layered layout: columns, the order in each, heights, and where lines touch boxes.

Columns come first (Sugiyama, Tagawa and Toda, 1981, doi:10.1109/TSMC.1981.4308636): longest-path ranks, then whatever
hangs on nothing but itself (a source, or a tree of sources) is pulled next to what it feeds. Then barycenter sweeps to
and fro order each column, the best order seen is kept, and neighbours are swapped wherever that saves a crossing;
crossings between two columns are inversions (Barth, Mutzel and Juenger, 2004, doi:10.7155/jgaa.00088). Everything is
iterative: an unrolled recurrent network is a chain of thousands.

The height of a node is as near to its neighbours as the order in its column allows: a weighted isotonic regression,
solved exactly by pooling adjacent violators (PAVA; Ayer and others, 1955, doi:10.1214/aoms/1177728423). Lines are kept
level by weight. Gansner, Koutsofios, North and Vo, 1993 (doi:10.1109/32.221135) take 8:2:1 for two bends, a bend and a
node, two nodes; here two nodes weigh more than a bend and a node, so that the chain of ops stays level and skip
connections go round it.

A line touches a box as straight on as it can, no two lines at one point, in the order they arrive: both ends of a line
that could run level lie where the two boxes' sides overlap, the others leave from the nearest corner. Lines on one side
of a box are then pushed apart, which is one more isotonic regression.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

# -- columns ----------------------------------------------------------------------------------------------------------

Edge = tuple[int, int]


def adjacency(count: int, edges: Iterable[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the successors and the predecessors of every node, in the order of ``edges``."""
    following: list[list[int]] = [[] for _ in range(count)]
    preceding: list[list[int]] = [[] for _ in range(count)]
    for tail, head in edges:
        following[tail].append(head)
        preceding[head].append(tail)
    return following, preceding


def topological_order(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return all nodes, each after those that point to it; of several that could come next, the smallest index.

    Where the edges run in a circle, the smallest node of those left is taken as if nothing pointed to it.
    """
    if all(tail < head for tail, head in edges):  # as a rule: nodes come in the order in which they were made
        return list(range(count))
    following, preceding = adjacency(count, edges)
    missing = [len(tails) for tails in preceding]
    ready = [node for node in range(count) if not missing[node]]
    left, done = iter(range(count)), [False] * count
    order: list[int] = []
    while len(order) < count:
        node = heapq.heappop(ready) if ready else next(other for other in left if not done[other])
        if done[node]:
            continue
        done[node] = True
        order.append(node)
        for head in following[node]:
            missing[head] -= 1
            if not missing[head]:
                heapq.heappush(ready, head)
    return order


def rank(count: int, edges: Sequence[Edge], outermost: tuple[int | None, int | None] = (None, None)) -> list[int]:
    """Return the column of every node, from 0; ``edges`` may run in circles (they are then turned round).

    Sources, and trees of sources, move right: that stretches no edge to their left. The first of ``outermost`` comes
    into the first column, the second behind all others.
    """
    order = topological_order(count, edges)
    place = {node: at for at, node in enumerate(order)}
    ahead = (edge if place[edge[0]] < place[edge[1]] else edge[::-1] for edge in edges if edge[0] != edge[1])
    following, preceding = adjacency(count, ahead)
    ranks, free = [0] * count, [False] * count
    for node in order:
        ranks[node] = max((ranks[tail] + 1 for tail in preceding[node]), default=0)
        free[node] = all(free[tail] and len(set(following[tail])) == 1 for tail in preceding[node])
    for node in reversed(order):
        if free[node] and following[node]:
            ranks[node] = min(ranks[head] for head in following[node]) - 1
    first, last = outermost
    if first is not None:
        ranks[first] = 0
    if last is not None:
        ranks[last] = max(ranks) + 1
    column = {old: new for new, old in enumerate(sorted(set(ranks)))}  # none is empty
    return [column[old] for old in ranks]


# -- the order in a column --------------------------------------------------------------------------------------------

# The work of one sweep grows with the edges; a picture that is this large is not read edge by edge.
_SWEEP_BUDGET = 400_000
_SWEEPS, _STALE = 24, 8  # at most; without getting better
_SWAP_ROUNDS = 8
_SWAPS_EACH_SWEEP = 600  # edges, up to which neighbours are tried after every sweep, not only at the end


@dataclass(frozen=True, slots=True)
class Columns:
    """A layered graph: every edge leads from one column to the next."""

    members: list[list[int]]  # The items of each column, top to bottom.
    following: list[list[int]]  # For each item, the items of the next column that it leads to.
    preceding: list[list[int]]  # For each item, the items of the column before that lead to it.


def order(columns: Columns) -> None:
    """Order ``columns.members`` in place, so that few lines cross."""
    given = [list(column) for column in columns.members]
    forward = _depth_first(columns.following, [item for column in given for item in column])
    backward = _depth_first(columns.preceding, [item for column in reversed(given) for item in column])
    starts = [[sorted(column, key=place.__getitem__) for column in given] for place in (forward, backward)]
    best_count, best = crossings(columns), given
    edges = sum(map(len, columns.following))
    rounds = max(2, min(_SWEEPS, _SWEEP_BUDGET // max(edges, 1)))
    for start in (*starts, given):
        columns.members[:] = start
        count, stale = crossings(columns), 0
        for sweep in range(rounds + 1):
            if count < best_count:
                best_count, best, stale = count, [list(column) for column in columns.members], 0
            if not best_count or stale == _STALE or sweep == rounds:
                break
            _sort(columns, sweep)
            count, stale = crossings(columns), stale + 1
            count = _swap(columns, count) if edges <= _SWAPS_EACH_SWEEP else count
    columns.members[:] = best
    _swap(columns, best_count)


def crossings(columns: Columns) -> int:
    """Return how many pairs of edges cross, over all neighbouring columns."""
    total = 0
    for left, right in pairwise(columns.members):
        place = {item: at for at, item in enumerate(right)}
        total += inversions(at for item in left for at in sorted(place[head] for head in columns.following[item]))
    return total


def inversions(values: Iterable[int]) -> int:
    """Return how many pairs of ``values`` stand in falling order."""
    total, seen = 0, list[int]()
    for value in values:
        total += len(seen) - bisect_right(seen, value)
        insort(seen, value)
    return total


def _depth_first(neighbours: Sequence[Sequence[int]], roots: Sequence[int]) -> dict[int, int]:
    """Return at which place every item is met."""
    place: dict[int, int] = {}
    stack = list(reversed(roots))
    while stack:
        item = stack.pop()
        if item not in place:
            place[item] = len(place)
            stack.extend(reversed(neighbours[item]))
    return place


def _sort(columns: Columns, sweep: int) -> None:
    """Order one column after the other by its neighbours, in every second sweep from the right.

    An item without neighbours stays at its place, the others pass round it; in every second pair of sweeps what is
    equal changes places.
    """
    numbers = list(range(len(columns.members)))
    neighbours = columns.preceding if sweep % 2 == 0 else columns.following
    for fixed, number in pairwise(numbers if sweep % 2 == 0 else reversed(numbers)):
        place = {item: at for at, item in enumerate(columns.members[fixed])}
        column = columns.members[number][::-1] if sweep % 4 >= 2 else columns.members[number]
        mean = {item: sum(place[other] for other in near) / len(near) for item in column if (near := neighbours[item])}
        moved = iter(sorted(mean, key=mean.__getitem__))
        columns.members[number] = [next(moved) if neighbours[item] else item for item in column]


def _swap(columns: Columns, count: int) -> int:
    """Swap neighbours while that saves crossings; return how many are left."""
    for _ in range(_SWAP_ROUNDS if count else 0):
        before = count
        for number, column in enumerate(columns.members):
            sides = []
            for neighbours, other in ((columns.preceding, number - 1), (columns.following, number + 1)):
                if 0 <= other < len(columns.members):
                    place = {item: at for at, item in enumerate(columns.members[other])}
                    sides.append({item: [place[near] for near in neighbours[item]] for item in column})
            for at in range(len(column) - 1):
                upper, lower = column[at], column[at + 1]
                pairs = ((above, below) for side in sides for above in side[upper] for below in side[lower])
                gain = sum((above > below) - (above < below) for above, below in pairs)  # crossings lost by a swap
                if gain > 0:
                    column[at], column[at + 1] = lower, upper
                    count -= gain
        if count == before:
            break
    return count


# -- heights ----------------------------------------------------------------------------------------------------------

Extent = tuple[float, float]  # how far an item reaches above and below its axis

_PLACEMENTS = 10
# How strongly an edge is kept level: between two nodes, a node and a bend, two bends.
_STRENGTH = (4.0, 1.0, 8.0)
_WEIGHT_OF_THE_UNPULLED = 0.05  # the weight of an item that nothing pulls


def isotonic(targets: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the non-decreasing sequence nearest to ``targets`` in weighted squares."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, size
    for target, weight in zip(targets, weights, strict=True):
        pool = target, weight, 1
        while pools and pools[-1][0] >= pool[0]:
            (mean, mass, size), (other, more, others) = pools.pop(), pool
            pool = (mean * mass + other * more) / (mass + more), more + mass, others + size
        pools.append(pool)
    return [mean for mean, _, size in pools for _ in range(size)]


def placed(columns: Columns, extents: Sequence[Extent], real_count: int, gap: float) -> list[float]:
    """Return the height of every item's axis: every column is packed round zero, then moved by sweeps.

    Args:
        columns: Items in their order.
        extents: Those of all items, bends included.
        real_count: Items below this number are nodes, the others bends of edges.
        gap: The least distance between two nodes of a column; half of it between bends.
    """
    centre, steps = [0.0] * len(extents), []  # of each column the least possible axis of each item, the first at 0
    for column in columns.members:
        apart = (extents[above][1] + extents[below][0] + (gap if min(above, below) < real_count else gap / 2)
                 for above, below in pairwise(column))  # fmt: skip
        least = [0.0, *accumulate(apart)]
        steps.append(least)
        for item, step in zip(column, least, strict=True):
            centre[item] = step - least[-1] / 2

    def settle(number: int, *sides: list[list[int]]) -> None:
        """Place a column where the neighbours want its items, as strongly as they do."""
        column, targets, weights = columns.members[number], [], []
        for item, step in zip(column, steps[number], strict=True):
            total, weight = centre[item] * _WEIGHT_OF_THE_UNPULLED, _WEIGHT_OF_THE_UNPULLED
            for other in chain.from_iterable(neighbours[item] for neighbours in sides):
                strength = _STRENGTH[(item >= real_count) + (other >= real_count)]
                total += centre[other] * strength
                weight += strength
            targets.append(total / weight - step)
            weights.append(weight)
        for item, start, step in zip(column, isotonic(targets, weights), steps[number], strict=True):
            centre[item] = start + step

    numbers = range(len(steps))
    for sweep in range(_PLACEMENTS):  # to and fro, then with both sides pulling
        for number in numbers if sweep % 2 == 0 else reversed(numbers):
            settle(number, columns.following if sweep % 2 else columns.preceding)
    for number in (*numbers, *numbers):
        settle(number, columns.preceding, columns.following)
    return centre


# -- where lines touch boxes ------------------------------------------------------------------------------------------

_INSET = 9.0  # how far from a box's corner a line may touch it
_APART = 9.0  # how far apart two lines touch it, where there is room


def ports(
    columns: Columns, extents: Sequence[Extent], axes: Sequence[float]
) -> tuple[dict[Edge, float], dict[Edge, float]]:
    """Return the height at which every link between two columns leaves its left item, and reaches its right one."""
    reaches = [max(above - _INSET, 0.0) for above, _ in extents]
    sides = [(axis - reach, axis + reach) for axis, reach in zip(axes, reaches, strict=True)]
    found: tuple[dict[Edge, float], dict[Edge, float]] = {}, {}
    for into, neighbours in zip(found, (columns.following, columns.preceding), strict=True):
        for item, others in enumerate(neighbours):
            # Each line lies where it would best lie on the side of the item, pushed apart where they are near.
            (low, high), near = sides[item], sorted(dict.fromkeys(others), key=axes.__getitem__)
            apart, targets = min(_APART, (high - low) / max(len(near) - 1, 1)), []
            for at, other in enumerate(near):
                top, bottom = max(low, sides[other][0]), min(high, sides[other][1])
                best = (top + bottom) / 2 if top <= bottom else high if sides[other][0] > high else low
                targets.append(best - at * apart)
            limit = max(high - apart * (len(near) - 1), low)
            for at, (other, start) in enumerate(zip(near, isotonic(targets, [1.0] * len(near)), strict=True)):
                link = (item, other) if into is found[0] else (other, item)
                into[link] = round(min(max(start, low), limit) + at * apart)
    return found
