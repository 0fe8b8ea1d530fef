"""What one optimizer did, step by step: on what gradients it stepped, counted by pattern."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.training.parallel import world_size
from tensormagic.collectors.training.witnesses import Seldom, Witness, all_zero, gradient_of
from tensormagic.reports import Accumulation, StepKind, StepPattern

MOST_PATTERNS = 24  # of one optimizer

Brought = Callable[[torch.Tensor], "tuple[int | None, float]"]


@dataclass(slots=True)
class Moment:
    """What is known when a step is made.

    Attributes:
        location: The line that made it.
        backward: The line of the last backward.
        cleared: The line that cleared gradients last, since that backward.
        passes: How many backward passes have ended, of those that bring leaves a gradient.
        forward: Whether a forward has run since the last step.
        within: Whether a backward runs right now.
        seen: Whether everything since the step before was seen.
    """

    location: int | None = None
    backward: int | None = None
    cleared: int | None = None
    passes: int = 0
    forward: bool = True
    within: bool = False
    seen: bool = True


_Key = tuple[StepKind, "int | None", "int | None", "int | None"]


@dataclass(slots=True)
class Tally:
    """Steps counted by pattern; memory does not grow with their number."""

    steps: int = 0
    left_out: int = 0
    _counts: dict[_Key, list[int]] = field(default_factory=dict)  # count, first, last, in a row now, longest

    def add(self, kind: StepKind, moment: Moment) -> None:
        """Count one step."""
        self.steps += 1
        key = (kind, moment.location, moment.backward, moment.cleared)
        counts = self._counts.get(key)
        if counts is None and len(self._counts) >= MOST_PATTERNS:
            self.left_out += 1
        elif counts is None:
            self._counts[key] = [1, self.steps, self.steps, 1, 1]
        else:
            counts[3] = counts[3] + 1 if counts[2] == self.steps - 1 else 1
            counts[0], counts[2], counts[4] = counts[0] + 1, self.steps, max(counts[3:])

    def patterns(self) -> tuple[StepPattern, ...]:
        """Return what was counted, in order of first appearance."""
        return tuple(
            StepPattern(
                kind=kind, location=location, backward=backward, cleared=cleared,
                count=counts[0], first=counts[1], last=counts[2], longest=counts[4],
            )
            for (kind, location, backward, cleared), counts in list(self._counts.items())
        )  # fmt: skip


class Stepping:
    """Follows one optimizer.

    Args:
        witnesses: A few of its parameters.
        brought: Gives the number of a leaf, and the norm of what the last backward brought it; below zero for nothing.
    """

    def __init__(self, witnesses: list[Witness], brought: Brought) -> None:
        self._witnesses = witnesses
        self._brought = brought
        self._stale, self._changed, self._measured = Seldom(), Seldom(), Seldom()
        self._cleared_unnoticed = self._found_empty = False
        self._at_last_step = -1  # passes that had ended then; -1: it has not stepped
        self._at_begin = 0
        self.tally = Tally()
        self.accumulation: Accumulation | None = None

    def before_pass(self) -> None:
        """Look before a backward."""
        stale = [witness for witness in self._witnesses if witness.before_pass()]
        if stale and self._stale.now():
            self._cleared_unnoticed = all(witness.is_zero() for witness in stale)
        if stale and self._cleared_unnoticed:
            for witness in stale:
                witness.forget()

    def after_pass(self) -> None:
        """Look after a backward."""
        for witness in self._witnesses:
            witness.after_pass()

    def forget(self) -> None:
        """Note that backwards or steps may have gone by unseen."""
        for witness in self._witnesses:
            witness.forget()
        self._at_last_step = -1

    def begin(self) -> None:
        """Look for the first time."""
        for witness in self._witnesses:
            witness.look()
            parameter = witness.parameter()
            witness.brought = parameter is not None and 0 < self._brought(parameter)[1] < math.inf
            witness.by_backward = witness.brought
            if witness.brought and (witness.gradient is None or witness.is_zero()):
                witness.empty()

    def before_step(self, passes: int) -> None:
        """Look before a step."""
        self._at_begin = passes
        changed = [witness for witness in self._witnesses if witness.before_step()]
        if changed and self._changed.now():
            self._found_empty = all(witness.is_zero() for witness in changed)
        if changed and self._found_empty:
            for witness in changed:
                witness.empty()

    def after_step(self, moment: Moment, parameters: Iterable[torch.Tensor]) -> None:
        """Judge a step and look after it; ``parameters`` are all of the optimizer's."""
        self._count(self._kind(moment, parameters), moment)
        for witness in self._witnesses:
            witness.after_step()

    def updated(self, moment: Moment) -> None:
        """Count an update by hand, which was made between the last backward and now."""
        there = [witness for witness in self._witnesses if witness.brought]
        self._count("accumulated" if any(one.used for one in there) else "fresh" if there else "idle", moment)
        for witness in self._witnesses:
            witness.used, witness.brought = witness.used or witness.brought, False

    def _count(self, kind: StepKind, moment: Moment) -> None:
        since, self._at_last_step = moment.passes - self._at_last_step, moment.passes
        self.tally.add(kind, moment)
        if kind == "accumulated" and self._measured.now():
            self._measure(one_pass=since == 1)

    def _kind(self, moment: Moment, parameters: Iterable[torch.Tensor]) -> StepKind:
        if moment.within or moment.passes != self._at_begin:
            return "inside"
        if not moment.seen:
            return "unseen"
        there = [witness for witness in self._witnesses if witness.gradient is not None and not witness.emptied]
        if there:
            return self._kind_of_present(there, moment)
        if any(witness.emptied for witness in self._witnesses):
            return "idle" if any(map(_has_gradient, parameters)) else "emptied"
        return "without" if moment.forward and not moment.passes else "idle"

    def _kind_of_present(self, there: list[Witness], moment: Moment) -> StepKind:
        if any(witness.used and witness.brought for witness in there):
            return "accumulated"
        repeated = moment.passes == self._at_last_step and all(one.used and one.by_backward for one in there)
        return "repeated" if repeated else "fresh"

    def _measure(self, *, one_pass: bool) -> None:
        grown = next((one for one in self._witnesses if one.used and one.brought), None)
        parameter = grown.parameter() if grown is not None else None
        norm = _norm(gradient_of(parameter))
        if parameter is None or norm is None:
            return
        step, known, (number, brought) = self.tally.steps, self.accumulation, self._brought(parameter)
        first = (known.first_step, known.first_norm) if known and known.parameter == number else (step, norm)
        told = brought if one_pass and brought >= 0 and world_size() == 1 else None  # of several, what came of all
        self.accumulation = Accumulation(number, *first, step, norm, told)


def _has_gradient(parameter: torch.Tensor) -> bool:
    gradient = gradient_of(parameter)
    return gradient is not None and not all_zero(gradient)


def _norm(gradient: torch.Tensor | None) -> float | None:
    if gradient is None:
        return None
    try:
        with quiet():
            return float(torch.linalg.vector_norm(gradient.coalesce().values() if gradient.is_sparse else gradient))
    except (RuntimeError, TypeError, NotImplementedError):
        return None
