"""Norms of ranks as a map: a row for those that look alike, held against those that hold the same parameters."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import replace

import pytest

from tensormagic import views
from tensormagic.views.panels.ranks import RankMap, all_clear
from tensormagic.views.svg_paths import hatching
from tests.views import samples_ranks, snapshots
from tests.views.markup_reader import Page

LIKE, TWICE = 3, 5  # levels
ODD = [1.0, 1.0, 1.0, 1.0] * 3 + [2.5, 0.01, math.nan, -1.0]  # norms of four parameters on four ranks


def of_four(*norms, **facts):
    """Return the map's rows of four ranks, each with its norm of one parameter."""
    ranks = tuple(samples_ranks.row(rank, **{name: of[rank] for name, of in facts.items()}) for rank in range(4))
    report = replace(samples_ranks.healthy(), ranks=ranks, names=("w",))
    return [(ranks, [*each]) for ranks, each in RankMap(report, array("f", norms)).rows]


@pytest.mark.parametrize("norms", [(1.0, 9.0, 1.0, 9.0), (1e-9, 1e9, 1e-9, 1e9)])
def test_shards_are_held_against_their_replicas(norms):
    """Two replicas of two shards: shards differ, and nothing is odd; without replicas all are held against all."""
    replicas = [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert of_four(*norms, replicas=replicas) == [([0, 1, 2, 3], [LIKE])]
    assert len(of_four(*norms, replicas=[()] * 4)) == 2
    assert len(of_four(*norms, replicas=[(rank,) for rank in range(4)])) == 2


def test_the_odd_one_of_its_replicas_has_a_row_of_its_own():
    """Three that look alike are one row."""
    assert of_four(1.0, 1.0, 2.5, 1.0) == [([0, 1, 3], [LIKE]), ([2], [TWICE])]


def pixels(svg):
    """Return the rows of the one image of a drawing: a byte a pixel."""
    (found,) = re.findall(r'<image[^>]* href="data:image/png;base64,([^"]+)"', svg)
    assert "image-rendering:pixelated" in svg
    return [[*row] for row in snapshots.pixels(found)[2]]


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_what_is_not_finite_is_hatched(norm):
    """So that it is told from a large norm without its colour; a map without it has no hatching."""
    report = samples_ranks.healthy()
    norms = (*report.step_norms[:-1], norm)
    drawn, _ = RankMap(report, norms).svg(720)
    assert drawn.count('stroke-width="1.4"') == 1
    assert "not finite" in drawn
    assert "!" in "".join(RankMap(report, norms).text(80))
    assert 'stroke-width="1.4"' not in RankMap(report, tuple(report.step_norms)).svg(720)[0]


def test_a_pixel_is_a_parameter_of_ranks_that_look_alike():
    """With levels as colours; what has no gradient is transparent."""
    assert pixels(RankMap(samples_ranks.healthy(), ODD).svg(720)[0]) == [[3, 3, 3, 3], [5, 0, 7, 8]]


def test_a_thousand_rows_and_as_many_columns_as_fit_are_drawn_one_by_one():
    """None is left out, and none is narrower than a pixel; beyond that columns are joined."""
    ranks = tuple(samples_ranks.row(rank, replicas=()) for rank in range(1024))
    for many, wide in ((300, 300), (1000, 500)):
        report = replace(samples_ranks.healthy(), ranks=ranks, names=tuple(map(str, range(many))))
        norms = array("f", [1.0]) * (1024 * many)
        for rank in range(1, 1024):
            norms[rank * many + rank % many] = (1.3, 5.0, 20.0, 0.2)[rank // many]
        drawn = RankMap(report, norms)
        found = pixels(drawn.svg(720)[0])
        assert {len(found), *map(len, found)} == {len(drawn.rows), wide}
        assert len(found) == (1024 if many == 300 else 1 + 500 + 12)
        assert all(sum(level != LIKE for level in row) == 1 for row in found[1:])
        place = re.search(r'<image x="120" y="0" width="(\d+)" height="(\d+)"', drawn.svg(720)[0])
        assert (int(place[1]) >= wide, int(place[2]) >= len(found)) == (True, True)
        assert "tm-scroll" in drawn.html()


def test_where_a_cell_has_no_room_for_lines_what_is_not_finite_is_striped():
    """None of it vanishes: each stripe is of its colour, too."""
    ranks = tuple(samples_ranks.row(rank, replicas=()) for rank in range(100))
    report = replace(samples_ranks.healthy(), ranks=ranks, names=tuple(map(str, range(200))))
    norms = array("f", [1.0 + at % 200 for at in range(20_000)])
    for rank in range(40, 48):
        norms[rank * 200 + rank : rank * 200 + 60] = array("f", [math.nan]) * (60 - rank)
    made = RankMap(report, norms)
    drawn, _ = made.svg(720)
    bad = {level for row in pixels(drawn) for level in row if level > 6}
    assert bad == {7, 9}
    assert [sum(level in bad for level in row) for row in pixels(drawn)] == [
        sum(level == 7 for level in each) for _, each in made.rows
    ]
    assert "not finite on ranks 40 to 47" in made.sentence


def test_a_tip_says_the_ranks_of_a_row():
    """A row of many has room for their number alone."""
    large = samples_ranks.large()
    drawn, _ = RankMap(large, large.pass_norms).svg(720)
    assert re.findall("<title>([^<]*)</title>([^<]*)<", drawn) == [("ranks 0 to 776 and 778 to 1023", "1023 ranks")]


def test_the_table_behind_holds_the_numbers_that_differ():
    """The furthest first; what is like the median of its ranks is not in it."""
    report = samples_ranks.healthy()
    table = RankMap(report, ODD).behind()
    assert [row[:4] for row in table.rows] == [
        ["3", "net.2.weight", "NaN", "1"], ["3", "net.0.bias", "0.01", "1"], ["3", "net.0.weight", "2.5", "1"],
    ]  # fmt: skip
    panel = Page(views.draw(replace(report, step_norms=array("f", ODD)), "html"))
    assert "The norms that differ" in panel.text


@pytest.mark.parametrize("size", [(40.0, 11.5), (6.0, 11.5), (3.0, 3.0), (11.5, 11.5)])
def test_hatching_stays_in_its_field(size):
    """Each line goes from edge to edge."""
    lines = re.findall(r"M([\d.]+),([\d.]+)l([\d.]+),-?([\d.]+)", hatching(10.0, 20.0, *size, 5))
    assert len(lines) == int(sum(size) // 5)
    for x, y, across, up in (map(float, line) for line in lines):
        for at in ((x - 10, y - 20), (x + across - 10, y - up - 20)):
            assert all(-0.11 <= one <= most + 0.11 for one, most in zip(at, size, strict=True))
            assert min(abs(one - edge) for one, most in zip(at, size, strict=True) for edge in (0, most)) < 0.11


def test_the_map_of_a_thousand_ranks_stays_small():
    """Equal ranks are one row: the odd one is seen beside it."""
    report = samples_ranks.large()
    made = RankMap(report, tuple(report.pass_norms))
    drawn, _ = made.svg(720)
    assert [ranks for ranks, _ in made.rows][1] == [777]
    assert [row.count(LIKE) for row in pixels(drawn)] == [300, 299]
    assert len(drawn) < 20_000


def test_ranks_that_ended_before_a_backward_are_not_said_to_have_used_the_same_gradients():
    """Nothing is found and nothing was compared: the sentence claims no more, and says where more is."""
    failed = tuple(samples_ranks.row(rank, state="failed", passes=0, steps=0) for rank in range(4))
    report = replace(samples_ranks.healthy(), ranks=failed, compared_pass=0, compared_step=0)
    assert all_clear(report).startswith("Nothing found, and nothing compared")
    assert all_clear(report).endswith("What was found in the run of ranks 0 to 3 alone is in its own report.")
    assert all_clear(samples_ranks.healthy()).endswith("stayed the same.")
