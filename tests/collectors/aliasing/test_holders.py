"""Who keeps a tensor alive: every kind of holder found by its way, nothing kept, nothing changed."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic.collectors.aliasing import aliases as holders_module
from tensormagic.collectors.aliasing.aliases import Budget, holders
from tensormagic.collectors.tensors.tensor import collect_tensor


class Pair(NamedTuple):
    left: int
    right: torch.Tensor


def held(x: torch.Tensor, **space) -> dict[str, tuple[str, str]]:
    """Return path → (kind, what it holds)."""
    return {each.path: (each.kind, each.holds) for each in holders(x, space).holders}


@dataclass
class State:
    x: torch.Tensor


class Slots:
    __slots__ = ("empty", "x")

    def __init__(self, x):
        self.x = x


def closure(x):
    return lambda: x


def default(x):
    def function(value=x):
        return value

    return function


def cached(x):
    box = [x]

    @functools.lru_cache(maxsize=4)
    def load(_number):
        return box.pop()

    load(1)
    return load


def suspended(x):
    def batches(value):
        yield value

    generator = batches(x)
    next(generator)
    return generator


@pytest.mark.parametrize(
    ("name", "make", "path", "kind"),
    [
        ("x", lambda x: x, "x", "name"),
        ("batch", lambda x: [0, x], "batch[1]", "item"),
        ("batch", lambda x: {"image": [(x,)]}, "batch['image'][0][0]", "item"),
        ("pair", lambda x: Pair(1, x), "pair[1]", "item"),
        ("queue", lambda x: deque([x]), "queue[0]", "item"),
        ("several", lambda x: {x}, "several, an element", "item"),
        ("table", lambda x: OrderedDict(a=x), "table['a']", "item"),
        ("table", lambda x: defaultdict(list, {3: [x]}), "table[3][0]", "item"),
        ("table", lambda x: {x: 1}, "table, key x", "item"),
        ("state", State, "state.x", "attribute"),
        ("state", lambda x: SimpleNamespace(data=x), "state.data", "attribute"),
        ("slots", Slots, "slots.x", "attribute"),
        ("method", lambda x: State(x).__repr__, "method.__self__.x", "attribute"),
        ("hook", closure, "hook, closure over x", "function"),
        ("function", default, "function, default argument", "function"),
        ("partial", lambda x: functools.partial(torch.add, x), "partial.args[0]", "function"),
        ("load", cached, "load, its cache", "function"),
        ("batches", suspended, "batches, local of batches", "generator"),
        ("Out", lambda x: {12: x}, "Out[12]", "history"),
        ("_12", lambda x: x, "_12", "history"),
        ("_", lambda x: x, "_", "history"),
        ("view", lambda x: x[1:], "view", "view"),
        ("rows", lambda x: [x.t()[0]], "rows[0]", "view"),
    ],
)
def test_each_kind_of_holder(name, make, path, kind):
    """The way to the tensor and what sort of place it is; and that this is the only holder."""
    x = torch.zeros(3, 2)
    found = holders(x, {name: make(x)}).of_tensor
    expected = path.replace("key x", "key a tensor")
    assert [(each.path, each.kind) for each in found] == [(expected, kind)]


def test_a_class_keeps_what_its_attributes_hold():
    """A cache on a class of one's own, and a default of a method; of a library's class nothing is read."""
    x = torch.zeros(2)

    class Cached:
        cache = {"big": x}  # noqa: RUF012  (the fault that it is about)

        def method(self, value=x):
            return value

    assert held(x, Cached=Cached, Linear=nn.Linear) == {
        "Cached.cache['big']": ("item", "tensor"),
        "Cached.method, default argument": ("function", "tensor"),
    }


def test_modules_and_optimizers():
    """A parameter is held by its module, by the groups and state of its optimizer, under the parameter's own name."""
    net = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    weight = net[0].weight
    names = {weight._cdata: "net.0.weight"}
    found = holders(weight, {"net": net, "optimizer": optimizer}, names=names).holders
    assert {each.path: each.kind for each in found} == {
        "net.0.weight": "module",
        "optimizer.state, key net.0.weight": "optimizer",
        "optimizer.param_groups[0]['params'][0]": "optimizer",
    }
    moment = optimizer.state[weight]["exp_avg"]
    (only,) = holders(moment, {"net": net, "optimizer": optimizer}, names=names).holders
    assert (only.path, only.kind) == ("optimizer.state[net.0.weight]['exp_avg']", "optimizer")


