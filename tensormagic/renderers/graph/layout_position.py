"""Gives every node its height on the page: as near to its neighbours as the order in its column allows.

Third step of the layered layout. One column at a time is a weighted isotonic regression, solved exactly by pooling
adjacent violators (PAVA; Ayer and others, 1955, doi:10.1214/aoms/1177728423). Lines are kept level by weight. Gansner,
Koutsofios, North and Vo, 1993 (doi:10.1109/32.221135) take 8:2:1 for two bends, a bend and a node, two nodes; here two
nodes weigh more than a bend and a node, so that the chain of ops stays level and skip connections go round it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tensormagic.renderers.graph.layout_order import Columns

Extent = tuple[float, float]

_SWEEPS = 10
# How strongly an edge is kept level: between two nodes, a node and a bend, two bends.
_STRENGTH = (4.0, 1.0, 8.0)
_ADRIFT = 0.05  # the weight of an item that nothing pulls


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
        self._columns, self._extents, self._real, self._gap = columns, extents, real_count, gap
        self.centre = [0.0] * len(extents)
        self._steps = [self._distances(column) for column in columns.members]
        for column, steps in zip(columns.members, self._steps, strict=True):
            offset = (steps[0] - steps[-1]) / 2
            for item, step in zip(column, steps, strict=True):
                self.centre[item] = step + offset

    def _distances(self, column: list[int]) -> list[float]:
        """Return the least possible axis of each item, the first at 0."""
        steps = [0.0]
        for above, below in pairwise(column):
            gap = self._gap if above < self._real or below < self._real else self._gap / 2
            steps.append(steps[-1] + self._extents[above][1] + self._extents[below][0] + gap)
        return steps

    def run(self) -> list[float]:
        """Sweep to and fro, then with both sides pulling; return the axes."""
        numbers = range(len(self._columns.members))
        for sweep in range(_SWEEPS):
            sides = ((self._columns.preceding,), (self._columns.following,))[sweep % 2]
            for number in numbers if sweep % 2 == 0 else reversed(numbers):
                self._settle(number, sides)
        for _ in range(2):
            for number in numbers:
                self._settle(number, (self._columns.preceding, self._columns.following))
        return self.centre

    def _settle(self, number: int, sides: tuple[list[list[int]], ...]) -> None:
        column, steps = self._columns.members[number], self._steps[number]
        pulls = [self._pull(item, sides) for item in column]
        targets = [target - step for (target, _), step in zip(pulls, steps, strict=True)]
        for item, start, step in zip(column, isotonic(targets, [pull[1] for pull in pulls]), steps, strict=True):
            self.centre[item] = start + step

    def _pull(self, item: int, sides: tuple[list[list[int]], ...]) -> tuple[float, float]:
        """Return where the neighbours want ``item``, and how strongly."""
        total, weight = self.centre[item] * _ADRIFT, _ADRIFT
        for neighbours in sides:
            for other in neighbours[item]:
                bends = (item >= self._real) + (other >= self._real)
                strength = _STRENGTH[bends]
                total += self.centre[other] * strength
                weight += strength
        return total / weight, weight
