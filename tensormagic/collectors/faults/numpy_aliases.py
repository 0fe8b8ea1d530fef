"""Finds saved tensors that were changed through a NumPy array over the same memory, of which autograd hears nothing.

Who writes to ``a = x.detach().numpy()`` changes ``x`` and not its count of writes. NumPy tells nobody of it, so the
values are compared: where an array is handed out, and where a call makes a node of a tensor whose memory is an array's,
a checksum is kept, of 32 KB at most (of more, evenly spread pieces). A backward that begins compares those that its
graph is old enough for, and asks its nodes what they have saved only where one differs. Neither the array nor the
tensor is kept, nor a copy.
"""

from __future__ import annotations

import weakref
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.gradients.measures import bytes_at
from tensormagic.collectors.graphs.in_place import Suspect, WriteRecord, matters
from tensormagic.collectors.graphs.saved_tensors import saved_by
from tensormagic.collectors.where.source import SourceLines

MOST_SEEN = 64  # checksums that are kept; the oldest are forgotten first
MOST_FOLLOWED = 16  # arrays that calls are compared with
PIECE, PIECES = 1 << 11, 16  # bytes

# Of what these save only the signs count, and features that are scaled in place keep theirs.
_SIGNS_ALONE = ("Relu", "LeakyRelu", "Threshold", "Abs")
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class Seen(NamedTuple):
    """What lay in a piece of memory when an array over it was handed out, or when nodes were made of it.

    Attributes:
        record: Who handed out the array; its address is that of the piece.
        memory: The storage, weak.
        nbytes: Of the piece.
        checksum: Of its bytes then.
        first: The lowest sequence number of a node whose saved tensor is compared with it,
        last: and one past the highest.
    """

    record: WriteRecord
    memory: Any
    nbytes: int
    checksum: int
    first: int
    last: int

    def differs(self) -> bool:
        """Return whether something else lies there now; False where the memory was given back."""
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self.memory.cdata)  # keeps it meanwhile
        if storage is None:
            return False
        start, address = storage.data_ptr(), self.record.address
        is_there = start <= address and address + self.nbytes <= start + storage.nbytes()
        return is_there and checksum(address, self.nbytes) != self.checksum


def checksum(address: int, nbytes: int) -> int:
    """Return a checksum of memory on the CPU: of all of it, or of pieces where it is large."""
    if nbytes <= PIECE * PIECES:
        return zlib.crc32(memoryview(bytes_at(address))[:nbytes])
    found = 0
    for at in range(PIECES):
        start = address + (nbytes - PIECE) * at // (PIECES - 1)
        found = zlib.crc32(memoryview(bytes_at(start))[:PIECE], found)
    return found


