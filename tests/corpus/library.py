"""A file of the user's own that the training code imports: findings must point into it, not to the caller."""

from __future__ import annotations

import torch
from torch import nn


def entropy(probabilities):
    logarithm = probabilities.log()
    return -(probabilities * logarithm).sum(-1)


class Distance(nn.Module):
    """The distance of two learnt points from each other, without anything that keeps it from zero."""

    def __init__(self):
        super().__init__()
        self.left = nn.Parameter(torch.ones(4))
        self.right = nn.Parameter(torch.ones(4))

    def forward(self):
        difference = self.left - self.right
        return difference.square().sum().sqrt()
