"""How long the dispatch mode takes for one operation: measured once, since timing it each time would cost as much."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import Any

import torch

from tensormagic.collectors.ops.op_places import Places
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.runs.op_mode import OpMode
from tensormagic.collectors.where.source import Sites

_CALLS, _ROUNDS = 50, 8


@cache
def seconds_an_operation() -> float:
    """Return what an operation takes longer under `OpMode`: the least of a few rounds (1 to 2 ms, once a process)."""
    with quiet():
        mode, x = OpMode(Places(Sites(), lambda _: "")), torch.zeros(1)
        with mode:
            under = min(_timed(mode.within, x) for _ in range(_ROUNDS))
        without = min(_timed(lambda call, _, *given: call(*given), x) for _ in range(_ROUNDS))
    return max(under - without, 0.0)


def _timed(make: Callable[..., Any], x: torch.Tensor) -> float:
    frame, op = sys._getframe(), torch.ops.aten.neg.default._op
    began = perf_counter()
    for _ in range(_CALLS):
        make(_plainly, frame, op, (x,), {})
    return (perf_counter() - began) / _CALLS


def _plainly(func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    return func(*args)
