"""Where the memory is: every storage that is alive, what only the session keeps, and the moment at which it ran out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from tensormagic.errors import ReportFormatError
from tensormagic.reports.aliases import Holder
from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.watch import KeptMemory, LoneView, StoredGraph

# The moment at which an allocation was refused: what was asked for, where, and what torch reported of the device.


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The moment at which an allocation was refused.

    Numbers out of a message are as exact as torch writes them there: ``"1.25 GiB"``.

    Attributes:
        device: Where.
        asked: Bytes asked for; None where the message does not say.
        op: The operation that asked; empty where unknown.
        location: The user's line.
        message: torch's message.
        free: Bytes free at that moment; None where unknown.
        total: Bytes of the device, or the most that torch may take of it; None where unknown.
        allocated: Bytes that torch's allocator counted as in use; None likewise.
        reserved: Bytes that it had reserved and that were in no use; None likewise.
        only_error: Bytes of the storages that nothing but the functions that failed leads to: they are free once the
            error is let go of. None where that was not looked at.
    """

    device: str
    asked: int | None
    op: str = ""
    location: Location | None = None
    message: str = ""
    free: int | None = None
    total: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    only_error: int | None = None


# Where the memory is: every storage that is alive, what it is for, what it is called, and who holds it.
#
# A storage counts once, however many tensors read it. Bytes are those of storages (what an allocator was asked for),
# not of elements; what the allocator keeps in reserve beyond them is counted apart, by device.

Category = Literal["parameter", "gradient", "optimizer state", "saved for backward", "buffer", "input", "other"]
ReleaseKind = Literal["name", "history", "traceback", "item"]
Key = TypeVar("Key", bound=Hashable)

