"""Exact aliasing, ten thousand times: random pairs of views against explicit sets of bytes. Run by ``make sweep``."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tensormagic.collectors.geometry.overlap import overlap, overlap_elements, region_of
from tests.support.view_pairs import brute_overlap, chain_of, chained, storage_of, strided, view_of

pytestmark = pytest.mark.sweep

PAIRS = 10_000
SPEC, CHAIN = strided(), chained()
each = settings(max_examples=PAIRS // 2, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


class WriteTotal:
    """How many pairs were compared, and what they gave."""

    def __init__(self):
        self.pairs, self.overlapping, self.undecided = 0, 0, 0

    def add(self, x, y):
        """Compare a pair both ways with brute force."""
        one, other = region_of(x, 0), region_of(y, 0)
        answer, shared, reverse = overlap(one, other), overlap_elements(one, other), overlap_elements(other, one)
        truth = brute_overlap(x, y), brute_overlap(y, x)
        self.pairs += 1
        self.overlapping += bool(truth[0])
        self.undecided += answer == "maybe" or shared is None
        if answer != "maybe":
            assert answer == ("yes" if truth[0] else "no")
            assert shared in {truth[0], None}
            assert reverse in {truth[1], None}


def test_ten_thousand_pairs_of_views():
    """Half of any strides and dtypes, half chains of view operations: no mismatch; prints how many."""
    tally, storage = WriteTotal(), storage_of()

    @each
    @given(SPEC, SPEC)
    def strides(one, other):
        tally.add(view_of(storage, one), view_of(storage, other))

    @each
    @given(CHAIN, CHAIN)
    def chains(one, other):
        tally.add(chain_of(storage, one), chain_of(storage, other))

    strides()
    chains()
    print(f"\naliases: {tally.pairs} pairs agree with brute force, {tally.overlapping} of them overlap, "
          f"{tally.undecided} undecided")  # fmt: skip
    assert tally.pairs >= PAIRS * 0.9
