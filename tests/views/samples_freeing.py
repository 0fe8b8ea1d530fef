"""Hand-made reports of what only the history keeps: nothing, a list, a drop on a GPU, hostile."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.reports import DeviceGain, FreeableMemory, FreeHistoryReport, Gap
from tests.reports.samples import HOSTILE, finding

MIB = 2**20


def full() -> FreeHistoryReport:
    """Return a report with every field filled."""
    return FreeHistoryReport(
        findings=(finding(),), entries=(FreeableMemory(HOSTILE, "history", 4096, 1, 8192, shared_with=(HOSTILE,)),),
        nbytes=4096, dropped=True, freed=4000, storages=1,
        gains=(DeviceGain("cuda:0", 4096, -512, 0), DeviceGain(HOSTILE)),
        gaps=(Gap("freeable memory", f"only 17 objects were looked through {HOSTILE}"),),
    )  # fmt: skip


# An output, and an error whose traceback shares memory with a name.
LISTED = FreeHistoryReport(nbytes=64 * MIB, entries=(
    FreeableMemory("Out[12]", "history", 48 * MIB, 2, 48 * MIB, device_bytes={"cuda:0": 48 * MIB}, code="%xdel _12"),
    FreeableMemory("the last error (ValueError)", "traceback", 16 * MIB, 1, 40 * MIB, shared_with=("net", "opt")),
))  # fmt: skip
GAINS = (DeviceGain("cpu", process=3 * MIB), DeviceGain("cuda:0", 64 * MIB, 96 * MIB, 96 * MIB))
SAMPLES = {
    "nothing": FreeHistoryReport(),
    "listed": LISTED,
    "dropped": replace(LISTED, dropped=True, freed=64 * MIB, storages=3, gains=GAINS),
    "hostile": full(),
}
