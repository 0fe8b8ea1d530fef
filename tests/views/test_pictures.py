"""Pictures of numbers: areas that are exact, moments and rows that are chosen, what has room for its words."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tensormagic.reports import Timeline
from tensormagic.views import theme
from tensormagic.views.panels.memory import tile
from tensormagic.views.panels.ranks import RankMap, all_clear
from tensormagic.views.pictures import timeline as stack
from tensormagic.views.pictures.cells import Cell as GridCell, Cells, Row
from tensormagic.views.pictures.treemap import Box, Cell, Group, Tile, cell_lines, header_words, squarify, treemap
from tests.views import samples_ranks, snapshots
from tests.views.samples_memory import storage
from tests.views.samples_memory_run import SAMPLES

MIB = 2**20


def cells(tiles, box, **how):
    return [cell for group in treemap(tiles, box, **how) for cell in group.cells]


def test_area_is_bytes_whatever_the_group() -> None:
    """A header takes no area: equal bytes are equal areas in every group."""
    tiles = [Tile("net", "w", "parameter", 600), Tile("net", "w.grad", "gradient", 300), Tile("x", "x", "input", 300)]
    areas = {cell.tile.label: cell.box.area for cell in cells(tiles, Box(0, 0, 400, 100))}
    assert areas == pytest.approx({"w": 20000, "w.grad": 10000, "x": 10000})


def test_what_is_small_is_put_together() -> None:
    """By category in a group; of several groups, even together too small, as one that still takes its area.

    Ten thousand storages of one size become at most as many cells as asked for, and one for the rest.
    """
    many = [Tile("net", f"b{at}", "buffer", 10) for at in range(50)]
    found = cells([Tile("net", "w", "parameter", 9500), *many], Box(0, 0, 100, 100))
    assert [(cell.tile.label, cell.tile.nbytes, cell.tile.count) for cell in found] == [
        ("w", 9500, 1), ("50 smaller", 500, 50),
    ]  # fmt: skip
    tiles = [Tile("net", "w", "parameter", 10**6), Tile("a", "a", "input", 1), Tile("b", "b", "other", 2)]
    last = cells(tiles, Box(0, 0, 100, 100))[-1].tile
    assert (last.category, last.nbytes, last.count) == (theme.MIXED, 3, 2)
    drawn = cells([Tile("xs", f"[{at}]", "other", 4096) for at in range(10_000)], Box(0, 0, 2000, 2000), most=300)
    assert len(drawn) == 301
    assert sum(cell.tile.nbytes for cell in drawn) == 10_000 * 4096


WEIGHT, STATE = "net.blocks.0.mlp.up.weight.grad", "opt.state[net.layers.3.fc.weight]['exp_avg']"
SAVED = "graph of loss: MulBackward0, saved as self"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("net.fc.weight", ("net", "fc.weight")),
        ("losses[17]", ("losses", "[17]")),
        (SAVED, ("graph of loss", "MulBackward0, saved as self")),
        ("x", ("x", "x")),
        (STATE, ("opt", "state[net.layers.3.fc.weight]['exp_avg']")),
    ],
)
def test_a_path_is_a_name_and_the_rest(name: str, parts: tuple[str, str]) -> None:
    """The name is what a user would let go of; the rest is what is inside of its group."""
    drawn = tile(storage(name, MIB, "gradient"))
    assert (drawn.group, drawn.label) == parts


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
        (STATE, 85, ["layers.3.fc", "exp_avg", "1 MiB"]),
        (SAVED, 220, ["MulBackward0, saved as self", "1 MiB"]),
        (SAVED, 60, ["Mul", "1 MiB"]),
    ],
)
def test_a_label_loses_first_what_the_colour_says(name: str, width: float, lines: list[str]) -> None:
    """What is on a cell of that size, beside another of its group."""
    drawn = Cell(Box(0, 20, width, 60), tile(storage(name, MIB, "gradient")))
    assert cell_lines(drawn, Group(Box(0, 0, 500, 200), drawn.tile.group, (drawn, drawn))) == lines


def test_a_narrow_header_keeps_the_number_of_its_line() -> None:
    """First the code goes, then the bytes; of many small ones the name stays."""
    cell = Cell(Box(0, 0, 10, 10), Tile("", "x", "other", MIB))
    label = "line 33  losses.append(loss)"
    headers = [header_words(Group(Box(0, 0, width, 80), label, (cell,))) for width in (300, 130, 64)]
    assert headers == [[label, "1 MiB"], ["line 33", "1 MiB"], ["line 33"]]
    narrow = Cell(Box(0, 0, 80, 60), Tile("xs", "2000 smaller", "other", MIB, count=2000))
    assert cell_lines(narrow, Group(narrow.box, "xs", (narrow,))) == ["xs", "1 MiB"]
    alone = Cell(Box(0, 0, 54, 60), tile(storage("graph of out: AddmmBackward0, saved as mat1", MIB, "other")))
    assert cell_lines(alone, Group(alone.box, alone.tile.group, (alone,))) == ["out", "1 MiB"]


@given(
    st.lists(st.integers(1, 10**12), min_size=1, max_size=60),
    st.builds(Box, st.just(3.0), st.just(-5.0), st.floats(10, 2000), st.floats(10, 2000)),
)
def test_areas_are_shares_of_the_whole(sizes: list[int], box: Box) -> None:
    """Every piece has its share of the area and lies inside of the box; no two have more than an edge in common."""
    placed = squarify(sizes, box)
    slack = 1e-6 * max(box.width, box.height)
    for at, (size, piece) in enumerate(zip(sizes, placed, strict=True)):
        assert piece.area == pytest.approx(box.area * size / sum(sizes), rel=1e-6, abs=1e-6 * box.area)
        assert box.x - slack <= piece.x <= piece.x + piece.width <= box.x + box.width + slack
        assert box.y - slack <= piece.y <= piece.y + piece.height <= box.y + box.height + slack
        for other in placed[at + 1 :]:
            across = min(piece.x + piece.width, other.x + other.width) - max(piece.x, other.x)
            down = min(piece.y + piece.height, other.y + other.height) - max(piece.y, other.y)
            assert min(across, down) <= slack


def test_the_example_of_the_paper() -> None:
    """6, 6, 4, 3, 2, 2 and 1 in a box of 6 by 4: two sixes upright at the left, as Bruls and others draw them.

    What has no bytes, or no box, has no area.
    """
    placed = squarify([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 6, 4))
    assert placed[:2] == [Box(0, 0, 3, 2), Box(0, 2, 3, 2)]
    assert placed[2].width == pytest.approx(12 / 7)
    assert max(max(one.width / one.height, one.height / one.width) for one in placed) < 3
    assert squarify([0, 0], Box(1, 2, 3, 4)) == [Box(1, 2, 0, 0)] * 2
    assert squarify([5], Box(1, 2, 0, 4)) == [Box(1, 2, 0, 0)]
    assert [piece.area for piece in squarify([4, 0], Box(0, 0, 2, 2))] == [4.0, 0.0]


def timeline(live: list[int], operation: list[int] | None = None, **more) -> Timeline:
    """Return a timeline of a CPU whose bytes are all of one category and line, but for what was there before."""
    before = (min(live),) * len(live)
    own = tuple(each - before[0] for each in live)
    known = {"by_category": (("other", own),), "by_line": ((0, own),)}
    return Timeline("cpu", array("f", range(len(live))), tuple(operation or range(len(live))), tuple(live), before,
                    peak=live.index(max(live)), **{**known, **more})  # fmt: skip


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=80), st.integers(1, 40))
def test_no_peak_is_lost(live: list[int], number: int) -> None:
    """However few columns there are, one of them shows the peak, and they go forward in time."""
    chosen = stack.columns(timeline(live), number)
    assert len(chosen) == min(number, len(live))
    assert max(live[at] for at in chosen) == max(live)
    assert chosen == sorted(chosen)


def test_moments_and_columns_of_a_timeline() -> None:
    """Between operations memory stays as it is, the peak stands over its column, and a thinned timeline says so."""
    assert stack.columns(timeline([5, 9, 7, 3], [0, 1, 8, 9]), 10) == [0, 1, 1, 1, 1, 1, 1, 1, 2, 3]
    many = timeline([0] * 500 + [9] + [0] * 499)
    assert stack.column_of(many, many.peak, 100) == pytest.approx(50.5 / 100)
    some, uncounted, all_kept = (stack.thinned_words(timeline([1, 2, 3], samples=at)) for at in (4000, 0, 3))
    assert some.endswith("000 moments kept, the highest among them")
    assert uncounted == all_kept == ""


def test_layers_add_up_to_what_is_alive() -> None:
    """By category and by line; what was before lies lowest. Lines beyond the colours are one layer."""
    drawn = SAMPLES["training"].timelines[0]
    moments = stack.columns(drawn, 50)
    for layers in (stack.by_category(drawn), stack.by_line(drawn)):
        assert layers[0].key == theme.BEFORE
        assert stack.tops(layers, moments)[-1] == [drawn.live[at] for at in moments]
    lines = tuple((at, (0, 10 + at)) for at in range(9))
    nine = timeline([0, sum(10 + at for at in range(9)) + 5], by_category=(), by_line=(*lines, (-1, (0, 5))))
    layers = stack.by_line(nine)
    assert [layer.key for layer in layers] == ["8", "7", "6", "5", "4", "3", stack.OTHER_LINES]
    assert layers[-1].values == (0, 10 + 11 + 12 + 5)
    assert layers[-1].rank == len(theme.STACK_COLOURS) - 1


@pytest.mark.parametrize(
    ("top", "expected"),
    [(96 * MIB, [0, 20, 40, 60, 80]), (5 * MIB, [0, 1, 2, 3, 4, 5]), (1100 * MIB, [0, 1024]), (2 * MIB, [0, 1, 2])],
)
def test_ticks_are_round(top: int, expected: list[int]) -> None:
    """One, two or five of a power of ten, in binary units."""
    assert stack.ticks(top) == [at * MIB for at in expected]


def test_cells_without_room() -> None:
    """For frames: they are shaded, and the chosen one is pointed at. For a long label: it is cut, the tip is not."""
    row = Row("a", [GridCell("1", "#00224e"), GridCell("nan", "#fee838", on=True), GridCell(share=0)], on=True)
    assert Cells([row]).framed(10) is None
    assert Cells([row]).dense(20, "offset 7").lines()[0].strip() == "▼ offset 7"
    shares = Cells([Row("b", [GridCell(colour="#56b4e9", share=share) for share in (1, 0.75, 0.25, 0)])])
    assert shares.dense(9).lines() == [" b  █▓▒░"]
    name = "a" * 80
    svg = Cells([Row(name, [GridCell(name, "#00224e", name)])], left=60).svg()
    assert name not in svg.replace(f"<title>{name}</title>", "")


LIKE, TWICE = 3, 5  # levels
ODD = [1.0, 1.0, 1.0, 1.0] * 3 + [2.5, 0.01, math.nan, -1.0]  # norms of four parameters on four ranks


def of_ranks(count: int, names: int):
    """Return a healthy run of so many ranks without replicas."""
    ranks = tuple(samples_ranks.row(rank, replicas=()) for rank in range(count))
    return replace(samples_ranks.healthy(), ranks=ranks, names=tuple(map(str, range(names))))


def of_four(*norms, replicas=((0, 1, 2, 3),) * 4):
    """Return the map's rows of four ranks, each with its norm of one parameter."""
    ranks = tuple(samples_ranks.row(rank, replicas=replicas[rank]) for rank in range(4))
    report = replace(samples_ranks.healthy(), ranks=ranks, names=("w",))
    return [(ranks, [*each]) for ranks, each in RankMap(report, array("f", norms)).rows]


