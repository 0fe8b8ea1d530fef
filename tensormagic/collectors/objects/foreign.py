"""Asks what a value of the person's is, and what it holds, without asking the value.

``isinstance`` reads ``__class__``, which a proxy answers by code of its own, and a dead one (``weakref.proxy`` of
what is gone, a service that cannot be reached) by raising. In a namespace anything may lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import UnionType
from typing import Any


def is_a(value: Any, kinds: type | UnionType) -> bool:
    """Return whether a value is really of a class, whatever it says of itself."""
    return issubclass(type(value), kinds)


def attributes_of(value: Any) -> dict[str, Any]:
    """Return what a value's ``__dict__`` holds; nothing where it has none that can be had."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # slots alone, or code of the person's stands there
        return {}
    return found if type(found) is dict else {}


def items_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return keys and values of a list, tuple or dictionary as Python has them stored; nothing of anything else."""
    if is_a(value, dict):
        return list(dict.items(value))
    if is_a(value, list):
        return list(enumerate(list.__iter__(value)))
    return list(enumerate(tuple.__iter__(value))) if is_a(value, tuple) else ()
