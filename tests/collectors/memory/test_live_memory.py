"""What is alive: what it is for, what it is called, who holds it, with the bytes of each."""

from __future__ import annotations

import gc
import re
import sys
import threading
import types
import warnings
from concurrent.futures import Future

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensormagic import memory
from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.memory.live_tensors import category_of
from tensormagic.reports import CATEGORIES, LiveStorage
from tests.support.zoo import ZOO


def of(report, name) -> LiveStorage:
    """Return the storage of a name."""
    return next(one for one in report.storages if one.name == name)


def paths(one):
    """Return who holds it."""
    return [holder.path for holder in one.holders]


def seen(names, **options):
    """Return a report of what some names lead to."""
    report = memory(names, only=names, **options)
    report.check()
    return report


def trained():
    """Return a small model after a step, its optimizer and its next loss."""
    net = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 1))
    optimizer = torch.optim.Adam(net.parameters())
    x, y = torch.randn(8, 10), torch.randint(0, 1, (8,))
    net(x).sum().backward()
    optimizer.step()
    loss = nn.functional.cross_entropy(net(x), y)
    return {"net": net, "optimizer": optimizer, "x": x, "y": y, "loss": loss}


def test_a_training_step_by_category():
    """The numbers that one can work out by hand."""
    report = seen(trained())
    weights = 4 * (200 + 20 + 20 + 20 + 20 + 1)
    bytes_of = dict(report.by(lambda one: one.category))
    assert bytes_of["parameter"] == bytes_of["gradient"] == weights
    assert bytes_of["optimizer state"] == 2 * weights + 6 * 4  # two moments, and a step each
    assert bytes_of["buffer"] == 4 * (20 + 20) + 8
    assert bytes_of["input"] == 8 * 10 * 4 + 8 * 8
    # What the first layer made, the mean and the deviation, what the ReLU made, log-probabilities, their total weight.
    assert bytes_of["saved for backward"] == 8 * 20 * 4 + 2 * 20 * 4 + 8 * 20 * 4 + 8 * 4 + 4
    assert bytes_of["other"] == 4  # the loss


def test_names_modules_and_holders_of_a_training_step():
    """Paths as a user writes them; an optimizer's state by the name of its parameter."""
    report = seen(trained())
    weight = of(report, "net.0.weight")
    assert (weight.category, weight.module, weight.shape, weight.nbytes) == ("parameter", "net.0", (20, 10), 800)
    assert paths(weight)[:3] == [
        "net.0.weight", "optimizer.state, key net.0.weight", "optimizer.param_groups[0]['params'][0]",
    ]  # fmt: skip
    assert "graph of loss: AccumulateGrad, adds its gradient" in paths(of(report, "net.0.bias"))
    assert of(report, "net.0.weight.grad").module == "net.0"
    assert of(report, "optimizer.state[net.0.weight]['exp_avg']").category == "optimizer state"
    assert of(report, "net.1.running_mean").module == "net.1"
    saved = next(one for one in report.storages if "ReluBackward0" in str(paths(one)))
    assert (saved.name, saved.category, saved.nbytes) == ("", "saved for backward", 640)


def test_an_optimizer_that_comes_first_does_not_name_the_weights():
    """The name of a weight is where in its model, whatever the order."""
    names = trained()
    names = {"optimizer": names["optimizer"], "deep": {"net": [names["net"]]}}
    report = seen(names)
    assert of(report, "deep['net'][0].0.weight").category == "parameter"
    assert of(report, "optimizer.state[deep['net'][0].3.bias]['step']").nbytes == 4


def test_a_state_dict_does_not_name_the_weights():
    """What was kept of the best model so far shares its memory: the memory is the model's."""
    net = nn.Linear(10, 20)
    report = seen({"best": net.state_dict(), "net": net})
    assert paths(of(report, "net.weight")) == ["net.weight", "best['weight']"]
    assert paths(of(report, "net.bias")) == ["net.bias", "best['bias']"]


SAVED = "saved for backward"


@pytest.mark.parametrize(
    ("roles", "category"),
    [
        ({SAVED, "parameter"}, "parameter"), ({"gradient", SAVED}, "gradient"), ({SAVED, "input"}, "input"),
        ({SAVED}, SAVED), ({"buffer", "input"}, "buffer"), (set(), "other"),
    ],
)  # fmt: skip
def test_precedence(roles, category):
    """The first role of the table that was met counts."""
    assert category_of(roles) == category
    assert category in CATEGORIES


def test_what_a_data_set_holds_is_input():
    """With or without a graph; through a loader as well."""
    loader = DataLoader(TensorDataset(torch.zeros(10, 3), torch.zeros(10)))
    report = seen({"loader": loader, "other": torch.zeros(2)})
    assert of(report, "loader.dataset.tensors[0]").category == "input"
    assert of(report, "other").category == "other"


