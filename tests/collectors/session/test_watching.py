"""A look at a session: what is counted, what is searched for a line, what is cut short, and what is never run."""

from __future__ import annotations

import gc
import linecache
import weakref
from collections import deque

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import tensormagic as tm
from tensormagic.collectors.aliasing.aliases import Budget
from tensormagic.collectors.session.session_walk import (
    THOROUGH,
    ChangingLines,
    ObjectWalk,
    assigned,
    graphs_and_storages,
)
from tensormagic.collectors.session.watching import look
from tensormagic.errors import TensorMagicError


def graphs(**namespace):
    """Return the stored graphs of a namespace by name."""
    stroll = ObjectWalk(THOROUGH).through(namespace)
    own = [key for key, held in stroll.storages.items() if not held.is_of_session]
    return {one.name: one for one, _ in graphs_and_storages(stroll.visits, own, lambda _name: None)}


def losses(net, count: int, *, backward: bool = False) -> list[torch.Tensor]:
    """Return losses of separate batches."""
    made = [net(torch.ones(8, 4)).square().mean() for _ in range(count)]
    for loss in made if backward else ():
        loss.backward()
    return made


def test_what_a_look_counts():
    """Each tensor and each storage once, whatever leads there."""
    x = torch.zeros(4)
    report = tm.check({"x": x, "again": [x, x[1:]], "y": {"a": torch.ones(2)}})
    assert (report.tensors, report.storages, report.nbytes) == (3, 2, 24)
    largest = report.sizes[0]
    assert (largest.name, largest.tensors, largest.nbytes) == ("again", 2, 28)


def test_bytes_that_graphs_keep_are_those_of_storages_without_a_name():
    """Exactly the activations: inputs that have names, parameters and the results themselves are left out."""
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    x = torch.ones(8, 4)
    stored = [net(x).square().mean() for _ in range(5)]
    found = graphs(net=net, x=x, stored=stored)["stored"]
    assert (found.form, found.items, found.graphs, found.scalars, found.freed) == ("items", 5, 5, True, False)
    assert found.nbytes == 5 * (8 * 16 * 4 + 8 * 1 * 4)  # ReLU's result, and what square saves
    assert found.nodes == 5 * 7  # addmm and its t, relu, addmm and its t, pow, mean


def test_a_backward_frees_the_bytes_and_leaves_the_nodes():
    """What is told of a list of training losses."""
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    found = graphs(net=net, stored=losses(net, 5, backward=True))["stored"]
    assert (found.nbytes, found.freed, found.graphs) == (0, True, 5)


def test_the_mean_of_a_sum_is_not_told_beside_it():
    """It keeps the same graph; another sum, with a term more, is told."""
    net = nn.Linear(4, 1)
    total = sum(losses(net, 5))
    found = graphs(net=net, total=total, mean=total / 5, more=total + losses(net, 1)[0])
    assert {(one.name, one.graphs) for one in found.values()} == {("total", 5), ("more", 6)}


def test_many_containers_in_one_are_told_as_that_one():
    """As a hook makes them, which keeps the outputs of every layer; a history of two lists stays two."""
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    acts = {number: losses(net, 5) for number in (7, 8, 9, 10)}
    history = {"loss": losses(net, 5), "val": losses(net, 5)}
    found = graphs(net=net, acts=acts, history=history)
    assert {(one.name, one.items) for one in found.values()} == {
        ("acts", 20), ("history['loss']", 5), ("history['val']", 5)}  # fmt: skip


def test_a_record_of_every_step_need_not_hold_many_graphs():
    """A list of pairs holds as many graphs as a list of losses."""
    net = nn.Linear(4, 1)
    pairs = list(enumerate(losses(net, 5)))
    records = [{"loss": loss, "step": step} for step, loss in enumerate(losses(net, 6))]
    found = graphs(net=net, pairs=pairs, records=records)
    assert {(one.name, one.items) for one in found.values()} == {("pairs", 5), ("records", 6)}


