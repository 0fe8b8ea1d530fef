"""The strided tensors that hold the memory of a tensor: itself, for most; else what it is made of.

A sparse tensor lies in its indices and values, a nested one in its buffer, a functorch or functional wrapper in what it
wraps, a wrapper subclass in its inner tensors. Those of a class of the person's are read from the instance; only where
it has none is ``__tensor_flatten__`` asked, which is made for that.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from tensormagic.collectors.aliasing.footprint import components
from tensormagic.collectors.geometry.memory import Memory
from tensormagic.collectors.kinds.subclasses import dispatches, has_memory, inner_tensors
from tensormagic.collectors.quiet import number

_PLAIN = {torch.Tensor, nn.Parameter, nn.Buffer}
_LEVELS = 8  # wrapper subclasses round one another


def parts(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the strided tensors that hold a tensor's memory. Raises where that is not told."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x) or torch._is_functional_tensor(x)
    if type(x) in _PLAIN and x.layout is torch.strided and not x.is_nested and not wrapped:
        yield x
    else:
        yield from _inside(x, _LEVELS)


def _inside(x: torch.Tensor, levels: int) -> Iterator[torch.Tensor]:
    if torch._is_functional_tensor(x):
        x = torch._from_functional_tensor(x)
    for part in components(x):
        inner = inner_tensors(part) if levels and dispatches(part) and not has_memory(part) else []
        for _, tensor in inner:
            yield from _inside(tensor, levels - 1)
        if not inner:
            yield part


def memory_in(part: torch.Tensor) -> Memory:
    """Return the memory of a strided tensor: of no bytes where nothing lies behind its storage.

    A fake tensor and a wrapper subclass have a storage that says how large it would be, and no memory.
    """
    try:
        memory = Memory.of(part)
    except RuntimeError:  # torch does not give an address where there is none
        storage = part.untyped_storage()
        memory = Memory(storage._cdata, str(storage.device), 0, 0)
    return memory if memory.address else Memory(memory.identity, memory.device, 0, 0)


def nbytes_of(x: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; 0 where it does not tell."""
    try:
        return number(x.nbytes)
    except Exception:  # an odd tensor may raise anything
        return 0
