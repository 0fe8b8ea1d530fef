"""Looks into backwards that are Python code of the person's: their own Functions', and re-entrant checkpoints'.

While the engine runs, the tracer's mode is off the stack. Where a node's backward runs forward code of its own, as a
checkpoint does that computes its segment again, nodes are made there, and a backward may run through them. So for
these nodes the mode is on the stack: from a hook that runs last before their backward until one that runs first after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import Any

from tensormagic.collectors.hooks.dynamo import without_dynamo


class Insides:
    """Puts the mode onto the stack while the backwards of some nodes run.

    Args:
        nodes: The nodes.
        put_on_top: Puts the mode on the stack, and returns what undoes it.
        home: The thread that it is for: on others its notes would be wrong.
    """

    def __init__(self, nodes: Sequence[Any], put_on_top: Callable[[], Callable[[], None]], home: int) -> None:
        self._put_on_top = put_on_top
        self._home = home
        self._handles: list[Any] = []
        self._undo: list[Callable[[], None]] = []
        for node in nodes:
            self._handles.append(node.register_hook(partial(without_dynamo, self._leave)))

    def open(self, nodes: Sequence[Any]) -> None:
        """Begin; called after every other hook was put on, so that the mode is there for the backward alone."""
        for node in nodes:
            self._handles.append(node.register_prehook(partial(without_dynamo, self._enter)))

    def close(self) -> None:
        """Take the hooks off; where a backward raised, the mode too."""
        while self._handles:
            self._handles.pop().remove()
        while self._undo:
            self._undo.pop()()

    def _enter(self, _: Any) -> None:
        if get_ident() == self._home:
            self._undo.append(self._put_on_top())

    def _leave(self, _: Any, __: Any) -> None:
        if self._undo and get_ident() == self._home:
            self._undo.pop()()
