"""The numbers of one backward pass, and the hook that takes most of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import torch

from tensormagic.collectors.gradients.gradient_statistics import (
    MOST_ELEMENTS,
    SmallGradients,
    SmallPass,
    StatisticsTable,
    statistics_of_row,
)
from tensormagic.collectors.gradients.measures import (
    DOT_AT_ONCE,
    MOST_ALONE,
    NORM_RELIABLE,
    Measured,
    bytes_at,
    elements_read,
    float32,
    squared,
    vdot,
    view,
)
from tensormagic.collectors.gradients.on_device import DeviceNumbers
from tensormagic.collectors.graphs.structure import GraphStructure
from tensormagic.reports import UNTOUCHED, FirstNonfinite, ForwardNonfinite, ForwardValues, GradientStatistics

Row = GradientStatistics


@dataclass(slots=True)
class Coming:
    """A row that is on its way from a device; None until it is here."""

    row: Row | None = None

    def came(self, _: Measured | None, row: Row | None) -> None:
        """Take it."""
        self.row = row


class PassForward:
    """What the forward of one pass made, by node index.

    Args:
        structure: The graph it went through.
        pass_number: From 1.
        missed: Called with why something could not be read.

    Attributes:
        rows: Measured, or to come from a device.
        far: What brings those; None where there is nothing to come.
        given: For nodes that made a NaN or Inf: whether one went in.
    """

    def __init__(self, structure: GraphStructure, pass_number: int, missed: Callable[[Exception], None]) -> None:
        self._structure, self._missed = structure, missed
        self._pass_number = pass_number
        self.rows: dict[int, Row | Coming] = {}
        self.far: DeviceNumbers | None = None
        self.given: dict[int, bool | None] = {}

    def fetch(self) -> None:
        """Take what has come from devices; waits until it has. Never raises."""
        try:
            if self.far is not None:
                self.far.read()
                self.far = None
            for index, row in list(self.rows.items()):
                if isinstance(row, Coming):
                    if row.row is None:
                        del self.rows[index]
                    else:
                        self.rows[index] = row.row
        except Exception as error:
            self._missed(error)

    def report(self) -> ForwardValues:
        """Return the numbers, packed."""
        table, norms = StatisticsTable(self._structure.size), array("f", [UNTOUCHED]) * self._structure.size
        bad: dict[str, tuple[int, int]] = {}
        for index, row in self._measured():
            table[index], norms[index] = row, row.norm
            if row.nan or row.inf:
                bad[str(index)] = (row.nan, row.inf)
        return ForwardValues(norms, table.columns(), bad)

    def first_nonfinite(self) -> ForwardNonfinite | None:
        """Return the first node in the order of the forward that made a NaN or Inf; None where none did."""
        is_bad = {index: row for index, row in self._measured() if row.nan or row.inf}
        index = min((index for index in is_bad if index not in self._structure.leaf_of), default=None)
        if index is None:
            return None
        row = is_bad[index]
        return ForwardNonfinite(self._pass_number, index, row.nan, row.inf, row.count, self.given.get(index))

    def _measured(self) -> Iterable[tuple[int, Row]]:
        return ((index, row) for index, row in sorted(self.rows.items()) if isinstance(row, Row))


# The numbers that the hooks of one backward pass leave, and below the hook of nearly every node in nearly every pass.


@dataclass(slots=True)
class PassValues:
    """The numbers of one pass: plain, written by the hooks, read by the sampler while it runs."""

    pass_number: int  # From 1.
    norms: array[float]  # By report index; `UNTOUCHED` until backward reaches the node.
    bad: dict[int, tuple[int, int]] = field(default_factory=dict)  # Report index → (NaN count, Inf count).
    order: list[int] = field(default_factory=list)  # Report indices in the order reached.
    first_nonfinite: tuple[FirstNonfinite, ...] = ()  # Filled when the pass ends.
    gap: str = ""  # Why something could not be measured; empty where all could.
    loss_gap: str = ""  # Why the value is missing; empty where it is there, or is no number.
    value: float | None = None  # The number that backward was called on, where it is one and can be read.
    # (report index of a node, input number) → what it sent there, where several send to one slot.
    parts: dict[tuple[int, int], Measured] = field(default_factory=dict)
    # The statistics of every gradient; None in a pass of which only the norms are taken.
    table: StatisticsTable | None = None
    forward: PassForward | None = None  # What the forward made, where that was asked for.
    small: SmallPass | None = None  # The numbers themselves, of a small graph.

    @classmethod
    def of(cls, pass_number: int, size: int, *, full: bool) -> PassValues:
        """Return the values of a pass that is about to begin, through a graph of so many nodes."""
        table = StatisticsTable(size) if full else None
        return cls(pass_number, array("f", [UNTOUCHED]) * size, table=table)


# The hook of nearly every node in nearly every pass: takes the norm of one small gradient, in a microsecond or a few.
#
# In a pass whose gradients are measured in full it copies them, and leaves the measuring for later. It is one
# function with everything it needs at hand, since it runs for every node: what it finds anything unusual in, it
# leaves to the hook that looks at everything. It is the same function for all nodes: the engine says which one it is
# at. It calls no operation of torch's, so no mode has to be kept from seeing it.

Gradients = Sequence["torch.Tensor | None"]

current_node: Callable[[], Any] = torch._C._current_autograd_node


Take = Callable[[int, torch.Tensor, Any, int], bool]  # node, gradient, its numbers, how many: whether that was all


class Known(NamedTuple):
    """What is known of the nodes of a graph."""

    index_of: Callable[[int], int | None]  # returns the report index of the live node with an ``id``, or None
    feeder: array[int]  # as in `GraphStructure`
    there: bytearray  # by report index, whether the statistics of a first gradient are known


class Memory:
    """Where the gradients of a pass lay that were looked at last, by report index; plain numbers.

    Three lists, and no tuple for each node: what Python has to look through for garbage, it looks through often.
    """

    __slots__ = ("addresses", "reads", "versions")

    def __init__(self, size: int) -> None:
        self.addresses, self.reads, self.versions = [0] * size, [0] * size, [0] * size

    def note(self, index: int, gradient: torch.Tensor) -> None:
        """Say what a node received."""
        self.addresses[index], self.reads[index] = gradient.data_ptr(), elements_read(gradient)
        self.versions[index] = gradient._version

    def holds(self, index: int, gradient: torch.Tensor) -> bool:
        """Return whether a gradient is, unchanged, what the node received."""
        address = gradient.data_ptr()
        return (
            address == self.addresses[index] != 0
            and gradient._version == self.versions[index]
            and elements_read(gradient) == self.reads[index]
        )


class Recorder(Protocol):
    """The part of `PassRecorder` that the hook fills, by report index where nothing else is said."""

    values: PassValues  # the pass
    memory: Memory  # where its gradients lay
    seconds: float  # spent in hooks so far
    statistics_seconds: float  # spent so far in measuring gradients in full, a part of ``seconds``

    def keep_statistics(self, index: int, found: Row) -> None:
        """Keep everything that is shown about the gradient of a node."""

    def hand_on(self, source: int, index: int) -> None:
        """Give a node the numbers of the one before it, whose gradient it received unchanged."""

    def store(self, index: int, numbers: Measured) -> None:
        """Keep a node's numbers."""


