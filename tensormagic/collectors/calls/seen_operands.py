"""What two operands do to each other where they meet: dtypes that are promoted, memory formats that differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.calls.call_notes import Call, CallNotes
from tensormagic.collectors.quiet import quiet

ELEMENTWISE = ("add", "sub", "mul", "div", "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "rsub", "pow", "where",
               "maximum", "minimum")  # fmt: skip
LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
JOINING = ("cat", "stack", "concat")
CONVOLUTIONS = ("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d")

_NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


MAKING = ("from_numpy", "tensor", "as_tensor", "asarray", "linspace")
MOST_MADE = 64


class Doubles:
    """Where the float64 tensors of this run were made, by the address of their storage."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[StorageWeakRef, int | None]] = {}

    def line_of(self, x: torch.Tensor) -> int | None:
        """Return the line that made a tensor, or what it is a view of; None where that is not known."""
        known = self._made.get(x.untyped_storage()._cdata) if x.layout is torch.strided else None
        return known[1] if known is not None else None

    def add(self, x: torch.Tensor, site: int | None) -> None:
        """Remember where a tensor was made."""
        storage = x.untyped_storage()
        if len(self._made) >= MOST_MADE:
            del self._made[next(iter(self._made))]
        self._made[storage._cdata] = (StorageWeakRef(storage), site)  # type: ignore[no-untyped-call]


class NotesOfDoubles(CallNotes):
    """Notes beside which float64 tensors are remembered."""

    doubles: Doubles


def made_double(watch: NotesOfDoubles, call: Call) -> None:
    """Remember where a float64 tensor was made from data."""
    x = call.result
    if isinstance(x, torch.Tensor) and x.dtype is torch.float64 and x.dim() and x.layout is torch.strided:
        watch.doubles.add(x, watch.site(call))


def _tensors(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from (item for item in value if isinstance(item, torch.Tensor))


def promoted(watch: NotesOfDoubles, call: Call) -> None:
    """Note a result in float64 where something narrower met float64; a number or a 0-d tensor never promotes."""
    result = call.result
    if not isinstance(result, torch.Tensor) or result.dtype is not torch.float64:
        return
    given = list(_tensors((*call.args, *call.kwargs.values())))
    wide = next((x for x in given if x.dtype is torch.float64 and x.dim()), None)
    narrow = next((x for x in given if x.dtype in _NARROW and x.dim()), None)
    if wide is None or narrow is None:
        return
    operands = given if len(given) == 2 else [wide, narrow]
    origin = "" if wide.layout is not torch.strided or wide.untyped_storage().resizable() else "numpy"
    watch.note("promoted", call, operands=operands, result=result, made=watch.doubles.line_of(wide), detail=origin)


def mixed(watch: CallNotes, call: Call) -> None:
    """Note operands of which one lies channels-last and another contiguous, neither both at once."""
    given = [x for x in _tensors(call.args) if x.dim() in _LAST][:2]
    if len(given) < 2 or not isinstance(call.result, torch.Tensor):
        return
    formats = [_format(x) for x in given]
    if "" in formats or formats[0] == formats[1]:
        return
    odd = given[formats[0] == _format(call.result)]  # the one whose order the result does not have
    how = "converted" if call.name in CONVOLUTIONS else "strided"
    nbytes = odd.numel() * odd.element_size()
    watch.note("mixed formats", call, operands=given, result=call.result, nbytes=nbytes, detail=how)


def _format(x: torch.Tensor) -> str:
    """Return in which of both orders a tensor lies; empty where in both, or in neither."""
    if x.layout is not torch.strided:
        return ""
    plain, last = x.is_contiguous(), x.is_contiguous(memory_format=_LAST[x.dim()])
    return "" if plain == last else "contiguous" if plain else "channels_last"


# Eight bits without a sign hold 0 to 255: what lies outside comes back at the other end.

ARITHMETIC = ("add", "sub", "mul", "__radd__", "__rsub__", "__rmul__", "rsub", "neg", "__neg__")
_MOST_COMPARED = 1 << 20


def wrapped(watch: CallNotes, call: Call) -> None:
    """Note arithmetic of uint8 whose result is another than that of the same numbers in int32."""
    result = call.result
    if not isinstance(result, torch.Tensor) or result.dtype is not torch.uint8 or type(result) is not torch.Tensor:
        return
    given = call.args[:2]
    if call.kwargs or result.device.type != "cpu" or not 0 < result.numel() <= _MOST_COMPARED or result is given[0]:
        return
    wide = [x.to(torch.int32) if isinstance(x, torch.Tensor) else x for x in given]
    with quiet():
        right = call.function(*wide)
        lost = int((right != result).sum())
    if lost:
        watch.note("wrapped", call, operands=list(_tensors(given)), of=len(given), result=result,
                   detail=f"{lost} of {result.numel()} from {int(right.min())} to {int(right.max())}")  # fmt: skip
