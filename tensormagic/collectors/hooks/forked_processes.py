"""Ends traces in processes that were forked from a traced one: a data loader's workers are not part of the run.

A forked process begins as a copy, with the tracer's mode on its stack: what it runs would be slower, and tracebacks
that it sends back as text would hold the tracer's frames.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Protocol
from weakref import ref


class Abandoned(Protocol):
    """Something that can be ended at once."""

    def abandon(self) -> None:
        """Put everything back, in a forked process."""


_running: dict[int, ref[Abandoned]] = {}


def abandon_in_children(trace: Abandoned) -> None:
    """End ``trace`` in every process that is forked from this one, as long as it lives."""
    _running[id(trace)] = ref(trace, partial(_running.pop, id(trace)))  # C alone: no interrupt is lost


def forks() -> int:
    """Return how many processes were forked from this one since tracing was first used."""
    return _forks


_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


def _abandon_all() -> None:
    for reference in list(_running.values()):
        if (trace := reference()) is not None:
            trace.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_abandon_all, after_in_parent=_count_fork)
