"""Values of the forward: of every operation, and those that a pass asks for."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors import devices
from tensormagic.collectors.gradients.gradient_statistics import (
    MOST_ELEMENTS,
    SmallGradients,
    SmallPass,
    StatisticsTable,
    statistics_of,
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
from tensormagic.collectors.graphs.live_nodes import flat, has_history, is_stale
from tensormagic.collectors.graphs.structure import GraphStructure
from tensormagic.collectors.quiet import dispatches_to_python, local_shard, outside_functorch, unread_reason, unwrap
from tensormagic.reports import UNTOUCHED, FirstNonfinite, ForwardNonfinite, ForwardValues, GradientStatistics
from tensormagic.words import error_text

# Measures what the forward makes, for the user who asks for it: each output of each call that makes a node.
#
# The function mode sees the outputs as they are returned. On a CPU they are measured there and then; on any other
# device their numbers are computed there, and come with those of the pass. Nothing is kept but numbers. A row is
# known by the sequence number of its node until a backward walks the graph.

GENERATIONS = 4  # forwards whose rows are still known: the pass through a graph may come after that through another
MOST_ROWS = 1 << 17  # rows of one forward

Row = GradientStatistics


@dataclass(slots=True)
class _Coming:
    """A row that is on its way from a device; None until it is here."""

    row: Row | None = None

    def came(self, _: Measured | None, row: Row | None) -> None:
        """Take it."""
        self.row = row


class ForwardMeter:
    """The rows of the last forwards.

    Attributes:
        seconds: Spent here.
        gap: Why something could not be measured; empty where all could.
    """

    def __init__(self) -> None:
        self._far = DeviceNumbers(0)
        self._rows: deque[dict[int, Row | _Coming]] = deque([{}], maxlen=GENERATIONS)
        self._given: dict[int, bool | None] = {}
        self._last: tuple[Any, StorageWeakRef | None, Row | None] = (None, None, None)
        self.seconds = 0.0
        self.gap = ""

    def observe(self, made: tuple[int, int], given: tuple[tuple[Any, ...], Any], result: Any) -> None:
        """Measure the outputs of a call that made the nodes ``made`` (from, to). Never raises."""
        if torch._C._current_autograd_node() is not None or devices.there.capturing():
            return
        began = perf_counter()
        try:
            with _aside():
                values = (*given[0], *(given[1] or {}).values())
                for x in flat((values[0] if result is None and values else result,)):
                    self._look(x, made, values)
        except Exception as error:
            self.gap = error_text(error)
        self.seconds += perf_counter() - began

    def _look(self, x: Any, made: tuple[int, int], values: tuple[Any, ...]) -> None:
        if not has_history(x) or is_stale(x) or x.device.type == "meta":
            return
        number, local = x.grad_fn._sequence_nr(), local_shard(x)
        if dispatches_to_python(local):
            self.gap = unread_reason(x)
            return
        if made[0] <= number < made[1]:
            row = self._measure(unwrap(local).detach())
            if len(self._rows[-1]) >= MOST_ROWS:
                self._rows.append({})
            rows = self._rows[-1]
            rows[number] = _together(rows[number], row) if number in rows else row
            if number not in self._given and isinstance(row, Row) and (row.nan or row.inf):
                self._given[number] = any(_is_bad(value) for value in flat(values) if value is not x)

    def _measure(self, x: torch.Tensor) -> Row | _Coming:
        """Measure a value, unless it is, unchanged, the very memory that was measured last: a view."""
        if devices.there.holds(x):
            coming = _Coming()
            self._far.ask(x, coming.came, full=True)
            return coming
        if x.layout is not torch.strided or x.is_nested:
            return statistics_of(x, 0)
        storage = x.untyped_storage()
        key = (storage._cdata, x.data_ptr(), elements_read(x), x._version, x.dtype)
        _, _, row = self._last if key == self._last[0] else (None, None, None)
        if row is None:
            row = statistics_of(x, 0)
            # while the reference lives, no other storage gets this one's `_cdata`, wherever its memory lies
            self._last = (key, StorageWeakRef(storage), row)  # type: ignore[no-untyped-call]
        return row

    def take(
        self, nodes: Sequence[Any], structure: GraphStructure, pass_number: int, *, full: bool
    ) -> PassForward | None:
        """Return the rows of the nodes a pass is about to go through. Never raises.

        Leaves, whose values seldom change much from one pass to the next, are measured as they are where ``full``.
        """
        began = perf_counter()
        try:
            found = PassForward(structure, pass_number)
            with _aside():
                for place, node in enumerate(nodes):
                    index = structure.index[place]
                    if index in structure.leaf_of:
                        leaf = unwrap(local_shard(node.variable))
                        if not full or dispatches_to_python(leaf):
                            continue
                        plain = leaf.layout is torch.strided and leaf.numel() > 0
                        if plain and leaf.untyped_storage().nbytes() == 0:
                            continue  # FSDP lets go of the memory of a whole parameter between uses of it
                        found.rows[index] = self._measure(leaf.detach())
                        continue
                    number = node._sequence_nr()
                    if rows := next((each for each in reversed(self._rows) if number in each), None):
                        found.rows[index] = rows[number]
                        if number in self._given:
                            found.given[index] = self._given[number]
                if self._far.asked:
                    self._far.send()
                    found.far, self._far = self._far, DeviceNumbers(0)
            self._given.clear()
            if self._rows[-1]:
                self._rows.append({})
        except Exception as error:
            self.gap = error_text(error)
            return None
        self.seconds += perf_counter() - began
        return found

    def fetch(self, found: PassForward | None) -> None:
        """Take what has come from devices, of a pass that is over. Never raises."""
        try:
            if found is not None:
                found.fetch()
        except Exception as error:
            self.gap = error_text(error)


class PassForward:
    """What the forward of one pass made, by node index.

    Attributes:
        rows: Measured, or to come from a device.
        far: What brings those; None where there is nothing to come.
        given: For nodes that made a NaN or Inf: whether one went in.
    """

    def __init__(self, structure: GraphStructure, pass_number: int) -> None:
        self._structure = structure
        self._pass_number = pass_number
        self.rows: dict[int, Row | _Coming] = {}
        self.far: DeviceNumbers | None = None
        self.given: dict[int, bool | None] = {}

    def fetch(self) -> None:
        """Take what has come from devices; waits until it has."""
        if self.far is not None:
            self.far.read()
            self.far = None
        for index, row in list(self.rows.items()):
            if isinstance(row, _Coming):
                if row.row is None:
                    del self.rows[index]
                else:
                    self.rows[index] = row.row

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


@contextmanager
def _aside() -> Iterator[None]:
    """Leave out the user's modes and transforms; what is measured is detached: no graph grows. Seldom over 1 µs."""
    with torch._C.DisableTorchFunction():
        if torch._C._functorch.peek_interpreter_stack() is not None:
            with outside_functorch():
                yield
        elif torch._C._len_torch_dispatch_stack():
            with torch.utils._python_dispatch._disable_current_modes():
                yield
        else:
            yield


