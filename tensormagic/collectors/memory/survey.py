"""Everything that is alive, put together: names, the session, running functions, graphs, and what has no name."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.graphs.live_nodes import is_node_class, walk_nodes
from tensormagic.collectors.graphs.saved_tensors import kept_by, path_of
from tensormagic.collectors.memory.live_blocks import Block, Role, memory_in, merged, nbytes_of, parts
from tensormagic.collectors.objects.holdings import defining_module, gradient_there, is_readable, mro_of, registered
from tensormagic.collectors.objects.namespace import OPTIMIZED
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.session.session_walk import ObjectWalk
from tensormagic.reports import Gap, Holder
from tensormagic.words import count, plural

# What live autograd graphs keep: one walk over the nodes of all of them, each once.
#
# Nothing is unpacked that a hook of the user's has packed; how much torch does not show at all is counted.

MOST_NODES = 200_000
LEAF = "variable"  # the slot of a leaf, which no node has saved

Keep = Callable[[torch.Tensor, str, Callable[[], str]], None]


@dataclass(slots=True)
class GraphMemory:
    """A walk."""

    hidden: int = 0  # Saved tensors that torch does not show.
    # The nodes met; held until the walk is dropped: an address must not be used twice.
    nodes: set[Any] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether all nodes were looked at."""
        return len(self.nodes) < MOST_NODES

    def walk(self, roots: Iterable[tuple[Any, str]], keep: Keep) -> None:
        """Go through the graphs that begin at some nodes; a node counts to the first that leads to it.

        Args:
            roots: Nodes, each with the name of what it made.
            keep: Called with all that a node keeps: the tensor, the slot, and what gives its path. It is not held:
                whoever owns the walk would be in a cycle with it, and all that was met would wait for the collector.
        """
        for root, name in roots:
            for node in walk_nodes([root], MOST_NODES, self.nodes):
                self._read(node, name, keep)

    def _read(self, node: Any, name: str, keep: Keep) -> None:
        for slot, tensor in kept_by(node):
            if tensor is None:
                self.hidden += 1
            else:
                keep(tensor, slot, lambda slot=slot: path_of(node, name, slot))  # type: ignore[misc]


# Tensors that no name leads to: one look at everything that Python's garbage collector knows.
#
# With memory that is missing it is these that people look for: what a cycle, a library's cache or an extension keeps.


@dataclass(frozen=True, slots=True)
class Unnamed:
    """What was found beyond names."""

    tensors: list[torch.Tensor]  # tensors
    nodes: list[Any]  # nodes of autograd graphs that Python holds
    looked: int  # how many objects were looked at


def unnamed(known: Container[int]) -> Unnamed:
    """Return what is alive beyond what is known already.

    Args:
        known: The ``id`` of each tensor that was met.
    """
    every = gc.get_objects()
    kinds = _Kinds()
    found = [item for item in every if kinds[type(item)]]  # one pass: the most of what a look costs
    tensors = [item for item in found if kinds[type(item)] == "tensor"]
    return Unnamed(
        tensors=[item for item in tensors if id(item) not in known and is_readable(item)],
        nodes=[item for item in found if kinds[type(item)] == "node"],
        looked=len(every),
    )


class _Kinds(dict[type, str]):
    """What the objects of a class are: ``"tensor"``, ``"node"``, or nothing of interest; asked once for each class."""

    def __missing__(self, kind: type) -> str:
        self[kind] = found = "tensor" if torch.Tensor in mro_of(kind) else "node" if is_node_class(kind) else ""
        return found


# Who holds what no name leads to: one look backward, from a few large tensors to what refers to them.
#
# What comes of it is no path that a user could write, but a place to look at: a library's global, a list, an object
# of some class.

SMALLEST = 2**20  # bytes of a storage that is worth the look
MOST = 8
MOST_HOLDERS = 4


