"""The steps of a layered layout: columns, the order in each, heights, and where lines touch boxes.

Columns come first (Sugiyama, Tagawa and Toda, 1981, doi:10.1109/TSMC.1981.4308636): longest-path ranks, then whatever
hangs on nothing but itself (a source, or a tree of sources) is pulled next to what it feeds. Then barycenter sweeps to
and fro order each column, the best order seen is kept, and neighbours are swapped wherever that saves a crossing;
crossings between two columns are inversions, counted with a Fenwick tree (Barth, Mutzel and Juenger, 2004,
doi:10.7155/jgaa.00088). Everything is iterative: an unrolled recurrent network is a chain of thousands.

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
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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


def rank(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the column of every node, from 0; ``edges`` may run in circles (they are then turned round).

    Sources, and trees of sources, move right: that stretches no edge to their left.
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
    column = {old: new for new, old in enumerate(sorted(set(ranks)))}  # none is empty
    return [column[old] for old in ranks]


# -- the order in a column --------------------------------------------------------------------------------------------

# The work of one sweep grows with the edges; a picture that is this large is not read edge by edge.
_SWEEP_BUDGET = 400_000
_SWEEPS = 24
_SWAP_ROUNDS = 8
_SHUFFLES = 8
_SHUFFLE_BUDGET = 2_000  # the work of a shuffle grows with the edges as well
_SWAPS_EACH_SWEEP = 600  # edges, up to which neighbours are tried after every sweep, not only at the end


@dataclass(frozen=True, slots=True)
class Columns:
    """A layered graph: every edge leads from one column to the next."""

    members: list[list[int]]  # The items of each column, top to bottom.
    following: list[list[int]]  # For each item, the items of the next column that it leads to.
    preceding: list[list[int]]  # For each item, the items of the column before that lead to it.

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
    total = 0
    for left, right in pairwise(columns.members):
        place = {item: at for at, item in enumerate(right)}
        heads = (at for item in left for at in sorted(place[head] for head in columns.following[item]))
        total += inversions(heads, len(right))
    return total


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
    """Order one column after the other by its neighbours, to and fro, as long as that saves crossings.

    An item without neighbours stays at its place, the others pass round it; in every second pair of sweeps what is
    equal changes places.
    """
    best_count, best = crossings(columns), [list(column) for column in columns.members]
    rounds = max(2, min(_SWEEPS, _SWEEP_BUDGET // max(columns.edge_count, 1)))
    stale, last = 0, len(columns.members) - 1
    for sweep in range(rounds):
        if not best_count or stale >= 8:
            break
        rightwards = sweep % 2 == 0
        neighbours = columns.preceding if rightwards else columns.following
        for number in range(1, last + 1) if rightwards else range(last - 1, -1, -1):
            fixed = columns.members[number - 1 if rightwards else number + 1]
            place = {item: at for at, item in enumerate(fixed)}
            column = columns.members[number][::-1] if sweep % 4 >= 2 else columns.members[number]
            mean = {
                item: sum(place[other] for other in near) / len(near) for item in column if (near := neighbours[item])
            }
            moved = iter(sorted(mean, key=mean.__getitem__))
            columns.members[number] = [next(moved) if neighbours[item] else item for item in column]
        count = crossings(columns)
        if columns.edge_count <= _SWAPS_EACH_SWEEP:
            count = _swap(columns, count)
        stale += 1
        if count < best_count:
            best_count, best, stale = count, [list(column) for column in columns.members], 0
    return best_count, best


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
        upper, lower = column[at], column[at + 1]
        pairs = ((above, below) for side in sides for above in side[upper] for below in side[lower])
        gain = sum((above > below) - (above < below) for above, below in pairs)  # crossings lost by changing places
        if gain > 0:
            column[at], column[at + 1] = column[at + 1], column[at]
            saved += gain
    return saved


# -- heights ----------------------------------------------------------------------------------------------------------

Extent = tuple[float, float]

_PLACEMENTS = 10
# How strongly an edge is kept level: between two nodes, a node and a bend, two bends.
_STRENGTH = (4.0, 1.0, 8.0)
_WEIGHT_OF_THE_UNPULLED = 0.05  # the weight of an item that nothing pulls


def isotonic(targets: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the non-decreasing sequence nearest to ``targets`` in weighted squares."""
    means: list[float] = []
    masses: list[float] = []
    sizes: list[int] = []
    for target, weight in zip(targets, weights, strict=True):
        mean, mass, size = target, weight, 1
        while means and means[-1] >= mean:
            other = masses.pop()
            mean = (means.pop() * other + mean * mass) / (other + mass)
            mass, size = mass + other, size + sizes.pop()
        means.append(mean)
        masses.append(mass)
        sizes.append(size)
    return [mean for mean, size in zip(means, sizes, strict=True) for _ in range(size)]


