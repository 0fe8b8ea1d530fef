"""Memory that was asked for without a value, and read before anybody wrote one.

What ``torch.empty`` gave is known by a weak reference to its storage, so that views of it and an ``nn.Parameter`` made
of it are known too. The first write by torch ends that, wherever it comes from (the version counter tells of writes
that are not seen), and so does handing the memory to somebody else. Who writes without telling torch (a compiled
extension) changes what stands there: a few bytes from its ends are compared before anything is said. On other devices
than the CPU they cannot be had without waiting: there nothing is followed. Only what the person's own code asks for is
followed, and `Module.to_empty`: torch's own layers fill what they make.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.calls.call_notes import Call, CallNotes, flat
from tensormagic.collectors.where.source import is_own_code

NAMES = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
MOST_FOLLOWED = 128
LONGEST = 10_000  # calls that are looked at while something is followed
SAMPLE = 64  # bytes at either end

_TO_EMPTY = "torch/nn/modules/module.py"
_COPYING = frozenset({"clone", "to", "cpu", "float", "double", "half", "bfloat16", "contiguous", "type", "detach"})
_FILLING = frozenset({"__setitem__", "numpy", "__array__", "data_ptr", "untyped_storage", "storage", "__dlpack__",
                      "_typed_storage", "set_", "__reduce_ex__", "__deepcopy__", "share_memory_"})  # fmt: skip
_LOOKING = frozenset(
    {
        "__repr__",
        "__format__",
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "new_zeros",
        "new_ones",
        "new_empty",
        "new_full",
        "__get__",
    }
)
# These ignore their first operand where beta is 0.
_BETA = frozenset({"addmm", "addmv", "addr", "baddbmm", "addbmm", "sspaddmm"})
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_READING = frozenset({
    "add", "sub", "mul", "div", "pow", "rsub", "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rpow__", "neg",
    "abs", "exp", "log", "sqrt", "square", "sin", "cos", "tanh", "sigmoid", "relu", "softmax", "log_softmax", "matmul",
    "mm", "mv", "bmm", "dot", "addmm", "addmv", "baddbmm", "einsum", "linear", "conv1d", "conv2d", "conv3d", "sum",
    "mean", "std", "var", "max", "min", "amax", "amin", "norm", "prod", "argmax", "argmin", "cumsum", "sort", "topk",
    "cat", "stack", "concat", "embedding", "layer_norm", "batch_norm", "group_norm", "mse_loss", "l1_loss", "gelu",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy_loss", "item", "__float__", "silu",
    "add_", "sub_", "mul_", "div_", "pow_", "__matmul__", "__rmatmul__", "__pow__", "__neg__", "outer", "dropout",
})  # fmt: skip


class Unwritten:
    """One piece of memory that nobody has written yet, as far as torch knows."""

    __slots__ = ("bits", "intact", "reference", "site", "version")

    def __init__(self, x: torch.Tensor, site: int | None) -> None:
        storage = x.untyped_storage()
        self.reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # while it lives, no other storage gets this address
        self.site, self.version = site, x._version
        self.bits = _ends(storage)
        self.intact = False  # when a call began that reads and writes it

    def is_gone(self) -> bool:
        """Return whether the memory was given back."""
        return bool(self.reference.expired())  # type: ignore[no-untyped-call]

    def still_is(self, x: torch.Tensor) -> bool:
        """Return whether what was asked for is as it was when it came, judged by versions and bytes."""
        return x._version == self.version and _ends(x.untyped_storage()) == self.bits


def _ends(storage: torch.UntypedStorage) -> bytes:
    start, length = storage.data_ptr(), storage.nbytes()
    size = min(length, SAMPLE)
    return ctypes.string_at(start, size) + ctypes.string_at(start + length - size, size)


class Fresh:
    """The memory that is followed, by the address of its storage."""

    def __init__(self) -> None:
        self.marks: dict[int, Unwritten] = {}
        self._calls = 0

    def mark(self, x: torch.Tensor, site: int | None) -> None:
        """Follow the memory behind a tensor from now on."""
        if len(self.marks) >= MOST_FOLLOWED:
            for key in [key for key, mark in self.marks.items() if mark.is_gone()] or [next(iter(self.marks))]:
                del self.marks[key]
        self.marks[x.untyped_storage()._cdata] = Unwritten(x, site)
        self._calls = 0

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        """Look at memory that is about to be read and written in one call: afterwards it has changed anyway."""
        mark = self.marks.get(_key(args[0])) if args and name.endswith("_") else None
        if mark is not None:
            mark.intact = mark.still_is(args[0])

    def follow(self, watch: CallNotes, call: Call) -> None:
        """Look at what a call does with memory that is followed: it fills it, reads it, or looks away."""
        self._calls += 1
        if self._calls > LONGEST:
            self.marks.clear()
        given = [x for x in flat((*call.args, *call.kwargs.values())) if _key(x) in self.marks]
        if not given:
            return
        name = str(getattr(call.function, "__name__", ""))
        if name in _LOOKING or _is_blind(name, call, given) or self._goes_on(name, call, given):
            return
        if name in _READING and "out" not in call.kwargs:
            self._read(watch, call, given[0])
        for x in given:
            self.marks.pop(_key(x), None)

    def _goes_on(self, name: str, call: Call, given: list[torch.Tensor]) -> bool:
        """Return whether memory stays unwritten and unread: what came out is a view of it, a copy, or no tensor."""
        result = call.result
        if name in _FILLING or (name.endswith("_") and not name.endswith("__")):
            return False
        if not isinstance(result, torch.Tensor):
            return name not in _READING and not isinstance(result, tuple | list)
        if _key(result) == _key(given[0]):
            return True
        if name in _COPYING and is_followable(result):
            self.mark(result, self.marks[_key(given[0])].site)
            return True
        return False

    def _read(self, watch: CallNotes, call: Call, x: torch.Tensor) -> None:
        mark = self.marks[_key(x)]
        if mark.intact or mark.still_is(x):
            operands = [value for value in flat(call.args) if isinstance(value, torch.Tensor)]
            place = next(at for at, value in enumerate(operands) if value is x)
            watch.note("uninitialised", call, operands=operands, about=place, nbytes=x.nbytes, made=mark.site)


def _key(x: Any) -> int:
    if not isinstance(x, torch.Tensor) or type(x) not in _PLAIN or x.layout is not torch.strided or x.is_nested:
        return 0
    return int(x.untyped_storage()._cdata)


def is_followable(x: Any) -> bool:
    """Return whether memory can be followed: on the CPU, plain, not empty."""
    return bool(_key(x)) and x.device.type == "cpu" and x.numel() > 0 and not x.is_inference()


def _is_blind(name: str, call: Call, given: list[torch.Tensor]) -> bool:
    """Return whether a call ignores the values: ``torch.baddbmm(torch.empty(…), q, k, beta=0)`` is meant."""
    return name in _BETA and call.kwargs.get("beta") == 0 and len(given) == 1 and given[0] is call.args[0]


class NotesOfFresh(CallNotes):
    """Notes beside which memory is followed that nobody wrote."""

    fresh: Fresh


def asked_for(watch: NotesOfFresh, call: Call) -> None:
    """Follow memory that the person's own code has asked for."""
    filename = call.frame.f_code.co_filename.replace("\\", "/")
    if (is_own_code(filename) or filename.endswith(_TO_EMPTY)) and is_followable(call.result):
        watch.fresh.mark(call.result, watch.site(call))
