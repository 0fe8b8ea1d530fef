"""Sees every optimizer's step, on whichever thread, without a change to the table that torch looks its hooks up in.

A process-wide hook is an entry in one table, which every step on every thread goes through; an entry that is added or
taken away meanwhile ends that step with an error. So the table stays as it is, and while somebody watches another
object stands in for it: what is looked up there is what is in the table, and then ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from threading import Lock
from types import ModuleType
from typing import Any, Protocol

import torch

_MODULE: ModuleType = sys.modules[torch.optim.Optimizer.__module__]


class StepWatcher(Protocol):
    """Who is told of every step; it asks for itself on which thread."""

    def begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Look before it. Never raises."""

    def ends(self, optimizer: torch.optim.Optimizer) -> None:
        """Look after it. Never raises."""


_watchers: tuple[StepWatcher, ...] = ()  # another tuple with every change: steps go through it on other threads
_lock = Lock()


def _begins(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for watcher in _watchers:
        watcher.begins(optimizer, args, kwargs)


def _ends(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    for watcher in _watchers:
        watcher.ends(optimizer)


class _Table:
    """Stands in for one of torch's tables; lives as long as the process, as the handles do that it is asked for.

    Args:
        name: Of the table in torch's module.
        ours: Called with every step, after what is in the table.
    """

    def __init__(self, name: str, ours: Callable[..., None]) -> None:
        self._name, self._ours = name, (ours,)
        self._theirs: Any = getattr(_MODULE, name, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    def values(self) -> Iterator[Callable[..., Any]]:
        """Return the hooks, as torch goes through them."""
        return chain(self._theirs.values(), self._ours)

    def __setitem__(self, key: int, hook: Any) -> None:
        self._theirs[key] = hook

    def __getitem__(self, key: int) -> Any:
        return self._theirs[key]

    def __delitem__(self, key: int) -> None:
        del self._theirs[key]

    def __contains__(self, key: object) -> bool:
        return key in self._theirs

    def __iter__(self) -> Iterator[int]:
        return iter(self._theirs)

    def __len__(self) -> int:
        return len(self._theirs)

    def stand_in(self) -> None:
        """Take the table's place."""
        there = getattr(_MODULE, self._name)
        if there is not self:
            self._theirs = there
            setattr(_MODULE, self._name, self)

    def step_down(self) -> None:
        """Give it back, unless somebody else has taken it meanwhile."""
        if getattr(_MODULE, self._name) is self:
            setattr(_MODULE, self._name, self._theirs)


_tables = (_Table("_global_optimizer_pre_hooks", _begins), _Table("_global_optimizer_post_hooks", _ends))


def watch_steps(watcher: StepWatcher) -> None:
    """Tell ``watcher`` of every step from now on; twice is as once."""
    global _watchers  # noqa: PLW0603
    with _lock:
        _watchers = (*[other for other in _watchers if other is not watcher], watcher)
        for table in _tables:
            table.stand_in()


def leave_steps(watcher: StepWatcher) -> bool:
    """Tell it no more; returns whether it was told."""
    global _watchers  # noqa: PLW0603
    with _lock:
        there = watcher in _watchers
        left = tuple([other for other in _watchers if other is not watcher])
        if not left:
            for table in _tables:
                table.step_down()
        _watchers = left
    return there
