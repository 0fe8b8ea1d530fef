"""Reads one field of a snapshot's dictionaries: the type that it should have, or a default; never an exception.

A snapshot may come from any version of torch, from another program, or from someone who means harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LARGEST = 2**63  # no size, address or time is larger


def whole(given: Any, key: str, default: int = 0) -> int:
    """Return a whole number, between minus and plus `LARGEST`."""
    value = given.get(key, default)
    return value if type(value) is int and -LARGEST <= value <= LARGEST else default


def size(given: Any, key: str) -> int:
    """Return a number of bytes; 0 where there is none, or a negative one."""
    return max(whole(given, key), 0)


def word(given: Any, key: str) -> str:
    """Return a text of at most 500 characters; empty where there is none."""
    value = given.get(key)
    return value[:500] if isinstance(value, str) else ""


def entries(given: Any) -> list[Any]:
    """Return what should be a list; empty where it is none."""
    return given if isinstance(given, list) else []


def dictionaries(given: Any) -> Iterator[dict[Any, Any]]:
    """Yield the dictionaries of what should be a list of them."""
    return (one for one in entries(given) if isinstance(one, dict))
