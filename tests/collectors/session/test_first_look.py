"""A look before training: what it finds, and that nothing of the user's is another afterwards."""

from __future__ import annotations

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import tensormagic as tm
from tensormagic.collectors.session import first_look
from tensormagic.errors import TensorMagicError
from tensormagic.reports import DeviceMemory

TOO_LARGE = "nothing was run: copies would take 0.0 GiB of 0.0 GiB that are free"


@pytest.fixture(autouse=True)
def as_long_as_it_takes(monkeypatch):
    """A busy machine makes fewer steps in a few seconds."""
    monkeypatch.setattr(first_look, "SECONDS", 120.0)


def net_of(*layers):
    """Return a classifier of 8 features with dropout and a normalisation, or one of other layers."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(layers or (nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)))
    )


def data(size=32, classes=3):
    return TensorDataset(torch.randn(size, 8), torch.arange(size) % classes)


def states(report):
    """Return the state of each question."""
    return {probe.question: probe.state for probe in report.probes}


def test_a_training_that_is_ready():
    """Every question is asked, and fine."""
    net = net_of()
    report = tm.check(net, torch.optim.Adam(net.parameters()), DataLoader(data(), batch_size=16, shuffle=True))
    asked = ("mode", "optimizer", "inputs", "targets", "samples", "initial loss", "gradients", "step", "overfits")
    assert states(report) == dict.fromkeys(asked, "fine")
    assert (report.model, report.loss, report.gaps, report.findings) == ("net", "cross_entropy", (), ())
    assert report.overfit.steps == 50
    assert "Ready" in str(report)


def test_an_optimizer_that_asks_for_a_closure_makes_its_step_too():
    """LBFGS: the loss before and after one step, from the same random numbers."""
    net = net_of(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    report = tm.check(net, torch.optim.LBFGS(net.parameters()), DataLoader(data(), batch_size=16))
    assert states(report)["step"] == "fine"
    before, after = report.step
    assert after < before == pytest.approx(report.value)


@pytest.mark.parametrize(
    ("last", "loss", "state"),
    [(None, nn.CrossEntropyLoss(), "fine"), (nn.Softmax(1), nn.CrossEntropyLoss(), "look"),
     (nn.LogSoftmax(1), nn.CrossEntropyLoss(), "fine"), (nn.LogSoftmax(1), nn.NLLLoss(), "fine"),
     (None, nn.NLLLoss(), "look"), (nn.Softmax(1), F.nll_loss, "look"), (nn.Softmax(1), F.cross_entropy, "look"),
     (nn.Sigmoid(), lambda p, y: F.binary_cross_entropy(p, F.one_hot(y, 3).float()), "fine")],
)  # fmt: skip
def test_a_loss_that_does_not_fit_what_the_model_ends_with(last, loss, state):
    """Softmax before a loss that applies it; scores for one that takes logarithms, by which it falls below zero."""
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), *([last] if last else []))
    assert states(tm.check(net, DataLoader(data(), batch_size=16), loss))["initial loss"] == state


def cross_entropy(probabilities, classes):
    """As textbooks write it, for a model that ends with a softmax."""
    return -probabilities.gather(1, classes[:, None]).log().mean()


def nll(mean, y):
    """Of a normal distribution: a density may be more than 1, and its loss less than 0."""
    return (50 * (mean - y).square() - math.log(4)).mean()


def test_a_loss_of_one_s_own_may_be_called_as_torch_s_is():
    """Nothing is known of what it applies, or takes."""
    probabilities = nn.Sequential(nn.Linear(8, 3), nn.Softmax(1))
    assert states(tm.check(probabilities, DataLoader(data(), batch_size=16), cross_entropy))["initial loss"] == "fine"
    mean = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    report = tm.check(mean, (torch.randn(16, 8), torch.zeros(16)), nll)
    assert report.overfit.last < 0
    assert states(report)["initial loss"] == "fine"


class Drawing(TensorDataset):
    """Adds noise of every library."""

    def __getitem__(self, at):
        x, y = super().__getitem__(at)
        return x + torch.randn(8) + np.random.rand() + random.random(), y  # noqa: NPY002


def everything(net, optimizer, loader):
    """Return all that a check could have changed."""
    generators = (torch.get_rng_state(), loader.generator.get_state(), *np.random.get_state()[1:3], random.getstate())  # noqa: NPY002
    gradients = [None if one.grad is None else one.grad.clone() for one in net.parameters()]
    state = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    return [*map(repr, generators), repr(gradients), repr(state), [one.training for one in net.modules()],
            [one.data_ptr() for one in net.parameters()], [one.requires_grad for one in net.parameters()]]  # fmt: skip


@pytest.mark.parametrize("trained", [False, True])
def test_nothing_is_changed(trained):
    """Weights, buffers, gradients, optimizer, modes, generators and hooks are as before."""
    torch.set_printoptions(profile="full")
    net, calls = net_of(), []
    net[0].register_forward_hook(lambda *_: calls.append(1))
    optimizer = torch.optim.Adam(net.parameters())
    loader = DataLoader(Drawing(*data().tensors), 8, shuffle=True, generator=torch.Generator().manual_seed(3))
    if trained:
        net(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        net[1].eval()
    before, called = everything(net, optimizer, loader), len(calls)
    try:
        tm.check(net, optimizer, loader, nn.CrossEntropyLoss())
        assert everything(net, optimizer, loader) == before
    finally:
        torch.set_printoptions(profile="default")
    assert len(calls) == called
    first = [x.sum().item() for x, _ in loader]
    loader.generator.manual_seed(3)
    assert [x.sum().item() for x, _ in loader] != first  # the data set draws anew
    assert torch.is_grad_enabled()


def test_the_loader_gives_the_same_batches_as_without_a_check():
    """Its generator and the global one are put back, and no worker is started."""
    seen = []
    for checked in (False, True):
        torch.manual_seed(7)
        loader = DataLoader(data(), 8, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(1))
        net = net_of()
        torch.manual_seed(5)
        if checked:
            tm.check(net, loader)
            assert loader._iterator is None
        plain = DataLoader(loader.dataset, sampler=loader.sampler, batch_size=8)
        seen.append([x.tolist() for x, _ in plain])
    assert seen[0] == seen[1]


def test_what_an_optimizer_lacks():
    """Names as a user writes them; what belongs to another model is told as such."""
    net, other = net_of(), net_of()
    report = tm.check(net, torch.optim.SGD(net[0].parameters(), lr=0.1))
    assert report.missing == ("1.weight", "1.bias", "4.weight", "4.bias")
    assert states(report)["optimizer"] == "look"
    report = tm.check(net, torch.optim.SGD(other.parameters(), lr=0.1))
    assert states(report)["optimizer"] == "wrong"
    assert "none of net" in next(probe.answer for probe in report.probes if probe.question == "optimizer")


@pytest.mark.parametrize(
    ("change", "question"),
    [(lambda net: net.eval(), "mode"), (lambda net: net[1].eval(), "mode")],
    ids=["all", "a normalisation"],
)
def test_modes(change, question):
    """The whole model in eval mode, or a part of it."""
    net = net_of()
    change(net)
    assert states(tm.check(net))[question] == "look"


@pytest.mark.parametrize(
    ("x", "y", "question", "state"),
    [(torch.randn(16, 8) * 900, torch.arange(16) % 3, "inputs", "look"),
     (torch.full((16, 8), torch.nan), torch.arange(16) % 3, "inputs", "wrong"),
     (torch.ones(16, 8), torch.arange(16) % 3, "inputs", "look"),
     (torch.randn(16, 8), torch.arange(16) % 3 + 1, "targets", "wrong"),
     (torch.randn(16, 8), torch.zeros(16, dtype=torch.long), "targets", "look"),
     (torch.randn(16, 9), torch.arange(16) % 3, "forward", "wrong")],
    ids=["raw", "nan", "constant", "classes from 1", "one class", "width"],
)  # fmt: skip
def test_batches(x, y, question, state):
    """Scale, NaN, classes, shapes."""
    assert states(tm.check(net_of(), (x, y)))[question] == state


@pytest.mark.parametrize(
    ("last", "targets", "loss"),
    [(nn.Sigmoid(), torch.arange(16.0) % 2, "binary_cross_entropy"),
     (nn.Identity(), torch.arange(16.0) % 2, "binary_cross_entropy_with_logits"),
     (nn.LogSoftmax(1), torch.arange(16) % 2, "nll_loss"),
     (nn.Identity(), torch.arange(16) % 2, "cross_entropy")],
)  # fmt: skip
def test_the_usual_loss_fits_what_made_the_outputs(last, targets, loss):
    """Probabilities, logarithms of them, or scores; a loss that takes equal shapes is not said to broadcast."""
    outputs = 1 if targets.is_floating_point() else 2
    report = tm.check(net_of(nn.Linear(8, outputs), last, nn.Flatten(1)), (torch.randn(16, 8), targets))
    assert report.loss == loss
    assert states(report)["overfits"] == "fine"
    if outputs == 1:
        (probe,) = (probe for probe in report.probes if probe.question == "targets")
        assert probe.answer.endswith(f"against outputs of (16, 1): {loss} takes equal shapes only")
        assert probe.remedy == "Give both one shape: `y.unsqueeze(-1)`"


def test_shapes_that_no_view_makes_one():
    """The remedy has no code that would raise."""
    report = tm.check(net_of(nn.Linear(8, 3)), (torch.randn(16, 8), torch.randn(16, 2)), F.mse_loss)
    (probe,) = (probe for probe in report.probes if probe.question == "targets")
    assert probe.remedy == "Give both one shape"


def test_samples_that_mix():
    """A softmax over the batch."""
    net = net_of(nn.Linear(8, 3), nn.Softmax(dim=0))
    assert states(tm.check(net, (torch.randn(16, 8), torch.arange(16) % 3)))["samples"] == "look"


class Gated(nn.Module):
    """Leaves a layer out, and scales its output up."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.body, self.gate, self.scale = nn.Linear(8, 3), nn.Linear(8, 3), scale

    def forward(self, x):
        return self.body(x) * self.scale


