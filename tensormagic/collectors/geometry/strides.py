"""Sizes, strides and storages as integers, and whether two tensors have one version counter."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from tensormagic.collectors.quiet import number, outside_inference, quiet
from tensormagic.words import ordinal

_WORDS = 10  # a TensorImpl is over 150 bytes long (c10/core/TensorImpl.h checks its own size); these are the first 80
_NO_ELEMENTS = {"aten::record_stream", "aten::set_data", "aten::retain_grad", "aten::rename_"}
_BATCH_NORMS = {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}
_SAME_VALUE = {"aten::fill_", "aten::zero_", "aten::_foreach_zero_"}  # every element gets one value, whatever it was


# Integer arithmetic on strides: which storage elements a strided tensor reads, how often, and in which order.
#
# A strided tensor reads ``storage_offset + Σ strideₖ·indexₖ``. Where the dimensions *nest* (sorted by stride, each
# step is at least as long as all that lies inside it), every question about a run of the storage has an exact answer
# in a number of steps that depends on the number of dimensions alone. No memory is read.


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a walk through the storage."""

    size: int  # how many steps it has; at least 1
    stride: int  # storage elements from one step to the next; at least 0

    @property
    def reach(self) -> int:
        """Storage elements from its first step to its last."""
        return (self.size - 1) * self.stride


@dataclass(frozen=True, slots=True)
class Pattern:
    """The storage elements that a tensor reads."""

    offset: int  # the storage offset of its first element, the smallest one read
    axes: tuple[Axis, ...]  # the dimensions that move through the storage, longest stride first
    repeats: int  # how often each element is read again along dimensions of stride 0

    @classmethod
    def of(cls, shape: Sequence[int], stride: Sequence[int], offset: int) -> Pattern | None:
        """Return the pattern of a strided tensor, neighbours merged where they fit; None where it has no element."""
        if 0 in shape:
            return None
        axes: list[Axis] = []
        for size, step in zip(shape, stride, strict=True):
            if size == 1:
                continue
            joins = bool(axes) and axes[-1].stride == step * size and step > 0
            axes.append(Axis(size * axes.pop().size if joins else size, step))
        moving = sorted((axis for axis in axes if axis.stride), key=lambda axis: -axis.stride)
        return cls(offset, tuple(moving), prod(axis.size for axis in axes if not axis.stride))

    @property
    def steps(self) -> int:
        """How many elements are read, repeats along stride 0 left out."""
        return prod(axis.size for axis in self.axes)

    @property
    def highest(self) -> int:
        """The largest storage offset read."""
        return self.offset + sum(axis.reach for axis in self.axes)

    @property
    def nests(self) -> bool:
        """Whether every axis steps over all that lies inside it: then no two steps read the same element."""
        inside = 0
        for axis in reversed(self.axes):
            if axis.stride <= inside:
                return False
            inside += axis.reach
        return True

    def nested(self) -> Pattern | None:
        """Return a pattern that nests and reads the same elements, each once and in any order; None if none is found.

        Two axes with strides s and k·s read one run of stride s together if the first has at least k steps. That
        covers what `Tensor.unfold` and convolution windows make.
        """
        axes: list[Axis] = []
        for axis in reversed(self.axes):
            times, rest = divmod(axis.stride, axes[-1].stride) if axes else (0, 1)
            if rest == 0 and times <= axes[-1].size:
                axes[-1] = replace(axes[-1], size=axes[-1].size + times * (axis.size - 1))
            else:
                axes.append(axis)
        united = Pattern(self.offset, tuple(reversed(axes)), 1)
        return united if united.nests else None


