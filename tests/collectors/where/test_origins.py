"""Which call made a node, by its sequence number: also where calls lie inside others, or made nothing."""

from __future__ import annotations

import numpy as np

from tensormagic.collectors.where.origins import Origins


def sites(origins, numbers):
    found = (origins.of(number) for number in numbers)
    return [origins.origins[number][0] if exact else None for number, exact in found]


def test_calls_one_after_the_other():
    """Every number in a range belongs to it; one in between to none, exactly."""
    origins = Origins()
    origins.add(0, 2, (7, ""))
    origins.add(3, 4, (8, "net"))
    assert sites(origins, range(5)) == [7, 7, None, 8, None]
    assert origins.nodes == 3


def test_a_call_inside_another():
    """What a custom Function's backward made keeps its line; the rest of the backward's nodes get the backward's."""
    origins = Origins()
    origins.add(0, 2, (1, ""))
    origins.add(4, 5, (2, ""))
    origins.add(7, 8, (3, ""))
    origins.add(2, 10, (9, ""))
    assert sites(origins, range(10)) == [1, 1, 9, 9, 2, 9, 9, 3, 9, 9]
    assert origins.nodes == 10


def test_a_call_that_made_nothing_is_taken_back():
    """A custom Function that refuses its arguments made no node: the number is free for the next call."""
    origins = Origins()
    origins.add(0, 1, (1, ""))
    origins.add(1, 2, (2, ""))
    origins.retract(1)
    origins.add(1, 3, (3, ""))
    assert sites(origins, range(3)) == [1, 3, 3]
    assert origins.nodes == 3


def test_many_at_once_as_each_alone():
    """Before, inside, between and after the ranges; what was forgotten counts as lost in both ways."""
    asked = np.array([0, 4, 5, 6, 7, 8, 9, 12, 2**64 - 1], np.uint64)
    alone, together = Origins(), Origins()
    for origins in (alone, together):
        assert origins.of_all(asked) == -1
        origins.add(5, 7, (1, ""))
        origins.add(8, 9, (2, "net"))
        origins._forgotten_below = 5
    assert list(together.of_all(asked)) == [alone.of(int(number))[0] for number in asked]
    assert together.lost == alone.lost == 2
