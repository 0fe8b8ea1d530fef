"""Training code whose forward is not finite (TM401): the data, a parameter, or an op that has no answer."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy, ill
from tests.corpus.data import batches, mlp


@ill("TM401", severity="error", line="F.cross_entropy(net(x), classes)", says=(
    "The data of shape (64, 64), which goes into addmm of net.0", "already holds 1 NaN", "pass 1 of 3"))  # fmt: skip
def data_with_a_nan():
    """The commonest of all. The data have no name that the trace could see: their shape is told."""
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            x = images.flatten(1).clone()
            x[5, 7] = math.nan
            F.cross_entropy(net(x), classes).backward()
            net.zero_grad()
    return trace.report


@ill("TM401", line="net(x).abs().mean().backward()", subject="x", says=("x, which goes into addmm", "%tensor x"))
def data_with_a_nan_that_the_loss_does_not_pass_on():
    """The slope of abs at NaN is 0: the NaN comes back in only where the weight's gradient is made."""
    net = nn.Linear(4, 1)
    x = torch.randn(5, 4)
    x[2, 1] = math.nan
    with tm.trace(namespace={"net": net, "x": x}) as trace:
        net(x).abs().mean().backward()
    return trace.report


@ill("TM401", line="loss = F.mse_loss(net(x), y)", subject="y", says=(
    "y, which goes into mse_loss", "already holds 2 NaN among its 16 elements"))  # fmt: skip
def targets_with_missing_values():
    """A table with empty cells, as pandas reads them."""
    net, x, y = mlp(4, 8, 1), torch.randn(16, 4), torch.randn(16, 1)
    y[[3, 9]] = math.nan
    with tm.trace(namespace={"net": net, "x": x, "y": y}) as trace:
        loss = F.mse_loss(net(x), y)
        loss.backward()
    return trace.report


@ill("TM401", line="loss = F.mse_loss(net(x), y)", subject="x", says=("x, which goes into addmm", "16 NaN"))
def a_feature_that_is_constant():
    """Standardised by hand: its deviation is zero, and 0 / 0 is NaN."""
    raw, y = torch.randn(16, 4), torch.randn(16, 1)
    raw[:, 2] = 7.0
    x = (raw - raw.mean(0)) / raw.std(0)
    net = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "x": x, "y": y}) as trace:
        for _ in range(3):
            loss = F.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM401", line="x = net(torch.randn(8, 4))", subject="net.0.weight", says=(
    "net.0.weight holds 1 NaN among its 32 elements before the forward begins",))  # fmt: skip
def weights_that_were_loaded_with_a_nan():
    net = mlp(4, 8, 1)
    state = net.state_dict()
    state["0.weight"][0, 0] = math.nan
    net.load_state_dict(state)
    with tm.trace(namespace={"net": net}) as trace:
        x = net(torch.randn(8, 4))
        x.square().mean().backward()
    return trace.report


@ill("TM401", severity="warning", line="loss = -(gain.log() * share).sum()", says=(
    "in log", "its input holds 1 negative number, so 1 of the 3 elements of its result is NaN"))  # fmt: skip
def a_logarithm_of_a_negative_number():
    """The loss is NaN and every gradient is finite: the slope of the logarithm at -1 is a number."""
    gain, share = torch.tensor([1.0, 2.0, -1.0], requires_grad=True), torch.tensor([0.2, 0.3, 0.5])
    with tm.trace(namespace={"gain": gain}) as trace:
        loss = -(gain.log() * share).sum()
        loss.backward()
    return trace.report


@ill("TM401", op="softmax", line="p = scores.softmax(-1)", says=("5 of the 25 elements", "-1e9"))
def a_query_that_may_look_at_nothing():
    """One row of the mask is -inf from end to end, and the loss takes every row."""
    query, key = nn.Linear(8, 8), nn.Linear(8, 8)
    mask = torch.zeros(5, 5)
    mask[3] = -math.inf
    with tm.trace(namespace={"query": query, "key": key}) as trace:
        x = torch.randn(5, 8)
        scores = query(x) @ key(x).t() + mask
        p = scores.softmax(-1)
        (p @ x).square().mean().backward()
    return trace.report


@ill("TM401", op="softmax", line="(scores / 2).softmax(-1)", says=(
    "5 of the 25 elements", "`scores = scores.masked_fill(mask[None, :], -1e9)`"))  # fmt: skip
def a_padded_sentence_without_a_word():
    """The line that fills -inf in is not the one of the softmax."""
    query, mask = nn.Linear(8, 8), torch.zeros(5, 5, dtype=torch.bool)
    mask[3] = True
    with tm.trace(namespace={"query": query}) as trace:
        x = torch.randn(1, 5, 8)
        scores = query(x) @ x.mT
        scores = scores.masked_fill(mask[None, :], float("-inf"))
        p = (scores / 2).softmax(-1)
        (p @ x).square().mean().backward()
    return trace.report


