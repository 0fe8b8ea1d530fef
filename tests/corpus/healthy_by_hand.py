"""Optimizers and updates that were written by hand, and closures, as they should be."""

from __future__ import annotations

import torch

from tests.corpus.cases import healthy
from tests.corpus.ill_by_hand import _fit


class Assigning(torch.optim.Optimizer):
    """Makes new tensors, and puts them in the place of the old ones."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                slope = p.grad.data
                slope = slope + 0.01 * p.data
                p.data = p.data - group["lr"] * slope


class Waiting(torch.optim.Optimizer):
    """Adds up what eight backward passes bring."""

    def __init__(self, parameters, defaults):
        super().__init__(parameters, defaults)
        self.calls = 0

    def zero_grad(self, set_to_none=True):
        if self.calls % 8 == 0:
            super().zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups if self.calls % 8 == 0 else ():
            for p in group["params"]:
                kept = self.state[p].get("kept", 0)
                kept = kept + p.grad
                self.state[p]["kept"] = kept
                p.sub_(group["lr"] * kept)


@healthy(nearly="TM617")
def an_optimizer_of_the_user_s_that_assigns_data():
    return _fit(Assigning)


@healthy(nearly="TM617")
def an_optimizer_of_the_user_s_that_waits():
    """In a run that is shorter than it waits."""
    return _fit(Waiting, 5)


@healthy(nearly="TM617")
def an_optimizer_of_the_user_s_that_steps_after_eight_passes():
    return _fit(Waiting, 17)
