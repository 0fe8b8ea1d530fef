"""Random generators: as they stand, and who draws from them in a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tensormagic.api.running import CellNumber, _Run
from tensormagic.api.watching import diagnosed
from tensormagic.collectors.requirements import require_torch
from tensormagic.collectors.where.source import cell_of
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Cell
from tensormagic.reports.rng import RngReport, RngRunReport


def rng(namespace: Mapping[str, Any] | None = None) -> RngReport:
    """Return every random generator in reach: torch's, NumPy's, Python's, and those that names lead to.

    For each: its seed, how many numbers it has given since, and whether somebody chose the seed. NumPy's global one and
    Python's forget their seed; it is found by stepping their state back. None is advanced.

    Args:
        namespace: Names, and what they are bound to; by default the caller's globals.

    Raises:
        TensorMagicError: where ``namespace`` is no mapping.
        RequirementError: where torch is missing or too old.

    >>> import numpy, tensormagic
    >>> numpy.random.seed(7)
    >>> _ = numpy.random.rand(3)
    >>> [(one.seed, one.drawn) for one in tensormagic.rng({}).generators if one.name == "numpy.random"]
    [('7', 6)]
    """
    require_torch()
    from tensormagic.collectors.rng.generators import collect_rng

    seen = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001  (documented default)
    if not isinstance(seen, Mapping):
        raise TensorMagicError(f'rng() takes names and their values, but was given a {type(seen).__name__}: {{"g": g}}')
    return diagnosed(collect_rng(seen))


class DrawWatch(_Run[RngRunReport]):
    """A run whose draws are watched: ``with tensormagic.track_rng() as watch: …``, then ``watch.report``.

    While the block runs, one dispatch mode is on torch's stack.
    """

    def __init__(self, namespace: Mapping[str, Any], cell: Cell, *, cell_number: CellNumber | None = None) -> None:
        from tensormagic.collectors.rng.draws import DrawWatcher

        self._follower = DrawWatcher(namespace, cell, cell_number=cell_number)

    @property
    def passed(self) -> Callable[[str, int, int], None]:
        """What to call after each statement of a cell, with the file's name and the statement's first and last line."""
        passed: Callable[[str, int, int], None] = self._follower.passed
        return passed


def track_rng(*, namespace: Mapping[str, Any] | None = None) -> DrawWatch:
    """Return a context manager that reports which call on which line draws from which generator, and how many values.

    Args:
        namespace: Where names are looked up; by default the caller's globals.

    Raises:
        RequirementError: where torch is missing or too old.
    """
    require_torch()
    caller = sys._getframe(1)  # noqa: SLF001  (documented default)
    return DrawWatch(caller.f_globals if namespace is None else namespace, cell_of(caller))
