"""What a check puts back, how it calls models and losses of all kinds, and what it says where nothing can train."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

import tensormagic as tm
from tensormagic.collectors.session import first_look
from tensormagic.errors import TensorMagicError


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(first_look, "STEPS", 3)


def batch(size=16):
    torch.manual_seed(0)
    return torch.randn(size, 8), torch.arange(size) % 3


def said(report, question):
    """Return state, answer and remedy of one question."""
    return next(((one.state, one.answer, one.remedy) for one in report.probes if one.question == question), None)


class Net(nn.Module):
    """Ends with what it is given, and may cut its first layer off."""

    def __init__(self, end=lambda x: x, between=lambda x: x):
        super().__init__()
        self.body, self.head, self.end, self.between = nn.Linear(8, 8), nn.Linear(8, 3), end, between

    def forward(self, x):
        return self.end(self.head(self.between(self.body(x))))


@pytest.mark.parametrize(
    ("end", "loss", "answer"),
    [(torch.Tensor.detach, nn.CrossEntropyLoss(), "CrossEntropyLoss has no gradient: the outputs of net have none"),
     (lambda x: x, lambda x, y: F.cross_entropy(x.detach(), y), "lambda has no gradient, although the outputs have"),
     (lambda x: x, lambda x, y: F.cross_entropy(x, y).item(), "lambda gives no tensor")],
)  # fmt: skip
def test_a_loss_without_gradient_is_not_blamed_on_the_targets(end, loss, answer):
    """It is said what has none, and the headline says that nothing could be tried."""
    net = Net(end)
    report = tm.check(net, torch.optim.SGD(net.parameters(), lr=0.1), batch(), loss)
    assert said(report, "loss")[0] == "wrong"
    assert said(report, "loss")[1].startswith(answer)
    assert said(report, "targets")[0] == "fine"
    assert "Training could not be tried: loss" in str(report)
    assert "Ready" not in str(report)


def test_all_frozen_and_a_loss_of_many_numbers():
    frozen = Net().requires_grad_(False)
    assert said(tm.check(frozen, batch()), "loss")[1] == "cross_entropy has no gradient: no parameter requires one"
    report = tm.check(Net(), batch(), nn.CrossEntropyLoss(reduction="none"))
    assert said(report, "loss")[0] == "look"
    assert report.overfit is not None


def test_gradients_are_on_for_a_check():
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert "Ready" in str(tm.check(Net(), batch()))


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss, nn.MSELoss, nn.BCEWithLogitsLoss])
def test_a_sum_is_expected_of_a_sum(loss):
    x, y = batch()
    y = y if loss is nn.CrossEntropyLoss else F.one_hot(y, 3).float()
    one, every = (tm.check(Net(), (x, y), loss(reduction=how)).expected for how in ("mean", "sum"))
    assert every == pytest.approx(one * (16 if loss is nn.CrossEntropyLoss else 48), rel=1e-5)


@pytest.mark.parametrize("cut", [torch.Tensor.detach, torch.zeros_like])
def test_a_gradient_that_forward_ends(cut):
    state, answer, remedy = said(tm.check(Net(between=cut), batch()), "gradients")
    assert state == "look"
    assert answer == "none reach net.body.weight and net.body.bias, although forward calls what holds them"
    assert "`detach()`" in remedy


@pytest.mark.parametrize(
    ("y", "loss", "remedy"),
    [(torch.arange(16.0) % 3, nn.CrossEntropyLoss(), "`y.long()`"),
     (F.one_hot(torch.arange(16) % 3).float() + 1, nn.BCEWithLogitsLoss(), "`y - 1`"),
     (torch.full((16, 3), 4.0), nn.MSELoss(), "Look at the targets of other batches")],
)  # fmt: skip
def test_targets_that_the_loss_does_not_take(y, loss, remedy):
    assert said(tm.check(Net(), (batch()[0], y), loss), "targets")[2] == remedy


def test_one_class_of_a_loader_that_shuffles():
    loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.zeros(32, dtype=torch.long)), 8, shuffle=True)
    assert "shuffle" not in said(tm.check(Net(), loader), "targets")[2]


@pytest.mark.parametrize(
    ("make", "state", "words"),
    [(partial(torch.optim.SGD, lr=0.1), "fine", ""), (partial(torch.optim.SGD, lr=0.0), "look", "lr is 0"),
     (partial(torch.optim.Adam, lr=1e-12), "look", "takes the loss"),
     (partial(torch.optim.SGD, lr=1e4), "look", "lr is 10"),
     (partial(torch.optim.SGD, lr=0.1, weight_decay=10.0), "look", "weight_decay is 10"),
     (partial(torch.optim.AdamW, lr=1e-3, weight_decay=1.0), "fine", ""),
     (partial(torch.optim.SGD, lr=0.1, maximize=True), "look", "takes the loss")],
)  # fmt: skip
def test_one_step_with_the_settings_of_the_optimizer(make, state, words):
    net = Net()
    found = said(tm.check(net, make(net.parameters()), batch()), "step")
    assert found[0] == state
    assert words in found[1]


def test_a_rate_of_zero_that_a_scheduler_raises():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    assert optimizer.param_groups[0]["lr"] == 0
    assert said(tm.check(net, optimizer, batch()), "step")[0] == "fine"


class Counting(nn.Module):
    """A loss with a weight, a buffer and a count."""

    def __init__(self):
        super().__init__()
        self.weight, self.calls = nn.Parameter(torch.ones(())), 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, y):
        self.seen += 1
        self.calls += 1
        return self.weight * F.cross_entropy(x, y)


def test_what_a_loss_holds_or_closes_over_is_as_before():
    """A module of its own, a discriminator, and a hook on every module."""
    loss, judge, calls = Counting(), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)), []
    judge[1].weight.grad = torch.ones(1, 3)
    hook = nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
    try:
        tm.check(Net(), batch(), loss)
        tm.check(Net(), batch(), lambda x, _: F.softplus(-judge(x)).mean())
    finally:
        hook.remove()
    assert (loss.calls, loss.seen.item(), loss.weight.grad, calls) == (0, 0, None, [])
    assert int(judge[0].num_batches_tracked) == 0
    assert judge[1].weight.grad.tolist() == [[1.0, 1.0, 1.0]]
    assert judge[1].bias.grad is None


class Noisy(Dataset):
    """Draws from generators of its own, and counts."""

    def __init__(self):
        self.arrays, self.tensors, self.asked = np.random.default_rng(0), torch.Generator().manual_seed(0), 0

    def __len__(self):
        return 16

    def __getitem__(self, at):
        self.asked += 1
        return torch.randn(8, generator=self.tensors) + float(self.arrays.normal()), at % 3


class Shuffled(Sampler):
    """Shuffles with a generator of its own, and counts epochs."""

    def __init__(self):
        self.python, self.epoch = random.Random(3), 0

    def __iter__(self):
        self.epoch += 1
        return iter(self.python.sample(range(16), 16))


def test_generators_of_a_dataset_and_a_sampler_are_put_back():
    first = []
    for checked in (False, True):
        loader = DataLoader(Noisy(), 4, sampler=Shuffled())
        if checked:
            tm.check(Net(), loader)
            assert (loader.dataset.asked, loader.sampler.epoch) == (0, 0)
        first.append([x.tolist() for x in next(iter(loader))])
    assert first[0] == first[1]


class Stream(IterableDataset):
    """Advances what it holds."""

    def __init__(self):
        self.items = iter(range(32))

    def __iter__(self):
        return ((torch.randn(8), item % 3) for item in self.items)


class Broken(Dataset):
    """Has no item."""

    def __len__(self):
        return 4

    def __getitem__(self, at):
        raise KeyError(at)


@pytest.mark.parametrize(
    ("source", "words"),
    [(DataLoader(Stream(), 8), "its dataset holds an iterator, items"), (DataLoader(Broken(), 2), "KeyError"),
     ([], "it is empty"), (DataLoader(Noisy(), 32, drop_last=True), "the loader is empty, of 16 samples")],
    ids=["stream", "raises", "nothing", "too few"],
)  # fmt: skip
def test_a_source_that_gives_no_batch_is_in_the_headline(source, words):
    report = tm.check(Net(), source)
    assert words in report.gaps[0].reason
    assert "Training could not be tried" in str(report)
    if isinstance(getattr(source, "dataset", None), Stream):
        assert len(list(source.dataset.items)) == 32


def pairs(net, given):
    return F.mse_loss(net(given[0]), net(given[1]))


class Two(Net):
    """Takes two, and returns two."""

    def forward(self, a, b):
        return super().forward(a), super().forward(b)


@pytest.mark.parametrize(
    ("net", "given", "loss"),
    [(Two(), (torch.randn(8, 8), torch.randn(8, 8)), lambda out: F.mse_loss(*out)),
     (Two(), ({"a": torch.randn(8, 8), "b": torch.randn(8, 8)}, torch.arange(8) % 3), nn.CrossEntropyLoss()),
     (Net(), {"image": torch.randn(8, 8), "label": torch.arange(8) % 3}, None),
     (Net(), [torch.randn(8, 8), torch.arange(8) % 3, torch.arange(8)], None),
     (Net(lambda x: (x, x.square())), batch(), lambda out, y: F.cross_entropy(out[0], y) + out[1].mean()),
     (Net(), (torch.randn(8, 8), torch.randn(8, 8), torch.zeros(8)), pairs),
     (Net(torch.mean), torch.randn(8, 8), None),
     (nn.Sequential(nn.LazyLinear(3)), batch(), None),
     (nn.EmbeddingBag(9, 3, sparse=True), (torch.randint(0, 9, (8, 4)), torch.arange(8) % 3), None)],
)  # fmt: skip
def test_models_and_losses_are_called_as_they_take_it(net, given, loss):
    kind = torch.optim.SparseAdam if isinstance(net, nn.EmbeddingBag) else torch.optim.SGD
    report = tm.check(net, kind(net.parameters(), lr=0.01), given, *([loss] if loss else []))
    assert report.error == ""
    assert report.overfit is not None


def test_a_model_that_check_cannot_call_is_not_called_wrong():
    report = tm.check(Two(), batch()[0])
    assert said(report, "forward")[0] == "unknown"
    assert "lambda model, batch" in said(report, "forward")[2]


def test_raw_inputs_before_a_normalisation_are_fine():
    x, y = batch()
    assert said(tm.check(nn.Sequential(nn.BatchNorm1d(8), Net()), (x * 900, y)), "inputs")[0] == "fine"
    assert said(tm.check(Net(), (x * 900, y)), "inputs")[0] == "look"


@pytest.mark.parametrize(
    ("part", "words"),
    [(nn.CrossEntropyLoss, "is a class"), (torch.optim.Adam, "is a class"), ("loader", "is a string"),
     (nn.Linear(2, 2).parameters(), "gives parameters"), (TensorDataset(torch.ones(2)), "gives samples"),
     ([torch.optim.SGD([torch.ones(1)], lr=0.1)], "in a list")],
)  # fmt: skip
def test_what_is_given_in_place_of_something_near(part, words):
    with pytest.raises(TensorMagicError, match=words):
        tm.check(Net(), part)


def test_parts_have_no_names():
    with pytest.raises(TensorMagicError, match=r"without names, in any order: check\(net, loader\)"):
        tm.check(net=Net(), loader=[])