def count_between(pattern: Pattern, start: int, stop: int) -> int | None:
    """Return how many different storage elements in ``start`` to ``stop`` the pattern reads; None if not known."""
    nested = pattern.nested()
    if nested is None:
        return None

    def below(end: int) -> int:
        """Count the elements before ``end``: for each axis its whole steps, then what the last one has inside."""
        rest, found, inside = end - nested.offset, 0, nested.steps
        if rest <= 0:
            return 0
        for axis in nested.axes:
            inside //= axis.size
            at = min((rest - 1) // axis.stride, axis.size - 1)
            found, rest = found + at * inside, rest - at * axis.stride
        return found + 1

    return below(stop) - below(start)


# Reading a tensor of any size in pieces: no dimension of stride 0 twice, no huge tensor whole.


@dataclass(frozen=True, slots=True)
class SampledRegion:
    """The part of a tensor that is read."""

    tensor: torch.Tensor  # a view of the tensor (short-lived: never leaves the collector)
    steps: tuple[int, ...]  # for each dimension, every how-manieth index the view holds
    repeats: int  # how many elements of the tensor each element of the view stands for *exactly* (stride 0)
    of: int  # how many elements the whole tensor has
    sampling: str  # what was left out, in words; empty where nothing was

    def index(self, rank: int) -> tuple[int, ...]:
        """Return the index, in the whole tensor, of the view's element at ``rank`` in reading order."""
        at: list[int] = []
        for size, step in zip(reversed(self.tensor.shape), reversed(self.steps), strict=True):
            rank, place = divmod(rank, size)
            at.append(place * step)
        return tuple(reversed(at))


def thinned(x: torch.Tensor, limit: int, *, kept: int = 0) -> SampledRegion:
    """Return what to read of a strided tensor so that at most about ``limit`` elements are read.

    Dimensions of stride 0 are read once. Where the rest is still too long, evenly spaced indices of the longest
    dimensions are taken, but for the first ``kept`` dimensions.
    """
    view, steps, words = x, [1] * x.dim(), []
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if stride == 0 and size > 1:
            view = view.narrow(dim, 0, 1)
    repeats = x.numel() // view.numel()
    while view.numel() > limit and (longest := max(view.shape[kept:], default=1)) > 1:
        dim = view.shape.index(longest, kept)
        step = min(-(-view.numel() // limit), longest)
        view = view[(slice(None),) * dim + (slice(None, None, step),)]
        steps[dim] *= step
        words.append(f"every {ordinal(step)} index of dimension {dim}")
    return SampledRegion(view, tuple(steps), repeats, x.numel(), " and ".join(words))


def chunks(x: torch.Tensor, most: int) -> Iterator[torch.Tensor]:
    """Cut a tensor into views of at most ``most`` elements, in reading order."""
    if x.numel() <= most:
        yield x
        return
    inner = [prod(x.shape[dim + 1 :]) for dim in range(x.dim())]
    level = next(dim for dim, elements in enumerate(inner) if elements <= most)
    length = most // inner[level]
    for prefix in itertools.product(*(range(size) for size in x.shape[:level])):
        block = x[prefix]
        for start in range(0, x.shape[level], length):
            yield block.narrow(0, start, min(length, x.shape[level] - start))


_core: Any = torch._C


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a storage, found out without touching it."""

    identity: int  # of torch's storage object; the same for all tensors that have this storage
    device: str  # as torch writes it
    address: int  # of the first byte; 0 where there is no memory (meta and fake tensors)
    nbytes: int  # size

    @classmethod
    def of(cls, x: torch.Tensor) -> Memory:
        """Return the memory of a tensor's storage. Raises where the tensor has none."""
        storage = x.untyped_storage()
        address = 0 if storage.device.type == "meta" else _address(x, storage)
        return cls(storage._cdata, str(storage.device), address, number(storage.nbytes()))

    @classmethod
    def behind(cls, x: torch.Tensor) -> Memory:
        """Return the memory of a storage: of no bytes where, as in a fake or jagged one, nothing lies behind it."""
        storage = x.untyped_storage()
        try:
            memory = cls.of(x)
        except RuntimeError:  # torch does not give an address where there is none
            memory = cls(storage._cdata, str(storage.device), 0, 0)
        return memory if memory.address else replace(memory, nbytes=0)

    def shift(self, other: Memory) -> int | None:
        """Return how many bytes after this memory the other one starts; None where they have no byte in common."""
        if other.identity == self.identity:
            return 0
        if other.device != self.device or not self.address or not other.address:
            return None
        apart = other.address - self.address
        return apart if -other.nbytes < apart < self.nbytes else None


def _address(x: torch.Tensor, storage: torch.UntypedStorage) -> int:
    """Return the address of a storage's first byte; one that is copied on write would be, if asked for it plainly."""
    try:
        lazy = _core._is_cow_tensor(x)
    except RuntimeError:  # from torch 2.14 on, for classes with ``__torch_dispatch__``
        lazy = bool(_core._data_address(x))
    if not lazy:
        return storage.data_ptr()
    return int(_core._data_address(x)) - int(x.storage_offset()) * x.element_size()


# Whether two tensors count their in-place writes on the same version counter, found out by looking alone.
#
# ``.detach()`` shares the counter, ``.data`` does not: the difference between an error and a silently wrong gradient.
# torch shows a counter's *value* alone, and finding out by writing would change the user's tensors. But a tensor's C++
# part (``c10::TensorImpl``) holds a pointer to its counter, at a place that is fixed in one build of torch: it is the
# one word that is equal for tensors known to share a counter and differs for tensors known not to. Where there is no
# such word, or more than one, the answer is "cannot tell".
def shares_version(x: torch.Tensor, y: torch.Tensor) -> bool | None:
    """Return whether x and y count writes on one version counter; None where that is unknown."""
    if x.is_inference() or y.is_inference():
        return False  # inference tensors have no counter
    if x._cdata == y._cdata:
        return True
    if x._version != y._version:
        return False
    if counter_place() is None:
        return None
    counter = counter_of(x)
    return counter is not None and counter == counter_of(y)


@cache
def counter_place() -> int | None:
    """Return which word of a tensor's C++ part points to its version counter; None where no single word can be it.

    Inside a dispatch mode autograd is out of reach: it is asked before one is on, and known from then on.
    """
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
    """Return which version counter x counts its writes on; None where it has none (inference) or that is unknown."""
    place = None if x.is_inference() else counter_place()
    return None if place is None else _words(x)[place] or None


# Which arguments an ATen op writes to: what its schema says, read once an op.
#
# Ops that change only how a tensor is read (``t_``, ``squeeze_``, ``resize_``, ``set_``) change no element: torch
# tags them ``inplace_view``. Batch norm updates its running statistics without saying so in its schema.
@dataclass(frozen=True, slots=True)
class Written:
    """What an op writes to."""

    # Position (None: by name alone) and name of every argument that is written to.
    slots: tuple[tuple[int | None, str], ...]
    name: str  # As a user knows the op: ``"add_"``, ``"mm.out"``.
    pointwise: bool = False  # Whether element i of the result depends on element i of the operands alone.
    same_value: bool = False  # Whether all elements get one value.
    random: bool = False  # Whether running it again gives something else.
    when: str = ""  # Name of the argument that says whether it writes at all; empty where it always does.

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Return the tensors that this call writes to; lists are taken apart."""
        found: list[torch.Tensor] = []
        for position, name in self.slots:
            given = args[position] if position is not None and position < len(args) else kwargs.get(name)
            if isinstance(given, torch.Tensor):
                found.append(given)
            elif isinstance(given, list | tuple):
                found += [item for item in given if isinstance(item, torch.Tensor)]
        return found


@cache
def written_by(op: Any) -> Written:
    """Return what ``op`` writes to; nothing for anything that is no ATen overload."""
    if not isinstance(op, torch._ops.OpOverload):
        return Written((), "")
    schema = op._schema
    undeclared = ("running_mean", "running_var") if schema.name in _BATCH_NORMS else ()
    slots = tuple(
        (None if argument.kwarg_only else position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.name in undeclared or (argument.alias_info is not None and argument.alias_info.is_write)
    )
    if not slots or torch.Tag.inplace_view in op.tags or schema.name in _NO_ELEMENTS:
        return Written((), "")
    name = schema.name.partition("::")[2]
    is_out = any(position is None for position, _ in slots) or name.endswith("out")
    pointwise = torch.Tag.pointwise in op.tags or name.startswith(("copy_", "_foreach", "_fused"))
    shown, random = name, torch.Tag.nondeterministic_seeded in op.tags
    if is_out and not name.endswith("_"):
        shown = f"{name}, out="
    return Written(slots, shown, pointwise, schema.name in _SAME_VALUE, random, "training" if undeclared else "")


def does_write(written: Written, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether this call writes: batch norm only in training, ``x[0] += 1`` not once more onto itself.

    Nothing is written to a lazy module's parameter that has no elements yet; torch lets it be loaded.
    """
    if written.name == "copy_":
        return not is_lazy(args[0]) and not is_same_place(args[0], args[1])
    if not written.when:
        return True
    at = [argument.name for argument in op._schema.arguments].index(written.when)
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
