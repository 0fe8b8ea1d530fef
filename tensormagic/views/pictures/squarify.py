"""Divides a rectangle among numbers, so that each piece has its share of the area and is nearly a square.

The algorithm is that of Bruls, Huizing and van Wijk ("Squarified Treemaps", 2000): pieces are laid in rows along the
shorter side of what is left, and a row takes one more piece as long as its worst piece becomes no longer by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, its corner at the top left."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        """Width times height."""
        return self.width * self.height


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Return a rectangle for each size, in their order; together they fill ``box``.

    Args:
        sizes: None negative. Sorted from the largest to the smallest the pieces come nearest to squares.
        box: What is divided; a size has the share of its area that it has of the sum.
    """
    total = sum(sizes)
    if total <= 0 or box.area <= 0:
        return [Box(box.x, box.y, 0.0, 0.0) for _ in sizes]
    areas = [size * (box.area / total) for size in sizes]
    placed: list[Box] = []
    rest = box
    while len(placed) < len(areas):
        end = _row_end(areas, len(placed), min(rest.width, rest.height))
        row, rest = _row(areas[len(placed) : end], rest, last=end == len(areas))
        placed += row
    return placed


def _row_end(areas: Sequence[float], start: int, side: float) -> int:
    """Return behind which piece the row that begins with ``start`` ends."""
    total = smallest = largest = areas[start]
    worst = _longest(total, smallest, largest, side)
    for at in range(start + 1, len(areas)):
        total, smallest, largest = total + areas[at], min(smallest, areas[at]), max(largest, areas[at])
        longer = _longest(total, smallest, largest, side)
        if longer > worst:
            return at
        worst = longer
    return len(areas)


def _longest(total: float, smallest: float, largest: float, side: float) -> float:
    """Return the ratio of the sides of the longest piece in a row of that area along that side."""
    if smallest <= 0 or side <= 0:
        return float("inf")
    return max(side * side * largest / (total * total), total * total / (side * side * smallest))


def _row(areas: Sequence[float], rest: Box, *, last: bool) -> tuple[list[Box], Box]:
    """Lay a row along the shorter side of ``rest``; return its pieces and what is left."""
    total, upright = sum(areas), rest.width >= rest.height
    side, across = (rest.height, rest.width) if upright else (rest.width, rest.height)
    thick = across if last or side <= 0 else min(total / side, across)
    placed, at = [], 0.0
    for area in areas:
        long = side * area / total if total > 0 else 0.0
        placed.append(Box(rest.x, rest.y + at, thick, long) if upright else Box(rest.x + at, rest.y, long, thick))
        at += long
    if upright:
        return placed, Box(rest.x + thick, rest.y, rest.width - thick, rest.height)
    return placed, Box(rest.x, rest.y + thick, rest.width, rest.height - thick)
