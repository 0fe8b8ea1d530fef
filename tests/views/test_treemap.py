"""The treemap of memory: groups, what is too small, what is written on a cell."""

from __future__ import annotations

import pytest

from tensormagic.views.panels.memory import inner, root, tile
from tensormagic.views.pictures.timeline_stack import MIXED
from tensormagic.views.pictures.treemap import Box, Cell, Group, Tile, cell_lines, header_words, treemap
from tests.views.samples_memory import storage


def cells(map_):
    return [cell for group in map_.groups for cell in group.cells]


def test_area_is_bytes_whatever_the_group() -> None:
    """A header takes no area: equal bytes are equal areas in every group."""
    tiles = [Tile("net", "w", "parameter", 600), Tile("net", "w.grad", "gradient", 300), Tile("x", "x", "input", 300)]
    map_ = treemap(tiles, 400, 100)
    areas = {cell.tile.label: cell.box.area for cell in cells(map_)}
    assert areas == pytest.approx({"w": 20000, "w.grad": 10000, "x": 10000})
    assert [(group.label, group.nbytes) for group in map_.groups] == [("net", 900), ("x", 300)]


def test_small_storages_of_a_group_are_put_together_by_category() -> None:
    """What would be smaller than six by six pixels is one cell a category, which says how many it stands for."""
    many = [Tile("net", f"b{at}", "buffer", 10) for at in range(50)]
    map_ = treemap([Tile("net", "w", "parameter", 9500), *many], 100, 100)
    assert [(cell.tile.label, cell.tile.nbytes, cell.tile.count) for cell in cells(map_)] == [
        ("w", 9500, 1), ("50 smaller", 500, 50),
    ]  # fmt: skip


def test_what_is_small_and_scattered_is_one_cell_of_several_kinds() -> None:
    """Two names that are too small even together still take their area, however little that is."""
    tiles = [Tile("net", "w", "parameter", 10**6), Tile("a", "a", "input", 1), Tile("b", "b", "other", 2)]
    last = cells(treemap(tiles, 100, 100))[-1]
    assert (last.tile.category, last.tile.nbytes, last.tile.count) == (MIXED, 3, 2)


def test_the_number_of_cells_is_bounded() -> None:
    """Ten thousand storages of one size become at most as many cells as asked for, and one for the rest."""
    map_ = treemap([Tile("xs", f"[{at}]", "other", 4096) for at in range(10_000)], 2000, 2000, most=300)
    assert len(cells(map_)) == 301
    assert sum(cell.tile.nbytes for cell in cells(map_)) == 10_000 * 4096


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
    assert (root(name), inner(name)) == parts


def written(name: str, width: float, height: float = 60) -> list[str]:
    """What is on a cell of that size, beside another of its group."""
    drawn = Cell(Box(0, 20, width, height), tile(storage(name, 2**20, "gradient")))
    group = Group(Box(0, 0, 500, 200), root(name), (drawn, drawn))
    return cell_lines(drawn, group)


def test_a_label_loses_first_what_the_colour_says() -> None:
    """Of a gradient's path `.grad` and `.weight` go first, then what it begins with; at last the bytes stand alone."""
    name = "net.blocks.0.mlp.up.weight.grad"
    assert written(name, 260) == ["blocks.0.mlp.up.weight.grad", "1 MiB"]
    assert written(name, 120) == ["blocks.0.mlp.up", "1 MiB"]
    assert written(name, 60) == ["mlp.up", "1 MiB"]
    assert written("net.extraordinarily.grad", 54) == ["1 MiB"]
    assert written(name, 20) == []
    assert written(name, 120, height=20) == ["blocks.0.mlp.up"]


def test_optimizer_state_is_called_by_its_parameter() -> None:
    """Of `opt.state[net.fc.weight]['exp_avg']` the parameter's path and the key stay."""
    name = "opt.state[net.layers.3.fc.weight]['exp_avg']"
    assert written(name, 150)[0] == "layers.3.fc exp_avg"
    assert written(name, 60)[0] == "3.fc"


def test_saved_tensors_are_called_by_their_operation() -> None:
    """Of `graph of loss: MulBackward0, saved as self` the operation stays, last without `Backward0`."""
    assert [written("graph of loss: MulBackward0, saved as self", width)[0] for width in (220, 110, 60)] == [
        "MulBackward0, saved as self", "Mul", "Mul",
    ]  # fmt: skip


def test_a_narrow_header_keeps_the_number_of_its_line() -> None:
    """First the code goes, then the bytes."""
    cell = Cell(Box(0, 0, 10, 10), Tile("", "x", "other", 2**20))

    def header(width: float) -> list[str]:
        return header_words(Group(Box(0, 0, width, 80), "line 33  losses.append(loss)", (cell,)))

    assert [header(width) for width in (300, 130, 64)] == [
        ["line 33  losses.append(loss)", "1 MiB"], ["line 33", "1 MiB"], ["line 33"],
    ]  # fmt: skip


def test_many_small_ones_of_one_name_keep_the_name() -> None:
    """Where not all of `xs: 2000 storages` has room, the name stays."""
    drawn = Cell(Box(0, 0, 200, 60), Tile("xs", "2000 smaller", "other", 2**20, count=2000))
    assert cell_lines(drawn, Group(drawn.box, "xs", (drawn,)))[0] == "xs: 2000 storages"
    narrow = Cell(Box(0, 0, 80, 60), drawn.tile)
    assert cell_lines(narrow, Group(narrow.box, "xs", (narrow,))) == ["xs", "1 MiB"]