class Recurrent(nn.Module):
    """Classifies sequences of 8 features by what an LSTM has read last, or each step of them."""

    def __init__(self, *, batch_first=False, each=False):
        super().__init__()
        self.lstm, self.head, self.each = nn.LSTM(8, 16, batch_first=batch_first), nn.Linear(16, 3), each

    def forward(self, x):
        read = self.lstm(x)[0]
        return self.head(read).transpose(1, 2) if self.each else self.head(read[:, -1])


@pytest.mark.parametrize(
    ("settings", "targets", "state"),
    [({"batch_first": True}, torch.arange(16) % 3, "fine"), ({}, torch.arange(16) % 3, "look"),
     ({"each": True}, torch.zeros(16, 5, dtype=torch.long), "fine")],
)  # fmt: skip
def test_a_recurrence_over_the_batch_is_found(settings, targets, state):
    """The first sample knows no other one, the last knows them all; time may come first where each step has a class."""
    report = tm.check(Recurrent(**settings), (torch.randn(16, 5, 8), targets))
    assert states(report)["samples"] == state


def test_a_second_model_is_no_loss():
    """A critic has weights and takes one input; a loss with weights takes two."""
    generator, critic = net_of(nn.Linear(8, 3)), net_of(nn.Linear(3, 1))
    with pytest.raises(TensorMagicError, match="Sequential is none of these, or one more"):
        tm.check(generator, critic)
    with pytest.raises(TensorMagicError, match="Recurrent is none of these, or one more"):
        tm.check(generator, Recurrent())


