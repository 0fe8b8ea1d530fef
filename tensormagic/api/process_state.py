"""What the process holds now: memory, and random number generators."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tensormagic.api.diagnosing import diagnosed
from tensormagic.api.running import _Run
from tensormagic.collectors.requirements import names_here, require, require_names, require_torch
from tensormagic.collectors.where.source import cell_of
from tensormagic.errors import TensorMagicError
from tensormagic.reports import FreeableMemory, FreeHistoryReport, MemoryReport, SnapshotReport
from tensormagic.reports.base import gc_paused, given_path, with_cells
from tensormagic.reports.memory_run import MemoryFrame, MemoryRunReport
from tensormagic.reports.rng import RngReport, RngRunReport

MOST_LISTED = 2_000


def memory(
    namespace: Mapping[str, Any] | None = None,
    *,
    only: Mapping[str, Any] | None = None,
    devices: str | Collection[str] | None = None,
    most: int = MOST_LISTED,
    cell_number: Callable[[str], int | None] | None = None,
) -> MemoryReport:
    """Return where the memory is: every live storage once, what it is for, what it is called, and who holds it.

    Storages that no name leads to are there, too, without a name; so are those that only an autograd graph keeps.

    Args:
        namespace: Names, and what they are bound to; by default the caller's globals. The variables of the caller's
            function, and of those that called it, are names as well.
        only: Show only the memory that these lead to: ``{"net": net}``.
        devices: Show only these: ``"cuda:0"``, ``"cuda"`` for all of a kind, or several.
        most: How many storages to list, the largest first; the others are summed up in ``left_out``.
        cell_number: Gives the number of a notebook's cell from its file name: it identifies lines.

    Raises:
        TensorMagicError: where ``namespace`` or ``only`` is no mapping, torch knows no device of that name, or none is
            named.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> x = torch.zeros(1000)
    >>> report = tensormagic.memory({"x": x, "view": x[:10]}, only={"x": x})
    >>> [(one.name, one.nbytes, one.tensors) for one in report.storages]
    [('x', 4000, 2)]
    """
    require_torch()
    from tensormagic.collectors.memory.freed import collect_freeable
    from tensormagic.collectors.memory.live_memory import collect_memory, require_devices

    namespace = names_here(namespace, "memory")
    caller = sys._getframe(1)  # noqa: SLF001  (its variables are names as well)
    if only is not None:
        require_names(only, "memory")
    require(most, int, "memory(most=…)", "a whole number")
    asked = (devices,) if isinstance(devices, str) else devices
    require_devices(asked or ())
    if asked is not None and not asked:
        raise TensorMagicError("memory(devices=…) was given no device: name one, or leave it out to see all of them")
    with gc_paused():
        besides = () if only is None else (only,)
        # asked first: a walk holds what it meets
        freed = collect_freeable(namespace, besides=besides, items=tuple(only or ()))
        report = collect_memory(namespace, frame=caller, only=only, devices=asked, most=most)
    every = [one for one in freed.freeable if _is_asked_for(one, only, asked)]
    others = (one for one in freed.freeable if one not in every)  # what they hold may have been asked for by itself
    every += [part for one in others for part in one.parts if only and _is_asked_for(part, only, asked)]
    freeable = tuple(replace(one, parts=tuple(part for part in one.parts if _is_placed(part, asked))) for one in every)
    report = replace(report, freeable=freeable, gaps=(*report.gaps, *freed.gaps))
    return diagnosed(report if cell_number is None else with_cells(report, cell_number))


def _is_asked_for(freeable: FreeableMemory, only: Mapping[str, Any] | None, devices: Collection[str] | None) -> bool:
    """Return whether it is of a name that was asked for, and of memory on a device that was."""
    named = only is None or not set(only).isdisjoint(freeable.name.split(", "))
    return named and _is_placed(freeable, devices)


def _is_placed(freeable: FreeableMemory, devices: Collection[str] | None) -> bool:
    every = freeable.device_bytes or {}
    return devices is None or any({device, device.split(":")[0]} & {*devices} for device in every)


class MemoryRun(_Run[MemoryRunReport]):
    """A run whose memory is followed: ``with tensormagic.track_memory() as run: …``, then ``run.report``.

    While the block runs, one dispatch mode is on torch's stack. Its options are those of `track_memory`.
    """

    _question = "memory"

    def frame(self) -> MemoryFrame:
        """Return where the run stands, for a live panel: bytes alive, peak, the line."""
        found: MemoryFrame = self._listener.frame()
        return found


def track_memory(
    *, title: str = "", namespace: Mapping[str, Any] | None = None, functions: Iterable[Any] = ()
) -> MemoryRun:
    """Return a context manager that follows the memory of what runs inside it: bytes alive, peak, bytes per line.

    Args:
        title: A name for the run.
        namespace: Where names of models and tensors are looked up; by default the caller's globals.
        functions: Functions to go through line by line, or their names: ``[train, "model.forward"]``. What happens
            inside of them counts at their own lines, a library's functions included.

    Raises:
        UnknownNameError: for anything but a Python function.
        RequirementError: where torch is missing or too old.
    """
    require_torch()
    if not callable(functions):
        require(functions, Iterable, "track_memory(functions=…)", "functions, or their names")
    cell = cell_of(sys._getframe(1))  # noqa: SLF001  (what runs is the caller's)
    return MemoryRun(names_here(namespace, "track_memory"), cell, title=str(title or ""), functions=functions)


def read_snapshot(
    snapshot: str | os.PathLike[str] | Mapping[str, Any], *, cell_number: Callable[[str], int | None] | None = None
) -> SnapshotReport:
    """Return what a CUDA memory snapshot holds: segments, blocks, the timeline of its events, each line's part.

    Nothing in the file is imported or called: only plain data is loaded, and anything else is refused. Neither a GPU
    nor CUDA is needed.

    Args:
        snapshot: A file that ``torch.cuda.memory._dump_snapshot`` wrote, or what ``torch.cuda.memory._snapshot()``
            returned.
        cell_number: Gives a cell's execution count from its file name; None outside a notebook.

    Raises:
        SnapshotError: where it is not a snapshot, or more than plain data; the message says what and at which byte.
    """
    from tensormagic.collectors.memory.snapshot import snapshot_report
    from tensormagic.collectors.memory.snapshot_reading import read_file

    if isinstance(snapshot, str | os.PathLike):
        path = given_path(snapshot, "read_snapshot()")
        return snapshot_report(read_file(path), source=path.name, cell_number=cell_number)
    return snapshot_report(snapshot, cell_number=cell_number)


def free_history(namespace: Mapping[str, Any], *, drop: bool = False) -> FreeHistoryReport:
    """Return what outputs and the last error keep that no name leads to; with ``drop``, let go of it.

    Args:
        namespace: The names of a session, as IPython keeps them.
        drop: Whether to let go: outputs leave ``Out``, ``_`` and ``_5``, the last error ``sys.last_value``; then
            Python's garbage collector runs, and torch's caches are emptied.
    """
    require_torch()
    from tensormagic.collectors.memory.freed import free_session

    return free_session(namespace, drop=drop)


def rng(namespace: Mapping[str, Any] | None = None) -> RngReport:
    """Return every random generator in reach: torch's, NumPy's, Python's, and those that names lead to.

    For each: its seed, how many numbers it has given since, and whether somebody chose the seed. NumPy's global one and
    Python's forget their seed; it is found by stepping their state back. None is advanced.

    Args:
        namespace: Names, and what they are bound to; by default the caller's globals.

    Raises:
        TensorMagicError: where ``namespace`` is not a mapping.
        RequirementError: where torch is missing or too old.

    >>> import numpy, tensormagic
    >>> numpy.random.seed(7)
    >>> _ = numpy.random.rand(3)
    >>> [(one.seed, one.drawn) for one in tensormagic.rng({}).generators if one.name == "numpy.random"]
    [('7', 6)]
    """
    require_torch()
    from tensormagic.collectors.rng.generators import collect_rng

    return diagnosed(collect_rng(names_here(namespace, "rng")))


class DrawWatch(_Run[RngRunReport]):
    """A run whose draws are watched: ``with tensormagic.track_rng() as watch: …``, then ``watch.report``.

    While the block runs, one dispatch mode is on torch's stack.
    """

    _question = "draws"

    @property
    def passed(self) -> Callable[[str, int, int], None]:
        """What to call after each statement of a cell, with the file's name and the statement's first and last line."""
        passed: Callable[[str, int, int], None] = self._listener.passed
        return passed


def track_rng(*, namespace: Mapping[str, Any] | None = None) -> DrawWatch:
    """Return a context manager that reports which call on which line draws from which generator, and how many values.

    Args:
        namespace: Where names are looked up; by default the caller's globals.

    Raises:
        RequirementError: where torch is missing or too old.
    """
    require_torch()
    return DrawWatch(names_here(namespace, "track_rng"), cell_of(sys._getframe(1)))  # noqa: SLF001