def note_unnamed_referrers(blocks: Sequence[Block], ours: Container[int]) -> None:
    """Note on the largest blocks that no name and no graph leads to who refers to their tensors.

    Args:
        blocks: The largest first.
        ours: The ``id`` of what only this look holds.
    """
    lost = [block for block in blocks if block.nbytes >= SMALLEST and not block.places and not block.saved][:MOST]
    owners = [x for block in lost for x in block.tensors.values()]
    if not owners:
        return
    found = (item for item in gc.get_referrers(*owners) if id(item) not in ours and item is not owners)
    every = [item for item in found if _is_theirs(item)]
    libraries = {id(vars(module)): name for name, module in list(sys.modules.items()) if type(module) is ModuleType}
    for block in lost:
        mine = set(block.tensors)
        described = [(item, x) for item in every for x in gc.get_referents(item) if id(x) in mine]
        block.unnamed += [
            Holder(_described(item, x, libraries), "item", "tensor") for item, x in described[:MOST_HOLDERS]
        ]


def _is_theirs(item: Any) -> bool:
    return type(item) is not FrameType and not defining_module(type(item)).startswith("tensormagic.")


def _described(item: Any, x: torch.Tensor, libraries: dict[int, str]) -> str:
    """Return what an object is, and under which key it holds a tensor."""
    if type(item) is dict:
        key = next((key for key, value in item.items() if value is x and type(key) is str), "")
        library = libraries.get(id(item))
        return f"{library}.{key}" if library else f"a dict without a name, [{key!r}]"
    if type(item) in {list, tuple, set, frozenset}:
        return f"a {type(item).__name__} of {count(len(item))} without a name"
    return f"an object without a name: {defining_module(type(item))}.{type(item).__qualname__}"


MOST_SAVED = 4  # graphs listed for one block
_NAMELESS = "a tensor without a name"
_REGISTRIES: tuple[tuple[str, Role], ...] = (("_parameters", "parameter"), ("_buffers", "buffer"))


