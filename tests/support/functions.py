"""Custom autograd Functions that several tests need."""

from __future__ import annotations

from typing import Any

import torch


class Same(torch.autograd.Function):
    """Does nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Hand on."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Hand back."""
        return gradient
