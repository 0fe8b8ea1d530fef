"""What several forms of one report need is made once: its plain copy, the folding of its graphs.

A notebook is given a report as HTML, as text and as LaTeX, and HTML draws a graph more than once. Of a graph of 100,000
nodes each of these is half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

_kept: ContextVar[dict[tuple[Any, int], tuple[Any, Any]] | None] = ContextVar("kept", default=None)


@contextmanager
def made_once() -> Iterator[None]:
    """Keep meanwhile, in this thread, what functions marked by `once` return; may be nested."""
    token = _kept.set({}) if _kept.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _kept.reset(token)


def once(make: Callable[[Given], Made]) -> Callable[[Given], Made]:
    """Mark a function that returns the same for the same object, which nobody changes: see `made_once`."""

    @wraps(make)
    def made(given: Given) -> Made:
        kept = _kept.get()
        if kept is None:
            return make(given)
        key = (make, id(given))
        if key not in kept:
            kept[key] = given, make(given)  # held: its id must not be used twice
        return kept[key][1]  # type: ignore[no-any-return]

    return made
