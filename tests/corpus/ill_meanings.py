"""Calls that torch accepts and that mean something else (TM106, TM206, TM610 to TM613, TM806)."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches

# TM106: a view for a permute


@ill("TM106", severity="warning", line="scores = scores.view(-1, 3)", says=("(4, 3, 8, 8)", "movedim(1, -1)"))
def a_segmentation_whose_scores_are_flattened():
    """As in threads about per-pixel cross entropy: (B, C, H, W) must be permuted before it is flattened."""
    net = nn.Conv2d(1, 3, 3, padding=1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 4):
            scores = net(images)
            scores = scores.view(-1, 3)
            F.cross_entropy(scores, (images > 0.5).long().flatten()).backward()
    return trace.report


@ill("TM106", severity="warning", line="scores = scores.view(-1, 2)", says=("(4, 2, 8, 8)", "movedim(1, -1)"))
def a_segmentation_of_two_classes_whose_scores_are_flattened():
    """That two divides the width does not make pieces of a row the scores of a pixel."""
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1), nn.LeakyReLU())
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 4):
            scores = net(images)
            scores = scores.view(-1, 2)
            F.cross_entropy(scores, (images > 0.5).long().flatten()).backward()
    return trace.report


class Heads(nn.Module):
    """Attention whose heads are split off without a transpose."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(24, 24)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.project(x).view(b, 4, t, 6)
        return (q @ q.transpose(-2, -1)).softmax(-1) @ q


@ill("TM106", severity="warning", line="q = self.project(x).view(b, 4, t, 6)", says=("heads", "transpose(-3, -2)"))
def attention_heads_without_a_transpose():
    net = Heads()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(torch.randn(2, 10, 24)).square().mean().backward()
    return trace.report


@ill("TM106", severity="warning", line="tokens = self.patches(x).reshape(len(x), 16, 12)", says=("(5, 12, 4, 4)",))
def patches_that_mix_channels():
    """A vision transformer's patches: (B, C, H, W) as (B, H * W, C)."""

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.head = nn.Conv2d(1, 12, 2, stride=2), nn.Linear(12, 10)

        def forward(self, x):
            tokens = self.patches(x).reshape(len(x), 16, 12)
            return self.head(tokens.mean(1))

    net = Patches()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 5):
            F.cross_entropy(net(images), classes).backward()
    return trace.report


@ill("TM106", severity="note", line="x = signals.view(4, 20, 3)", says=("transpose(1, 2)",))
def channels_last_by_view():
    """A signal of (batch, channels, time) for a layer that takes (batch, time, channels)."""
    net, signals = nn.Linear(3, 1), torch.randn(4, 3, 20)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x = signals.view(4, 20, 3)
            net(x).square().mean().backward()
    return trace.report


# TM206: stored views


@ill("TM206", severity="warning", line="batch = torch.stack(seen)", says=("5 tensors", "clone()"))
def observations_that_are_all_the_last():
    """A replay buffer that stores what the environment writes into the same tensor."""
    net, state, seen = nn.Linear(3, 1), torch.zeros(4, 3), []
    with tm.trace(namespace={"net": net}) as trace:
        for step in range(5):
            state[0] = step
            seen.append(state[0])
        batch = torch.stack(seen)
        net(batch).square().mean().backward()
    return trace.report


@ill("TM206", severity="note", line="batch = torch.stack(seen)", says=("from_numpy", "torch.tensor(array)"))
def observations_of_one_array():
    net, array, seen = nn.Linear(3, 1), np.zeros(3, dtype=np.float32), []
    with tm.trace(namespace={"net": net}) as trace:
        for step in range(5):
            array[:] = step
            seen.append(torch.from_numpy(array))
        batch = torch.stack(seen)
        net(batch).square().mean().backward()
    return trace.report


@ill("TM206", severity="warning", line="torch.cat(history)", says=("cat joins 4 tensors",))
def a_history_of_detached_states():
    """``detach`` shares memory, and the state is updated in place."""
    net, state, history = nn.Linear(2, 2), torch.ones(1, 2), []
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            with torch.no_grad():
                state.mul_(0.9)
            history.append(state.detach())
        net(torch.cat(history)).sum().backward()
    return trace.report


