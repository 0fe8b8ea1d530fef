"""Every kind of tensor, as two tables: what holds the numbers (the first that fits), and what a tensor is besides.

A new kind is a `Kind` in the file of those like it, and one line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensormagic.collectors.kinds import dtypes, sparse, subclasses, wrappers
from tensormagic.collectors.kinds.kind import Description, Kind, Values

# What holds the numbers: the first that fits. Wrappers come before what they may wrap.
HOLDERS: tuple[Kind, ...] = (
    *wrappers.FUNCTORCH,
    *wrappers.FUNCTIONAL,
    *subclasses.ABSENT,
    *subclasses.DISTRIBUTED,
    *wrappers.MASKED,
    *wrappers.NESTED,
    *sparse.COORDINATES,
    *sparse.COMPRESSED,
    *wrappers.OPAQUE,
    *wrappers.QUANTIZED,
    *subclasses.SUBCLASSES,
)
# What a tensor is besides: all that fit. The first table asks for attributes only, of any tensor; the second one
# asks for strides, storage and operations, of tensors that have memory of their own.
ROLES: tuple[Kind, ...] = (*dtypes.TRAITS, *dtypes.DTYPES)
TRAITS: tuple[Kind, ...] = (*subclasses.STORAGES, *dtypes.STRIDED_KINDS)
STRIDED = Kind("strided", lambda _: True, lambda _: Description("", ""), strided=True)


@dataclass(frozen=True, slots=True)
class Found:
    """One kind that a tensor is of: what it says of itself, or why that could not be read."""

    kind: Kind
    description: Description | None
    error: Exception | None = None


def holder_of(x: Any) -> Kind:
    """Return the kind that holds a tensor's numbers; plain strided memory where it is none of the others."""
    return next((kind for kind in HOLDERS if is_of(kind, x)), STRIDED)


def roles_of(x: Any) -> list[Kind]:
    """Return what a tensor is besides, as far as its attributes tell."""
    return [kind for kind in ROLES if is_of(kind, x)]


def traits_of(x: Any) -> list[Kind]:
    """Return what a tensor with memory of its own is besides."""
    return [kind for kind in TRAITS if is_of(kind, x)]


def is_of(kind: Kind, x: Any) -> bool:
    """Return whether a tensor is of a kind; no where asking raises."""
    try:
        return bool(kind.holds(x))
    except Exception:  # whatever torch raises for an odd tensor: it is not known to be of this kind
        return False


def found(kind: Kind, x: Any) -> Found:
    """Return what a kind says of a tensor."""
    try:
        return Found(kind, kind.describe(x))
    except Exception as error:  # showing never raises: it becomes a gap
        return Found(kind, None, error)


__all__ = [
    "HOLDERS",
    "ROLES",
    "STRIDED",
    "TRAITS",
    "Description",
    "Found",
    "Kind",
    "Values",
    "found",
    "holder_of",
    "roles_of",
    "traits_of",
]
