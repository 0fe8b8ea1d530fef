"""Who else touches a tensor's memory, who keeps it alive, and several tensors on one strip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.errors import ReportFormatError
from tensormagic.reports.base import Gap, Location, Report

HolderKind = Literal[
    "name", "item", "attribute", "history", "module", "optimizer",
    "graph", "traceback", "function", "generator", "array", "view",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Holder:
    """One reference that keeps a tensor, or only its storage, alive."""

    #: How it is reached: ``"x"``, ``"batch[0]"``, ``"Out[12]"``, ``"opt.state[w]['exp_avg']"``, ``"step, closure over
    #: x"``, ``"graph of loss: MmBackward0, saved as self"``.
    path: str
    kind: HolderKind  #: What sort of place that is.
    #: ``"tensor"`` where it holds the tensor itself, ``"storage"`` where another tensor or array over the same memory
    #: is held: deleting the tensor then frees nothing.
    holds: Literal["tensor", "storage"]
    nbytes: int = 0  #: Bytes that the other tensor reads; 0 where it is the tensor itself.
    location: Location | None = None  #: The line at which a traceback or a generator stands.


@dataclass(frozen=True, slots=True)
class HoldersReport:
    """Everything found that keeps a tensor or its storage alive."""

    holders: tuple[Holder, ...]  #: Those that hold the tensor itself first; the nearest way to each.
    found: int  #: How many there are in truth; more than are listed where there are very many.
    looked: int  #: How many objects were looked through.
    cut: str = ""  #: Why the search ended before everything was looked at; empty where it did not.
    unreached: int | None = None  #: How many tensors torch counts on the storage beyond these; None where unknown.

    @property
    def of_tensor(self) -> tuple[Holder, ...]:
        """Those that hold the tensor itself."""
        return tuple(holder for holder in self.holders if holder.holds == "tensor")

    @property
    def of_storage(self) -> tuple[Holder, ...]:
        """Those that hold only its storage."""
        return tuple(holder for holder in self.holders if holder.holds == "storage")


Overlap = Literal["yes", "no", "maybe"]

# How something comes to lie in a piece of memory.
RELATIONS = {
    "owner": "the memory was made for it",
    "view": "a view of its base, as torch or NumPy record it",
    "detached": "the same storage and the same version counter: `.detach()`",
    "data": "the same storage, but its own version counter: `.data`, `nn.Parameter(x)`, `set_`",
    "same storage": "the same storage; whether it shares the version counter is unknown",
    "wraps": "a torch storage over memory from outside torch: `from_numpy`, `frombuffer`, `from_dlpack`",
    "array": "a NumPy array over a tensor's memory: `.numpy()`",
    "capsule": "a NumPy array over memory that came through DLPack",
    "buffer view": "a NumPy array over an object that exports a buffer",
    "buffer": "an object that exports its memory: bytes, bytearray, memoryview, array, mmap",
    "part": "one of the tensors that a sparse or jagged tensor is made of",
    "storage": "the storage object itself",
}


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name (or an unnamed object) whose memory lies in the same storage."""

    #: As it is in the namespace (``"a"``, ``"net.fc.weight"``, ``"batch[0]"``), or what reaches it (``"x._base"``)
    #: where no name does.
    name: str
    #: How it comes to share: ``"same object"``, ``"base"``, ``"view of the same base"``, ``"view of it"``, ``"same
    #: storage"`` (``.data``, ``.detach()``, ``set_``), ``"NumPy array"``, ``"buffer"``.
    relation: str
    kind: str  #: ``"Tensor"``, ``"Parameter"``, ``"ndarray"`` …
    shape: tuple[int, ...]  #: Its shape.
    #: How many of *its* elements, each place in memory counted once, have a byte in common with the inspected tensor;
    #: None where counting was given up ("may overlap").
    overlap_elements: int | None
    of_elements: int  #: How many elements it has itself.
    overlap: Literal["yes", "no", "maybe"]  #: ``"yes"``, ``"no"`` or ``"maybe"``: exact wherever it is not maybe.
    version: int | None  #: The value of its version counter; None where it has none (NumPy arrays, inference tensors).
    #: Whether it counts its writes on the same version counter as the inspected tensor, so that autograd notices them
    #: (views and ``.detach()`` do, ``.data`` and NumPy do not); None where that cannot be told without writing.
    shares_version: bool | None


