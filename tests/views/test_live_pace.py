"""How often a run is looked at: thirty times a second where looking is cheap, four times where it is not."""

from __future__ import annotations

import pytest

from tensormagic.views.page import sampler
from tensormagic.views.page.sampler import FASTEST, HANDED_ON, HANDOVER, SHARE, SLOWEST, Pace


class Clock:
    """A processor's clock that is set by hand."""

    now = 5.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    """A clock that stands."""
    return Clock()


def look(pace, clock, seconds, *, apart=0.0):
    """Take a look that costs so much, of which so much is bounded elsewhere."""
    with pace:
        clock.now += seconds
        pace.set_apart(apart)


def test_a_cheap_look_is_taken_thirty_times_a_second(clock):
    """A tenth of a millisecond is less than the share of a thirtieth of a second."""
    pace = Pace(clock=clock)
    assert pace.interval == FASTEST == 1 / 30
    look(pace, clock, 0.0001)
    assert pace.interval == FASTEST


def test_a_dear_look_is_taken_less_often(clock):
    """The interval is as long as keeps looking, and handing on, below its share of the time."""
    pace = Pace(clock=clock)
    look(pace, clock, 0.001)
    assert pace.interval == pytest.approx((0.001 + HANDED_ON + 2 * HANDOVER) / SHARE)
    assert FASTEST < pace.interval < SLOWEST


def test_four_looks_a_second_are_taken_at_least(clock):
    """Whatever they cost: a panel that does not move says nothing."""
    pace = Pace(clock=clock)
    look(pace, clock, 3.0)
    assert pace.interval == SLOWEST == 1 / 4


def test_what_a_look_takes_comes_off_the_wait(clock):
    """Thirty looks a second are thirty, also where each takes some milliseconds, or begins late."""
    pace = Pace(wall=clock)
    clock.now += pace.rest(0.04)
    for late in (0.0, 0.003, 0.012, 0.001):
        begun = clock.now
        clock.now += late
        assert clock.now + pace.rest(0.04) == pytest.approx(begun + 0.04)
        clock.now = begun + 0.04


def test_looks_that_were_missed_are_not_made_up_for(clock):
    """After a look that took a second the next one comes after half a wait at least, and the pace is as before."""
    pace = Pace(wall=clock)
    clock.now += pace.rest(0.04)
    clock.now += 1.0
    waits = []
    for _ in range(3):
        waits.append(pace.rest(0.04))
        clock.now += waits[-1]
    assert waits == pytest.approx([0.02, 0.04, 0.04])


def test_one_dear_look_is_forgotten_again(clock):
    """The cost is a running mean: after some cheap looks the pace is back."""
    pace = Pace(clock=clock)
    look(pace, clock, 0.05)
    for _ in range(40):
        look(pace, clock, 0.0001)
    assert pace.interval == FASTEST


def test_what_is_bounded_elsewhere_does_not_slow_the_looks(clock):
    """A document takes 50 ms, the look round it a tenth of one."""
    pace = Pace(clock=clock)
    look(pace, clock, 0.0501, apart=0.05)
    assert pace.cost == pytest.approx(0.0001)


def test_a_look_that_fails_counts_as_well(clock):
    """What went wrong has cost what it has cost."""
    pace = Pace(clock=clock)

    def failing():
        with pace:
            clock.now += 0.002
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        failing()
    assert pace.cost == pytest.approx(0.002)


def test_the_cost_is_that_of_the_sampling_thread():
    """The processor time of the thread that looks, not the time that passes or what the run computes."""
    assert Pace().clock is sampler.time.thread_time
