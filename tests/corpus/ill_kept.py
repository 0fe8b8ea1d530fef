"""Sessions that keep memory nobody uses: outputs (TM501), the last error (TM502), graphs (TM503), ever more (TM504)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

import tensormagic as tm
from tensormagic.reports import WatchReport
from tests.corpus.cases import ill

MIB = 2**18  # elements of float32


# -- TM501 ---------------------------------------------------------------------------------------------------------


def session(out: dict, **names: object) -> dict:
    """Return a namespace as IPython keeps it: the history of outputs, and the names that it makes of it."""
    numbered = {f"_{number}": value for number, value in out.items()}
    latest = dict(zip(("_", "__", "___"), reversed(list(out.values())), strict=False))
    return {"In": ["", "…"], "Out": out, "_oh": out, **latest, **numbered, **names}


@ill("TM501", severity="warning", subject="Out[3]", says=("Out[3] keeps 20 MiB alive", "`%xdel _3`"))
def a_softmax_that_was_only_looked_at():
    logits = torch.zeros(5, MIB)
    return tm.check(session({3: torch.zeros(20 * MIB), 4: 1}, logits=logits))


@ill("TM501", severity="warning", subject="Out[7]", says=("Out[7] and Out[2] keep 50 MiB", "`%xdel _7` and `%xdel _2`"))
def two_batches_displayed():
    """The first was displayed before it was bound anew; the second is one of a tuple."""
    images = torch.zeros(4)
    return tm.check(session({2: torch.zeros(20, MIB), 7: (torch.zeros(30, MIB), torch.ones(3))}, images=images))


@ill("TM501", severity="warning", subject="Out[9]", says=("keeps 18 MiB",))
def one_row_of_a_result():
    """A slice was displayed: it keeps all of it."""
    return tm.check(session({9: torch.zeros(18, MIB)[0]}))


# -- TM205 ---------------------------------------------------------------------------------------------------------


@ill("TM205", severity="warning", subject="first", says=("first reads 4 B and keeps 20 MiB alive", "first.clone()"))
def the_loss_of_one_item():
    losses = torch.zeros(20, MIB)
    first = losses[0, 0]
    del losses
    return tm.check({"first": first})


@ill("TM205", severity="warning", subject="best['weights']", says=("reads 1 MiB and keeps 18 MiB alive",))
def the_best_slice_of_each_epoch():
    best = {"loss": 0.3, "weights": torch.zeros(18, MIB)[4]}
    return tm.check({"best": best})


@ill("TM205", severity="warning", subject="kept[0]", says=("kept[0] reads 4 KiB",))
def a_detached_column_in_a_list():
    kept = [torch.zeros(1024, 5 * 1024, requires_grad=True).exp().detach()[:, 3]]
    return tm.check({"kept": kept})


# -- TM502 ---------------------------------------------------------------------------------------------------------


@contextmanager
def last_error(function) -> Iterator[None]:
    """Let a function fail as a cell fails: Python keeps its error as the last one."""
    before = {name: vars(sys)[name] for name in ("last_value", "last_exc") if name in vars(sys)}
    try:
        function()
    except Exception as error:
        sys.last_value = sys.last_exc = error
    try:
        yield
    finally:
        del sys.last_value, sys.last_exc
        vars(sys).update(before)


def evaluate_in_one_batch():
    """Fails after the large part of its work."""
    features = torch.zeros(24, MIB)
    raise ValueError(f"expected 10 classes, got {len(features)}")


@ill("TM502", severity="warning", line="raise ValueError(", subject="a local of evaluate_in_one_batch",
     says=("The last error keeps 24 MiB", "`1/0`"))  # fmt: skip
def an_evaluation_that_failed():
    with last_error(evaluate_in_one_batch):
        return tm.check({})


class Encoder(nn.Module):
    """Its second layer has the wrong size."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 512), nn.Linear(256, 8)

    def forward(self, x):
        hidden = self.first(x).relu()
        return self.second(hidden)


@ill("TM502", severity="warning", line="return self.second(hidden)", says=("The last error keeps",))
def a_shape_error_in_the_middle_of_forward():
    encoder = Encoder().requires_grad_(False)
    x = torch.zeros(20 * 512, 8)
    with last_error(lambda: encoder(x)):
        return tm.check({"encoder": encoder, "x": x})


def double_until_it_breaks():
    """What a search for the largest batch does."""
    batches = [torch.zeros(MIB * 2**power) for power in range(5)]
    raise RuntimeError(f"out of memory with {len(batches)} batches")


