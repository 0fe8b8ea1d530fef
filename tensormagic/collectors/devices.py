"""Devices: what there is, what they hold, and how the host waits for them."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from tensormagic.reports import DeviceMemory, Gap, ProcessUse
from tensormagic.words import error_text

# Nothing here waits for the device but `Arrival.read` of what has not come. Everybody asks `there`, in whose place
# tests put one that takes a CPU for such a device and counts.


class PendingTransfer:
    """Numbers on their way from a device: into pinned memory on CUDA, elsewhere they lie where they are until read."""

    __slots__ = ("_event", "_numbers")

    def __init__(self, numbers: torch.Tensor) -> None:
        self._numbers = numbers
        self._event: Any = None
        if numbers.device.type == "cuda":
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(numbers.device))

    def ready(self) -> bool:
        """Return whether they have come; waits for nothing."""
        return self._event is None or bool(self._event.query())

    def read(self) -> list[float]:
        """Return them; waits until they have come."""
        if self._event is not None:
            self._event.synchronize()
        found: list[float] = self._numbers.tolist()
        return found


class DeviceEvent:
    """A moment in the work of a device: a CUDA event that keeps the time."""

    __slots__ = ("_event",)

    def __init__(self, device: torch.device) -> None:
        self._event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))

    def ready(self) -> bool:
        """Return whether the device has come to it."""
        return bool(self._event.query())

    def since(self, earlier: DeviceEvent) -> float:
        """Return the seconds that the device took from another moment to this; it has come to both."""
        return float(earlier._event.elapsed_time(self._event)) / 1e3


class Accelerator:
    """The devices that torch has."""

    simulated = False

    def holds(self, x: torch.Tensor) -> bool:
        """Return whether the numbers of a tensor lie where Python would have to wait for them."""
        return not x.is_cpu

    def stream_of(self, device: torch.device) -> Hashable:
        """Return the stream that work on a device is put on now."""
        return torch._C._cuda_getCurrentStream(device.index) if device.type == "cuda" else device

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Put work on a stream that `stream_of` returned."""
        if not isinstance(stream, tuple):
            return nullcontext()
        number, index, kind = stream
        there: Any = torch.cuda.Stream
        return torch.cuda.stream(there(stream_id=number, device_index=index, device_type=kind))

    def send(self, numbers: torch.Tensor) -> PendingTransfer:
        """Copy a row of numbers from where it is, when the work that makes it is done."""
        return PendingTransfer(numbers)

    def mark(self, device: torch.device) -> DeviceEvent | None:
        """Return the moment to which the work put on a device's stream so far leads; None where that is unknown."""
        return DeviceEvent(device) if device.type == "cuda" else None

    def capturing(self) -> bool:
        """Return whether what is put on the stream is recorded into a CUDA graph: nothing of ours may be in it."""
        cuda: Any = torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def room(self, device: torch.device) -> int | None:
        """Return the bytes that a process may still take of a device; None where that is unknown."""
        if device.type != "cuda":
            return None
        free, total = torch.cuda.mem_get_info(device)
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        share = torch.cuda.get_per_process_memory_fraction(device)
        allowed = int(share * total) - allocated if share < 1 else free
        return min(free + reserved - allocated, allowed)


there = Accelerator()


def _device_of(roots: tuple[Any, ...]) -> torch.device | None:
    """Return where the first of the tensors lies that a backward is called on; None where that is no device."""
    root = roots[0] if roots else None
    return root.device if isinstance(root, torch.Tensor) and not root.is_meta and there.holds(root) else None


class Stopwatch:
    """The seconds that the device of a backward's first root takes for what is put on its stream."""

    def __init__(self, roots: tuple[Any, ...] = ()) -> None:
        self._device = _device_of(roots)
        self._ended: DeviceEvent | None = None
        self.end()
        self._began: DeviceEvent | None = self._ended

    def end(self) -> None:
        """End with what is on the stream now."""
        self._ended = there.mark(self._device) if self._device is not None else None

    def seconds(self) -> float | None:
        """Return the seconds; None where they are unknown, there is no device, or it has not come to the end."""
        began, ended = self._began, self._ended
        return ended.since(began) if began is not None and ended is not None and ended.ready() else None


