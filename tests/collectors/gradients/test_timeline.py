"""Thinning a run of any length: how much is kept, what is never lost, and that it is evenly spaced."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tensormagic.collectors.gradients.traced_graph import SubsampledSequence


def filled(count, capacity=8, pins=()):
    kept = SubsampledSequence(capacity)
    for item in range(count):
        kept.append(item, pin=item in pins)
    return kept


def test_a_short_run_is_kept_whole():
    """Up to its capacity nothing is thinned."""
    assert filled(8).items() == tuple(range(8))
    assert filled(0).items() == ()


@pytest.mark.parametrize("count", [9, 10, 17, 100, 1000, 12345])
def test_a_long_run_is_bounded_even_and_complete_at_its_ends(count):
    """First and last are there, what is between is evenly spaced, and at least half the capacity is used."""
    kept = filled(count)
    items = kept.items()
    assert kept.seen == count
    assert 5 <= len(items) <= 8 + 1
    assert (items[0], items[-1]) == (0, count - 1)
    steps = {second - first for first, second in pairwise(items[:-1])}
    assert len(steps) == 1


def test_a_pinned_item_stays():
    """However long the run, in its place."""
    items = filled(5000, pins={777}).items()
    assert 777 in items
    assert list(items) == sorted(items)


def test_pins_are_bounded():
    """A run that is bad in every pass keeps four of them, the first four."""
    items = filled(5000, pins=set(range(11, 5000))).items()
    assert len(items) <= 8 + 4 + 1
    assert {11, 12, 13, 14} <= set(items)


@given(count=st.integers(0, 400), capacity=st.integers(1, 40), pins=st.sets(st.integers(0, 399), max_size=4))
def test_what_always_holds(count, capacity, pins):
    """In order, without doubles, with both ends and the pins, never more than asked for."""
    items = filled(count, capacity, pins).items()
    assert list(items) == sorted(set(items))
    assert len(items) <= capacity + len(pins) + 1
    assert {pin for pin in pins if pin < count} <= set(items)
    if count:
        assert {0, count - 1} <= set(items)
