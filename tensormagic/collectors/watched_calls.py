"""Which calls the tracer cares about: one table, so that every other call costs one look-up in it and no more.

A call may have a role (it ends the gradient's way, see `tensormagic.collectors.cut_calls`) and looks: functions that
are told of it once it has been made, and note what is worth knowing. To watch another call, write a look
(``look(watch, call)``) in a file of its own, and a line in `_LOOKS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import torch

from tensormagic.collectors import running_sums, seen_clearing, seen_copies
from tensormagic.collectors.autograd_watch import NOTED
from tensormagic.collectors.call_watch import Look
from tensormagic.collectors.cut_calls import ROLES


class Watched(NamedTuple):
    """What a call is to the tracer: its role where gradients end, who looks at it afterwards, and as what it is noted.

    Looks are taken ever more rarely; what `autograd_watch` notes (writes in place above all), it is told of each time.
    """

    role: str | None
    looks: tuple[Look, ...]
    noted: str = ""


_OWNERS: tuple[Any, ...] = (torch.Tensor, torch)

_LOOKS: tuple[tuple[Look, tuple[str, ...]], ...] = (
    (seen_copies.copied, seen_copies.NAMES),
    (running_sums.added, running_sums.NAMES),
)  # fmt: skip


def _functions(names: Iterable[str]) -> Iterable[Any]:
    """Yield what bears each name: the method of a tensor, and the function of torch."""
    for name in names:
        for owner in _OWNERS:
            if callable(function := getattr(owner, name, None)) and not isinstance(function, type | torch.dtype):
                yield function


def _watched() -> dict[Any, Watched]:
    looks: dict[Any, tuple[Look, ...]] = {seen_clearing.PROFILED: (seen_clearing.cleared,)}
    for look, names in _LOOKS:
        for function in dict.fromkeys(_functions(names)):
            looks[function] = (*looks.get(function, ()), look)
    return {
        function: Watched(ROLES.get(function), looks.get(function, ()), NOTED.get(function, ""))
        for function in {**ROLES, **looks, **NOTED}
    }


WATCHED: Final[dict[Any, Watched]] = _watched()
