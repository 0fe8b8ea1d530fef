"""Follows the ``.grad`` of a few parameters between backward passes and optimizer steps.

Nothing tells when a gradient is cleared: torch has no hook for it. What can be seen is the state in which it stands at
the next backward or step: none, another tensor, another version, or exactly what it was. That is enough to tell a
gradient that was cleared from one that the next backward adds to, and costs about 0.15 µs a look.

Old code clears with ``w.grad.data.zero_()``, which no version tells of. So where nothing seems to have changed the
values are asked, seldom: the first few times, then at exponentially rarer ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from tensormagic.collectors.quiet import answers_itself, here, quiet

MOST_WITNESSES = 3  # parameters of one optimizer that are followed
FIRST_QUESTIONS = 8  # looks at values before they become rare

Reference = Callable[[], "torch.Tensor | None"]


def gradient_of(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Return a leaf's ``.grad``, its local shard; None also where the leaf is gone, or is none (torch would warn)."""
    return here(tensor.grad) if tensor is not None and tensor.is_leaf else None


class Seldom:
    """Says whether to ask a costly question again: the first times, then at powers of two."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = 0

    def now(self) -> bool:
        """Count one more occasion; return whether to ask on it."""
        self.asked += 1
        return self.asked <= FIRST_QUESTIONS or self.asked & (self.asked - 1) == 0


@dataclass(slots=True)
class Witness:
    """One parameter whose gradient is followed.

    Attributes:
        parameter: Weak.
        gradient: Weak, to its ``.grad`` when last looked at; None where it had none.
        version: The version of that gradient.
        used: Whether a step has used what stands in it, and it was not cleared since.
        brought: Whether a backward has changed it since the last step, and it was not cleared since.
        emptied: Whether it was brought something since the last step, and is cleared now.
        by_backward: Whether what stands in it came from a backward, and not from the person's own hand.
    """

    parameter: Reference
    gradient: Reference | None = None
    version: int = -1
    used: bool = False
    brought: bool = False
    emptied: bool = False
    by_backward: bool = False

    def look(self) -> bool:
        """Return whether the gradient is what it was when last looked at; remember what it is now."""
        leaf = self.parameter()
        now = leaf.grad if leaf is not None and leaf.is_leaf else None  # as `gradient_of`, without a call
        now = now if type(now) is torch.Tensor else here(now)
        if now is None:
            same, self.gradient = self.gradient is None, None
            return same
        version = now._version
        same = self.gradient is not None and self.gradient() is now and self.version == version
        if not same:
            self.gradient, self.version = weakref.ref(now), version
        return same

    def is_zero(self) -> bool:
        """Return whether the gradient is there and all zero: reads its values."""
        now = gradient_of(self.parameter())
        return now is not None and all_zero(now)

    def before_pass(self) -> bool:
        """Look before a backward; return whether it would add to what a step has used, as far as versions tell."""
        if not self.look() or self.gradient is None:
            self.forget()
        return self.used

    def after_pass(self) -> None:
        """Look after a backward."""
        if not self.look():
            self.brought = self.by_backward = self.gradient is not None

    def before_step(self) -> bool:
        """Look before a step; return whether what a backward brought was changed since, and may have been cleared."""
        same = self.look()
        if self.gradient is None:
            self.empty()
        elif not same and not self.brought:
            self.used = self.by_backward = False
        return not same and self.brought

    def after_step(self) -> None:
        """Look after a step, which has used it."""
        self.look()
        self.used, self.brought, self.emptied = self.gradient is not None, False, False

    def empty(self) -> None:
        """Note that it is cleared, just before a step."""
        emptied = self.brought or self.emptied
        self.forget()
        self.emptied = emptied

    def forget(self) -> None:
        """Begin anew: what stands in it was not brought, and not used."""
        self.used = self.brought = self.emptied = self.by_backward = False


def all_zero(gradient: torch.Tensor) -> bool:
    """Return whether every element is zero; False where that cannot be asked."""
    try:
        with quiet():
            values = gradient.coalesce().values() if gradient.layout is torch.sparse_coo else gradient
            return not bool(values.any())
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def _may_do(_: torch.Tensor) -> bool:
    return True


def witnesses_of(tensors: Iterable[torch.Tensor], suits: Callable[[torch.Tensor], bool] = _may_do) -> list[Witness]:
    """Return witnesses for a few of these parameters, evenly spaced among those that ask for a gradient.

    Args:
        tensors: The parameters.
        suits: Which of them will do. Few are asked: to look at a ``.grad`` makes a Python object of it, which stays.
    """
    asking = [each for each in tensors if each.requires_grad and each.is_leaf and not answers_itself(here(each))]
    chosen: list[int] = []
    for at in _evenly(len(asking)):
        nearest = (place for place in chain(range(at, len(asking)), range(at)) if place not in chosen)
        if (found := next((place for place in nearest if suits(asking[place])), None)) is None:
            break
        chosen.append(found)
    return [Witness(weakref.ref(asking[at])) for at in sorted(chosen)]


def _evenly(count: int) -> Sequence[int]:
    if count <= MOST_WITNESSES:
        return range(count)
    return [at * (count - 1) // (MOST_WITNESSES - 1) for at in range(MOST_WITNESSES)]
