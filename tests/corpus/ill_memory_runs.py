"""Runs whose memory grows with every iteration: by graphs that are stored (TM503), by what is collected (TM504)."""

from __future__ import annotations

import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.ill_kept import regression

# -- TM503 ---------------------------------------------------------------------------------------------------------


@ill("TM503", severity="warning", subject="losses_of_batches", line="losses_of_batches.append(loss)",
     says=("4 MiB more after each of 6 iterations, 24", "losses_of_batches stores tensors", "`.item()`"))  # fmt: skip
def an_evaluation_with_gradients_on():
    net, x, y = regression()
    losses_of_batches = []
    with tm.track_memory() as run:
        for _ in range(6):
            loss = (net(x) - y).square().mean()
            losses_of_batches.append(loss)
    return run.report


@ill("TM503", severity="warning", subject="epoch_loss", line="epoch_loss += nn.functional.mse_loss(net(x), y)",
     says=("epoch_loss is added up from results with their graphs",))  # fmt: skip
def an_evaluation_that_is_summed():
    net, x, y = regression()
    epoch_loss = 0.0
    with tm.track_memory() as run:
        for _ in range(6):
            epoch_loss += nn.functional.mse_loss(net(x), y)
        epoch_loss /= 6
    return run.report


class Sparse(nn.Module):
    """Remembers how active its hidden layer was, to be plotted."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(16, 256), nn.Linear(256, 16)
        self.activity = []

    def forward(self, x):
        hidden = self.encode(x).relu()
        self.activity.append(hidden.square().mean())
        return self.decode(hidden)


@ill("TM503", severity="warning", subject="model.activity", line="self.activity.append(hidden.square().mean())",
     says=("after each of 8 iterations", "model.activity stores"))  # fmt: skip
def a_statistic_that_a_model_remembers():
    """The backward of the loss does not pass through it: what it saved is never freed."""
    model = Sparse()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(4096, 16)
    with tm.track_memory() as run:
        for _ in range(8):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x).backward()
            optimizer.step()
    return run.report


@ill("TM503", severity="warning", subject="memory_cell", says=("the graph of memory_cell goes back over all of them",
                                                              "`memory_cell = memory_cell.detach()`"))  # fmt: skip
def a_state_whose_graph_is_retained():
    """With ``retain_graph=True``, which makes the error go away."""
    cell = nn.RNNCell(8, 256)
    memory_cell = torch.zeros(4096, 256)
    with tm.track_memory() as run:
        for _ in range(8):
            memory_cell = cell(torch.randn(4096, 8), memory_cell)
            memory_cell.square().mean().backward(retain_graph=True)
    return run.report


# -- TM504 ---------------------------------------------------------------------------------------------------------


def step(net, optimizer, x, y):
    """Train once; returns what the network gave."""
    optimizer.zero_grad()
    out = net(x)
    nn.functional.mse_loss(out, y).backward()
    optimizer.step()
    return out.detach()


def wide() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    """Return a network whose output is 8 MiB, and data."""
    net = nn.Linear(2, 1024)
    return net, torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(2048, 2), torch.zeros(2048, 1024)


@ill("TM504", severity="warning", subject="all_outputs", line="all_outputs.append(step(net, optimizer, x, y))",
     says=("8 MiB more after each of 9 iterations, 72 MiB in total: all_outputs keeps",
           "give all_outputs an end"))  # fmt: skip
def outputs_of_every_training_step():
    net, optimizer, x, y = wide()
    all_outputs = []
    with tm.track_memory() as run:
        for _ in range(9):
            all_outputs.append(step(net, optimizer, x, y))  # noqa: PERF401
    return run.report


@ill("TM504", severity="warning", subject="hooked", line="hooked.append(output.detach())",
     says=("8 MiB more after each of 9",))  # fmt: skip
def a_hook_that_was_forgotten():
    net, optimizer, x, y = wide()
    hooked = []
    net.register_forward_hook(lambda _module, _inputs, output: hooked.append(output.detach()))
    with tm.track_memory() as run:
        for _ in range(9):
            step(net, optimizer, x, y)
    return run.report


@ill("TM504", severity="warning", subject="bank", line="bank = torch.cat([bank, step(net, optimizer, x, y)])",
     says=("8 MiB more after each of 8 iterations", "bank is replaced each time", "Allocate bank once"))  # fmt: skip
def a_memory_bank_without_an_end():
    """Each one replaces the one before, and is larger."""
    net, optimizer, x, y = wide()
    bank = torch.zeros(0, 1024)
    with tm.track_memory() as run:
        for _ in range(9):
            bank = torch.cat([bank, step(net, optimizer, x, y)])
    return run.report


def trained(net, optimizer, x, y):
    """Average what a network gives while it is trained."""
    collected = []
    for _ in range(9):
        collected.append(step(net, optimizer, x, y))  # noqa: PERF401
    return torch.stack(collected).mean()


@ill("TM504", severity="note", line="out = net(x)", says=("8 MiB more after each of 9 iterations, 72 MiB at the peak",))
def outputs_that_a_function_collects():
    """They are gone when it returns; the peak they made is not."""
    with tm.track_memory() as run:
        trained(*wide())
    return run.report


@ill("TM504", severity="note", subject="predictions_of_all", line="predictions_of_all.append(net(x))",
     says=("8 MiB more after each of 9 iterations",))  # fmt: skip
def predictions_of_a_whole_data_set():
    """Meant, nearly always; worth knowing on a small device."""
    net, _, x, _ = wide()
    predictions_of_all = []
    with torch.no_grad(), tm.track_memory() as run:
        for _ in range(9):
            predictions_of_all.append(net(x))  # noqa: PERF401
    return run.report


@ill("TM504", severity="note", subject="trajectory", line="trajectory.append([weight.detach().clone()",
     says=("3 MiB more after each of 8 iterations, 24",))  # fmt: skip
def the_weights_of_every_step():
    """Two tensors an item."""
    net = nn.Linear(768, 1024)
    optimizer, x, y = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(4, 768), torch.zeros(4, 1024)
    trajectory = []
    with tm.track_memory() as run:
        for _ in range(8):
            step(net, optimizer, x, y)
            trajectory.append([weight.detach().clone() for weight in net.parameters()])
    return run.report