def test_a_batch_is_input_as_long_as_a_graph_keeps_it():
    """Backward frees the graph; nothing tells the batch from another tensor then."""
    net, x = nn.Linear(3, 1), torch.ones(5, 3)
    loss = net(x).sum()
    assert of(seen({"net": net, "x": x, "loss": loss}), "x").category == "input"
    loss.backward()
    assert of(seen({"net": net, "x": x, "loss": loss}), "x").category == "other"


def test_the_parameters_of_a_scripted_module_are_found():
    """They lie in C++, behind dictionaries that are torch's own; so do its submodules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    report = seen({"net": scripted})
    found = {one.name: (one.category, one.module) for one in report.storages}
    assert found.items() >= {
        "net.0.weight": ("parameter", "net.0"), "net.0.bias": ("parameter", "net.0"),
        "net.1.running_mean": ("buffer", "net.1"), "net.1.weight": ("parameter", "net.1"),
    }.items()  # fmt: skip


def test_views_are_one_storage():
    """Counted once, with all its bytes, under the name of the whole; the view is a holder."""
    big = torch.zeros(100)
    report = seen({"small": big[:3], "big": big})
    (one,) = report.storages
    assert (one.name, one.nbytes, one.tensors) == ("big", 400, 2)
    assert [(holder.path, holder.holds, holder.nbytes) for holder in one.holders[:1]] == [("big", "tensor", 0)]
    assert ("small", "storage", 12) in [(holder.path, holder.holds, holder.nbytes) for holder in one.holders]


def test_an_array_seen_twice_counts_once():
    """Two storage objects lie over the same bytes: one piece of memory, shared."""
    values = np.zeros(100, dtype=np.float32)
    report = seen({"a": torch.from_numpy(values), "b": torch.from_numpy(values[50:])})
    (one,) = report.storages
    assert (one.nbytes, one.shared, one.tensors, report.nbytes) == (400, True, 2, 400)
    assert {"a", "b"} <= set(paths(one))


def test_shared_memory_is_marked():
    """Memory that other processes may use, and a file's; not torch's own."""
    report = seen({"ours": torch.zeros(3), "shared": torch.zeros(3).share_memory_()})
    assert [of(report, name).shared for name in ("ours", "shared")] == [False, True]


def test_freed_resized_and_replaced_storages():
    """Bytes are what the storage has now."""
    freed, grown, moved = torch.zeros(9), torch.zeros(2), torch.zeros(4)
    freed.untyped_storage().resize_(0)
    grown.resize_(50)
    moved.set_(torch.zeros(30))
    report = seen({"freed": freed, "grown": grown, "moved": moved})
    assert [of(report, name).nbytes for name in ("freed", "grown", "moved")] == [0, 200, 120]


def test_a_retained_gradient_is_found():
    """The gradient of a result, which Python may never have looked at."""
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    assert of(seen({"y": y}), "y.grad").category == "gradient"


@pytest.mark.parametrize("kind", ZOO)
def test_every_kind_of_tensor(kind):
    """Sums are right, nothing is changed; what takes no memory takes none, and a wrapper what lies inside."""

    def look(x):
        report = seen({"x": x}, devices=["cpu", "meta"])
        assert all(one.nbytes == 0 for one in report.storages if one.device == "meta")
        return report.nbytes

    nbytes = ZOO[kind].visit(look)
    assert nbytes == {"wrapper subclass": 24, "fake": 0, "meta": 0, "csr": 140, "functional": 24}.get(kind, nbytes)


def test_variables_of_running_functions():
    """The caller's, and those of who called it: with the line, and the function where the name is taken."""
    kept = torch.zeros(11)

    def inner():
        kept = torch.ones(7)
        own = torch.ones(5)
        return kept, own, memory(only={"": [kept, own]}), memory()

    *_, few, report = inner()
    assert sorted(one.name for one in few.storages) == ["kept", "own"]
    outer = next(one for one in report.storages if one.nbytes == kept.nbytes and one.shape == (11,))
    assert outer.name == "test_variables_of_running_functions.<locals>.kept"
    (holder,) = outer.holders
    assert holder.location.function == "test_variables_of_running_functions"
    assert holder.location.text == "*_, few, report = inner()"


def test_looking_leaves_no_copy_of_the_variables():
    """What a function lets go of after a look is gone."""
    x = torch.zeros(3)
    count = sys.getrefcount(x)
    memory()
    assert sys.getrefcount(x) == count


