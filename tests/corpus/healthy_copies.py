"""Code whose reshapes are views, or whose copies are small, or said (nearly TM102)."""

from __future__ import annotations

import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy


@healthy(nearly="TM102")
def large_images_flattened_as_they_lie():
    """Every reshape is a view: nothing is copied, however large it is."""
    images = torch.rand(8, 3, 256, 256)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 256 * 256, 2))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            net(images).pow(2).mean().backward()
            images.view(24, 256, 256).reshape(-1)
    return trace.report


@healthy(nearly="TM102")
def small_heads_merged():
    """A copy of some KiB in every step costs nothing that anybody would notice."""
    weight = torch.randn(32, 32, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        for _ in range(8):
            x = torch.randn(4, 16, 32) @ weight
            x.view(4, 16, 4, 8).transpose(1, 2).reshape(4, 4, 128).mean().backward()
    return trace.report


@healthy(nearly="TM102")
def one_large_copy_that_is_said():
    """Who writes ``contiguous`` knows that there is a copy; the flatten after it is a view."""
    x = torch.rand(16, 256, 256).transpose(1, 2).contiguous()
    weight = torch.randn(256 * 256, 1, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        for _ in range(5):
            (x.flatten(1) @ weight).mean().backward()
    return trace.report


@healthy(nearly="TM102")
def large_heads_merged():
    """Attention computes its heads apart from each other: merging them is a copy that it cannot do without."""
    project = torch.nn.Linear(256, 256)
    x = torch.randn(8, 512, 256)
    with tm.trace(namespace={"project": project}) as trace:
        for _ in range(5):
            heads = project(x).view(8, 512, 4, 64).transpose(1, 2)
            apart = heads.reshape(32, 512, 64).softmax(-1).view(8, 4, 512, 64)
            apart.transpose(1, 2).reshape(8, 512, 256).pow(2).mean().backward()
    return trace.report
