"""Who holds what no name leads to: one look backward, from a few large tensors to what refers to them.

What comes of it is no path that a person could write, but a place to look at: a library's global, a list, an object of
some class.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Container, Sequence
from types import FrameType, ModuleType
from typing import Any

import torch

from tensormagic.collectors.live_memory.blocks import Block
from tensormagic.reports import Holder
from tensormagic.words import count

SMALLEST = 2**20  # bytes of a storage that is worth the look
MOST = 8
MOST_HOLDERS = 4


def note_strangers(blocks: Sequence[Block], ours: Container[int]) -> None:
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
        told = [(item, x) for item in every for x in gc.get_referents(item) if id(x) in mine]
        block.strangers += [Holder(_told(item, x, libraries), "item", "tensor") for item, x in told[:MOST_HOLDERS]]


def _is_theirs(item: Any) -> bool:
    return type(item) is not FrameType and not type(item).__module__.startswith("tensormagic.")


def _told(item: Any, x: torch.Tensor, libraries: dict[int, str]) -> str:
    """Return what an object is, and under which key it holds a tensor."""
    if type(item) is dict:
        key = next((key for key, value in item.items() if value is x and type(key) is str), "")
        library = libraries.get(id(item))
        return f"{library}.{key}" if library else f"a dict without a name, [{key!r}]"
    if type(item) in {list, tuple, set, frozenset}:
        return f"a {type(item).__name__} of {count(len(item))} without a name"
    return f"an object without a name: {type(item).__module__}.{type(item).__qualname__}"
