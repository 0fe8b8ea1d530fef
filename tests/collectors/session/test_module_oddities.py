"""What modules hold beside their registries: every kind of hiding place, and nothing of torch's own modules."""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.testing._internal.common_modules import module_db

from tensormagic.collectors.session.unregistered import TiedWeights, modules_report
from tensormagic.collectors.training.habits import ModuleWatch
from tensormagic.collectors.where.source import SourceLines


class Bare(nn.Module):
    """A module of somebody's own; what it holds is put there from outside."""


def look_at(roots, namespace):
    """Return what modules hold, whose ties nobody has seen before."""
    return modules_report(roots, namespace, TiedWeights())


def bare(**attributes) -> Bare:
    made = Bare()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def names(root, **namespace) -> tuple[list[str], list[str]]:
    """Return the loose tensors and the hiding places that are found."""
    found = look_at([("net", root)], {"net": root, **namespace})
    return [one.name for one in found.unregistered_tensors], [one.name for one in found.unregistered_modules]


@pytest.mark.parametrize(
    "container",
    [
        lambda: [nn.Linear(2, 2)],
        lambda: (nn.Linear(2, 2), nn.ReLU()),
        lambda: {"a": nn.Linear(2, 2)},
        lambda: [[nn.Linear(2, 2)], {"b": (nn.Linear(2, 2),)}],
        lambda: [nn.Parameter(torch.ones(2))],
        lambda: [3, "a", nn.Linear(2, 2)],
    ],
)
def test_every_hiding_place_is_found(container):
    """Also inside a module that is registered."""
    assert names(bare(inner=bare(layers=container()))) == ([], ["net.inner.layers"])


@pytest.mark.parametrize(
    "container",
    [
        list,
        lambda: [nn.ReLU()],
        lambda: [torch.ones(2)],
        lambda: [nn.Linear],
        lambda: {"a": nn.Linear(2, 2).requires_grad_(requires_grad=False)},
        lambda: nn.ModuleList([nn.Linear(2, 2)]),
    ],
)
def test_what_hides_nothing_is_left_alone(container):
    """Empty, without parameters, frozen, or registered."""
    assert names(bare(layers=container())) == ([], [])


def test_the_facts_of_a_hiding_place():
    """How much is missing, what the module has, and what an optimizer has of it."""
    net = bare(head=nn.Linear(2, 1), layers=[nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])
    optimizer = torch.optim.SGD([*net.parameters(), net.layers[1].weight], lr=0.1)
    net.head.weight.grad, net.layers[0].bias.grad = torch.zeros(1, 2), torch.zeros(2)
    (found,) = look_at([("net", net)], {"net": net, "optimizer": optimizer}).unregistered_modules
    assert (found.container, found.modules, found.parameters, found.numel) == ("list", 2, 3, 10)
    assert (found.registered, found.optimized, found.with_gradient, found.trained) == (2, 1, 1, True)


def test_what_is_registered_or_named_elsewhere_is_not_hidden():
    """In another model, or by a name of its own; a list that has a name registers nothing."""
    encoder, layers = nn.Linear(2, 2), [nn.Linear(2, 2), nn.Linear(2, 2)]
    other = bare(first=layers[0], second=layers[1])
    net = bare(encoders=[encoder, encoder], layers=layers)
    roots = [("net", net), ("encoder", encoder), ("other", other)]
    assert look_at(roots, {"net": net, "encoder": encoder, "other": other}).unregistered_modules == ()
    assert [one.name for one in look_at(roots[:1], {"net": net, "layers": layers}).unregistered_modules] == [
        "net.encoders",
        "net.layers",
    ]


@pytest.mark.parametrize(
    "info", [info for info in module_db if info.module_cls is not None], ids=lambda info: info.name
)
def test_modules_of_torch_hold_nothing_odd(info):
    """Every module of torch's own, inside a module of a user's and by itself."""
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    given = inputs[0].constructor_input
    made = info.module_cls(*given.args, **given.kwargs)
    assert names(bare(inner=made)) == ([], [])
    assert modules_report([("made", made)], {}, TiedWeights()).untied == ()


def test_parametrized_and_pruned_weights_are_what_was_computed_of_registered_ones():
    """Torch's own ways to compute a weight leave a plain tensor behind."""
    net = bare(first=nn.Linear(4, 4), second=nn.Linear(4, 4))
    parametrizations.weight_norm(net.first)
    prune.l1_unstructured(net.second, "weight", 0.5)
    mine = bare(w=nn.Parameter(torch.randn(4, 4)))
    prune.l1_unstructured(mine, "w", 0.5)
    assert names(net) == ([], [])
    (found,) = look_at([("net", mine)], {"net": mine}).unregistered_tensors
    assert found.kept_elsewhere


