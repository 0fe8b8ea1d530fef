"""Everything that is alive, put together: names, the session, running functions, graphs, and what has no name."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Container, Sequence
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.geometry.parts import parts
from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.saved_tensors import kept_by, path_of
from tensormagic.collectors.memory.live_blocks import Block, merged, nbytes_of
from tensormagic.collectors.memory.references import tensors_and_nodes
from tensormagic.collectors.objects.children import (
    defining_module,
    gradient_there,
    graph_of,
    is_kind,
    is_readable,
    registered,
)  # fmt: skip
from tensormagic.collectors.objects.namespace import OPTIMIZED
from tensormagic.collectors.quiet import told
from tensormagic.collectors.session.session_walk import ObjectWalk
from tensormagic.reports import Category, Gap, Holder
from tensormagic.words import count, plural

MOST_NODES = 200_000  # of autograd graphs
LEAF = "variable"  # the slot of a leaf, which no node has saved

# Who holds what no name leads to: one look backward, from a few large tensors to what refers to them. What comes of it
# is no path that a user could write, but a place to look at: a library's global, a list, an object of some class.

SMALLEST = 2**20  # bytes of a storage that is worth the look
MOST = 8
MOST_HOLDERS = 4


def note_unnamed_referrers(blocks: Sequence[Block], ours: Container[int]) -> None:
    """Note on the largest blocks that no name and no graph leads to who refers to their tensors.

    The largest come first; ``ours`` is the ``id`` of what only this look holds.
    """
    lost = [block for block in blocks if block.nbytes >= SMALLEST and not block.places and not block.saved][:MOST]
    owners = [x for block in lost for x in block.tensors.values()]
    if not owners:
        return
    every = [
        item
        for item in gc.get_referrers(*owners)
        if id(item) not in ours
        and item is not owners
        and type(item) is not FrameType
        and not defining_module(type(item)).startswith("tensormagic.")
    ]
    libraries = {id(vars(module)): name for name, module in list(sys.modules.items()) if type(module) is ModuleType}
    for block in lost:
        mine = set(block.tensors)
        held = [_described(item, x, libraries) for item in every for x in gc.get_referents(item) if id(x) in mine]
        block.unnamed += [Holder(name, "item", "tensor") for name in held[:MOST_HOLDERS]]


def _described(item: Any, x: torch.Tensor, libraries: dict[int, str]) -> str:
    if type(item) is dict:
        key = next((key for key, value in item.items() if value is x and type(key) is str), "")
        library = libraries.get(id(item))
        return f"{library}.{key}" if library else f"a dict without a name, [{key!r}]"
    if type(item) in {list, tuple, set, frozenset}:
        return f"a {type(item).__name__} of {count(len(item))} without a name"
    return f"an object without a name: {defining_module(type(item))}.{type(item).__qualname__}"


MOST_SAVED = 4  # graphs listed for one block
_UNNAMED = "a tensor without a name"


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
        for kind, number in self._unreadable.items():
            described = f"{plural(number, 'tensor')} of the kind {kind}, without a readable storage"
            found.append(Gap("storages", f"{described}: their memory is not counted"))
        return tuple(found)

    def _blocks_of(self, x: torch.Tensor) -> list[Block]:
        if id(x) in self._of:
            return self._of[id(x)][1]
        found: list[Block] = []
        self._of[id(x)] = (x, found)
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

        With memory that is missing it is these that people look for: what a cycle, a library's cache or an extension
        keeps.
        """
        known = self._of.keys() | {id(block.part) for block in self._blocks.values()}
        found, looked = tensors_and_nodes()
        self.looked += looked
        tensors = [x for x in found if is_kind(x, torch.Tensor) and id(x) not in known and is_readable(x)]
        for x in tensors:
            self._blocks_of(x)
        roots = [(node, _UNNAMED) for x in tensors if (node := graph_of(x)) is not None]
        return roots + [(item, "a node without a name") for item in found if not is_kind(item, torch.Tensor)]

    def _read_node(self, node: Any, name: str) -> None:
        """Note what a node keeps: nothing is unpacked that a hook of the user's has packed."""
        for slot, tensor in kept_by(node):
            if tensor is None:
                self._hidden += 1
            else:
                self._keep(tensor, node, name, slot)

    def _keep(self, x: torch.Tensor, node: Any, name: str, slot: str) -> None:
        """Note a tensor that a node keeps; one that Python has not seen is held until the report is made."""
        # One that does not tell them is counted where it is met under a name.
        identities = told(lambda: [part.untyped_storage()._cdata for part in parts(x)], list[int]())
        blocks = [self._blocks[identity] for identity in identities if identity in self._blocks]
        if len(blocks) < len(identities):
            blocks = self._blocks_of(x)
        for block in blocks:
            block.in_graphs += 1
            if slot != LEAF:
                block.roles.add("saved for backward")
            if len(block.saved) < MOST_SAVED:
                block.saved.append(Holder(path_of(node, name, slot), "graph", "storage", nbytes_of(x)))