def test_history_and_the_last_error(monkeypatch):
    """Held by ``Out`` and by a frame: told with the line, called by these only where nothing else leads there."""

    def fails(x):
        y = x.exp()
        raise ValueError(str(y.shape))

    try:
        fails(torch.zeros(5))
    except ValueError as caught:
        monkeypatch.setattr(sys, "last_value", caught, raising=False)
        monkeypatch.setattr(sys, "last_exc", caught, raising=False)

    def session(x):
        return {"Out": {3: x}, "_3": x, "mine": x}

    report = memory(session(torch.zeros(7)))
    assert of(report, "mine").found >= 3
    assert {"Out[3]", "_3"} <= set(paths(of(report, "mine")))
    traced = next(one for one in report.storages if "the last error (ValueError)" in one.name)
    assert traced.holders[0].kind == "traceback"
    assert traced.holders[0].location.text == "raise ValueError(str(y.shape))"


def test_what_no_name_leads_to():
    """A tensor in a reference cycle: found, without a name, held by nothing that has one."""
    gc.disable()
    try:
        x = torch.zeros(12345)
        x.itself = x
        del x
        one = next(one for one in memory().storages if one.nbytes == 4 * 12345)
    finally:
        gc.enable()
        gc.collect()
    assert (one.name, one.holders, one.found) == ("", (), 0)
    assert 4 * 12345 not in {one.nbytes for one in memory().storages}


LARGE = 2**18 + 3  # elements: more than a mebibyte


def test_who_holds_what_no_name_leads_to(monkeypatch):
    """A library's global, a list that nothing names, an object of some class: told, though they are no paths."""
    library = types.ModuleType("library")
    library.cache = torch.zeros(LARGE)
    monkeypatch.setitem(sys.modules, "library", library)
    del library
    cycle = [torch.zeros(LARGE + 1), 17]
    cycle.append(cycle)
    del cycle
    gc.disable()
    try:
        report = memory()
    finally:
        gc.enable()
        gc.collect()
    held = {one.shape: [holder.path for holder in one.holders] for one in report.storages if not one.name}
    assert held[(LARGE,)] == ["library.cache"]
    assert held[(LARGE + 1,)] == ["a list of 3 without a name"]


def test_a_closure_that_nothing_names_is_told():
    """What a function holds that only a library leads to."""

    def variable():
        held = torch.zeros(LARGE + 2)
        return (lambda: held).__closure__[0]

    cell = variable()
    one = next(one for one in memory({}).storages if one.shape == (LARGE + 2,))
    assert (one.name, paths(one)) == ("", ["a variable of a closure"])
    del cell


def test_parts_are_called_as_a_user_reaches_them():
    """The storages of a tensor that is made of several are its parts."""
    names = {one.name for one in seen({"c": torch.eye(5).to_sparse_csr(), "s": torch.eye(5).to_sparse()}).storages}
    assert names == {"c.crow_indices()", "c.col_indices()", "c.values()", "s._indices()", "s._values()"}
    one = of(seen({"x": torch.nested.nested_tensor([torch.ones(100)], layout=torch.jagged)}), "x.values()")
    assert (one.nbytes, paths(one)[0]) == (400, "x.values()")


