"""Pieces of memory, each once: what lies over them, and who leads to them.

Two storage objects can lie over the same bytes: each ``torch.from_numpy(a)`` makes a new one. They are one piece of
memory, and its bytes count once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from tensormagic.collectors.geometry.memory import Memory
from tensormagic.collectors.live_memory.categories import Role
from tensormagic.collectors.objects.reach import Place
from tensormagic.reports import Holder


@dataclass(slots=True)
class Block:
    """One piece of memory. Holds tensors: to be dropped as soon as it has been told of.

    Attributes:
        memory: Where it lies.
        part: The first strided tensor over it.
        tensors: The tensors that lie over it, by ``id``.
        composed: Those of them that lie there only as what they are made of: sparse tensors, wrappers.
        places: Where these were met.
        roles: What it serves as.
        module: Path of the module that it belongs to.
        saved: The first few graphs that keep it.
        in_graphs: How often graphs keep it.
        strangers: What else refers to its tensors, where neither a name nor a graph does.
        identities: Of its storages, where it is more than one.
    """

    memory: Memory
    part: torch.Tensor
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    composed: set[int] = field(default_factory=set)
    places: list[tuple[Place, torch.Tensor]] = field(default_factory=list)
    roles: set[Role] = field(default_factory=set)
    module: str = ""
    saved: list[Holder] = field(default_factory=list)
    in_graphs: int = 0
    strangers: list[Holder] = field(default_factory=list)
    identities: set[int] = field(default_factory=set)

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
    every = sorted(blocks, key=lambda block: (block.memory.device, block.memory.address))
    for block in every:
        last = found[-1] if found else None
        if last is not None and last.memory.shift(block.memory) is not None:
            last.take_in(block)
        else:
            found.append(block)
    return found
