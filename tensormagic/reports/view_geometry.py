"""Which ``.view(shape)`` works, by the rule torch itself goes by: integer arithmetic, for tensors of any device.

A view may split and merge dimensions only inside runs of dimensions that lie in memory as one dimension would. The
rule is that of ``computeStride`` in torch's ``ATen/TensorUtils.cpp``. It stands beside
the reports because a collector and a diagnosis both go by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from tensormagic.reports.views import Barrier, ViewFailure, ViewReport


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the stride torch gives a fresh tensor of this shape (sizes of 0 count as 1)."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def views(shape: Sequence[int], stride: Sequence[int], *, element_size: int = 1) -> ViewReport:
    """Return which dimensions merge, and what keeps the others apart.

    Args:
        shape: Sizes.
        stride: In elements.
        element_size: Bytes an element, for what a copy takes.
    """
    groups, barriers = _groups(shape, stride)
    return ViewReport(
        groups=tuple(map(tuple, groups)),
        sizes=tuple(prod(shape[dim] for dim in group) for group in groups),
        strides=tuple(stride[group[-1]] for group in groups),
        barriers=tuple(barriers),
        copy_bytes=prod(shape) * element_size,
    )


def _groups(shape: Sequence[int], stride: Sequence[int]) -> tuple[list[list[int]], list[Barrier]]:
    """Return the groups of dimensions and the barriers between them; without elements every view works: one group."""
    if 0 in shape:
        return [list(range(len(shape)))], []
    groups: list[list[int]] = []
    barriers: list[Barrier] = []
    for dim in reversed([dim for dim, size in enumerate(shape) if size != 1]):
        barrier = _between(shape, stride, dim, groups[0][0]) if groups else None
        if barrier is None and groups:
            groups[0].insert(0, dim)
            continue
        groups.insert(0, [dim])
        barriers[:0] = [barrier] if barrier else []
    return groups, barriers


def _between(shape: Sequence[int], stride: Sequence[int], outer: int, inner: int) -> Barrier | None:
    needed = shape[inner] * stride[inner]
    if stride[outer] == needed:
        return None
    return Barrier(outer, inner, stride[outer], needed, shape[inner], stride[inner])


def view_stride(shape: Sequence[int], stride: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Return the stride that ``.view(wanted)`` would have, or None where torch refuses it.

    Dimensions of size 1 in ``wanted`` get some stride; which one is of no consequence.

    Args:
        shape: Sizes of the tensor.
        stride: Its stride, in elements.
        wanted: The wanted sizes, none of them -1 (see `resolved`).
    """
    if prod(shape) != prod(wanted):
        return None
    if 0 in shape:
        return tuple(stride) if tuple(shape) == tuple(wanted) else contiguous_stride(wanted)
    groups, _ = _groups(shape, stride)
    found: list[int] = []
    left = list(wanted)
    for group in reversed(groups):
        step, span = stride[group[-1]], prod(shape[dim] for dim in group)
        while left and (span > 1 or left[-1] == 1):
            size = left.pop()
            if span % size:
                return None
            found.append(step)
            step, span = step * size, span // size
        if span > 1:
            return None
    return (*([1] * len(left)), *reversed(found))


def resolved(shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """Return ``wanted`` with a single -1 replaced by the size that makes the number of elements right."""
    rest = prod(size for size in wanted if size != -1)
    return tuple(prod(shape) // rest if size == -1 and rest else size for size in wanted)


def why_not(shape: Sequence[int], stride: Sequence[int], wanted: Sequence[int]) -> ViewFailure | None:
    """Return why ``.view(wanted)`` fails: the innermost barrier that a wanted dimension reaches over; None if it works.

    Args:
        shape: Sizes of the tensor.
        stride: Its stride, in elements.
        wanted: The wanted sizes; one of them may be -1.
    """
    wanted = resolved(shape, wanted)
    counts = prod(shape), prod(wanted)
    if view_stride(shape, stride, wanted) is not None:
        return None
    if counts[0] != counts[1]:
        return ViewFailure(None, None, *counts)
    ends = list(accumulate(reversed(wanted), lambda all_, size: all_ * size))  # elements from each dimension inwards
    groups, barriers = _groups(shape, stride)
    inside = 1
    for group, barrier in zip(reversed(groups), reversed(barriers), strict=False):
        inside *= prod(shape[dim] for dim in group)
        if inside not in ends:
            dim = next(at for at, end in enumerate(ends) if end > inside)
            return ViewFailure(len(wanted) - 1 - dim, barrier, *counts)
    return None
