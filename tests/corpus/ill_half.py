"""Training code in half precision whose gradients do not fit it (TM407), and some that does without a scaler."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy, ill
from tests.corpus.data import batches, mlp


@ill("TM407", op="to_copy", line="loss = F.mse_loss(net(x).float(), y)", says=(
    "does not fit float16", "in backward pass 1 of 10", "the last pass is finite again"))  # fmt: skip
def a_gradient_scaler_that_looks_for_its_scale():
    """Not an error but a note: the steps are skipped, and the scale is found."""
    torch.manual_seed(0)
    net, x, y = nn.Linear(32, 1), torch.randn(64, 32), torch.randn(64, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.mse_loss(net(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return trace.report


@ill("TM407", severity="error", op="to_copy", line="loss = F.mse_loss(net(x).float(), y)", says=(
    "does not fit float16", "in backward pass 1 of 3"))  # fmt: skip
def a_loss_scale_that_is_fixed_too_high():
    """A scale by hand, as before there was a scaler: every step is infinite, none is skipped."""
    net, x, y = nn.Linear(32, 1), torch.randn(64, 32), torch.randn(64, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.mse_loss(net(x).float(), y)
            (loss * 2.0**24).backward()
            net.zero_grad()
    return trace.report


@ill("TM407", severity="warning", line="logits = net(images.flatten(1))", says=(
    "The gradient underflows float16", "in all 4 backward passes", "GradScaler"))  # fmt: skip
def autocast_without_a_scaler_and_a_small_weight():
    """An auxiliary loss of weight 1e-6 under float16 autocast: nothing of it arrives."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                logits = net(images.flatten(1))
            loss = 1e-6 * F.cross_entropy(logits.float(), classes)
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM407", severity="warning", says=("underflows float16", "below 6.1e−5", "torch.bfloat16"))
def a_whole_model_in_half_with_a_mean_over_everything():
    """net.half(), and a mean over a big map: each element's gradient is below what float16 can hold."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1)).half()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x = torch.rand(4, 1, 48, 48).half()
            loss = (net(x) - x).abs().mean() * 1e-3
            loss.backward()
    return trace.report


@healthy(nearly="TM407")
def float16_without_a_scaler_that_fits():
    """A mean over few elements: gradients of a thousandth, most of them well above the smallest number."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                logits = net(images.flatten(1))
            F.cross_entropy(logits.float(), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM407")
def tiny_gradients_in_bfloat16():
    """The same small weight as would vanish in float16: bfloat16 has the range of float32."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = net(images.flatten(1))
            (1e-6 * F.cross_entropy(logits.float(), classes)).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM407")
def a_small_weight_that_the_scaler_lifts():
    """The scale makes up for it."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = 1e-6 * F.cross_entropy(net(images.flatten(1)).float(), classes)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return trace.report
