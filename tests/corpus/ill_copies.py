"""Code in which a reshape that looks free copies much memory (TM102), once what it should not have (TM106)."""

from __future__ import annotations

import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill


class Attention(nn.Module):
    """Merges its heads by a reshape that has to copy."""

    def __init__(self, dim=256, heads=4):
        super().__init__()
        self.heads, self.project = heads, nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        per_head = x.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
        merged = per_head.reshape(batch, length, dim)
        return self.project(merged)


@ill("TM106", severity="warning", line="merged = per_head.reshape(batch, length, dim)", subject="per_head", says=(
    "per_head of shape (8, 4, 512, 64)", "`per_head.transpose(1, 2).reshape(8, 512, 256)`"))  # fmt: skip
def heads_merged_without_turning_them_back():
    """Takes the reshape for what undoes the transpose: it mixes positions and heads, and copies."""
    net = Attention()
    x = torch.randn(8, 512, 256)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            net(x).sum().backward()
    return trace.report


@ill("TM102", severity="note", line="flat = spectra.transpose(1, 2).flatten(1)", subject="spectra.transpose(1, 2)",
     says=("flatten copies 8 MiB in each of its 4 calls", "`spectra.transpose(1, 2).contiguous()`"))  # fmt: skip
def spectra_turned_in_every_epoch():
    spectra = torch.rand(64, 128, 256)
    weight = torch.randn(128 * 256, 2, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        for _ in range(4):
            flat = spectra.transpose(1, 2).flatten(1)
            (flat @ weight).pow(2).mean().backward()
    return trace.report


@ill("TM102", severity="note", line="flat = images.permute(0, 3, 1, 2).flatten(1)",
     says=("flatten copies 6 MiB in each of its 4 calls", "images.permute(0, 3, 1, 2), of shape (8, 3, 256, 256)"),
     subject="images.permute(0, 3, 1, 2)")  # fmt: skip
def images_turned_and_flattened_in_every_epoch():
    images = torch.rand(8, 256, 256, 3)
    weight = torch.randn(3 * 256 * 256, 2, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        for _ in range(4):
            flat = images.permute(0, 3, 1, 2).flatten(1)
            (flat @ weight).pow(2).mean().backward()
    return trace.report


@ill("TM102", severity="note", line="total = total + table.t().ravel()[:10].sum() * scale",
     says=("ravel copies 4 MiB in each of its 6 calls, 24 MiB in total",))  # fmt: skip
def a_transposed_table_raveled_for_a_few_values():
    table = torch.randn(1024, 1024)
    scale = torch.ones((), requires_grad=True)
    with tm.trace(namespace={"scale": scale}) as trace:
        total = torch.zeros(())
        for _ in range(6):
            total = total + table.t().ravel()[:10].sum() * scale
        total.backward()
    return trace.report