# TM610: dropout


class Fresh(nn.Module):
    """Makes its dropout in forward."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(nn.Dropout(0.5)(self.body(x).relu()))


def _train_and_evaluate(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for images, classes in batches(4):
        optimizer.zero_grad()
        F.cross_entropy(net(images.flatten(1)), classes).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for images, _ in batches(2):
            net(images.flatten(1)).argmax(1)
    net.train()


@ill("TM610", severity="warning", line="return self.head(nn.Dropout(0.5)(self.body(x).relu()))",
     says=("2 calls in eval mode", "not a submodule of Fresh"))  # fmt: skip
def a_dropout_made_in_forward():
    net = Fresh()
    with tm.trace(namespace={"net": net}) as trace:
        _train_and_evaluate(net)
    return trace.report


class Functional(nn.Module):
    """Calls the function, which drops by default."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.dropout(self.body(x).relu(), 0.5)
        return self.head(x)


@ill("TM610", severity="warning", line="x = F.dropout(self.body(x).relu(), 0.5)", says=("training=self.training",))
def a_functional_dropout_without_the_mode():
    """pytorch#26338."""
    net = Functional()
    with tm.trace(namespace={"net": net}) as trace:
        _train_and_evaluate(net)
    return trace.report


@ill("TM610", severity="note", line="x = F.dropout(self.body(x).relu(), 0.5)", says=("nothing was evaluated",))
def a_functional_dropout_in_training():
    net = Functional()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            F.cross_entropy(net(images.flatten(1)), classes).backward()
    return trace.report


# TM611: kl_div


@ill("TM611", severity="warning", line="loss = F.kl_div(p, q, reduction=", says=("p holds probabilities",),
     related=("p = student(x).softmax(1)",))  # fmt: skip
def a_distillation_of_probabilities():
    student, teacher = nn.Linear(8, 5), nn.Linear(8, 5)
    with tm.trace(namespace={"student": student}) as trace:
        for _ in range(3):
            x = torch.randn(16, 8)
            with torch.no_grad():
                q = teacher(x).softmax(1)
            p = student(x).softmax(1)
            loss = F.kl_div(p, q, reduction="batchmean")
            loss.backward()
    return trace.report


@ill("TM611", severity="warning", line="loss = F.kl_div(scores, q, reduction=", says=("log_softmax(scores, dim=-1)",))
def a_divergence_of_scores():
    student, teacher = nn.Linear(8, 5), nn.Linear(8, 5)
    with tm.trace(namespace={"student": student}) as trace:
        for _ in range(3):
            x = torch.randn(16, 8)
            q = teacher(x).softmax(1).detach()
            scores = student(x)
            loss = F.kl_div(scores, q, reduction="batchmean")
            loss.backward()
    return trace.report


@ill("TM611", severity="warning", line="loss = F.kl_div(p, q, reduction=", says=("log_target=True",), also=("TM401",))
def a_divergence_from_logarithms():
    """Both are logarithms, and nobody told it."""
    student, teacher = nn.Linear(8, 5), nn.Linear(8, 5)
    with tm.trace(namespace={"student": student}) as trace:
        for _ in range(2):
            x = torch.randn(16, 8)
            q = teacher(x).log_softmax(1).detach()
            p = student(x).log_softmax(1)
            loss = F.kl_div(p, q, reduction="batchmean")
            loss.nan_to_num().backward()
    return trace.report


# TM612: softmax


@ill("TM612", severity="warning", line="scores = F.log_softmax(net(images.flatten(1)), dim=0)",
     says=("dimension 0", "`dim=1`"), related=("loss = F.nll_loss(scores, classes)",))  # fmt: skip
def log_softmax_over_the_batch():
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            scores = F.log_softmax(net(images.flatten(1)), dim=0)
            loss = F.nll_loss(scores, classes)
            loss.backward()
    return trace.report


@ill("TM612", severity="warning", line="p = net(images.flatten(1)).softmax(0)", says=("dimension 0", "`dim=1`"),
     related=("loss = F.nll_loss(p.log(), classes)",))  # fmt: skip
