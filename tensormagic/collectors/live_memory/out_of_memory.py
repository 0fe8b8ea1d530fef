"""Where the memory was when it ran out, and what the error's message tells."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any

import torch

from tensormagic.collectors.live_memory.live_memory import collect_memory
from tensormagic.collectors.live_memory.survey import Survey
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.releases.freed import collect_releases
from tensormagic.collectors.session.session_walk import THOROUGH, ObjectWalk
from tensormagic.collectors.where.source import PACKAGE_DIRECTORY, CellNumber, location_in, names_of
from tensormagic.reports import Gap, MemoryReport, OutOfMemory

# What the messages of an out-of-memory error tell: which device, how much was asked for, how much there was.
#
# Each backend of torch writes its own. The sources (torch 2.6 to 2.13, older forms where they are still met):
# ``c10/cuda/CUDACachingAllocator.cpp`` (``CUDA`` or ``HIP``), ``c10/cuda/CUDAMallocAsyncAllocator.cpp``,
# ``c10/xpu/XPUCachingAllocator.cpp``, ``aten/src/ATen/mps/MPSAllocator.mm``, ``c10/core/impl/alloc_cpu.cpp``; NumPy's
# is ``numpy/_core/_exceptions.py``.

_SIZE = r"([\d.]+) (bytes|[KMGTP]i?B)"
_UNITS = {"bytes": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DEVICES = {"CUDA": "cuda", "HIP": "cuda", "XPU": "xpu", "MPS": "mps", "PrivateUse1": "privateuseone"}

_ACCELERATOR = re.compile(rf"(?:\b(\w+) )?[Oo]ut of memory\. Tried to allocate {_SIZE}")
_MPS = re.compile(rf"MPS backend out of memory \(MPS allocated: {_SIZE}")
_ASYNC = re.compile(r"Allocation on device (\d+) would exceed allowed memory\. \(out of memory\)")
_CPU = re.compile(r"(?:can't allocate memory|not enough memory): you tried to allocate (\d+) bytes")
_MAPPED = re.compile(r"unable to mmap (\d+) bytes from file .*Cannot allocate memory", re.DOTALL)
_NUMPY = re.compile(rf"Unable to allocate {_SIZE} for an array")
_BARE = re.compile(
    r"(?:CUDA|CUDA driver|HIP) error: out of memory|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED"
    r"|CUSOLVER_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
)


def read_message(message: str, *, is_memory_error: bool = False, device: str = "cpu") -> OutOfMemory | None:
    """Return what a message tells; None where it tells of something else.

    Args:
        message: Of the exception.
        is_memory_error: Whether the exception's type alone says that memory ran out (`MemoryError`,
            ``torch.OutOfMemoryError``).
        device: On which device that type says so, where the message does not tell.
    """
    found = next((described for reader in _READERS if (described := reader(message)) is not None), None)
    if found is None and is_memory_error:
        return OutOfMemory(device, None, message=message)
    return found


def _accelerator(message: str) -> OutOfMemory | None:
    asked = _ACCELERATOR.search(message)
    if asked is None:
        return None
    index = re.search(r"GPU (\d+)", message)
    device = _DEVICES.get(asked[1] or "CUDA", (asked[1] or "").lower())
    reserved = _first(message, rf"{_SIZE} is reserved by PyTorch but unallocated")
    allocated = _first(message, rf"{_SIZE} (?:is allocated by PyTorch|already allocated)")
    in_all = _first(message, rf"{_SIZE} reserved in total by PyTorch")
    return OutOfMemory(
        f"{device}:{index[1] if index else 0}",
        _bytes(asked[2], asked[3]),
        message=message,
        free=_first(message, rf"of which {_SIZE} is free", rf"{_SIZE} free;"),
        total=_first(message, rf"total capac\w*ty of {_SIZE}", rf"{_SIZE} total capacity"),
        allocated=allocated,
        reserved=in_all - allocated if in_all is not None and allocated is not None else reserved,
    )


def _mps(message: str) -> OutOfMemory | None:
    allocated = _MPS.search(message)
    if allocated is None:
        return None
    total = _first(message, rf"max allowed: {_SIZE}")
    others = _first(message, rf"other allocations: {_SIZE}")
    in_use = _bytes(allocated[1], allocated[2])
    free = None if total is None else max(total - in_use - (others or 0), 0)
    asked = _first(message, rf"Tried to allocate {_SIZE}")
    return OutOfMemory("mps:0", asked, message=message, free=free, total=total, allocated=in_use)


def _malloc_async(message: str) -> OutOfMemory | None:
    """Read what ``backend:cudaMallocAsync`` writes: a table."""
    found = _ASYNC.search(message)
    if found is None:
        return None
    return OutOfMemory(
        f"cuda:{found[1]}",
        _first(message, rf"Requested *: {_SIZE}"),
        message=message,
        free=_first(message, rf"Free \(according to CUDA\): {_SIZE}"),
        total=_first(message, rf"Device limit *: {_SIZE}"),
        allocated=_first(message, rf"Currently allocated *: {_SIZE}"),
    )


def _cpu(message: str) -> OutOfMemory | None:
    found = _CPU.search(message) or _MAPPED.search(message)
    return OutOfMemory("cpu", int(found[1]), message=message) if found else None


def _numpy(message: str) -> OutOfMemory | None:
    found = _NUMPY.search(message)
    return OutOfMemory("cpu", _bytes(found[1], found[2]), message=message) if found else None


def _bare(message: str) -> OutOfMemory | None:
    return OutOfMemory("cuda", None, message=message) if _BARE.search(message) else None


_READERS: tuple[Callable[[str], OutOfMemory | None], ...] = (
    _accelerator, _malloc_async, _mps, _cpu, _numpy, _bare,
)  # fmt: skip


def _first(message: str, *patterns: str) -> int | None:
    """Return the size that the first fitting pattern finds; None where none fits."""
    found = next((match for pattern in patterns if (match := re.search(pattern, message))), None)
    return None if found is None else _bytes(found[1], found[2])


def _bytes(value: str, unit: str) -> int:
    """Return a size as torch writes it, as a number of bytes: its ``GB`` are as large as its ``GiB``."""
    power = _UNITS[unit] if unit in _UNITS else _UNITS[unit[0]]
    return int(float(value.rstrip(".")) * 2 ** (10 * power) + 0.5)


# Where the memory was when it ran out, looked at while the error is on its way: plain data, so that nothing is kept.
#
# The functions that failed still have their variables then. Afterwards these are kept by the error's traceback, for
# as long as a notebook keeps that. They are holders like any name.

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
    error: BaseException, described: OutOfMemory, namespace: Mapping[str, Any], cell_number: CellNumber | None = None
) -> tuple[OutOfMemory, MemoryReport]:
    """Return where the memory was when an error was raised, and what only the functions that failed lead to.

    Args:
        error: With its traceback; nothing of it is kept.
        described: What its message tells.
        namespace: The person's names.
        cell_number: Gives a cell's execution count from its file name.
    """
    try:
        freed = collect_releases(namespace)  # first: another walk holds what it meets
        failing = list(failing_variables(error, cell_number))
        memory = collect_memory(namespace, more=failing, most=MOST_LISTED)
        memory = replace(memory, releases=freed.releases, gaps=(*memory.gaps, *freed.gaps))
        return _with_device(replace(described, only_error=_only(failing, namespace)), memory), memory
    except Exception as problem:  # memory has run out: looking, too, may need more than there is
        gap = Gap("memory", f"could not be inspected: {type(problem).__name__}: {problem}")
        return described, MemoryReport(gaps=(gap,))


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
        named = Survey(ObjectWalk(THOROUGH).below(names), everything=False).identities
        found = Survey(ObjectWalk(THOROUGH).through({}, failing), everything=False).blocks
        return sum(block.nbytes for block in found if not (block.identities | {block.memory.identity}) & named)


def _with_device(described: OutOfMemory, memory: MemoryReport) -> OutOfMemory:
    """Return the moment with what the device itself tells, where the message did not."""
    device = next((one for one in memory.devices if one.device == described.device), None)
    if device is None:
        return described
    free = device.free if described.free is None else described.free
    return replace(described, free=free, total=device.total if described.total is None else described.total)
