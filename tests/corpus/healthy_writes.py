"""Programs that write in place all the time and are right to: nothing above a note may be said of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tensormagic.reports import WritesReport
from tests.corpus.cases import Case
from tests.corpus.data import batches

Run = Callable[[], WritesReport]
HEALTHY_WRITES: list[Case] = []


def healthy(run: Run | None = None, *, nearly: str = "") -> Any:
    """Declare a program that is right to write as it does; of the code ``nearly`` not even a note may be told."""

    def declare(run: Run) -> Run:
        HEALTHY_WRITES.append(Case(run, nearly=nearly))
        return run

    return declare if run is None else declare(run)


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 10))


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, *, set_to_none: bool = True) -> None:
    for images, classes in batches(3, 16):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = F.cross_entropy(net(images), classes)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


@healthy
def adam_with_batch_norm_and_clipping():
    net = _net()
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)
    with tm.watch_writes() as watch:
        _train(net, optimizer)
    return watch.report


@healthy
def sgd_with_momentum_into_gradients_that_are_kept():
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    with tm.watch_writes() as watch:
        _train(net, optimizer, set_to_none=False)
    return watch.report


@healthy(nearly="TM201")
def a_moving_average_of_the_weights():
    net, average = _net(), _net()
    optimizer = torch.optim.AdamW(net.parameters())
    with tm.watch_writes() as watch:
        for _ in range(2):
            _train(net, optimizer)
            for mean, weight in zip(average.parameters(), net.parameters(), strict=True):
                mean.data.mul_(0.99).add_(weight.data, alpha=0.01)
    return watch.report


@healthy(nearly="TM201")
def the_best_weights_kept_as_a_copy():
    net = _net()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.watch_writes() as watch:
        best, history = copy.deepcopy(net.state_dict()), []
        for _ in range(3):
            _train(net, optimizer)
            history.append(net[0].weight.detach().clone())
        net.load_state_dict(best)
    return watch.report


@healthy
def a_checkpoint_that_is_still_around():
    net = _net()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.watch_writes() as watch:
        for _ in range(2):
            _train(net, optimizer)
            checkpoint = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
    assert checkpoint
    return watch.report


@healthy
def gradient_descent_by_hand():
    x = torch.linspace(-1, 1, 32).unsqueeze(1)
    w, b = torch.randn(1, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    with tm.watch_writes() as watch:
        for _ in range(5):
            loss = (x @ w + b - 3 * x).square().mean()
            loss.backward()
            for parameter in (w, b):
                parameter.data -= 0.1 * parameter.grad
                parameter.grad.zero_()
            with torch.no_grad():
                w -= 0.01 * w
    return watch.report


@healthy
def a_buffer_filled_row_by_row():
    with tm.watch_writes() as watch:
        out = torch.empty(8, 3)
        for step in range(8):
            out[step] = step
            row = out[step]
        top = out[:4]
        top.mul_(2)
        out.t()[0].zero_()
    assert row is not None
    return watch.report


@healthy(nearly="TM201")
def the_state_of_a_recurrent_network():
    cell = nn.LSTMCell(4, 8)
    h, c = torch.zeros(2, 8), torch.zeros(2, 8)
    outputs = []
    with tm.watch_writes() as watch:
        for step in range(5):
            h, c = cell(torch.randn(2, 4), (h, c))
            outputs.append(h)
            if step == 2:
                h, c = h.detach(), c.detach()
        loss = torch.stack(outputs).sum()
        loss.backward()
    return watch.report


class _Queue(nn.Module):
    """A ring buffer of keys, as in momentum contrast, and a running mean."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(6, 4))
        self.register_buffer("mean", torch.zeros(4))
        self.at = 0

    @torch.no_grad()
    def push(self, keys):
        self.keys[self.at : self.at + len(keys)] = keys
        self.at = (self.at + len(keys)) % len(self.keys)
        self.mean.mul_(0.9).add_(keys.mean(0), alpha=0.1)


@healthy(nearly="TM201")
def buffers_of_a_module():
    queue = _Queue()
    with tm.watch_writes() as watch:
        for _ in range(4):
            queue.push(torch.randn(2, 4))
    return watch.report


@healthy
def tied_weights():
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    optimizer = torch.optim.SGD([*embedding.parameters()], lr=0.1)
    with tm.watch_writes() as watch:
        for _ in range(3):
            optimizer.zero_grad()
            head(embedding(torch.arange(5))).square().sum().backward()
            optimizer.step()
    return watch.report


@healthy(nearly="TM203")
def masks_and_scores():
    scores = torch.randn(2, 5, 5)
    with tm.watch_writes() as watch:
        scores.masked_fill_(torch.ones(5, 5).triu(1).bool(), float("-inf"))
        scores[scores < -1] = -1
        counts = torch.zeros(5, dtype=torch.long)
        counts.scatter_add_(0, torch.tensor([0, 1, 1]), torch.ones(3, dtype=torch.long))
        counts.index_add_(0, torch.tensor([4]), torch.ones(1, dtype=torch.long))
        scores[:, 0], scores[:, 1] = scores[:, 1].clone(), scores[:, 0].clone()
    return watch.report


@healthy(nearly="TM203")
def rows_shuffled_and_shifted_rightly():
    x = torch.arange(12.0).view(4, 3)
    with tm.watch_writes() as watch:
        for at in range(3):
            x[at], x[at + 1] = x[at + 1].clone(), x[at].clone()
            x[[0, 2]] = x[[2, 0]]
            x[0], x[1] = x[2], x[3]
    return watch.report