def _is_bad(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    value = unwrap(local_shard(value))
    if dispatches_to_python(value):
        return False
    row = statistics_of(value.detach(), 0) if value.is_cpu and value.numel() else None
    return row is not None and bool(row.nan or row.inf)


def _together(first: Row | _Coming, second: Row | _Coming) -> Row | _Coming:
    """Return the numbers of two outputs of one node taken together; of what is on a device, the larger one's."""
    if not (isinstance(first, Row) and isinstance(second, Row)):
        return first
    count = first.count + second.count
    mean = (first.mean * first.count + second.mean * second.count) / max(count, 1)
    spread = sum(row.count * (row.std**2 + (row.mean - mean) ** 2) for row in (first, second))
    return dataclasses.replace(
        first, count=count, norm=math.hypot(first.norm, second.norm), abs_max=max(first.abs_max, second.abs_max),
        mean=mean, std=math.sqrt(spread / max(count, 1)), zero=first.zero + second.zero, nan=first.nan + second.nan,
        inf=first.inf + second.inf, subnormal=first.subnormal + second.subnormal,
        saturated=first.saturated + second.saturated,
    )  # fmt: skip


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


def _copies_of(recorder: Recorder, small: SmallGradients) -> Take:
    """Return what copies a gradient, to be looked at together with thousands of others."""
    add, store = small.add, recorder.store

    def take(index: int, gradient: torch.Tensor, numbers: Any, _: int) -> bool:
        if gradient.requires_grad or gradient.is_neg():
            return False
        began = perf_counter()
        store(index, add(index, numbers))
        recorder.statistics_seconds += perf_counter() - began
        return True

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
    take, most = (_norms_of(recorder), MOST_ALONE) if small is None else (_copies_of(recorder, small), MOST_ELEMENTS)

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
                if 0 < count <= most and address and take(index, x, view(bytes_at(address), float32, count), count):
                    recorder.seconds += perf_counter() - began
                    return
        except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
            pass
        slowly(index, None, None, gradients)

    return look