def the_logarithm_of_a_softmax_over_the_batch():
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            p = net(images.flatten(1)).softmax(0)
            loss = F.nll_loss(p.log(), classes)
            loss.backward()
    return trace.report


@ill("TM612", severity="warning", line="weights = ", says=("samples of the batch compete", "dim=-1"),
     related=("return weights @ x",))  # fmt: skip
def attention_over_the_batch():
    """The default of nn.Softmax() over three dimensions is the first."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(6, 6)

        def forward(self, x):
            weights = torch.softmax(self.query(x) @ x.mT / math.sqrt(6), dim=0)
            return weights @ x

    net = Attention()
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(torch.randn(4, 7, 6)).square().mean().backward()
    return trace.report


@ill("TM612", severity="note", line="weights = ", says=("not weighted averages",),
     related=("out = torch.bmm(weights, x)",))  # fmt: skip
def attention_over_the_queries():
    key, drop = nn.Linear(6, 6), nn.Dropout(0.2)
    with tm.trace(namespace={"key": key}) as trace:
        for _ in range(3):
            x = torch.randn(4, 7, 6)
            weights = drop(torch.softmax(key(x) @ x.mT, dim=1))
            out = torch.bmm(weights, x)
            out.square().mean().backward()
    return trace.report


@ill("TM612", severity="note", line="p = F.softmax(net(x), dim=0)", says=("over 32 rows",))
def a_policy_over_the_batch():
    net = nn.Linear(4, 3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x = torch.randn(32, 4)
            p = F.softmax(net(x), dim=0)
            (p.log().mean() + p.square().mean()).backward()
    return trace.report


# TM613: recurrent layers


class Tagger(nn.Module):
    """Fed (batch, time, features)."""

    def __init__(self, layer=nn.LSTM):
        super().__init__()
        self.rnn, self.head = layer(8, 16), nn.Linear(16, 10)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(out[:, -1])


@ill("TM613", severity="warning", line="return self.head(out[:, -1])", says=("last of 8 samples", "out[-1]"))
def an_lstm_fed_batch_first():
    net = Tagger()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            F.cross_entropy(net(images.squeeze(1)), classes).backward()
    return trace.report


@ill("TM613", line="return self.head(out[:, -1])", says=("all 64 time steps", "`nn.GRU("))
def a_gru_fed_batch_first():
    net = Tagger(nn.GRU)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            F.cross_entropy(net(images.squeeze(1)), classes).backward()
    return trace.report


@ill("TM613", severity="warning", line="last = out[:, -1, :]", says=("batch_first=True",))
def a_plain_rnn_fed_batch_first():
    rnn, head = nn.RNN(2, 6), nn.Linear(6, 1)
    with tm.trace(namespace={"rnn": rnn, "head": head}) as trace:
        for _ in range(3):
            out, _ = rnn(torch.randn(12, 5, 2))
            last = out[:, -1, :]
            head(last).square().mean().backward()
    return trace.report


# TM806: uint8


def _frames():
    first = torch.randint(0, 256, (2, 8, 8), dtype=torch.uint8)
    return first, torch.randint(0, 256, (2, 8, 8), dtype=torch.uint8)


@ill("TM806", severity="warning", line="moved = after - before", says=("after and before", "after.float()"))
def a_difference_of_frames():
    net, (before, after) = nn.Linear(64, 1), _frames()
    with tm.trace(namespace={"net": net}) as trace:
        moved = after - before
        net(moved.float().flatten(1) / 255).sum().backward()
    return trace.report


@ill("TM806", severity="warning", line="x = (frame - 128).float() / 128", says=("from \u2212",))
def bytes_that_are_centred():
    net, (frame, _) = nn.Linear(64, 1), _frames()
    with tm.trace(namespace={"net": net}) as trace:
        x = (frame - 128).float() / 128
        net(x.flatten(1)).sum().backward()
    return trace.report


@ill("TM806", severity="warning", line="brighter = frame * 2", says=("mul of frame wrapped",))
def a_brighter_image():
    net, (frame, _) = nn.Linear(64, 1), _frames()
    with tm.trace(namespace={"net": net}) as trace:
        brighter = frame * 2
        net(brighter.float().flatten(1)).sum().backward()
    return trace.report
