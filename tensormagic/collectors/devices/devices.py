"""What each device says of its memory: one reader a kind of device."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch

from tensormagic.reports import DeviceMemory, Gap, ProcessUse

# The counters of torch's allocators on GPUs, and what the driver says besides.

Found = tuple[list[DeviceMemory], list[Gap]]
Value = TypeVar("Value")

_UNCOUNTED = "the allocator of {} does not report its allocations: it is not torch's own"
_ONE_IS_OURS = (
    "the driver does not list this process on {} as {}: in a container it has another number, so one of the listed "
    "processes is this one"
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
        return {}, [Gap("devices", "other processes on the GPU are unknown without the package nvidia-ml-py")]
    try:
        nvml.nvmlInit()
    except Exception as error:  # the driver's own classes of errors
        return {}, [Gap("devices", f"the driver does not report other processes: {error}")]
    try:
        return {index: _users(nvml, nvml.nvmlDeviceGetHandleByUUID(_uuid(cuda, index))) for index in indices}, []
    except Exception as error:
        return {}, [Gap("devices", f"the driver does not report other processes: {error}")]
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


# The memory of the CPU: what this process takes, and what is left for it.
#
# Linux tells it in files; in a container the limit is the container's. Elsewhere psutil is asked where it is there.

_ROOT = Path("/")
_UNITS = 1024  # /proc tells kibibytes


def read_cpu(root: Path = _ROOT, psutil: Any = None) -> tuple[list[DeviceMemory], list[Gap]]:
    """Return the CPU's memory.

    Args:
        root: Where the operating system's files are.
        psutil: The module of that name; by default the one that is installed, where there is none of those files.
    """
    if (root / "proc/self/statm").exists():
        return [_of_files(root)], []
    module = psutil if psutil is not None else _psutil()
    if module is None:
        return [DeviceMemory("cpu")], [Gap("devices", "the memory of this process is unknown without psutil")]
    memory = module.virtual_memory()
    taken = module.Process().memory_info().rss
    return [DeviceMemory("cpu", free=memory.available, total=memory.total, process=taken)], []


def _psutil() -> Any:
    return import_module("psutil") if find_spec("psutil") is not None else None


def _of_files(root: Path) -> DeviceMemory:
    pages = int((root / "proc/self/statm").read_text(encoding="ascii").split()[1])
    described = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read(root / "proc/meminfo"), re.MULTILINE))
    total, free = (int(described[key]) * _UNITS if key in described else None for key in ("MemTotal", "MemAvailable"))
    limit, used = _container(root)
    if limit is not None and (total is None or limit < total):
        left = max(limit - (used or 0), 0)
        total, free = limit, left if free is None else min(free, left)
    return DeviceMemory("cpu", free=free, total=total, process=pages * resource.getpagesize())


def _container(root: Path) -> tuple[int | None, int | None]:
    """Return the most that this container may take, and what it takes, less the files that would make way."""
    folder = root / "sys/fs/cgroup"
    for limit, used, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, taken = _read(folder / limit).strip(), _read(folder / used).strip()
        if most.isdigit() and taken.isdigit():
            statistics = _read((folder / limit).parent / "memory.stat")
            files = re.search(rf"^{cached} (\d+)$", statistics, re.MULTILINE)
            return int(most), int(taken) - (int(files[1]) if files else 0)
    return None, None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


# Nothing is initialised by looking: a device that torch has not begun to use holds nothing of torch's.

Reader = Callable[[], tuple[list[DeviceMemory], list[Gap]]]

READERS: tuple[tuple[str, Reader], ...] = (
    ("cpu", read_cpu),
    ("cuda", read_cuda),
    ("mps", read_mps),
    ("xpu", read_xpu),
)


def read_devices(readers: Iterable[tuple[str, Reader]] = READERS) -> tuple[list[DeviceMemory], list[Gap]]:
    """Return the devices that can be read, and what could not be."""
    devices: list[DeviceMemory] = []
    gaps: list[Gap] = []
    for kind, read in readers:
        try:
            found, missing = read()
        except Exception as error:  # a driver may raise anything: the others are told all the same
            found, missing = [], [Gap("devices", f"{kind} could not be read: {type(error).__name__}: {error}")]
        devices += found
        gaps += missing
    return devices, gaps
