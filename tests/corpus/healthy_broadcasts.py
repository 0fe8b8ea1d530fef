"""Code in which every pair is meant, or only one operand grows (nearly TM105)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy


@healthy(nearly="TM105")
def pairwise_distances_of_as_many_points():
    """A column of N against a row of N on purpose: the line says so."""
    net, points, anchors = nn.Linear(3, 1), torch.randn(16, 3), torch.randn(16)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            along = net(points).squeeze(1)
            spread = (along[:, None] - anchors).abs().mean()
            kernel = torch.exp(-((along.unsqueeze(1) - along) ** 2)).mean()
            (spread + kernel).backward()
    return trace.report


@healthy(nearly="TM105")
def an_energy_distance_between_two_samples():
    """The generator's column is made by unsqueeze, a line above."""
    generator, real = nn.Linear(2, 1), torch.randn(24)
    with tm.trace(namespace={"generator": generator}) as trace:
        for _ in range(3):
            fake = generator(torch.randn(24, 2)).view(-1)
            column = fake.unsqueeze(-1)
            (2 * (column - real).abs().mean() - (column - fake).abs().mean()).backward()
    return trace.report


@healthy(nearly="TM105")
def a_ranking_of_scores_against_each_other():
    net, items = nn.Linear(4, 1), torch.randn(12, 4)
    order = torch.arange(12).float()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            scores = net(items)
            wins = torch.sigmoid(scores - scores.squeeze(1))
            wanted = (order.view(-1, 1) > order).float()
            F.binary_cross_entropy(wins, wanted).backward()
    return trace.report


@healthy(nearly="TM105")
def features_as_many_as_the_batch():
    """A column of times against a row of frequencies, whose number happens to be that of the batch."""
    frequencies = nn.Parameter(torch.rand(16))
    times, head = torch.rand(16, 1), nn.Linear(16, 1)
    with tm.trace(namespace={"head": head}) as trace:
        for _ in range(3):
            waves = (times * frequencies).sin()
            penalty = (times * torch.exp(frequencies)).pow(2).sum(dim=0).mean()
            (head(waves).mean() + penalty).backward()
    return trace.report


@healthy(nearly="TM105")
def a_regression_with_columns():
    net, x, y = nn.Linear(1, 1), torch.randn(32, 1), torch.randn(32, 1)
    weights = torch.rand(32, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            loss = F.mse_loss(net(x), y) + (weights * (net(x) - y) ** 2).mean() + (net(x) - y.mean(0)).abs().mean()
            loss.backward()
    return trace.report


@healthy(nearly="TM105")
def labels_that_are_equal_in_pairs():
    """Supervised contrastive learning: which of the batch are of one class."""
    net, images = nn.Linear(8, 4), torch.randn(20, 8)
    labels = torch.randint(0, 4, (20,))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            column = labels.view(-1, 1)
            same = (column == labels).float()
            features = F.normalize(net(images), dim=1)
            scores = features @ features.T
            loss = -(F.log_softmax(scores, 1) * same).sum(1).mean() + 0.0 * (labels[:, None] == labels).float().mean()
            loss.backward()
    return trace.report


@healthy(nearly="TM105")
def heads_that_share_a_target():
    """It is expanded in the line; and a critic's labels are one number for all."""
    net, critic, x, y = nn.Linear(8, 4), nn.Linear(8, 1), torch.randn(32, 8), torch.randn(32, 1)
    with tm.trace(namespace={"net": net, "critic": critic}) as trace:
        for _ in range(3):
            scores = net(x)
            F.smooth_l1_loss(scores, y.expand_as(scores)).backward()
            F.mse_loss(critic(x), torch.tensor(1.0)).backward()
    return trace.report
