"""Tables in the terminal: nothing is cut off, however narrow it is."""

from __future__ import annotations

import pytest

from tensormagic.views.text_canvas import table

ROWS = [
    ("NAME", "SHAPE", "BYTES", "WHY"),
    ("net.fc.weight", "(5000, 3000)", "57.2 MiB", "shared with the head of the network"),
    ("x", "(4, 2)", "32 B", "nothing else"),
]


def _words(lines: list[str]) -> list[str]:
    return " ".join(lines).replace("\u00a0", " ").split()


def test_a_table_with_room_is_as_wide_as_its_widest_cells():
    """A width that is not reached changes nothing."""
    assert table(ROWS, width=120) == table(ROWS)
    assert len(table(ROWS)) == len(ROWS)


@pytest.mark.parametrize("width", range(24, 80, 4))
def test_nothing_is_lost_on_a_narrow_one(width):
    """Every word of every cell is there, and no line is wider than asked for."""
    lines = table(ROWS, width=width)
    assert max(map(len, lines)) <= width
    assert sorted(_words(lines)) == sorted(_words([cell for row in ROWS for cell in row]))


def test_cells_go_on_between_words_and_numbers_keep_their_units():
    """The column with the most words gives way; a size, a shape and a name stay in one piece."""
    lines = table(ROWS, width=64)
    assert any("net.fc.weight" in line and "57.2 MiB" in line and "(5000, 3000)" in line for line in lines)
    assert lines[0].split() == ["NAME", "SHAPE", "BYTES", "WHY"]


def test_where_words_do_not_fit_the_cells_stand_below_the_first():
    """Two lines a row, the others further in."""
    name, below, *_ = table(ROWS[1:], width=36)
    assert name == " net.fc.weight"
    assert below.startswith("     (5000,\u00a03000)   57.2\u00a0MiB")
