"""What only a session's history keeps in memory, and what letting go of it brought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap
from tensormagic.reports.memory import Release


@dataclass(frozen=True, slots=True)
class DeviceGain:
    """By how much a device's figures went down; None where nobody counts them.

    Attributes:
        device: As torch writes it.
        allocated: Bytes that torch's allocator counts as in use by tensors.
        reserved: Bytes that it has taken from the device.
        process: Bytes that this process takes: on the CPU its resident memory, which Python and the system give back
            when it suits them.
    """

    device: str
    allocated: int | None = None
    reserved: int | None = None
    process: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeingReport(Report):
    """What outputs and the last error keep that nothing else does.

    Attributes:
        entries: Each output and error that keeps something, the most first; bytes are what it frees by itself.
        nbytes: Bytes that all of them free together.
        dropped: Whether they were let go of.
        freed: Bytes of the storages that were gone afterwards, as measured; 0 where nothing was dropped.
        storages: How many those were.
        gains: What the devices' own figures say.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "freeing"

    entries: tuple[Release, ...] = ()
    nbytes: int = 0
    dropped: bool = False
    freed: int = 0
    storages: int = 0
    gains: tuple[DeviceGain, ...] = ()
    gaps: tuple[Gap, ...] = ()