@ill("TM502", severity="warning", line="raise RuntimeError(", says=("keeps 16 MiB",))
def a_search_for_the_largest_batch():
    with last_error(double_until_it_breaks):
        return tm.check({"scale": torch.ones(1)})


# -- TM503 ---------------------------------------------------------------------------------------------------------


def regression() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network whose activations are large beside its weights, and data."""
    return nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 1)), torch.randn(4096, 4), torch.randn(4096, 1)


@ill("TM503", severity="warning", subject="losses", line="losses.append(loss)",
     says=("losses stores 6 tensors with their graphs (48 nodes), which keep 24.1 MiB", "`.item()`",
           "torch.no_grad()"))  # fmt: skip
def validation_losses_in_a_list():
    """The validation loop runs with gradients, and its losses are stored to be averaged."""
    net, x, y = regression()
    losses = []
    for _ in range(6):
        loss = (net(x) - y).square().mean()
        losses.append(loss)
    return tm.check({"net": net, "losses": losses, "x": x, "y": y})


@ill("TM503", severity="warning", subject="total", line="total += nn.functional.mse_loss(net(x), y)",
     says=("total was added up from 6 results with their graphs",))  # fmt: skip
def a_validation_loss_that_is_summed():
    net, x, y = regression()
    total = 0.0
    for _ in range(6):
        total += nn.functional.mse_loss(net(x), y)
    total /= 6
    return tm.check({"net": net, "total": total, "x": x, "y": y})


class Meter:
    """Keeps what it is given, as many meters do."""

    def __init__(self):
        self.predictions = []

    def update(self, prediction):
        self.predictions.append(prediction)


@ill("TM503", severity="warning", subject="meter.predictions", line="self.predictions.append(prediction)",
     says=("stores 5 tensors", "`.detach()`"))  # fmt: skip
def predictions_in_an_object():
    net, x, _ = regression()
    meter = Meter()
    for _ in range(5):
        meter.update(net(x))
    return tm.check({"net": net, "meter": meter, "x": x})


@ill("TM503", severity="note", subject="history['loss']", line='history["loss"].append(loss)',
     says=("stores 40 tensors", "a backward has freed their activations"))  # fmt: skip
def training_losses_for_the_plot():
    """What is left of each step after its backward is the graph without what it saved."""
    net, x, y = regression()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    history = {"loss": []}
    for _ in range(40):
        optimizer.zero_grad()
        loss = (net(x[:16]) - y[:16]).square().mean()
        loss.backward()
        optimizer.step()
        history["loss"].append(loss)
    return tm.check({"net": net, "history": history, "optimizer": optimizer})


# -- TM504 ---------------------------------------------------------------------------------------------------------


def runs(namespace: dict, cell, count: int = 5) -> WatchReport:
    """Run a cell again and again, as a user does who tries things out; returns the last check."""
    reports: list[WatchReport] = []
    for _ in range(count):
        cell()
        reports.append(tm.check(namespace, earlier=reports))
    return reports[-1]


@ill("TM504", severity="warning", subject="features", line="features.append(images * 2)",
     says=("features grows by 1 tensor, 18 MiB, each time this runs: 18 MiB 4 runs ago, 90 MiB now",
           "`features.clear()`"))  # fmt: skip
def features_of_every_run():
    """The list is made in another cell than the one that fills it."""
    features, images = [], torch.zeros(18, MIB)

    def cell():
        features.append(images * 2)

    return runs({"features": features, "images": images}, cell)


@ill("TM504", severity="warning", subject="activations['0']", line="activations[name].append(output)",
     says=("grows by 2 tensors",))  # fmt: skip
def a_hook_that_collects():
    """A forward hook stores what each call gives."""
    net = nn.Sequential(nn.Linear(4, 1024))
    activations = {"0": []}

    def collect(name, output):
        activations[name].append(output)

    net[0].register_forward_hook(lambda _module, _inputs, output: collect("0", output.detach()))

    def cell():
        for _ in range(2):
            net(torch.zeros(2304, 4))

    return runs({"net": net, "activations": activations}, cell)


@ill("TM504", severity="warning", subject="state.memory", says=("state.memory grows by 17 MiB",))
def a_memory_that_is_concatenated():
    """A replay memory without an end."""

    class State:
        memory = None

    state = State()
    state.memory = torch.zeros(1, MIB)

    def cell():
        state.memory = torch.cat([state.memory, torch.zeros(17, MIB)])

    return runs({"state": state}, cell)
