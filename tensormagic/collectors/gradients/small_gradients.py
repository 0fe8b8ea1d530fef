"""The statistics of many small gradients at once.

A graph of a hundred thousand nodes has, as a rule, gradients of a few elements, and what takes time is to ask for each
number of each of them. So a small gradient is copied, and the copies of a few thousand are looked at together: NumPy
then takes every number of all of them in one go. Copied, not kept: the engine writes into a gradient that nobody else
holds, and would not where somebody does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.gradients.measures import NORM_RELIABLE, Measured, of_numbers
from tensormagic.collectors.gradients.raw import as_array, small_as_it_lies, vdot

MOST_ELEMENTS = 1 << 9  # of a gradient that counts as small
_ROOM = 1 << 14  # elements that are looked at together: what NumPy makes of them on the way takes 30 bytes each

Keep = Callable[[list[int], Any], None]


class SmallGradients:
    """Copies of small gradients of one pass, to be looked at together.

    Args:
        pass_number: The pass that they belong to.
        keep: Is given node indices and, for each of them, a row of the fields of `GradientStatistics`, in order.
        copy: Gives a node the statistics of another: ``copy(source, index)``.
    """

    def __init__(self, pass_number: int, keep: Keep, copy: Callable[[int, int], None]) -> None:
        self._pass_number = pass_number
        self._keep, self._copy = keep, copy
        self._room: Any = None
        self._used = 0
        self._starts: list[int] = []
        self._indices: list[int] = []
        self._copies: list[tuple[int, int]] = []
        self._waiting: set[int] = set()

    def take(self, index: int, gradient: torch.Tensor) -> Measured | None:
        """Copy a gradient where it is small and plain, and return what is measured of each; None of any other."""
        if type(gradient) is not torch.Tensor or gradient.dtype is not torch.float32 or not gradient.is_cpu:
            return None
        count = gradient.numel()
        if not 0 < count <= MOST_ELEMENTS or gradient.layout is not torch.strided or gradient.requires_grad:
            return None
        numbers = small_as_it_lies(gradient)
        return self.add(index, as_array(gradient.reshape(-1)) if numbers is None else numbers)

    def add(self, index: int, numbers: Any) -> Measured:
        """Copy 1 to `MOST_ELEMENTS` float32 numbers, all of what a node received, and return what is measured of each.

        Args:
            index: The node.
            numbers: A NumPy array in one row.
        """
        count = len(numbers)
        if self._room is None:
            self._room = np.empty(_ROOM, np.float32)
        elif self._used + count > _ROOM:
            self.settle()
        start, stop = self._used, self._used + count
        copied = self._room[start:stop]
        copied[:] = numbers
        self._used = stop
        self._starts.append(start)
        self._indices.append(index)
        self._waiting.add(index)
        norm = math.sqrt(vdot(copied, copied))
        if NORM_RELIABLE[0] < norm < NORM_RELIABLE[1]:
            return norm, 0, 0
        return of_numbers(copied)

    def hands_on(self, source: int, index: int) -> bool:
        """Note that a node received what ``source`` did; False where that is not waiting."""
        if source not in self._waiting:
            return False
        self._copies.append((source, index))
        self._waiting.add(index)
        return True

    def settle(self) -> None:
        """Look at all that wait."""
        if not self._indices:
            return
        indices, starts, copies = self._indices, self._starts, self._copies
        self._indices, self._starts, self._copies, self._waiting = [], [], [], set()
        used, self._used = self._used, 0
        self._keep(indices, rows_of(self._room[:used], starts, self._pass_number))
        for source, index in copies:
            self._copy(source, index)

    def finish(self) -> None:
        """Look at all that wait, and let go of who is told: who holds this would else hold itself."""
        try:
            self.settle()
        finally:
            self._keep = self._copy = _nobody


def _nobody(*_: Any) -> None:
    pass


def rows_of(values: Any, starts: list[int], pass_number: int) -> Any:
    """Return a row of the fields of `GradientStatistics` for each stretch of float32 ``values``.

    Mean and standard deviation are those of the finite elements, NaN where there are none; norm and largest magnitude
    are NaN where one element is, else infinite where one is.

    Args:
        values: Shape (elements,).
        starts: Where each stretch begins; it ends where the next one begins.
        pass_number: The first field.
    """
    wide = values.astype(np.float64)
    counts = np.diff(starts, append=len(values))
    rows = np.zeros((len(starts), 11))
    rows[:, 0], rows[:, 1] = pass_number, counts
    rows[:, 2] = np.sqrt(np.add.reduceat(wide * wide, starts))
    rows[:, 3] = np.maximum.reduceat(np.abs(wide), starts)
    rows[:, 6] = _counted(wide == 0, starts)
    finite = np.isfinite(wide)
    numbers = counts
    if not finite.all():
        rows[:, 7], rows[:, 8] = _counted(np.isnan(wide), starts), _counted(np.isinf(wide), starts)
        numbers, wide = _counted(finite, starts), np.where(finite, wide, 0.0)
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN that stands for the mean of nothing
        means = np.add.reduceat(wide, starts) / numbers
        apart = np.where(finite, wide - np.repeat(means, counts), 0.0)
        rows[:, 4], rows[:, 5] = means, np.sqrt(np.add.reduceat(apart * apart, starts) / numbers)
    return rows


def _counted(marked: Any, starts: list[int]) -> Any:
    """Return how many elements of each stretch are marked."""
    return np.add.reduceat(marked.astype(np.int64), starts)
