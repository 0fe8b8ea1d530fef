"""A tensor as a collector goes about it: of which kinds it is, what may be read of it, and where its numbers are.

This is decided once, before anything is read. What is not known to be safe is not touched: memory that a shape reaches
beyond, numbers that only another class's code could give, an operation that would talk to other processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from tensormagic.collectors import kinds
from tensormagic.collectors.kinds.dtypes import decoded
from tensormagic.collectors.kinds.subclasses import dispatches, fits, plain_view


@dataclass(frozen=True, slots=True)
class Subject:
    """A tensor to report on. Holds tensors: never leaves the collectors.

    Attributes:
        tensor: The tensor itself: what is asked for its attributes.
        plain: What is asked for strides, storage and elements: without code of the tensor's class in between.
        holder: The kind that holds its numbers.
        found: Every kind that it is of, the holder first, except for plain memory.
        numbers: Where its numbers are; None where there are none to read.
        no_values: Why there are none; empty where there are, or where nothing is known of it.
    """

    tensor: torch.Tensor
    plain: torch.Tensor
    holder: kinds.Kind
    found: tuple[kinds.Found, ...]
    numbers: kinds.Values | None
    no_values: str

    @property
    def strided(self) -> bool:
        """Whether strides and storage are its own."""
        return self.holder.strided

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, as the tensor or its kind gives them. May raise for an odd tensor."""
        described = [one.description.shape for one in self.found if one.description is not None]
        known = next((shape for shape in described if shape is not None), None)
        return tuple(int(size) for size in self.tensor.shape) if known is None else known

    @property
    def numel(self) -> int:
        """How many elements. May raise for an odd tensor; a symbolic number is not asked for, which would fix it."""
        number = self.tensor.numel()
        return number if type(number) is int else prod(self.shape)

    @property
    def printed(self) -> torch.Tensor | None:
        """What torch prints to show its values; None where there are none."""
        if self.numbers is None:
            return None
        if self.strided and not self.numbers.of_what:
            return self.plain if not self.no_values and self.holder.printable and self.found_described else None
        own = self.holder.printable and not self.strided
        return self.tensor if own or self.tensor.is_quantized else self.numbers.tensor

    @property
    def found_described(self) -> bool:
        """Whether every kind could be described: else it is not known what reading would do."""
        return all(one.description is not None for one in self.found)


def study(x: torch.Tensor) -> Subject:
    """Return of which kinds a tensor is, and what may be read of it."""
    holder = kinds.holder_of(x)
    plain = plain_view(x) if holder.key == "subclass" and dispatches(x) else x
    found = [kinds.found(holder, x)] if holder is not kinds.STRIDED else []
    found += [kinds.found(kind, plain) for kind in (kinds.traits_of(plain) if holder.strided else ())]
    found += [kinds.found(kind, x) for kind in kinds.roles_of(x)]
    no_values = next((one.description.no_values for one in found if one.description and one.description.no_values), "")
    numbers = None if no_values else _numbers(plain, holder, found)
    return Subject(x, plain, holder, tuple(found), numbers, no_values)


def _numbers(plain: torch.Tensor, holder: kinds.Kind, found: list[kinds.Found]) -> kinds.Values | None:
    values = next((one.description.values for one in found if one.description and one.description.values), None)
    if values is None and holder.strided and is_readable(plain):
        values = decoded(plain) or kinds.Values(plain, "")
    return values if values is not None and is_readable(values.tensor) else None


def sizes_of(x: torch.Tensor) -> tuple[int, ...]:
    """Return a tensor's sizes as plain numbers: -1 for one that is none, as the ragged one of a jagged tensor."""
    try:
        return tuple(size if type(size) is int else -1 for size in x.shape)
    except RuntimeError:  # a nested tensor that is strided has none to ask for
        return (-1,) * x.dim()


def is_readable(x: torch.Tensor) -> bool:
    """Return whether the elements of a tensor are plain memory: nobody's code runs, no storage is left."""
    try:
        own = kinds.holder_of(x)
        return own.strided and not own.key.startswith(("fake", "meta", "quantized")) and not dispatches(x) and fits(x)
    except (RuntimeError, NotImplementedError, TypeError):
        return False
