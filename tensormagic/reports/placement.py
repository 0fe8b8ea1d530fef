"""How a tensor is spread over a mesh of ranks, and which rank holds what: whole numbers alone, nobody is asked."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

_CUT = re.compile(r"(_?)S\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Box:
    """What one rank holds: where it begins in each dimension of the tensor, and how long it is there."""

    rank: int
    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """How a DTensor is spread over a mesh of ranks.

    Attributes:
        name: What it is called.
        shape: Of the whole tensor.
        placements: One for each dimension of the mesh: ``"S(0)"``, cut along that dimension of the tensor; ``"_S(0)"``,
            the same, but cut after the others, as FSDP over tensor parallelism does; ``"R"``, whole on each;
            ``"P(sum)"``, each has a part of the sum.
        mesh_names: Of the dimensions of the mesh; empty where they have none.
        mesh_sizes: Of these.
        mesh_ranks: The ranks, in order of the mesh.
    """

    name: str
    shape: tuple[int, ...]
    placements: tuple[str, ...]
    mesh_names: tuple[str, ...] = ()
    mesh_sizes: tuple[int, ...] = ()
    mesh_ranks: tuple[int, ...] = ()

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What to call the dimensions of the mesh."""
        return self.mesh_names or tuple(f"dim {at}" for at in range(len(self.mesh_sizes)))

    def boxes(self) -> Iterator[Box]:
        """Yield what each rank holds, in order of the mesh.

        A dimension of the tensor that several of the mesh cut is cut by one after the other: what is cut later
        (``_S``) after the others. Each piece but the last has the same length, rounded up.
        """
        cuts = {at: found for at, how in enumerate(self.placements) if (found := _CUT.fullmatch(how))}
        order = sorted(cuts, key=lambda at: (cuts[at][1] == "_", at))
        for rank, place in zip(self.mesh_ranks, itertools.product(*map(range, self.mesh_sizes)), strict=True):
            start, size = [0] * len(self.shape), list(self.shape)
            for at in order:
                dim = int(cuts[at][2])
                step = -(-size[dim] // self.mesh_sizes[at])
                low = min(place[at] * step, size[dim])
                start[dim], size[dim] = start[dim] + low, min(step, size[dim] - low)
            yield Box(rank, tuple(start), tuple(size))

    def holders(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]]:
        """Return the ranks that hold each piece, by where it begins and how long it is; pieces of nothing are left."""
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for box in self.boxes():
            if math.prod(box.size):
                found.setdefault((box.start, box.size), []).append(box.rank)
        return found