class PassTimer:
    """The seconds from the end of one pass on a device to that of the next, handed over once it has come to both."""

    def __init__(self) -> None:
        self._device: torch.device | None = None
        self._last: DeviceEvent | None = None
        self._waiting: deque[tuple[DeviceEvent, DeviceEvent, Callable[[float], None]]] = deque()

    def begin(self, roots: tuple[Any, ...]) -> None:
        """Note that a backward begins, and what it is called on."""
        if (device := _device_of(roots)) != self._device:
            self._device, self._last = device, None

    def end(self, keep: Callable[[float], None]) -> bool:
        """Hand over the seconds since the pass before, when they are known; False where no device shows them."""
        if self._device is None or there.capturing():
            self._last = None
            return False
        while self._waiting and self._waiting[0][1].ready():
            began, ended, callback = self._waiting.popleft()
            callback(ended.since(began))
        last, self._last = self._last, there.mark(self._device)
        if last is None or self._last is None:
            return False
        self._waiting.append((last, self._last, keep))
        return True


class DeferredWork:
    """What is still to be done once numbers have come from a device, in order.

    A run does not wait for a device: what follows from a pass is done when its numbers are there, and never before
    what follows from an earlier one.
    """

    MOST = 256  # that wait; from then on the oldest is waited for

    def __init__(self, failed: Callable[[Exception], None], lock: AbstractContextManager[Any]) -> None:
        """Begin empty; ``failed`` gets the reason where something could not be done; all is done under ``lock``."""
        self._waiting: deque[tuple[Any, Callable[[], None]]] = deque()
        self._failed, self._lock = failed, lock

    def __len__(self) -> int:
        return len(self._waiting)

    def then(self, arrival: Any, action: Callable[[], None]) -> None:
        """Do something when numbers are ``ready()`` and all before is done; now, where nothing is waited for."""
        with self._lock:
            self._waiting.append((arrival, action))
            if len(self._waiting) > self.MOST or (arrival is None and len(self._waiting) == 1):
                self._do_next()

    def sent(self, numbers: torch.Tensor, keep: Callable[[list[float]], None]) -> None:
        """Hand over a row of numbers when it has come from its device."""
        arrival = there.send(numbers)
        self.then(arrival, lambda: keep(arrival.read()))

    def read(self, numbers: Sequence[torch.Tensor], keep: Callable[[list[float]], None]) -> None:
        """Hand over numbers from wherever they are, now or when they have come: one transfer for each device."""
        found, away = [0.0] * len(numbers), dict[torch.device, list[int]]()
        for at, number in enumerate(numbers):
            if there.holds(number):
                away.setdefault(number.device, []).append(at)
            else:
                found[at] = float(number.item())
        for device, places in away.items():
            wide = torch.float32 if device.type == "mps" else torch.float64
            self.sent(torch.stack([numbers[at].to(wide) for at in places]), partial(put, found, places))
        self.then(None, partial(keep, found))

    def poll(self) -> None:
        """Do all that can be done without waiting."""
        if not self._waiting:
            return
        with self._lock:
            while self._waiting and self._has_come(self._waiting[0][0]):
                self._do_next()

    def finish(self) -> None:
        """Do everything; waits for the device."""
        with self._lock:
            while self._waiting:
                self._do_next()

    def drop(self) -> None:
        """Do nothing of it: in a process that was forked from the one that waits."""
        self._waiting.clear()

    def _has_come(self, arrival: Any) -> bool:
        try:
            return arrival is None or bool(arrival.ready())
        except Exception as error:  # a device that has failed says so at every question
            self._failed(error)
            return True

    def _do_next(self) -> None:
        try:
            self._waiting.popleft()[1]()
        except Exception as error:
            self._failed(error)


