"""The walk over a user's names finds what is theirs, runs none of their code, and always ends."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic.collectors.objects.children import names_of_parts
from tensormagic.collectors.objects.identity import place_of
from tensormagic.collectors.objects.namespace import (
    Walk,
    is_history,
    modules_in,
    walk_arrays,
)
from tensormagic.collectors.session.session_walk import THOROUGH, ObjectWalk


def names(namespace: dict[str, Any]) -> list[str]:
    """The names under which tensors are found."""
    return [name for name, _ in Walk(namespace).named(torch.Tensor)]


def test_tensors_in_builtin_containers() -> None:
    """Lists, tuples, dictionaries and what derives from them, nested, spelt as one would index them."""
    t = torch.zeros(2)
    pair = namedtuple("pair", "left right")  # noqa: PYI024
    namespace = {
        "a": t, "batch": [t, (t, [t])], "state": OrderedDict(w=t, inner={"b": t}), "pair": pair(t, 1),
        "top": torch.zeros(2, 2).max(0), "by_number": {3: t},
    }  # fmt: skip
    assert names(namespace) == [
        "a", "batch[0]", "batch[1][0]", "batch[1][1][0]", "state['w']", "state['inner']['b']", "pair[0]", "top[0]",
        "top[1]", "by_number[3]",
    ]  # fmt: skip


def test_modules_spell_names_as_named_parameters_does() -> None:
    """Parameters, buffers, submodules and plain tensor attributes; tied weights under both names."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net.tied = nn.Linear(2, 2)
    net.tied.weight = net[0].weight
    net.plain = torch.zeros(1)
    found = names({"net": net})
    assert {name.removeprefix("net.") for name in found} == {
        *dict(net.named_parameters(remove_duplicate=False)), *dict(net.named_buffers()), "plain",
    }  # fmt: skip
    assert len(found) == len(set(found))


def test_gradients_of_leaves_are_found_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    """A leaf's gradient has a name; that of other tensors is not asked for, for torch would warn."""
    w = torch.ones(2, requires_grad=True)
    y = w * 2
    y.sum().backward()
    assert names({"w": w, "y": y}) == ["w", "w.grad", "y"]
    assert not recwarn.list


@pytest.mark.parametrize("name", ["_", "__", "___", "_i", "_ii", "_12", "_i12", "_oh", "_dh", "In", "Out", "__name__"])
def test_history_is_skipped(name: str) -> None:
    """IPython's history is not the user's naming."""
    assert is_history(name)
    assert names({name: torch.zeros(1)}) == []


@pytest.mark.parametrize("name", ["_x", "x_", "i", "_input", "oh", "inside", "_hidden1"])
def test_own_names_with_underscores_are_kept(name: str) -> None:
    """A leading underscore alone does not make a name history."""
    assert names({name: torch.zeros(1)}) == [name]


class Booby:
    """An object that minds being looked at."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} was asked for")

    def __len__(self) -> NoReturn:
        raise AssertionError("its length was asked for")

    def __iter__(self) -> NoReturn:
        raise AssertionError("it was iterated")


class BoobyDict(dict[str, Any]):
    """A dictionary with items of its own making."""

    def items(self) -> NoReturn:
        raise AssertionError("its own items() was called")


class BoobyModule(nn.Module):
    """A module that minds being asked for attributes."""

    def __init__(self) -> None:
        super().__init__()
        self._parameters["w"] = nn.Parameter(torch.zeros(1))

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} was asked for")

    @property
    def lazy(self) -> NoReturn:
        """A property that must not run."""
        raise AssertionError("a property ran")


def test_no_code_of_the_persons_runs() -> None:
    """Attributes, lengths and iterators of somebody's own classes stay unused; their tensors are still found."""
    namespace = {"booby": Booby(), "d": BoobyDict(t=torch.zeros(1)), "m": BoobyModule(), "json": json, "f": names}
    assert names(namespace) == ["d['t']", "m.w"]


def test_classes_of_any_metaclass_are_passed_by() -> None:
    """A class made by another metaclass holds nothing to look at, and does not hide what comes after it."""
    import abc
    import enum

    class Abstract(abc.ABC):  # noqa: B024  (its metaclass is what counts)
        """Its metaclass is no ``type``; its ``__dict__`` is a view."""

        shared = torch.ones(2)

    def function() -> None:
        """Hold classes, as decorated functions do."""

    function.constraints = [Abstract, enum.Enum]
    namespace = {"function": function, "Abstract": Abstract, "x": torch.ones(1)}
    walk = Walk(namespace)
    assert [name for name, _ in walk.named(torch.Tensor)] == ["x"]
    assert walk.complete