def test_three_graphs_are_not_many_and_one_graph_is_one():
    """A few results in a dictionary, and steps of one recurrent graph."""
    net = nn.Linear(4, 1)
    assert graphs(net=net, few=losses(net, 3)) == {}
    states = [torch.ones(1, 4, requires_grad=True)]
    for _ in range(6):
        states.append(states[-1] * 2)
    assert graphs(states=states) == {}


@pytest.mark.parametrize("scale", [lambda total: total, lambda total: total / 5, lambda total: total * 0.2])
def test_a_sum_of_losses_is_recognized(scale):
    """However it was begun, also where it is divided in the end."""
    net = nn.Linear(4, 1)
    for start in (0, 0.0, torch.zeros(())):
        total = start
        for loss in losses(net, 5):
            total = total + loss
        found = graphs(net=net, total=scale(total))["total"]
        assert (found.form, found.graphs) == ("sum", 5)


def test_a_sum_of_terms_of_one_forward_is_none():
    """Several losses of one batch share its graph; penalties of several parameters have different leaves."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    out = net(torch.ones(2, 4))
    several = out.mean() + out.std() + out.square().mean() + out.abs().mean() + out.max()
    penalty = sum(parameter.square().sum() for parameter in net.parameters())
    assert graphs(net=net, several=several, penalty=penalty) == {}


def test_long_containers_of_numbers_cost_nothing_and_mixed_ones_are_looked_through():
    """A list of a million numbers is one object; a tensor behind a tensor in a long list is found."""
    numbers, mixed = list(range(1_000_000)), [torch.ones(1)] * 5000 + [torch.zeros(3)]
    assert ObjectWalk(THOROUGH).through({"numbers": numbers, "ids": deque(numbers)}).looked == 2
    assert tm.check({"mixed": mixed}).tensors == 2


def test_a_look_that_is_cut_short_says_so_and_blames_nothing_on_the_session():
    """What was not reached may have a name."""
    big = torch.zeros(20, 2**18)
    names = {f"x{at}": torch.zeros(1) for at in range(50)}
    report = look({**names, "late": big, "Out": {1: big}, "_1": big}, budget=Budget(limit=30, seconds=10.0))
    assert report.retained == ()
    assert report.gaps[0].reason == "only 30 objects were searched"
    clock = iter(range(10_000))
    slow = look(
        names | {"more": [[[torch.ones(1)] for _ in range(99)]]}, budget=Budget(seconds=0.5, clock=lambda: next(clock))
    )
    assert "in 500 ms" in slow.gaps[0].reason


def test_a_queue_with_an_end_does_not_grow():
    """It is left out of the sizes that are compared."""
    report = tm.check({"queue": deque([torch.ones(3)], maxlen=5), "free": deque([torch.ones(3)])})
    assert [size.name for size in report.sizes] == ["free"]


def test_growth_takes_five_looks_and_equal_steps():
    """Four looks are not enough, and neither is growth by different amounts."""

    def after(*sizes: int):
        reports = []
        for count in sizes:
            reports.append(tm.check({"held": [torch.ones(4) for _ in range(count)]}, earlier=reports))
        return [(one.name, one.tensors, one.nbytes) for one in reports[-1].growing]

    assert after(1, 2, 3, 4) == []
    assert after(1, 2, 3, 4, 5) == [("held", (1, 2, 3, 4, 5), (16, 32, 48, 64, 80))]
    assert after(1, 2, 3, 4, 6) == []
    assert after(5, 4, 3, 2, 1) == []
    assert after(9, 1, 2, 3, 4, 5) != []


SOURCE = """
class Net:
    def __init__(self):
        self.a = 1  # self.b = 2
        # self.b = 3
        self.b: int = 4
        self.c, self.d = 5, 6

    def forward(self):
        self.b += 1
        self.e == 7
        self.c = 8

