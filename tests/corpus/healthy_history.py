"""Code that nearly calls backward on something without a history (TM306), and does not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches


@healthy(nearly="TM306")
def an_evaluation_under_no_grad_after_every_epoch():
    net = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            for images, classes in batches(2):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
            with torch.no_grad():
                losses = [F.cross_entropy(net(images.flatten(1)), classes).item() for images, classes in batches(2)]
            assert torch.tensor(losses).mean() > 0
    return trace.report


@healthy(nearly="TM306")
def a_frozen_model_asked_for_the_gradient_of_its_input():
    """Saliency: no parameter learns, the image does."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).requires_grad_(False)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(1):
            image = images[:1].clone().requires_grad_()
            net(image).max().backward()
            assert image.grad.abs().sum() > 0
    return trace.report


@healthy(nearly="TM306")
def a_switch_that_is_on_in_training():
    net = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for phase in ("train", "val", "train", "val"):
            for images, classes in batches(1):
                with torch.set_grad_enabled(phase == "train"):
                    loss = F.cross_entropy(net(images.flatten(1)), classes)
                    if phase == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
    return trace.report


@healthy(nearly="TM306")
def a_list_of_new_leaves_in_every_step():
    """What the update makes is asked for gradients again; the slopes come from `autograd.grad`."""
    weights = [torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)]
    with tm.trace() as trace:
        for _ in range(4):
            loss = (torch.randn(8, 3) @ weights[0] + weights[1]).square().mean()
            slopes = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                weights = [(w - 0.1 * g).requires_grad_() for w, g in zip(weights, slopes, strict=True)]
    return trace.report
