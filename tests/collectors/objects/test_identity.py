"""Names of leaves and modules, and that nobody is kept alive for the sake of a name."""

from __future__ import annotations

import gc
import types
import weakref

import pytest
import torch
from torch import nn

from tensormagic.collectors.objects.identity import Leaves, ModuleNames


class Agent:
    """Holds two modules as attributes, and a secret."""

    def __init__(self):
        self.actor, self.critic = nn.Linear(2, 2), nn.Linear(2, 1)


def named(module, **namespace):
    return ModuleNames(namespace).add_root(module)


def test_the_place_of_a_module_in_the_namespace():
    """By its own name; inside another module, an object, a list, a dictionary; else by its class."""
    net, agent, layers = nn.Sequential(nn.Linear(2, 2)), Agent(), [nn.Linear(2, 2), nn.ReLU()]
    assert named(net, other=1, net=net) == "net"
    assert named(net[0], net=net) == "net.0"
    assert named(agent.critic, agent=agent) == "agent.critic"
    assert named(layers[1], layers=layers) == "layers[1]"
    assert named(net, parts={"encoder": net}) == "parts['encoder']"
    assert named(net, parts=(None, net)) == "parts[1]"
    assert named(net) == "Sequential"


def test_the_first_name_is_preferred():
    """A module that was named before the one it lies in keeps its name; a loop over layers gives none a new one."""
    net = nn.Sequential(nn.Linear(2, 2))
    assert named(net[0], head=net[0], net=net) == "head"
    assert named(net[0], net=net, layer=net[0]) == "net.0"


@pytest.mark.parametrize("hidden", ["_", "_1", "_net"])
def test_underscored_names_do_not_count(hidden):
    """IPython's own history is no name."""
    net = nn.Linear(2, 2)
    assert named(net, **{hidden: net}) == "Linear"


def test_modules_of_python_and_classes_are_not_searched():
    """An imported module with a model in it is not the user's name for it."""
    net = nn.Linear(2, 2)
    imported = types.ModuleType("models")
    imported.net = net
    holder = type("Holder", (), {"net": net})
    assert named(net, models=imported, Holder=holder) == "Linear"


def test_two_of_a_class_have_two_names():
    """As long as both live."""
    names = ModuleNames({})
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    assert [names.add_root(first), names.add_root(second), names.add_root(first)] == ["Linear", "Linear#2", "Linear"]
    assert names.path(second) == "Linear#2"


def test_paths_and_parameters():
    """Children and parameters are known by the path from their root."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1)))
    names = ModuleNames({"net": net})
    leaves = Leaves({"net": net}, names)
    known = leaves.known[leaves.number(net[1][0].bias)]
    assert [names.path(module) for module in (net, net[0], net[1][0])] == ["net", "net.0", "net.1.0"]
    assert (known.name, known.owner) == ("net.1.0.bias", "net")
    assert names.path(nn.ReLU()) == ""
    assert [name for name, _ in names.roots()] == ["net"]


def test_no_module_and_no_tensor_is_kept_alive():
    """Only weak references are held; a dead one has no path, and an address that is used again no false one."""
    namespace = {}
    names = ModuleNames(namespace)
    leaves = Leaves(namespace, names)
    net = nn.Linear(2, 2)
    names.add_root(net)
    leaves.number(net.weight)
    watched = [weakref.ref(net), weakref.ref(net.weight)]
    del net
    gc.collect()
    assert [reference() for reference in watched] == [None, None]
    assert names.roots() == []
    assert leaves.known[0].name == "Linear.weight"


def test_leaves():
    """A parameter by its path, a tensor by its name, else by its shape; two of a shape get two names."""
    net, w = nn.Linear(2, 1), torch.zeros(3, requires_grad=True)
    one, two = torch.zeros(4, 4, requires_grad=True), torch.zeros(4, 4, requires_grad=True)
    namespace = {"net": net, "w": w, "_hidden": one}
    leaves = Leaves(namespace, ModuleNames(namespace))
    numbers = [leaves.number(leaf) for leaf in (net.weight, w, one, two, w)]
    assert [leaves.known[number].name for number in numbers] == [
        "net.weight", "w", "leaf (4, 4)", "leaf (4, 4) #2", "w",
    ]  # fmt: skip
    facts = leaves.known[numbers[0]]
    assert (facts.owner, facts.is_parameter, facts.shape, facts.numel, facts.dtype) == (
        "net",
        True,
        (1, 2),
        2,
        "float32",
    )
    assert not leaves.known[numbers[1]].is_parameter
    assert "net.bias" in [leaf.name for leaf in leaves.known]


def test_a_name_that_a_loop_left_behind():
    """``for p in parameters`` leaves the last one under ``p``; one that has a name before it is listed keeps it."""
    weights, bias = [torch.ones(2, requires_grad=True) for _ in range(3)], torch.ones(1, requires_grad=True)
    named = {"weights": weights, "p": weights[-1], "scale": torch.ones(1, requires_grad=True), "bias": bias}
    named["others"] = [named["scale"], bias]
    leaves = Leaves(named, ModuleNames(named))
    numbers = [leaves.number(x) for x in (*weights, bias)]
    assert [leaves.known[number].name for number in numbers] == ["weights[0]", "weights[1]", "weights[2]", "bias"]


def test_a_tensor_made_anew_under_its_name_is_one_series():
    """A leaf that every step replaces is one line in the chart."""
    namespace = {}
    leaves = Leaves(namespace, ModuleNames(namespace))
    numbers = set()
    for _ in range(3):
        namespace["w"] = torch.zeros(3, requires_grad=True)
        numbers.add(leaves.number(namespace["w"]))
    assert len(numbers) == 1
    assert len(leaves.known) == 1


def test_a_walk_looks_through_the_namespace_once():
    """Thousands of nameless leaves are numbered in one look of each kind, and each has a name of its own."""

    class Counting(dict):
        looks = 0

        def items(self):
            self.looks += 1
            return super().items()

    namespace = Counting(w=torch.zeros(3, requires_grad=True))
    leaves = Leaves(namespace, ModuleNames(namespace))
    tensors = [torch.zeros(3, requires_grad=True) for _ in range(3000)]
    with leaves.one_look():
        numbers = [leaves.number(tensor) for tensor in [*tensors, namespace["w"]]]
    assert namespace.looks == 2  # by name, and once deeper
    assert numbers == list(range(3001))
    names = [leaf.name for leaf in leaves.known]
    assert (names[0], names[1], names[2999], names[3000]) == ("leaf (3,)", "leaf (3,) #2", "leaf (3,) #3000", "w")
