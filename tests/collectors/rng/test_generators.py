"""What is told of generators: seed and numbers drawn, by every kind; and that looking advances none."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tensormagic.collectors.rng.generators import NEVER_SEEDED, collect_rng, lcg_distance, state_of
from tensormagic.views.panels.rng import seed_text


def by_name(**names):
    """Return the generators in reach of some names, by their names."""
    return {state.name: state for state in collect_rng(names).generators}


@pytest.fixture(autouse=True)
def global_generators():
    """Put NumPy's and Python's global generators back after the test."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    yield
    np.random.set_state(numpy_state)
    random.setstate(python_state)


def test_torch_s_default_generator():
    """Seed, every 32-bit number that was taken, and the half of a normal pair that waits."""
    torch.manual_seed(3)
    torch.rand(5)
    state = by_name()["torch, CPU"]
    assert (state.seed, state.seeding, state.drawn, state.bits, state.pending) == ("3", "chosen", 5, 32, False)
    torch.randn(1)
    assert by_name()["torch, CPU"].pending


def test_far_along():
    """Millions of numbers later the count is exact."""
    torch.manual_seed(3)
    torch.rand(3_000_000)
    assert by_name()["torch, CPU"].drawn == 3_000_000


@pytest.mark.parametrize(
    ("seed", "seeding"), [(0, "chosen"), (2**32 - 1, "chosen"), (2**63, "unknown"), (NEVER_SEEDED, "default")]
)
def test_who_chose_the_seed(seed, seeding):
    """A small seed was written down by somebody; one of 64 bits may be another generator's; torch's own is neither."""
    generator = torch.Generator()
    if seed != NEVER_SEEDED:
        generator.manual_seed(seed)
    assert by_name(g=generator)["g"].seeding == seeding


def test_a_default_generator_with_a_large_seed_has_the_systems():
    """It is given one of 64 bits when torch starts, and by ``torch.seed()``."""
    torch.manual_seed(2**63)
    assert by_name()["torch, CPU"].seeding == "entropy"


def test_a_large_seed_is_told_as_what_it_probably_is():
    """A size is no proof: ``manual_seed(2**50)`` looks alike, and a loader's sampler is given one that was drawn."""
    torch.manual_seed(2**50)
    own = torch.Generator()
    own.manual_seed(2**63 + own.seed() // 2)
    states = by_name(own=own)
    assert seed_text(states["torch, CPU"]) == "probably the system's, different in each run: 11258999068…"
    assert states["own"].seeding == "unknown"
    drawn = f"probably the system's, or drawn from another generator: {str(own.initial_seed())[:11]}…"
    assert seed_text(states["own"]) == drawn


@pytest.mark.parametrize("seed", [2**32 + 1, 20261121204500, 2**45 - 1, -1, -20261121])
def test_a_date_with_its_time_was_chosen(seed):
    """Nobody but a user seeds the default generator with it: torch's own seeds have 64 bits."""
    torch.manual_seed(seed)
    assert [by_name()["torch, CPU"].seeding, by_name()["torch, CPU"].seed] == ["chosen", str(seed % 2**64)]
    torch.manual_seed(2**45)
    assert by_name()["torch, CPU"].seeding == "entropy"


def test_the_system_s_own_numbers():
    """`random.SystemRandom` has no state and no seed, and is told so: not as a twister that was never seeded."""
    state = by_name(dice=random.SystemRandom())["dice"]
    assert (state.algorithm, state.seeding, state.seed, state.drawn) == ("the system's", "entropy", "", None)
    assert seed_text(state) == "none: each number is the system's"


def test_numpy_and_python_tell_the_seed_that_they_forgot():
    """``numpy.random.seed`` and ``random.seed``, after draws."""
    np.random.seed(7)
    np.random.rand(1000)
    random.seed(42)
    random.random()
    random.gauss(0, 1)
    states = by_name()
    assert (states["numpy.random"].seed, states["numpy.random"].drawn) == ("7", 2000)
    assert (states["random"].seed, states["random"].drawn, states["random"].pending) == ("42", 6, True)


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_numpy_s_generators(kind):
    """Each bit generator: its seed and the 64-bit numbers that it gave."""
    generator = np.random.Generator(getattr(np.random, kind)(11))
    generator.random(1234)
    state = state_of(generator, "rng")
    assert (state.algorithm, state.seed, state.seeding, state.drawn, state.bits) == (kind, "11", "chosen", 1234, 64)


def test_numpy_s_generator_over_a_mersenne_twister():
    """Its numbers have 32 bits: two for each double."""
    generator = np.random.Generator(np.random.MT19937(1))
    generator.random(1000)
    assert state_of(generator, "rng").drawn == 2000


@pytest.mark.skipif(not hasattr(np.random.Generator, "spawn"), reason="NumPy 1.25 brought spawn")
def test_unseeded_and_spawned():
    """What the system seeded is told so; a spawned child tells its parent's seed and its number."""
    assert state_of(np.random.default_rng(), "rng").seeding == "entropy"
    child = np.random.default_rng(4).spawn(2)[1]
    child.random(2)
    state = state_of(child, "child")
    assert (state.seed, state.drawn) == ("4, child [1]", 2)


def test_a_state_that_was_set_tells_no_seed():
    """Where the state does not follow from the seed, none is claimed."""
    generator = np.random.default_rng(4)
    generator.bit_generator.state = np.random.default_rng(5).bit_generator.state
    assert (state_of(generator, "rng").seed, state_of(generator, "rng").drawn) == ("", None)
    own = torch.Generator().manual_seed(1)
    own.set_state(_foreign_state())
    assert state_of(own, "g").drawn is None


def _foreign_state():
    """Return a state whose words do not follow from the seed that is in it."""
    state = torch.Generator().manual_seed(2).get_state()
    state[:8] = torch.Generator().manual_seed(1).get_state()[:8]
    return state


def test_names():
    """A generator has one line, under the nearest name, with its other names."""
    own = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(torch.zeros(3)), shuffle=True, generator=own)
    states = by_name(own=own, loader=loader)
    assert states["own"].names == ("loader.generator", "loader.sampler.generator")
    assert "loader.generator" not in states


