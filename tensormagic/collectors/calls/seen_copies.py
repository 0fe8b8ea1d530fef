"""Calls that give a view where they can, and have copied: ``reshape``, ``flatten`` and ``ravel``."""

from __future__ import annotations

import torch

from tensormagic.collectors.calls.call_notes import Call, CallNotes

SMALLEST = 1 << 16  # bytes; what is less is not even counted

NAMES = ("reshape", "flatten", "ravel", "reshape_as")


def copied(watch: CallNotes, call: Call) -> None:
    """Note a copy, told by the storage behind the result."""
    result, source = call.result, call.args[0] if call.args else call.kwargs.get("input")
    if result is source or not isinstance(result, torch.Tensor) or not isinstance(source, torch.Tensor):
        return
    nbytes = result.numel() * result.element_size()
    if nbytes < SMALLEST or result.layout is not torch.strided or result.device.type == "meta":
        return
    if result.untyped_storage()._cdata != source.untyped_storage()._cdata:
        watch.note("copy", call, operands=(source,), result=result, nbytes=nbytes)
