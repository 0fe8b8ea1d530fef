"""Who else touches a tensor's memory, who keeps it alive, and several tensors on one strip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.errors import ReportFormatError
from tensormagic.reports.base import Gap, Location, Report

# Who keeps a tensor alive: what has to let go before its memory is free.

HolderKind = Literal[
    "name", "item", "attribute", "history", "module", "optimizer",
    "graph", "traceback", "function", "generator", "array", "view",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Holder:
    """One reference that keeps a tensor, or only its storage, alive.

    Attributes:
        path: How it is reached: ``"x"``, ``"batch[0]"``, ``"Out[12]"``, ``"opt.state[w]['exp_avg']"``,
            ``"step, closure over x"``, ``"graph of loss: MmBackward0, saved as self"``.
        kind: What sort of place that is.
        holds: ``"tensor"`` where it holds the tensor itself, ``"storage"`` where another tensor or array over the same
            memory is held: deleting the tensor then frees nothing.
        nbytes: Bytes that the other tensor reads; 0 where it is the tensor itself.
        location: The line at which a traceback or a generator stands.
    """

    path: str
    kind: HolderKind
    holds: Literal["tensor", "storage"]
    nbytes: int = 0
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class HoldersReport:
    """Everything found that keeps a tensor or its storage alive.

    Attributes:
        holders: Those that hold the tensor itself first; the nearest way to each.
        found: How many there are in truth; more than are listed where there are very many.
        looked: How many objects were looked through.
        cut: Why the search ended before everything was looked at; empty where it did not.
        unreached: How many more tensors torch counts on the storage than were found; None where it cannot be counted.
    """

    holders: tuple[Holder, ...]
    found: int
    looked: int
    cut: str = ""
    unreached: int | None = None

    @property
    def of_tensor(self) -> tuple[Holder, ...]:
        """Those that hold the tensor itself."""
        return tuple(holder for holder in self.holders if holder.holds == "tensor")

    @property
    def of_storage(self) -> tuple[Holder, ...]:
        """Those that hold only its storage."""
        return tuple(holder for holder in self.holders if holder.holds == "storage")


# Who else touches a tensor's memory.

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
    """Another name (or an unnamed object) whose memory lies in the same storage.

    Attributes:
        name: As it is in the namespace (``"a"``, ``"net.fc.weight"``, ``"batch[0]"``), or what reaches it
            (``"x._base"``) where no name does.
        relation: How it comes to share: ``"same object"``, ``"base"``, ``"view of the same base"``,
            ``"view of it"``, ``"same storage"`` (``.data``, ``.detach()``, ``set_``), ``"NumPy array"``.
        kind: ``"Tensor"``, ``"Parameter"``, ``"ndarray"`` …
        shape: Its shape.
        overlap_elements: How many of *its* elements, each place in memory counted once, have a byte in common with the
            inspected tensor; None where counting was given up ("may overlap").
        of_elements: How many elements it has itself.
        overlap: ``"yes"``, ``"no"`` or ``"maybe"``: exact wherever it is not maybe.
        version: The value of its version counter; None where it has none (NumPy arrays, inference tensors).
        shares_version: Whether it counts its writes on the same version counter as the inspected tensor, so that
            autograd notices them (views and ``.detach()`` do, ``.data`` and NumPy do not); None where that cannot be
            told without writing.
    """

    name: str
    relation: str
    kind: str
    shape: tuple[int, ...]
    overlap_elements: int | None
    of_elements: int
    overlap: Literal["yes", "no", "maybe"]
    version: int | None
    shares_version: bool | None


@dataclass(frozen=True, slots=True)
class AliasMember:
    """One object whose memory lies in a group's: a tensor, an array, a buffer; under all its names.

    Attributes:
        names: The shortest first; at most a few.
        names_found: How many there are.
        kind: ``"Tensor"``, ``"Parameter"``, ``"ndarray"``, ``"bytearray"`` …
        dtype: Without a prefix; empty for what has none.
        shape: Its shape.
        start: Its first byte, counted from the group's.
        stop: One past its last byte.
        elements: How many elements it has.
        relation: How it comes to lie there, one of `RELATIONS`.
        base: What it is a view of, or whose memory it has; empty where that has no name.
        operations: The view operations that made it from its base, first to last, as far as autograd recorded them.
        version: The value of its version counter; None where it has none.
        counter: Which of the group's version counters that is, from 1; None where it has none, or is not known.
        requires_grad: Whether gradients are recorded for it.
        overlap: Whether two of its own elements are the same memory.
        coverage: For each of the group's cells, which part of its bytes it reads; None where that was not counted.
    """

    names: tuple[str, ...]
    names_found: int
    kind: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    elements: int
    relation: str
    base: str = ""
    operations: tuple[str, ...] = ()
    version: int | None = None
    counter: int | None = None
    requires_grad: bool = False
    overlap: Overlap = "no"
    coverage: tuple[float | None, ...] = ()

    @property
    def name(self) -> str:
        """The shortest name."""
        return self.names[0]


@dataclass(frozen=True, slots=True)
class AliasPair:
    """Two members of a group, and how much of one the other can read and write.

    Attributes:
        left: Name of the one.
        right: Name of the other.
        overlap: ``"yes"``, ``"no"`` or ``"maybe"``: exact wherever it is not maybe.
        overlap_elements: How many different elements of ``left`` have a byte in common with ``right``; None where
            counting was given up.
        reverse_elements: How many different elements of ``right`` have a byte in common with ``left``; None likewise.
    """

    left: str
    right: str
    overlap: Overlap
    overlap_elements: int | None
    reverse_elements: int | None


@dataclass(frozen=True, slots=True)
class AliasGroup:
    """Everything that was found to lie in one piece of memory.

    Attributes:
        number: From 1, in the order in which groups are shown.
        device: As torch writes it.
        nbytes: Size of the memory: of the storage, or of the storages that lie over each other.
        storages: How many storage objects of torch there are over it.
        cell_bytes: Bytes in one cell of the members' ``coverage``; the last cell may hold fewer.
        members: What lies in it; at most a few dozen.
        found: How many there are.
        pairs: Which members were compared; every two of them in a small group, else those that overlap.
        pairs_complete: Whether none that overlap was left out for being too many.
    """

    number: int
    device: str
    nbytes: int
    storages: int
    cell_bytes: int
    members: tuple[AliasMember, ...]
    found: int
    pairs: tuple[AliasPair, ...] = ()
    pairs_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasReport(Report):
    """Who shares memory with whom: everything that can be named, by the memory it lies in.

    Attributes:
        groups: Memory that is reached by more than one name, what has most members first. A group of one member is
            one object under several names.
        groups_found: How many there are; more than in ``groups`` where there are very many.
        alone: How many tensors and arrays share with no other.
        alone_bytes: How much memory those hold.
        tensors: How many tensors were found.
        arrays: How many NumPy arrays and buffers were found.
        asked: The names it was asked for; empty where for all.
        looked: How many names, items and attributes were looked through.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "aliases"

    groups: tuple[AliasGroup, ...] = ()
    groups_found: int = 0
    alone: int = 0
    alone_bytes: int = 0
    tensors: int = 0
    arrays: int = 0
    asked: tuple[str, ...] = ()
    looked: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def pairs(self) -> tuple[AliasPair, ...]:
        """Every pair that was compared, of all groups."""
        return tuple(pair for group in self.groups for pair in group.pairs)