@ill("TM401", op="softmax", line="scores.softmax(-1)[:2]", says=("4 of the 16 elements", "-1e9"))
def a_masked_row_that_nobody_uses_with_the_forward_measured():
    """The loss is finite: only the forward's own values tell."""
    x = torch.randn(4, 4, requires_grad=True)
    mask = torch.zeros(4, 4)
    mask[2] = -math.inf
    with tm.trace(namespace={"x": x}, forward=True) as trace:
        scores = x + mask
        scores.softmax(-1)[:2].square().sum().backward()
    return trace.report


@ill("TM401", severity="error", op="log_softmax", line="cross_entropy(net(x), y)", also=("TM404",), says=(
    "A row that holds inf", "lower the learning rate"))  # fmt: skip
def scores_that_grew_until_they_were_infinite():
    """Nothing is masked: the steps are far too long."""
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer, x, y = torch.optim.SGD(net.parameters(), lr=1e4), torch.randn(64, 10), torch.randint(0, 3, (64,))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    return trace.report


@ill("TM401", severity="error", op="sub", line="loss = ((net(x) - y) ** 2).mean()", says=(
    "before that, the loss had reached", "The training diverges: lower the learning rate"))  # fmt: skip
def an_error_that_grew_until_it_was_infinite():
    """What goes into that line is well: the weights are not."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer, x, y = torch.optim.SGD(net.parameters(), lr=100.0), torch.randn(64, 4), torch.randn(64, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(20):
            loss = ((net(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM407", severity="error", op="addmm", line="loss = F.mse_loss(net(x).float(), y)", says=(
    "The forward overflows float16 in addmm of net.2", "compute this part in float32"))  # fmt: skip
def activations_beyond_float16():
    """Raw features of tens of thousands, squared up by two layers: 65504 is the end."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    for parameter in net.parameters():
        nn.init.constant_(parameter, 3.0)
    x, y = torch.full((8, 4), 2000.0), torch.randn(8, 1)
    with tm.trace(namespace={"net": net}) as trace:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(net(x).float(), y)
        loss.backward()
    return trace.report


@healthy(nearly="TM401")
def a_causal_mask_with_the_forward_measured():
    """-inf in the forward, as meant: the softmax makes zeros of it."""
    query, key = nn.Linear(8, 8), nn.Linear(8, 8)
    mask = torch.full((5, 5), -math.inf).triu(1)
    with tm.trace(namespace={"query": query, "key": key}, forward=True) as trace:
        for _ in range(3):
            x = torch.randn(5, 8)
            p = (query(x) @ key(x).t() + mask).softmax(-1)
            loss = (p @ x).square().mean()
            loss.backward()
            query.zero_grad()
            key.zero_grad()
    return trace.report


@healthy(nearly="TM401")
def missing_values_left_out_before_the_model():
    """The table has empty cells; the rows that have them do not go in."""
    net, x, y = mlp(4, 8, 1), torch.randn(16, 4), torch.randn(16, 1)
    x[3, 1] = y[5, 0] = math.nan
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "x": x, "y": y}) as trace:
        for _ in range(3):
            known = x.isfinite().all(1) & y.isfinite().all(1)
            optimizer.zero_grad()
            F.mse_loss(net(x[known]), y[known]).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM401")
def an_entropy_with_certain_outcomes():
    """Zeros meet their logarithm in xlogy, which is 0 there."""
    target = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    scores = torch.randn(2, 3, requires_grad=True)
    with tm.trace(namespace={"scores": scores}, forward=True) as trace:
        loss = (torch.xlogy(target, target) - target * scores.log_softmax(-1)).sum()
        loss.backward()
    return trace.report


@ill("TM401", severity="error", op="ctc_loss", line="loss = F.ctc_loss", says=("`zero_infinity=True`", "time steps"))
def targets_that_are_longer_than_their_inputs():
    layer, frames = nn.Linear(10, 8), torch.randn(4, 3, 10)
    with tm.trace(namespace={"layer": layer}) as trace:
        scores = layer(frames).log_softmax(2)
        loss = F.ctc_loss(scores, torch.full((3, 6), 2), torch.full((3,), 4), torch.full((3,), 6))
        loss.backward()
    return trace.report


@ill("TM401", severity="error", op="div", line="/ kept.sum(1)", says=("fill anything else with 0",),
     related=("masked_fill(~kept, -torch.inf)",))  # fmt: skip
def a_mean_of_what_was_masked_for_a_maximum():
    """The divisor is not to blame: no zero is in it."""
    layer, kept = nn.Linear(4, 1), torch.tensor([[True, True, False], [True, False, False]])
    with tm.trace(namespace={"layer": layer}) as trace:
        scores = layer(torch.randn(2, 3, 4)).squeeze(2)
        filled = scores.masked_fill(~kept, -torch.inf)
        mean = filled.sum(1) / kept.sum(1)
        mean.square().mean().backward()
    return trace.report
