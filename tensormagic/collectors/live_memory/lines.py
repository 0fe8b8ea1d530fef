"""Which line allocated what is alive: noted by a run that was followed, or by CUDA's allocator where it records.

What a run has seen is known until the storage dies: a weak reference to it, two numbers that tell whether its memory is
still the one that was seen, and the line. Nothing is guessed: a storage that nobody saw being allocated has no line.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from tensormagic.collectors.where.caller import own_frame
from tensormagic.collectors.where.source import location_of
from tensormagic.reports import Location

MOST = 100_000  # storages, each some 200 bytes: those that were noted first are forgotten

_is_recording: Callable[[], bool] = getattr(torch._C, "_cuda_isHistoryEnabled", bool)  # not there in old builds


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a storage was allocated.

    Attributes:
        location: The line.
        backward: Whether the backward of what that line computed allocated it, rather than the line itself.
    """

    location: Location
    backward: bool = False


class _Noted(weakref.ref[torch.UntypedStorage]):
    """A storage whose line is known.

    Attributes:
        key: Address of the C++ storage: its identity while it lives.
        nbytes: Its bytes when it was noted.
        address: Of its first byte then: another one, and other code has given it new memory since.
        origin: Where it was allocated.
    """

    __slots__ = ("address", "key", "nbytes", "origin")

    key: int
    nbytes: int
    address: int
    origin: Origin


_noted: dict[int, _Noted] = {}


def note_lines(every: Iterable[tuple[torch.UntypedStorage, Origin]]) -> None:
    """Remember which lines allocated storages (1 µs each); keeps none of them alive."""
    for storage, origin in every:
        known = _Noted(storage, _forget)
        known.key, known.nbytes, known.address = storage._cdata, storage.nbytes(), storage.data_ptr()
        known.origin = origin
        _noted.pop(known.key, None)
        _noted[known.key] = known
    for key in list(_noted)[: max(len(_noted) - MOST, 0)]:
        _noted.pop(key, None)


def _forget(known: _Noted) -> None:
    if _noted.get(known.key) is known:
        del _noted[known.key]


def noted_line(storage: torch.UntypedStorage) -> Origin | None:
    """Return the line that a run saw allocating a storage; None where none did, or where its memory is new since."""
    known = _noted.get(storage._cdata)
    if known is None or known() is None:
        return None
    same = known.nbytes == storage.nbytes() and known.address == storage.data_ptr()
    return known.origin if same else None


def _records(cuda: Any, recording: Callable[[], bool]) -> bool:
    """Return whether stacks are there to ask for; of an allocator that is not torch's own they are not."""
    try:
        return bool(cuda.is_initialized() and recording())
    except RuntimeError:  # "cudaMallocAsync does not yet support recordHistory", and any other allocator likewise
        return False


class Lines:
    """Tells the lines of storages, for one look.

    Args:
        cuda: ``torch.cuda``; it is not started by looking.
        recording: Whether CUDA's allocator records where memory is taken.
    """

    def __init__(self, cuda: Any = torch.cuda, recording: Callable[[], bool] = _is_recording) -> None:
        self._traceback = getattr(cuda.memory, "_allocation_traceback", None) if _records(cuda, recording) else None

    def of(self, storage: torch.UntypedStorage) -> Origin | None:
        """Return the line that allocated a storage, where anybody saw it. Never raises."""
        try:
            return noted_line(storage) or self._recorded(storage)
        except Exception:  # a storage of an odd kind may refuse to say where
            return None

    def _recorded(self, storage: torch.UntypedStorage) -> Origin | None:
        """Return the person's innermost line on the stack that the allocator keeps with a block in use."""
        if self._traceback is None or storage.device.type != "cuda":
            return None
        own = own_frame(self._traceback(storage.data_ptr()))
        return None if own is None else Origin(location_of(*own))