def test_what_hooks_threads_and_futures_hold_has_a_name():
    """It is reached through the tensor, the thread's attribute, the result, the method's own object."""
    x, local, future = torch.ones(1, requires_grad=True), threading.local(), Future()
    in_hook = torch.ones(10)
    x.register_hook(lambda gradient, held=in_hook: gradient)
    del in_hook
    local.held = torch.ones(11)
    future.set_result([torch.ones(12)])
    report = seen({"x": x, "local": local, "future": future, "method": torch.ones(13).add})
    named = {one.nbytes // 4: one.name for one in report.storages}
    assert re.fullmatch(r"x\._backward_hooks\[\d+\], default argument", named[10])
    assert (named[11], named[12], named[13]) == ("local.held", "future.result()[0]", "method.__self__")


def test_who_lent_the_memory_is_a_holder():
    """Arrays and buffers over the memory of a tensor are named beside it, wherever they lie."""
    buffer, array = bytearray(400), np.zeros(50)
    x, y, z = torch.frombuffer(buffer, dtype=torch.float32), torch.from_numpy(array), torch.ones(3)
    report = memory({"x": x, "y": y, "z": z, "buffer": buffer, "kept": {"array": array}})
    held = {name: of(report, name) for name in "xyz"}
    assert paths(held["x"])[-1] == "buffer"
    assert paths(held["y"])[-1] == "kept['array']"
    assert held["y"].found == len(paths(held["y"])) == len(paths(held["z"])) + 1


def test_a_graph_that_only_a_node_keeps():
    """Somebody holds a node, nobody the tensor that it made."""
    node = (torch.ones(777, requires_grad=True).exp() * 2).sum().grad_fn
    one = next(one for one in memory({}).storages if one.nbytes == 4 * 777 and one.category == "saved for backward")
    assert "ExpBackward0, saved as result" in paths(one)[0]
    del node


class Doubled(torch.autograd.Function):
    """Keeps what it needs as an attribute, a tensor and a list of them, which nothing ever frees."""

    @staticmethod
    def forward(ctx, x):
        """Return twice x."""
        ctx.one, ctx.several = x.exp(), [x.sin(), x.cos()]
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        """Return twice the gradient."""
        return 2 * gradient


def test_what_a_custom_function_keeps_as_attributes():
    """By the name of the attribute, in lists as well."""
    report = seen({"y": Doubled.apply(torch.ones(6, requires_grad=True))})
    saved = {paths(one)[0]: one.nbytes for one in report.storages if one.category == "saved for backward"}
    assert saved == {f"graph of y: DoubledBackward, ctx.{name}": 24 for name in ("one", "several[0]", "several[1]")}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_custom_function_that_was_called_itself_is_in_no_graph():
    """``Doubled()`` makes an object that looks like a node; what is kept on it is told as of any object's."""
    made = Doubled()
    report = memory({"x": torch.ones(9)}, only={})
    assert report.gaps == ()
    del made


@pytest.mark.parametrize(
    "pack", [lambda x: (x,), lambda x: types.SimpleNamespace(kept={"x": x}), lambda x: lambda: x, lambda x: x.clone()]
)
def test_what_a_hook_has_packed_is_not_unpacked(pack):
    """The user's code does not run; the tensors in what it made are told with the graph, and nothing is missing."""
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(pack, unpacked.append):
        y = torch.ones(333, requires_grad=True).square()  # saves its input: an output would lie in a cycle for ever
    report = memory({"y": y})
    assert unpacked == []
    assert [gap for gap in report.gaps if gap.section == "graphs"] == []
    held = [path for one in report.storages for path in paths(one) if "packed by" in path]
    assert held == ["graph of y: PowBackward0, saved as self, packed by a hook"]


def test_checkpointing_leaves_no_gap():
    """What is packed into nothing is kept nowhere: nothing is missing."""
    x = torch.ones(40, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: x.exp().exp(), x, use_reentrant=False)
    report = memory({"y": y})
    assert [gap for gap in report.gaps if gap.section == "graphs"] == []


def test_what_was_changed_in_place_since_is_kept_all_the_same():
    """An optimizer's step makes torch refuse to show the weights that a stored loss's graph saved; they are found."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 333), torch.nn.Linear(333, 1))
    losses = [net(torch.ones(2, 4)).sum()]
    losses[0].backward(retain_graph=True)
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    report = memory({"losses": losses})
    assert [gap for gap in report.gaps if gap.section == "graphs"] == []
    weight = net[1].weight
    del net
    found = memory({"losses": losses}).storages
    (one,) = [one for one in found if one.shape == tuple(weight.shape) and one.category != "gradient"]
    assert any(path.startswith("graph of losses[0]: ") for path in paths(one))


def test_only_some_names_devices_and_the_largest():
    """Asked for by what leads there, by device, or by number: the sums are right in each case."""
    names = {"a": torch.zeros(10), "b": [torch.zeros(20), torch.zeros(5, device="meta")]}
    report = memory(names, only={"b": names["b"]})
    assert [one.nbytes for one in report.storages] == [80, 0]
    assert report.title == "b"
    assert [one.device for one in memory(names, only=names, devices="meta").storages] == ["meta"]
    few = memory(names, only=names, most=1)
    few.check()
    assert (len(few.storages), sum(one.tensors for one in few.left_out), few.nbytes) == (1, 2, 120)


def test_a_namespace_has_to_be_one():
    """What was given, and what would do."""
    with pytest.raises(Exception, match=r'as in \{"x": x\}, but was given a list of 1'):
        memory([1])
    with pytest.raises(Exception, match="names and their values"):
        memory(only=3)


def test_rows_of_an_array_are_held_against_its_tensors_once(monkeypatch):
    """All rows have the memory of the whole array: what they lend is looked up together, not row by row."""
    every = np.zeros((200, 4), np.float32)
    rows = [every[at] for at in range(200)]
    names = {"every": every, "rows": rows, "tensors": [torch.from_numpy(row) for row in rows]}
    asked, shift = [], Memory.shift
    monkeypatch.setattr(Memory, "shift", lambda self, other: asked.append(1) or shift(self, other))
    report = memory(names)
    assert len(asked) < 1000
    assert all(one.holders[1].path == "every" for one in report.storages if one.name.startswith("tensors["))
    assert any(one.name.startswith("tensors[") for one in report.storages)