def test_looking_advances_none():
    """After twenty looks the next numbers of all are what they would have been."""
    own, wide = torch.Generator().manual_seed(1), np.random.default_rng(3)
    for seeded in (torch.manual_seed, np.random.seed, random.seed):
        seeded(5)
    before = collect_rng({"own": own, "wide": wide})
    for _ in range(20):
        assert collect_rng({"own": own, "wide": wide}) == before
    numbers = (torch.rand(2), np.random.rand(2), random.random(), torch.rand(2, generator=own), wide.random(2))
    for seeded in (torch.manual_seed, np.random.seed, random.seed):
        seeded(5)
    assert numbers[0].equal(torch.rand(2))
    assert numbers[1].tolist() == np.random.rand(2).tolist()
    assert numbers[2] == random.random()
    assert numbers[3].equal(torch.rand(2, generator=torch.Generator().manual_seed(1)))
    assert numbers[4].tolist() == np.random.default_rng(3).random(2).tolist()


def test_the_digest_tells_equal_states():
    """Two generators whose next numbers are equal have one digest; after a draw they do not."""
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    assert state_of(one, "one").digest == state_of(other, "other").digest
    torch.rand(1, generator=one)
    assert state_of(one, "one").digest != state_of(other, "other").digest


def test_one_that_refuses_is_a_gap():
    """A subclass that cannot be read is named; the others are shown."""

    class Odd(random.Random):
        def __init__(self):
            super().__init__(1)

        def getstate(self):
            raise NotImplementedError("no state")

    report = collect_rng({"odd": Odd(), "sane": random.Random(1)})
    assert {"odd", "sane"} <= {state.name for state in report.generators}  # read by the class that keeps the state
    assert report.gaps == ()


def test_steps_of_a_linear_congruential_generator():
    """The distance is that of NumPy's own ``advance``."""
    bits = np.random.PCG64(9)
    first = bits.state["state"]
    bits.advance(123_456_789)
    now = bits.state["state"]
    assert lcg_distance(first["state"], now["state"], now["inc"], 0x2360ED051FC65DA44385DF649FCCF645) == 123_456_789


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_cuda_generator():
    """Philox: the seed and the offset that torch keeps."""
    torch.cuda.manual_seed(5)
    torch.rand(8, device="cuda")
    state = by_name()["torch, cuda:0"]
    assert (state.algorithm, state.seed, state.seeding) == ("Philox", "5", "chosen")
    assert state.drawn == torch.cuda.default_generators[0].get_offset()