class Survey:
    """Every live piece of memory. Holds what it has met: to be dropped as soon as it has been reported.

    Args:
        walk_session: A walk through everything that has a name.
        everything: Whether to look for what has none, too.
    """

    def __init__(self, walk_session: ObjectWalk, *, everything: bool) -> None:
        self._blocks: dict[int, Block] = {}
        self._of: dict[int, tuple[torch.Tensor, list[Block]]] = {}
        self._unreadable: dict[str, int] = {}
        self._graphs = GraphMemory()
        self._walk_session = walk_session
        self.looked = walk_session.looked
        self._meet_named()
        self._meet_registered()
        roots = list(self._roots())
        if everything:
            roots += self._meet_nameless()
        self._graphs.walk(roots, self._keep)
        for x, _ in list(self._of.values()):
            self._note_roles(x)
        self.blocks = [_with_inputs(block) for block in merged(self._blocks.values())]

    @property
    def identities(self) -> set[int]:
        """Return the storages that were met."""
        return set(self._blocks)

    @property
    def ours(self) -> set[int]:
        """Return the ``id`` of everything here that holds a tensor."""
        held = [*self._of.values(), *(block.tensors for block in self.blocks)]
        return {*map(id, held), *(id(block.tensors) for block in self._blocks.values())}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What could not be looked at."""
        graphs, hidden = self._graphs, self._graphs.hidden
        described = [
            ("graphs", "" if graphs.complete else f"only {plural(len(graphs.nodes), 'node')} of graphs were searched"),
            ("graphs", _not_shown(hidden) if hidden else ""),
            *(("storages", _not_counted(kind, number)) for kind, number in self._unreadable.items()),
        ]
        return (*self._walk_session.gaps, *(Gap(section, reason) for section, reason in described if reason))

    def _blocks_of(self, x: torch.Tensor) -> list[Block]:
        """Return the blocks that a tensor lies in."""
        known = self._of.get(id(x))
        if known is None:
            known = self._of[id(x)] = (x, self._laid(x))
        return known[1]

    def _laid(self, x: torch.Tensor) -> list[Block]:
        found: list[Block] = []
        try:
            for part in parts(x):
                found.append(self._block(part))
                found[-1].tensors[id(x)] = x
                if part is not x:
                    found[-1].composed.add(id(x))
        except Exception:  # an odd tensor may raise anything: what it is made of is unknown
            kind = type(x).__name__ if type(x) is not torch.Tensor else str(x.layout).removeprefix("torch.")
            self._unreadable[kind] = self._unreadable.get(kind, 0) + 1
        return found

    def _block(self, part: torch.Tensor) -> Block:
        identity = part.untyped_storage()._cdata
        known = self._blocks.get(identity)
        if known is None:
            known = self._blocks[identity] = Block(memory_in(part), part)
        return known

    def _meet_named(self) -> None:
        sources = tuple(path + mark for path in self._walk_session.data for mark in ".[")
        for place, x in self._walk_session.visits:
            role = _role_of(place, sources)
            for block in self._blocks_of(x):
                block.places.append((place, x))
                if role is not None:
                    block.roles.add(role)

    def _meet_registered(self) -> None:
        for path, module in self._walk_session.modules:
            for registry, role in _REGISTRIES:
                for x in registered(module, registry).values():
                    if x is not None:
                        self._mark(x, role, path)

    def _mark(self, x: torch.Tensor, role: Role, module: str) -> None:
        for block in self._blocks_of(x):
            block.roles.add(role)
            block.module = block.module or module

    def _note_roles(self, x: torch.Tensor) -> None:
        """Note a tensor's own roles and those of its gradient, and what module that belongs to."""
        try:
            is_parameter, grad = isinstance(x, nn.Parameter), gradient_there(x)
        except Exception:  # code of the user's class
            return
        if is_parameter:
            self._mark(x, "parameter", "")
        if grad is not None:
            blocks = self._blocks_of(x)
            self._mark(grad, "gradient", blocks[0].module if blocks else "")

    def _roots(self) -> Iterator[tuple[Any, str]]:
        for place, x in self._walk_session.visits:
            yield from _root(x, place.path)

    def _meet_nameless(self) -> list[tuple[Any, str]]:
        found = unnamed(self._of.keys() | {id(block.part) for block in self._blocks.values()})
        self.looked += found.looked
        for x in found.tensors:
            self._blocks_of(x)
        roots = [root for x in found.tensors for root in _root(x, _NAMELESS)]
        return roots + [(node, "a node without a name") for node in found.nodes]

    def _keep(self, x: torch.Tensor, slot: str, path: Callable[[], str]) -> None:
        """Note what a node keeps; a tensor that Python has not seen is held until the report is made."""
        try:
            identities = [part.untyped_storage()._cdata for part in parts(x)]
            blocks = [self._blocks[identity] for identity in identities if identity in self._blocks]
            if len(blocks) < len(identities):
                blocks = self._blocks_of(x)
        except Exception:  # counted where it is met under a name
            return
        for block in blocks:
            block.in_graphs += 1
            if slot != LEAF:
                block.roles.add("saved")
            if len(block.saved) < MOST_SAVED:
                block.saved.append(Holder(path(), "graph", "storage", nbytes_of(x)))


def _with_inputs(block: Block) -> Block:
    """Return a block, noted as data where a graph keeps it and what has a name there was not computed."""
    if "saved" in block.roles and any((x.grad_fn is None and not x.requires_grad) for _, x in block.places):
        block.roles.add("data")
    return block


def _role_of(place: Place, sources: tuple[str, ...]) -> Role | None:
    if place.kind == "optimizer":
        return "parameter" if OPTIMIZED.search(place.path) else "optimizer state"
    return "data" if sources and place.path.startswith(sources) else None


def _root(x: torch.Tensor, name: str) -> Iterator[tuple[Any, str]]:
    try:
        node = x.grad_fn
    except RuntimeError:  # a view that was changed in a way that autograd forbids
        return
    if node is not None:
        yield node, name


def _not_counted(kind: str, number: int) -> str:
    tensors = plural(number, "tensor")
    return f"{tensors} of the kind {kind}, without a readable storage: their memory is not counted"


def _not_shown(hidden: int) -> str:
    tensors = plural(hidden, "saved tensor")
    return f"torch does not show {tensors}: those that nothing else reaches are not counted"
