"""Several tensors over the same memory: which bytes each of them reads, and which they have in common.

Everything here counts in *bytes*, so that tensors of different element sizes lie on one strip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap


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
