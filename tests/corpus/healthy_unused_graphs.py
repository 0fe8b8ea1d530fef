"""Training that is near to TM320: graphs that are kept, or made in eval mode, and gone through after all."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


@healthy(nearly="TM320")
def two_losses_of_one_graph():
    body, heads = mlp(64, 16), [mlp(16, 10), mlp(16, 1)]
    optimizer = torch.optim.SGD([p for each in (body, *heads) for p in each.parameters()], lr=0.1)
    with tm.trace(namespace={"body": body}) as trace:
        for images, classes in batches(5):
            shared = body(images.flatten(1)).relu()
            optimizer.zero_grad()
            F.cross_entropy(heads[0](shared), classes).backward(retain_graph=True)
            F.mse_loss(heads[1](shared), classes[:, None].float()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM320")
def gradients_of_each_class():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            scores = net(images.flatten(1))
            slopes = [torch.autograd.grad(scores[:, at].sum(), net[0].weight, retain_graph=True)[0] for at in range(3)]
            share = 1 / (1 + sum(each.norm().item() for each in slopes))
            optimizer.zero_grad()
            (share * F.cross_entropy(scores, classes)).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM320")
def losses_that_are_gone_through_again_at_the_end():
    net = mlp(64, 16, 10)
    losses = []
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward(retain_graph=True)
            losses.append(loss)
        net.zero_grad()
        torch.stack(losses).logsumexp(0).backward()
    return trace.report


@healthy(nearly="TM320")
def evaluation_under_no_grad():
    net = nn.Sequential(mlp(64, 16, 10), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            net.train()
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            net.eval()
            with torch.no_grad():
                (net(images.flatten(1)).argmax(1) == classes).sum().item()
    return trace.report


@healthy(nearly="TM320")
def saliency_in_eval_mode():
    net = mlp(64, 16, 10).eval()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            x = images.flatten(1).requires_grad_()
            scores = net(x)
            torch.autograd.grad(scores.gather(1, classes[:, None]).sum(), x)
    return trace.report


@healthy(nearly="TM320")
def a_frozen_backbone_in_eval_mode():
    body, head = mlp(64, 32, 16).requires_grad_(False).eval(), nn.Linear(16, 10)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    with tm.trace(namespace={"body": body, "head": head}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(head(body(images.flatten(1))), classes).backward()
            optimizer.step()
    return trace.report
