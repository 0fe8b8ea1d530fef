"""What devices say of their memory: on machines that are made by hand, since the GPUs of others are not here."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from tensormagic import memory
from tensormagic.collectors.devices import read_cpu, read_cuda, read_devices, read_mps, read_xpu
from tensormagic.reports import DeviceMemory, Gap, ProcessUse

MIB = 2**20


def block(size, state):
    """Return a block as ``memory_snapshot`` tells it."""
    return {"size": size, "state": state}


def cuda(**changes):
    """Return what reads like ``torch.cuda`` with two devices, of which the second was never used."""
    segments = [
        {"device": 0, "blocks": [block(3 * MIB, "active_allocated"), block(2 * MIB, "inactive")]},
        {"device": 0, "blocks": [block(MIB, "inactive"), block(MIB, "active_pending_free")]},
    ]
    told = {
        "is_initialized": lambda: True, "device_count": lambda: 2, "memory_reserved": lambda _: 7 * MIB,
        "memory_allocated": lambda _: 3 * MIB, "max_memory_allocated": lambda _: 5 * MIB,
        "get_device_name": lambda _: "A Card", "mem_get_info": lambda _: (50 * MIB, 80 * MIB),
        "memory_snapshot": lambda: segments, "get_device_properties": lambda _: SimpleNamespace(uuid="abc"),
    }  # fmt: skip
    return SimpleNamespace(**{**told, **changes})


CORE = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index == 0)


class Driver:
    """What reads like ``pynvml``."""

    opened = 0

    def nvmlInit(self):  # noqa: N802  (the driver's name)
        """Begin."""
        self.opened += 1

    def nvmlShutdown(self):  # noqa: N802
        """End."""
        self.opened -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        """Return the device."""
        assert uuid == b"GPU-abc"
        return "handle"

    def nvmlDeviceGetComputeRunningProcesses(self, _handle):  # noqa: N802
        """Return who computes: this process and another one."""
        use = SimpleNamespace
        return [use(pid=os.getpid(), usedGpuMemory=17 * MIB), use(pid=7, usedGpuMemory=4 * MIB)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, _handle):  # noqa: N802
        """Return who draws: the same other one, and one of which no bytes are known."""
        use = SimpleNamespace
        return [use(pid=7, usedGpuMemory=4 * MIB), use(pid=8, usedGpuMemory=None)]

    def nvmlSystemGetProcessName(self, pid):  # noqa: N802
        """Return the program, for those whose name may be read."""
        if pid == 8:
            raise PermissionError
        return f"/usr/bin/program{pid}"


def test_cuda_with_everything():
    """Counters, the largest free block, the driver's figures, other processes; only the device that is in use."""
    driver = Driver()
    (device,), gaps = read_cuda(cuda(), CORE, driver)
    assert device == DeviceMemory(
        "cuda:0", "A Card", allocated=3 * MIB, reserved=7 * MIB, peak=5 * MIB, largest_free=2 * MIB, free=50 * MIB,
        total=80 * MIB, process=17 * MIB, context=10 * MIB,
        others=(ProcessUse(7, "program7", 4 * MIB), ProcessUse(8, "", None)),
    )  # fmt: skip
    assert device.fragmentation == 0.5
    assert (gaps, driver.opened) == ([], 0)


def test_cuda_without_the_drivers_package_or_figures():
    """Torch's own counters are told all the same, and what is missing is said."""

    def refuses(*_arguments):
        raise RuntimeError("not permitted")

    driver = Driver()
    driver.nvmlDeviceGetHandleByUUID = refuses
    (device,), gaps = read_cuda(cuda(mem_get_info=refuses, get_device_name=refuses), CORE, driver)
    assert (device.allocated, device.free, device.total, device.name, device.process) == (3 * MIB, None, None, "", None)
    assert gaps == [Gap("devices", "the driver does not report other processes: not permitted")]
    assert driver.opened == 0
    driver.nvmlInit = refuses
    assert "not permitted" in read_cuda(cuda(), CORE, driver)[1][0].reason