def test_graphs_name_the_node_and_the_slot():
    """A saved input is the tensor itself; a saved result is another tensor over its storage; a leaf is added to."""
    w = torch.ones(2, 2, requires_grad=True)
    hidden = (w @ w).exp()
    loss = hidden.square().sum()
    assert held(w, loss=loss) == {
        "graph of loss: MmBackward0, saved as mat2": ("graph", "tensor"),
        "graph of loss: MmBackward0, saved as self": ("graph", "tensor"),
        "graph of loss: AccumulateGrad, adds its gradient": ("graph", "tensor"),
    }
    assert held(hidden, loss=loss) == {
        "graph of loss: PowBackward0, saved as self": ("graph", "tensor"),
        "graph of loss: ExpBackward0, saved as result": ("graph", "storage"),
    }
    loss.backward()
    assert held(hidden, loss=loss) == {}


def test_ones_own_graph_is_no_holder():
    """What only the tensor's own graph keeps goes with the tensor, and is not counted as unknown either."""
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    found = holders(y, {"y": y, "w": w})
    assert ([each.path for each in found.holders], found.unreached) == (["y"], 0)


class Leaky(torch.autograd.Function):
    """Keeps an input where nothing frees it."""

    @staticmethod
    def forward(ctx, x):
        ctx.kept = x
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_custom_functions_that_keep_tensors_on_their_context():
    """What is set on ctx outlives the backward that frees what was saved."""
    x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)
    product = x * w
    y = Leaky.apply(product)
    paths = set(held(product, y=y))
    assert paths == {"graph of y: LeakyBackward, ctx.kept", "graph of y: LeakyBackward, saved as saved_tensors[0]"}
    y.sum().backward()
    assert set(held(product, y=y)) == {"graph of y: LeakyBackward, ctx.kept"}


def test_what_a_hook_packed_is_not_unpacked():
    """Unpacking would run the user's code: offloading, a checkpoint's second forward."""
    w, unpacked = torch.ones(3, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):
        y = w.exp().sin()
    found = held(w, y=y)
    assert unpacked == []
    assert set(found) == {"graph of y: AccumulateGrad, adds its gradient"}


def fail(x):
    local = {"k": x}
    raise ValueError(len(local))


def test_the_last_error_keeps_the_locals_of_its_frames(monkeypatch):
    """With function and line; an error under a name does the same."""
    x = torch.zeros(3)
    try:
        fail(x)
    except ValueError as caught:
        error = caught
    monkeypatch.setattr(sys, "last_exc", error, raising=False)
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    found = [each for each in holders(x, {}).holders if "of fail" in each.path]
    assert {each.path for each in found} <= {
        "the last error (ValueError), local of fail", "the last error (ValueError), local of fail['k']"}  # fmt: skip
    line = fail.__code__.co_firstlineno + 2
    assert {(each.location.line, each.location.function) for each in found} == {(line, "fail")}
    monkeypatch.undo()
    named = [each for each in holders(x, {"error": error}).holders if "of fail" in each.path]
    assert {each.kind for each in named} == {"traceback"}
    del error, found, named


def look_up(namespace):
    raise KeyError(len(namespace))


def test_a_frame_that_was_handed_the_namespace_is_no_holder():
    """What evaluates expressions is handed all names: its frame holds what the names hold, and nothing besides."""
    x = torch.zeros(3)
    namespace = {"x": x}
    try:
        look_up(namespace)
    except KeyError as caught:
        namespace["error"] = caught
    assert [each.path for each in holders(x, namespace).holders if "look_up" in each.path] == []
    namespace.clear()


def test_a_frame_that_was_looked_into_tells_its_locals_names():
    """A debugger, or IPython's own traceback, has read ``f_locals``: the copy is no second holder."""
    x = torch.zeros(3)
    try:
        fail(x)
    except ValueError as caught:
        error = caught
    frame = error.__traceback__.tb_next.tb_frame
    assert set(frame.f_locals) == {"x", "local"}
    paths = {each.path for each in holders(x, {"error": error}).holders}
    if sys.version_info < (3, 13):  # from then on f_locals is a view, and nothing is copied
        assert {"error, local x of fail", "error, local local of fail['k']"} <= paths
    assert not any("fail['x']" in path for path in paths)
    del error, frame


def test_storage_holders_are_told_from_holders_of_the_tensor():
    """Views, .data and arrays keep the memory, not the tensor; the tensor's own name comes first."""
    x = torch.zeros(4)
    found = holders(x[1:], {"x": x, "data": x.data, "array": x.numpy(), "tail": x[2:]})
    assert found.of_tensor == ()
    assert {(each.path, each.nbytes) for each in found.of_storage} == {
        ("x", 16), ("data", 16), ("array", 16), ("tail", 8)}  # fmt: skip
    y = torch.zeros(4)
    assert [each.path for each in holders(y, {"data": y.data, "y": y}).holders] == ["y", "data"]


