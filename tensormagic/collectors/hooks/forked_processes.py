"""Ends traces in processes that were forked from a traced one: a data loader's workers are not part of the run.

A forked process begins as a copy, with the tracer's mode on its stack: what it runs would be slower, and tracebacks
that it sends back as text would hold the tracer's frames.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Abandoned(Protocol):
    """Something that can be ended at once."""

    def abandon(self) -> None:
        """Put everything back, in a forked process."""


_running: WeakSet[Abandoned] = WeakSet()


def abandon_in_children(trace: Abandoned) -> None:
    """End ``trace`` in every process that is forked from this one, as long as it lives."""
    _running.add(trace)


def forks() -> int:
    """Return how many processes were forked from this one since tracing was first used."""
    return _forks


_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


def _abandon_all() -> None:
    for trace in list(_running):
        trace.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_abandon_all, after_in_parent=_count_fork)
