"""The counters of torch's allocators on GPUs, and what the driver says besides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch

from tensormagic.reports import DeviceMemory, Gap, ProcessUse

Found = tuple[list[DeviceMemory], list[Gap]]
Value = TypeVar("Value")

_UNCOUNTED = "the allocator of {} does not tell what it has given out: it is not torch's own"
_ONE_IS_OURS = (
    "the driver does not list this process on {} as {}: in a container it knows it by another number,"
    " so one of the processes told is this one"
)


def read_cuda(cuda: Any = torch.cuda, core: Any = torch._C, nvml: Any = None) -> Found:
    """Return the CUDA devices that torch uses.

    Args:
        cuda: ``torch.cuda``.
        core: ``torch._C``, which knows on which devices there is something.
        nvml: The module ``pynvml``; by default the one that is installed, if any.
    """
    if not cuda.is_initialized():
        return [], []
    has_context = getattr(core, "_cuda_hasPrimaryContext", lambda _index: True)
    used = [index for index in range(cuda.device_count()) if has_context(index)]
    driver, gaps = _processes(nvml if nvml is not None else _nvml(), cuda, used)
    blocks = _or_none(lambda: _largest_free(cuda))
    devices = [_cuda_device(cuda, index, driver.get(index, []), blocks) for index in used]
    gaps += [Gap("devices", _UNCOUNTED.format(one.device)) for one in devices if one.allocated is None]
    unlike = [one.device for one in devices if one.others and one.process is None]
    return devices, gaps + [Gap("devices", _ONE_IS_OURS.format(device, os.getpid())) for device in unlike]


def _cuda_device(cuda: Any, index: int, users: list[ProcessUse], blocks: dict[int, int] | None) -> DeviceMemory:
    """Return one device; an allocator that is not torch's own may refuse any of its counters."""
    own = next((one.nbytes for one in users if one.pid == os.getpid()), None)
    reserved = _or_none(lambda: cuda.memory_reserved(index))
    free, total = _or_none(lambda: cuda.mem_get_info(index)) or (None, None)
    others = sorted((one for one in users if one.pid != os.getpid()), key=lambda one: -(one.nbytes or 0))
    return DeviceMemory(
        device=f"cuda:{index}", name=_or_none(lambda: str(cuda.get_device_name(index))) or "",
        allocated=_or_none(lambda: cuda.memory_allocated(index)), reserved=reserved,
        peak=_or_none(lambda: cuda.max_memory_allocated(index)),
        largest_free=None if blocks is None else blocks.get(index, 0), free=free, total=total, process=own,
        others=tuple(others), context=None if own is None or reserved is None else max(own - reserved, 0),
    )  # fmt: skip


def _largest_free(cuda: Any) -> dict[int, int]:
    """Return the largest block by device that is free inside what is reserved."""
    found: dict[int, int] = {}
    for segment in _segments(cuda):
        free = (block["size"] for block in segment["blocks"] if block["state"] == "inactive")
        found[segment["device"]] = max([found.get(segment["device"], 0), *free])
    return found


def _segments(cuda: Any) -> Any:
    """Return torch's segments; without the history, which takes seconds to put together where one is recorded."""
    try:
        return cuda.memory_snapshot(include_traces=False)
    except TypeError:  # older torch knows no such option, and always brings it along
        return cuda.memory_snapshot()


def _nvml() -> Any:
    """Return the driver's own interface, if Python has it."""
    return import_module("pynvml") if find_spec("pynvml") is not None else None


def _processes(nvml: Any, cuda: Any, indices: Iterable[int]) -> tuple[dict[int, list[ProcessUse]], list[Gap]]:
    """Return who uses each device, as the driver tells."""
    if nvml is None:
        return {}, [Gap("devices", "other processes on the GPU are not known without the package nvidia-ml-py")]
    try:
        nvml.nvmlInit()
    except Exception as error:  # the driver's own classes of errors
        return {}, [Gap("devices", f"the driver does not tell of other processes: {error}")]
    try:
        return {index: _users(nvml, nvml.nvmlDeviceGetHandleByUUID(_uuid(cuda, index))) for index in indices}, []
    except Exception as error:
        return {}, [Gap("devices", f"the driver does not tell of other processes: {error}")]
    finally:
        nvml.nvmlShutdown()


def _uuid(cuda: Any, index: int) -> bytes:
    return f"GPU-{cuda.get_device_properties(index).uuid}".encode()


def _users(nvml: Any, handle: Any) -> list[ProcessUse]:
    every = [*nvml.nvmlDeviceGetComputeRunningProcesses(handle), *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)]
    return list({one.pid: ProcessUse(one.pid, _program(nvml, one.pid), one.usedGpuMemory) for one in every}.values())


def _program(nvml: Any, pid: int) -> str:
    name: Any = _or_none(lambda: nvml.nvmlSystemGetProcessName(pid)) or ""
    return Path(name.decode(errors="replace") if isinstance(name, bytes) else name).name


def read_mps(backend: Any = torch.backends.mps, mps: Any = torch.mps) -> Found:
    """Return Apple's GPU, where torch has taken memory of it.

    Args:
        backend: ``torch.backends.mps``.
        mps: ``torch.mps``.
    """
    if not backend.is_built() or not backend.is_available():
        return [], []
    reserved = mps.driver_allocated_memory()
    if not reserved:
        return [], []
    total = _or_none(mps.recommended_max_memory) if hasattr(mps, "recommended_max_memory") else None
    return [DeviceMemory("mps:0", allocated=mps.current_allocated_memory(), reserved=reserved, total=total)], []


def read_xpu(xpu: Any = torch.xpu) -> Found:
    """Return Intel's GPUs that torch uses.

    Args:
        xpu: ``torch.xpu``.
    """
    if not xpu.is_initialized():
        return [], []
    return [_xpu_device(xpu, index) for index in range(xpu.device_count())], []


def _xpu_device(xpu: Any, index: int) -> DeviceMemory:
    free, total = _or_none(lambda: xpu.mem_get_info(index)) or (None, None)
    if total is None:
        total = _or_none(lambda: int(xpu.get_device_properties(index).total_memory))
    return DeviceMemory(
        device=f"xpu:{index}", name=_or_none(lambda: str(xpu.get_device_name(index))) or "",
        allocated=_or_none(lambda: xpu.memory_allocated(index)), reserved=_or_none(lambda: xpu.memory_reserved(index)),
        peak=_or_none(lambda: xpu.max_memory_allocated(index)), free=free, total=total,
    )  # fmt: skip


def _or_none(ask: Callable[[], Value]) -> Value | None:
    """Return what a driver tells; None where it does not."""
    try:
        return ask()
    except Exception:  # drivers raise all kinds of errors
        return None
