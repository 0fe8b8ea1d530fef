"""The sampler on made-up runs with a clock of their own: which steps it chooses, and what that costs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from tensormagic.collectors.runs.step_sampling import FOLLOW_UP, LISTED, Costs, StepSampler, Stretches, Times
from tensormagic.reports import Schedule

FIVE = Schedule(budget=0.05)


@dataclass
class Loop:
    """A run whose times are known: what a step takes, and what tracing adds to it.

    Attributes:
        step: Seconds of an untraced step; a function of its number where they differ.
        mode: What the mode adds to a step, as a share of it.
        hooks: What the hooks add besides, in seconds; half of it the tracer sees itself.
        first: What the first traced step takes more.
        lines: The line of each backward in one round of the loop, and whether a forward ran before it.
        alarms: Steps whose gradients give reason to look at the next ones, where they are traced.
    """

    step: object = 0.010
    mode: float = 0.15
    hooks: float = 0.005
    first: float = 0.020
    lines: tuple = ((7, True),)
    alarms: frozenset = frozenset()
    traced: list = field(default_factory=list)
    shares: list = field(default_factory=list)
    now: float = 0.0
    spent: float = 0.0

    def run(self, asked, passes):
        """Go through the loop, and return the sampler at its end."""
        sampler, own, sequence = StepSampler(asked, 0.0), 0.0, 0
        for number in range(passes):
            line, new = self.lines[number % len(self.lines)]
            sequence += new
            plain = self.step(number + 1) if callable(self.step) else self.step
            there = sampler.tracing
            hooked = there and sampler.starts(line, sequence)
            seen = (self.hooks / 2 + self.first * (not self.traced)) if hooked else 0.0
            added = there * self.mode * plain + (seen + self.hooks / 2 if hooked else 0.0)
            self.now, self.spent, own = self.now + plain + added, self.spent + added, own + seen
            if hooked:
                self.traced.append(sampler.steps)
            if there:
                sampler.ends(self.now, own, alarm=hooked and sampler.steps in self.alarms)
            else:
                sampler.passed_by(line, sequence, self.now)
            self.shares.append(self.spent / (self.now - self.spent))
        return sampler


# -- by number --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Schedule(every=10), [1, 11, 21]),
        (Schedule(start=10, stop=13), [10, 11, 12]),
        (Schedule(start=28), [28, 29, 30]),
        (Schedule(start=3, stop=12, every=4), [3, 7, 11]),
        (Schedule(start=99), []),
    ],
)
def test_steps_asked_for_by_number_are_the_traced_ones(asked, expected):
    """Every N-th step and the steps A to B, the end not included: exactly these, and they are listed."""
    loop = Loop()
    sampling = loop.run(asked, 30).sampling(loop.now)
    assert loop.traced == expected
    assert [step for first, last in sampling.ranges for step in range(first, last + 1)] == expected
    assert (sampling.steps, sampling.passes) == (len(expected), len(expected))


def test_a_step_of_several_passes_is_traced_whole():
    """With three backward calls on one forward, every third step means three passes of each."""
    loop = Loop(lines=((7, True), (7, False), (8, False)))
    loop.run(Schedule(every=3), 30)
    assert loop.traced == [1, 1, 1, 4, 4, 4, 7, 7, 7, 10, 10, 10]


def test_the_tracer_is_there_for_no_other_steps():
    """Once it is known that a step is one pass, the tracer leaves at its end, and comes back one before the next."""
    there = []
    sampler, now = StepSampler(Schedule(every=5), 0.0), 0.0
    for number in range(1, 41):
        there.append(sampler.tracing)
        now += 1.0
        if sampler.tracing:
            sampler.starts(3, number)
            sampler.ends(now, 0.0)
        else:
            sampler.passed_by(3, number, now)
    assert [number for number, on in enumerate(there, 1) if on] == [1, 2, 6, 11, 16, 21, 26, 31, 36]


# -- by budget --------------------------------------------------------------------------------------------------------


def test_the_first_step_is_traced_and_paid_back_before_the_next():
    """The next step is traced only when the first one's cost is a twentieth of the time and less."""
    loop = Loop(first=0.100)
    loop.run(FIVE, 2000)
    assert loop.traced[0] == 1
    second = loop.traced[1]
    assert loop.shares[second - 2] <= 0.05
    assert second > (0.1 / 0.05) / 0.010 * 0.9


