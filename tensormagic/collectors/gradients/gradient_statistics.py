"""The numbers of one pass: all that is shown about each gradient, the elements of small ones, and the forward's."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from tensormagic.collectors import devices
from tensormagic.collectors.gradients.measures import PIECE, Measured, as_array, small_as_it_lies, vdot
from tensormagic.collectors.gradients.on_device import DeviceNumbers
from tensormagic.collectors.graphs.live_nodes import Hooks, grad_fn_of
from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.quiet import without_modes
from tensormagic.reports import (
    MEASURES,
    UNTOUCHED,
    FirstNonfinite,
    ForwardNonfinite,
    ForwardValues,
    GradientStatistics,
    SmallValues,
)
from tensormagic.reports.base import quickly
from tensormagic.reports.graph import FEW_ELEMENTS

# A plain gradient of megabytes is gone through in pieces that stay in the cache while smallest, largest, sum, sum of
# squares and zeros are taken of each: memory is read once. One of few elements is summed in float64. Any other, and one
# whose float32 sums are not enough, is looked at as one on a device is, and read at once.

_statistics = quickly(GradientStatistics)

MOST_ELEMENTS = 1 << 9  # summed in float64
_SQUARES_RELIABLE = (1e-17, 1e16)  # magnitudes whose squares, summed, neither vanish nor overflow in float32
_CANCELS = 1e-3  # a variance below this share of the mean square has lost its digits in float32
_ONES = np.ones(PIECE, np.float32)  # a dot product with them is a sum, in a quarter of the time of NumPy's own


def statistics_of(gradient: torch.Tensor, pass_number: int) -> GradientStatistics:
    """Return the statistics of a gradient on a CPU; mean and standard deviation are those of its finite elements."""
    plain = type(gradient) is torch.Tensor and gradient.dtype is torch.float32 and gradient.layout is torch.strided
    if plain and gradient.is_cpu and not gradient.is_nested:
        row = small_as_it_lies(gradient)
        if row is None and 0 < gradient.numel() <= MOST_ELEMENTS:
            row = as_array(gradient.detach().reshape(-1))
        if row is not None and (known := statistics_of_row(row, pass_number)) is not None:
            return known
        if row is not None and len(row) <= PIECE:  # as gradients that vanish: sums in float64 are enough
            return _of_few(row, pass_number)
    found: list[Any] = []
    numbers = DeviceNumbers(pass_number)
    numbers.ask(gradient, lambda _, statistics: found.append(statistics), full=True)
    numbers.send()
    numbers.read()
    return found[0]  # type: ignore[no-any-return]


def statistics_of_row(row: Any, pass_number: int) -> GradientStatistics | None:
    """Return the statistics of float32 numbers, shape (elements,); None where NumPy's sums of them are not enough.

    Norm and largest magnitude are NaN where one element is, else infinite where one is. NumPy goes through them on one
    core: waiting for others at every piece takes longer.
    """
    if len(row) <= MOST_ELEMENTS:
        return _of_few(row, pass_number)
    count, least, most, total, squares, zero = len(row), math.inf, -math.inf, 0.0, 0.0, 0
    for at in range(0, count, PIECE):
        part = row[at : at + PIECE]
        low, high = float(_least(part)), float(_largest(part))
        if not math.isfinite(low + high):
            return None
        least, most = min(least, low), max(most, high)
        total += float(vdot(part, _ONES[: len(part)]))
        squares += float(vdot(part, part))
        zero += int(np.count_nonzero(part == 0)) if low <= 0 <= high else 0
    largest, mean, variance = max(abs(least), abs(most)), total / count, 0.0
    if largest and not _SQUARES_RELIABLE[0] < largest < _SQUARES_RELIABLE[1]:
        return None
    if least != most:  # Σ(x - m)² = Σx² - n·m², unless that cancels
        variance = squares / count - mean * mean
        if variance < _CANCELS * squares / count:
            return None
    return _statistics(pass_number, count, math.sqrt(squares), largest, mean, math.sqrt(variance), zero, 0, 0, 0, 0)


def _of_few(row: Any, pass_number: int) -> GradientStatistics:
    with np.errstate(all="ignore"):  # the user may have asked for errors; a NaN of another kind makes NumPy warn
        wide = row.astype(np.float64)
        good, nan, inf, mean, deviation = wide, 0, 0, math.nan, math.nan
        norm = math.sqrt(vdot(wide, wide))
        if not norm < math.inf:
            good, nan = wide[np.isfinite(wide)], int(np.count_nonzero(np.isnan(wide)))
            inf, norm = len(wide) - len(good) - nan, math.nan if nan else math.inf
        largest = float(max(_largest(wide), -_least(wide))) if norm < math.inf else norm
        zero = len(wide) - int(np.count_nonzero(wide))
        if len(good):
            mean = float(np.add.reduce(good)) / len(good)
            apart = good - mean
            deviation = math.sqrt(vdot(apart, apart) / len(good))
    return _statistics(pass_number, len(wide), norm, largest, mean, deviation, zero, nan, inf, 0, 0)


_least, _largest = np.minimum.reduce, np.maximum.reduce  # of one row: in two thirds of the time of its methods


Statistics = list["GradientStatistics | None"]
"""Of one gradient of each node of a graph; None where none came."""


def measures_of(table: Statistics) -> array[float]:
    """Return what `reports.Frame.measures` holds: for each node `reports.MEASURES`, or `UNTOUCHED` six times."""
    packed = np.full((len(table), len(MEASURES)), UNTOUCHED, np.float32)
    if known := [at for at, one in enumerate(table) if one is not None]:
        rows = np.array([_measured(table[at]) for at in known], np.float64)
        rows[:, 3:6] /= np.maximum(rows[:, 6:], 1)
        with np.errstate(all="ignore"):  # what float32 cannot hold is infinite in it, or 0
            packed[known] = rows[:, :6]
    return array("f", packed.tobytes())


_measured = attrgetter("abs_max", "mean", "std", "zero", "subnormal", "saturated", "count")


# The numbers themselves, where a graph is small enough to be checked by hand: what the forward made, as calls returned
# it, and what hooks saw received and sent. On a device other than a CPU nothing is read: it would have to be waited
# for.

_MOST_RESULTS = 512  # of a forward whose backward never comes
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

Numbers = tuple[float, ...]


class SmallResults:
    """What calls of the forward made lately, by the sequence number of the node, where it has few elements."""

    def __init__(self) -> None:
        self.made: dict[int, Numbers] = {}

    def note(self, result: Any) -> None:
        """Note what a call returned. Never raises."""
        if type(result) is not torch.Tensor:
            return
        try:
            with torch._C.DisableTorchFunction():
                numbers = _numbers(result) if 0 < result.numel() <= FEW_ELEMENTS else ()
                if numbers and torch._C._current_autograd_node() is None and (node := grad_fn_of(result)) is not None:
                    if len(self.made) >= _MOST_RESULTS:
                        del self.made[next(iter(self.made))]
                    self.made[node._sequence_nr()] = numbers
        except Exception:
            return


class SmallPass:
    """What one pass brought to each node of a small graph, what each sent on, and what the forward ``made``."""

    def __init__(self, found: Walk, structure: GraphStructure, made: dict[int, Numbers]) -> None:
        self._edges = {(edge.source, edge.input_number): at for at, edge in enumerate(structure.edges)}
        self._received: list[Numbers] = [()] * structure.size
        self._sent: list[Numbers] = [()] * len(structure.edges)
        self._made: list[Numbers] = [()] * structure.size
        for index, node in zip(structure.index, found.nodes, strict=True):
            leaf = index in structure.leaf_of
            self._made[index] = _numbers(node.variable) if leaf else made.get(node._sequence_nr(), ())

    def open(self, found: Walk, structure: GraphStructure, hooks: Hooks, around: Callable[..., Any] | None) -> None:
        """Put a hook before and one after each node; ``hooks`` takes them off."""
        came, went = self._came, self._went
        if around is not None:
            came, went = partial(around, came), partial(around, went)
        for index, node in zip(structure.index, found.nodes, strict=True):
            hooks.keep(node.register_prehook(partial(came, index, None)))
            hooks.keep(node.register_hook(partial(went, index, None)))

    def _came(self, index: int, _what: None, gradients: Sequence[torch.Tensor | None]) -> None:
        self._received[index] = _numbers(gradients[0]) if len(gradients) == 1 else ()

    def _went(self, index: int, _what: None, sent: Sequence[torch.Tensor | None], _received: Any) -> None:
        for number, gradient in enumerate(sent):
            if (edge := self._edges.get((index, number))) is not None:
                self._sent[edge] = _numbers(gradient)

    def report(self) -> SmallValues:
        """Return the numbers as plain data."""
        return SmallValues(tuple(self._made), tuple(self._received), tuple(self._sent))


def _numbers(x: Any) -> Numbers:
    """Return the elements of a tensor; none where these are many, or are not simply there to be read. Never raises."""
    try:
        with torch._C.DisableTorchFunction(), without_modes():
            if type(x) is torch.Tensor and x.dtype is torch.float32 and not (x.dim() or devices.there.holds(x)):
                return (x.item(),)  # a loss, as a rule
            if type(x) not in _PLAIN or not 0 < x.numel() <= FEW_ELEMENTS or x.is_meta or devices.there.holds(x):
                return ()
            if x.layout is not torch.strided or not x.is_floating_point():
                return ()
            return tuple(map(float, x.detach().reshape(-1).tolist()))
    except Exception:
        return ()


# The numbers of one pass, and of the forward before it.

Row = GradientStatistics


def together(rows: Sequence[Row]) -> Row:
    """Return the numbers of the outputs of one node taken together."""
    if len(rows) == 1:
        return rows[0]
    count = sum(row.count for row in rows)
    mean = sum(row.mean * row.count for row in rows) / max(count, 1)
    spread = sum(row.count * (row.std * row.std + (row.mean - mean) * (row.mean - mean)) for row in rows)
    counted = ("count", "zero", "nan", "inf", "subnormal", "saturated")
    return replace(
        rows[0], norm=math.hypot(*(row.norm for row in rows)), abs_max=max(row.abs_max for row in rows), mean=mean,
        std=math.sqrt(spread / max(count, 1)), **{name: sum(getattr(row, name) for row in rows) for name in counted},
    )  # fmt: skip


class PassForward:
    """What the forward of one pass made, by node index; ``missed`` is called with why something could not be read."""

    values: ForwardValues | None = None  # the numbers, packed; this and the next are there once they were fetched
    nonfinite: ForwardNonfinite | None = None  # the first node in the order of the forward that made a NaN or Inf

    def __init__(self, structure: GraphStructure, pass_number: int, missed: Callable[[Exception], None]) -> None:
        self._structure, self._missed = structure, missed
        self._pass_number = pass_number
        self.rows: dict[int, list[Row]] = {}  # of each output; those on a device are there when they have come
        self.far: DeviceNumbers | None = None  # brings these; None where there is nothing to come
        self.given: dict[int, bool | None] = {}  # for nodes that made a NaN or Inf: whether one went in

    def fetch(self) -> None:
        """Take what has come from devices; waits until it has. Never raises."""
        table: Statistics = [None] * self._structure.size
        norms, bad = array("f", [UNTOUCHED]) * self._structure.size, dict[str, tuple[int, int]]()
        try:
            if self.far is not None:
                self.far.read()
                self.far = None
            for index, row in [(index, together(rows)) for index, rows in sorted(self.rows.items()) if rows]:
                table[index], norms[index] = row, row.norm
                if row.nan or row.inf:
                    bad[str(index)] = found = (row.nan, row.inf)
                    if self.nonfinite is None and index not in self._structure.leaf_of:
                        given = self.given.get(index)
                        self.nonfinite = ForwardNonfinite(self._pass_number, index, *found, row.count, given)
        except Exception as error:
            self._missed(error)
        self.values = ForwardValues(norms, measures_of(table), bad)


@dataclass(slots=True)
class PassValues:
    """The numbers of one pass: plain, written by the hooks, read by the sampler while it runs."""

    pass_number: int  # From 1.
    norms: array[float]  # By report index; `UNTOUCHED` until backward reaches the node.
    bad: dict[int, tuple[int, int]] = field(default_factory=dict)  # Report index → (NaN count, Inf count).
    order: list[int] = field(default_factory=list)  # Report indices in the order reached.
    first_nonfinite: tuple[FirstNonfinite, ...] = ()  # Filled when the pass ends.
    gap: str = ""  # Why something could not be measured; empty where all could.
    loss_gap: str = ""  # Why the value is missing; empty where it is there, or is not a number.
    value: float | None = None  # The number that backward was called on, where it is one and can be read.
    # (report index of a node, input number) → what it sent there, where several send to one slot.
    parts: dict[tuple[int, int], Measured] = field(default_factory=dict)
    # The statistics of every gradient; None in a pass of which only the norms are taken.
    table: Statistics | None = None
    forward: PassForward | None = None  # What the forward made, where that was asked for.
    small: SmallPass | None = None  # The numbers themselves, of a small graph.

    @classmethod
    def of(cls, pass_number: int, size: int, *, full: bool) -> PassValues:
        """Return the values of a pass that is about to begin, through a graph of so many nodes."""
        return cls(pass_number, array("f", [UNTOUCHED]) * size, table=[None] * size if full else None)