def test_an_object_that_cannot_be_looked_into_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever looking into one object raises, the others are found, and the walk says which one it is."""
    from tensormagic.collectors.objects import namespace as module

    original = module.children

    def children(table: object, path: str, *rest: object) -> object:
        if path == "odd":
            raise TypeError("descriptor does not apply")
        return original(table, path, *rest)

    monkeypatch.setattr(module, "children", children)
    walk = Walk({"odd": [torch.ones(1)], "x": torch.ones(1)})
    assert [name for name, _ in walk.named(torch.Tensor)] == ["x"]
    assert walk.gap == "odd cannot be read: their class raises an error"


def test_cycles_end() -> None:
    """Lists that hold themselves and modules that hold their owners are walked once."""
    loop: list[Any] = [torch.zeros(1)]
    loop.append(loop)
    net = nn.Linear(1, 1, bias=False)
    net.__dict__["_modules"]["me"] = net
    assert names({"loop": loop, "net": net}) == ["loop[0]", "net.weight"]
    assert [name for name, _ in modules_in({"net": net})] == ["net"]


def test_deep_nesting_of_modules_needs_no_recursion() -> None:
    """Three thousand modules inside each other are walked."""
    outer = inner = nn.Module()
    for _ in range(3000):
        inner.child = nn.Module()
        inner = inner.child
    inner.weight = nn.Parameter(torch.zeros(1))
    assert len(names({"net": outer})) == 1


def test_limits_are_kept_and_admitted() -> None:
    """Past its limit the walk stops, and says that it did; so it does for lists that are too long."""
    walk = Walk({f"t{at}": torch.zeros(1) for at in range(50)}, limit=20)
    assert (len(list(walk_arrays(walk))), walk.looked, walk.complete) == (20, 20, False)
    long = Walk({"rows": [torch.zeros(1)] * 5000})
    assert (len(list(walk_arrays(long))), long.looked, long.complete) == (1000, 1001, False)
    losses = Walk({"losses": [0.5] * 5000})
    assert (list(walk_arrays(losses)), losses.looked, losses.complete) == ([], 1, True)
    short = Walk({"a": torch.zeros(1), "n": np.zeros(1)})
    assert ([name for name, _ in walk_arrays(short)], short.complete) == (["a", "n"], True)


def test_a_name_with_very_many_objects_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others come after the first of these, and the rest of these last, each once and in order."""
    monkeypatch.setattr("tensormagic.collectors.objects.namespace._FIRST", 4)
    rows, x = [torch.zeros(1) for _ in range(9)], torch.ones(2)
    walk = Walk({"rows": rows, "x": x, "d": {"y": x}})
    expected = [*(f"rows[{at}]" for at in range(3)), "x", "d['y']", *(f"rows[{at}]" for at in range(3, 9))]
    assert ([name for name, _ in walk_arrays(walk)], walk.complete) == (expected, True)
    few = Walk({"rows": rows, "x": x}, limit=6)
    assert ([name for name, _ in walk_arrays(few)], few.complete) == (
        ["rows[0]", "rows[1]", "rows[2]", "x", "rows[3]"],
        False,
    )


def test_a_walk_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was searched is said; every name that comes early enough is there."""
    ticks = iter([0.0, 1.0, 3.0])
    monkeypatch.setattr("tensormagic.collectors.objects.namespace.time.thread_time", lambda: next(ticks))
    walk = Walk.thorough({"x": torch.ones(2), "rows": [torch.zeros(1) for _ in range(900)]})
    assert [name for name, _ in walk_arrays(walk)][:2] == ["x", "rows[0]"]
    assert walk.looked == 128
    assert walk.gap == "only 128 of the names, items and attributes were searched"


def test_outermost_modules_are_named_once() -> None:
    """A layer that has a name of its own still belongs to its network, in whichever order they are found."""
    net = nn.Sequential(nn.Linear(2, 2))
    for namespace in ({"layer": net[0], "net": net, "same": net}, {"net": net, "layer": net[0]}):
        assert modules_in(namespace) == [("net", net)]
    assert [name for name, _ in modules_in({"nets": [nn.Linear(1, 1), nn.Linear(1, 1)]})] == ["nets[0]", "nets[1]"]


def test_classes_of_every_metaclass_are_passed_over() -> None:
    """An abstract class or an enumeration among the names, or a class without a module, stops nobody."""
    nowhere: dict[str, type] = {}
    exec("class Nowhere: pass", {"__build_class__": __build_class__, "__name__": ""}, nowhere)
    namespace = {"Callable": Callable, "Colour": Enum("Colour", "red"), **nowhere, "made": nowhere["Nowhere"]()}
    assert names({**namespace, "x": torch.zeros(1)}) == ["x"]


def test_a_layer_left_over_from_a_loop_is_called_by_its_model() -> None:
    """A model that was named before the one that wraps it keeps its own name."""
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    wrapper = nn.Sequential(net)
    left_over = {"net": net, "layer": net[2], "_": net[0]}
    assert names_of_parts(left_over) == {"layer"}
    assert names(left_over) == ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"]
    assert [name for name, _ in Walk(left_over).named(nn.Linear)] == ["net.0", "net.2", "layer"]
    assert place_of(net[2], left_over) == "net.2"
    assert names_of_parts({"net": net, "wrapper": wrapper}) == set()
    assert place_of(net, {"net": net, "wrapper": wrapper}) == "net"
    walked = ObjectWalk(THOROUGH).through(left_over)
    assert {place.path for place, _ in walked.visits} >= {"net.2.weight"}
    assert not [place.path for place, _ in walked.visits if place.path.startswith("layer")]


def test_a_part_that_the_walk_of_its_model_does_not_reach_keeps_its_name() -> None:
    """A long list is walked in part; and what IPython keeps of a layer gives it no name before its model does."""
    wide = nn.ModuleList([nn.Linear(1, 1) for _ in range(1200)])
    assert "last.weight" in [name for name, _ in Walk({"wide": wide, "last": wide[1150]}).named(torch.Tensor)]
    net = nn.Sequential(nn.Linear(2, 2))
    kept = {"_oh": {3: net[0]}, "Out": {3: net[0]}, "net": net, "layer": net[0], "_3": net[0]}
    paths = [place.path for place, _ in ObjectWalk(THOROUGH).through(kept).visits]
    assert paths[:2] == ["net.0.weight", "net.0.bias"]


class Hidden(nn.Module):
    """Tells nobody what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def named_modules(self, *_: Any, **__: Any) -> Any:
        yield "", self


def test_a_module_that_its_holder_does_not_name_keeps_its_own_name() -> None:
    """``named_modules`` is the user's to override."""
    holder = Hidden()
    assert place_of(holder.inner, {"holder": holder, "x": holder.inner}) == "x"
