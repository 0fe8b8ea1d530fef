"""Which line calls ``optimizer.zero_grad()``: torch tells the profiler when it begins, and with it whoever watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from tensormagic.collectors.calls.call_watch import Call, CallWatch

PROFILED: Final[Any] = torch.ops.profiler._record_function_enter_new
_BEGINS = "Optimizer.zero_grad"


def cleared(watch: CallWatch, call: Call) -> None:
    """Note the line, where it is that which begins."""
    if str(call.args[0]).startswith(_BEGINS):
        watch.loop.cleared = watch.site(call)
