"""Sums over indexed places, of which one addition to each place is kept (TM107)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp

SENDERS, RECEIVERS = torch.tensor([0, 1, 2, 3, 4, 5, 0, 2]), torch.tensor([1, 1, 1, 2, 2, 0, 3, 3])


class Messages(nn.Module):
    """A layer of a network over a graph: each node adds up the messages of its neighbours."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        msg = self.linear(x)[SENDERS]
        out = torch.zeros(len(x), msg.shape[1])
        out[RECEIVERS] += msg
        return out


@ill("TM107", severity="warning", line="out[RECEIVERS] += msg", subject="out",
     says=("loses 4 of its 8 additions", "`out.index_add_(0, RECEIVERS, msg)`"))  # fmt: skip
def messages_of_which_each_node_keeps_one():
    first, second = Messages(5, 16), Messages(16, 3)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    x, classes = torch.randn(6, 5), torch.arange(6) % 3
    with tm.trace(namespace={"first": first, "second": second, "optimizer": optimizer}) as trace:
        for _ in range(6):
            optimizer.zero_grad()
            F.cross_entropy(second(first(x).relu()), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM107", severity="warning", line="sums[classes] = sums[classes] + features", subject="sums",
     says=("sums[classes] += features adds once", "`sums.index_add_(0, classes, features)`"))  # fmt: skip
def prototypes_that_are_sums_of_one_sample():
    """Few-shot learning: a class's prototype is the mean of its samples, here one of them over their number."""
    net = mlp(64, 16, 8)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 40):
            features = net(images.flatten(1))
            sums = torch.zeros(10, 8)
            sums[classes] = sums[classes] + features
            means = sums / torch.bincount(classes, minlength=10).clamp(min=1)[:, None]
            F.cross_entropy(-torch.cdist(features, means), classes).backward()
    return trace.report


@ill("TM107", severity="warning", line="image[rows, columns] += brightness", subject="image",
     says=("rows, columns names", "`image.index_put_((rows, columns), brightness, accumulate=True)`"))  # fmt: skip
def points_that_are_drawn_over_each_other():
    """An image of points, without a gradient, as the target of a network."""
    net, (rows, columns, brightness) = nn.Linear(2, 64), (torch.arange(40) % 8, torch.arange(40) % 4, torch.rand(40))
    with tm.trace(namespace={"net": net}) as trace:
        image = torch.zeros(8, 8)
        image[rows, columns] += brightness
        for _ in range(3):
            F.mse_loss(net(torch.ones(1, 2)), image.flatten()[None]).backward()
            net.zero_grad()
    return trace.report


@ill("TM107", severity="note", line="table[words] -= 0.1 * slope", subject="table",
     says=("If all of them should count: `table.index_put_((words,), -(0.1 * slope), accumulate=True)`",))  # fmt: skip
def word_vectors_that_are_updated_by_hand():
    """The words of a text repeat, and so do their rows; that the slopes come from the rows may mean a small step."""
    table, head = torch.randn(9, 4), nn.Linear(4, 1)
    words = torch.arange(30) ** 2 % 9
    with tm.trace(namespace={"head": head}) as trace:
        for _ in range(3):
            vectors = table[words].requires_grad_()
            F.mse_loss(head(vectors).squeeze(1), torch.linspace(-1, 1, 30)).backward()
            slope = vectors.grad
            table[words] -= 0.1 * slope
            head.zero_grad()
    return trace.report


@ill(
    "TM107",
    severity="note",
    line="seen[classes] += 1",
    says=("`seen += torch.bincount(classes, minlength=len(seen))`",),
)
def classes_that_are_counted_once_a_batch():
    """Weights for classes by how rare they are; all classes come out as frequent as there are batches."""
    net, seen = mlp(64, 16, 10), torch.zeros(10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 50):
            seen[classes] += 1
            F.cross_entropy(net(images.flatten(1)), classes, weight=seen.sum() / (seen + 1)).backward()
            net.zero_grad()
    return trace.report
