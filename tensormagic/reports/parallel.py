"""What a rank knows of its place in a run of several processes, by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Spread = Literal["DDP", "FSDP1", "FSDP2", "DTensor"]


@dataclass(frozen=True, slots=True)
class Whole:
    """Parameters that lie whole on every rank of their mesh, beside others that are cut.

    Attributes:
        largest: The name of the largest.
        count: How many.
        of: How many parameters are DTensors on a mesh of several ranks.
        elements: How many elements they have.
        of_elements: How many all of these have.
    """

    largest: str
    count: int
    of: int
    elements: int
    of_elements: int


@dataclass(frozen=True, slots=True)
class Parallel:
    """The place of a process in a run of several.

    Attributes:
        rank: Its number, from 0.
        world_size: How many processes there are.
        kinds: By what the parameters are spread that got gradients: ``"DDP"`` (each process holds all of them, and
            gradients are reduced), ``"FSDP1"``, ``"FSDP2"`` (each holds a shard, gradients are reduced and sharded),
            ``"DTensor"`` (the gradients are DTensors themselves, as under tensor parallelism).
        whole: Parameters that lie whole on each rank, where others are cut; None without such.
    """

    rank: int
    world_size: int
    kinds: tuple[Spread, ...] = ()
    whole: Whole | None = None
