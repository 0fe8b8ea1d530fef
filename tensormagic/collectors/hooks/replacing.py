"""Replaces functions of torch's for the duration of a trace, and puts them back whatever the order.

Traces on two threads may begin and end in any order, and the person may replace the same function meanwhile. Each
replacement knows what lay below it: what ends in the midst of others is taken out of their midst.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any


class Replacement:
    """One function that stands in for another, until `undo` is called; that is to be done once.

    Where somebody else replaced ours meanwhile, theirs stays: it goes on to ours, which goes on to what lay below.
    """

    __slots__ = ("_below", "_name", "_ours", "_owner")

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        with _lock:
            self._owner, self._name = owner, name
            self._below = _standing(owner, name)
            self._ours = make(self._below)
            _layers.append(self)
            setattr(owner, name, self._ours)

    def undo(self) -> None:
        """Put back what lay below, or leave it to who came later."""
        with _lock:
            _layers.remove(self)
            self.pause()
            for other in _layers:
                if other._below is self._ours:
                    other._below = self._below

    def pause(self) -> None:
        """Put back what lay below for a while, where nobody came later (0.2 µs)."""
        if _standing(self._owner, self._name) is self._ours:
            setattr(self._owner, self._name, self._below)

    def resume(self) -> None:
        """Stand in again, where nobody came meanwhile."""
        if _standing(self._owner, self._name) is self._below:
            setattr(self._owner, self._name, self._ours)


def _standing(owner: Any, name: str) -> Any:
    """Return what is to be put back: on a class of C++ another object than an attribute of it gives."""
    return vars(owner).get(name) or getattr(owner, name)


_layers: list[Replacement] = []
_lock = Lock()


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
    """Put ``make(what is there)`` in its place, and return what undoes it; see `Replacement`."""
    return Replacement(owner, name, make).undo
