"""Where autograd nodes come from, as ranges of the numbers that autograd gives them.

One thread adds, at the end; a backward on another thread asks meanwhile, and may forget what is old. Whoever asks, or
takes something away, holds the lock; who only adds does not wait: what is there in part is not yet there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import torch

SETTLED_CALLS = 1 << 11  # node-making calls remembered (40 KB) beyond those of the last pass and the one before it

_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]

Origin = tuple["int | None", str]  # site, module path


class Origins:
    """Where nodes come from: ranges of sequence numbers, each with a site and a module path."""

    def __init__(self) -> None:
        self._starts = array("Q")
        self._stops = array("Q")
        self._numbers = array("i")  # comes last: what has a number is there
        self._lock = Lock()
        self._known: dict[Origin, int] = {}
        self.origins: list[Origin] = []
        self._marks = (0, 0)  # how many calls there were when the last pass ended, and the one before
        self._forgotten_below = 0
        self._end = 0
        self.nodes = 0
        self.lost = 0

    def begin(self) -> None:
        """Say that what has a smaller number was made before the trace, and belongs to no call in it."""
        now = _sequence_number()
        self.add(now, now, (None, ""))

    def add(self, start: int, stop: int, origin: Origin) -> None:
        """Say that the nodes ``start`` to ``stop`` (exclusive) were made at ``origin``.

        Where a part of them was noted before (a custom Function's backward ran inside this call), that part stays.
        """
        if start < self._end:
            self._fill(start, stop, origin)
            return
        self._end = stop
        number = self._known.get(origin)
        if number is None:
            number = self._known[origin] = len(self.origins)
            self.origins.append(origin)
        self._starts.append(start)
        self._stops.append(stop)
        self._numbers.append(number)
        self.nodes += stop - start

    def retract(self, start: int) -> None:
        """Take back the last range, where it begins with ``start``."""
        with self._lock:
            if self._starts and self._starts[-1] == start:
                self._numbers.pop()
                self.nodes -= self._stops.pop() - self._starts.pop()
                self._end = start

    def _fill(self, start: int, stop: int, origin: Origin) -> None:
        """Add what lies between the ranges that were noted since ``start``."""
        with self._lock:
            at = bisect_left(self._starts, start)
            inner = list(zip(self._starts[at:], self._stops[at:], self._numbers[at:], strict=True))
            for column in (self._numbers, self._stops, self._starts):
                del column[at:]
            self._end = start
        for begin, end, number in inner:
            if self._end < begin:
                self.add(self._end, begin, origin)
            self.add(begin, end, self.origins[number])
            self.nodes -= end - begin
        if self._end < stop:
            self.add(self._end, stop, origin)

    def settle(self) -> None:
        """Say that a pass has ended; calls from before the pass before it may now be forgotten, oldest first.

        A graph is freed by its backward, as a rule. Where an old one is kept and used again after many steps, its
        nodes have no line; `lost` counts them.
        """
        with self._lock:
            previous, last = self._marks
            drop = min(previous, len(self._numbers) - SETTLED_CALLS)
            if drop > SETTLED_CALLS // 4:  # seldom, and then many at once
                self._forgotten_below = self._stops[drop - 1]
                for column in (self._starts, self._stops, self._numbers):
                    del column[:drop]
                last -= drop
            self._marks = (last, len(self._numbers))

    def of(self, sequence_number: int) -> tuple[int, bool]:
        """Return the origin's number (-1: none) of a node, and whether it is exact.

        A node made between two recorded calls, by something the mode did not see (a custom Function's apply), gets
        the origin of the call before which it was made, inexact.
        """
        with self._lock:
            self.lost += sequence_number < self._forgotten_below
            there = len(self._numbers)
            at = bisect_right(self._starts, sequence_number, 0, there) - 1
            if at >= 0 and sequence_number < self._stops[at]:
                return self._numbers[at], True
            following = at + 1
            return (self._numbers[following], False) if at >= 0 and following < there else (-1, False)

    def of_all(self, sequence_numbers: Any) -> Any:
        """Return the origins' numbers of many nodes at once, as `of` does of one; NumPy arrays."""
        with self._lock:  # of copies: while NumPy sees an array, nothing can be added to it
            origins = np.frombuffer(self._numbers.tobytes(), np.int32)
            starts, stops = (
                np.frombuffer(column.tobytes(), np.uint64)[: len(origins)] for column in (self._starts, self._stops)
            )
        if not len(origins):
            return -1
        self.lost += int(np.count_nonzero(sequence_numbers < np.uint64(self._forgotten_below)))
        at = np.searchsorted(starts, sequence_numbers, "right") - 1
        exact = (at >= 0) & (sequence_numbers < stops[at])
        at = np.where(exact | (at < 0), at, at + 1)
        known = (at >= 0) & (at < len(starts))
        return np.where(known, origins[np.minimum(at, len(starts) - 1)], -1)

    def site_of(self, sequence_number: int) -> int | None:
        """Return the site that made a node; None where that is not known exactly."""
        number, exact = self.of(sequence_number)
        return self.origins[number][0] if exact and number >= 0 else None
