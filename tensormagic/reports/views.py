"""What ``Tensor.view`` can do with a tensor: which of its dimensions merge, and what keeps the others apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Barrier:
    """Two neighbouring dimensions that no view can merge, with the numbers that say why.

    They would merge if one step along the outer one were as long as the whole inner one: ``stride == needed``.

    Attributes:
        outer: The dimension left of the barrier.
        inner: The nearest dimension to the right of it; dimensions of size 1 between the two do not matter.
        stride: The stride of ``outer``.
        needed: The stride at which they would merge: ``inner_size * inner_stride``.
        inner_size: The size of ``inner``.
        inner_stride: The stride of ``inner``.
    """

    outer: int
    inner: int
    stride: int
    needed: int
    inner_size: int
    inner_stride: int


@dataclass(frozen=True, slots=True)
class ViewReport:
    """Which shapes ``.view()`` gives without a copy: those that keep every group of dimensions to itself.

    Attributes:
        groups: Dimensions that merge, from the outermost group inwards; dimensions of size 1 are in none of them.
        sizes: How many elements each group spans.
        strides: The stride each group has once it is merged.
        barriers: What stands between one group and the next; one less than there are groups.
        copy_bytes: What ``.reshape()`` copies where ``.view()`` cannot.
    """

    groups: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    barriers: tuple[Barrier, ...]
    copy_bytes: int

    @property
    def flat(self) -> bool:
        """Whether ``.view(-1)`` works, and with it a view to any shape of as many elements."""
        return not self.barriers


@dataclass(frozen=True, slots=True)
class ViewFailure:
    """Why one view cannot be: a dimension of the wanted shape reaches over a barrier.

    Attributes:
        dim: The dimension of the wanted shape that would reach over it; None where the number of elements differs.
        barrier: What it would reach over; None where the number of elements differs.
        elements: How many elements the tensor has.
        wanted: How many the wanted shape has.
    """

    dim: int | None
    barrier: Barrier | None
    elements: int
    wanted: int
