"""What is remembered of a storage, and the rhythm of the run in which it lives."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable
from typing import Any

import torch

from tensormagic.reports.memory import Category
from tensormagic.reports.ops import Phase

__all__ = ["JOINING", "Iterations"]


# What is remembered of a storage: numbers, and a weak reference that tells the moment of its death.
#
# The Python object of a storage lives as long as the storage itself, whoever holds that: tensors, views, autograd
# graphs or C++ alone. So a weak reference to it, with a callback, tells exactly when the memory is given back, and
# keeps nothing alive.


class Place:
    """Where operations are called from: a line in a module, in one phase.

    Attributes:
        site: Number of the line; None where none of the person's is running.
        module: Path of the innermost module.
        phase: What the line is doing.
        grown: The same place, for calls that autograd records: these are a forward.
        backward: The same place, for what the backward of such calls allocates.
    """

    __slots__ = ("_backward", "grown", "module", "phase", "site")

    def __init__(self, site: int | None, module: str, phase: Phase) -> None:
        self.site, self.module, self.phase = site, module, phase
        self.grown = Place(site, module, "forward") if phase == "other" else self
        self._backward: Place | None = None

    @property
    def backward(self) -> Place:
        """The place of what the backward of a call from here allocates."""
        if self._backward is None:
            self._backward = Place(self.site, self.module, "backward")
        return self._backward


class Block(weakref.ref[torch.UntypedStorage]):
    """One storage, in a run: a weak reference to it, with what is known of it.

    Attributes:
        key: Address of the C++ storage: its identity while it lives.
        nbytes: Its bytes, as far as they were added up.
        size: Its bytes when last looked at.
        device: Its device.
        place: Where it was allocated; None where it was there before the run.
        by_engine: Whether the engine of autograd asked for it, with no line of the person's above: `place` is that
            of the call whose backward it is.
        op: Name of the operation that allocated it.
        born: Number of that operation.
        seconds: When that was, by the clock of the run.
        task: Number of the backward that allocated it; -1 where none did.
        dtype: Of the first tensor over it.
        shape: Likewise.
        before: Whether it was there before the run.
        shared: Whether its bytes count with another storage, which lies over the same memory: a NumPy array's.
        start: Index of the first moment of the timeline at which it counts with its present size.
        pieces: Where it was grown or shrunk: first moment, last moment (not included), and bytes in between.
        died: Number of the operation during or after which it was freed.
        category: What it was for, where that is known.
    """

    __slots__ = (
        "before", "born", "by_engine", "category", "device", "died", "dtype", "key", "nbytes", "op", "pieces", "place",
        "seconds", "shape", "shared", "size", "start", "task",
    )  # fmt: skip

    key: int
    nbytes: int
    size: int
    device: torch.device
    place: Place | None
    by_engine: bool
    op: str
    born: int
    seconds: float
    task: int
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    before: bool
    shared: bool
    start: int
    pieces: list[tuple[int, int, int]] | None
    died: int | None
    category: Category | None

    __hash__ = object.__hash__  # by itself: the storage may be gone, and its address another's
    __eq__ = object.__eq__

    @property
    def site(self) -> int | None:
        """Number of the line that allocated it."""
        return None if self.place is None else self.place.site


Died = Callable[[Block], None]


def new_block(storage: torch.UntypedStorage, tensor: Any, died: Died) -> Block:
    """Return what is known of a storage by itself; ``died`` is called with the block at its death (0.9 µs)."""
    block = Block(storage, died)
    block.key = storage._cdata
    block.nbytes = block.size = storage.nbytes()
    try:
        block.device, block.dtype, block.shape = tensor.device, tensor.dtype, tensor.shape
    except Exception:  # a lazy module's parameter has no shape yet, and a class of the person's may raise anything
        block.device, block.dtype, block.shape = storage.device, None, ()
    block.place, block.op, block.born, block.seconds, block.task = None, "", 0, 0.0, -1
    block.before = block.shared = block.by_engine = False
    block.start, block.pieces, block.died, block.category = 0, None, None, None
    return block


# The rhythm of a run, noted beside its sums: where each backward began, and how large what was joined became.

MOST_JOINED = 4096  # tensors noted for one line, the latest
MOST_BACKWARDS = 1 << 20
JOINING = frozenset({"aten.cat.default", "aten.constant_pad_nd.default", "aten.stack.default"})


class Iterations:
    """What tells the rhythm of a run.

    Attributes:
        latest: The number of the last backward that was seen; whoever sees one with a greater number says so.
        backwards: Numbers of the operations at which a backward was first seen to run.
        joins: Operation and bytes of the tensors that a line joined of others.
    """

    __slots__ = ("backwards", "joins", "latest")

    def __init__(self) -> None:
        self.backwards = array("q")
        self.joins: dict[int, list[tuple[int, int]]] = {}
        self.latest = -1

    def began(self, task: int, operation: int) -> None:
        """Note that a backward with this number, greater than the latest, was running."""
        self.latest = task
        if len(self.backwards) < MOST_BACKWARDS:
            self.backwards.append(operation)

    def joined(self, block: Block) -> None:
        """Note the birth of what was joined from others."""
        if block.site is not None:
            every = self.joins.setdefault(block.site, [])
            every.append((block.born, block.nbytes))
            if len(every) > 2 * MOST_JOINED:
                del every[:MOST_JOINED]