losses.append(loss)
history["loss"].append(1)
history[name].extend([2])
total += loss
memory = torch.cat([memory, x])
"losses.append(loss)"
meter.values.append(3)
"""


@pytest.fixture
def source():
    """Put a source where Python remembers sources; returns its file name and its names."""
    filename = "<ipython-input-77-abc>"
    linecache.cache[filename] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), filename)
    names: dict = {"losses": [], "loss": 0, "history": {"loss": [], "a": []}, "name": "a", "total": 0}
    exec(compile(SOURCE.split("losses.append", maxsplit=1)[0], filename, "exec"), names)
    yield filename, names["Net"]
    del linecache.cache[filename]


def test_lines_that_assign_an_attribute(source):
    """One a method; comments, comparisons and additions are none."""
    _, net = source
    lines = {name: [place.line for place in assigned(net, name)] for name in "abcdef"}
    assert lines == {"a": [4], "b": [6], "c": [7, 12], "d": [7], "e": [], "f": []}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("losses", 14), ("history['loss']", 15), ("history['a']", 16), ("total", 17), ("memory", 18),
        ("meter.values", 20), ("loss", None), ("other", None),
    ],
)  # fmt: skip
def test_lines_that_make_something_grow(source, name, line):
    """By any of the ways to write it; a string in the source is none."""
    found = ChangingLines([source[0]], lambda _file: 7).grown(name)
    assert (found.line if found else None) == line
    assert found is None or found.cell == 7


def test_a_key_in_a_variable_is_found_in_a_class_too(monkeypatch):
    """As an attribute is: what ``meter.history`` is outside, its class calls ``self.history``."""
    lines = ["class Meter:\n", "    def note(self, key, value):\n", "        self.history[key].append(value)\n"]
    monkeypatch.setitem(linecache.cache, "<meter>", (0, None, lines, "<meter>"))
    found = ChangingLines(["<meter>"]).grown("meter.history['loss']")
    assert found is not None
    assert found.line == 3


def test_two_lines_that_could_be_it_are_none():
    """Better no line than the wrong one."""
    filename = "<ipython-input-78-abc>"
    linecache.cache[filename] = (0, None, ["a.append(1)\n", "a.append(2)\n"], filename)
    assert ChangingLines([filename]).grown("a") is None
    del linecache.cache[filename]


def test_nothing_of_the_session_is_kept_alive_by_a_report():
    """Plain data, whatever was found."""
    net = nn.Sequential(nn.Linear(4, 4))
    net.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
    stored = losses(net, 20)
    gone = [weakref.ref(stored[0]), weakref.ref(net.layers[0])]
    report = tm.check({"net": net, "stored": stored})
    del net, stored
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert report.graphs[0].items == 20


def test_odd_objects_are_looked_past():
    """Proxies, properties that raise, classes without a module."""

    class Hostile:
        __slots__ = ()
        __class__ = property(lambda _self: 1 / 0)

        def __getattr__(self, name):
            raise AssertionError(name)

        def __bool__(self):
            raise AssertionError

        def __len__(self):
            raise AssertionError

    report = tm.check({"odd": Hostile(), "listed": [Hostile()], "x": torch.ones(2)})
    assert (report.tensors, report.findings) == (1, ())


def test_tensors_without_memory_keep_none():
    """On the meta device and fake ones, whatever their storages say; kinds without a storage are met as well."""
    meta = torch.zeros(40, 2**18, device="meta")
    with FakeTensorMode():
        fake = torch.zeros(40, 2**18)
    session = {"Out": {1: meta, 2: fake}, "_1": meta, "_2": fake}
    report = tm.check({**session, "row": meta[0], "sparse": torch.eye(3).to_sparse()})
    assert report.findings == ()
    assert (report.nbytes, report.retained, report.views, report.tensors) == (0, (), (), 4)
    assert {size.nbytes for size in report.sizes if size.name == "row"} == {0}


def test_memory_of_a_jagged_tensor_counts_once():
    """Its own storage only says how large it would be: what it holds lies in its values and offsets."""
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    report = tm.check({"jagged": jagged})
    assert report.nbytes == sum(size.nbytes for size in report.sizes if size.name == "jagged") == 6 * 3 * 4 + 3 * 8


def test_misuse_is_told_plainly():
    """What was given, and what would work."""
    with pytest.raises(TensorMagicError, match=r"takes names and their values.* but was given a list"):
        tm.check([torch.ones(2)])
    with pytest.raises(TensorMagicError, match="the reports of earlier checks"):
        tm.check({}, earlier=[1])