@pytest.mark.parametrize("norms", [(1.0, 9.0, 1.0, 9.0), (1e-9, 1e9, 1e-9, 1e9)])
def test_shards_are_held_against_their_replicas(norms):
    """Two replicas of two shards: shards differ, and nothing is odd; without replicas all are held against all.

    Of replicas, those that look alike are one row, and the odd one has its own.
    """
    assert of_four(*norms, replicas=[(0, 2), (1, 3)] * 2) == [([0, 1, 2, 3], [LIKE])]
    assert len(of_four(*norms, replicas=[()] * 4)) == len(of_four(*norms, replicas=[(at,) for at in range(4)])) == 2
    assert of_four(1.0, 1.0, 2.5, 1.0) == [([0, 1, 3], [LIKE]), ([2], [TWICE])]


def pixels(svg):
    """Return the rows of the one image of a drawing: a byte a pixel."""
    (found,) = re.findall(r'<image[^>]* href="data:image/png;base64,([^"]+)"', svg)
    return [[*row] for row in snapshots.pixels(found)[2]]


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_what_is_not_finite_is_hatched(norm):
    """So that it is told from a large norm without its colour; a map without it has no hatching."""
    report = samples_ranks.healthy()
    drawn = RankMap(report, (*report.step_norms[:-1], norm))
    assert drawn.svg(720)[0].count('stroke-width="1.4"') == 1
    assert "not finite" in drawn.svg(720)[0]
    assert "!" in "".join(drawn.text(80))
    assert 'stroke-width="1.4"' not in RankMap(report, tuple(report.step_norms)).svg(720)[0]


