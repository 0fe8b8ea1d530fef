"""The hook of nearly every node in nearly every pass, and the numbers that the hooks of a pass leave."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import torch

from tensormagic.collectors.gradients.forward_values import PassForward
from tensormagic.collectors.gradients.gradient_statistics import MOST_ELEMENTS, SmallGradients, StatisticsTable
from tensormagic.collectors.gradients.measures import (
    MOST_ALONE,
    NORM_RELIABLE,
    Measured,
    SmallPass,
    bytes_at,
    float32,
    is_transposed,
    squared,
    view,
)
from tensormagic.reports import UNTOUCHED, FirstNonfinite

# The numbers that the hooks of one backward pass leave.


@dataclass(slots=True)
class PassValues:
    """The numbers of one pass: plain, written by the hooks, read by the sampler while it runs.

    Attributes:
        pass_number: From 1.
        norms: By report index; `UNTOUCHED` until backward reaches the node.
        bad: Report index → (NaN count, Inf count).
        order: Report indices in the order reached.
        first_nonfinite: Filled when the pass ends.
        gap: Why something could not be measured; empty where all could.
        loss_gap: Why the value is not told; empty where it is, or is no number.
        value: The number that backward was called on, where it is one and can be read.
        parts: (report index of a node, input number) → what it sent there, where several send to one slot.
        table: The statistics of every gradient; None in a pass of which only the norms are taken.
        forward: What the forward made, where that was asked for.
        small: The numbers themselves, of a small graph.
    """

    pass_number: int
    norms: array[float]
    bad: dict[int, tuple[int, int]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    first_nonfinite: tuple[FirstNonfinite, ...] = ()
    gap: str = ""
    loss_gap: str = ""
    value: float | None = None
    parts: dict[tuple[int, int], Measured] = field(default_factory=dict)
    table: StatisticsTable | None = None
    forward: PassForward | None = None
    small: SmallPass | None = None

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
    """What is known of the nodes of a graph.

    Attributes:
        index_of: Returns the report index of the live node with an ``id``, or None.
        feeder: As in `GraphStructure`.
        there: By report index, whether the statistics of a first gradient are known.
    """

    index_of: Callable[[int], int | None]
    feeder: array[int]
    there: bytearray


class Memory:
    """Where the gradients of a pass lay that were looked at last, by report index; plain numbers.

    Three lists, and no tuple for each node: what Python has to look through for garbage, it looks through often.
    """

    __slots__ = ("addresses", "counts", "versions")

    def __init__(self, size: int) -> None:
        self.addresses, self.counts, self.versions = [0] * size, [0] * size, [0] * size

    def note(self, index: int, gradient: torch.Tensor) -> None:
        """Say what a node received."""
        self.addresses[index], self.counts[index] = gradient.data_ptr(), gradient.numel()
        self.versions[index] = gradient._version

    def holds(self, index: int, gradient: torch.Tensor) -> bool:
        """Return whether a gradient is, unchanged, what the node received."""
        address = gradient.data_ptr()
        return (
            address == self.addresses[index] != 0
            and gradient.numel() == self.counts[index]
            and gradient._version == self.versions[index]
        )


class Recorder(Protocol):
    """The part of `PassRecorder` that the hook fills, by report index where nothing else is said.

    Attributes:
        values: The pass.
        memory: Where its gradients lay.
        seconds: Spent in hooks so far.
        survey_seconds: Spent so far in measuring gradients in full, a part of ``seconds``.
    """

    values: PassValues
    memory: Memory
    seconds: float
    survey_seconds: float

    def hand_on(self, source: int, index: int) -> None:
        """Give a node the numbers of the one before it, whose gradient it received unchanged."""

    def store(self, index: int, numbers: Measured) -> None:
        """Keep a node's numbers."""


def _norms_of(recorder: Recorder) -> Take:
    """Return what takes the norm of a gradient, where that is no unusual number."""
    norms, (least, largest) = recorder.values.norms, NORM_RELIABLE

    def take(index: int, _: torch.Tensor, numbers: Any, count: int) -> bool:
        if least < (norm := sqrt(squared(numbers, count))) < largest:
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
        recorder.survey_seconds += perf_counter() - began
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
    addresses, counts, versions = memory.addresses, memory.counts, memory.versions
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
            ):  # fmt: skip
                addresses[index] = address = x.data_ptr()
                counts[index] = count = x.numel()
                versions[index] = version = x._version
                source = feeder[index]
                if source >= 0 and address == addresses[source] != 0 and (
                    (count, version) == (counts[source], versions[source])
                ):  # fmt: skip
                    if full or source in bad:
                        hand_on(source, index)
                    else:
                        norms[index] = norms[source]
                    recorder.seconds += perf_counter() - began
                    return
                if (
                    0 < count <= most and address and (x.is_contiguous() or is_transposed(x))
                    and take(index, x, view(bytes_at(address), float32, count), count)
                ):  # fmt: skip
                    recorder.seconds += perf_counter() - began
                    return
        except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
            pass
        slowly(index, None, None, gradients)

    return look