# Several tensors over the same memory: which bytes each of them reads, and which they have in common.
#
# Everything here counts in *bytes*, so that tensors of different element sizes lie on one strip.


@dataclass(frozen=True, slots=True)
class OverlayMember:
    """One of the tensors (or NumPy arrays) that are compared.

    Attributes:
        name: The expression or name it goes by.
        kind: ``"Tensor"``, ``"Parameter"``, ``"ndarray"`` …
        dtype: Without the ``torch.`` prefix.
        shape: Sizes.
        stride: In elements of its own; in bytes where an array's strides are no whole elements.
        element_size: Bytes an element.
        first_byte: Where its lowest byte lies, counted from the first byte of the memory; None without elements.
        stop_byte: One past its highest.
        distinct_bytes: How many bytes it reads; None where that is too hard to count.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    element_size: int
    first_byte: int | None
    stop_byte: int | None
    distinct_bytes: int | None

    @property
    def elements(self) -> int:
        """How many elements it has, repeats counted."""
        number = 1
        for size in self.shape:
            number *= size
        return number


@dataclass(frozen=True, slots=True)
class OverlayElement:
    """One stored element of a member.

    Attributes:
        start: Its first byte.
        index: An index that reads it: the first in reading order.
        reads: How many indices read it.
    """

    start: int
    index: tuple[int, ...]
    reads: int


@dataclass(frozen=True, slots=True)
class OverlayRow:
    """What one member reads of the part of the memory that is drawn.

    Attributes:
        member: Its place in `OverlayReport.members`.
        bytes_read: For each cell how many of its bytes are read; None where that is not known exactly.
        elements: Every stored element, by position; empty where there are too many to draw one by one.
    """

    member: int
    bytes_read: tuple[int | None, ...]
    elements: tuple[OverlayElement, ...] = ()


@dataclass(frozen=True, slots=True)
class OverlayPair:
    """What two members have in common.

    Attributes:
        left: Place of the one in `OverlayReport.members`.
        right: Place of the other.
        overlap: ``"yes"``, ``"no"`` or ``"maybe"``: exact wherever it is not maybe.
        common_bytes: How many bytes both read; None where counting was given up.
        left_elements: How many stored elements of the one have a byte in common with the other.
        right_elements: How many stored elements of the other have a byte in common with the one.
    """

    left: int
    right: int
    overlap: Literal["yes", "no", "maybe"]
    common_bytes: int | None
    left_elements: int | None
    right_elements: int | None


@dataclass(frozen=True, slots=True)
class OverlayStorage:
    """One piece of memory, and the members that lie in it.

    Attributes:
        members: Places in `OverlayReport.members`.
        address: Of its first byte; 0 where there is no memory.
        nbytes: How many bytes it has.
        device: As torch writes it.
        start: First byte drawn.
        stop: One past the last byte drawn.
        cell_bytes: Bytes in one cell.
        rows: What each member reads; empty for a single one.
        readers: For each cell how many members read in it; empty where elements are not drawn one by one.
        pairs: What each two of them have in common.
        exact: False where counts had to be sampled.
    """

    members: tuple[int, ...]
    address: int
    nbytes: int
    device: str
    start: int = 0
    stop: int = 0
    cell_bytes: int = 1
    rows: tuple[OverlayRow, ...] = ()
    readers: tuple[int, ...] = ()
    pairs: tuple[OverlayPair, ...] = ()
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayReport(Report):
    """Several tensors on one strip of memory.

    Attributes:
        members: The tensors, in the order given.
        storages: The memory they lie in: pieces that several share, and pieces of their own.
        gaps: Which of them have no memory that could be compared, and why.
    """

    kind_name: ClassVar[str] = "overlay"

    members: tuple[OverlayMember, ...]
    storages: tuple[OverlayStorage, ...]
    gaps: tuple[Gap, ...] = ()

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