class Weighed(nn.Module):
    """A loss that learns a weight, and hands on what it is given."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, *given):
        return self.weight * F.cross_entropy(*given)


def test_a_loss_with_a_weight_is_no_second_model():
    """It takes what it is given, however it names that."""
    assert tm.check(net_of(nn.Linear(8, 3)), DataLoader(data(), batch_size=16), Weighed()).loss == "Weighed"


def test_a_gradient_that_does_not_arrive_and_a_loss_that_is_too_high():
    """Named, and compared with log(classes)."""
    report = tm.check(Gated(80.0), (torch.randn(16, 8), torch.arange(16) % 3))
    assert states(report)["gradients"] == states(report)["initial loss"] == "look"
    assert report.without_gradient == ("gate.weight", "gate.bias")
    assert report.expected == pytest.approx(1.0986, abs=1e-3)


def test_a_model_that_cannot_learn():
    """Its result does not depend on its input."""
    net = net_of(nn.Linear(8, 3), nn.Hardtanh(0.0, 1e-4))
    assert states(tm.check(net, (torch.randn(16, 8), torch.arange(16) % 3)))["overfits"] == "look"


def test_what_hangs_on_the_modules_is_found_too():
    """Findings about the modules stand beside the questions."""
    net = net_of(*[nn.Linear(8, 8)] * 3)
    net[0].requires_grad = False
    assert [found.code for found in tm.check(net).findings] == ["TM614", "TM615"]


class Stream(IterableDataset):
    """Begins anew each time, or is its own iterator."""

    def __init__(self, *, once):
        self._once, self._left = once, 64

    def __iter__(self):
        return self if self._once else iter([(torch.randn(8), torch.tensor(1))] * 32)

    def __next__(self):
        self._left -= 1
        return torch.randn(8), torch.tensor(1)


def test_sources_of_batches():
    """A stream that begins anew is asked; an iterator is left alone, and said to be."""
    assert tm.check(net_of(), DataLoader(Stream(once=False), 8)).inputs[0].shape == (8, 8)
    stream, batches = Stream(once=True), iter([(torch.randn(4, 8), torch.arange(4) % 3)])
    for source in (DataLoader(stream, 8), batches):
        report = tm.check(net_of(), source)
        assert "would be missing in training" in report.gaps[0].reason
    assert stream._left == 64
    assert next(batches)[0].shape == (4, 8)


def test_a_model_that_is_given_a_dictionary_and_returns_its_loss():
    """As Transformers' models do."""

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, x, labels):
            logits = self.head(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    report = tm.check(Named(), [{"x": torch.randn(16, 8), "labels": torch.arange(16) % 3}])
    assert report.loss == "the model's loss"
    assert states(report)["overfits"] == "fine"


def test_what_cannot_be_checked():
    """Bad input is named."""
    net = net_of()
    with pytest.raises(TensorMagicError, match="takes the model"):
        tm.check(torch.optim.SGD(net.parameters(), lr=0.1), [])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(TensorMagicError, match=r"a torch\.optim\.SGD is none of these, or one more"):
        tm.check(net, optimizer, optimizer)
    with pytest.raises(
        TensorMagicError, match=r"a torch\.Tensor is none of these.*; a batch is one part: \(inputs, targets\)$"
    ):
        tm.check(net, torch.ones(3, 4), torch.ones(3))
    with pytest.raises(TensorMagicError, match="names and their values"):
        tm.check(3)


@pytest.mark.parametrize("index", [-1, 10])
def test_an_index_without_a_row_never_reaches_the_table(index, monkeypatch):
    """On a GPU it would end the process's use of it."""
    monkeypatch.setattr(torch, "embedding", pytest.fail)
    words = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2))
    report = tm.check(words, (torch.full((8, 3), index), torch.arange(8) % 2))
    assert report.error == f"IndexError: the embedding 0 has no row {index}: its rows are 0 to 9"
    assert states(report)["forward"] == "wrong"
    assert not words[0]._forward_pre_hooks


