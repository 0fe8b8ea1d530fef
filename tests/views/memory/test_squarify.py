"""Squarified treemaps: areas are exact, nothing overlaps, pieces are nearly square."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormagic.views.pictures.treemap import Box, squarify

SIZES = st.lists(st.integers(1, 10**12), min_size=1, max_size=60)
BOXES = st.builds(Box, st.just(3.0), st.just(-5.0), st.floats(10, 2000), st.floats(10, 2000))


@given(SIZES, BOXES)
def test_areas_are_shares_of_the_whole(sizes: list[int], box: Box) -> None:
    """Every piece has its share of the area, and lies inside of the box."""
    placed = squarify(sizes, box)
    assert len(placed) == len(sizes)
    for size, piece in zip(sizes, placed, strict=True):
        assert piece.area == pytest.approx(box.area * size / sum(sizes), rel=1e-6, abs=1e-6 * box.area)
        assert piece.x >= box.x - 1e-6
        assert piece.y >= box.y - 1e-6
        assert piece.x + piece.width <= box.x + box.width + 1e-6
        assert piece.y + piece.height <= box.y + box.height + 1e-6


@given(SIZES, BOXES)
def test_pieces_do_not_overlap(sizes: list[int], box: Box) -> None:
    """No two pieces have more than an edge in common."""
    placed = squarify(sorted(sizes, reverse=True), box)
    for at, one in enumerate(placed):
        for other in placed[at + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(across, down) <= 1e-6 * max(box.width, box.height)


def test_the_example_of_the_paper() -> None:
    """6, 6, 4, 3, 2, 2 and 1 in a box of 6 by 4: two sixes upright at the left, as Bruls and others draw them."""
    placed = squarify([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 6, 4))
    assert placed[0] == Box(0, 0, 3, 2)
    assert placed[1] == Box(0, 2, 3, 2)
    assert placed[2].width == pytest.approx(12 / 7)
    ratios = [max(piece.width / piece.height, piece.height / piece.width) for piece in placed]
    assert max(ratios) < 3


def test_equal_sizes_become_squares() -> None:
    """A hundred equal pieces of a square are a hundred squares, as long as there is room for them in rows."""
    ratios = [max(one.width / one.height, one.height / one.width) for one in squarify([7] * 100, Box(0, 0, 300, 300))]
    assert max(ratios) < 1.4


def test_nothing_has_no_area() -> None:
    """Without bytes, or without a box, every piece is empty; a zero among others takes no area."""
    assert squarify([0, 0], Box(1, 2, 3, 4)) == [Box(1, 2, 0, 0)] * 2
    assert squarify([5], Box(1, 2, 0, 4)) == [Box(1, 2, 0, 0)]
    assert [piece.area for piece in squarify([4, 0], Box(0, 0, 2, 2))] == [4.0, 0.0]


def test_five_thousand_pieces() -> None:
    """As many as a picture ever holds, from large to small: all of them placed, their areas the whole."""
    placed = squarify([5000 - at for at in range(5000)], Box(0, 0, 900, 300))
    assert sum(piece.area for piece in placed) == pytest.approx(270_000)
