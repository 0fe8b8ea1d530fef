"""What objects hold, with the name of each: objects, slots, closures, optimizers; and none of their code runs."""

from __future__ import annotations

import functools
import types
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic.collectors.memory.freed import collect_freeable
from tensormagic.collectors.objects.children import inside
from tensormagic.collectors.objects.namespace import Walk
from tensormagic.collectors.session.session_walk import THOROUGH, ObjectWalk

T = torch.zeros(2)


@pytest.mark.parametrize("seed", range(50))
def test_modules_that_several_hold_have_the_path_that_torch_gives_them(seed: int) -> None:
    """In the order of ``named_modules()``, shared modules and circles included."""
    random = Random(seed)
    pool = [nn.Module() for _ in range(random.randrange(1, 7))]
    for module in pool:
        for at in range(random.randrange(4)):
            module.register_module(f"m{at}", random.choice([*pool, None]))
    expected = [(f"net.{path}".rstrip("."), module) for path, module in pool[0].named_modules()]
    assert list(inside("net", pool[0])) == expected


class Shown:
    """A key whose text is its own business."""

    def __repr__(self) -> NoReturn:
        """Fail where it is asked for."""
        raise AssertionError


def test_keys_are_written_as_a_user_writes_them() -> None:
    """Every literal is; of what is none only the class is told, and no code of it runs."""
    keys = (None, 1.5, b"x", (0, (1, "a")), (), torch.float32)
    held = dict.fromkeys((*keys, float("nan"), Shown(), (Shown(), 1)), T)
    found = [name for name, _ in Walk({"d": held}).named(torch.Tensor)]
    assert found == [f"d[{key!r}]" for key in keys]
    visits = ObjectWalk(THOROUGH).through({"d": held}).visits
    assert [place.path for place, _ in visits][len(keys) :] == ["d[float]", "d[Shown]", "d[tuple]"]


def names(**namespace: Any) -> list[str]:
    """The names under which tensors are found."""
    return [name for name, _ in Walk(namespace).named(torch.Tensor)]


@dataclass
class Batch:
    """A dataclass of the user's own."""

    x: Any
    label: Any = None


@dataclass(frozen=True, slots=True)
class Slotted:
    """One with slots, and one of them never filled."""

    x: Any


class Unfilled:
    """Slots of which one was never filled, and an instance dictionary besides."""

    __slots__ = ("__dict__", "empty", "full")


def unfilled() -> Unfilled:
    made = Unfilled()
    made.full, made.more = T, T
    return made


def closing(over: Any) -> Any:
    """Return a function that closes over something, and over a name that is never bound."""

    def inner() -> Any:
        return over, later

    if over is None:
        later = 1
    return inner


def with_default(x: Any = T, *, y: Any = T) -> Any:
    """A function with tensors for defaults."""
    return x, y


class Owner:
    """An object with a method."""

    def __init__(self) -> None:
        self.x = T

    def method(self) -> None:
        """Do nothing."""


class Stateful(nn.Module):
    """A module that keeps tensors in plain containers."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = {"keys": [T]}
        self.lstm = nn.LSTM(1, 1)


HELD = {
    "a dataclass": (Batch(T, [T]), ["h.x", "h.label[0]"]),
    "a dataclass with slots": (Slotted(T), ["h.x"]),
    "slots and a dictionary": (unfilled(), ["h.more", "h.full"]),
    "an object in an object": (Batch(Batch(T)), ["h.x.x"]),
    "a namespace object": (types.SimpleNamespace(x=T), ["h.x"]),
    "a deque": (deque([T, (T,)]), ["h[0]", "h[1][0]"]),
    "a set": ({T}, ["list(h)[0]"]),
    "a closure": (closing(T), ["h.<closure>.over"]),
    "defaults": (with_default, ["h.__defaults__[0]", "h.__kwdefaults__['y']"]),
    "a bound method": (Owner().method, ["h.__self__.x"]),
    "a data set": (torch.utils.data.TensorDataset(T, T), ["h.tensors[0]", "h.tensors[1]"]),
    "a loader": (torch.utils.data.DataLoader(torch.utils.data.TensorDataset(T)), ["h.dataset.tensors[0]"]),
    "deep nesting": ({"a": [{"b": ({"c": T},)}]}, ["h['a'][0]['b'][0]['c']"]),
}  # fmt: skip


@pytest.mark.parametrize("held", HELD)
def test_what_is_held_has_its_name(held: str) -> None:
    """Spelt as one would write it, a closure's variable aside, for which Python has no spelling."""
    item, expected = HELD[held]
    assert [name for name in names(h=item) if not name.endswith("sampler.data_source.tensors[0]")] == expected


