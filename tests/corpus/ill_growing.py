"""Training in which something with a history is carried from step to step (TM312), or in the wrong mode (TM606)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp

# -- TM312: the graph grows -------------------------------------------------------------------------------------------


@ill("TM312", severity="warning", line="running += loss", subject="running", says=("`running += loss.item()`",))
def a_sum_that_begins_anew_in_each_epoch():
    net = mlp(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            running = 0.0
            for images, classes in batches(6):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(images.flatten(1)), classes)
                loss.backward()
                optimizer.step()
                running += loss
    return trace.report


@ill("TM312", severity="warning", line="running_loss += loss", subject="running_loss",
     says=("`running_loss += loss.item()`",))  # fmt: skip
def the_loss_is_summed_for_the_log():
    """The memory grows with every batch; the FAQ of torch begins with it."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    running_loss = 0.0
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(6, 16):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward()
            optimizer.step()
            running_loss += loss
    assert running_loss.item() > 0
    return trace.report


@ill(
    "TM312",
    severity="warning",
    line="average = 0.9 * average + 0.1 * loss",
    subject="average",
    says=("0.1 * loss.item()`",),
)
def a_moving_average_of_the_loss():
    """Smooth curves: each value keeps all those before it."""
    net = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    average = torch.zeros(())
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(40):
            loss = net(torch.randn(8, 3)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average = 0.9 * average + 0.1 * loss
    assert average.requires_grad
    return trace.report


@ill("TM312", severity="warning", line="total = total + (w * x - y).pow(2).mean()",
     related=("total.backward(retain_graph=True)",),
    says=("made in earlier steps", "`total = total.detach()`"))  # fmt: skip
def backward_from_the_sum_of_all_losses():
    """``retain_graph=True`` was added until the error went away."""
    w = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([w], lr=0.001)
    total = 0
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(6):
            x, y = torch.randn(8, 3), torch.randn(8, 1)
            total = total + (w * x - y).pow(2).mean()
            optimizer.zero_grad()
            total.backward(retain_graph=True)
            optimizer.step()
    return trace.report


@ill("TM312", severity="warning", line="state = 0.5 * state + features(x)", says=("4 nodes per step",),
     related=("loss.backward(retain_graph=True)",))  # fmt: skip
def a_state_that_is_never_detached():
    """What a stream leaves behind goes into the next step, with everything that made it."""
    features = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(features.parameters(), lr=0.01)
    state = torch.zeros(1, 4)
    with tm.trace(namespace={"features": features}) as trace:
        for _ in range(7):
            x = torch.randn(1, 4)
            state = 0.5 * state + features(x)
            loss = (state.sum() - 1).abs()
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
    return trace.report


@ill("TM312", severity="warning", line="total = total + (x @ w - 1).pow(2).mean()",
     related=("total.backward(retain_graph=True)",))  # fmt: skip
def a_sum_of_losses_with_the_update_written_by_hand():
    """No optimizer: the weights are changed under no_grad."""
    w = torch.zeros(3, requires_grad=True)
    total = torch.zeros(())
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(8):
            x = torch.randn(8, 3)
            total = total + (x @ w - 1).pow(2).mean()
            total.backward(retain_graph=True)
            with torch.no_grad():
                w -= 0.01 * w.grad
                w.grad = None
    return trace.report


@ill("TM312", severity="warning", line="state = 0.5 * state + x * w", says=("3 nodes per step",),
     related=("(state - 1).pow(2).sum().backward(retain_graph=True)",))  # fmt: skip
def a_state_that_goes_on_with_updates_through_data():
    """As tutorials wrote it before there was no_grad."""
    w, state = torch.zeros(3, requires_grad=True), torch.zeros(3)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(8):
            x = torch.randn(3)
            state = 0.5 * state + x * w
            (state - 1).pow(2).sum().backward(retain_graph=True)
            w.data.sub_(w.grad, alpha=0.01)
            w.grad.data.zero_()
    return trace.report


# -- TM606: the wrong mode --------------------------------------------------------------------------------------------


def _convolutions(dropout=0.3):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(144, 10)
    )


@ill("TM606", severity="warning", line="optimizer.step()", subject="net",
     says=("in 6 of its 9 steps, from step 4 on", "1 dropout does nothing", "`net.train()`"))  # fmt: skip
def train_is_not_called_again_after_validation():
    """net.eval() stands in the loop over the epochs, net.train() before it."""
    net = _convolutions()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net.train()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            for images, classes in batches(3, 16):
                optimizer.zero_grad()
                F.cross_entropy(net(images), classes).backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                for images, _ in batches(2, 16):
                    net(images).argmax(1)
    return trace.report


@ill("TM606", severity="warning", line="optimizer.step()", says=("in all of its 4 steps", "2 dropouts do nothing"))
def a_pretrained_model_as_it_was_loaded():
    """Loaders hand a transformer over in eval mode."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Dropout(0.1), layer, nn.Flatten(), nn.Dropout(0.1), nn.Linear(80, 2)).eval()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(3, 5, 16)), torch.randint(2, (3,))).backward()
            optimizer.step()
    return trace.report


@ill("TM606", severity="warning", line="optimizer.step()", says=("which have never seen a batch",))
def a_new_model_with_its_summary_printed():
    """model.eval() was needed to look at the shapes of its outputs, and stayed."""
    net = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8), nn.BatchNorm1d(8))
    net.eval()
    net(torch.zeros(1, 64))
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes % 8).backward()
            optimizer.step()
    return trace.report


@ill("TM606", severity="warning", line="optimizer.step()", says=("1 dropout does nothing",))
def a_new_head_with_a_dropout_in_eval_mode():
    """The backbone is frozen; the head that is trained has a dropout, and is in eval mode with the rest."""
    net = nn.Sequential(nn.Linear(64, 16), nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 10)))
    net[0].requires_grad_(False)
    net.eval()
    optimizer = torch.optim.Adam(net[1].parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM606", severity="warning", line="with torch.no_grad():", subject="net",
     says=("net is evaluated in train mode", "1 batch normalisation", "from 8 batches", "`net.eval()`"))  # fmt: skip
def validation_without_eval():
    """Only no_grad was remembered."""
    net = _convolutions()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    correct = 0
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            for images, classes in batches(3, 16):
                optimizer.zero_grad()
                F.cross_entropy(net(images), classes).backward()
                optimizer.step()
            with torch.no_grad():
                for images, classes in batches(4, 16):
                    correct += (net(images).argmax(1) == classes).sum().item()
    return trace.report
