"""Graphs that are kept, or recorded in an evaluation, and that no backward goes through (TM320)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp


@ill("TM320", severity="note", line="loss.backward(retain_graph=True)", subject="retain_graph",
     says=("5 backward passes keep their graph", "`loss.backward()`"))  # fmt: skip
def a_retain_graph_that_was_left_in():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward(retain_graph=True)
            optimizer.step()
    return trace.report


@ill("TM320", severity="note", line="loss_of_d.backward(retain_graph=True)", says=("4 backward passes",))
def a_discriminator_that_keeps_what_was_detached():
    """Since `fake` is detached for the discriminator, its backward and the generator's have nothing in common."""
    make, judge = mlp(8, 16, 64), mlp(64, 16, 1)
    for_g, for_d = torch.optim.Adam(make.parameters()), torch.optim.Adam(judge.parameters())
    with tm.trace(namespace={"make": make, "judge": judge}) as trace:
        for images, _ in batches(4):
            fake, real = make(torch.randn(len(images), 8)), images.flatten(1)
            loss_of_d = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(real)).mean()
            for_d.zero_grad()
            loss_of_d.backward(retain_graph=True)
            for_d.step()
            loss_of_g = F.softplus(-judge(fake)).mean()
            for_g.zero_grad()
            loss_of_g.backward()
            for_g.step()
    return trace.report


def _epochs(net, evaluate):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            net.train()
            for images, classes in batches(3):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
            net.eval()
            evaluate(net)
    return trace.report


@ill("TM320", severity="note", line="right += (net(images", subject="net",
     says=("net in eval mode records a graph, in 3 evaluations", "`torch.no_grad()`"))  # fmt: skip
def an_evaluation_that_counts_what_is_right():
    def evaluate(net):
        right = 0
        for images, classes in batches(3):
            right += (net(images.flatten(1)).argmax(1) == classes).sum().item()

    return _epochs(nn.Sequential(mlp(64, 16, 10), nn.Dropout(0.1)), evaluate)


@ill("TM320", severity="note", line="scores = net(images", says=("in 3 evaluations",))
def an_evaluation_that_stores_numbers():
    losses = []

    def evaluate(net):
        for images, classes in batches(2):
            scores = net(images.flatten(1))
            losses.append(F.cross_entropy(scores, classes).item())

    return _epochs(mlp(64, 16, 10), evaluate)


@ill("TM320", severity="note", line="soft = teacher(x)", subject="teacher", says=("teacher in eval mode",))
def a_teacher_whose_scores_are_detached():
    net, teacher = mlp(64, 16, 10), mlp(64, 32, 10).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "teacher": teacher}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            soft = teacher(x).detach().softmax(1)
            optimizer.zero_grad()
            F.cross_entropy(net(x), soft).backward()
            optimizer.step()
    return trace.report