CATEGORIES: tuple[Category, ...] = (
    "parameter", "gradient", "optimizer state", "saved for backward", "buffer", "input", "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What another process takes of a device, where the driver reports it.

    Attributes:
        pid: Its number.
        name: Its program; empty where unknown.
        nbytes: What it takes; None where the driver does not report it.
    """

    pid: int
    name: str
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device, and what is known of its memory.

    Attributes:
        device: As torch writes it: ``"cpu"``, ``"cuda:0"``, ``"mps:0"``.
        name: What the maker calls it; empty where unknown.
        live: Bytes of the storages that were found on it, each once.
        storages: How many those are.
        tensors: How many tensors lie over them.
        allocated: Bytes that torch's allocator counts as in use by tensors; None where it does not count (CPU).
        reserved: Bytes that torch's allocator has taken from the device; None likewise.
        peak: The most that was allocated since the counters were reset; None likewise.
        largest_free: The largest block that is free inside what is reserved; None likewise.
        free: Bytes free on the device, as the driver reports (on the CPU: memory available to this process).
        total: Bytes of the device.
        process: Bytes that this process takes as the driver reports (on the CPU: its resident memory).
        others: Other processes on the device, the largest first.
        context: Bytes that this process takes beyond what torch has reserved; None where unknown.
    """

    device: str
    name: str = ""
    live: int = 0
    storages: int = 0
    tensors: int = 0
    allocated: int | None = None
    reserved: int | None = None
    peak: int | None = None
    largest_free: int | None = None
    free: int | None = None
    total: int | None = None
    process: int | None = None
    others: tuple[ProcessUse, ...] = ()
    context: int | None = None

    @property
    def fragmentation(self) -> float | None:
        """The share of the reserved but unused memory that lies outside its largest block: 0 is none, near 1 is bad."""
        if self.reserved is None or self.allocated is None or self.largest_free is None:
            return None
        unused = self.reserved - self.allocated
        return 1 - self.largest_free / unused if unused > 0 else 0.0

    @property
    def unexplained(self) -> int | None:
        """Bytes that the allocator counts as in use and no storage was found for; None where it does not count."""
        return None if self.allocated is None else self.allocated - self.live


@dataclass(frozen=True, slots=True)
class LiveStorage:
    """One storage.

    Attributes:
        name: The best name: the nearest path that a user would write; empty where it has none.
        nbytes: Of the storage.
        device: As torch writes it.
        category: What it is for.
        dtype: Of the tensor that stands for it (the first that was met), without the ``torch.`` prefix.
        shape: Likewise.
        tensors: How many tensors lie over it, as far as they were met.
        holders: Who keeps it alive: the nearest few.
        found: How many places hold it in truth.
        module: Path of the module that it belongs to, for parameters, buffers and gradients: ``"net.layer1.0"``.
        location: The line that allocated it, where it was seen: by a run that was followed, by CUDA's allocator.
        backward: Whether the backward of what that line computed allocated it, rather than the line itself.
        shared: Whether its memory is not torch's alone: a NumPy array's, a file's, another process's.
    """

    name: str
    nbytes: int
    device: str
    category: Category
    dtype: str = ""
    shape: tuple[int, ...] = ()
    tensors: int = 1
    holders: tuple[Holder, ...] = ()
    found: int = 0
    module: str = ""
    location: Location | None = None
    backward: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """What letting go of one name, output or error would free, by itself; or of something that lies in one.

    Attributes:
        name: ``"losses"``, ``"Out[12]"``, ``"the last error (ValueError)"``.
        kind: What sort of root it is.
        nbytes: Bytes of the storages that nothing else keeps alive: those that would be freed.
        storages: How many those are.
        reaches: Bytes of all the storages that it leads to, shared ones included.
        shared_with: What else leads to the largest of the shared ones: names that would have to go too; at most a few.
        device_bytes: ``nbytes`` by device.
        code: What to run; empty where there is no safe way.
        parts: What letting go of something inside of it would free: all items of a container, a single one, an
            attribute. The largest few.
    """

    name: str
    kind: ReleaseKind
    nbytes: int
    storages: int
    reaches: int
    shared_with: tuple[str, ...] = ()
    device_bytes: dict[str, int] | None = None
    code: str = ""
    parts: tuple[Release, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport(Report):
    """Where the memory is, now.

    Attributes:
        devices: Each device that holds something or was asked for.
        storages: The largest first; all of them, or the largest `listed` with the rest in `left_out`.
        left_out: Storages that are not listed, summed up: a `LiveStorage` a device and category, whose name is empty
            and whose `tensors` is their number.
        releases: What letting go of each name would free, the most first.
        kept: Large storages that only the session's history or the last error keeps alive, the largest first.
        views: Views that alone keep a larger storage alive, the largest storage first.
        graphs: Graphs that stored results keep alive, the largest first.
        looked: How many objects were looked through.
        title: What was asked for; empty for the whole session.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "memory"

    devices: tuple[DeviceMemory, ...] = ()
    storages: tuple[LiveStorage, ...] = ()
    left_out: tuple[LiveStorage, ...] = ()
    releases: tuple[Release, ...] = ()
    kept: tuple[KeptMemory, ...] = ()
    views: tuple[LoneView, ...] = ()
    graphs: tuple[StoredGraph, ...] = ()
    looked: int = 0
    title: str = ""
    gaps: tuple[Gap, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all storages, on all devices."""
        return sum(device.live for device in self.devices)

    def by(self, key: Callable[[LiveStorage], Key]) -> list[tuple[Key, int]]:
        """Return the bytes of groups of storages, the largest first: ``report.by(lambda one: one.category)``."""
        totals: dict[Key, int] = {}
        for one in self.every():
            totals[key(one)] = totals.get(key(one), 0) + one.nbytes
        return sorted(totals.items(), key=lambda pair: -pair[1])

    def every(self) -> Iterable[LiveStorage]:
        """Return the storages that are listed, then the sums of the others."""
        return (*self.storages, *self.left_out)

    def check(self) -> None:
        """Raise ReportFormatError where the storages of a device are not what the device says that it holds."""
        held = dict(self.by(lambda one: one.device))
        for device in self.devices:
            if held.get(device.device, 0) != device.live:
                described = f"{device.device} holds {device.live} bytes, but its storages {held.get(device.device, 0)}"
                raise ReportFormatError(f"a memory report does not add up: {described}")


# What only a session's history keeps in memory, and what letting go of it brought.


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