def test_odd_modules_run_no_code():
    """No property, no ``__getattr__``, no iterator of somebody's own."""

    class Touchy(nn.Module):
        def __getattr__(self, name):
            raise AssertionError(name)

        @property
        def layers(self):
            raise AssertionError

    class Lazy(list):
        def __iter__(self):
            raise AssertionError

    touchy = Touchy()
    object.__getattribute__(touchy, "__dict__")["own"] = Lazy([nn.Linear(2, 2)])
    assert names(touchy) == ([], [])


def test_cycles_and_lazy_parameters():
    """A module that holds itself; parameters without a shape yet."""
    net = bare(layers=[nn.LazyLinear(3)])
    net.again = [net]
    assert names(net)[1] == ["net.layers"]
    (found,) = [one for one in look_at([("net", net)], {}).unregistered_modules if one.name == "net.layers"]
    assert (found.parameters, found.numel) == (2, 0)


def tied() -> nn.Sequential:
    net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9, bias=False))
    net[1].weight = net[0].weight
    return net


def broken(net, ties=None) -> list[tuple[str, str, str]]:
    found = (ties or TiedWeights()).broken("net", net)
    return [(one.first, one.second, one.evidence) for one in found]


PAIR = ("net.0.weight", "net.1.weight")


def test_a_tie_that_was_seen_and_broke():
    """Certain, however the two differ now."""
    net, ties = tied(), TiedWeights()
    ties.remember(net)
    assert broken(net, ties) == []
    net[1].weight = nn.Parameter(torch.zeros(9, 4))
    assert broken(net, ties) == [(*PAIR, "was one")]
    ties.remember(net)  # seen again: what it was at first counts
    assert broken(net, ties) == [(*PAIR, "was one")]


def test_a_name_that_is_gone_is_no_broken_tie():
    """A pruned or parametrized weight has another name."""
    net, ties = tied(), TiedWeights()
    ties.remember(net)
    prune.l1_unstructured(net[1], "weight", 0.5)
    assert broken(net, ties) == []


class Model(nn.Module):
    """An output layer that was to be tied to the embedding, and got a Parameter of its own over the same memory."""

    def __init__(self):
        super().__init__()
        self.tok, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.head.weight = nn.Parameter(self.tok.weight)


def test_a_pair_is_told_once_at_its_line():
    """Whichever of the two comes first in the module; the surest evidence counts."""
    (found,) = TiedWeights().broken("net", Model())
    assert (found.evidence, found.first, found.second) == ("one memory", "net.head.weight", "net.tok.weight")
    assert found.location.text == "self.head.weight = nn.Parameter(self.tok.weight)"


def test_two_parameters_over_one_memory():
    """The same elements, both asking for a gradient; parts of one flat memory are no tie."""
    net = tied()
    net[1].weight = nn.Parameter(net[0].weight.data)
    assert broken(net) == [(*PAIR, "one memory")]
    net[1].weight.requires_grad_(requires_grad=False)
    assert broken(net) == []
    flat = torch.zeros(2, 9, 4)
    net[0].weight, net[1].weight = nn.Parameter(flat[0]), nn.Parameter(flat[1])
    assert broken(net) == []


def test_equal_values_of_an_embedding_and_a_linear_layer():
    """All compared elements are equal, and not all of them the same number."""
    net = tied()
    net[1].weight = nn.Parameter(net[0].weight.detach().clone())
    (found,) = TiedWeights().broken("net", net)
    assert (found.evidence, found.compared, found.numel) == ("equal values", 36, 36)
    with torch.no_grad():
        net[1].weight[8, 3] += 1
    assert broken(net) == []
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[1].weight)
    assert broken(net) == []


def test_what_to_empty_parts_is_found_after_it():
    """A model that was made on the meta device."""
    with torch.device("meta"):
        net = tied()
    ties = TiedWeights()
    ties.remember(net)
    net.to_empty(device="cpu")
    assert (*PAIR, "was one") in broken(net, ties)


def test_no_module_is_kept_alive():
    """Neither by ties nor by a watch of a trace."""
    net, ties = tied(), TiedWeights()
    ties.remember(net)
    watch = ModuleWatch(_trace())
    watch._met("net", net)
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None
    ties.remember(other := tied())
    assert len(ties._known) == 1
    assert broken(copy.deepcopy(other)) == []


def _trace(**given):
    """Return what stands for a trace that met no module."""
    modules = SimpleNamespace(on_root=lambda name, module: None, roots=list)
    optimized = SimpleNamespace(trained=SimpleNamespace(known=list))
    return SimpleNamespace(
        namespace={}, sites=SourceLines(), leaves=SimpleNamespace(modules=modules),
        recorder=SimpleNamespace(detached=optimized), **given,
    )  # fmt: skip


def test_a_look_that_fails_is_a_gap():
    """The run goes on, and the report says what is missing."""
    gaps: list[tuple[str, str]] = []
    trace = _trace(add_gap=lambda *gap: gaps.append(gap))
    watch = ModuleWatch(trace)
    trace.leaves.modules.roots = lambda: [("net",)]  # no module behind the name
    watch.finish(None)
    assert watch.fields(()) == {"modules": None, "hooks": ()}
    assert gaps[0][0] == "modules"
