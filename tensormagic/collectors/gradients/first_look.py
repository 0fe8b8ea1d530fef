"""The hook of nearly every node in a pass whose gradients are measured in full: copies one small gradient.

As `quick_look` is for all other passes: one function with everything it needs at hand, the same for all nodes. What it
copies is looked at together with thousands of others, by `SmallGradients`; whatever is unusual it leaves to the hook
that looks at everything, which would find the same of what is not.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from tensormagic.collectors.gradients.quick_look import Gradients, Known, current_node
from tensormagic.collectors.gradients.raw import bytes_at, float32, is_transposed, view
from tensormagic.collectors.gradients.small_gradients import MOST_ELEMENTS, SmallGradients
from tensormagic.reports import UNTOUCHED

if TYPE_CHECKING:
    from tensormagic.collectors.gradients.gradients import PassRecorder


def first_look(
    recorder: PassRecorder, known: Known, small: SmallGradients, slowly: Callable[[int, None, None, Gradients], None]
) -> Callable[[Gradients], None]:
    """Return a hook for any number of nodes, which is given what torch gives a prehook.

    Args:
        recorder: Whose pass it is: its values and ``memory`` are filled, and its ``seconds``.
        known: Of the nodes.
        small: Keeps the copies.
        slowly: Looks at what takes longer, and counts its own time.
    """
    memory, norms, reached = recorder.memory, recorder.values.norms, recorder.values.order.append
    addresses, counts, versions = memory.addresses, memory.counts, memory.versions
    index_of, feeder, add, tensor, single = known.index_of, known.feeder, small.add, torch.Tensor, torch.float32

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
                    recorder.hand_on(source, index)
                    recorder.seconds += perf_counter() - began
                    return
                if (
                    0 < count <= MOST_ELEMENTS
                    and address
                    and (gradient.is_contiguous() or is_transposed(gradient))
                    and not gradient.requires_grad
                    and not gradient.is_neg()
                ):
                    looked = perf_counter()
                    recorder.store(index, add(index, view(bytes_at(address), float32, count)))
                    recorder.survey_seconds += (now := perf_counter()) - looked
                    recorder.seconds += now - began
                    return
        except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
            pass
        slowly(index, None, None, gradients)

    return look
