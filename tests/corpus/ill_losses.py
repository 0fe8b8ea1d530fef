"""Code whose loss is given what it makes itself: softmax or sigmoid twice (TM608)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, train_classifier


@ill("TM608", severity="warning", line="loss = F.cross_entropy(net(images.flatten(1) if flat else images), classes)",
     says=("cross_entropy applies softmax itself", "already the result of softmax", "below 1.46 with 10 classes"),
     )  # fmt: skip
def a_classifier_that_ends_in_softmax():
    """As many first tutorials have it, brought over from another framework."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10), nn.Softmax(dim=1))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True, steps=4)
    return trace.report


class Detector(nn.Module):
    """Gives probabilities."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, 1)

    def forward(self, x):
        return torch.sigmoid(self.head(self.body(x).relu()))


@ill("TM608", severity="warning", line="loss = criterion(out.squeeze(1), (classes == 3).float())",
     related=("return torch.sigmoid(self.head(self.body(x).relu()))",), subject="out.squeeze(1)",
     says=("applies sigmoid itself", "every probability is above 0.5", "`BCELoss`"))  # fmt: skip
def a_detector_with_two_sigmoids():
    net, criterion = Detector(), nn.BCEWithLogitsLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            out = net(images.flatten(1))
            loss = criterion(out.squeeze(1), (classes == 3).float())
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = F.nll_loss(probabilities, classes)", subject="probabilities",
     related=("probabilities = F.softmax(net(images.flatten(1)), dim=1)",),
     says=("takes log-probabilities, and probabilities is the result of softmax", "`log_softmax`"))  # fmt: skip
def a_likelihood_without_a_logarithm():
    """The loss is negative, and falls to -1."""
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            probabilities = F.softmax(net(images.flatten(1)), dim=1)
            loss = F.nll_loss(probabilities, classes)
            loss.backward()
    return trace.report


@ill(
    "TM608",
    severity="warning",
    line="loss = F.nll_loss(scores, classes)",
    subject="scores",
    related=("scores = net(images.flatten(1))",),
    says=("the loss has no lower bound", "Use `cross_entropy`"),
)
def a_likelihood_of_scores():
    """The loss falls and falls, and the classes are not learned."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            scores = net(images.flatten(1))
            loss = F.nll_loss(scores, classes)
            loss.backward()
    return trace.report


@ill(
    "TM608",
    severity="warning",
    line="loss = criterion(net(images), classes)",
    says=("net(images) is what a layer made",),
)
def a_map_of_scores_and_the_likelihood():
    """A segmentation without log_softmax: a class for each pixel."""
    net, criterion = nn.Conv2d(1, 2, 3, padding=1), nn.NLLLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for pixels, _ in batches(3):
            images = pixels.reshape(-1, 1, 8, 8)
            classes = (images > 0.5).long().squeeze(1)
            loss = criterion(net(images), classes)
            loss.backward()
    return trace.report


@ill("TM608", severity="note", line="loss = criterion(net(images.flatten(1)), classes)",
     says=("is already the result of log_softmax", "the result is right"))  # fmt: skip
def log_softmax_twice():
    """Does no harm: log_softmax of log_softmax is itself."""
    net, criterion = nn.Sequential(nn.Linear(64, 10), nn.LogSoftmax(dim=1)), nn.CrossEntropyLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            loss = criterion(net(images.flatten(1)), classes)
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = F.binary_cross_entropy(p, wanted)", subject="p",
     says=("sigmoid and then sigmoid were applied",))  # fmt: skip
def a_sigmoid_in_the_model_and_one_before_the_loss():
    net = Detector()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            wanted = (classes > 4).float()[:, None]
            p = torch.sigmoid(net(images.flatten(1)))
            loss = F.binary_cross_entropy(p, wanted)
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = F.cross_entropy(logits[mask], tags.reshape(-1)[mask])",
     says=("logits[mask] is already the result of softmax", "below 1.04 with 6 classes"))  # fmt: skip
def a_tagger_whose_masked_scores_are_probabilities():
    """The softmax lies behind a view and a mask."""
    table, tags = nn.Embedding(20, 6), torch.randint(0, 6, (4, 5))
    words = torch.randint(0, 20, (4, 5))
    mask = torch.arange(20) % 5 < 4
    with tm.trace(namespace={"table": table}) as trace:
        for _ in range(3):
            logits = table(words).softmax(-1).view(-1, 6)
            loss = F.cross_entropy(logits[mask], tags.reshape(-1)[mask])
            loss.backward()
    return trace.report
