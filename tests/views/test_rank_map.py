"""Norms of ranks as a map: a row for those that look alike, held against those that hold the same parameters."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import replace

import pytest

from tensormagic.views.panels.ranks import RankMap, levels
from tensormagic.views.pictures.placement import hatched
from tests.views import samples_ranks

LIKE, TWICE = 3, 5  # levels


def of_four(*norms, **facts):
    """Return the map's rows of four ranks, each with its norm of one parameter."""
    ranks = tuple(samples_ranks.row(rank, **{name: of[rank] for name, of in facts.items()}) for rank in range(4))
    report = replace(samples_ranks.healthy(), ranks=ranks, names=("w",))
    return levels(report, array("f", norms))


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


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_what_is_not_finite_is_hatched(norm):
    """So that it is told from a large norm without its colour; a map without it has no hatching."""
    report = samples_ranks.healthy()
    norms = (*report.used[:-1], norm)
    drawn, _ = RankMap(report, norms).svg(720)
    assert drawn.count("stroke-width") == 1
    assert "not finite" in drawn
    assert "!" in "".join(RankMap(report, norms).text(80))
    assert "stroke-width" not in RankMap(report, tuple(report.used)).svg(720)[0]


@pytest.mark.parametrize("size", [(40.0, 11.5), (6.0, 11.5), (3.0, 3.0), (11.5, 11.5)])
def test_hatching_stays_in_its_field(size):
    """Each line goes from edge to edge."""
    ends = re.findall(r"[ML](\S+) ([\d.]+)", hatched((10.0, 20.0, *size)))
    assert len(ends) == 2 * int(sum(size) // 5)
    for x, y in ends:
        at = float(x) - 10, float(y) - 20
        assert all(-0.06 <= one <= most + 0.06 for one, most in zip(at, size, strict=True))
        assert min(abs(one - edge) for one, most in zip(at, size, strict=True) for edge in (0, most)) < 0.06


def test_the_map_of_a_thousand_ranks_stays_small():
    """Equal ranks are one row, and columns are joined: the odd parameter is still seen."""
    report = samples_ranks.large()
    drawn, _ = RankMap(report, tuple(report.brought)).svg(720)
    assert [ranks for ranks, _ in levels(report, report.brought)][1] == [777]
    assert len(drawn) < 20_000