def put(read: MutableSequence[float], places: list[int], found: list[float]) -> None:
    """Put numbers that have come where they belong."""
    for at, value in zip(places, found, strict=True):
        read[at] = value


Found = tuple[list[DeviceMemory], list[Gap]]
Reader = Callable[[], Found]

_UNCOUNTED = "the allocator of {} does not report its allocations: it is not torch's own"
_ONE_IS_OURS = (
    "the driver does not list this process on {} as {}: in a container it has another number, so one of the listed "
    "processes is this one"
)


def read_cuda(cuda: Any = torch.cuda, core: Any = torch._C, nvml: Any = None) -> Found:
    """Return the CUDA devices that torch uses; ``nvml`` is by default the ``pynvml`` that is installed, if any."""
    if not cuda.is_initialized():
        return [], []
    has_context = getattr(core, "_cuda_hasPrimaryContext", lambda _index: True)
    used = [index for index in range(cuda.device_count()) if has_context(index)]
    if nvml is None and find_spec("pynvml") is not None:
        nvml = import_module("pynvml")
    driver, gaps = _processes(nvml, cuda, used)
    blocks, devices = _largest_free(cuda), []
    for index in used:
        counted, users = _counters("cuda", cuda, index), driver.get(index, [])
        own = next((one.nbytes for one in users if one.pid == os.getpid()), None)
        others = sorted((one for one in users if one.pid != os.getpid()), key=lambda one: -(one.nbytes or 0))
        devices.append(replace(
            counted, largest_free=None if blocks is None else blocks.get(index, 0), process=own, others=tuple(others),
            context=None if own is None or counted.reserved is None else max(own - counted.reserved, 0),
        ))  # fmt: skip
    gaps += [Gap("devices", _UNCOUNTED.format(one.device)) for one in devices if one.allocated is None]
    unlike = [one.device for one in devices if one.others and one.process is None]
    return devices, gaps + [Gap("devices", _ONE_IS_OURS.format(device, os.getpid())) for device in unlike]


def _counters(kind: str, backend: Any, index: int) -> DeviceMemory:
    """Return what a backend counts of a device; an allocator that is not torch's own may refuse any of it."""
    free, total = _told(backend, "mem_get_info", index) or (None, None)
    return DeviceMemory(
        device=f"{kind}:{index}", name=str(_told(backend, "get_device_name", index) or ""),
        allocated=_told(backend, "memory_allocated", index), reserved=_told(backend, "memory_reserved", index),
        peak=_told(backend, "max_memory_allocated", index), free=free, total=total,
    )  # fmt: skip


def _largest_free(cuda: Any) -> dict[int, int] | None:
    """Return the largest block by device that is free inside what is reserved; None of another allocator."""
    # Without the history, which takes seconds to put together where one is recorded; older torch always has it.
    segments = _told(cuda, "memory_snapshot", include_traces=False) or _told(cuda, "memory_snapshot")
    if segments is None:
        return None
    found: dict[int, int] = {}
    for segment in segments:
        free = (block["size"] for block in segment["blocks"] if block["state"] == "inactive")
        found[segment["device"]] = max([found.get(segment["device"], 0), *free])
    return found


def _processes(nvml: Any, cuda: Any, indices: Iterable[int]) -> tuple[dict[int, list[ProcessUse]], list[Gap]]:
    """Return who uses each device, as the driver shows."""
    if nvml is None:
        return {}, [Gap("devices", "other processes on the GPU are unknown without the package nvidia-ml-py")]
    try:
        nvml.nvmlInit()
        try:
            names = {index: f"GPU-{cuda.get_device_properties(index).uuid}" for index in indices}
            return {at: _users(nvml, nvml.nvmlDeviceGetHandleByUUID(name.encode())) for at, name in names.items()}, []
        finally:
            nvml.nvmlShutdown()
    except Exception as error:  # the driver's own classes of errors
        return {}, [Gap("devices", f"the driver does not report other processes: {error}")]