class Folded(nn.Embedding):
    """A table that folds its indices into its rows."""

    def forward(self, indices):
        return super().forward(indices % self.num_embeddings)


def ragged(table, x):
    rows = torch.nested.nested_tensor([row[: at % 3 + 1] for at, row in enumerate(x)], layout=torch.jagged)
    return torch.stack([row.sum(0) for row in table(rows).unbind()])


class Looked(nn.Module):
    """A table, asked by some function, and a head."""

    def __init__(self, table, ask):
        super().__init__()
        self.table, self.ask, self.head = table, ask, nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.ask(self.table, x))


@pytest.mark.parametrize(
    ("table", "ask", "most"),
    [
        (Folded(10, 4), lambda table, x: table(x).sum(1), 1000),
        (nn.Embedding(10, 4), lambda table, x: torch.vmap(table)(x).sum(1), 10),
        (nn.Embedding(10, 4), lambda table, x: table(x[:, :0]).sum(1), 10),
        (nn.Embedding(10, 4), ragged, 10),
    ],
)
def test_an_index_that_a_table_understands_is_asked_for(table, ask, most):
    """A class of the user's may map its indices; they may be none, of a batch that vmap hides, or of many lengths."""
    report = tm.check(Looked(table, ask), (torch.randint(0, most, (8, 3)), torch.arange(8) % 2))
    assert report.error == ""


@pytest.mark.parametrize("ask", [lambda table, x: torch.vmap(table)(x).sum(1), ragged])
def test_an_index_without_a_row_is_found_in_what_is_wrapped(ask):
    report = tm.check(Looked(nn.Embedding(10, 4), ask), (torch.full((8, 3), 12), torch.arange(8) % 2))
    assert report.error == "IndexError: the embedding table has no row 12: its rows are 0 to 9"


@pytest.mark.parametrize(("free", "runs"), [(10, False), (2**40, True), (None, True)])
def test_what_would_not_fit_is_not_copied(monkeypatch, free, runs):
    """Where too little memory is left for copies nothing is run; where nobody says how much, it is tried."""
    monkeypatch.setattr(first_look, "read_devices", lambda: ([DeviceMemory("cpu", free=free)], []))
    report = tm.check(net_of(), torch.utils.data.DataLoader(data(), batch_size=16))
    gaps = [gap.reason for gap in report.gaps]
    assert (report.outputs is not None, gaps) == (runs, [] if runs else [TOO_LARGE])
    assert report.inputs[0].shape == (16, 8)


def test_a_graph_that_must_not_break_does_not():
    """What looks at the indices is no part of a graph that torch compiles."""
    net = torch.compile(
        nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2)), backend="eager", fullgraph=True
    )
    assert tm.check(net, (torch.full((8, 3), 3), torch.arange(8) % 2)).error == ""