def test_a_driver_that_names_no_programs():
    """Who uses a device is told without the names of the programs, where the driver's package has no call for them."""
    driver = SimpleNamespace(**{
        name: getattr(Driver(), name) for name in vars(Driver) if name.startswith("nvml") and "Name" not in name
    })  # fmt: skip
    (device,), gaps = read_cuda(cuda(), CORE, driver)
    assert (device.others, gaps) == ((ProcessUse(7, "", 4 * MIB), ProcessUse(8, "", None)), [])


def test_an_allocator_that_is_not_torchs_own():
    """``cudaMallocAsync`` has no snapshot, a plugged-in one no counters: what is there is told, and what is missing."""

    def refuses(*_arguments, **_options):
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")

    (device,), gaps = read_cuda(cuda(memory_snapshot=refuses), CORE, Driver())
    assert (device.allocated, device.largest_free, device.fragmentation, gaps) == (3 * MIB, None, None, [])
    plugged = cuda(memory_snapshot=refuses, **dict.fromkeys(
        ("memory_allocated", "memory_reserved", "max_memory_allocated"), refuses))  # fmt: skip
    (device,), gaps = read_cuda(plugged, CORE, Driver())
    assert (device.allocated, device.reserved, device.peak, device.context) == (None, None, None, None)
    assert (device.free, device.process) == (50 * MIB, 17 * MIB)
    assert [gap.reason for gap in gaps] == [
        "the allocator of cuda:0 does not report its allocations: it is not torch's own"
    ]


def test_the_snapshot_comes_without_the_history_where_torch_allows_that():
    """A history of a million events takes seconds to put together; an older torch is asked as it can be."""
    told = []

    def snapshot(mempool_id=None, include_traces=True):
        told.append((mempool_id, include_traces))
        return [{"device": 0, "blocks": [block(MIB, "inactive")]}]

    (device,), _ = read_cuda(cuda(memory_snapshot=snapshot), CORE, Driver())
    assert (device.largest_free, told) == (MIB, [(None, False)])


def test_in_a_container_this_process_is_not_told_as_another():
    """The driver knows it there by a number of the host's: that one of those told is this one is said."""
    driver = Driver()
    driver.nvmlDeviceGetComputeRunningProcesses = lambda _: [SimpleNamespace(pid=4_000_123, usedGpuMemory=17 * MIB)]
    driver.nvmlDeviceGetGraphicsRunningProcesses = lambda _: []
    (device,), (gap,) = read_cuda(cuda(), CORE, driver)
    assert (device.process, [one.pid for one in device.others]) == (None, [4_000_123])
    assert gap.reason == (
        f"the driver does not list this process on cuda:0 as {os.getpid()}: in a container it has another"
        " number, so one of the listed processes is this one"
    )


def test_cuda_is_not_initialised_by_looking():
    """Before torch has begun to use CUDA nothing is asked of it."""
    asked = SimpleNamespace(is_initialized=lambda: False)
    assert read_cuda(asked, None, None) == ([], [])
    before = torch.cuda.is_initialized()
    memory({})
    assert torch.cuda.is_initialized() == before


def test_mps():
    """Apple's counters, where there is something; no peak and no blocks are told there."""
    there = SimpleNamespace(is_built=lambda: True, is_available=lambda: True)
    mps = SimpleNamespace(
        driver_allocated_memory=lambda: 9, current_allocated_memory=lambda: 4, recommended_max_memory=lambda: 100
    )
    assert read_mps(there, mps)[0] == [DeviceMemory("mps:0", allocated=4, reserved=9, total=100)]
    assert read_mps(there, SimpleNamespace(driver_allocated_memory=lambda: 0)) == ([], [])
    assert read_mps(SimpleNamespace(is_built=lambda: False), None) == ([], [])


def test_xpu():
    """Intel's counters; older torch does not tell how much is free."""
    xpu = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, memory_allocated=lambda _: 1, memory_reserved=lambda _: 2,
        max_memory_allocated=lambda _: 3, get_device_name=lambda _: "Arc",
        get_device_properties=lambda _: SimpleNamespace(total_memory=16),
    )  # fmt: skip
    assert read_xpu(xpu)[0] == [DeviceMemory("xpu:0", "Arc", allocated=1, reserved=2, peak=3, total=16)]
    assert read_xpu(SimpleNamespace(is_initialized=lambda: False)) == ([], [])