def _users(nvml: Any, handle: Any) -> list[ProcessUse]:
    found, computing = {}, nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    for one in (*computing, *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)):
        name: Any = _told(nvml, "nvmlSystemGetProcessName", one.pid) or ""
        program = Path(name.decode(errors="replace") if isinstance(name, bytes) else name).name
        found[one.pid] = ProcessUse(one.pid, program, one.usedGpuMemory)
    return list(found.values())


def read_mps(backend: Any = torch.backends.mps, mps: Any = torch.mps) -> Found:
    """Return Apple's GPU, where torch has taken memory of it."""
    reserved = mps.driver_allocated_memory() if backend.is_built() and backend.is_available() else 0
    if not reserved:
        return [], []
    total = _told(mps, "recommended_max_memory")
    return [DeviceMemory("mps:0", allocated=mps.current_allocated_memory(), reserved=reserved, total=total)], []


def read_xpu(xpu: Any = torch.xpu) -> Found:
    """Return Intel's GPUs that torch uses."""
    used = [_counters("xpu", xpu, index) for index in range(xpu.device_count() if xpu.is_initialized() else 0)]
    sizes = [getattr(_told(xpu, "get_device_properties", at), "total_memory", None) for at in range(len(used))]
    return [one if one.total else replace(one, total=size) for one, size in zip(used, sizes, strict=True)], []


def _told(driver: Any, question: str, *given: Any, **options: Any) -> Any:
    """Return what a driver answers; None where it does not: drivers raise all kinds of errors."""
    with suppress(Exception):
        return getattr(driver, question)(*given, **options)
    return None


# Linux shows it in files; in a container the limit is the container's. Elsewhere psutil is asked where it is there.
_ROOT = Path("/")


def read_cpu(root: Path = _ROOT, psutil: Any = None) -> Found:
    """Return the CPU's memory, by the operating system's files below ``root``, or by psutil where there are none."""
    if (root / "proc/self/statm").exists():
        pages = int((root / "proc/self/statm").read_text(encoding="ascii").split()[1])
        described = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read(root / "proc/meminfo"), re.MULTILINE))
        total, free = (int(described[key]) * 1024 if key in described else None for key in ("MemTotal", "MemAvailable"))
        limit, used = _container(root)
        if limit is not None and (total is None or limit < total):
            left = max(limit - (used or 0), 0)
            total, free = limit, left if free is None else min(free, left)
        return [DeviceMemory("cpu", free=free, total=total, process=pages * os.sysconf("SC_PAGE_SIZE"))], []
    if psutil is None and find_spec("psutil") is not None:
        psutil = import_module("psutil")
    if psutil is None:
        return [DeviceMemory("cpu")], [Gap("devices", "the memory of this process is unknown without psutil")]
    memory, taken = psutil.virtual_memory(), psutil.Process().memory_info().rss
    return [DeviceMemory("cpu", free=memory.available, total=memory.total, process=taken)], []


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
    return str(_told(path, "read_text", "ascii") or "")


# Nothing is initialised by looking: a device that torch has not begun to use holds nothing of torch's.

READERS: tuple[tuple[str, Reader], ...] = (("cpu", read_cpu), ("cuda", read_cuda), ("mps", read_mps), ("xpu", read_xpu))


def read_devices(readers: Iterable[tuple[str, Reader]] = READERS) -> Found:
    """Return the devices that can be read, and what could not be."""
    devices: list[DeviceMemory] = []
    gaps: list[Gap] = []
    for kind, read in readers:
        try:
            found, missing = read()
        except Exception as error:  # a driver may raise anything: the others are reported all the same
            found, missing = [], [Gap("devices", f"{kind} could not be read: {error_text(error)}")]
        devices += found
        gaps += missing
    return devices, gaps
