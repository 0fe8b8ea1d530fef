"""Code with channels-last images in which nothing is converted, or nothing that counts (nearly TM103)."""

from __future__ import annotations

import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy


@healthy(nearly="TM103")
def model_and_images_in_channels_last():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    net = net.to(memory_format=torch.channels_last)
    images = torch.rand(8, 3, 128, 128).to(memory_format=torch.channels_last)
    scale = torch.rand(1, 8, 1, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            out = net(images)
            (out * scale + out).mean().backward()
    return trace.report


@healthy(nearly="TM103")
def photographs_as_numpy_has_them():
    """Rows of pixels turned into channels lie channels-last by themselves; the small weights are brought along."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    photographs = torch.rand(8, 128, 128, 3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(photographs.permute(0, 3, 1, 2)).mean().backward()
    return trace.report


@healthy(nearly="TM103")
def a_single_prediction_with_the_other_format():
    """Converted once, for one look at an untrained model."""
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.rand(8, 3, 128, 128)).mean().backward()
    return trace.report


@healthy(nearly="TM103")
def small_images_in_the_other_format():
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            net(torch.rand(8, 3, 16, 16)).mean().backward()
    return trace.report
