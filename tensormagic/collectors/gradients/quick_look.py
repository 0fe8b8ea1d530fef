"""The hook of nearly every node in nearly every pass: takes the norm of one small gradient, in a microsecond.

It is one function with everything it needs at hand, since it runs for every node: what it finds anything unusual in,
it leaves to the hook that looks at everything. It calls no operation of torch's, so no mode has to be kept from seeing
it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from math import sqrt
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from tensormagic.collectors.gradients.measures import NORM_RELIABLE
from tensormagic.collectors.gradients.raw import DOT_AT_ONCE, bytes_at, float32, vdot, view
from tensormagic.reports import UNTOUCHED

if TYPE_CHECKING:
    from tensormagic.collectors.gradients.gradients import PassRecorder

Gradients = Sequence["torch.Tensor | None"]


def is_transposed(gradient: torch.Tensor) -> bool:
    """Return whether a matrix lies in memory column by column, without a gap, as the gradients of weights do."""
    stride = gradient.stride()
    return len(stride) == 2 and stride[0] == 1 and stride[1] == gradient.size(0)


def quick_look(
    recorder: PassRecorder, feeder: array[int], there: bytearray, slowly: Callable[[int, None, None, Gradients], None]
) -> Callable[[int, Gradients], None]:
    """Return a hook that is given the index of its node, and what torch gives a prehook.

    Args:
        recorder: Whose pass it is: its values and ``memory`` are filled, and its ``seconds``.
        feeder: As in `Skeleton`.
        there: For each node, whether the statistics of its first gradient are known.
        slowly: Looks at what takes longer, and counts its own time.
    """
    values, memory = recorder.values, recorder.memory
    norms, bad, reached = values.norms, values.bad, values.order.append
    tensor, single, most, (least, largest) = torch.Tensor, torch.float32, DOT_AT_ONCE, NORM_RELIABLE

    def look(index: int, gradients: Gradients) -> None:
        began = perf_counter()
        reached(index)
        try:
            gradient: Any = gradients[0]
            if (
                type(gradient) is tensor
                and gradient.dtype is single
                and gradient.is_cpu
                and there[index]
                and norms[index] == UNTOUCHED
                and len(gradients) == 1
            ):
                address, count = gradient.data_ptr(), gradient.numel()
                memory[index] = here = (address, count, gradient._version)
                source = feeder[index]
                if source >= 0 and here == memory[source] and address and source not in bad:
                    norms[index] = norms[source]
                    recorder.seconds += perf_counter() - began
                    return
                if count <= most and address and (gradient.is_contiguous() or is_transposed(gradient)):
                    numbers = view(bytes_at(address), float32, count)
                    if least < (norm := sqrt(vdot(numbers, numbers))) < largest:
                        norms[index] = norm
                        recorder.seconds += perf_counter() - began
                        return
        except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
            pass
        slowly(index, None, None, gradients)

    return look