@pytest.mark.parametrize(("many", "rows", "wide"), [(300, 1024, 300), (1000, 513, 500)])
def test_a_thousand_rows_and_as_many_columns_as_fit_are_drawn_one_by_one(many, rows, wide):
    """None is left out, and none is narrower than a pixel; beyond that columns are joined."""
    norms = array("f", [1.0]) * (1024 * many)
    for rank in range(1, 1024):
        norms[rank * many + rank % many] = (1.3, 5.0, 20.0, 0.2)[rank // many]
    drawn = RankMap(of_ranks(1024, many), norms)
    found = pixels(drawn.svg(720)[0])
    assert {*map(len, found)} == {wide}
    assert rows <= len(found) == len(drawn.rows)
    assert all(sum(level != LIKE for level in row) == 1 for row in found[1:])
    place = re.search(r'<image x="120" y="0" width="(\d+)" height="(\d+)"', drawn.svg(720)[0])
    assert (int(place[1]) >= wide, int(place[2]) >= len(found)) == (True, True)


def test_where_a_cell_has_no_room_for_lines_what_is_not_finite_is_striped():
    """None of it vanishes: each stripe is of its colour, too."""
    norms = array("f", [1.0 + at % 200 for at in range(20_000)])
    for rank in range(40, 48):
        norms[rank * 200 + rank : rank * 200 + 60] = array("f", [math.nan]) * (60 - rank)
    made = RankMap(of_ranks(100, 200), norms)
    drawn = pixels(made.svg(720)[0])
    assert {level for row in drawn for level in row if level > 6} == {7, 9}
    assert [sum(level > 6 for level in row) for row in drawn] == [row.count(7) for _, row in made.rows]
    assert "not finite on ranks 40 to 47" in made.sentence


def test_the_table_behind_holds_the_numbers_that_differ():
    """The furthest first; what is like the median of its ranks is not in it. What has no gradient is no pixel."""
    drawn = RankMap(samples_ranks.healthy(), ODD)
    assert pixels(drawn.svg(720)[0]) == [[3, 3, 3, 3], [5, 0, 7, 8]]
    assert [row[:4] for row in drawn.behind().rows] == [
        ["3", "net.2.weight", "NaN", "1"], ["3", "net.0.bias", "0.01", "1"], ["3", "net.0.weight", "2.5", "1"],
    ]  # fmt: skip


def test_ranks_that_ended_before_a_backward_are_not_said_to_have_used_the_same_gradients():
    """Nothing is found and nothing was compared: the sentence claims no more, and says where more is."""
    failed = tuple(samples_ranks.row(rank, state="failed", passes=0, steps=0) for rank in range(4))
    report = replace(samples_ranks.healthy(), ranks=failed, compared_pass=0, compared_step=0)
    assert all_clear(report).startswith("Nothing found, and nothing compared")
    assert all_clear(report).endswith("What was found in the run of ranks 0 to 3 alone is in its own report.")
    assert all_clear(samples_ranks.healthy()).endswith("stayed the same.")
