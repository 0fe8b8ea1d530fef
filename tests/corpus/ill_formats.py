"""Code in which channels-last and contiguous tensors meet in every step (TM103)."""

from __future__ import annotations

import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill


@ill("TM103", severity="warning", line="net(images).mean().backward()", says=(
    "conv2d brings images, 1.5 MiB, into the channels_last order", "in each of its 4 calls",
    "`images = images.to(memory_format=torch.channels_last)`"), subject="images")  # fmt: skip
def a_model_in_channels_last_and_images_that_are_not():
    """Half of what the tutorial on memory formats says to do."""
    net = nn.Conv2d(3, 8, 3, stride=4).to(memory_format=torch.channels_last)
    images = torch.rand(8, 3, 128, 128)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            net(images).mean().backward()
    return trace.report


class Residual(nn.Module):
    """Adds a mask that was made in another format to what its convolution gives."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.register_buffer("noise", torch.rand(4, 8, 96, 96))

    def forward(self, x):
        return self.conv(x) + self.noise


@ill("TM103", severity="warning", line="return self.conv(x) + self.noise", says=(
    "add reads self.noise, 1.1 MiB, across its order: it is contiguous, self.conv(x) channels_last",))  # fmt: skip
def a_buffer_in_another_format_than_the_images():
    net = Residual()
    images = torch.rand(4, 8, 96, 96).to(memory_format=torch.channels_last)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(images).mean().backward()
    return trace.report


class Joined(nn.Module):
    """Makes one half of its features contiguous, and joins it with the other."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x):
        left = self.left(x).contiguous()
        right = self.right(x)
        return torch.cat([left, right], dim=1)


@ill("TM103", severity="warning", line="return torch.cat([left, right], dim=1)", says=("cat reads right,",
     "left contiguous", "1.1 MiB", "in each of its 3 calls"))  # fmt: skip
def a_contiguous_call_in_the_middle_of_a_network():
    net = Joined()
    images = torch.rand(4, 4, 96, 96).to(memory_format=torch.channels_last)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(images).mean().backward()
    return trace.report
