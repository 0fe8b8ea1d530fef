"""A run's sums are the truth, on random programs: views, resizing, set_, autograd, modules, optimizers.

The truth is slow and simple: after each operation every storage that was ever met is asked whether it is still there.
"""

from __future__ import annotations

import gc
import warnings
from collections import Counter

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

import tensormagic as tm
from tests.collectors.memory.programs import STEPS, Count, Program
from tests.support.gaps import own_gaps

numbers = st.integers(0, 40)
ARRAYS = -1
# An array goes, and one as large comes, with no operation between.
ARRAY_AGAIN = [
    (0, (22, 18, 9)), (0, (26, 14, 26)), (0, (26, 14, 26)), (5, (5, 10, 4)),
    (6, (19, 22, 40)), (11, (17, 5, 40)), (11, (3, 9, 27)), (5, (6, 24, 14)),
]  # fmt: skip
programs = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.tuples(numbers, numbers, numbers)), max_size=14)


class Truth(Count):
    """What is alive after each operation, and what each allocated: everything is asked, each time."""

    def __init__(self):
        super().__init__()
        self.levels, self.allocated = [], 0
        self._sizes = {}

    @property
    def storages(self):
        """The bytes of each storage that is alive; those over an array count as the array, once, below `ARRAYS`."""
        found = {key: storage.nbytes() for key, storage in self.alive() if storage.resizable()}
        arrays = {ARRAYS - at: array() for at, array in enumerate(self.arrays)}
        return found | {key: array.nbytes for key, array in arrays.items() if array is not None}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        alive = self.storages
        self.levels.append(sum(alive.values()))
        self.allocated += sum(max(size - self._sizes.get(key, 0), 0) for key, size in alive.items())
        self._sizes = alive
        return result


def followed(steps):
    """Run a program under the truth and under ours, and return both, with what ours holds for alive."""
    gc.disable()  # it would find cycles at one moment or another
    try:
        with Truth() as truth, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = Program(truth)
            with tm.track_memory(namespace={}) as run:
                program.run(steps)
            ours = Counter()
            for block in run._listener.alive():
                storage = block()
                key = block.key if storage is not None and storage.resizable() else ARRAYS
                ours[key] += 0 if block.before else block.nbytes
            alive = Counter()
            for key, size in truth.storages.items():
                alive[max(key, ARRAYS)] += size
            return truth, run.report, ours, alive
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(programs)
@example(ARRAY_AGAIN)
def test_every_moment_is_the_truth(steps):
    """The end is the live set, storage by storage; each moment, the peak and what was allocated are the truth's."""
    truth, report, ours, alive = followed(steps)
    assert {key: size for key, size in ours.items() if size} == {key: size for key, size in alive.items() if size}
    assert own_gaps(report) == []
    if not report.timelines:
        assert not any(truth.levels)
        return
    (timeline,) = report.timelines
    timeline.check()
    own = [live - before for live, before in zip(timeline.live, timeline.before, strict=True)]
    assert max(own) == max([0, *truth.levels])
    assert own[-1] == sum(alive.values())
    assert sum(line.allocated for line in report.lines) == truth.allocated
    assert sum(line.allocated - line.freed for line in report.lines) == own[-1]
    assert sum(line.kept for line in report.lines) == own[-1]
