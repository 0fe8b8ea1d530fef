"""Who else touches a tensor's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap

Overlap = Literal["yes", "no", "maybe"]

# How something comes to lie in a piece of memory.
RELATIONS = {
    "owner": "the memory was made for it",
    "view": "a view of its base, as torch or NumPy know it",
    "detached": "the same storage and the same version counter: `.detach()`",
    "data": "the same storage, a version counter of its own: `.data`, `nn.Parameter(x)`, `set_`",
    "same storage": "the same storage; whether it shares the version counter cannot be told",
    "wraps": "a torch storage over memory that is not torch's own: `from_numpy`, `frombuffer`, `from_dlpack`",
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
        name: As it stands in the namespace (``"a"``, ``"net.fc.weight"``, ``"batch[0]"``), or what reaches it
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
        counter: Which of the group's version counters that is, from 1; None where it has none, or cannot be told.
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
        alone: How many tensors and arrays share with nobody.
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
