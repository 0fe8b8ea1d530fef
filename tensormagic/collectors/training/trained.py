"""Which parameters get gradients and are in no optimizer that steps, and whether something else trains them."""

from __future__ import annotations

import gc
import weakref
from array import array
from collections.abc import Iterator

import torch

from tensormagic.collectors.objects.identity import Leaves


class Elsewhere:
    """Finds parameters that are trained by other means than the optimizers that stepped.

    Args:
        leaves: The leaves met so far.
    """

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._first: list[weakref.ref[torch.Tensor]] = []
        self._versions = array("q")  # of those
        self._passes = 0
        self.found: set[int] = set()

    def after_pass(self) -> None:
        """Compare versions with those seen first, ever more rarely: whoever trains a leaf, its version tells."""
        self._passes += 1
        if self._passes & (self._passes - 1) == 0:
            self.look()

    def look(self) -> None:
        """Compare now."""
        for number, (first, version) in enumerate(zip(self._first, self._versions, strict=True)):
            reference = self._leaves.known[number].reference
            leaf = first()
            if reference is not first or (leaf is not None and leaf._version != version):
                self.found.add(number)
        for leaf_known in self._leaves.known[len(self._first) :]:
            leaf = leaf_known.reference()
            self._first.append(leaf_known.reference)
            self._versions.append(-1 if leaf is None else leaf._version)

    def finish(self, missing: set[int]) -> None:
        """Look, once, whether optimizers that did not step hold any of these leaves, given by number."""
        self.look()
        leaves = ((number, self._leaves.known[number].reference()) for number in missing - self.found)
        places = {id(leaf): number for number, leaf in leaves if leaf is not None}
        for optimizer in _optimizers() if places else ():
            for group in optimizer.param_groups:
                self.found.update(places[id(held)] for held in group["params"] if id(held) in places)


def _optimizers() -> Iterator[torch.optim.Optimizer]:
    """Yield every optimizer there is; by type alone: nobody's code runs."""
    return (found for found in gc.get_objects() if issubclass(type(found), torch.optim.Optimizer))
