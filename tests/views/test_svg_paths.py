"""The numbers, lines and heat maps of a picture: as short as can be without being seen."""

from __future__ import annotations

from tensormagic.views import svg_paths
from tensormagic.views.svg_paths import eased, number
from tests.views.snapshots import pixels

PREFIX = "data:image/png;base64,"


def test_numbers_of_a_picture_carry_no_needless_zero():
    """Neither behind nor before the point."""
    assert [number(value) for value in (0, 0.5, -0.5, 10.5, -10.5, 20.0, 0.96)] == [
        "0", ".5", "-.5", "10.5", "-10.5", "20", "1",
    ]  # fmt: skip


def test_a_line_is_eased_by_less_than_can_be_seen():
    """Points on the way go, corners and ends stay, and of two in a row that are near one stays."""
    assert eased([(0, 0), (1, 0.1), (2, 0), (3, 5), (4, 0)]) == [(0, 0), (2, 0), (3, 5), (4, 0)]
    slope = [(at, at**2 / 40) for at in range(9)]
    assert eased(slope) == [*slope[::2]]
    assert eased([(1, 2)]) == [(1, 2)]


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
