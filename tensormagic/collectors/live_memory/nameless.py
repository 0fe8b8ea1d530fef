"""Tensors that no name leads to: one look at everything that Python's garbage collector knows.

With memory that is missing it is these that people look for: what a cycle, a library's cache or an extension keeps.
"""

from __future__ import annotations

import gc
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import torch

from tensormagic.collectors.names.holdings import mro_of


@dataclass(slots=True)
class Nameless:
    """What was found beyond names.

    Attributes:
        tensors: Tensors.
        nodes: Nodes of autograd graphs that Python holds.
        looked: How many objects were looked at.
    """

    tensors: list[torch.Tensor] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    looked: int = 0


class _Sorts(dict[type, str]):
    """What objects of a class are; each class is judged once, by its ancestors alone."""

    def __missing__(self, kind: type) -> str:
        family = mro_of(kind)
        node = any("next_functions" in vars(each) for each in family)
        self[kind] = "tensor" if torch.Tensor in family else "node" if node else ""
        return self[kind]


def nameless(known: Container[int]) -> Nameless:
    """Return what is alive beyond what is known already.

    Args:
        known: The ``id`` of each tensor that was met.
    """
    sorts, found = _Sorts(), Nameless()
    every = gc.get_objects()
    for item in every:
        sort = sorts[type(item)]
        if sort == "tensor" and id(item) not in known:
            found.tensors.append(item)
        elif sort == "node":
            found.nodes.append(item)
    found.looked = len(every)
    return found
