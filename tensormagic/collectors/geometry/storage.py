"""Which memory a tensor's storage is, who counts writes to it, and what a call writes: by inspection only."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from tensormagic.collectors.quiet import outside_inference, quiet

# Which memory a tensor's storage is, read without touching the memory.


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a storage.

    Attributes:
        identity: Of torch's storage object; the same for all tensors that have this storage.
        device: As torch writes it.
        address: Of the first byte; 0 where there is no memory (meta and fake tensors).
        nbytes: Size.
    """

    identity: int
    device: str
    address: int
    nbytes: int

    @classmethod
    def of(cls, x: torch.Tensor) -> Memory:
        """Return the memory of a tensor's storage. Raises where the tensor has none."""
        storage = x.untyped_storage()
        return cls(storage._cdata, str(storage.device), _address(x, storage), storage.nbytes())

    def shift(self, other: Memory) -> int | None:
        """Return how many bytes after this memory the other one starts; None where they have no byte in common.

        Two storage objects can lie over the same memory: each ``torch.from_numpy(a)`` makes a new one.
        """
        if other.identity == self.identity:
            return 0
        if other.device != self.device or not self.address or not other.address:
            return None
        apart = other.address - self.address
        return apart if -other.nbytes < apart < self.nbytes else None


def _address(x: torch.Tensor, storage: torch.UntypedStorage) -> int:
    """Return the address of a storage. Asking a copy-on-write storage for it in the plain way would copy it."""
    if storage.device.type == "meta":
        return 0
    core: Any = torch._C
    if core._is_cow_tensor(x):
        return int(core._data_address(x)) - int(x.storage_offset()) * x.element_size()
    return storage.data_ptr()


# Whether two tensors count their in-place writes on the same version counter, found out by looking alone.
#
# ``.detach()`` shares the counter, ``.data`` does not: the difference between an error and a silently wrong gradient.
# torch tells a counter's *value*, not which counter it is, and finding out by writing would be a change to the
# person's tensors. A tensor's C++ part (``c10::TensorImpl``) holds a pointer to its counter, though, at a place that
# is fixed in one build of torch. That place is not assumed but found: it is the one word that is equal for tensors
# known to share a counter and differs for tensors known not to. Where there is no such word, or more than one, the
# answer is "cannot tell".

_WORDS = 10  # a TensorImpl is over 150 bytes long (c10/core/TensorImpl.h checks its own size); these are the first 80


def shares_version(x: torch.Tensor, y: torch.Tensor) -> bool | None:
    """Return whether x and y count writes on one version counter; None where that is unknown."""
    if x.is_inference() or y.is_inference():
        return False  # inference tensors have no counter
    if x._cdata == y._cdata:
        return True
    if x._version != y._version:
        return False
    place = _counter_place()
    if place is None:
        return None
    counter = _words(x)[place]
    return counter != 0 and counter == _words(y)[place]


def prepare_counters() -> None:
    """Find out where counters are, as long as that can be done: inside a dispatch mode autograd is out of reach."""
    _counter_place()


@cache
def _counter_place() -> int | None:
    """Return which word of a tensor's C++ part points to its version counter; None where no single word can be it."""
    with quiet(), outside_inference():
        first, second = torch.zeros(3), torch.zeros(3)
        sharing = [(first, first.detach()), (first, first[1:]), (second, second.view(3, 1)), (second, second.detach())]
        separate = [(first, second), (first, first.data), (second, second.data), (first.data, first.data)]
        places = [
            place
            for place in range(_WORDS)
            if all(_words(x)[place] == _words(y)[place] != 0 for x, y in sharing)
            and all(_words(x)[place] != _words(y)[place] for x, y in separate)
        ]
    return places[0] if len(places) == 1 else None


def _words(x: torch.Tensor) -> list[int]:
    return list((ctypes.c_size_t * _WORDS).from_address(x._cdata))


def counter_of(x: torch.Tensor) -> int | None:
    """Return which version counter x counts its writes on: equal for two that live at once only where they share it.

    None where it has none (inference tensors), or where that is unknown.
    """
    place = None if x.is_inference() else _counter_place()
    return None if place is None else _words(x)[place] or None


# Which arguments an ATen op writes to: what its schema says, read once an op.
#
# Ops that change only how a tensor is read (``t_``, ``squeeze_``, ``resize_``, ``set_``) change no element: torch
# tags them ``inplace_view``. Batch norm updates its running statistics without saying so in its schema.

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
