"""Which calls the tracer cares about: one table, so that every other call costs one look-up in it and no more.

A call may have a role (it ends the gradient's way, see `collectors.cuts.detachment_values`) and looks: functions that
are told of it once it has been made, and note what is worth knowing. To watch another call, write a look
(``look(watch, call)``) in a file of its own, and a line in `_LOOKS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import torch

from tensormagic.collectors.calls import (
    loop_notes,
    seen_broadcasts,
    seen_copies,
    seen_draws,
    seen_fresh,
    seen_losses,
    seen_operands,
    seen_sequences,
    seen_waits,
)
from tensormagic.collectors.calls.call_watch import Look
from tensormagic.collectors.cuts.detachment_values import ROLES
from tensormagic.collectors.faults.autograd_watch import NOTED


class Watched(NamedTuple):
    """What a call is to the tracer: its role where gradients end, who looks at it afterwards, and as what it is noted.

    Looks are taken ever more rarely; what `autograd_watch` notes (writes in place above all), it is told of each time.
    """

    role: str | None
    looks: tuple[Look, ...]
    noted: str = ""


# The last two are seen as wholes where a mode of the person's is on beside ours, as with ``torch.set_default_device``.
_OWNERS: tuple[Any, ...] = (
    torch.Tensor,
    torch,
    torch._C._nn,
    torch._C._VariableFunctions,
    torch.nn.functional,
    torch.nn.init,
)

_LOOKS: tuple[tuple[Look, tuple[str, ...]], ...] = (
    (seen_copies.copied, seen_copies.NAMES),
    (loop_notes.added, loop_notes.SUMS),
    (seen_broadcasts.both_grew, seen_broadcasts.NAMES),
    (seen_broadcasts.grew_in_a_loss, seen_broadcasts.JOINED),
    (seen_broadcasts.grew_in_a_whole_loss, seen_operands.LOSSES),
    (seen_operands.promoted, (*seen_operands.ELEMENTWISE, *seen_operands.LOSSES, *seen_operands.JOINING)),
    (seen_operands.mixed, (*seen_operands.ELEMENTWISE, *seen_operands.JOINING, *seen_operands.CONVOLUTIONS)),
    (seen_operands.made_double, seen_operands.MAKING),
    (seen_losses.normalised, seen_losses.NAMES),
    (seen_copies.regrouped, seen_copies.RESHAPING),
    (seen_copies.same_memory, seen_copies.STACKING),
    (seen_operands.wrapped, seen_operands.ARITHMETIC),
    (seen_losses.no_logarithms, seen_losses.DIVERGENCES),
    (seen_losses.likelihood_over, seen_losses.LIKELIHOODS),
    (seen_losses.weights_over, seen_losses.PRODUCTS),
    (seen_losses.samples_over, seen_losses.SOFTMAXES),
    (seen_sequences.recurred, seen_sequences.LAYERS),
    (seen_sequences.last_of_the_batch, seen_sequences.INDEXING),
    (seen_losses.not_detached, seen_losses.SCORING),
    (seen_losses.bootstrapped, seen_losses.COMPARING),
    (seen_draws.loaded, seen_draws.SEEDING),
    (seen_draws.dropped, seen_draws.DROPPING),
    (seen_draws.drew, seen_draws.NAMES),
    (seen_fresh.asked_for, seen_fresh.NAMES),
    (seen_waits.waited, seen_waits.NAMES),
    (loop_notes.normalised, loop_notes.NORMS),
    (loop_notes.clipped, loop_notes.CLIPS),
)


def _functions(names: Iterable[str]) -> Iterable[Any]:
    """Yield what bears each name: the method of a tensor, and the function of torch."""
    for name in names:
        for owner in _OWNERS:
            if callable(function := getattr(owner, name, None)) and not isinstance(function, type | torch.dtype):
                yield function


def _watched() -> dict[Any, Watched]:
    looks: dict[Any, tuple[Look, ...]] = {loop_notes.PROFILED: (loop_notes.cleared,)}
    for look, names in _LOOKS:
        for function in dict.fromkeys(_functions(names)):
            looks[function] = (*looks.get(function, ()), look)
    return {
        function: Watched(ROLES.get(function), looks.get(function, ()), NOTED.get(function, ""))
        for function in {**ROLES, **looks, **NOTED}
    }


WATCHED: Final[dict[Any, Watched]] = _watched()
