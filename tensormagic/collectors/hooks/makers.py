"""Says whether an autograd node was made on the thread that is traced.

Sequence numbers are counted by each thread for itself: two nodes of two threads can bear the same number, and only
one of them was made on the line that the tracer noted for it. Torch keeps with every node the number of the thread
that made it, and does not show it to Python. It is read from memory, at a place that is found by experiment: in
leaves' nodes made on two threads, the one word that is equal within a thread and not between them. Where the
experiment is not clear, nothing is read, and no node counts as another thread's.
"""

from __future__ import annotations

import functools
import sys
from ctypes import c_uint64, c_void_p
from threading import Thread
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from tensormagic.collectors.quiet import quiet

_HEAD = object.__basicsize__  # after it comes the pointer to the node, alone or beside that to its count
_WITH_ONE_POINTER = (_HEAD + 8, _HEAD + 16)
_WORDS = 12  # of a node that are looked through; every node is larger
_NO_NUMBER = (1 << 64) - 1  # the sequence number of a leaf's node
_LARGEST_THREAD_NUMBER = 1 << 32


def _leaf_node() -> Any:
    """Return the node of a leaf made here; it takes one sequence number of this thread."""
    with quiet(), torch._C._DisableFuncTorch(), torch.inference_mode(mode=False), torch.enable_grad():
        leaf = torch.empty(0, requires_grad=True)
        return leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


def _words(node: Any) -> list[int]:
    address = c_void_p.from_address(id(node) + _HEAD).value or 0
    return [c_uint64.from_address(address + 8 * at).value for at in range(_WORDS)]


def _on_a_thread() -> list[list[int]]:
    """Return the words of two leaves' nodes that were made on a thread of their own."""
    found: list[list[int]] = []

    def make() -> None:
        nodes = [_leaf_node(), _leaf_node()]
        found.extend(map(_words, nodes))

    thread = Thread(target=make, name="tensormagic-makers", daemon=True)
    thread.start()
    thread.join()
    return found


@functools.cache
def _place() -> int | None:
    """Return which word of a node is the number of the thread that made it; None where that is not clear."""
    if sys.implementation.name != "cpython" or type(_leaf_node()).__basicsize__ not in _WITH_ONE_POINTER:
        return None
    try:
        one, two = _on_a_thread(), _on_a_thread()
        columns = list(zip(*one, *two, strict=True))
        if (_NO_NUMBER,) * 4 not in columns:
            return None  # no sequence number where all nodes have one: this is not what a node looks like
        places = [at for at, column in enumerate(columns) if _tells_threads_apart(*column)]
    except (ValueError, RuntimeError, TypeError):
        return None
    return places[0] if len(places) == 1 else None


def _tells_threads_apart(a: int, b: int, c: int, d: int) -> bool:
    return a == b != c == d and min(a, c) > 0 and max(a, c) < _LARGEST_THREAD_NUMBER


class Makers:
    """Knows the nodes of the thread on which it is made. Custom Functions' nodes are laid out otherwise."""

    def __init__(self) -> None:
        node = _leaf_node()
        self._offset = 8 * (_place() or 0)
        self._size = type(node).__basicsize__ if self._offset else -1
        self._home = self._number(node) if self._offset else 0

    def _number(self, node: Any) -> int:
        address: int = c_uint64.from_address(id(node) + _HEAD).value
        return c_uint64.from_address(address + self._offset).value

    def is_foreign(self, node: Any) -> bool:
        """Return whether ``node`` was made on another thread (0.5 µs); False also where that cannot be known."""
        if type(node).__basicsize__ == self._size:
            return self._number(node) != self._home
        targets = (target for target, _ in node.next_functions if target is not None)
        return isinstance(node, BackwardCFunction) and any(
            self._number(target) != self._home
            for target in targets
            if type(target).__basicsize__ == self._size and not hasattr(target, "variable")
        )
