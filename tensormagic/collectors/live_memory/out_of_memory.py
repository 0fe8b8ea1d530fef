"""Where the memory was when it ran out, looked at while the error is on its way: plain data, so that nothing is kept.

The functions that failed still have their variables then. Afterwards these are kept by the error's traceback, for as
long as a notebook keeps that. They are holders like any name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any

import torch

from tensormagic.collectors.live_memory.live_memory import collect_memory
from tensormagic.collectors.live_memory.oom_messages import read_message
from tensormagic.collectors.live_memory.survey import Survey
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.releases.freed import collect_releases
from tensormagic.collectors.session.stroll import THOROUGH, Stroll
from tensormagic.collectors.where.running import names_of
from tensormagic.collectors.where.source import PACKAGE_DIRECTORY, CellNumber, location_in
from tensormagic.reports import Gap, MemoryReport, OutOfMemory

MOST_LISTED = 400
_TYPES: tuple[type[BaseException], ...] = (MemoryError, torch.OutOfMemoryError)
_READ = (*_TYPES, RuntimeError)  # the only ones whose messages are read

Variable = tuple[Place, Any]


def out_of_memory_of(error: BaseException) -> OutOfMemory | None:
    """Return what an exception tells of memory that ran out; None where it is another. Reads its message alone."""
    if not isinstance(error, _READ):
        return None
    try:
        device = "cpu" if isinstance(error, MemoryError) else "cuda"
        return read_message(str(error), is_memory_error=isinstance(error, _TYPES), device=device)
    except Exception:  # a message that cannot be had tells nothing
        return None


def memory_at(
    error: BaseException, told: OutOfMemory, namespace: Mapping[str, Any], cell_number: CellNumber | None = None
) -> tuple[OutOfMemory, MemoryReport]:
    """Return where the memory was when an error was raised, and what only the functions that failed lead to.

    Args:
        error: With its traceback; nothing of it is kept.
        told: What its message tells.
        namespace: The person's names.
        cell_number: Gives a cell's execution count from its file name.
    """
    try:
        freed = collect_releases(namespace)  # first: another walk holds what it meets
        failing = list(failing_variables(error, cell_number))
        memory = collect_memory(namespace, more=failing, most=MOST_LISTED)
        memory = replace(memory, releases=freed.releases, gaps=(*memory.gaps, *freed.gaps))
        return _with_device(replace(told, only_error=_only(failing, namespace)), memory), memory
    except Exception as problem:  # memory has run out: looking, too, may need more than there is
        gap = Gap("memory", f"could not be looked at: {type(problem).__name__}: {problem}")
        return told, MemoryReport(gaps=(gap,))


def failing_variables(error: BaseException, cell_number: CellNumber | None = None) -> Iterator[Variable]:
    """Yield the variables of the functions that an exception went through, the innermost function first."""
    for frame, line in reversed(list(_frames(error.__traceback__))):
        location = location_in(frame, line, cell_number)
        for name, value in dict(names_of(frame)).items():
            yield Place(f"{frame.f_code.co_name}.<locals>.{name}", "traceback", 0, location), value


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the functions of a traceback, and the line at which each failed; names of modules are names anyway."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and not code.co_filename.startswith(PACKAGE_DIRECTORY):
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _only(failing: list[Variable], namespace: Mapping[str, Any]) -> int:
    """Return the bytes to which these variables lead and no name does, the history's included."""
    names = {name: value for name, value in namespace.items() if not name.startswith("__")}
    with quiet():
        named = Survey(Stroll(THOROUGH).below(names), everything=False).identities
        found = Survey(Stroll(THOROUGH).through({}, failing), everything=False).blocks
        return sum(block.nbytes for block in found if not (block.identities | {block.memory.identity}) & named)


def _with_device(told: OutOfMemory, memory: MemoryReport) -> OutOfMemory:
    """Return the moment with what the device itself tells, where the message did not."""
    device = next((one for one in memory.devices if one.device == told.device), None)
    if device is None:
        return told
    free = device.free if told.free is None else told.free
    return replace(told, free=free, total=device.total if told.total is None else told.total)
