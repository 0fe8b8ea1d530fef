"""A model as a tree: shapes of a forward or of a traced run, parameters, optimizers, memory; nothing is left behind."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

import tensormagic as tm
from tensormagic import views
from tensormagic.collectors.session import model
from tensormagic.errors import TensorMagicError


class Net(nn.Module):
    """A frozen part, two results of one module, a module that runs twice, one that never does."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.memory = nn.LSTM(6, 3, batch_first=True)
        self.idle = nn.Dropout(0.1)
        self.stem.requires_grad_(requires_grad=False)

    def forward(self, x):
        found, _ = self.memory(self.norm(self.norm(self.stem(x)))[:, None])
        return {"scores": found[:, 0]}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def rows(report):
    return {row.path.removeprefix("net").removeprefix("."): row for row in report.rows}


def test_shapes_are_those_that_modules_returned(net):
    """In dictionaries and tuples too; how often each ran, and nothing of one that did not."""
    report = tm.model(lambda: [net(torch.zeros(5, 4))], "net", namespace={"net": net})
    found = rows(report)
    assert report.shapes_from == "forward"
    assert found[""].shapes == ((5, 3),)
    assert found["memory"].shapes == ((5, 1, 3), (1, 5, 3), (1, 5, 3))
    assert (found["norm"].shapes, found["norm"].calls) == (((5, 6),), 2)
    assert (found["idle"].shapes, found["idle"].calls) == ((), 0)


def test_nothing_is_left_on_torch(net):
    """No hook stays, whether the forward ends or fails; the call is the user's own, bit for bit; nothing is kept."""
    x = torch.randn(5, 4)
    torch.manual_seed(1)
    plain = net(x)["scores"]
    net.norm.reset_running_stats()
    torch.manual_seed(1)
    results = []
    tm.model(lambda: results.append(net(x)["scores"]) or net, "net")
    assert torch.equal(results[0], plain)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        tm.model(lambda: net(torch.zeros(5, 9)), "net")
    assert not torch_modules._global_forward_hooks
    assert not torch_modules._global_forward_pre_hooks


def test_nothing_is_kept():
    """Neither the model nor what it made."""
    report, gone = seen_and_gone()
    gc.collect()
    assert report.modules == 1
    assert gone() is None


def seen_and_gone():
    net = nn.Linear(2, 2)
    return tm.model(lambda: net(torch.zeros(1, 2)), "net"), weakref.ref(net)


def test_parameters_memory_and_optimizers(net):
    """Each Parameter once, also where it is tied; frozen ones; what no optimizer holds; the state of Adam."""
    net.tied = nn.Linear(6, 4)
    net.tied.weight = nn.Parameter(torch.zeros(4, 6))
    net.again = nn.Linear(6, 4, bias=False)
    net.again.weight = net.tied.weight
    optimizer = torch.optim.Adam([*net.memory.parameters(), net.tied.weight])
    net.memory(torch.zeros(2, 1, 6))[0].sum().backward()
    optimizer.step()
    report = tm.model(net, namespace={"net": net, "optimizer": optimizer})
    found = rows(report)
    assert found[""].parameters == sum(one.numel() for one in net.parameters())
    assert (found["stem"].parameters, found["stem"].trainable) == (30, 0)
    assert (found["norm"].trainable, found["norm"].optimized) == (12, 0)
    assert (found["tied"].trainable, found["tied"].optimized, found["again"].optimized) == (28, 24, 24)
    ties = {name: (row.shared, row.shared_with) for name, row in found.items() if row.shared}
    assert ties == {"tied": (24, ("net.again",)), "again": (24, ("net.tied",))}
    assert found["memory"].optimizers == report.optimizers == ("optimizer",)
    weights = list(net.memory.parameters())
    assert report.gradient_bytes == sum(one.nbytes for one in weights)
    assert report.state_bytes == sum(2 * one.nbytes + 4 for one in weights)
    assert report.buffer_bytes == sum(one.nbytes for one in net.buffers())
    norm = torch.cat([one.grad.flatten() for one in weights]).norm().item()
    assert found["memory"].gradient == pytest.approx(norm)
    assert found["stem"].gradient is None