@dataclass(frozen=True, slots=True)
class AliasMember:
    """One object whose memory lies in a group's: a tensor, an array, a buffer; under all its names."""

    names: tuple[str, ...]  #: The shortest first; at most a few.
    names_found: int  #: How many there are.
    kind: str  #: ``"Tensor"``, ``"Parameter"``, ``"ndarray"``, ``"bytearray"`` …
    dtype: str  #: Without a prefix; empty for what has none.
    shape: tuple[int, ...]  #: Its shape.
    start: int  #: Its first byte, counted from the group's.
    stop: int  #: One past its last byte.
    elements: int  #: How many elements it has.
    relation: str  #: How it comes to lie there, one of `RELATIONS`.
    base: str = ""  #: What it is a view of, or whose memory it has; empty where that has no name.
    operations: tuple[str, ...] = ()  #: The view operations that made it from its base, first to last, where recorded.
    version: int | None = None  #: The value of its version counter; None where it has none.
    counter: int | None = None  #: Which of the group's version counters that is, from 1; None without or unknown.
    requires_grad: bool = False  #: Whether gradients are recorded for it.
    overlap: Overlap = "no"  #: Whether two of its own elements are the same memory.
    #: For each of the group's cells, which part of its bytes it reads; None where that was not counted.
    coverage: tuple[float | None, ...] = ()

    @property
    def name(self) -> str:
        """The shortest name."""
        return self.names[0]


@dataclass(frozen=True, slots=True)
class AliasPair:
    """Two members of a group, and how much of one the other can read and write."""

    left: str  #: Name of the one.
    right: str  #: Name of the other.
    overlap: Overlap  #: ``"yes"``, ``"no"`` or ``"maybe"``: exact wherever it is not maybe.
    #: How many different elements of ``left`` have a byte in common with ``right``; None where counting was given up.
    overlap_elements: int | None
    reverse_elements: int | None  #: How many different elements of ``right`` have a byte in common with ``left``.


@dataclass(frozen=True, slots=True)
class AliasGroup:
    """Everything that was found to lie in one piece of memory."""

    number: int  #: From 1, in the order in which groups are shown.
    device: str  #: As torch writes it.
    nbytes: int  #: Size of the memory: of the storage, or of the storages that lie over each other.
    storages: int  #: How many storage objects of torch there are over it.
    cell_bytes: int  #: Bytes in one cell of the members' ``coverage``; the last cell may hold fewer.
    members: tuple[AliasMember, ...]  #: What lies in it; at most a few dozen.
    found: int  #: How many there are.
    pairs: tuple[AliasPair, ...] = ()  #: Which members were compared: all of a small group, else those that overlap.
    pairs_complete: bool = True  #: Whether none that overlap was left out for being too many.


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasReport(Report):
    """Who shares memory with whom: everything that can be named, by the memory it lies in."""

    kind_name: ClassVar[str] = "aliases"

    #: Memory that is reached by more than one name, what has most members first. A group of one member is one object
    #: under several names.
    groups: tuple[AliasGroup, ...] = ()
    groups_found: int = 0  #: How many there are; more than in ``groups`` where there are very many.
    alone: int = 0  #: How many tensors and arrays share with no other.
    alone_bytes: int = 0  #: How much memory those hold.
    tensors: int = 0  #: How many tensors were found.
    arrays: int = 0  #: How many NumPy arrays and buffers were found.
    asked: tuple[str, ...] = ()  #: The names it was asked for; empty where for all.
    unshared: tuple[str, ...] = ()  #: Of these, the ones whose memory nothing else reads.
    looked: int = 0  #: How many names, items and attributes were looked through.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.

    @property
    def pairs(self) -> tuple[AliasPair, ...]:
        """Every pair that was compared, of all groups."""
        return tuple(pair for group in self.groups for pair in group.pairs)


# Several tensors over the same memory: which bytes each of them reads, and which they have in common.
#
# Everything here counts in *bytes*, so that tensors of different element sizes lie on one strip.


