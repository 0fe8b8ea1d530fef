"""Everything that is alive, block by block, and the lines that allocated it."""

from __future__ import annotations

import gc
import inspect
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinMethodType, CellType, FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tensormagic.collectors.aliasing.storage_aliases import Entry, by_memory, gather
from tensormagic.collectors.geometry.parts import parts
from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.graphs.live_nodes import inputs_of, walk_nodes
from tensormagic.collectors.graphs.saved_tensors import kept_by, path_of
from tensormagic.collectors.memory.references import tensors_and_nodes
from tensormagic.collectors.memory.roots import is_foreign
from tensormagic.collectors.objects.children import (
    BUFFERS,
    defining_module,
    gradient_there,
    graph_of,
    is_kind,
    is_readable,
    registered,
)  # fmt: skip
from tensormagic.collectors.objects.identity import Marks
from tensormagic.collectors.objects.namespace import OPTIMIZED, Walk, nearest
from tensormagic.collectors.objects.referents import Place
from tensormagic.collectors.quiet import number, told
from tensormagic.collectors.session.session_walk import ObjectWalk
from tensormagic.collectors.where.caller import own_frame
from tensormagic.collectors.where.source import location_in, location_of, names_of, own_frames, running_line
from tensormagic.reports import Category, Gap, Holder, Location
from tensormagic.words import count, plural

# What memory is for; of several roles the first that fits counts:
#
# - *parameter*: an ``nn.Parameter``, or what an optimizer updates.
# - *gradient*: the ``.grad`` of a tensor; *buffer*: registered as one in a module.
# - *optimizer state*: what an optimizer holds besides its parameters: moments, momentum buffers, steps.
# - *input*: what a data set or loader holds; and what has a name, was not computed with gradients, and was saved by a
#   graph that is still alive: the batch that a model was given.
# - *saved for backward*: what a live graph keeps for its backward, and is none of these.

PRECEDENCE: tuple[Category, ...] = (
    "parameter", "gradient", "optimizer state", "buffer", "input", "saved for backward", "other",
)  # fmt: skip


def category_of(roles: Collection[Category]) -> Category:
    """Return what a storage is for."""
    return min(roles, key=PRECEDENCE.index, default="other")


@dataclass(slots=True)
class Block:
    """One piece of memory: two storages can lie over the same bytes, each ``torch.from_numpy(a)`` makes a new one.

    Holds tensors: to be dropped as soon as it has been reported.
    """

    memory: Memory  # where it lies
    part: torch.Tensor  # the first strided tensor over it
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)  # the tensors that lie over it, by ``id``
    composed: set[int] = field(default_factory=set)  # those of them that are made of such: sparse tensors, wrappers
    places: list[tuple[Place, torch.Tensor]] = field(default_factory=list)  # where these were met
    roles: set[Category] = field(default_factory=set)  # what it serves as
    module: str = ""  # path of the module that it belongs to
    saved: list[Holder] = field(default_factory=list)  # the first few graphs that keep it
    in_graphs: int = 0  # how often graphs keep it
    lent: int = 0  # how many arrays and buffers with a name lie over the same bytes, and the first of them
    lenders: list[Holder] = field(default_factory=list)
    unnamed: list[Holder] = field(default_factory=list)  # what else refers to its tensors, where no name or graph does
    identities: set[int] = field(init=False)  # of its storages

    def __post_init__(self) -> None:
        """Begin with one storage."""
        self.identities = {self.memory.identity}

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
        self.identities |= other.identities


