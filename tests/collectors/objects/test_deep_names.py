"""Leaves that no plain name reaches are called as the user reaches them, from where backward was called."""

from __future__ import annotations

import gc
import threading
import weakref

import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.objects import referents
from tensormagic.collectors.objects.identity import Leaves, ModuleNames


def leaf(*shape):
    """A plain tensor that needs a gradient."""
    return torch.ones(*shape, requires_grad=True)


class Model:
    """Weights in plain attributes of a plain object."""

    def __init__(self):
        self.w, self.layers, self.table = leaf(2, 2), [leaf(2, 2)], {"a": leaf(2)}

    def loss(self):
        return (self.w @ self.layers[0] * self.table["a"]).sum()


def names_of(report):
    return [series.name for series in report.parameters]


def test_attributes_and_items():
    """An attribute, an item of a list and of a dictionary are called by the way to them."""
    model = Model()
    with tm.trace(namespace={"model": model}) as trace:
        model.loss().backward()
    assert sorted(names_of(trace.report)) == ["model.layers[0]", "model.table['a']", "model.w"]


def test_a_plain_attribute_of_a_module():
    """It is called like the parameters beside it."""
    net = nn.Linear(2, 2)
    net.scale = leaf(2)
    with tm.trace(namespace={"net": net}) as trace:
        (net(torch.ones(1, 2)) * net.scale).sum().backward()
    assert set(names_of(trace.report)) == {"net.weight", "net.bias", "net.scale"}


def test_the_variables_of_functions_that_are_running():
    """What a function made has its name there; the names of the user's own are not taken from them."""
    shift = leaf(2)

    def train():
        shift, model = leaf(2), Model()
        (model.loss() * shift + mine).sum().backward()

    mine = shift
    with tm.trace(namespace={"shift": shift}) as trace:
        train()
    assert {"shift", "train.<locals>.shift", "model.w"} <= set(names_of(trace.report))


def test_one_series_for_what_a_function_makes_anew():
    """A perturbation that every call makes anew is one line over the steps, also beyond the bounded looks."""

    def attack():
        delta = leaf(2)
        (delta * 3).sum().backward()

    with tm.trace(namespace={}) as trace:
        for _ in range(referents.WHOLE_LOOKS + 4):
            attack()
    (series,) = trace.report.parameters
    assert (series.name, series.touched) == ("delta", referents.WHOLE_LOOKS + 4)


def test_one_series_for_an_attribute_that_is_made_anew():
    """What led to a leaf before is looked through in every walk, also when the looks through everything are used up."""
    model, steps = Model(), referents.WHOLE_LOOKS + 4
    with tm.trace(namespace={"other": [], "model": model}) as trace:
        for _ in range(steps):
            model.w = leaf(2, 2)
            (model.w * 2).sum().backward()
    assert [(series.name, series.touched) for series in trace.report.parameters] == [("model.w", steps)]


def test_the_looks_are_bounded(monkeypatch):
    """Leaves that nothing leads to make the tracer look through everything a few times, and not in every walk."""
    looks, look = [], referents.DeepNames._look

    def counted(self, *, whole):
        looks.append(whole)
        return look(self, whole=whole)

    monkeypatch.setattr(referents.DeepNames, "_look", counted)
    leaves = Leaves({}, ModuleNames({}))
    for _ in range(40):
        leaves.number(leaf(3))
    assert sum(looks) == referents.WHOLE_LOOKS / 4


def test_nothing_is_kept():
    """Neither the leaf nor the frame that was looked at outlives the walk."""
    namespace = {"model": Model()}
    leaves = Leaves(namespace, ModuleNames(namespace))
    assert leaves.known[leaves.number(namespace["model"].w)].name == "model.w"
    watched = weakref.ref(namespace.pop("model"))
    gc.collect()
    assert watched() is None


def test_a_graph_that_stands():
    """%gradgraph knows the same names."""
    model = Model()
    report = tm.gradgraph(model.loss(), namespace={"model": model})
    assert {"model.w", "model.layers[0]"} <= {node.variable for node in report.nodes}


def test_nets_of_several_threads_are_told_apart():
    """Functions that run at the same time may have the same names for different weights: these are numbered."""
    together = threading.Barrier(3)

    def train():
        net = leaf(2)
        together.wait()
        (net * 3).sum().backward()
        together.wait()

    with tm.trace(namespace={}) as trace:
        threads = [threading.Thread(target=train) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(names_of(trace.report)) == ["net", "net #2", "net #3"]
