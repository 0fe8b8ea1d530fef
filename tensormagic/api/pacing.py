"""Which steps of a run are to be traced: from what a person says to a `Pace`, or to an error that helps."""

from __future__ import annotations

import math

from tensormagic.errors import TraceError
from tensormagic.reports import Pace

Steps = tuple["int | None", "int | None"]


def pace_of(budget: float | None, every: int | None, steps: Steps | None) -> Pace | None:
    """Return which steps are to be traced; None where all are.

    Args:
        budget: The share of the untraced run's time that tracing may take: 0.05 for 5 %.
        every: Trace one step in so many.
        steps: ``(start, stop)``, from 1, as in a slice: ``(10, 21)`` are the steps 10 to 20; None is an open end.

    Raises:
        TraceError: where one of them is not what it may be, or where two contradict each other.
    """
    if budget is not None and (every is not None or steps is not None):
        other = "every" if every is not None else "steps"
        raise TraceError(
            f"a budget and {other} were given: a budget decides by itself which steps are traced; leave one of them out"
        )
    if budget is not None:
        return Pace(budget=_budget(budget))
    start, stop = (None, None) if steps is None else _steps(steps)
    pace = Pace(every=1 if every is None else _count(every), start=start or 1, stop=stop)
    return None if pace == Pace() else pace


def _budget(budget: object) -> float:
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget <= 1 or math.isnan(budget):
        raise TraceError(
            f"the budget is {budget!r}: expected a share of the run's time, above 0 and at most 1; "
            "write 0.05 (in a notebook 5%) to let tracing take one twentieth of it"
        )
    return float(budget)


def _count(every: object) -> int:
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise TraceError(f"every is {every!r}: expected a whole number from 1; every=10 traces the steps 1, 11, 21, …")
    return every


def _steps(steps: object) -> Steps:
    if not isinstance(steps, tuple) or len(steps) != 2 or not all(map(_is_end, steps)):
        raise TraceError(
            f"steps is {steps!r}: expected (start, stop), numbers from 1 or None, as in a slice; "
            "(10, 21) traces the steps 10 to 20, (10, None) all from the tenth"
        )
    start, stop = steps
    if stop is not None and stop <= (start or 1):
        raise TraceError(f"steps is {steps!r}: no step lies in it; the stop, which is not traced, has to be larger")
    return start, stop


def _is_end(end: object) -> bool:
    return end is None or (isinstance(end, int) and not isinstance(end, bool) and end >= 1)