def merged(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks that have no byte in common."""
    found: list[Block] = []
    for block in sorted(blocks, key=lambda block: (block.memory.device, block.memory.address)):
        if found and found[-1].memory.shift(block.memory) is not None:
            found[-1].take_in(block)
        else:
            found.append(block)
    return found


def nbytes_of(x: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; 0 where it does not tell."""
    return told(lambda: number(x.nbytes), 0)


MOST_NODES = 200_000  # of autograd graphs
LEAF = "variable"  # the slot of a leaf, which no node has saved

# Who holds what no name leads to: one look backward, from a few large tensors to what refers to them. What comes of it
# is not a path that a user could write, but a place to look at: a library's global, a list, an object of some class.

SMALLEST = 2**20  # bytes of a storage that is worth the look
MOST_LOST = 8
MOST_REFERRERS = 4


def note_unnamed_referrers(blocks: Sequence[Block], ours: Container[int]) -> None:
    """Note on the largest blocks that no name and no graph leads to who refers to their tensors.

    The largest come first; ``ours`` is the ``id`` of what only this look holds.
    """
    lost = [block for block in blocks if block.nbytes >= SMALLEST and not block.places and not block.saved][:MOST_LOST]
    owners = [x for block in lost for x in block.tensors.values()]
    if not owners:
        return
    addresses = [*map(id, owners)]  # From Python 3.13 on the arguments of the call are found as well.
    every = [x for x in gc.get_referrers(*owners) if id(x) not in ours and x is not owners and type(x) is not FrameType]
    every = [x for x in every if not (type(x) is tuple and [*map(id, x)] == addresses)]
    every = [x for x in every if not defining_module(type(x)).startswith("tensormagic.")]
    libraries = {id(vars(module)): name for name, module in list(sys.modules.items()) if type(module) is ModuleType}
    for block in lost:
        mine = set(block.tensors)
        held = [_described(item, x, libraries) for item in every for x in gc.get_referents(item) if id(x) in mine]
        block.unnamed += [Holder(name, "item", "tensor") for name in held[:MOST_REFERRERS]]


def _described(item: Any, x: torch.Tensor, libraries: dict[int, str]) -> str:
    if type(item) is dict:
        key = next((key for key, value in item.items() if value is x and type(key) is str), "")
        library = libraries.get(id(item))
        return f"{library}.{key}" if library else f"a dict without a name, [{key!r}]"
    if type(item) in {list, tuple, set, frozenset}:
        return f"a {type(item).__name__} of {count(len(item))} without a name"
    if type(item) is CellType:
        return "a variable of a closure"
    if type(item) is BuiltinMethodType:
        return f"a bound method: {item.__name__}()"
    return f"an object without a name: {defining_module(type(item))}.{type(item).__qualname__}"


MOST_LENDERS = 6  # listed for one block


def note_lenders(blocks: Sequence[Block], namespace: Mapping[str, Any]) -> None:
    """Note on blocks whose memory torch did not allocate, or lent, which arrays and buffers with a name lie over it."""
    borrowed = {id(block.part): block for block in blocks if is_foreign(block.part.untyped_storage())}
    lenders: dict[Memory, list[Holder]] = {}  # a thousand rows of an array have its memory
    for entry in gather(Walk(namespace), np.ndarray, *BUFFERS) if borrowed else ():
        if (memory := entry.memory) is not None:
            name = nearest(entry.names)[0]
            holder = Holder(name, "name" if name.isidentifier() else "item", "storage", memory.nbytes)
            lenders.setdefault(memory, []).append(holder)
    every = [Entry(block.part, [], block.memory, is_tensor=True) for block in borrowed.values()]
    every += [Entry(holders, [], memory, is_tensor=False) for memory, holders in lenders.items()]
    for shared in by_memory(every):
        lying = [borrowed[id(entry.item)] for entry in shared.entries if entry.is_tensor]  # in order of address
        starts, longest = [one.memory.address for one in lying], max((one.nbytes for one in lying), default=0)
        for entry in shared.entries:
            if (memory := entry.memory) is not None and not entry.is_tensor:
                first = bisect_right(starts, memory.address - longest)
                for block in lying[first : bisect_left(starts, memory.address + memory.nbytes)]:
                    if block.memory.shift(memory) is not None:
                        block.lent += len(entry.item)
                        block.lenders += entry.item[: MOST_LENDERS - len(block.lenders)]


MOST_SAVED = 4  # graphs listed for one block


class LiveTensors:
    """Every live piece of memory. Holds what it has met: to be dropped as soon as it has been reported.

    It begins with what a walk through all names has met; with ``everything`` it looks for what has none, too.
    """

    def __init__(self, walk_session: ObjectWalk, *, everything: bool) -> None:
        self._blocks: dict[int, Block] = {}
        self._of: dict[int, tuple[torch.Tensor, list[Block]]] = {}
        self._unreadable = Counter[str]()
        self._nodes: set[Any] = set()  # of graphs; held: an address must not be used twice
        self._hidden = 0  # saved tensors that torch does not show
        self._walk_session = walk_session
        self.looked = walk_session.looked
        self._meet_named()
        for path, module in walk_session.modules:
            for x in registered(module, "_parameters").values():
                self._mark(x, "parameter", path)
            for x in registered(module, "_buffers").values():
                self._mark(x, "buffer", path)
        roots = [(node, place.path) for place, x in walk_session.visits if (node := graph_of(x)) is not None]
        if everything:
            roots += self._meet_unnamed()
        for root, name in roots:  # a node counts to the first that leads to it
            for node in walk_nodes([root], MOST_NODES, self._nodes):
                self._read_node(node, name)
        for x, _ in list(self._of.values()):
            self._note_roles(x)
        self.blocks = merged(self._blocks.values())
        for block in self.blocks:  # what a graph keeps, has a name and was not computed
            given = any(not x.requires_grad for _, x in block.places)
            if given and "saved for backward" in block.roles:
                block.roles.add("input")

    @property
    def identities(self) -> set[int]:
        """The storages that were met."""
        return set(self._blocks)

    @property
    def ours(self) -> set[int]:
        """Return the ``id`` of everything here that holds a tensor."""
        held = [*self._of.values(), *(block.tensors for block in self.blocks)]
        return {*map(id, held), *(id(block.tensors) for block in self._blocks.values())}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What could not be looked at."""
        found = list(self._walk_session.gaps)
        if len(self._nodes) >= MOST_NODES:
            found.append(Gap("graphs", f"only {plural(len(self._nodes), 'node')} of graphs were searched"))
        if self._hidden:
            shown = f"torch does not show {plural(self._hidden, 'saved tensor')}"
            found.append(Gap("graphs", f"{shown}: those that nothing else reaches are not counted"))
        for kind, several in self._unreadable.items():
            described = f"{plural(several, 'tensor')} of the kind {kind}, without a readable storage"
            found.append(Gap("storages", f"{described}: their memory is not counted"))
        return tuple(found)

    def _blocks_of(self, x: torch.Tensor) -> list[Block]:
        if id(x) in self._of:
            return self._of[id(x)][1]
        _, found = self._of[id(x)] = x, []
        try:
            for part in parts(x):
                identity = part.untyped_storage()._cdata
                if identity not in self._blocks:
                    self._blocks[identity] = Block(Memory.behind(part), part)
                block = self._blocks[identity]
                block.tensors[id(x)] = x
                if part is not x:
                    block.composed.add(id(x))
                found.append(block)
        except Exception:  # an odd tensor may raise anything: what it is made of is unknown
            self._unreadable[type(x).__name__ if type(x) is not torch.Tensor else str(x.layout)[6:]] += 1
        return found

    def _meet_named(self) -> None:
        sources = tuple(path + mark for path in self._walk_session.data for mark in ".[")
        for place, x in self._walk_session.visits:
            role: Category | None = "input" if place.path.startswith(sources) else None
            if place.kind == "optimizer":
                role = "parameter" if OPTIMIZED.search(place.path) else "optimizer state"
            for block in self._blocks_of(x):
                block.places.append((place, x))
                if role is not None:
                    block.roles.add(role)

    def _mark(self, x: torch.Tensor | None, role: Category, module: str) -> None:
        for block in self._blocks_of(x) if x is not None else ():
            block.roles.add(role)
            block.module = block.module or module

    def _note_roles(self, x: torch.Tensor) -> None:
        if told(lambda: isinstance(x, nn.Parameter), otherwise=False):
            self._mark(x, "parameter", "")
        module = next((block.module for block in self._blocks_of(x)), "")
        self._mark(told(lambda: gradient_there(x), None), "gradient", module)

    def _meet_unnamed(self) -> list[tuple[Any, str]]:
        """Meet the tensors that no name leads to, among all that Python's garbage collector knows; return the nodes.

        With memory that is missing it is these that people look for: what a cycle, a cache or an extension keeps.
        """
        known = self._of.keys() | {id(block.part) for block in self._blocks.values()}
        found, looked = tensors_and_nodes()
        self.looked += looked
        tensors = [x for x in found if is_kind(x, torch.Tensor) and id(x) not in known and is_readable(x)]
        for x in tensors:
            self._blocks_of(x)
        roots = [(node, "a tensor without a name") for x in tensors if (node := graph_of(x)) is not None]
        nodes = [item for item in found if not is_kind(item, torch.Tensor)]
        # A custom Function that was called itself is in no graph, and before torch 2.13 refuses to be asked.
        return roots + [
            (one, "a node without a name") for one in nodes if told(partial(inputs_of, one), None) is not None
        ]

    def _read_node(self, node: Any, name: str) -> None:
        """Note what a node keeps: nothing is unpacked that a hook of the user's has packed."""
        for slot, x in kept_by(node):
            self._hidden += x is None
            for block in self._kept(x) if x is not None else ():
                block.in_graphs += 1
                if slot != LEAF:
                    block.roles.add("saved for backward")
                if x is not None and len(block.saved) < MOST_SAVED:
                    block.saved.append(Holder(path_of(node, name, slot), "graph", "storage", nbytes_of(x)))

    def _kept(self, x: torch.Tensor) -> list[Block]:
        """Return the blocks of a saved tensor; one that Python has not seen is held until the report is made."""
        # One that does not tell them is counted where it is met under a name.
        identities = told(lambda: [part.untyped_storage()._cdata for part in parts(x)], list[int]())
        blocks = [self._blocks[identity] for identity in identities if identity in self._blocks]
        return self._blocks_of(x) if len(blocks) < len(identities) else blocks


def running(frame: FrameType | None, taken: set[str]) -> list[tuple[Place, Any]]:
    """Return the variables of a frame and of those that called it, as far as they run functions of the user's own.

    A variable with a name that is ``taken``, that means something to the user already, is shown with its function.
    """
    found: list[tuple[Place, Any]] = []
    for own in own_frames(frame):
        if own.f_code.co_flags & inspect.CO_OPTIMIZED:
            names, location = dict(names_of(own)), location_in(own, running_line(own))
            for name, held in names.items():
                path = f"{own.f_code.co_name}.<locals>.{name}" if name in taken else name
                found.append((Place(path, "name", 0, location), held))
            taken |= names.keys()
    return found


# Which line allocated what is alive: noted by a run that was followed, or by CUDA's allocator where it records. Nothing
# is guessed: a storage that nobody saw being allocated has no line.

MOST_NOTED = 100_000  # storages, each some 200 bytes: those that were noted first are forgotten

is_recording: Callable[[], bool] = getattr(torch._C, "_cuda_isHistoryEnabled", bool)  # not there in old builds


class Origin(NamedTuple):
    """Where a storage was allocated."""

    location: Location  # the line
    backward: bool = False  # whether the backward of what that line computed allocated it, rather than the line itself


# Each with what shows whether its memory is still the one that was seen (its bytes and address then), and the line.
_noted = Marks(MOST_NOTED)


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
    storage: torch.UntypedStorage, cuda: Any = torch.cuda, recording: Callable[[], bool] = is_recording
) -> Origin | None:
    """Return the line that allocated a storage, where anybody saw it. Never raises; CUDA is not started by looking."""
    with suppress(Exception):  # a storage may refuse to say where; "cudaMallocAsync does not yet support recordHistory"
        known = noted_line(storage)
        if known is None and storage.device.type == "cuda" and cuda.is_initialized() and recording():
            own = own_frame(cuda.memory._allocation_traceback(storage.data_ptr()))  # kept with a block in use
            return None if own is None else Origin(location_of(*own))
        return known
    return None
