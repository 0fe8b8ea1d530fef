"""How much two regions have in common, against explicit sets of bytes; and which pairs of many are found."""

from __future__ import annotations

import torch
from hypothesis import given, settings, strategies as some

from tensormagic.collectors.aliasing.alias_groups import collect_aliases, meeting
from tensormagic.collectors.geometry.overlap import overlap, overlap_elements, region_of
from tests.support.view_pairs import brute_overlap, chain_of, chained, storage_of, strided, view_of

SPEC = strided()
CHAIN = chained()


def counted(x: torch.Tensor, y: torch.Tensor) -> tuple[str, int | None, int | None]:
    """What is told of two views of one storage."""
    one, other = region_of(x, 0), region_of(y, 0)
    return overlap(one, other), overlap_elements(one, other), overlap_elements(other, one)


def expected(x: torch.Tensor, y: torch.Tensor) -> tuple[str, int, int]:
    """What is true of them."""
    both = brute_overlap(x, y), brute_overlap(y, x)
    return "yes" if both[0] else "no", *both


@settings(max_examples=250, derandomize=True, deadline=None)
@given(SPEC, SPEC)
def test_any_two_views_against_brute_force(one, other):
    """Any dtypes, shapes, strides and offsets: elements in common, counted both ways, are exactly those."""
    storage = storage_of()
    x, y = view_of(storage, one), view_of(storage, other)
    assert counted(x, y) == expected(x, y)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(CHAIN, CHAIN)
def test_chains_of_view_operations_against_brute_force(one, other):
    """Transposes, slices and steps of one matrix, through the whole collector."""
    storage = storage_of()
    x, y = chain_of(storage, one), chain_of(storage, other)
    (pair,) = [pair for pair in collect_aliases({"x": x, "y": y}).pairs if {pair.left, pair.right} == {"x", "y"}]
    found = (pair.overlap_elements, pair.reverse_elements)
    assert (found if pair.left == "x" else found[::-1]) == expected(x, y)[1:]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(some.lists(some.tuples(some.integers(0, 40), some.integers(0, 12)), max_size=14))
def test_the_sweep_finds_every_two_ranges_that_meet(ranges):
    """Sorted and swept once gives the same pairs as comparing all with all; empty ones meet nothing."""
    x = torch.zeros(64, dtype=torch.int8)
    regions = [(str(at), region_of(x[start : start + size], 0)) for at, (start, size) in enumerate(ranges)]
    found = {frozenset((a[0], b[0])) for a, b in meeting(regions)}
    spans = [(start, start + size) for start, size in ranges]
    assert found == {
        frozenset((str(i), str(j)))
        for i, a in enumerate(spans)
        for j, b in enumerate(spans)
        if i < j and max(a[0], b[0]) < min(a[1], b[1])
    }


def test_interleaved_columns_have_nothing_in_common():
    """All of a hundred columns lie in the same range; none of the pairs that were compared overlaps."""
    x = torch.zeros(4, 100)
    report = collect_aliases({"columns": list(x.unbind(1))})
    (group,) = report.groups
    assert (group.found, group.pairs, group.pairs_complete) == (100, (), False)


def test_rows_are_told_apart_without_comparing_all():
    """A thousand rows of one storage: one sweep, no pair, nothing left out."""
    report = collect_aliases({"rows": list(torch.zeros(1000, 3).unbind(0))})
    (group,) = report.groups
    assert (group.found, len(group.members), group.pairs, group.pairs_complete) == (1000, 32, (), True)


def test_what_is_too_hard_is_maybe(monkeypatch):
    """Where the bound on the search is met, the answer says so and gives no number."""
    monkeypatch.setattr("tensormagic.collectors.geometry.overlap.MAX_WORK", 1)
    monkeypatch.setattr("tensormagic.collectors.geometry.overlap.PICTURE_LIMIT", 0)
    storage = torch.zeros(10_000)
    x, y = storage.as_strided((9, 8, 7), (101, 67, 31)), storage.as_strided((9, 8, 7), (103, 71, 29), 1)
    assert counted(x, y) == ("maybe", None, None)
