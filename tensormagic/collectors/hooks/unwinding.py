"""Lets a deep graph go without overflowing the C stack, although it was walked.

Torch frees a chain of autograd nodes one after the other, whatever its length. But a node that Python has once looked
at keeps its Python wrapper as long as it lives, and such nodes are freed one *inside* the other: on torch 2.13 some
200 bytes of stack a node, so that a chain of 40,000 steps, walked by anybody, ends the process when its loss is let
go. Looking must not do that.

So every so many levels a node gets a `_Landing`: an object in its metadata that holds the nodes below it, which the
node holds anyway. When the node is freed, the landing hands them to a list that is emptied once the C code above has
returned: the fall is as deep as the distance between two landings, and the next one begins from there. Nothing lives
longer by it than to the main thread's next call of a function or next turn of a loop.
"""

from __future__ import annotations

import ctypes
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

STRIDE = 1_000  # levels between two landings
_KEY = "tensormagic"  # in the node's metadata

Landings = tuple[tuple[int, tuple[int, ...]], ...]  # place of a node, places of the nodes below that it hands on


class _Trash:
    """Nodes that their last owner let go; dropped by the main thread at its next call or turn of a loop."""

    def __init__(self) -> None:
        self.nodes: deque[Any] = deque()
        self.asked = False
        callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._empty)
        self._ask = partial(ctypes.pythonapi.Py_AddPendingCall, callback, None)

    def _empty(self, _: Any) -> int:
        """Drop all nodes. Nothing is asked for meanwhile: CPython 3.11 under a profiler would wait for it for ever."""
        while self.nodes:
            self.nodes.popleft()  # may add more
        self.asked = False
        if self.nodes:  # another thread has just added some
            self.ask_once()
        return 0

    def ask_once(self) -> None:
        """Ask the main thread to come. It may come after any call made here in Python: so the last step is none."""
        if not self.asked:
            self.asked = True
            for _ in iter(self._ask, 0):
                pass


class _Landing:
    """Stands in the metadata of a node and catches the nodes below it."""

    __slots__ = ("_nodes", "_trash")

    def __init__(self, nodes: tuple[Any, ...], trash: _Trash) -> None:
        self._nodes, self._trash = nodes, trash

    def __del__(self) -> None:
        self._trash.nodes.extend(self._nodes)
        self._trash.ask_once()


_trash = _Trash()


class Unwinding:
    """Puts landings into walked graphs; those of equal structure are worked out once in a row."""

    def __init__(self) -> None:
        self._known: tuple[array[int], Landings] = (array("i"), ())

    def secure(self, nodes: Sequence[Any], signature: array[int]) -> None:
        """Put landings into a graph; ``nodes`` and ``signature`` as in `skeleton.Walk`."""
        if len(nodes) <= STRIDE:
            return
        if signature != self._known[0]:
            self._known = (signature, landings(signature, len(nodes)))
        for place, below in self._known[1]:
            metadata = nodes[place].metadata
            if _KEY not in metadata:
                metadata[_KEY] = _Landing(tuple(nodes[other] for other in below), _trash)


def landings(signature: array[int], count: int) -> Landings:
    """Return where landings belong: at edges that lead over a whole stride's border, to something that is deep."""
    ends = list(_ends(signature))
    levels = _levels(ends, count)
    found = []
    for place, targets in enumerate(ends):
        band = levels[place] // STRIDE
        if band > 1 and (below := tuple({t for t in targets if STRIDE <= levels[t] < band * STRIDE})):
            found.append((place, below))
    return tuple(found)


def _ends(signature: array[int]) -> Iterator[list[int]]:
    """Yield for every node the places that its edges lead to."""
    at, size = 1, len(signature)
    while at < size:
        stop = at + 3 + 2 * signature[at + 2]
        yield [end for end in signature[at + 3 : stop : 2] if end >= 0]
        at = stop


def _levels(ends: Sequence[Sequence[int]], count: int) -> list[int]:
    """Return for every node the length of the longest way down from it."""
    feeding = [0] * count
    for targets in ends:
        for target in targets:
            feeding[target] += 1
    order = [place for place in range(count) if not feeding[place]]
    for place in order:  # grows while it is walked
        for target in ends[place]:
            feeding[target] -= 1
            if not feeding[target]:
                order.append(target)
    levels = [0] * count
    for place in reversed(order):
        levels[place] = 1 + max([levels[target] for target in ends[place]], default=-1)
    return levels
