"""The numbers and lines of a picture: as short as can be without being seen."""

from __future__ import annotations

from tensormagic.views.svg_paths import eased, number


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
