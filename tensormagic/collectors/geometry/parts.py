"""What a tensor is made of: the strided tensors, and the storages, that hold its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.quiet import local_shard, quiet, told, unwrap

# A sparse tensor lies in its indices and values, a nested one in its buffer, a wrapper in what it wraps.
#
# `components` knows torch's own kinds, `parts` the classes of others besides. `named_parts` are those that a user can
# ask for. `storages` are what torch itself takes a tensor apart into, with what describes a layout: all that an
# operation may have allocated for it.

PLAIN = frozenset({torch.Tensor, nn.Parameter, nn.Buffer})  # torch's own classes
SPARSE_PARTS: Mapping[torch.layout, tuple[str, ...]] = {  # by its layout, methods of torch's
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_NAMED_PARTS = {**SPARSE_PARTS, torch.jagged: ("values", "offsets")}
_SUBCLASS_LEVELS = 8  # wrapper subclasses round one another
# What torch puts into a class that switches an override off, as ``__torch_dispatch__`` classes do by themselves.
_SWITCHED_OFF = (torch._C._disabled_torch_function_impl, torch._C._disabled_torch_dispatch_impl)


def components(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the strided tensors that a tensor is made of, itself where it is strided. Raises where that is unknown."""
    x = unwrap(x)
    if x.is_nested:
        jagged: Any = x  # its offsets are known to torch's own subclass alone
        yield from (jagged._values, jagged._offsets) if x.layout == torch.jagged else (x.values(),)
    elif x.layout in SPARSE_PARTS:
        yield from (getattr(x, name)() for name in SPARSE_PARTS[x.layout])
    else:
        yield x


def parts(x: torch.Tensor, levels: int = _SUBCLASS_LEVELS) -> Iterator[torch.Tensor]:
    """Yield the strided tensors that hold a tensor's memory, also behind other people's classes; raises likewise."""
    if torch._is_functional_tensor(x):
        x = torch._from_functional_tensor(x)
    elif type(x) in PLAIN and x.layout is torch.strided and not x.is_nested and not _is_wrapped(x):
        yield x
        return
    for part in components(x):
        inner = inner_tensors(part) if levels and is_wrapper(part) else []
        for _, tensor in inner:
            yield from parts(tensor, levels - 1)
        if not inner:
            yield part


_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


def named_parts(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what a tensor without a storage is made of, by the method that gives it to a user, where it does."""
    if (local := local_shard(x)) is not x:
        yield "to_local", local
    for name in _NAMED_PARTS.get(x.layout, ()):
        method = getattr(torch.Tensor, name, None)
        ask = partial(method, x) if method else partial(object.__getattribute__, x, f"_{name}")
        if (part := told(ask, None)) is not None:
            yield name, part


def storages(x: torch.Tensor) -> list[torch.UntypedStorage]:
    """Return the storages that a tensor is made of: one, or those of its parts; none where that is unknown."""
    try:
        if hasattr(x, "__tensor_flatten__"):
            inner = [getattr(x, name) for name in x.__tensor_flatten__()[0]]
        elif x.layout is torch.strided:
            storage = x.untyped_storage()
            return [storage] if type(x) in PLAIN or is_backed(storage) else []
        else:
            with quiet():
                inner = [part for part in components(x) if part is not x]
        return [storage for part in inner for storage in storages(part)]
    except Exception:  # a wrapper without memory of its own
        return []


def storage_of(x: torch.Tensor) -> int:
    """Return the identity of a tensor's storage; 0 where it has none."""
    return told(lambda: int(x.untyped_storage()._cdata), 0)


def is_backed(storage: torch.UntypedStorage) -> bool:
    """Return whether memory lies behind a storage, or could: a fake tensor's shows a size only, which may be a symbol.

    Not to be asked of what ``torch._lazy_clone`` made: that would copy it.
    """
    size = told(storage.nbytes, None)
    return type(size) is int and told(lambda: size == 0 or storage.data_ptr() != 0, otherwise=False)


# Other people's tensor classes: with memory of their own, or wrapped around other tensors.
#
# Their code is not run where that can be avoided: inner tensors are read from the instance's dictionary; only where
# it has none is ``__tensor_flatten__`` asked, which is made for that and is not allowed to change anything.


def overrides(x: object, method: str) -> bool:
    """Return whether an object's class, below torch's own tensor classes, brings a method of that name itself."""
    for cls in type(x).__mro__:
        if cls is torch.Tensor:
            return False
        if method in cls.__dict__:  # a parameter's class may stand before one that wraps: ``class P(Parameter, Mine)``
            return cls not in PLAIN and cls.__dict__[method] not in _SWITCHED_OFF
    return False


def dispatches(x: Any) -> bool:
    """Return whether operations on this tensor run Python code of its class."""
    return overrides(x, "__torch_dispatch__")


def is_wrapper(x: Any) -> bool:
    """Return whether operations run code of its class, and no memory lies behind its storage to be read plainly."""
    return dispatches(x) and told(lambda: Memory.of(x).address == 0, otherwise=True)


def inner_tensors(x: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors that an instance holds, by attribute."""
    held: list[tuple[str, Any]] = told(lambda: list(object.__getattribute__(x, "__dict__").items()), [])
    found = [(name, item) for name, item in held if torch.Tensor in type(item).__mro__]
    if not found and overrides(x, "__tensor_flatten__"):
        held = told(lambda: [(str(name), getattr(x, name)) for name in x.__tensor_flatten__()[0]], [])
        found = [(name, item) for name, item in held if torch.Tensor in type(item).__mro__]
    return found
