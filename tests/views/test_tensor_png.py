"""Heatmaps as PNG."""

from __future__ import annotations

from tensormagic.views import svg_paths
from tests.views.snapshots import pixels

PREFIX = "data:image/png;base64,"


def test_every_cell_is_a_square_of_its_colour() -> None:
    """Two by two cells of three pixels, each pixel the palette place of its cell."""
    width, height, rows = pixels(
        svg_paths.heatmap([[0, 1], [2, 0]], ("#000000", "#111111", "#222222"), size=3)[len(PREFIX) :]
    )
    first = svg_paths.FIRST_COLOUR
    assert (width, height) == (6, 6)
    assert rows[0] == bytes([first] * 3 + [first + 1] * 3)
    assert rows[5] == bytes([first + 2] * 3 + [first] * 3)


def test_what_is_no_number_is_hatched_each_in_its_way() -> None:
    """NaN, +Inf and -Inf are drawn in lines on nothing, and no two of them alike."""
    pictures = []
    for kind in (svg_paths.NOT_A_NUMBER, svg_paths.PLUS_INFINITY, svg_paths.MINUS_INFINITY):
        _, _, rows = pixels(svg_paths.heatmap([[kind]], (), size=10)[len(PREFIX) :])
        assert {pixel for row in rows for pixel in row} == {svg_paths.CLEAR, svg_paths.LINE}
        pictures.append(b"".join(rows))
    assert len(set(pictures)) == 3