def test_a_budget_is_used_and_kept():
    """Over a long run of equal steps between 3.5 and 5 percent go into tracing, and the estimate is right."""
    loop = Loop()
    sampling = loop.run(FIVE, 4000).sampling(loop.now)
    assert 0.035 < loop.shares[-1] <= 0.05
    assert sampling.cost == pytest.approx(loop.shares[-1], rel=0.1)
    assert sampling.steps == len(loop.traced) > 100


def test_traced_steps_are_spread_evenly():
    """After the start no gap is half as long again as the median one, none half as long."""
    loop = Loop()
    loop.run(FIVE, 4000)
    gaps = sorted(after - before for before, after in zip(loop.traced[5:], loop.traced[6:], strict=False))
    usual = gaps[len(gaps) // 2]
    assert gaps[0] >= usual / 2
    assert gaps[-1] <= usual * 1.5


def test_an_evaluation_every_hundred_steps_bunches_nothing():
    """A step that takes a hundred times as long buys no series of traced steps; its cost is not told too low."""
    loop = Loop(step=lambda number: 1.0 if number % 100 == 0 else 0.010, mode=0.0)
    sampling = loop.run(FIVE, 3000).sampling(loop.now)
    close = sum(after - before < 4 for before, after in zip(loop.traced[5:], loop.traced[6:], strict=False))
    assert close <= len(loop.traced) // 10
    assert loop.shares[-1] <= 0.05
    assert loop.shares[-1] <= sampling.cost <= 0.05


def test_a_pause_in_a_traced_step_is_not_its_cost():
    """One traced step that takes a hundred times as long is no reason to trace fewer later on."""
    usual, disturbed = Loop(), Loop(step=lambda number: 1.0 if number == 1 else 0.010)
    usual.run(FIVE, 2000)
    disturbed.run(FIVE, 2000)
    assert len(disturbed.traced) >= len(usual.traced)


def test_both_losses_of_a_round_are_traced():
    """Two backward calls from two lines, each after its own forward: a round is both, one after the other."""
    loop = Loop(lines=((7, True), (9, True)))
    loop.run(FIVE, 3000)
    assert loop.traced[:2] == [1, 2]
    odd = sum(step % 2 for step in loop.traced)
    assert odd == len(loop.traced) - odd


def test_the_reserve_is_for_findings():
    """A finding releases it: the steps behind it are traced closer together than those before it."""
    plain = Loop()
    plain.run(FIVE, 3000)
    at = plain.traced[40]
    loop = Loop(alarms=frozenset({at}))
    sampling = loop.run(FIVE, 3000).sampling(loop.now)
    place = loop.traced.index(at)
    assert loop.traced[: place + 1] == plain.traced[: place + 1]
    assert loop.traced[place + FOLLOW_UP // 2] < plain.traced[place + FOLLOW_UP // 2]
    assert loop.traced[place + 1] == at + 1
    assert sampling.after_finding == FOLLOW_UP
    assert max(loop.shares[at:]) <= 0.055


@given(
    step=st.floats(1e-4, 1.0),
    mode=st.floats(0.0, 0.3),
    hooks=st.floats(0.0, 2.0),
    budget=st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.2]),
    lines=st.sampled_from([((7, True),), ((7, True), (7, False)), ((7, True), (9, True))]),
)
@settings(max_examples=60, deadline=None)
def test_a_budget_is_never_exceeded(step, mode, hooks, budget, lines):
    """Whatever steps and tracing take: once the first round is paid for, the share stays within the budget."""
    loop = Loop(step=step, mode=mode, hooks=hooks * step, first=step, lines=lines)
    loop.run(Schedule(budget=budget), 1500)
    assert loop.traced[0] == 1
    paid = next((at for at, share in enumerate(loop.shares) if at > 20 and share <= budget), None)
    if paid is not None:
        assert max(loop.shares[paid:]) <= budget * 1.1


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_noise_does_not_matter(seed):
    """Steps whose time varies by half of it either way, at random, keep the budget to a fifth of it."""
    noise = random.Random(seed)
    loop = Loop(step=lambda _: 0.010 * noise.uniform(0.5, 1.5))
    sampling = loop.run(FIVE, 3000).sampling(loop.now)
    assert 0.02 < loop.shares[-1] <= 0.06
    assert sampling.cost == pytest.approx(loop.shares[-1], abs=0.025)


