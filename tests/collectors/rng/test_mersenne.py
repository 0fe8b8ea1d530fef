"""A state's seed and its distance from it, against the generators themselves."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as some

from tensormagic.collectors.rng import mersenne

SEEDS = some.integers(0, 2**32 - 1)
DRAWS = some.integers(0, 4_000)


def drawn_from(generator, count):
    """Draw so many 32-bit numbers."""
    generator.randint(0, 2**32, size=count, dtype=np.uint32)


def numpy_state(generator):
    """Return key and position of a RandomState."""
    state = generator.get_state(legacy=False)["state"]
    return state["key"], state["pos"]


def python_state(generator):
    """Return key and position of a random.Random."""
    state = generator.getstate()[1]
    return np.array(state[:-1], dtype=np.uint32), state[-1]


@settings(max_examples=60, deadline=None)
@given(SEEDS, DRAWS)
def test_numpy_s_seed_is_found(seed, drawn):
    """``seed(n)``, after any number of draws."""
    generator = np.random.RandomState(seed)
    drawn_from(generator, drawn)
    found = mersenne.origin_of(*numpy_state(generator))
    assert found == mersenne.Origin((seed,), drawn)


@settings(max_examples=60, deadline=None)
@given(some.lists(SEEDS, min_size=2, max_size=8), DRAWS)
def test_numpy_s_list_of_seeds_is_found(key, drawn):
    """``seed([...])``: the list, or a shorter one that gives the same."""
    generator = np.random.RandomState(key)
    drawn_from(generator, drawn)
    found = mersenne.origin_of(*numpy_state(generator))
    assert found.drawn == drawn
    assert (
        numpy_state(np.random.RandomState(list(found.key)))[0].tolist()
        == numpy_state(np.random.RandomState(key))[0].tolist()
    )


@settings(max_examples=60, deadline=None)
@given(some.integers(0, 2**100), DRAWS)
def test_python_s_seed_is_found(seed, drawn):
    """``random.seed(n)`` of any size."""
    generator = random.Random(seed)
    for _ in range(drawn):
        generator.getrandbits(32)
    found = mersenne.origin_of(*python_state(generator))
    assert (found.seed, found.drawn) == (seed, drawn)


@pytest.mark.parametrize("twists", [1, 2, 5])
def test_a_step_is_undone(twists):
    """The state a few steps before, word for word."""
    generator = np.random.RandomState(3)
    drawn_from(generator, 624)
    before = numpy_state(generator)[0]
    drawn_from(generator, 624 * twists)
    state = numpy_state(generator)[0]
    for _ in range(twists):
        state = mersenne.stepped_back(state)
    assert state.tolist() == before.tolist()


def test_a_state_from_the_system_has_no_seed():
    """No seed is made up for a state that came from 624 random words."""
    key = np.frombuffer(np.random.default_rng(1).bytes(4 * 624), dtype=np.uint32)
    assert mersenne.origin_of(key, 624, most=50) is None
    assert mersenne.origin_of(*python_state(random.Random()), most=50) is None


def test_a_state_is_searched_once(monkeypatch):
    """Every look asks for the seed, and most sessions never seeded NumPy: the second answer is at hand."""
    key, position = numpy_state(np.random.RandomState())
    assert mersenne.origin_of(key, position, most=50) is None
    monkeypatch.setattr(mersenne, "stepped_back", None)
    assert mersenne.origin_of(key, position - 5, most=50) is None


def test_beyond_the_bound_nothing_is_said():
    """A seed that lies more steps back than were to be gone is not found, and none is made up."""
    generator = np.random.RandomState(3)
    drawn_from(generator, 624 * 4)
    assert mersenne.origin_of(*numpy_state(generator), most=3) is None
    assert mersenne.origin_of(*numpy_state(generator), most=4) == mersenne.Origin((3,), 2496)


@settings(max_examples=30, deadline=None)
@given(SEEDS, DRAWS, some.integers(0, 100_000))
def test_the_distance_between_two_states(seed, first, more):
    """As many numbers as were drawn in between."""
    generator = np.random.RandomState(seed)
    drawn_from(generator, first)
    start = numpy_state(generator)
    drawn_from(generator, more)
    assert mersenne.distance(*start, *numpy_state(generator)) == more


def test_an_earlier_state_is_not_ahead():
    """Backwards there is no distance."""
    generator = np.random.RandomState(3)
    drawn_from(generator, 100)
    later = numpy_state(generator)
    assert mersenne.distance(*later, *numpy_state(np.random.RandomState(3)), most=20) is None
