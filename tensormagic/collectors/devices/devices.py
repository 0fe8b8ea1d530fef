"""What each device says of its memory: one reader a kind of device.

Nothing is initialised by looking: a device that torch has not begun to use holds nothing of torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensormagic.collectors.devices.accelerators import read_cuda, read_mps, read_xpu
from tensormagic.collectors.devices.host import read_cpu
from tensormagic.reports import DeviceMemory, Gap

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
