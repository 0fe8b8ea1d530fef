"""What the messages of an out-of-memory error tell: which device, how much was asked for, how much there was.

Each backend of torch writes its own. The sources (torch 2.6 to 2.13, older forms where they are still met):
``c10/cuda/CUDACachingAllocator.cpp`` (``CUDA`` or ``HIP``), ``c10/cuda/CUDAMallocAsyncAllocator.cpp``,
``c10/xpu/XPUCachingAllocator.cpp``, ``aten/src/ATen/mps/MPSAllocator.mm``, ``c10/core/impl/alloc_cpu.cpp``; NumPy's is
``numpy/_core/_exceptions.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tensormagic.reports import OutOfMemory

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
    found = next((told for reader in _READERS if (told := reader(message)) is not None), None)
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
