"""Everything that is alive, put together: names, the session, running functions, graphs, and what has no name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.live_memory.blocks import Block, merged
from tensormagic.collectors.live_memory.categories import Role
from tensormagic.collectors.live_memory.graph_memory import LEAF, GraphMemory
from tensormagic.collectors.live_memory.nameless import nameless
from tensormagic.collectors.live_memory.parts import memory_in, nbytes_of, parts
from tensormagic.collectors.objects.holdings import gradient_there, registered
from tensormagic.collectors.objects.naming import OPTIMIZED
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.session.stroll import Stroll
from tensormagic.reports import Gap, Holder
from tensormagic.words import plural

MOST_SAVED = 4  # graphs told of one block
_NAMELESS = "a tensor without a name"
_REGISTRIES: tuple[tuple[str, Role], ...] = (("_parameters", "parameter"), ("_buffers", "buffer"))


class Survey:
    """Every live piece of memory. Holds what it has met: to be dropped as soon as it has been told of.

    Args:
        stroll: A walk through everything that has a name.
        everything: Whether to look for what has none, too.
    """

    def __init__(self, stroll: Stroll, *, everything: bool) -> None:
        self._blocks: dict[int, Block] = {}
        self._of: dict[int, tuple[torch.Tensor, list[Block]]] = {}
        self._unreadable: dict[str, int] = {}
        self._graphs = GraphMemory()
        self._stroll = stroll
        self.looked = stroll.looked
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
        told = [
            ("names", self._stroll.cut),
            ("graphs", "" if graphs.complete else f"only {plural(len(graphs.nodes), 'node')} of graphs were looked at"),
            ("graphs", _not_shown(hidden) if hidden else ""),
            *(("storages", _not_counted(kind, number)) for kind, number in self._unreadable.items()),
        ]
        return tuple(Gap(section, reason) for section, reason in told if reason)

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
        except Exception:  # an odd tensor may raise anything: what it is made of cannot be told
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
        sources = tuple(path + mark for path in self._stroll.data for mark in ".[")
        for place, x in self._stroll.visits:
            role = _role_of(place, sources)
            for block in self._blocks_of(x):
                block.places.append((place, x))
                if role is not None:
                    block.roles.add(role)

    def _meet_registered(self) -> None:
        for path, module in self._stroll.modules:
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
        if isinstance(x, nn.Parameter):
            self._mark(x, "parameter", "")
        grad = gradient_there(x)
        if grad is not None:
            blocks = self._blocks_of(x)
            self._mark(grad, "gradient", blocks[0].module if blocks else "")

    def _roots(self) -> Iterator[tuple[Any, str]]:
        for place, x in self._stroll.visits:
            yield from _root(x, place.path)

    def _meet_nameless(self) -> list[tuple[Any, str]]:
        found = nameless(self._of.keys() | {id(block.part) for block in self._blocks.values()})
        self.looked += found.looked
        for x in found.tensors:
            self._blocks_of(x)
        roots = [root for x in found.tensors for root in _root(x, _NAMELESS)]
        return roots + [(node, "a node without a name") for node in found.nodes]

    def _keep(self, x: torch.Tensor, slot: str, path: Callable[[], str]) -> None:
        """Note what a node keeps; a tensor that Python has not seen is held until all is told."""
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
    if "saved" in block.roles and any(_is_given(x) for _, x in block.places):
        block.roles.add("data")
    return block


def _is_given(x: torch.Tensor) -> bool:
    return x.grad_fn is None and not x.requires_grad


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
    return f"{tensors} of the kind {kind}, without a storage that can be read: what it takes is not counted"


def _not_shown(hidden: int) -> str:
    tensors = plural(hidden, "saved tensor")
    return f"torch does not show {tensors}: what nothing else leads to of these is in no figure here"
