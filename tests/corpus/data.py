"""Small data and training loops that the cases share; the losses and shapes are those of common tutorials."""

from __future__ import annotations

import functools
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import tensormagic as tm


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return scikit-learn's handwritten digits: 1797 images (1 x 8 x 8, 0 to 1) and their classes."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(found.target)


def batches(count: int, size: int = 64):
    """Yield ``count`` batches of digits."""
    images, classes = digits()
    for number in range(count):
        start = number * size % (len(images) - size)
        yield images[start : start + size], classes[start : start + size]


def mlp(*widths):
    """Return linear layers of these widths, with ReLU between them."""
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def train_classifier(net: nn.Module, *, steps: int = 6, lr: float = 0.01, flat: bool = False) -> None:
    """Train ``net`` on digits with Adam and cross entropy."""
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=lr)
    for images, classes in batches(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images.flatten(1) if flat else images), classes)
        loss.backward()
        optimizer.step()


def train_in_epochs(*, told: bool, shuffle: bool = True, per_batch: int = 1, epochs: int = 3):
    """Train as one of two ranks does, whose sampler is told the epoch or not; returns the trace's report."""
    net, (images, classes) = mlp(64, 16, 10), digits()
    optimizer, data = torch.optim.Adam(net.parameters()), TensorDataset(images[:64].flatten(1), classes[:64])
    sampler = DistributedSampler(data, num_replicas=2, rank=0, shuffle=shuffle)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    with tm.trace(namespace={"net": net, "loader": loader}) as trace:
        for epoch in range(epochs):
            if told:
                sampler.set_epoch(epoch)
            for inputs, targets in loader:
                for _ in range(per_batch):
                    optimizer.zero_grad()
                    F.cross_entropy(net(inputs), targets).backward()
                    optimizer.step()
    return trace.report
