"""The hook of nearly every node in nearly every pass: takes the norm of one small gradient, in a microsecond or a few.

In a pass whose gradients are measured in full it copies them, and leaves the measuring for later. It is one function
with everything it needs at hand, since it runs for every node: what it finds anything unusual in, it leaves to the hook
that looks at everything. It is the same function for all nodes: the engine says which one it is at. It calls no
operation of torch's, so no mode has to be kept from seeing it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from math import sqrt
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensormagic.collectors.gradients.measures import NORM_RELIABLE
from tensormagic.collectors.gradients.raw import MOST_ALONE, bytes_at, float32, is_transposed, squared, view
from tensormagic.collectors.gradients.small_gradients import MOST_ELEMENTS, SmallGradients
from tensormagic.reports import UNTOUCHED

if TYPE_CHECKING:
    from tensormagic.collectors.gradients.gradients import PassRecorder

Gradients = Sequence["torch.Tensor | None"]

current_node: Callable[[], Any] = torch._C._current_autograd_node


class Known(NamedTuple):
    """What is known of the nodes of a graph.

    Attributes:
        index_of: Returns the report index of the live node with an ``id``, or None.
        feeder: As in `Skeleton`.
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


def quick_look(  # noqa: C901  (one function, since a call costs a tenth of what it does)
    recorder: PassRecorder,
    known: Known,
    slowly: Callable[[int, None, None, Gradients], None],
    small: SmallGradients | None = None,
) -> Callable[[Gradients], None]:
    """Return a hook for any number of nodes, which is given what torch gives a prehook.

    Args:
        recorder: Whose pass it is: its values and ``memory`` are filled, and its ``seconds``.
        known: Of the nodes.
        slowly: Looks at what takes longer, and counts its own time.
        small: Copies what is small, in a pass whose gradients are measured in full; they are looked at together with
            thousands of others. Without it the norm is taken, of those whose statistics are there.
    """
    values, memory = recorder.values, recorder.memory
    norms, bad, reached, hand_on, store = (
        values.norms,
        values.bad,
        values.order.append,
        recorder.hand_on,
        recorder.store,
    )
    addresses, counts, versions = memory.addresses, memory.counts, memory.versions
    index_of, feeder, there = known
    tensor, single, (least, largest) = torch.Tensor, torch.float32, NORM_RELIABLE
    add, most = (None, MOST_ALONE) if small is None else (small.add, MOST_ELEMENTS)

    def look(gradients: Gradients) -> None:
        began = perf_counter()
        if (index := index_of(id(current_node()))) is None:
            return
        reached(index)
        try:
            gradient: Any = gradients[0]
            if (
                type(gradient) is tensor
                and gradient.dtype is single
                and gradient.is_cpu
                and (add or there[index])
                and norms[index] == UNTOUCHED
                and len(gradients) == 1
            ):
                addresses[index] = address = gradient.data_ptr()
                counts[index] = count = gradient.numel()
                versions[index] = version = gradient._version
                if (
                    (source := feeder[index]) >= 0
                    and address == addresses[source] != 0
                    and (count, version) == (counts[source], versions[source])
                ):
                    if add or source in bad:
                        hand_on(source, index)
                    else:
                        norms[index] = norms[source]
                    recorder.seconds += perf_counter() - began
                    return
                if 0 < count <= most and address and (gradient.is_contiguous() or is_transposed(gradient)):
                    numbers = view(bytes_at(address), float32, count)
                    if add is None:
                        if least < (norm := sqrt(squared(numbers, count))) < largest:
                            norms[index] = norm
                            recorder.seconds += perf_counter() - began
                            return
                    elif not gradient.requires_grad and not gradient.is_neg():
                        looked = perf_counter()
                        store(index, add(index, numbers))
                        recorder.survey_seconds += (now := perf_counter()) - looked
                        recorder.seconds += now - began
                        return
        except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
            pass
        slowly(index, None, None, gradients)

    return look
