"""The code that is traced in the benchmarks: three models, from bound by overhead to bound by arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], None]


def deep_mlp() -> tuple[nn.Module, Step]:
    """(a) 50 × (Linear(64) + ReLU), batch 8: all overhead."""
    net = nn.Sequential(*[layer for _ in range(50) for layer in (nn.Linear(64, 64), nn.ReLU())])
    for layer in net[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # else no gradient reaches the first of them
    x = torch.randn(8, 64)
    return net, lambda: net(x).sum().backward()


def _encoder(width: int, heads: int, batch: int, length: int) -> tuple[nn.Module, Step]:
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True)
    net = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    x = torch.randn(batch, length, width)
    return (
        net,
        lambda: (net(x) - x).square().mean().backward(),
    )  # of what a norm ends in, squares alone have no gradient


def small_transformer() -> tuple[nn.Module, Step]:
    """(b) 4-layer width-128 transformer encoder, batch 4 × 32."""
    return _encoder(128, 4, 4, 32)


def large_transformer() -> tuple[nn.Module, Step]:
    """(c) 4-layer width-512 transformer encoder, batch 8 × 128: all arithmetic."""
    return _encoder(512, 8, 8, 128)


WORKLOADS = {"a": deep_mlp, "b": small_transformer, "c": large_transformer}
STEPS = {"a": 800, "b": 200, "c": 8}  # a few seconds each: a run worth watching
