"""Decides which steps of a run are traced: those asked for by number, or as many as a budget pays for."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from tensormagic.reports import Schedule, StepSampling

# Estimates what tracing has cost so far, from the times of traced and of untraced steps.
# A tracer's own clock misses what lies between its functions: torch's hand-over to a mode, the engine's to a hook. So
# the time of each pass (from the end of the pass before it) is kept in two parts: what the tracer's own code took, and
# the rest. Of passes of a kind, with and without the tracer, the medians of the rest are compared: a pause, a slow
# first step or an evaluation every hundred steps does not move them.

SAMPLES = 31  # times kept of each kind of pass: the newest ones
KINDS = 16  # kinds of passes that are distinguished; a loop has one or two
FEWEST = 2  # untraced passes of a kind without which nothing is known about it
TRUSTED = 3  # traced passes from which on a median is not the matter of one pause
BESIDE_OWN = 2.0  # until then: what lies between the tracer's functions is less than so many times what they take

Later = Callable[[Callable[[float], None]], bool]
Kind = tuple["int | None", int]  # the line that called backward, and the how manieth pass of its step it is, from 0


class _Traced:
    """Traced passes of one kind, in seconds: what went by in the tracer's own code, and the rest of the newest."""

    def __init__(self) -> None:
        self.count, self.own, self.rest = 0, 0.0, deque[float](maxlen=SAMPLES)


class Times:
    """Times of one kind of pass, in seconds: the newest `SAMPLES`; of traced ones by whether hooks were on."""

    def __init__(self) -> None:
        self.untraced, self.traced = deque[float](maxlen=SAMPLES), dict[bool, _Traced]()

    def untraced_median(self) -> float:
        """Return the time of an untraced pass; 0 where that is not known."""
        return median(self.untraced) if len(self.untraced) >= FEWEST else 0.0

    def added(self, own: float, *, hooked: bool) -> float:
        """Return what tracing adds to one pass beside the ``own`` seconds that it takes."""
        known, untraced = self.traced.get(hooked), self.untraced_median()
        if known is None or not known.rest or not untraced:
            return min(own, untraced)
        found = max(median(known.rest) - untraced, 0.0)
        return found if len(known.rest) >= TRUSTED else min(found, BESIDE_OWN * known.own / known.count)

    def extra(self) -> float:
        """Return what tracing added beside its own code."""
        known = list(self.traced.items())
        return sum(one.count * self.added(one.own / one.count, hooked=hooked) for hooked, one in known)


class Costs:
    """What tracing has cost so far; ``own`` is what went by in the tracer's own code."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, Times] = {}
        self.own = 0.0

    def traced(self, kind: Kind, own: float, seconds: float, *, hooked: bool) -> None:
        """Note a pass with the tracer: ``own`` of its seconds went by in its own code.

        The rest of the very first says nothing: what the run did before is in it, and what torch does once.
        """
        is_first = not any(times.traced for times in self.kinds())
        known = self.of_kind(kind).traced.setdefault(hooked, _Traced())
        known.count, known.own, self.own = known.count + 1, known.own + own, self.own + own
        if not is_first:
            known.rest.append(max(seconds - own, 0.0))

    def extra(self) -> float:
        """Return the seconds that tracing has added to the run, as far as that is known."""
        return self.own + sum(times.extra() for times in self.kinds())

    def kinds(self) -> list[Times]:
        """Return the times of every kind of pass that was met."""
        return list(self._kinds.values())

    def of_kind(self, kind: Kind) -> Times:
        """Return the times of one kind of pass; of untraced ones, `Times.untraced` is added to by whoever sees them."""
        times = self._kinds.get(kind)
        if times is None:
            kind = kind if len(self._kinds) < KINDS else next(iter(self._kinds))
            times = self._kinds.setdefault(kind, Times())
        return times


# Knows no torch and no clock: it is called for each pass as it starts and as it ends. A pass that follows the tracer's
# coming back is traced whole or not at all, so the decision falls at the end of the pass before it. What is traced at a
# time is one round of the loop: the passes from different lines, or of one step, until one would come again.
# The rule of a budget: the first round is always traced. After that a round begins when the cost so far and that of one
# more round fit into the budget less a reserve, and not much sooner after the last than an even spread would have it. A
# pass whose gradients turn NaN or infinite, or whose norm is a thousand times larger or smaller than the one before it
# in the same graph, releases the reserve: up to `FOLLOW_UP` further rounds are traced as soon as the whole budget pays.

RESERVE = 0.15  # share of the budget that is kept for findings
EVENLY = 0.75  # of the time between two rounds at an even spread must have passed
FOLLOW_UP = 8  # rounds traced after a finding
LONGEST_ROUND = 8  # passes
LOOK_AGAIN = 16  # passes after which a decision is thought over; then after twice as many each time
MOST_LEADS = 2  # passes that the tracer comes back earlier, where steps begin their graphs before the pass before
LISTED = 32  # stretches of traced steps kept from the start of the run, and from its end


class Stretches:
    """The numbers of the traced steps, as (first, last) of each stretch ``kept``; those between are ``left_out``."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, int]] = []
        self.steps = self.latest = self.left_out = 0

    def add(self, step: int) -> None:
        """Add a step; numbers only grow."""
        if step == self.latest:
            return
        kept = self.kept
        if kept and kept[-1][1] == step - 1:
            kept[-1] = (kept[-1][0], step)
        else:
            kept.append((step, step))
            self.left_out += len(kept) > 2 * LISTED
            del kept[LISTED:-LISTED]
        self.steps += 1
        self.latest = step


