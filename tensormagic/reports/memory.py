"""Where the memory is: every storage that is alive, what only the session keeps, and the moment at which it ran out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from tensormagic.errors import ReportFormatError
from tensormagic.reports.aliases import Holder
from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.watch import RetainedMemory, StorageKeepingView, StoredGraph


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The moment at which an allocation was refused.

    Numbers out of a message are as exact as torch writes them there: ``"1.25 GiB"``.
    """

    device: str  #: Where.
    asked: int | None  #: Bytes asked for; None where the message does not say.
    op: str = ""  #: The operation that asked; empty where unknown.
    location: Location | None = None  #: The user's line.
    message: str = ""  #: torch's message.
    free: int | None = None  #: Bytes free at that moment; None where unknown.
    total: int | None = None  #: Bytes of the device, or the most that torch may take of it; None where unknown.
    allocated: int | None = None  #: Bytes that torch's allocator counted as in use; None likewise.
    reserved: int | None = None  #: Bytes that it had reserved and that were in no use; None likewise.
    #: Bytes of the storages that nothing but the functions that failed leads to: they are free once the error is let go
    #: of. None where that was not looked at.
    only_error: int | None = None


# Where the memory is: every storage that is alive, what it is for, what it is called, and who holds it.
#
# A storage counts once, however many tensors read it. Bytes are those of storages (what an allocator was asked for),
# not of elements; what the allocator keeps in reserve beyond them is counted apart, by device.

Category = Literal["parameter", "gradient", "optimizer state", "saved for backward", "buffer", "input", "other"]
FreeableKind = Literal["name", "history", "traceback", "item"]
Key = TypeVar("Key", bound=Hashable)

CATEGORIES: tuple[Category, ...] = (
    "parameter", "gradient", "optimizer state", "saved for backward", "buffer", "input", "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What another process takes of a device, where the driver reports it."""

    pid: int  #: Its number.
    name: str  #: Its program; empty where unknown.
    nbytes: int | None  #: What it takes; None where the driver does not report it.


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device, and what is known of its memory."""

    device: str  #: As torch writes it: ``"cpu"``, ``"cuda:0"``, ``"mps:0"``.
    name: str = ""  #: What the maker calls it; empty where unknown.
    live: int = 0  #: Bytes of the storages that were found on it, each once.
    storages: int = 0  #: How many those are.
    tensors: int = 0  #: How many tensors lie over them.
    allocated: int | None = None  #: Bytes that torch's allocator counts as in use by tensors; None on the CPU.
    reserved: int | None = None  #: Bytes that torch's allocator has taken from the device; None likewise.
    peak: int | None = None  #: The most that was allocated since the counters were reset; None likewise.
    largest_free: int | None = None  #: The largest block that is free inside what is reserved; None likewise.
    free: int | None = None  #: Bytes free on the device, as the driver says (CPU: memory available to this process).
    total: int | None = None  #: Bytes of the device.
    process: int | None = None  #: Bytes that this process takes, as the driver says (CPU: its resident memory).
    others: tuple[ProcessUse, ...] = ()  #: Other processes on the device, the largest first.
    context: int | None = None  #: Bytes that this process takes beyond what torch has reserved; None where unknown.

    @property
    def fragmentation(self) -> float | None:
        """The share of the reserved but unused memory that lies outside its largest block: 0 is none, near 1 is bad."""
        if self.reserved is None or self.allocated is None or self.largest_free is None:
            return None
        unused = self.reserved - self.allocated
        return 1 - self.largest_free / unused if unused > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LiveStorage:
    """One storage."""

    name: str  #: The best name: the nearest path that a user would write; empty where it has none.
    nbytes: int  #: Of the storage.
    device: str  #: As torch writes it.
    category: Category  #: What it is for.
    dtype: str = ""  #: Of the tensor that stands for it (the first that was met), without the ``torch.`` prefix.
    shape: tuple[int, ...] = ()  #: Likewise.
    tensors: int = 1  #: How many tensors lie over it, as far as they were met.
    holders: tuple[Holder, ...] = ()  #: Who keeps it alive: the nearest few.
    found: int = 0  #: How many places hold it in truth.
    module: str = ""  #: Path of the module it belongs to, for parameters, buffers, gradients: ``"net.layer1.0"``.
    #: The line that allocated it, where it was seen: by a run that was followed, by CUDA's allocator.
    location: Location | None = None
    backward: bool = False  #: Whether the backward of what that line computed allocated it, not the line itself.
    shared: bool = False  #: Whether its memory is not torch's alone: a NumPy array's, a file's, another process's.


@dataclass(frozen=True, slots=True)
class FreeableMemory:
    """What letting go of one name, output or error would free, by itself; or of something that lies in one."""

    name: str  #: ``"losses"``, ``"Out[12]"``, ``"the last error (ValueError)"``.
    kind: FreeableKind  #: What sort of root it is.
    nbytes: int  #: Bytes of the storages that nothing else keeps alive: those that would be freed.
    storages: int  #: How many those are.
    reaches: int  #: Bytes of all the storages that it leads to, shared ones included.
    shared_with: tuple[str, ...] = ()  #: What else leads to the largest of the shared ones and would have to go, too.
    device_bytes: dict[str, int] | None = None  #: ``nbytes`` by device.
    code: str = ""  #: What to run; empty where there is no safe way.
    #: What letting go of something inside of it would free: all items of a container, a single one, an attribute. The
    #: largest few.
    parts: tuple[FreeableMemory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport(Report):
    """Where the memory is, now."""

    kind_name: ClassVar[str] = "memory"

    devices: tuple[DeviceMemory, ...] = ()  #: Each device that holds something or was asked for.
    storages: tuple[LiveStorage, ...] = ()  #: The largest first; all, or the largest `listed`, the rest in `left_out`.
    #: Storages that are not listed, summed up: a `LiveStorage` a device and category, whose name is empty and whose
    #: `tensors` is their number.
    left_out: tuple[LiveStorage, ...] = ()
    freeable: tuple[FreeableMemory, ...] = ()  #: What letting go of each name would free, the most first.
    #: Large storages that only the session's history or the last error keeps alive, the largest first.
    retained: tuple[RetainedMemory, ...] = ()
    views: tuple[StorageKeepingView, ...] = ()  #: Views that alone keep a larger storage alive, the largest first.
    graphs: tuple[StoredGraph, ...] = ()  #: Graphs that stored results keep alive, the largest first.
    looked: int = 0  #: How many objects were looked through.
    title: str = ""  #: What was asked for; empty for the whole session.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.

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


@dataclass(frozen=True, slots=True)
class DeviceGain:
    """By how much a device's figures went down; None where nobody counts them."""

    device: str  #: As torch writes it.
    allocated: int | None = None  #: Bytes that torch's allocator counts as in use by tensors.
    reserved: int | None = None  #: Bytes that it has taken from the device.
    #: Bytes that this process takes: on the CPU its resident memory, which Python and the system give back when it
    #: suits them.
    process: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeHistoryReport(Report):
    """What outputs and the last error keep that nothing else does."""

    kind_name: ClassVar[str] = "freeing"

    entries: tuple[FreeableMemory, ...] = ()  #: Each output and error that keeps something, the most first.
    nbytes: int = 0  #: Bytes that all of them free together.
    dropped: bool = False  #: Whether they were let go of.
    freed: int = 0  #: Bytes of the storages that were gone afterwards, as measured; 0 where nothing was dropped.
    storages: int = 0  #: How many those were.
    gains: tuple[DeviceGain, ...] = ()  #: What the devices' own figures say.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.
