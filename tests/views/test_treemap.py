"""The treemap of memory: areas that are exact, groups, what is too small, what is written on a cell."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tensormagic.views.panels.memory import tile
from tensormagic.views.pictures.treemap import Box, Cell, Group, Tile, cell_lines, header_words, squarify, treemap
from tensormagic.views.theme import MIXED
from tests.views.samples_memory import storage


def cells(groups):
    return [cell for group in groups for cell in group.cells]


def test_area_is_bytes_whatever_the_group() -> None:
    """A header takes no area: equal bytes are equal areas in every group."""
    tiles = [Tile("net", "w", "parameter", 600), Tile("net", "w.grad", "gradient", 300), Tile("x", "x", "input", 300)]
    groups = treemap(tiles, Box(0, 0, 400, 100))
    areas = {cell.tile.label: cell.box.area for cell in cells(groups)}
    assert areas == pytest.approx({"w": 20000, "w.grad": 10000, "x": 10000})
    assert [(group.label, group.nbytes) for group in groups] == [("net", 900), ("x", 300)]


def test_small_storages_of_a_group_are_put_together_by_category() -> None:
    """What would be smaller than six by six pixels is one cell a category, which says how many it stands for."""
    many = [Tile("net", f"b{at}", "buffer", 10) for at in range(50)]
    groups = treemap([Tile("net", "w", "parameter", 9500), *many], Box(0, 0, 100, 100))
    found = [(cell.tile.label, cell.tile.nbytes, cell.tile.count) for cell in cells(groups)]
    assert found == [("w", 9500, 1), ("50 smaller", 500, 50)]


def test_what_is_small_and_scattered_is_one_cell_of_several_kinds() -> None:
    """Two names that are too small even together still take their area, however little that is."""
    tiles = [Tile("net", "w", "parameter", 10**6), Tile("a", "a", "input", 1), Tile("b", "b", "other", 2)]
    last = cells(treemap(tiles, Box(0, 0, 100, 100)))[-1]
    assert (last.tile.category, last.tile.nbytes, last.tile.count) == (MIXED, 3, 2)


def test_the_number_of_cells_is_bounded() -> None:
    """Ten thousand storages of one size become at most as many cells as asked for, and one for the rest."""
    tiles = [Tile("xs", f"[{at}]", "other", 4096) for at in range(10_000)]
    drawn = cells(treemap(tiles, Box(0, 0, 2000, 2000), most=300))
    assert len(drawn) == 301
    assert sum(cell.tile.nbytes for cell in drawn) == 10_000 * 4096


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("net.fc.weight", ("net", "fc.weight")),
        ("losses[17]", ("losses", "[17]")),
        ("graph of loss: MulBackward0, saved as self", ("graph of loss", "MulBackward0, saved as self")),
        ("x", ("x", "x")),
        ("opt.state[net.w]['exp_avg']", ("opt", "state[net.w]['exp_avg']")),
    ],
)
def test_a_path_is_a_name_and_the_rest(name: str, parts: tuple[str, str]) -> None:
    """The name is what a user would let go of; the rest is what is inside of its group."""
    drawn = tile(storage(name, 2**20, "gradient"))
    assert (drawn.group, drawn.label) == parts


def written(name: str, width: float, height: float = 60) -> list[str]:
    """What is on a cell of that size, beside another of its group."""
    drawn = Cell(Box(0, 20, width, height), tile(storage(name, 2**20, "gradient")))
    group = Group(Box(0, 0, 500, 200), drawn.tile.group, (drawn, drawn))
    return cell_lines(drawn, group)


WEIGHT, STATE = "net.blocks.0.mlp.up.weight.grad", "opt.state[net.layers.3.fc.weight]['exp_avg']"
SAVED = "graph of loss: MulBackward0, saved as self"


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        # Of a gradient's path `.grad` and `.weight` go first, then what it begins with; at last the bytes stand alone.
        (WEIGHT, 260, ["blocks.0.mlp.up.weight.grad", "1 MiB"]),
        (WEIGHT, 120, ["blocks.0.mlp.up", "1 MiB"]),
        (WEIGHT, 60, ["mlp.up", "1 MiB"]),
        ("net.extraordinarily.grad", 54, ["1 MiB"]),
        (WEIGHT, 20, []),
        # Of a state the parameter's path and the key stay, of a saved tensor the operation, last without `Backward0`.
        (STATE, 150, ["layers.3.fc exp_avg", "1 MiB"]),
        (STATE, 60, ["3.fc", "1 MiB"]),
        (SAVED, 220, ["MulBackward0, saved as self", "1 MiB"]),
        (SAVED, 110, ["Mul", "1 MiB"]),
        (SAVED, 60, ["Mul", "1 MiB"]),
    ],
)
def test_a_label_loses_first_what_the_colour_says(name: str, width: float, lines: list[str]) -> None:
    """What is on a cell of that size, beside another of its group."""
    assert written(name, width) == lines
    assert len(written(WEIGHT, 120, height=20)) == 1


def test_a_narrow_header_keeps_the_number_of_its_line() -> None:
    """First the code goes, then the bytes."""
    cell = Cell(Box(0, 0, 10, 10), Tile("", "x", "other", 2**20))

    label = "line 33  losses.append(loss)"
    headers = [header_words(Group(Box(0, 0, width, 80), label, (cell,))) for width in (300, 130, 64)]
    assert headers == [[label, "1 MiB"], ["line 33", "1 MiB"], ["line 33"]]


def test_many_small_ones_of_one_name_keep_the_name() -> None:
    """Where not all of `xs: 2000 storages` has room, the name stays."""
    drawn = Cell(Box(0, 0, 200, 60), Tile("xs", "2000 smaller", "other", 2**20, count=2000))
    assert cell_lines(drawn, Group(drawn.box, "xs", (drawn,)))[0] == "xs: 2000 storages"
    narrow = Cell(Box(0, 0, 80, 60), drawn.tile)
    assert cell_lines(narrow, Group(narrow.box, "xs", (narrow,))) == ["xs", "1 MiB"]


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