@dataclass(slots=True)
class _Round:
    """One round of the loop that is being traced."""

    ended: float  # at first when it began
    following: bool = False  # whether it is traced because of a finding
    passes: list[tuple[Kind, float, bool]] = field(default_factory=list)  # each with its own seconds; whether hooked
    traced: set[Kind] = field(default_factory=set)


class StepSampler:
    """Called with every pass; says whether the tracer is to be there for what comes next: whether it is ``tracing``.

    ``now`` is in seconds, on the clock that `ends` is given. ``later`` takes a callback for the time a pass took, once
    a device has come to its end; it returns False where that clock shows it.
    """

    def __init__(self, asked: Schedule, now: float, later: Later | None = None) -> None:
        self.asked, self._later = asked, later
        self.steps = self.passes = 0  # that have begun
        self.costs, self.stretches = Costs(), Stretches()
        self.tracing = asked.budget is not None or asked.wants(1)
        self._began = self._ended = now
        self._own = self._first_cost = 0.0
        self._kind: Kind = (None, -1)
        self._sequence, self._place = -1, 0
        self._next: dict[Kind, Kind] = {}
        self._hooked = self._whole = False
        self._round, self._rounds = _Round(now), deque[float](maxlen=5)
        self._due, self._due_step = math.inf, 0  # when to come back
        self._look = 0  # the pass to think again after
        self._follow_up = self._after_finding = 0
        self._leads = self._partial = self._misses = self._traced_passes = 0
        self._late: set[Kind] = set()

    def starts(self, line: int | None, sequence: int, *, there: bool = True) -> bool:
        """Note that a pass starts, while the tracer is to be there, and return whether the pass is to be traced.

        A step begins where ``sequence`` differs from the last pass's: how many nodes were made before.
        """
        self._whole = (self._count(line, sequence) or self._whole) and there
        by_number, traced = self.asked.budget is None, self._round.traced
        self._hooked = self._whole and (self.asked.wants(self.steps) if by_number else self._kind not in traced)
        return self._hooked

    def passed_by(self, line: int | None, sequence: int, now: float) -> bool:
        """Note a pass that has ended, while the tracer is paused, and return whether the tracer is to come back."""
        self._count(line, sequence)
        seconds, self._ended = now - self._ended, now
        untraced = self.costs.of_kind(self._kind).untraced
        if self._later is None or not self._later(untraced.append):
            untraced.append(seconds)
        if now >= self._due or self.steps >= self._due_step or self.passes >= self._look:
            self.tracing = self._decided(now)
        return self.tracing

    def trailed(self, own: float) -> None:
        """Note what went by in the tracer's own code after the last pass that was traced: it belongs to that."""
        more, self._own = own - self._own, own
        self.costs.own += more
        self._ended += more

    def _count(self, line: int | None, sequence: int) -> bool:
        """Count a pass, and return whether a step begins with it."""
        new = sequence != self._sequence
        self.passes, self.steps, self._sequence = self.passes + 1, self.steps + new, sequence
        self._place = 0 if new else min(self._place + 1, LONGEST_ROUND)
        before, self._kind = self._kind, (line, self._place)
        if before in self._next or len(self._next) < KINDS:
            self._next[before] = self._kind
        return new

    def begun_before(self) -> bool:
        """Note that the graph of the pass that started was begun before the tracer came; return whether to trace it.

        It is not, at first: the tracer comes earlier the next time. Where that does not help, it is.
        """
        self._hooked = self._leads > MOST_LEADS
        if not self._hooked:
            self._partial += self.asked.wants(self.steps) and self.asked.budget is None
            self._misses += 1
            self._leads = max(self._leads, self._misses)
            self._late.add(self._kind)
        return self._hooked

    def ends(self, now: float, own: float, *, alarm: bool = False) -> bool:
        """Note that the pass that started has ended, and return whether the tracer is there for what follows.

        Of the seconds since the run began ``own`` went by in the tracer's own code; it is an ``alarm`` where its
        gradients give reason to look at the next ones.
        """
        seconds, self._ended = now - self._ended, now
        own, self._own = own - self._own, own
        keep = partial(self.costs.traced, self._kind, own, hooked=self._hooked)
        if self._later is None or not self._later(keep):
            keep(seconds)
        self._round.passes.append((self._kind, own, self._hooked))
        if self._hooked:
            self._round.traced.add(self._kind)
            self._misses = 0
            self._late.discard(self._kind)
            self._traced_passes += 1
            self._after_finding += self._round.following and self.stretches.latest != self.steps
            self.stretches.add(self.steps)
        self._follow_up = FOLLOW_UP if alarm else self._follow_up
        self.tracing = self._decided(now)
        return self.tracing

    def _decided(self, now: float) -> bool:
        """Return whether the tracer is to be there for the next pass."""
        if self.asked.budget is not None:
            return self._affordable(now)
        follows = self._next.get(self._kind)
        going_on = self.asked.wants(self.steps) and (follows is None or follows[1] > 0)
        leads = min(self._leads, MOST_LEADS)
        if going_on or any(map(self.asked.wants, range(self.steps + 1, self.steps + 2 + leads))):
            return True
        self._due_step, self._look = self.steps + max(self._ahead() - leads - 1, 1), sys.maxsize
        return False

    def _ahead(self) -> int:
        """Return in how many steps the next one comes that was asked for."""
        asked = self.asked
        return max(asked.start - self.steps, asked.every - (self.steps - asked.start) % asked.every)

    def _affordable(self, now: float) -> bool:
        self._due_step = sys.maxsize
        if self.tracing:
            traced = self._round.traced
            done = (not self._hooked and self._kind in traced) or self._next.get(self._kind) in traced
            if not done and len(self._round.passes) < LONGEST_ROUND:
                return True  # passes of this round are still to come
            self._round.ended = now
            self._follow_up -= self._round.following
            of_kind = self.costs.of_kind
            cost = sum(own + of_kind(kind).added(own, hooked=hooked) for kind, own, hooked in self._round.passes)
            if self._first_cost:
                self._rounds.append(cost)
            self._first_cost = self._first_cost or cost
            self._due = self._when_due()
        elif self.passes >= self._look:
            self._due = self._when_due()
            self._look += max(LOOK_AGAIN, self._look)
        if now < self._due or len(self.costs.of_kind(self._kind).untraced) < FEWEST:
            return False
        if self._next.get(self._kind) in self._late and not self._late.issuperset(self._next.values()):
            return False  # its graph is begun already: better come back after it
        self._round = _Round(now, following=self._follow_up > 0)
        return True

    def _when_due(self) -> float:
        """Return the time from which the budget pays for one more round."""
        budget, extra = self.asked.budget or 1.0, self.costs.extra()
        # What one more round will cost; the first is no measure: everything in it is new.
        if self._rounds:
            more = max(median(self._rounds), self._rounds[-1] if len(self._rounds) < 3 else 0.0)
        else:
            longest = max((times.untraced_median() for times in self.costs.kinds()), default=0.0)
            more = min(self._first_cost, 3 * longest * max(len(self._round.traced), 1)) or self._first_cost
        if self._follow_up:
            return self._began + extra + (extra + more) / budget
        paid = self._began + extra + (extra + more) / (budget * (1 - RESERVE))
        return max(paid, self._round.ended + EVENLY * more / budget)

    def rest_steps(self, now: float) -> int:
        """Return about how many steps will pass before one is traced again; 0 where that is not known."""
        if self.asked.budget is not None:
            a_step = (self._ended - self._began) / max(self.steps, 1)
            return max(round((self._due - now) / a_step), 1) if a_step > 0 and self._due > now else 1
        ahead = self._ahead()
        return ahead if self.asked.wants(self.steps + ahead) else 0

    def sampling(self, now: float, *, ended: bool = False) -> StepSampling:
        """Return what came of it so far, or in all where the run has ended."""
        extra, seconds = self.costs.extra(), self._ended - self._began
        eager = seconds - extra
        described = eager > 0 and any(times.untraced for times in self.costs.kinds())
        ahead = 0 if self.tracing else self.rest_steps(now)
        return StepSampling(
            asked=self.asked, steps=self.stretches.steps, passes=self._traced_passes,
            ranges=tuple(self.stretches.kept), left_out=self.stretches.left_out,
            cost=extra / eager if described else None, first_cost=self._first_cost / eager if described else 0.0,
            after_finding=self._after_finding, partial=self._partial, last_traced=self.stretches.latest == self.steps,
            paused=not self.tracing and not ended, next_step=self.steps + ahead if ahead and not ended else 0,
        )  # fmt: skip
