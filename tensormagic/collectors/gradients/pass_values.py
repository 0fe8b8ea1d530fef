"""The numbers of one backward pass, and the hook that takes most of them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from time import perf_counter
from typing import Any

import torch

from tensormagic.collectors.gradients.gradient_statistics import (
    MOST_ELEMENTS,
    SmallGradients,
    SmallPass,
    StatisticsTable,
    statistics_of,
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
    """What the forward of one pass made, by node index; ``missed`` is called with why something could not be read."""

    def __init__(self, structure: GraphStructure, pass_number: int, missed: Callable[[Exception], None]) -> None:
        self._structure, self._missed = structure, missed
        self._pass_number = pass_number
        self.rows: dict[int, Row | Coming] = {}  # measured, or to come from a device,
        self.far: DeviceNumbers | None = None  # which brings them; None where there is nothing to come
        self.given: dict[int, bool | None] = {}  # for nodes that made a NaN or Inf: whether one went in

    def fetch(self) -> None:
        """Take what has come from devices; waits until it has. Never raises."""
        try:
            if self.far is not None:
                self.far.read()
                self.far = None
            came = ((index, row.row if isinstance(row, Coming) else row) for index, row in self.rows.items())
            self.rows = {index: row for index, row in came if row is not None}
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


# How the hooks of one pass keep what they see, and the one of nearly every node, which sees most.

Gradients = Sequence["torch.Tensor | None"]

_current_node: Callable[[], Any] = torch._C._current_autograd_node


class PassNumbers:
    """Fills the values of one pass, by report index.

    ``first`` are statistics of the first gradient of each node, shared by all passes of the graph, and filled where
    missing. ``seconds`` were spent in hooks so far, ``statistics_seconds`` of these in measuring gradients in full.
    """

    def __init__(self, structure: GraphStructure, values: PassValues, first: StatisticsTable) -> None:
        self.values, self._structure, self._first = values, structure, first
        self.seconds = self.statistics_seconds = 0.0
        self._small = SmallGradients(values.pass_number, self._keep_rows, self._copy_statistics)
        # Where gradients lay that were looked at last. Three lists, and no tuple for each node: what Python has to look
        # through for garbage, it looks through often.
        self._addresses, self._reads, self._versions = ([0] * structure.size for _ in range(3))

    def _received(self, index: int, gradient: torch.Tensor) -> bool:
        """Return whether a gradient is, unchanged, what the node received."""
        return (
            gradient.data_ptr() == self._addresses[index] != 0
            and gradient._version == self._versions[index]
            and elements_read(gradient) == self._reads[index]
        )

    def _keep_rows(self, indices: list[int], rows: Any) -> None:
        table = StatisticsTable(self._structure.size) if self.values.table is None else self.values.table
        table.fill(indices, rows)
        if self.values.table is None:  # a device ran short since the pass began
            self._first.learn(table)

    def _keep_statistics(self, index: int, found: GradientStatistics) -> None:
        """Keep what is known of a node's gradient; of a pass that is measured in full, `close` tells ``first``."""
        if self.values.table is not None:
            self.values.table[index] = found
        elif index not in self._first:
            self._first[index] = found

    def _hand_on(self, source: int, index: int) -> None:
        """Give a node the numbers of the one before it, whose gradient it received unchanged."""
        values = self.values
        values.norms[index] = values.norms[source]
        if source in values.bad:
            values.bad[index] = values.bad[source]
        if not self._small.hands_on(source, index):
            self._copy_statistics(source, index)

    def _copy_statistics(self, source: int, index: int) -> None:
        if self.values.table is not None:
            self.values.table.copy(source, index)
        elif index not in self._first:
            self._first.copy(source, index)

    def _store(self, index: int, numbers: Measured) -> None:
        """Keep a node's numbers; a node with several outputs gets them combined over its slots."""
        norm, nan, inf = numbers
        values = self.values
        if values.norms[index] >= 0:
            norm = math.hypot(values.norms[index], norm)
        if nan or inf or index in values.bad:
            before = values.bad.get(index, (0, 0))
            values.bad[index] = (before[0] + nan, before[1] + inf)
            norm = math.nan if values.bad[index][0] else math.inf
        values.norms[index] = norm

    def _measure_in_full(self, index: int, gradient: torch.Tensor) -> None:
        began = perf_counter()
        numbers = self._small.take(index, gradient) if self.values.norms[index] == UNTOUCHED else None
        if numbers is None:
            found = statistics_of(gradient, self.values.pass_number)
            if index in self._small.waiting:  # a node that is looked at twice keeps the later numbers
                self._small.settle()
            self._keep_statistics(index, found)
            numbers = found.norm, found.nan, found.inf
        self._store(index, numbers)
        self.statistics_seconds += perf_counter() - began

    def _usual_look(  # noqa: C901  (in one function: it runs for every node)
        self, nodes: Sequence[Any], slowly: Callable[[int, None, None, Gradients], None]
    ) -> Callable[[Gradients], None]:
        """Return the hook of nearly every node in nearly every pass, given what torch gives a prehook.

        It takes the norm of one gradient, in a microsecond or a few; in a pass whose gradients are measured in full it
        copies small ones, and leaves the measuring for later. It is one function with everything it needs at hand: what
        it finds anything unusual in, it leaves to ``slowly``, which looks at everything and counts its own time. It is
        the same function for all nodes: the engine says which one it is at. It calls no operation of torch's, so no
        mode has to be kept from seeing it.
        """
        index_of = dict(zip(map(id, nodes), self._structure.index, strict=True)).get  # its ids live as long as they
        recorder, values, hand_on, take = self, self.values, self._hand_on, _taken_in_full(self)
        norms, bad, reached, current_node = values.norms, values.bad, values.order.append, _current_node
        addresses, reads, versions = self._addresses, self._reads, self._versions
        sender, there, full = self._structure.sender, self._first.there, values.table is not None
        tensor, single, (least, largest) = torch.Tensor, torch.float32, NORM_RELIABLE

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
                    # by rows, or by columns as the gradients of weights are: as `small_as_it_lies`, without a call
                    and (x.is_contiguous() or (len(s := x.stride()) == 2 and s[0] == 1 and s[1] == x.size(0)))
                ):  # fmt: skip
                    addresses[index] = address = x.data_ptr()
                    reads[index] = count = x.numel()  # `elements_read` of such a one, without a call
                    versions[index] = version = x._version
                    source = sender[index]
                    if source >= 0 and address == addresses[source] != 0 and (
                        (count, version) == (reads[source], versions[source])
                    ):  # fmt: skip
                        if full or source in bad:
                            hand_on(source, index)
                        else:
                            norms[index] = norms[source]
                        recorder.seconds += perf_counter() - began
                        return
                    if 0 < count <= MOST_ALONE and address:
                        numbers = view(bytes_at(address), float32, count)
                        if full:
                            take(index, x, numbers, count)
                        elif least < (norm := sqrt(
                            vdot(numbers, numbers) if count <= DOT_AT_ONCE else squared(numbers, count)
                        )) < largest:  # fmt: skip
                            norms[index] = norm
                        if norms[index] != UNTOUCHED:
                            recorder.seconds += perf_counter() - began
                            return
            except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
                pass
            slowly(index, None, None, gradients)

        return look


def _taken_in_full(recorder: PassNumbers) -> Callable[[int, torch.Tensor, Any, int], None]:
    """Return what measures a gradient of a node in full, given its numbers; a small one waits for others."""
    add, store, keep, norms = recorder._small.add, recorder._store, recorder._keep_statistics, recorder.values.norms
    number = recorder.values.pass_number

    def take(index: int, gradient: torch.Tensor, numbers: Any, count: int) -> None:
        if gradient.requires_grad or gradient.is_neg():
            return
        began = perf_counter()
        if count <= MOST_ELEMENTS:
            store(index, add(index, numbers))
        elif (found := statistics_of_row(numbers, number)) is not None:
            keep(index, found)
            norms[index] = found.norm
        recorder.statistics_seconds += perf_counter() - began

    return take