def test_what_no_name_reaches_is_counted():
    """Torch knows how many tensors use a storage, and Python how many refer to a base."""
    whole = torch.zeros(4)
    row, hidden = whole[0], whole[1:]
    assert holders(row, {"row": row, "whole": whole}).unreached == 1
    del hidden
    assert holders(row, {"row": row, "whole": whole}).unreached == 0
    assert holders(row, {"row": row}).unreached == 1
    del whole
    assert holders(row, {"row": row}).unreached == 0


def test_what_is_looked_at_in_the_same_breath_is_no_holder():
    """``%tensor x x.t()`` has both alive while each is inspected."""
    x = torch.zeros(4, 2)
    other = x.t()
    assert holders(x, {"x": x}).unreached == 1
    found = holders(x, {"x": x}, besides=[x, other, "text"])
    assert (found.unreached, [each.path for each in found.holders]) == (0, ["x"])


@pytest.mark.parametrize("make", [
    lambda: torch.zeros(3, dtype=torch.uint8).view(torch.bits8),
    lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_what_its_own_panel_looks_through_is_no_holder(make):
    """The bytes behind opaque bits, the buffer of a nested tensor, and a base that is one of its components."""
    x = make()
    found = collect_tensor(x, name="x", namespace={"x": x}).holders
    assert (found.unreached, [each.path for each in found.holders]) == (0, ["x"])


def test_a_temporary_is_held_by_nobody():
    """The result of an expression, and no frame or list of ours."""
    x = torch.zeros(3)
    assert holders(x + 1, {"x": x}).holders == ()


def test_cycles_and_oneself():
    """A list in itself, a module that knows its parent, a tensor that refers to itself: each is walked once."""
    x = torch.zeros(2)
    loop: list = [x]
    loop.append(loop)
    x.self = x
    parent, child = nn.Module(), nn.Module()
    parent.child, child.up = child, [parent]
    child.x = x
    assert set(held(x, loop=loop, parent=parent)) == {"loop[0]", "parent.child.x"}
    del x.self


class Hostile:
    """Everything that Python could call raises."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None

    def __iter__(self):
        raise RuntimeError

    def __len__(self):
        raise RuntimeError


class Sneaky(dict):
    """A dictionary that pretends to be empty."""

    def items(self):
        raise RuntimeError

    def __iter__(self):
        raise RuntimeError


def test_no_code_of_the_persons_is_run():
    """Properties, operators and iterators of foreign objects are left alone; what they hold is found all the same."""
    x = torch.zeros(2)
    hostile = Hostile()
    object.__getattribute__(hostile, "__dict__")["x"] = x
    sneaky = Sneaky()
    dict.__setitem__(sneaky, "x", x)
    assert set(held(x, hostile=hostile, sneaky=sneaky)) == {"hostile.x", "sneaky['x']"}


def test_a_search_that_is_too_long_says_so():
    """By number of objects, and by time; what was found before stands."""
    x = torch.zeros(2)
    space = {"x": x, "many": [[at] for at in range(500)]}
    by_number = holders(x, space, budget=Budget(limit=50))
    assert (by_number.cut, by_number.of_tensor[0].path) == ("after 50 objects", "x")
    ticks = iter(range(1000))
    by_time = holders(x, space, budget=Budget(clock=lambda: float(next(ticks))))
    assert by_time.cut == "after 50 ms"
    assert holders(x, space).cut == ""


def test_many_holders_are_cut_with_their_number():
    """A list that repeats a tensor."""
    x = torch.zeros(2)
    found = holders(x, {"many": [x] * 100})
    assert (found.found, len(found.holders)) == (100, holders_module.MOST_HOLDERS)


def test_nothing_is_kept_and_nothing_is_changed():
    """Neither tensors nor classes nor generators are held by having looked; versions and reference counts stay."""
    x = torch.ones(3, requires_grad=True)
    space = {"x": x, "y": x.exp(), "state": State(x), "generator": suspended(x), "error": ValueError(x)}
    before, counts = x._version, sys.getrefcount(x)
    gc.collect()
    gc.disable()
    try:
        holders(x, space)
        assert (x._version, sys.getrefcount(x)) == (before, counts)
        gone = weakref.ref(space["y"])
        space.clear()
        assert gone() is None
    finally:
        gc.enable()


def test_tensors_of_every_layout_have_holders():
    """A sparse tensor has no storage that could be followed, but names all the same."""
    x = torch.eye(3).to_sparse()
    found = holders(x, {"x": x, "list": [x]})
    assert [each.path for each in found.holders] == ["x", "list[0]"]
    assert found.unreached is None


def test_arrays_lead_to_what_they_were_made_from():
    """A slice of an array keeps the array; an array of a tensor keeps the tensor's storage."""
    array = np.zeros(8, dtype=np.float32)
    x = torch.from_numpy(array)
    assert [each.path for each in holders(x, {"part": array[2:4]}).of_storage] == ["part"]