class NumpyAliases:
    """The arrays over tensors' memory that a run knows of.

    Args:
        sites: Interns the person's lines.

    Attributes:
        marks: By address, the arrays that are still there, or the storages over them, weak, and who handed them out.
        seconds: Spent on what was used.
        gap: Why something could not be looked at; empty where all could.
    """

    def __init__(self, sites: SourceLines) -> None:
        self._sites = sites
        self._seen: deque[Seen] = deque(maxlen=MOST_SEEN)
        self._changed: list[Seen] = []  # found by `concern`
        self.marks: dict[int, tuple[weakref.ref[Any], WriteRecord]] = {}
        self.seconds, self.gap = 0.0, ""

    def handed(self, call: str, given: Any, result: Any, frame: FrameType) -> None:
        """Note an array that was made of a tensor, or a tensor of an array, where the two share their memory."""
        array, x = (given, result) if isinstance(given, np.ndarray) else (result, given)
        if not isinstance(array, np.ndarray) or not _is_followable(x) or not array.flags.writeable:
            return
        address = x.data_ptr()
        if array.__array_interface__["data"][0] != address:
            return  # it is a copy
        start = _sequence_number()
        record = WriteRecord(address, x._version, start, start, self._sites.of_frame(frame), call, blind=True)
        if array is result:  # of an array that was given nothing can have been saved before
            self._see(record, x, 0, start)
            self._follow(address, array, record)
        else:  # a weak reference to the person's own array would keep NumPy from resizing it
            self._follow(address, x.untyped_storage(), record)

    def _follow(self, address: int, holder: Any, record: WriteRecord) -> None:
        """Compare calls with what lies there while ``holder`` lives."""
        marks = self.marks
        if len(marks) >= MOST_FOLLOWED:
            marks.pop(next(iter(marks)), None)

        def gone(reference: weakref.ref[Any]) -> None:
            if (known := marks.get(address)) is not None and known[0] is reference:
                del marks[address]

        marks[address] = weakref.ref(holder, gone), record

    def _see(self, record: WriteRecord, x: torch.Tensor, first: int, last: int) -> None:
        memory = StorageWeakRef(x.untyped_storage())  # type: ignore[no-untyped-call]
        self._seen.append(Seen(record, memory, x.nbytes, checksum(record.address, x.nbytes), first, last))

    def used(self, made: tuple[int, int], args: tuple[Any, ...]) -> None:
        """Look whether a call that made nodes of these numbers was given memory that is an array's (0.4 µs).

        Never raises.
        """
        marks = self.marks
        try:
            for x in args:
                if type(x) in _PLAIN and x.data_ptr() in marks:
                    self._used(x, made)
        except RuntimeError:  # it stands for others, or has no memory of its own
            return
        except Exception as error:
            self.gap = f"{type(error).__name__}: {error}"

    def _used(self, x: torch.Tensor, made: tuple[int, int]) -> None:
        began = perf_counter()
        with torch._C.DisableTorchFunction():
            if _is_followable(x):
                self._see(self.marks[x.data_ptr()][1], x, *made)
        self.seconds += perf_counter() - began

    def forget(self) -> None:
        """Forget everything."""
        self._seen.clear()
        self.marks.clear()

    def concern(self, numbers: Sequence[int]) -> bool:
        """Return whether anything that nodes with these numbers may have saved lies otherwise than it did."""
        if not self._seen or not len(numbers):
            return False
        oldest = min(numbers)
        self._changed = [one for one in self._seen if one.last > oldest and one.differs()]
        return bool(self._changed)

    def suspects(
        self, nodes: Sequence[Any], numbers: Sequence[int], name: Callable[[torch.Tensor], str]
    ) -> list[Suspect]:
        """Return what the nodes of a backward that begins had saved before it was changed; `concern` comes first."""
        found: list[Suspect] = []
        for place, number in enumerate(numbers):
            about = [one for one in self._changed if one.first <= number < one.last]
            if about and not hasattr(nodes[place], "variable"):
                found += _modified_saved(nodes[place], place, about, name)
        return found


def _modified_saved(
    node: Any, place: int, changed: Sequence[Seen], name: Callable[[torch.Tensor], str]
) -> list[Suspect]:
    found: list[Suspect] = []
    for saved in () if node.name().startswith(_SIGNS_ALONE) else saved_by(node):
        if saved.versions is None and matters(node, saved.slot) and _is_followable(saved.tensor):
            records = tuple(one.record for one in changed if _is_of(one, saved.tensor))
            if records:
                found.append(Suspect(place, saved.slot, name(saved.tensor), tuple(saved.tensor.shape), records))
    return found


def _is_of(one: Seen, x: torch.Tensor) -> bool:
    """Return whether a tensor is the very piece of memory."""
    return x.data_ptr() == one.record.address and x.nbytes == one.nbytes


def _address(x: torch.Tensor) -> int:
    try:
        return x.data_ptr()
    except RuntimeError:  # it stands for others, or has no memory of its own
        return 0


def _is_followable(x: Any) -> bool:
    return (
        type(x) in _PLAIN and x.layout is torch.strided and x.is_cpu and not x.is_inference()
        and not x.is_neg() and not x.is_conj() and x.is_contiguous() and x.numel() > 0 and _address(x) != 0
    )  # fmt: skip
