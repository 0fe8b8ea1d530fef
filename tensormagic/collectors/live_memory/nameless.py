"""Tensors that no name leads to: one look at everything that Python's garbage collector knows.

With memory that is missing it is these that people look for: what a cycle, a library's cache or an extension keeps.
"""

from __future__ import annotations

import gc
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import torch

from tensormagic.collectors.objects.holdings import mro_of


@dataclass(frozen=True, slots=True)
class Nameless:
    """What was found beyond names.

    Attributes:
        tensors: Tensors.
        nodes: Nodes of autograd graphs that Python holds.
        looked: How many objects were looked at.
    """

    tensors: list[torch.Tensor]
    nodes: list[Any]
    looked: int


def nameless(known: Container[int]) -> Nameless:
    """Return what is alive beyond what is known already.

    Args:
        known: The ``id`` of each tensor that was met.
    """
    every = gc.get_objects()
    kinds = set(map(type, every))
    tensors = {kind for kind in kinds if torch.Tensor in mro_of(kind)}
    nodes = {kind for kind in kinds if any("next_functions" in vars(each) for each in mro_of(kind))}
    wanted = tensors | nodes
    found = [item for item in every if type(item) in wanted]
    return Nameless(
        tensors=[item for item in found if type(item) in tensors and id(item) not in known],
        nodes=[item for item in found if type(item) in nodes],
        looked=len(every),
    )
