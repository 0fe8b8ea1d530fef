"""Reading a tensor of any size in pieces: no dimension of stride 0 twice, no huge tensor whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch

from tensormagic.words import ordinal


@dataclass(frozen=True, slots=True)
class Thinned:
    """The part of a tensor that is read.

    Attributes:
        tensor: A view of the tensor (short-lived: never leaves the collector).
        steps: For each dimension, every how-manieth index the view holds.
        repeats: How many elements of the tensor each element of the view stands for *exactly* (stride 0).
        of: How many elements the whole tensor has.
        sampling: What was left out, in words; empty where nothing was.
    """

    tensor: torch.Tensor
    steps: tuple[int, ...]
    repeats: int
    of: int
    sampling: str

    def index(self, rank: int) -> tuple[int, ...]:
        """Return the index, in the whole tensor, of the view's element at ``rank`` in reading order."""
        at: list[int] = []
        for size, step in zip(reversed(self.tensor.shape), reversed(self.steps), strict=True):
            rank, place = divmod(rank, size)
            at.append(place * step)
        return tuple(reversed(at))


def thinned(x: torch.Tensor, limit: int) -> Thinned:
    """Return what to read of a strided tensor so that at most about ``limit`` elements are read.

    Dimensions of stride 0 are read once. Where the rest is still too long, evenly spaced indices of the longest
    dimensions are taken.
    """
    view = _without_repeats(x)
    repeats = x.numel() // view.numel()
    steps, words = [1] * x.dim(), []
    while view.numel() > limit:
        dim = max(range(view.dim()), key=lambda at: view.shape[at])
        step = min(-(-view.numel() // limit), view.shape[dim])
        view = view[(slice(None),) * dim + (slice(None, None, step),)]
        steps[dim] *= step
        words.append(f"every {ordinal(step)} index of dimension {dim}")
    return Thinned(view, tuple(steps), repeats, x.numel(), " and ".join(words))


def thinned_behind(x: torch.Tensor, limit: int) -> torch.Tensor:
    """Return a view of at most about ``limit`` elements that keeps the first dimension whole."""
    while x.numel() > limit and (longest := max(x.shape[1:], default=1)) > 1:
        dim = x.shape.index(longest, 1)
        step = min(-(-x.numel() // limit), longest)
        x = x[(slice(None),) * dim + (slice(None, None, step),)]
    return x


def _without_repeats(x: torch.Tensor) -> torch.Tensor:
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if stride == 0 and size > 1:
            x = x.narrow(dim, 0, 1)
    return x


def chunks(x: torch.Tensor, most: int) -> Iterator[torch.Tensor]:
    """Cut a tensor into views of at most ``most`` elements, in reading order."""
    if x.numel() <= most:
        yield x
        return
    inner = [prod(x.shape[dim + 1 :]) for dim in range(x.dim())]
    level = next(dim for dim, elements in enumerate(inner) if elements <= most)
    length = most // inner[level]
    for prefix in itertools.product(*(range(size) for size in x.shape[:level])):
        block = x[prefix]
        for start in range(0, x.shape[level], length):
            yield block.narrow(0, start, min(length, x.shape[level] - start))
