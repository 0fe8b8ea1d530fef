"""Values that are not to be asked: a view that torch refuses to speak of, code of the user's, a lazy clone."""

from __future__ import annotations

import ast

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.objects.children import has_history, is_leaf, updated_by
from tensormagic.collectors.objects.namespace import UNKNOWN, still_value


def refused():
    """Return a leaf, and one of two views of what was computed from it, changed in place."""
    x = torch.ones(4, requires_grad=True)
    part = (x * 2).chunk(2)[0]
    with torch.no_grad():
        part.mul_(2)
    with pytest.raises(RuntimeError):
        _ = part.grad_fn
    return x, part


@pytest.mark.parametrize(
    "look", [tm.aliases, tm.memory, tm.tensors, tm.check], ids=["aliases", "memory", "tensors", "check"]
)
def test_looking_at_a_session_goes_on(look):
    """It is one name among others."""
    x, part = refused()
    if look is tm.check:
        assert look(namespace={"x": x, "part": part}).gaps == ()
    else:
        assert look({"x": x, "part": part}).gaps == ()


@pytest.mark.parametrize("options", [{}, {"memory": True}, {"writes": True}, {"draws": True}])
def test_a_backward_is_followed(options):
    """It stands among the locals of the function that calls backward."""
    x, part = refused()
    names = {"x": x, "part": part}
    with tm.trace(namespace=names, **options) as trace:
        (x * x).sum().backward()
    run = trace.report.trace if options else trace.report
    assert len(run.passes) == 1
    assert run.gaps == ()
    assert run.parameters[0].name == "x"


class Watched(torch.Tensor):
    """Its gradient is code of the user's."""

    asked = 0

    @property
    def grad(self):
        Watched.asked += 1


def test_code_of_a_subclass_does_not_run():
    """What a name stands for is read without asking it."""
    x = torch.ones(2).as_subclass(Watched)
    assert still_value(ast.parse("x.grad", mode="eval").body, {"x": x}) is UNKNOWN
    assert Watched.asked == 0


class Counting(torch.nn.Sequential):
    """Its items are what code of the user's gives."""

    def __getitem__(self, index):
        raise AssertionError


def test_what_is_in_a_container_of_modules_is_known():
    """By its number or name, as torch looks it up; of a class that looks itself, it is not."""
    inner = torch.nn.Linear(2, 2)
    names = {
        "net": torch.nn.Sequential(torch.nn.ReLU(), inner),
        "layers": torch.nn.ModuleList([inner]),
        "heads": torch.nn.ModuleDict({"a": inner}),
        "own": Counting(inner),
    }
    for text in ("net[1].weight", "net[-1].weight", "layers[0].weight", "heads['a'].weight"):
        assert still_value(ast.parse(text, mode="eval").body, names) is inner.weight
    for text in ("net[2]", "net[:1]", "heads['b']", "heads[0]", "own[0]"):
        assert still_value(ast.parse(text, mode="eval").body, names) is UNKNOWN


class Wrapped:
    """An optimizer around another, as accelerate's is."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        raise AssertionError("this is code of the user's")


def test_what_a_wrapped_optimizer_updates():
    """It is that which the one inside has stored."""
    w = torch.nn.Parameter(torch.ones(2))
    assert updated_by(Wrapped(torch.optim.SGD([w], 0.1))) == [w]


def test_a_lazy_clone_is_not_copied():
    """Its address is not asked for where nothing lies in memory of others."""
    x = torch.ones(1000)
    y = torch._lazy_clone(x)
    tm.memory({"x": x, "y": y})
    assert torch._C._is_cow_tensor(y)


def test_what_asks_for_its_graph_says_why_there_is_none():
    """In a sentence of the tool's, not in torch's."""
    _, part = refused()
    for ask in (tm.gradgraph, tm.why):
        with pytest.raises(tm.TensorMagicError, match="torch refuses to say what made it"):
            ask(part)


def test_a_leaf_that_is_a_view():
    """A parameter that lies in a larger buffer, and was stepped, is a leaf all the same."""
    flat = torch.ones(8)
    w = flat[:4].requires_grad_()
    with torch.no_grad():
        w.sub_(0.1)
    assert w._version > 0
    assert w.is_leaf
    assert is_leaf(w)
    assert not has_history(w)
    with tm.trace(namespace={"w": w}) as trace:
        (w * w).sum().backward()
    assert [series.name for series in trace.report.parameters] == ["w"]
