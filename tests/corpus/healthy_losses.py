"""Code with softmax or sigmoid near the loss, each where it belongs (nearly TM608)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches


@healthy(nearly="TM608")
def log_softmax_and_the_likelihood():
    net, criterion = nn.Sequential(nn.Linear(64, 10), nn.LogSoftmax(dim=1)), nn.NLLLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            criterion(net(images.flatten(1)), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def the_logarithm_of_probabilities():
    """Mixed experts: probabilities are averaged, and their logarithm goes into the loss."""
    first, second = nn.Linear(64, 10), nn.Linear(64, 10)
    with tm.trace(namespace={"first": first, "second": second}) as trace:
        for images, classes in batches(3):
            x = images.flatten(1)
            mixed = (first(x).softmax(1) + second(x).softmax(1)) / 2
            F.nll_loss(mixed.log(), classes).backward()
            F.nll_loss(first(x).softmax(1).log(), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def likelihoods_made_by_hand():
    """Log-probabilities that no log_softmax made: normalised by hand, of distances, and of a log-linear mixture."""
    net, means, gates = nn.Linear(64, 10), nn.Parameter(torch.randn(10, 64)), nn.Linear(64, 2)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            x = images.flatten(1)
            scores = net(x)
            F.nll_loss(scores - scores.logsumexp(1, keepdim=True), classes).backward()
            near = -torch.cdist(x, means)
            both = torch.stack([near.log_softmax(1), net(x).log_softmax(1)], 1)
            F.nll_loss((gates(x).log_softmax(1)[..., None] + both).logsumexp(1), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def attention_inside_and_scores_outside():
    """Gates and attention are softmaxes and sigmoids of their own; the scores after them are raw."""
    query, head = nn.Linear(64, 64), nn.Linear(64, 10)
    with tm.trace(namespace={"query": query, "head": head}) as trace:
        for images, classes in batches(3):
            x = images.flatten(1)
            mixed = (query(x) @ x.T / 8).softmax(-1) @ x
            F.cross_entropy(head(mixed * torch.sigmoid(x)), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def probabilities_for_the_loss_that_takes_them():
    net = nn.Sequential(nn.Linear(64, 1), nn.Sigmoid())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            F.binary_cross_entropy(net(images.flatten(1)).squeeze(1), (classes > 4).float()).backward()
    return trace.report


@healthy(nearly="TM608")
def soft_targets_of_a_teacher():
    """The teacher's softmax is what the student's scores are compared with; probabilities are also logged."""
    student, teacher = nn.Linear(64, 10), nn.Linear(64, 10)
    with tm.trace(namespace={"student": student}) as trace:
        for images, _ in batches(3):
            with torch.no_grad():
                wanted = teacher(images.flatten(1)).softmax(1)
            scores = student(images.flatten(1))
            F.cross_entropy(scores, wanted).backward()
            scores.detach().softmax(1).max(1)
    return trace.report
