"""The blocks of memory that are alive, and the lines that allocated them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.objects.identity import Marks
from tensormagic.collectors.objects.referents import Place
from tensormagic.collectors.quiet import number, told
from tensormagic.collectors.where.caller import own_frame
from tensormagic.collectors.where.source import location_in, location_of, names_of, own_frames
from tensormagic.reports import Category, Holder, Location

# What memory is for. One storage may play several roles: a weight is what a graph saved for backward, too, and an
# optimizer's state may be a view into it. The first of these that fits counts.
#
# - *parameter*: an ``nn.Parameter``, or what an optimizer updates.
# - *gradient*: the ``.grad`` of a tensor.
# - *optimizer state*: what an optimizer holds besides its parameters: moments, momentum buffers, steps.
# - *buffer*: registered as a buffer of a module.
# - *input*: what a data set or loader holds; and what has a name, was not computed with gradients, and was saved by a
#   graph that is still alive: the batch that a model was given. Once a backward has freed the graph, nothing shows a
#   batch from another tensor.
# - *saved for backward*: what a live graph keeps for its backward, and is none of these.
# - *other*: everything else.

PRECEDENCE: tuple[Category, ...] = (
    "parameter", "gradient", "optimizer state", "buffer", "input", "saved for backward", "other",
)  # fmt: skip


def category_of(roles: Collection[Category]) -> Category:
    """Return what a storage is for."""
    return min(roles, key=PRECEDENCE.index, default="other")


# Pieces of memory, each once: what lies over them, and who leads to them.
#
# Two storage objects can lie over the same bytes: each ``torch.from_numpy(a)`` makes a new one. They are one piece of
# memory, and its bytes count once.


@dataclass(slots=True)
class Block:
    """One piece of memory. Holds tensors: to be dropped as soon as it has been reported."""

    memory: Memory  # Where it lies.
    part: torch.Tensor  # The first strided tensor over it.
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)  # The tensors that lie over it, by ``id``.
    # Those of them that lie there only as what they are made of: sparse tensors, wrappers.
    composed: set[int] = field(default_factory=set)
    places: list[tuple[Place, torch.Tensor]] = field(default_factory=list)  # Where these were met.
    roles: set[Category] = field(default_factory=set)  # What it serves as.
    module: str = ""  # Path of the module that it belongs to.
    saved: list[Holder] = field(default_factory=list)  # The first few graphs that keep it.
    in_graphs: int = 0  # How often graphs keep it.
    # What else refers to its tensors, where neither a name nor a graph does.
    unnamed: list[Holder] = field(default_factory=list)
    identities: set[int] = field(default_factory=set)  # Of its storages, where it is more than one.

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.memory.nbytes

    def take_in(self, other: Block) -> None:
        """Become one with a block that lies over the same bytes and does not begin before this one."""
        stop = max(self.memory.address + self.memory.nbytes, other.memory.address + other.memory.nbytes)
        self.memory = Memory(self.memory.identity, self.memory.device, self.memory.address, stop - self.memory.address)
        self.tensors |= other.tensors
        self.composed |= other.composed
        self.places += other.places
        self.roles |= other.roles
        self.module = self.module or other.module
        self.saved += other.saved
        self.in_graphs += other.in_graphs
        self.identities |= {self.memory.identity, other.memory.identity} | other.identities


def merged(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks that have no byte in common."""
    found: list[Block] = []
    for block in sorted(blocks, key=lambda block: (block.memory.device, block.memory.address)):
        last = found[-1] if found else None
        if last is not None and last.memory.shift(block.memory) is not None:
            last.take_in(block)
        else:
            found.append(block)
    return found


def nbytes_of(x: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; 0 where it does not tell."""
    return told(lambda: number(x.nbytes), 0)


# The variables of functions that are running: they hold memory as names do, and no namespace shows them.


def running(frame: FrameType | None, taken: set[str]) -> list[tuple[Place, Any]]:
    """Return the variables of a frame and of those that called it, as far as they run functions of the user's own.

    A variable with a name that is ``taken``, that means something to the user already, is shown with its function.
    """
    found: list[tuple[Place, Any]] = []
    for own in own_frames(frame):
        if own.f_code.co_flags & inspect.CO_OPTIMIZED:
            names, location = dict(names_of(own)), location_in(own, own.f_lineno)
            for name, held in names.items():
                path = f"{own.f_code.co_name}.<locals>.{name}" if name in taken else name
                found.append((Place(path, "name", 0, location), held))
            taken |= names.keys()
    return found


# Which line allocated what is alive: noted by a run that was followed, or by CUDA's allocator where it records.
#
# What a run has seen is known until the storage dies. Nothing is guessed: a storage that nobody saw being allocated
# has no line.

MOST = 100_000  # storages, each some 200 bytes: those that were noted first are forgotten

_is_recording: Callable[[], bool] = getattr(torch._C, "_cuda_isHistoryEnabled", bool)  # not there in old builds


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a storage was allocated."""

    location: Location  # the line
    backward: bool = False  # whether the backward of what that line computed allocated it, rather than the line itself


# Each with what shows whether its memory is still the one that was seen (its bytes and address then), and the line.
_noted = Marks(MOST)


def note_lines(every: Iterable[tuple[torch.UntypedStorage, Origin]]) -> None:
    """Remember which lines allocated storages (1 µs each); keeps none of them alive."""
    for storage, origin in every:
        with suppress(RuntimeError):  # what jvp makes of zeros has no memory, and no address
            _noted.put(storage, ((storage.nbytes(), storage.data_ptr()), origin))


def noted_line(storage: torch.UntypedStorage) -> Origin | None:
    """Return the line that a run saw allocating a storage; None where none did, or where its memory is new since."""
    lying, origin = _noted.of(storage) or (None, None)
    return origin if lying is not None and lying == (storage.nbytes(), storage.data_ptr()) else None


def line_of(
    storage: torch.UntypedStorage, cuda: Any = torch.cuda, recording: Callable[[], bool] = _is_recording
) -> Origin | None:
    """Return the line that allocated a storage, where anybody saw it. Never raises; CUDA is not started by looking."""
    with suppress(Exception):  # a storage may refuse to say where; "cudaMallocAsync does not yet support recordHistory"
        known = noted_line(storage)
        if known is None and storage.device.type == "cuda" and cuda.is_initialized() and recording():
            own = own_frame(cuda.memory._allocation_traceback(storage.data_ptr()))  # kept with a block in use
            return None if own is None else Origin(location_of(*own))
        return known
    return None