@dataclass(frozen=True, slots=True)
class OverlayMember:
    """One of the tensors (or NumPy arrays) that are compared."""

    name: str  #: The expression or name it goes by.
    kind: str  #: ``"Tensor"``, ``"Parameter"``, ``"ndarray"`` …
    dtype: str  #: Without the ``torch.`` prefix.
    shape: tuple[int, ...]  #: Sizes.
    stride: tuple[int, ...]  #: In elements of its own; in bytes where an array's strides are no whole elements.
    element_size: int  #: Bytes an element.
    first_byte: int | None  #: Where its lowest byte lies, from the first byte of the memory; None without elements.
    distinct_bytes: int | None  #: How many bytes it reads; None where that is too hard to count.

    @property
    def elements(self) -> int:
        """How many elements it has, repeats counted."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class OverlayElement:
    """One stored element of a member."""

    start: int  #: Its first byte.
    index: tuple[int, ...]  #: An index that reads it: the first in reading order.
    reads: int  #: How many indices read it.


@dataclass(frozen=True, slots=True)
class OverlayRow:
    """What one member reads of the part of the memory that is drawn."""

    member: int  #: Its place in `OverlayReport.members`.
    bytes_read: tuple[int | None, ...]  #: For each cell how many of its bytes are read; None where not known exactly.
    elements: tuple[OverlayElement, ...] = ()  #: Every stored element, by position; empty where there are too many.


@dataclass(frozen=True, slots=True)
class OverlayPair:
    """What two members have in common."""

    left: int  #: Place of the one in `OverlayReport.members`.
    right: int  #: Place of the other.
    overlap: Literal["yes", "no", "maybe"]  #: ``"yes"``, ``"no"`` or ``"maybe"``: exact wherever it is not maybe.
    common_bytes: int | None  #: How many bytes both read; None where counting was given up.
    left_elements: int | None  #: How many stored elements of the one have a byte in common with the other.
    right_elements: int | None  #: How many stored elements of the other have a byte in common with the one.


@dataclass(frozen=True, slots=True)
class OverlayStorage:
    """One piece of memory, and the members that lie in it."""

    members: tuple[int, ...]  #: Places in `OverlayReport.members`.
    address: int  #: Of its first byte; 0 where there is no memory.
    nbytes: int  #: How many bytes it has.
    device: str  #: As torch writes it.
    start: int = 0  #: First byte drawn.
    stop: int = 0  #: One past the last byte drawn.
    cell_bytes: int = 1  #: Bytes in one cell.
    rows: tuple[OverlayRow, ...] = ()  #: What each member reads; empty for a single one.
    readers: tuple[int, ...] = ()  #: For each cell how many members read in it; empty where elements are joined.
    pairs: tuple[OverlayPair, ...] = ()  #: What each two of them have in common.
    exact: bool = True  #: False where counts had to be sampled.


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayReport(Report):
    """Several tensors on one strip of memory."""

    kind_name: ClassVar[str] = "overlay"

    members: tuple[OverlayMember, ...]  #: The tensors, in the order given.
    storages: tuple[OverlayStorage, ...]  #: The memory they lie in: pieces that several share, and pieces of their own.
    gaps: tuple[Gap, ...] = ()  #: Which of them have no memory that could be compared, and why.

    @property
    def shared(self) -> tuple[OverlayStorage, ...]:
        """The pieces of memory in which more than one of them lies."""
        return tuple(storage for storage in self.storages if len(storage.members) > 1)

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there."""
        for storage in self.storages:
            places = [*storage.members, *(row.member for row in storage.rows)]
            places += [place for pair in storage.pairs for place in (pair.left, pair.right)]
            if not all(0 <= place < len(self.members) for place in places):
                raise ReportFormatError("a piece of memory has a member that is not there")
            if not 0 <= storage.start <= storage.stop <= max(storage.nbytes, storage.stop) or storage.cell_bytes < 1:
                raise ReportFormatError("a piece of memory is drawn where it is not")
            cells = -(-(storage.stop - storage.start) // storage.cell_bytes)
            for row in storage.rows:
                if len(row.bytes_read) > cells or (storage.readers and len(storage.readers) > cells):
                    raise ReportFormatError("a piece of memory has more cells than bytes")
                if not all(storage.start <= element.start < storage.stop for element in row.elements):
                    raise ReportFormatError("an element is outside the drawn memory")
