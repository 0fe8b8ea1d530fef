"""What an ATen operation does to memory, as its schema says: read once an operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

NOTHING, ONE, SEVERAL, VIEW, RESIZES = range(5)

_GIVES_BACK = {"aten::lift", "aten::lift_fresh"}  # what was made without an operation, as from a list or an array
_MAY_HAND_BACK = {"aten::_unsafe_view", "aten::native_dropout"}  # an argument's memory, whatever the schema says
_ASKING = frozenset({
    "cumprod", "eig", "eigh", "householder_product", "lstsq", "masked_fill", "max", "median", "min", "nanmedian",
    "ormqr", "prod", "svd",
})  # fmt: skip  # whose nodes are those of `ASKING_NODES`


class OpKind:
    """One operation.

    Attributes:
        op: Kept, so that its ``id`` stays its own.
        call: What to call, which does the same with less ado.
        name: As torch writes it.
        new: What its result may be: nothing new, one tensor with memory of its own, several, a view, or what may change
            the bytes of a storage.
        lifts: Whether it hands on what was made without any operation.
        asks: Whether its backward computes otherwise while a dispatch mode is on; see `op_asking`.
        inside: Whether Python code runs inside it, whose own operations are not seen.
        makes: Whether what is new after it is of its own making for certain, rather than met for the first time.
    """

    __slots__ = ("asks", "call", "inside", "lifts", "makes", "name", "new", "op")

    def __init__(self, op: Any) -> None:
        is_overload = isinstance(op, torch._ops.OpOverload)
        self.op, self.name = op, str(op)
        self.call = op._op if is_overload else op
        self.new = _new(op) if is_overload else SEVERAL
        self.lifts = is_overload and op._schema.name in _GIVES_BACK
        self.asks = is_overload and _bare(op._schema.name) in _ASKING
        self.inside = is_overload and op.namespace not in {"aten", "prims", "prim", "profiler"}
        self.makes = self.lifts or (is_overload and op.namespace == "aten" and _makes(op, self.new))

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
        """Yield the tensors that a call writes to, those that it grows or replaces included."""
        for position, argument in enumerate(self.op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[position] if position < len(args) else kwargs.get(argument.name)
                yield from tensors_in([given])


def _new(op: Any) -> int:
    schema = op._schema
    written = [each for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    if any(each.kwarg_only for each in written) or (written and _changes_size(schema.name)):
        return RESIZES
    made = [each for each in schema.returns if "Tensor" in str(each.type)]
    new = [each for each in made if each.alias_info is None]
    if not new:
        return VIEW if made and not written else NOTHING
    return ONE if len(schema.returns) == 1 and str(new[0].type) == "Tensor" else SEVERAL


def _makes(op: Any, new: int) -> bool:
    return new in {ONE, SEVERAL} and op._schema.name not in _MAY_HAND_BACK


def _bare(name: str) -> str:
    return name.partition("::")[2].strip("_").removeprefix("linalg_")


def _changes_size(name: str) -> bool:
    return any(part in name for part in ("resize", "set_", "swap", "_out")) or not name.startswith("aten::")


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among values, and in lists, tuples and dictionaries among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())