@healthy
def data_that_comes_from_numpy():
    samples = np.arange(12, dtype=np.float32).reshape(3, 4)
    with tm.watch_writes() as watch:
        x = torch.from_numpy(samples)
        x -= x.mean(0)
        x /= x.std(0) + 1e-6
    return watch.report


@healthy
def queries_keys_and_values_of_one_tensor():
    packed = torch.randn(2, 3, 12)
    with tm.watch_writes() as watch:
        q, k, v = packed.chunk(3, dim=-1)
        q *= 0.5
        k.add_(1)
        out = torch.empty_like(v)
        torch.mul(q, k, out=out)
    return watch.report


@healthy
def parameters_that_lie_in_one_vector():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    flat = nn.utils.parameters_to_vector(net.parameters()).detach()
    nn.utils.vector_to_parameters(flat, net.parameters())
    optimizer = torch.optim.Adam(net.parameters())
    with tm.watch_writes() as watch:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
    return watch.report


@healthy
def a_straight_through_estimator():
    x = torch.randn(6, requires_grad=True)
    with tm.watch_writes() as watch:
        quantized = x * 1
        quantized.data.round_()
        (quantized * 2).sum().backward()
    return watch.report


@healthy(nearly="TM201")
def a_path_of_copies():
    state, velocity, path = torch.zeros(2), torch.ones(2), []
    with tm.watch_writes() as watch:
        for _ in range(5):
            state += 0.1 * velocity
            path.append(state.clone())
    assert path[0][0] != path[4][0]
    return watch.report


@healthy(nearly="TM201")
def flatten_that_has_to_copy():
    """The transposed images cannot be flattened without one."""
    images = torch.tensor([[0.1, 0.2, 0.9], [0.3, 0.8, 0.1]])
    with tm.watch_writes() as watch:
        flat = images.t().flatten()
        flat[flat > 0.5] = 0
    assert images.max() == torch.tensor(0.9)
    return watch.report


@healthy(nearly="TM201")
def windows_that_lie_side_by_side():
    """Even and odd elements of one signal: between one another, and none in common."""
    signal = torch.arange(8.0)
    with tm.watch_writes() as watch:
        even, odd = signal[::2].clone(), signal[1::2]
        even.mul_(0.5)
        even += odd
    return watch.report


@healthy(nearly="TM202")
def an_expanded_bias_that_is_copied_first():
    bias = torch.zeros(3)
    with tm.watch_writes() as watch:
        table = bias.expand(4, 3).clone()
        table[0] = 1
        table.add_(torch.arange(3.0).expand(4, 3))
    assert table[3, 0] == 0
    return watch.report


@healthy(nearly="TM202")
def windows_of_unfold_that_are_only_read():
    signal, means = torch.arange(6.0), torch.empty(4)
    with tm.watch_writes() as watch:
        windows = signal.unfold(0, 3, 1)
        torch.mean(windows, 1, out=means)
        centred = windows - means.unsqueeze(1)
        centred /= centred.std(1, keepdim=True)
    return watch.report


@healthy(nearly="TM202")
def windows_that_do_not_overlap():
    """Unfolded by steps as long as the windows: each element lies in one of them."""
    signal = torch.arange(8.0)
    with tm.watch_writes() as watch:
        signal.unfold(0, 2, 2).sub_(1)
    return watch.report


@healthy(nearly="TM203")
def a_shift_of_what_was_copied():
    x = torch.arange(12.0).view(3, 4)
    with tm.watch_writes() as watch:
        x -= x[:, :1].clone()
        x[:, 1:] = x[:, :-1].clone()
        x[:] = x.roll(1, dims=1)
    return watch.report


@healthy(nearly="TM203")
def halves_that_do_not_overlap():
    """Reads one half, writes the other; and an operation onto exactly what it reads."""
    x = torch.arange(12.0)
    with tm.watch_writes() as watch:
        x[6:] += x[:6]
        x[::2] = x[1::2]
        torch.exp(x, out=x)
    return watch.report


@healthy(nearly="TM204")
def an_array_that_is_copied_into_a_tensor():
    samples = np.arange(6.0)
    with tm.watch_writes() as watch:
        x = torch.tensor(samples)
        x.sub_(x.mean())
    assert samples[0] == 0
    return watch.report


@healthy(nearly="TM204")
def as_tensor_that_has_to_copy():
    """Of another dtype: a float64 array, as NumPy makes them, and a float32 tensor."""
    values = np.array([1.0, 2.0, 3.0, 4.0])
    with tm.watch_writes() as watch:
        x = torch.as_tensor(values, dtype=torch.float32)
        x.clamp_(max=2)
    assert values.max() == 4
    return watch.report


@healthy(nearly="TM204")
def an_array_for_the_plot_of_every_epoch():
    """A copy of each; the tensor goes on changing."""
    w, curve = torch.zeros(3), []
    with tm.watch_writes() as watch:
        for _ in range(3):
            w += 1
            curve.append(w.numpy().copy())
    assert curve[0][0] == 1
    return watch.report


@healthy(nearly="TM201")
def transitions_of_copies():
    """A tuple that holds one tensor twice is one item."""
    observation, memory = torch.ones(4), []
    with tm.watch_writes() as watch:
        for reward in range(4):
            observation.mul_(0.9)
            seen = observation.clone()
            memory.append((seen, seen, reward))
        memory[-1][0].zero_()
    return watch.report
