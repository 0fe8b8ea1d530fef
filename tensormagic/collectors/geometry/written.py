"""Which arguments an ATen op writes to: what its schema says, read once an op.

Ops that change only how a tensor is read (``t_``, ``squeeze_``, ``resize_``, ``set_``) change no element: torch tags
them ``inplace_view``. Batch norm updates its running statistics without saying so in its schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_NO_ELEMENTS = {"aten::record_stream", "aten::set_data", "aten::retain_grad", "aten::rename_"}
_UNDECLARED = {
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::cudnn_batch_norm": ("running_mean", "running_var"),
    "aten::miopen_batch_norm": ("running_mean", "running_var"),
}
_SAME_VALUE = {"aten::fill_", "aten::zero_", "aten::_foreach_zero_"}  # every element gets one value, whatever it was


@dataclass(frozen=True, slots=True)
class Written:
    """What an op writes to.

    Attributes:
        slots: Position (None: by name alone) and name of every argument that is written to.
        name: As a person knows the op: ``"add_"``, ``"mm.out"``.
        pointwise: Whether element i of the result depends on element i of the operands alone.
        same_value: Whether all elements get one value.
        random: Whether running it again gives something else.
        when: Name of the argument that says whether it writes at all; empty where it always does.
    """

    slots: tuple[tuple[int | None, str], ...]
    name: str
    pointwise: bool = False
    same_value: bool = False
    random: bool = False
    when: str = ""

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
        """Yield the tensors that this call writes to; lists are taken apart."""
        for position, name in self.slots:
            given = args[position] if position is not None and position < len(args) else kwargs.get(name)
            if isinstance(given, torch.Tensor):
                yield given
            elif isinstance(given, list | tuple):
                yield from (item for item in given if isinstance(item, torch.Tensor))


_NOTHING = Written((), "")
_known: dict[Any, Written] = {}


def written_by(op: Any) -> Written:
    """Return what ``op`` writes to; nothing for anything that is no ATen overload (about 0.1 µs)."""
    known = _known.get(op)
    if known is None:
        known = _known[op] = _read(op) if isinstance(op, torch._ops.OpOverload) else _NOTHING
    return known


def _read(op: Any) -> Written:
    schema = op._schema
    undeclared = _UNDECLARED.get(schema.name, ())
    slots = tuple(
        (None if argument.kwarg_only else position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.name in undeclared or (argument.alias_info is not None and argument.alias_info.is_write)
    )
    if not slots or torch.Tag.inplace_view in op.tags or schema.name in _NO_ELEMENTS:
        return _NOTHING
    name = schema.name.partition("::")[2]
    is_out = any(position is None for position, _ in slots) or name.endswith("out")
    pointwise = torch.Tag.pointwise in op.tags or name.startswith(("copy_", "_foreach", "_fused"))
    return Written(
        slots, f"{name}, out=" if is_out and not name.endswith("_") else name, pointwise, schema.name in _SAME_VALUE,
        torch.Tag.nondeterministic_seeded in op.tags, "training" if undeclared else "",
    )  # fmt: skip


def does_write(written: Written, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether this call writes: batch norm only in training, ``x[0] += 1`` not once more onto itself."""
    if written.name == "copy_":
        return not is_same_place(args[0], args[1])
    if not written.when:
        return True
    names = [argument.name for argument in op._schema.arguments]
    at = names.index(written.when)
    return bool(args[at] if at < len(args) else kwargs.get(written.when))


def is_same_place(x: torch.Tensor, y: Any) -> bool:
    """Return whether two tensors read the same elements in the same order."""
    if x is y:
        return True
    if not isinstance(y, torch.Tensor) or x.layout != torch.strided or y.layout != torch.strided:
        return False
    if x.storage_offset() != y.storage_offset() or x.shape != y.shape or x.stride() != y.stride():
        return False
    return x.dtype == y.dtype and x.untyped_storage()._cdata == y.untyped_storage()._cdata