class Placement:
    """The heights of all items' axes, improved by sweeps."""

    def __init__(self, columns: Columns, extents: Sequence[Extent], real_count: int, gap: float) -> None:
        """Start with every column packed round zero.

        Args:
            columns: Items in their order.
            extents: How far every item, bends included, reaches above and below its axis.
            real_count: Items below this number are nodes, the others bends of edges.
            gap: The least distance between two nodes of a column; half of it between bends.
        """
        self._columns, self._real, self.centre = columns, real_count, [0.0] * len(extents)
        self._steps: list[list[float]] = []  # of each column the least possible axis of each item, the first at 0
        for column in columns.members:
            steps = [0.0]
            for above, below in pairwise(column):
                apart = gap if above < real_count or below < real_count else gap / 2
                steps.append(steps[-1] + extents[above][1] + extents[below][0] + apart)
            self._steps.append(steps)
            for item, step in zip(column, steps, strict=True):
                self.centre[item] = step + (steps[0] - steps[-1]) / 2

    def run(self) -> list[float]:
        """Sweep to and fro, then with both sides pulling; return the axes."""
        sides = self._columns.preceding, self._columns.following
        numbers = range(len(self._columns.members))
        for sweep in range(_PLACEMENTS):
            for number in numbers if sweep % 2 == 0 else reversed(numbers):
                self._settle(number, sides[sweep % 2 :][:1])
        for number in (*numbers, *numbers):
            self._settle(number, sides)
        return self.centre

    def _settle(self, number: int, sides: tuple[list[list[int]], ...]) -> None:
        """Place a column where the neighbours want its items, as strongly as they do."""
        column, steps, real = self._columns.members[number], self._steps[number], self._real
        targets, weights = [], []
        for item, step in zip(column, steps, strict=True):
            total, weight = self.centre[item] * _WEIGHT_OF_THE_UNPULLED, _WEIGHT_OF_THE_UNPULLED
            for neighbours in sides:
                for other in neighbours[item]:
                    strength = _STRENGTH[(item >= real) + (other >= real)]
                    total += self.centre[other] * strength
                    weight += strength
            targets.append(total / weight - step)
            weights.append(weight)
        for item, start, step in zip(column, isotonic(targets, weights), steps, strict=True):
            self.centre[item] = start + step


# -- where lines touch boxes ------------------------------------------------------------------------------------------

_INSET = 9.0  # how far from a box's corner a line may touch it
_APART = 9.0  # how far apart two lines touch it, where there is room

Link = tuple[int, int]


class Ports:
    """The height at which every link between two columns leaves its left item and reaches its right one."""

    def __init__(self, columns: Columns, extents: Sequence[Extent], axes: Sequence[float]) -> None:
        """Compute all ports from how far the items reach above their axes."""
        reaches = [max(above - _INSET, 0.0) for above, _ in extents]
        self._sides = [(axis - reach, axis + reach) for axis, reach in zip(axes, reaches, strict=True)]
        self._axes = axes
        self.leave: dict[Link, float] = {}
        self.reach: dict[Link, float] = {}
        for item, heads in enumerate(columns.following):
            self._spread(item, [(item, head) for head in dict.fromkeys(heads)], self.leave, right=True)
        for item, tails in enumerate(columns.preceding):
            self._spread(item, [(tail, item) for tail in dict.fromkeys(tails)], self.reach, right=False)

    def _spread(self, item: int, links: list[Link], into: dict[Link, float], *, right: bool) -> None:
        """Let each line lie where it would best lie on the side of ``item``, pushed apart where they are near."""
        if not links:
            return
        low, high = self._sides[item]
        links.sort(key=lambda link: self._axes[link[right]])
        apart = min(_APART, (high - low) / max(len(links) - 1, 1))
        targets = []
        for at, link in enumerate(links):
            other_low, other_high = self._sides[link[right]]
            top, bottom = max(low, other_low), min(high, other_high)
            best = (top + bottom) / 2 if top <= bottom else high if other_low > high else low
            targets.append(best - at * apart)
        limit = high - apart * (len(links) - 1)
        for at, (link, start) in enumerate(zip(links, isotonic(targets, [1.0] * len(links)), strict=True)):
            into[link] = round(min(max(start, low), max(limit, low)) + at * apart)
