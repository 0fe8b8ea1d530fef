"""Puts hooks on autograd nodes, and takes all of them off again, for a third of what torch takes for it.

For each hook torch makes a handle that can remove it, with a number of its own and a weak reference, in Python; most of
the time of hooking a node goes there. The hooks of one pass are removed together: one handle does for all of them. It
is what ``torch.autograd.function`` finds under the handle's name while hooks are put on, on that thread.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import ModuleType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from tensormagic.collectors.hooks.replacing import replace

_MODULE: ModuleType = sys.modules[torch.autograd.Function.__module__]
_NAME = "hooks"  # as that module calls ``torch.utils.hooks``


class _Handles:
    """Stands in for the module of handles; all but the making of a handle is the module's."""

    def __init__(self, handle: Callable[[Any], Any], module: ModuleType) -> None:
        self.RemovableHandle = handle
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Hooks:
    """The hooks of one pass.

    Attributes:
        handle: What torch returns for a hook that it was given `together`; for any other, `keep` what it returns.
    """

    def __init__(self) -> None:
        self._tables: list[Any] = []  # torch's tables that hooks stand in under the handle's number
        self._others: list[Any] = []
        self.handle = RemovableHandle(OrderedDict())

    @contextmanager
    def together(self) -> Iterator[Any]:
        """Let all hooks that this thread puts on in the block share one handle, which the block is given."""
        if not hasattr(_MODULE, _NAME):  # another torch: each hook has its own
            yield self.handle
            return
        undo = replace(_MODULE, _NAME, self._standing_in)
        try:
            yield self.handle
        finally:
            undo()

    def _standing_in(self, module: Any) -> _Handles:
        here, handle, note = get_ident(), self.handle, self._tables.append

        def make(table: Any, **others: Any) -> Any:
            if get_ident() != here:
                return module.RemovableHandle(table, **others)
            note(table)  # first: an interrupt may come before torch puts the hook there
            return handle

        return _Handles(make, module)

    def keep(self, handle: Any) -> None:
        """Remember a hook that has a handle of its own."""
        self._others.append(handle)

    def remove(self) -> None:
        """Take all hooks off."""
        number = self.handle.id
        while self._tables:
            self._tables.pop().pop(number, None)
        while self._others:
            self._others.pop().remove()