def test_what_the_last_traced_run_saw(net):
    """Shapes of what was recorded, the optimizer's moves, gradients that were cleared; not of another model."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    names = {"net": net, "optimizer": optimizer}
    with tm.trace(namespace=names) as trace:
        net(torch.randn(5, 4))["scores"].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    report = tm.model(net, trace=trace, namespace=names)
    found = rows(report)
    assert report.shapes_from == "trace"
    assert found["norm"].shapes == ((5, 6),)
    assert found[""].shapes == ((5, 3),)
    moved = {series.name: series for series in trace.report.parameters}
    assert found["norm"].gradient == pytest.approx(
        (moved["net.norm.weight"].norms[-1] ** 2 + moved["net.norm.bias"].norms[-1] ** 2) ** 0.5
    )
    assert found["memory"].update == max(
        series.updates[-1] for name, series in moved.items() if name.startswith("net.memory.")
    )
    other = tm.model(Net(), "net", trace=trace, namespace=names)
    assert (other.shapes_from, rows(other)["norm"].gradient, rows(other)["memory"].update) == ("", None, None)


def test_what_modules_lack_is_found_too():
    """The findings of `tm.check` about modules stand above the tree."""

    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]

    assert [one.code for one in tm.model(Listed(), "net").findings] == ["TM605"]


def test_a_large_model_ends_at_a_depth(monkeypatch):
    """Whole levels are left out, never a part of one, and the report says so."""
    monkeypatch.setattr(model, "MOST_ROWS", 5)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(1, 1), nn.ReLU()) for _ in range(3)))
    report = tm.model(net, "net")
    assert [row.path for row in report.rows] == ["net", "net.0", "net.1", "net.2"]
    assert report.rows[0].parameters == 6
    assert [gap.reason for gap in report.gaps] == ["6 of 10 are deeper than 1 levels"]


def test_code_of_the_persons_is_not_run():
    """Neither properties nor ``extra_repr`` of their classes, nor what a class of tensors answers."""

    class Asked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_):
            raise AssertionError

    class Loud(nn.Linear):
        def extra_repr(self):
            raise AssertionError

        @property
        def trap(self):
            raise AssertionError

    net = nn.Sequential(Loud(1, 1), nn.LazyLinear(3))
    net.register_buffer("mine", torch.ones(3).as_subclass(Asked))
    report = tm.model(net, "net")
    assert [row.details for row in report.rows] == ["", "", "in_features=0, out_features=3, bias=True"]
    assert report.rows[2].parameters == 0
    assert report.buffer_bytes == 12


def test_the_meta_device_holds_nothing():
    """What its parameters would take is counted apart from what is in memory."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, device="meta"))
    report = tm.model(net, "net")
    assert (report.parameter_bytes, report.buffer_bytes, report.meta_bytes) == (24, 0, 2 * 8 + 2 * 8 + 8)
    assert [row.nbytes for row in report.rows] == [24, 24, 0]


def test_a_part_of_a_model_has_the_name_that_torch_gives_it():
    """Also where it was reached by an index, so that what a trace saw of its parameters is found."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert [tm.model(net[0], name, namespace={}).model for name in ("net[0]", "net.0", "f(x)[0]")] == [
        "net.0", "net.0", "net",
    ]  # fmt: skip


def test_parameters_that_are_not_made_yet():
    """A lazy module has none until it runs; it is not one without parameters."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.LazyLinear(3), nn.ReLU()), nn.LazyBatchNorm1d())
    unmade = [row.unmade for row in tm.model(net, "net").rows]
    assert unmade == [6, 0, 2, 2, 0, 4]
    text = views.render(tm.model(net, "net"), "txt")
    assert "parameters, more not made yet" in text
    assert "made by the first forward: parameters of net.1.0 and net.2" in text
    net(torch.ones(2, 2))
    assert [row.unmade for row in tm.model(net, "net").rows] == [0] * 6


@pytest.mark.parametrize("given", [3, None, torch.zeros(2), lambda: torch.zeros(2)])
def test_what_is_no_model(given):
    """Says what it is, and what to give."""
    with pytest.raises(TensorMagicError, match=r"it is .* and calls no model: give a model, or a call of one such as"):
        tm.model(given, "it")
