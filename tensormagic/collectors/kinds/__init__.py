"""Every kind of tensor, as two tables: what holds the numbers (the first that fits), and what a tensor is besides.

Of which kinds a tensor is decides what may be read of it. It is decided once, before anything is read: memory that a
shape reaches beyond, numbers that only another class's code could give, and operations that would talk to other
processes are not touched.

A new kind is a `Kind` in the file of those like it, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch

from tensormagic.collectors.geometry.parts import dispatches
from tensormagic.collectors.kinds import dtypes, sparse, subclasses, wrappers
from tensormagic.collectors.kinds.dtypes import decoded
from tensormagic.collectors.kinds.kind import Description, Kind, Values, always
from tensormagic.collectors.kinds.subclasses import fits, plain_view
from tensormagic.collectors.quiet import told

# What holds the numbers: the first that fits. Wrappers come before what they may wrap.
HOLDERS: tuple[Kind, ...] = (
    *wrappers.TRANSFORMS, *subclasses.HOLDERS, *wrappers.HOLDERS, *sparse.HOLDERS, *subclasses.SUBCLASSES,
)  # fmt: skip
# What a tensor is besides: all that fit. The first asks for attributes only, of any tensor; the second one for strides,
# storage and operations, of tensors that have memory of their own.
ROLES: tuple[Kind, ...] = (*dtypes.TRAITS, *dtypes.DTYPES)
TRAITS: tuple[Kind, ...] = (*subclasses.STORAGES, *dtypes.STRIDED_KINDS)
STRIDED = Kind("strided", lambda _: True, always("", ""), strided=True)


def holder_of(x: Any) -> Kind:
    """Return the kind that holds a tensor's numbers; plain strided memory where it is none of the others."""
    return next((kind for kind in HOLDERS if _is_of(kind, x)), STRIDED)


def _is_of(kind: Kind, x: Any) -> bool:
    return told(lambda: bool(kind.holds(x)), otherwise=False)  # an odd tensor is not known to be of this kind


def _described(kind: Kind, x: Any) -> tuple[Kind, Description]:
    try:
        return kind, kind.describe(x)
    except Exception as error:  # showing never raises: it becomes a gap
        return kind, Description("", "", error=error)


@dataclass(frozen=True, slots=True)
class Subject:
    """A tensor to report on, taken apart. Holds tensors: never leaves the collectors."""

    tensor: torch.Tensor  # The tensor itself: what is asked for its attributes.
    # What is asked for strides, storage and elements: without code of the tensor's class in between.
    plain: torch.Tensor
    holder: Kind  # The kind that holds its numbers.
    # Every kind that it is of, with what that says of it; the holder first, except for plain memory.
    found: tuple[tuple[Kind, Description], ...]
    numbers: Values | None  # Where its numbers are; None where there are none to read.
    no_values: str  # Why there are none; empty where there are, or where nothing is known of it.

    @property
    def looked_at(self) -> tuple[torch.Tensor, ...]:
        """Tensors that are alive only because this one is looked at: what it is seen through, and its components."""
        parts = [part.tensor for _, said in self.found for part in said.parts]
        numbers = [] if self.numbers is None else [self.numbers.tensor]
        return tuple(each for each in (self.plain, *numbers, *parts) if each is not self.tensor)

    @property
    def strided(self) -> bool:
        """Whether strides and storage are its own."""
        return self.holder.strided

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, as the tensor or its kind gives them. May raise for an odd tensor."""
        known = next((said.shape for _, said in self.found if said.shape is not None), None)
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
            # Where one kind could not be described it is not known what reading would do.
            described = all(said.error is None for _, said in self.found)
            return self.plain if not self.no_values and self.holder.printable and described else None
        own = self.holder.printable and not self.strided
        return self.tensor if own or self.tensor.is_quantized else self.numbers.tensor


def study(x: torch.Tensor) -> Subject:
    """Return of which kinds a tensor is, and what may be read of it."""
    holder = holder_of(x)
    plain = plain_view(x) if holder.key == "subclass" and dispatches(x) else x
    found = [_described(holder, x)] if holder is not STRIDED else []
    found += [_described(kind, plain) for kind in TRAITS if holder.strided and _is_of(kind, plain)]
    found += [_described(kind, x) for kind in ROLES if _is_of(kind, x)]
    no_values = next((said.no_values for _, said in found if said.no_values), "")
    values = None
    if not no_values:
        values = next((said.values for _, said in found if said.values), None)
        if values is None and holder.strided and is_readable(plain):
            values = decoded(plain) or Values(plain, "")
        values = values if values is not None and is_readable(values.tensor) else None
    return Subject(x, plain, holder, tuple(found), values, no_values)


def sizes_of(x: torch.Tensor) -> tuple[int, ...]:
    """Return a tensor's sizes as plain numbers: -1 for one that is none, as the ragged one of a jagged tensor."""
    try:
        return tuple(size if type(size) is int else -1 for size in x.shape)
    except RuntimeError:  # a nested tensor that is strided tells those alone that all its items have
        ask: Callable[[int], int] = x.size
        return tuple(told(partial(ask, dim), -1) for dim in range(x.dim()))


def is_readable(x: torch.Tensor) -> bool:
    """Return whether the elements of a tensor are plain memory: nobody's code runs, no storage is left."""
    own = holder_of(x)
    plain = own.strided and not own.key.startswith(("fake", "meta", "quantized")) and not dispatches(x)
    return plain and told(lambda: fits(x), otherwise=False)
