"""Programs whose shapes, dtypes, devices and views nearly do not go together, and do (TM101, TM702, TM80x)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy


@healthy(nearly="TM101")
def heads_put_together_by_contiguous():
    query = nn.Linear(32, 32)
    with tm.trace() as trace:
        heads = query(torch.randn(2, 5, 32)).view(2, 5, 4, 8).transpose(1, 2)
        heads.transpose(1, 2).contiguous().view(2, 5, 32).sum().backward()
    return trace.report


@healthy(nearly="TM101")
def a_view_that_keeps_apart_what_lies_apart():
    """A transposed tensor can be viewed, as long as no new dimension reaches over the swapped ones."""
    x = torch.randn(6, 4, requires_grad=True)
    with tm.trace() as trace:
        x.t().view(2, 2, 6).pow(2).sum().backward()
    return trace.report


@healthy(nearly="TM702")
def a_generator_of_the_same_device():
    generator = torch.Generator(device="cpu").manual_seed(0)
    net = nn.Linear(8, 2)
    with tm.trace() as trace:
        net(torch.randn(4, 8, generator=generator, device="cpu")).sum().backward()
    return trace.report


@healthy(nearly="TM702")
def numbers_drawn_on_the_cpu_and_moved():
    generator = torch.Generator().manual_seed(3)
    net = nn.Linear(8, 2)
    with tm.trace() as trace:
        noise = torch.randn(4, 8, generator=generator).to(net.weight.device)
        net(noise).sum().backward()
    return trace.report


@healthy(nearly="TM801")
def a_model_of_the_meta_device_filled_before_use():
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
    net.to_empty(device="cpu")
    for layer in (net[0], net[2]):
        layer.reset_parameters()
    with tm.trace() as trace:
        net(torch.randn(3, 8)).sum().backward()
    return trace.report


@healthy(nearly="TM801")
def shapes_worked_out_on_the_meta_device():
    """A dry run of the body tells the size of the head."""
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())
    with torch.device("meta"):
        dry = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())
        size = dry(torch.empty(1, 1, 8, 8)).shape[1]
    head = nn.Linear(size, 2)
    with tm.trace() as trace:
        head(body(torch.randn(2, 1, 8, 8))).sum().backward()
    return trace.report


@healthy(nearly="TM802")
def data_from_numpy_converted():
    net = nn.Linear(3, 2)
    array = np.random.default_rng(0).normal(size=(4, 3))
    with tm.trace() as trace:
        net(torch.from_numpy(array).float()).sum().backward()
    return trace.report


@healthy(nearly="TM802")
def whole_numbers_and_floats_that_torch_promotes():
    weight = torch.randn(3, requires_grad=True)
    with tm.trace() as trace:
        counts = torch.tensor([1, 2, 3])
        (weight * counts).sum().backward()
    return trace.report


@healthy(nearly="TM802")
def one_hot_labels_as_probabilities():
    net = nn.Linear(4, 3)
    with tm.trace() as trace:
        labels = F.one_hot(torch.tensor([0, 2, 1]), 3).float()
        F.cross_entropy(net(torch.randn(3, 4)), labels).backward()
    return trace.report


@healthy(nearly="TM804")
def a_mask_that_broadcasts():
    net = nn.Linear(6, 6)
    with tm.trace() as trace:
        scores = net(torch.randn(2, 4, 6, 6))
        mask = torch.tril(torch.ones(6, 6))
        scores.masked_fill(mask == 0, -1e9).softmax(-1).pow(2).sum().backward()
    return trace.report


@healthy(nearly="TM804")
def a_size_left_to_a_lazy_layer():
    net = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    net(torch.zeros(1, 3, 12, 12))
    with tm.trace() as trace:
        net(torch.randn(4, 3, 12, 12)).sum().backward()
    return trace.report


@healthy(nearly="TM804")
def an_error_that_is_caught_and_dealt_with():
    """A size that does not fit is tried, and another way taken."""
    net = nn.Linear(6, 2)

    def forward(x):
        try:
            return net(x)
        except RuntimeError:
            return net(x.T)

    with tm.trace() as trace:
        forward(torch.randn(6, 3)).sum().backward()
    return trace.report
