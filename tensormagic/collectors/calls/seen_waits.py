"""Calls for which the host has to wait until a device has done all that it was given: reading a value is one.

On the CPU there is nothing to wait for, and nothing is noted.
"""

from __future__ import annotations

import torch

from tensormagic.collectors.calls.call_notes import Call, CallNotes

NAMES = (
    "item", "tolist", "cpu", "to", "__float__", "__int__", "__bool__", "__index__", "is_nonzero", "nonzero", "argwhere",
    "masked_select", "unique", "equal", "allclose", "__repr__", "__format__",
)  # fmt: skip
_HERE = frozenset({"cpu", "meta"})


def waited(watch: CallNotes, call: Call) -> None:
    """Note a call that reads what is on a device."""
    x = call.args[0] if call.args else None
    if not isinstance(x, torch.Tensor) or x.device.type in _HERE:
        return
    if call.name in {"to", "cpu"} and not _arrives(call):
        return
    watch.note("synchronised", call, operands=(x,), detail=str(x.device))


def _arrives(call: Call) -> bool:
    """Return whether something was brought here, and waited for."""
    here = isinstance(call.result, torch.Tensor) and call.result.device.type == "cpu"
    return here and not call.kwargs.get("non_blocking", False)
