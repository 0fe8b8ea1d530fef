"""Updates without an optimizer, of a few leaves: ``with torch.no_grad(): w -= lr * w.grad``, seen by their versions.

What is written through ``.data`` leaves the version as it is; that is known from the calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain

import torch

from tensormagic.collectors.graphs.blind_writes import BlindWrites
from tensormagic.collectors.graphs.skeleton import Skeleton
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.training.stepping import Brought, Moment, Stepping
from tensormagic.collectors.training.witnesses import Witness, witnesses_of
from tensormagic.reports import OptimizerUse


class ByHand:
    """Follows leaves that no optimizer holds.

    Args:
        leaves: The leaves met so far.
        brought: As `Stepping` takes it.
        blind: What was written through ``.data``.
    """

    def __init__(self, leaves: Leaves, brought: Brought, blind: BlindWrites) -> None:
        self._leaves, self._blind = leaves, blind
        self._brought = brought
        self._known = 0
        self._reached: set[int] = set()  # numbers of leaves; another thread's may be collecting its gradient right now
        self._graphs: set[int] = set()
        self._theirs: set[int] = set()
        self._witnesses: list[Witness] = []
        self._versions = array("q")
        self._stepping: Stepping | None = None

    def leave_to(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note that an optimizer holds these."""
        self._theirs.update(id(parameter) for parameter in parameters)
        if self._witnesses and any(id(witness.parameter()) in self._theirs for witness in self._witnesses):
            self._stepping, self._witnesses = None, []
            self._known = 0

    def before_pass(self, backward: int | None, passes: int) -> None:
        """Look before a backward: a leaf that changed since the last one, at that line, was updated."""
        if self._stepping is None:
            return
        if self._versions != self._now():
            self._stepping.updated(Moment(None, backward, None, passes))
        self._stepping.before_pass()

    def reached(self, skeleton: Skeleton) -> None:
        """Note which leaves a pass of this thread led to."""
        if skeleton.number not in self._graphs:
            self._graphs.add(skeleton.number)
            self._reached.update(skeleton.leaf_of.values())

    def after_pass(self) -> None:
        """Look after a backward; where new leaves have come, choose whom to follow."""
        if self._stepping is not None:
            self._stepping.after_pass()
        elif len(self._reached) != self._known:
            self._choose()
        self._versions = self._now()

    def forget(self) -> None:
        """Note that something may have gone by unseen."""
        self._versions = self._now()
        if self._stepping is not None:
            self._stepping.forget()

    @property
    def updates(self) -> int:
        """How many updates there were so far."""
        return self._stepping.tally.steps if self._stepping is not None else 0

    def use(self) -> OptimizerUse | None:
        """Return what is known; None where nothing was updated by hand."""
        stepping = self._stepping
        if stepping is None or not stepping.tally.steps:
            return None
        return OptimizerUse(
            name="", type_name="", steps=stepping.tally.steps, patterns=stepping.tally.patterns(),
            left_out=stepping.tally.left_out, holds=self._numbers(), accumulation=stepping.accumulation,
        )  # fmt: skip

    def _numbers(self) -> tuple[int, ...]:
        alive = (witness.parameter() for witness in self._witnesses)
        numbers = (self._leaves.find(leaf) for leaf in alive if leaf is not None)
        return tuple(sorted(number for number in numbers if number is not None))

    def _choose(self) -> None:
        self._known = len(self._reached)
        alive = (self._leaves.known[number].reference() for number in sorted(self._reached))
        free = [leaf for leaf in alive if leaf is not None and id(leaf) not in self._theirs]
        if found := witnesses_of(free, _has_gradient):
            self._witnesses = found
            self._stepping = Stepping(self._witnesses, self._brought)
            self._stepping.begin()

    def _now(self) -> array[int]:
        """Return version and blind write of each witness, one after the other: sixteen bytes a leaf."""
        found = (witness.parameter() for witness in self._witnesses)
        told = ((-1, -1) if leaf is None else (leaf._version, self._written(leaf)) for leaf in found)
        return array("q", chain.from_iterable(told))

    def _written(self, leaf: torch.Tensor) -> int:
        return self._blind.last_at(leaf.data_ptr()) if self._blind.any and leaf.layout is torch.strided else -1


def _has_gradient(leaf: torch.Tensor) -> bool:
    return leaf.grad is not None
