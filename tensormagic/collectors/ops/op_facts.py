"""What one ATen operation does to memory: what its schema says, read once an op, and what a call allocated.

A schema says which outputs are views and which are the written argument itself; the rest is new, nearly always. A few
operations return an argument's memory although their schema does not say so (``_unsafe_view``, ``native_dropout``
outside training), so a storage is counted only where nothing else uses it, or where no argument of the call does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tensormagic.collectors.geometry.storage import Written, written_by
from tensormagic.collectors.quiet import quiet

NOTHING_NEW, ONE_NEW, SEVERAL = 0, 1, 2
NEW = 2  # uses of a storage that only one tensor has, while its Python wrapper is looked at
WHOLE = " (whole)"  # ends the name of what was counted from outside only

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_SPARSE_PARTS = ("_indices", "_values")
_COMPRESSED_PARTS = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


class Row:
    """What is known of one operation at one place; numbers only, added to by every call.

    Args:
        op: What is called; kept, so that its ``id`` stays its own.
        name: Its name, where ``op`` is no ATen overload.
    """

    __slots__ = ("calls", "failed", "kind", "mutations", "name", "nbytes", "op", "seconds", "written")

    def __init__(self, op: Any, name: str = "") -> None:
        is_aten = isinstance(op, torch._ops.OpOverload)
        self.op = op
        self.name = name or str(op)
        self.written: Written = written_by(op)
        self.kind = _kind_of(op) if is_aten else NOTHING_NEW if name else SEVERAL
        if self.written.when:
            self.kind = SEVERAL
        self.calls = self.failed = self.nbytes = self.mutations = 0
        self.seconds = 0.0

    @property
    def writes(self) -> int:
        """How many calls wrote to an argument."""
        if not self.written.slots:
            return 0
        return self.mutations if self.written.when else self.calls - self.failed

    def add_several(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Note a call that returns several things, or writes only sometimes; returns the bytes it allocated."""
        if self.written.when:
            self.mutations += _is_asked_for(self.op, self.written.when, args, kwargs)
        nbytes = new_bytes(result, (*args, *kwargs.values()))
        self.nbytes += nbytes
        return nbytes


def _kind_of(op: Any) -> int:
    returns = op._schema.returns
    new = [each for each in returns if each.alias_info is None and "Tensor" in str(each.type)]
    if not new:
        return NOTHING_NEW
    return ONE_NEW if len(returns) == 1 and str(new[0].type) == "Tensor" else SEVERAL


def _is_asked_for(op: Any, flag: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an argument that says whether an operation writes is true."""
    at = [argument.name for argument in op._schema.arguments].index(flag)
    return bool(args[at] if at < len(args) else kwargs.get(flag))


def new_bytes(result: Any, given: Iterable[Any]) -> int:
    """Return the bytes of the storages that ``result`` uses and ``given`` does not, each once."""
    found = {storage._cdata: storage for tensor in _tensors([result]) for storage in storages(tensor)}
    for tensor in _tensors(given) if found else ():
        for storage in storages(tensor):
            found.pop(storage._cdata, None)
    return sum(storage.nbytes() for storage in found.values())


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """Return the storages that a tensor is made of: one, or those of its parts; none where that is unknown."""
    try:
        if hasattr(tensor, "__tensor_flatten__"):
            return [storage for part in _inner(tensor) for storage in storages(part)]
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            return [storage] if type(tensor) in _PLAIN or has_memory(storage) else []
        names = _COMPRESSED_PARTS.get(tensor.layout, _SPARSE_PARTS)
        with quiet():
            parts = [getattr(tensor, name)() for name in names]
        return [storage for part in parts for storage in storages(part)]
    except Exception:  # a wrapper without memory of its own
        return []


def has_memory(storage: torch.UntypedStorage) -> bool:
    """Return whether memory lies behind a storage, or could: a fake tensor's tells a size only, which may be a symbol.

    Not to be asked of what ``torch._lazy_clone`` made: that would copy it.
    """
    try:
        size = storage.nbytes()
        return type(size) is int and (size == 0 or storage.data_ptr() != 0)
    except RuntimeError:  # a wrapper's, which has no address
        return False


def _inner(tensor: Any) -> list[torch.Tensor]:
    return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