def write(root, **files):
    """Write what the operating system tells."""
    for path, text in files.items():
        target = root / path.replace("__", "/").replace("_dot_", ".")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="ascii")


MEMORY = "MemTotal:       1000 kB\nMemFree:  9 kB\nMemAvailable:    400 kB\n"


def test_cpu_from_files(tmp_path):
    """Resident memory in bytes, what is there and what is left."""
    write(tmp_path, proc__self__statm="900 30 4 5 6 7 8", proc__meminfo=MEMORY)
    (device,), gaps = read_cpu(tmp_path)
    page = os.sysconf("SC_PAGE_SIZE")
    assert (device.process, device.total, device.free, gaps) == (30 * page, 1000 * 1024, 400 * 1024, [])


@pytest.mark.parametrize(
    ("most", "used", "cached"),
    [
        ("sys__fs__cgroup__memory_dot_max", "sys__fs__cgroup__memory_dot_current", "inactive_file 1024"),
        (
            "sys__fs__cgroup__memory__memory_dot_limit_in_bytes",
            "sys__fs__cgroup__memory__memory_dot_usage_in_bytes",
            "total_inactive_file 1024",
        ),
    ],
)
def test_cpu_in_a_container(tmp_path, most, used, cached):
    """Its limit counts; files that would make way are free."""
    write(tmp_path, proc__self__statm="900 30 4", proc__meminfo=MEMORY, **{most: "204800\n", used: "102400\n"})
    write(tmp_path, **{most.rpartition("memory_dot_")[0] + "memory_dot_stat": f"anon 5\n{cached}\n"})
    (device,), _ = read_cpu(tmp_path)
    assert (device.total, device.free) == (204800, 204800 - 102400 + 1024)


def test_cpu_in_a_container_without_a_limit(tmp_path):
    """The word ``max`` is no number."""
    write(tmp_path, proc__self__statm="900 30 4", proc__meminfo=MEMORY, sys__fs__cgroup__memory_dot_max="max\n")
    assert read_cpu(tmp_path)[0][0].total == 1000 * 1024


def test_cpu_elsewhere(tmp_path, monkeypatch):
    """Psutil where it is there; without it that is said."""
    psutil = SimpleNamespace(
        virtual_memory=lambda: SimpleNamespace(available=4, total=9),
        Process=lambda: SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=3)),
    )
    assert read_cpu(tmp_path, psutil)[0] == [DeviceMemory("cpu", free=4, total=9, process=3)]
    monkeypatch.setattr("tensormagic.collectors.devices.find_spec", lambda _name: None)
    (device,), (gap,) = read_cpu(tmp_path)
    assert device == DeviceMemory("cpu")
    assert gap.reason == "the memory of this process is unknown without psutil"


def test_a_driver_that_raises_does_not_hide_the_others():
    """It becomes a gap with its words."""

    def fails():
        raise RuntimeError("driver is gone")

    devices, gaps = read_devices((("cuda", fails), ("cpu", lambda: ([DeviceMemory("cpu")], []))))
    assert devices == [DeviceMemory("cpu")]
    assert gaps == [Gap("devices", "cuda could not be read: RuntimeError: driver is gone")]


def test_this_machine():
    """What is really there: more is resident than what tensors take, and it fits."""
    x = torch.zeros(MIB)
    (device,) = memory({"x": x}, devices="cpu").devices
    assert x.nbytes <= device.live < device.process <= device.total


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_real_gpu():
    """The allocator counts what was found, rounded up to its blocks of 512 bytes."""
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1000, 1000, device="cuda")
    report = memory({"x": x}, devices="cuda")
    device = report.devices[0]
    assert device.allocated - before == 4_000_256
    assert next(one for one in report.storages if one.name == "x").nbytes == 4_000_000
    assert 0 <= device.allocated - device.live <= before + 256  # what was there before may have no tensor over it
    assert device.reserved >= device.allocated
    assert device.total >= device.free
