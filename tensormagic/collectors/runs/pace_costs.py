"""Estimates what tracing has cost so far, from the times of traced and of untraced steps.

A tracer's own clock misses the half of its cost that lies between its functions: torch's hand-over to a mode, the
engine's to a hook. So the time of each pass (from the end of the pass before it to its own end) is kept in two parts:
what the tracer's own code took, which is exact, and the rest. Passes of a kind, with and without the tracer, then
differ by a ratio of medians: a pause, a slow first step or an evaluation every hundred steps does not move it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

SAMPLES = 31  # times kept of each kind of pass: the newest ones
KINDS = 16  # kinds of passes told apart; a loop has one or two
FEWEST = 2  # untraced passes of a kind without which nothing is known about it
TRUSTED = 3  # traced passes from which on a median is not the matter of one pause
BESIDE_OWN = 2.0  # until then: what lies between the tracer's functions is less than so many times what they take
LARGEST_RATIO = 6.0  # of the rest of a traced pass to an untraced one
UNUSUAL = 3.0  # times the median: an evaluation, a pause, a compilation; it is traced at
BESIDES = 0.05  # of its time: what a function mode adds to code whose calls are not all small

Kind = tuple["int | None", int]  # the line that called backward, and the how manieth pass of its step it is, from 0


@dataclass(slots=True)
class _Traced:
    """Traced passes of one kind: without what went by in the tracer's own code, in seconds."""

    count: int = 0
    own: float = 0.0
    excess: float = 0.0
    rest: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def add(self, rest: float, own: float, untraced: float) -> None:
        usual = UNUSUAL * max(median(self.rest) if self.rest else 0.0, untraced)
        self.excess += max(rest - usual, 0.0) if usual else 0.0
        self.count += 1
        self.own += own
        self.rest.append(rest)

    def added(self, untraced: float) -> float:
        """Return what tracing adds to the rest of one pass, given the time of an untraced one."""
        if not untraced or not self.rest:
            return 0.0
        found = min(max(median(self.rest) - untraced, 0.0), (LARGEST_RATIO - 1) * untraced)
        return found if len(self.rest) >= TRUSTED else min(found, BESIDE_OWN * self.own / self.count)


@dataclass(slots=True)
class Times:
    """Times of one kind of pass, in seconds: the newest `SAMPLES`."""

    untraced: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    traced: dict[bool, _Traced] = field(default_factory=dict)  # by whether hooks were on

    def untraced_median(self) -> float:
        """Return the time of an untraced pass; 0 where that is not known."""
        return median(self.untraced) if len(self.untraced) >= FEWEST else 0.0

    def added(self, own: float, *, hooked: bool) -> float:
        """Return what tracing adds to one pass beside the ``own`` seconds that it takes."""
        known = self.traced.get(hooked)
        if known is None:
            return min(own, self.untraced_median())
        return known.added(self.untraced_median())

    def extra(self) -> float:
        """Return what tracing added beside its own code."""
        untraced = self.untraced_median()
        return sum(one.count * one.added(untraced) + BESIDES * one.excess for one in list(self.traced.values()))


class Costs:
    """What tracing has cost so far.

    Attributes:
        own: The part of it that went by in the tracer's own code.
    """

    def __init__(self) -> None:
        self._kinds: dict[Kind, Times] = {}
        self._first: tuple[Kind, float] | None = None
        self.own = 0.0

    def known(self, kind: Kind) -> bool:
        """Return whether there is something to compare a traced pass of that kind with."""
        return len(self.of_kind(kind).untraced) >= FEWEST

    def traced(self, kind: Kind, seconds: float, own: float, *, hooked: bool) -> None:
        """Note a pass with the tracer: ``own`` of its seconds went by in its own code.

        The rest of the very first says nothing: what the run did before is in it, and what torch does once.
        """
        self.own += own
        if self._first is None:
            self._first = kind, own
            return
        times = self.of_kind(kind)
        times.traced.setdefault(hooked, _Traced()).add(max(seconds - own, 0.0), own, times.untraced_median())

    def of(self, kind: Kind, own: float, *, hooked: bool) -> float:
        """Return what tracing added to one pass."""
        return own + self.of_kind(kind).added(own, hooked=hooked)

    def extra(self) -> float:
        """Return the seconds that tracing has added to the run, as far as that is known."""
        first = 0.0 if self._first is None else self.of_kind(self._first[0]).added(self._first[1], hooked=True)
        return self.own + first + sum(times.extra() for times in list(self._kinds.values()))

    @property
    def comparable(self) -> bool:
        """Whether any untraced pass was seen."""
        return any(times.untraced for times in list(self._kinds.values()))

    def base(self) -> float:
        """Return the longest time that an untraced pass of one of the kinds takes; 0 where none is known."""
        return max((times.untraced_median() for times in list(self._kinds.values())), default=0.0)

    def of_kind(self, kind: Kind) -> Times:
        """Return the times of one kind of pass; of untraced ones, `Times.untraced` is added to by whoever sees them."""
        times = self._kinds.get(kind)
        if times is None:
            kind = kind if len(self._kinds) < KINDS else next(iter(self._kinds))
            times = self._kinds.setdefault(kind, Times())
        return times
