"""What looks like the bugs of `ill_styles`, and is right."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp
from tests.corpus.ill_styles import Averaging, Vision


@healthy(nearly="TM607")
def a_subclass_whose_step_calls_the_one_below():
    """Torch tells of both steps, which are one."""
    net = mlp(64, 16, 10)
    torch.optim.Adam([nn.Parameter(torch.ones(1))])
    optimizer = Averaging(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM601")
def weights_that_are_moved_within_the_graph():
    """One step inside, as in MAML: what is called are functions of the module's own parameters."""
    net = mlp(2, 8, 1)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(4):
            weights = dict(net.named_parameters())
            x, y = torch.randn(8, 2), torch.randn(8, 1)
            slopes = torch.autograd.grad(F.mse_loss(functional_call(net, weights, (x,)), y), list(weights.values()),
                                         create_graph=True)  # fmt: skip
            moved = {name: one - 0.1 * slope for (name, one), slope in zip(weights.items(), slopes, strict=True)}
            optimizer.zero_grad()
            F.mse_loss(functional_call(net, moved, (torch.randn(8, 2),)), torch.randn(8, 1)).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM405")
def a_deviation_within_its_clamp():
    mean, log_std = nn.Linear(4, 1), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([*mean.parameters(), log_std])
    with tm.trace(namespace={"mean": mean, "log_std": log_std, "optimizer": optimizer}) as trace:
        for _ in range(5):
            chosen = torch.distributions.Normal(mean(torch.randn(16, 4)), log_std.clamp(-5.0, 2.0).exp())
            optimizer.zero_grad()
            (-chosen.log_prob(torch.randn(16, 1)).mean()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM612")
def linear_attention_by_einsum():
    """Queries over their features, keys over the places: that is what linear attention is."""
    project, head = nn.Linear(8, 24), nn.Linear(8, 10)
    optimizer = torch.optim.Adam([*project.parameters(), *head.parameters()])
    with tm.trace(namespace={"project": project, "head": head, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            q, k, v = project(images.squeeze(1)).chunk(3, -1)
            context = torch.einsum("bnd,bne->bde", k.softmax(dim=1), v)
            found = torch.einsum("bnd,bde->bne", q.softmax(dim=-1) / math.sqrt(8), context)
            optimizer.zero_grad()
            F.cross_entropy(head(found.mean(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM613", family="vision transformer")
def a_class_token_of_an_encoder_that_takes_the_batch_first():
    net = Vision(batch_first=True)
    optimizer = torch.optim.AdamW(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM613")
def places_first_and_turned_before_one_is_taken():
    """(places, batch, features) goes in; the result is turned round, or its first place is taken as it lies."""
    attend, first, second = nn.MultiheadAttention(8, 2), nn.Linear(8, 10), nn.Linear(8, 10)
    optimizer = torch.optim.AdamW([*attend.parameters(), *first.parameters(), *second.parameters()])
    with tm.trace(namespace={"attend": attend, "first": first, "second": second, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 16):
            x = images.squeeze(1).transpose(0, 1)
            found, _ = attend(x, x, x)
            scores = first(found.transpose(0, 1)[:, 0]) + second(found[0]) + second(found[-1])
            optimizer.zero_grad()
            F.cross_entropy(scores, classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM612")
def an_einsum_that_only_weighs():
    """Nothing is summed over in it: the weights and the values are multiplied, and a mean over heads comes later."""
    query, key = nn.Linear(8, 8), nn.Linear(8, 8)
    with tm.trace(namespace={"query": query, "key": key}) as trace:
        for _ in range(3):
            x = torch.randn(4, 5, 8)
            weights = (torch.einsum("bid,bjd->bij", query(x), key(x)) / 3).softmax(-1)
            each = torch.einsum("bij,bjd->bijd", weights, x)
            each.sum(2).square().mean().backward()
    return trace.report


@healthy(nearly="TM618")
def clipping_without_a_scaler_that_is_on():
    """The scaler is there for machines with half precision, and off here."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with tm.trace(namespace={"net": net, "optimizer": optimizer, "scaler": scaler}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(images.flatten(1)), classes)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
    return trace.report


@healthy(nearly="TM303")
def an_evaluation_through_a_reentrant_checkpoint():
    """The same model is evaluated under `no_grad`; in training its input asks for a gradient."""
    stem, head = nn.Linear(64, 16), nn.Linear(16, 10)
    optimizer = torch.optim.SGD([*stem.parameters(), *head.parameters()], lr=0.1)

    def forward(x):
        return head(checkpoint(stem, x, use_reentrant=True).relu())

    with tm.trace(namespace={"stem": stem, "head": head, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            with torch.no_grad():
                forward(images.flatten(1)).argmax(1)
            optimizer.zero_grad()
            F.cross_entropy(forward(images.flatten(1).requires_grad_()), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM313")
def a_divergence_from_a_snapshot_of_oneself():
    """The snapshot has no gradient, and the term has one."""
    net = mlp(64, 16, 10)
    optimizer, snapshot = torch.optim.Adam(net.parameters()), copy.deepcopy(net)
    with tm.trace(namespace={"net": net, "snapshot": snapshot, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            with torch.no_grad():
                before = snapshot(images.flatten(1)).log_softmax(1)
            now = net(images.flatten(1)).log_softmax(1)
            stay = (now.exp() * (now - before)).sum(1).mean()
            optimizer.zero_grad()
            (F.nll_loss(now, classes) + 0.5 * stay).backward()
            optimizer.step()
    return trace.report