# -- graphs that were begun before ------------------------------------------------------------------------------------


def test_a_graph_begun_before_the_tracer_came_is_not_traced_but_the_next_one_is():
    """By number, the tracer comes one pass earlier from then on; the step that was missed is counted."""
    sampler, now, traced = StepSampler(Schedule(every=4), 0.0), 0.0, []
    came = 1
    for number in range(1, 30):
        now += 1.0
        if not sampler.tracing:
            sampler.passed_by(3 + number % 2, number, now)
            came = number + 1
            continue
        hooked = sampler.starts(3 + number % 2, number)
        if hooked and came == number > 1:  # what this pass goes through was made before the pass before it
            hooked = sampler.begun_before()
        if hooked:
            traced.append(number)
        sampler.ends(now, 0.0)
    assert traced == [1, 9, 13, 17, 21, 25, 29]
    assert sampler.sampling(now).partial == 1


def test_graphs_that_were_always_begun_before_are_traced_as_they_are():
    """Where coming earlier does not help, as a part of every graph is as old as the run, nobody waits for it."""
    sampler, now, traced = StepSampler(Schedule(every=4), 0.0), 0.0, []
    for number in range(1, 60):
        now += 1.0
        if not sampler.tracing:
            sampler.passed_by(3, number, now)
        else:
            if sampler.starts(3, number) and sampler.begun_before():
                traced.append(number)
            sampler.ends(now, 0.0)
    assert traced[-3:] == [49, 53, 57]


# -- memory and words -------------------------------------------------------------------------------------------------


def test_a_million_steps_take_bounded_memory():
    """The list of traced steps keeps the first and the last stretches and counts those between."""
    stretches = Stretches()
    for step in range(1, 1_000_001, 2):
        stretches.add(step)
    ranges = stretches.kept
    assert len(ranges) == 2 * LISTED
    assert ranges[0] == (1, 1)
    assert ranges[-1] == (999_999, 999_999)
    assert stretches.steps == stretches.left_out + len(ranges) == 500_000


def test_neighbouring_steps_are_one_stretch():
    """Steps in a row are told as one stretch, at the end of the list as at its start."""
    stretches = Stretches()
    for step in [1, 2, 3, *range(10, 300, 5), 296, 297]:
        stretches.add(step)
    assert stretches.kept[0] == (1, 3)
    assert stretches.kept[-1] == (295, 297)


def test_passes_from_many_lines_take_bounded_memory():
    """A run that calls backward from a new line every time keeps the times of a few kinds of passes."""
    costs = Costs()
    for line in range(1000):
        costs.of_kind((line, 0)).untraced.append(1.0)
    assert len(costs._kinds) <= 16


def test_what_is_told_while_it_rests():
    """The sampler says that it rests, and about which step comes next."""
    loop = Loop()
    sampler = loop.run(Schedule(every=10), 13)
    assert sampler.sampling(loop.now).paused
    assert sampler.sampling(loop.now).next_step == 21
    assert sampler.sampling(loop.now, ended=True).next_step == 0
    budget = loop.run(FIVE, 13).sampling(loop.now)
    assert budget.next_step > 13


def test_costs_are_added_up_while_new_kinds_of_passes_come():
    """A report on another thread adds up what there was when it began."""
    costs = Costs()
    costs.of_kind((1, 0))

    class Coming(Times):
        """The traced thread meets another kind of pass while this one's cost is looked at."""

        def untraced_median(self):
            costs.of_kind((100 + len(costs._kinds), 0))
            return 0.0

    costs._kinds[2, 0] = Coming()
    assert costs.extra() == max(times.untraced_median() for times in costs.kinds()) == 0.0
