"""What one kind of tensor has to say about itself, before it becomes a report: the pieces that every kind's file uses.

These hold tensors (the components), so that they never leave the collectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tensormagic.reports import Fact, Placed, StoredList, StoredMap
from tensormagic.words import number_of_bytes

# What torch puts into a class that switches an override off, as ``__torch_dispatch__`` classes do by themselves.
_SWITCHED_OFF = (torch._C._disabled_torch_function_impl, torch._C._disabled_torch_dispatch_impl)
MOST_COPIED = 2**24  # elements of a kind whose numbers can only be had as a copy
MOST_NAMED = 6  # of the many things that a fact may list


@dataclass(frozen=True, slots=True)
class Part:
    """A component: how it is reached from the tensor (``".values()"``), what it is for, and the tensor."""

    path: str
    role: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class Values:
    """Where the numbers of a kind lie that has none of its own: a strided tensor, and what to call its elements."""

    tensor: torch.Tensor
    of_what: str


@dataclass(frozen=True, slots=True)
class Description:
    """What a kind says about one tensor; the fields are those of `reports.KindReport`.

    Attributes:
        label: What to call it.
        summary: What it means, in one sentence.
        facts: What is known.
        parts: The tensors it is made of.
        values: Where its numbers are; None where it is strided itself, or has none.
        shape: Sizes, where the tensor itself cannot be asked for them.
        map: Which cells are stored.
        stored: The stored elements.
        reading: How one element is found.
        no_values: Why there are no numbers to show; empty where there are.
        stored_bytes: What it really takes, where that is not its elements times their size.
        placed: How it is spread over ranks.
    """

    label: str
    summary: str
    facts: tuple[Fact, ...] = ()
    parts: tuple[Part, ...] = ()
    values: Values | None = None
    shape: tuple[int, ...] | None = None
    map: StoredMap | None = None
    stored: StoredList | None = None
    reading: tuple[str, ...] = ()
    no_values: str = ""
    stored_bytes: int | None = None
    placed: Placed | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """An entry of the table.

    Attributes:
        key: Its name.
        holds: Whether a tensor is of this kind. May raise, which counts as no.
        describe: What it says about such a tensor. May raise: that becomes a gap, and the tensor keeps its kind.
        strided: Whether strides, storage and elements of such a tensor can be read as those of a plain one.
        printable: Whether torch prints such a tensor's values without running code that is not torch's.
    """

    key: str
    holds: Callable[[Any], bool]
    describe: Callable[[Any], Description]
    strided: bool = False
    printable: bool = True


def copied(x: torch.Tensor, copy: Callable[[torch.Tensor], torch.Tensor], of_what: str) -> Values | None:
    """Return numbers that can only be had as a copy; nothing where that would be a large one."""
    return Values(copy(x), of_what) if x.numel() <= MOST_COPIED else None


def without_numbers(x: torch.Tensor) -> bool:
    """Return whether a component has no numbers to look at: on the meta device, or fake."""
    return bool(x.is_meta) or type(x) is not torch.Tensor


def has_class(x: object, module: str, name: str) -> bool:
    """Return whether an object's class is one of that name, or derived from it, without importing where it comes from.

    A tensor of that class can only exist where its module has been imported.
    """
    return any(cls.__name__ == name and cls.__module__.startswith(module) for cls in type(x).__mro__)


def overrides(x: object, method: str) -> bool:
    """Return whether an object's class, below torch's own tensor classes, brings a method of that name itself."""
    for cls in type(x).__mro__:
        if cls in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
            return False
        if method in cls.__dict__:
            return cls.__dict__[method] not in _SWITCHED_OFF
    return False


def bytes_of(x: torch.Tensor) -> int:
    """Return the bytes that a tensor's elements take."""
    return x.numel() * x.element_size()


def element_text(value: Any) -> str:
    """Return a number as short text, a list of them in brackets (``[1, 2]``), a longer one cut."""
    if isinstance(value, list):
        inner = ", ".join(element_text(item) for item in value[:MOST_NAMED])
        return f"[{inner}, …]" if len(value) > MOST_NAMED else f"[{inner}]"
    if isinstance(value, complex):
        return f"{value.real:.3g}{value.imag:+.3g}j"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def dense_fact(kept: int, dense: int) -> Fact:
    """Return what a dense tensor would take, against what is kept."""
    note = ""
    if kept and dense:
        more, less = f"{dense / kept:.3g} times as much", f"less: this takes {kept / dense:.3g} times as much"
        note = more if dense >= kept else less
    return Fact("dense would take", number_of_bytes(dense), note)