def test_a_partial_function() -> None:
    """Its arguments are found, and what its function closes over."""
    assert names(h=functools.partial(closing(T), T, y=T)) == [
        "h.func.<closure>.over", "h.args[0]", "h.keywords['y']",
    ]  # fmt: skip


def test_containers_in_a_module() -> None:
    """Its own are looked through; the second references that torch's modules keep privately are not."""
    found = names(net=Stateful())
    assert "net.cache['keys'][0]" in found
    assert [name for name in found if "_flat" in name] == []
    assert "net.lstm.weight_ih_l0" in found


def test_an_optimizer() -> None:
    """What it updates, and its state under the parameter's own name, where that has one."""
    net = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert names(opt=optimizer, net=net) == [
        "opt.param_groups[0]['params'][0]", "opt.state[net.weight]['momentum_buffer']", "net.weight", "net.weight.grad",
    ]  # fmt: skip
    assert names(opt=optimizer) == [
        "opt.param_groups[0]['params'][0]", "opt.state[opt.param_groups[0]['params'][0]]['momentum_buffer']",
    ]  # fmt: skip


class Mined:
    """An object every part of which minds being looked at."""

    def __init__(self) -> None:
        self.__dict__["x"] = T

    @property
    def lazy(self) -> NoReturn:
        """A property that must not run."""
        raise AssertionError("a property ran")

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} was asked for")

    def __iter__(self) -> NoReturn:
        raise AssertionError("it was iterated")

    def __eq__(self, other: object) -> NoReturn:
        raise AssertionError("it was compared")

    def __hash__(self) -> NoReturn:
        raise AssertionError("it was hashed")


class Pretending:
    """An object whose class claims a dictionary of its own making."""

    @property
    def __dict__(self) -> NoReturn:  # type: ignore[override]
        """Never to be asked for."""
        raise AssertionError("its dictionary was made")


class MinedList(list):
    """A list with an iterator of its own."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("its own iterator ran")


def test_none_of_the_persons_code_runs() -> None:
    """Dictionaries and slots are read where Python keeps them; properties and iterators stay unused."""
    assert names(m=Mined(), p=Pretending(), l=MinedList([T])) == ["m.x", "l[0]"]


def test_no_property_runs_that_stands_for_a_dictionary() -> None:
    """Nor in the walk through the session, where what it raised was passed over in silence."""
    asked = []

    class Answering:
        """An object that makes its dictionary when it is asked."""

        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            asked.append(self)
            return {"x": T}

    space = {"a": Answering(), "held": [Answering()]}
    assert ObjectWalk(THOROUGH).through(space).tensors == 0
    collect_freeable(space)
    assert not asked


def test_no_length_of_the_persons_is_asked_for() -> None:
    """How long a list is Python itself knows."""

    class Minding(list):
        """A list with a length of its own."""

        def __len__(self) -> int:
            asked.append(self)
            return 0

    asked: list[Any] = []
    space = {"a": Minding([T])}
    collect_freeable(space)
    ObjectWalk(THOROUGH).through(space)
    assert not asked


def test_cycles_between_objects_end() -> None:
    """Two objects that hold each other are walked once a name."""
    a, b = Batch(T), Batch(T)
    a.label, b.label = b, a
    assert names(a=a) == ["a.x", "a.label.x"]


def test_machinery_is_left_alone() -> None:
    """Loggers and this package's own objects are no place where a user keeps tensors."""
    import logging

    logger = logging.getLogger("tensormagic.tests.mine")
    logger.x = T
    assert names(logger=logger) == []
    del logger.x
    assert names(arrays=[np.zeros(2)]) == []