def _norms_of(recorder: Recorder) -> Take:
    """Return what takes the norm of a gradient, where that is no unusual number."""
    norms, (least, largest) = recorder.values.norms, NORM_RELIABLE

    def take(index: int, _: torch.Tensor, numbers: Any, count: int) -> bool:
        square = vdot(numbers, numbers) if count <= DOT_AT_ONCE else squared(numbers, count)
        if least < (norm := sqrt(square)) < largest:
            norms[index] = norm
            return True
        return False

    return take


def _statistics_of(recorder: Recorder, small: SmallGradients) -> Take:
    """Return what measures a gradient in full; a small one is copied, to be looked at together with thousands."""
    add, store, keep, norms = small.add, recorder.store, recorder.keep_statistics, recorder.values.norms
    number = recorder.values.pass_number

    def take(index: int, gradient: torch.Tensor, numbers: Any, count: int) -> bool:
        if gradient.requires_grad or gradient.is_neg():
            return False
        began = perf_counter()
        if count <= MOST_ELEMENTS:
            store(index, add(index, numbers))
        elif (found := statistics_of_row(numbers, number)) is not None:
            keep(index, found)
            norms[index] = found.norm
        recorder.statistics_seconds += perf_counter() - began
        return norms[index] != UNTOUCHED

    return take


def fast_norm(
    recorder: Recorder,
    known: Known,
    slowly: Callable[[int, None, None, Gradients], None],
    small: SmallGradients | None = None,
) -> Callable[[Gradients], None]:
    """Return a hook for any number of nodes, which is given what torch gives a prehook.

    Args:
        recorder: Whose pass it is: its values and ``memory`` are filled, and its ``seconds``.
        known: Of the nodes.
        slowly: Looks at what takes longer, and counts its own time.
        small: Copies what is small, in a pass whose gradients are measured in full. Without it the norm is taken, of
            those whose statistics are there.
    """
    values, memory, hand_on = recorder.values, recorder.memory, recorder.hand_on
    norms, bad, reached = values.norms, values.bad, values.order.append
    addresses, reads, versions = memory.addresses, memory.reads, memory.versions
    index_of, feeder, there = known
    tensor, single, full = torch.Tensor, torch.float32, small is not None
    take = _norms_of(recorder) if small is None else _statistics_of(recorder, small)

    def look(gradients: Gradients) -> None:
        began = perf_counter()
        if (index := index_of(id(current_node()))) is None:
            return
        reached(index)
        try:
            x: Any = gradients[0]
            if (
                type(x) is tensor and x.dtype is single and x.is_cpu and (full or there[index])
                and norms[index] == UNTOUCHED and len(gradients) == 1
                # by rows, or by columns as the gradients of weights are: `is_transposed`, without a call
                and (x.is_contiguous() or (len(s := x.stride()) == 2 and s[0] == 1 and s[1] == x.size(0)))
            ):  # fmt: skip
                addresses[index] = address = x.data_ptr()
                reads[index] = count = x.numel()  # `elements_read` of such a one, without a call
                versions[index] = version = x._version
                source = feeder[index]
                if source >= 0 and address == addresses[source] != 0 and (
                    (count, version) == (reads[source], versions[source])
                ):  # fmt: skip
                    if full or source in bad:
                        hand_on(source, index)
                    else:
                        norms[index] = norms[source]
                    recorder.seconds += perf_counter() - began
                    return
                if 0 < count <= MOST_ALONE and address and (
                    take(index, x, view(bytes_at(address), float32, count), count)
                ):  # fmt: skip
                    recorder.seconds += perf_counter() - began
                    return
        except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
            pass
        slowly(index, None, None, gradients)

    return look
