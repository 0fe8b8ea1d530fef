"""Parameters that are frozen and move all the same (TM624)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import mlp


@ill("TM624", severity="warning", line="zero_grad(set_to_none=False)", subject="net.0.weight", says=("momentum",))
def an_embedding_that_momentum_carries_on():
    """facebookresearch/fairseq#4702: frozen after some updates, with gradients that are cleared to zeros."""
    net = mlp(4, 8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for step in range(8):
            if step == 4:
                net[0].requires_grad_(False)
            optimizer.zero_grad(set_to_none=False)
            F.cross_entropy(net(torch.randn(16, 4)), torch.arange(16) % 3).backward()
            optimizer.step()
    return trace.report


@ill("TM624", severity="warning", line="optimizer.step()", subject="net.0.weight", says=("net[0].weight.grad = None",))
def a_backbone_that_its_last_gradient_goes_on_moving():
    """Only what still learns is cleared; the backbone keeps what the last backward before the freezing brought."""
    net = mlp(4, 8, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for step in range(9):
            for parameter in net.parameters():
                if parameter.requires_grad:
                    parameter.grad = None
            F.cross_entropy(net(torch.randn(16, 4)), torch.arange(16) % 3).backward()
            optimizer.step()
            if step == 3:
                net[0].weight.requires_grad = False
                net[0].bias.requires_grad = False
    return trace.report


@ill("TM624", severity="warning", line="optimizer.step()", subject="words.weight", says=("weight decay",))
def frozen_embeddings_that_decay():
    """iamwangyabin/S-Prompts#2: weight decay pulls every row towards zero; frozen in an earlier cell."""
    words, head = nn.Embedding(10, 4), nn.Linear(4, 3)
    both = nn.ModuleList([words, head])
    optimizer = torch.optim.AdamW(both.parameters(), lr=0.01, weight_decay=0.1)
    F.cross_entropy(head(words(torch.arange(9))), torch.arange(9) % 3).backward()
    optimizer.step()
    words.weight.requires_grad = False
    with tm.trace(namespace={"words": words, "head": head, "optimizer": optimizer}) as trace:
        for _ in range(5):
            both.zero_grad(set_to_none=False)
            F.cross_entropy(head(words(torch.arange(9))), torch.arange(9) % 3).backward()
            optimizer.step()
    return trace.report


@ill("TM624", severity="warning", line="zero_grad(set_to_none=False)", subject="phase", says=("momentum",))
def a_mask_that_holds_nothing_beside_one_that_moves():
    """A parameter without elements has nothing to look at, and hides none of the others."""
    net = nn.Linear(3, 3)
    nothing, phase = nn.Parameter(torch.zeros(0)), nn.Parameter(torch.randn(3, dtype=torch.complex64))
    optimizer = torch.optim.SGD([*net.parameters(), nothing, phase], lr=0.1, momentum=0.9)
    with tm.trace(namespace={"net": net, "nothing": nothing, "phase": phase, "optimizer": optimizer}) as trace:
        for step in range(8):
            if step == 3:
                nothing.requires_grad_(False)
                phase.requires_grad_(False)
            optimizer.zero_grad(set_to_none=False)
            ((net(torch.randn(4, 3)) * phase.abs()).sum() + nothing.sum()).backward()
            optimizer.step()
    return trace.report
