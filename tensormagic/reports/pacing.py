"""Which steps of a run were traced, and why those: what was asked for, what came of it, and what it cost."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from tensormagic.reports.graph import Floats


def _no_numbers() -> Floats:
    return array("f")


@dataclass(frozen=True, slots=True)
class Pace:
    """What was asked for. A budget stands alone; the others may come together.

    Attributes:
        budget: The share of the untraced run's time that tracing may take, e.g. 0.05; None: no budget.
        every: Trace one step in so many, the first of them first.
        start: The first step that may be traced, from 1.
        stop: The step before which tracing ends, as in a slice; None: never.
    """

    budget: float | None = None
    every: int = 1
    start: int = 1
    stop: int | None = None

    def wants(self, step: int) -> bool:
        """Return whether the step with that number was asked for by number."""
        return self.start <= step < (self.stop or step + 1) and (step - self.start) % self.every == 0


@dataclass(frozen=True, slots=True)
class Pacing:
    """What came of it.

    Attributes:
        asked: What was asked for.
        steps: How many of the run's steps were traced.
        passes: How many of its backward passes were traced.
        ranges: The traced steps, (first, last) of each stretch; of very many the first and the last ones.
        left_out: How many stretches between these are not listed.
        cost: What tracing cost so far, as a share of the untraced run's time: measured where it was the tracer's own
            code, else estimated from the times of traced and of untraced steps. None where there is nothing to compare.
        first_cost: The part of `cost` that the first traced step had, in which every graph is new.
        after_finding: How many of the steps were traced because the one before had shown something.
        partial: How many steps were asked for, but could not be traced whole: their graphs were begun before.
        last_traced: Whether the last step of the run so far was traced.
        standing: Where the last step was not traced: the norm of each parameter's ``.grad`` as it stood when the run
            ended, one for each of `TraceReport.parameters`; `UNTOUCHED` where there was none. Empty otherwise.
        resting: Whether the run goes on untraced right now.
        next_step: About the step that will be traced next; 0 where none is known.
        unpaced: Why the tracer could not leave between the steps; empty where it could.
    """

    asked: Pace
    steps: int = 0
    passes: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    left_out: int = 0
    cost: float | None = None
    first_cost: float = 0.0
    after_finding: int = 0
    partial: int = 0
    last_traced: bool = True
    standing: Floats = field(default_factory=_no_numbers)
    resting: bool = False
    next_step: int = 0
    unpaced: str = ""
