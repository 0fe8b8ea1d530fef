"""Objects that raise at whatever they are asked lie in the namespace: every look goes round them."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

import tensormagic as tm


class Gone:
    """Something to refer to."""


class Unclassed:
    """Says its class by code of its own, which fails."""

    __class__ = property(lambda _: 1 / 0)


class Refusing:
    """Raises at each attribute, and at each question that Python has for it."""

    def __getattribute__(self, name):
        raise SystemExit(name)

    def __eq__(self, other):
        raise SystemExit

    def __hash__(self):
        raise SystemExit

    def __bool__(self):
        raise SystemExit

    def __len__(self):
        raise SystemExit

    def __iter__(self):
        raise SystemExit

    def __repr__(self):
        raise SystemExit


ODD = {
    "a dead proxy": lambda: weakref.proxy(Gone()),
    "a class that fails": Unclassed,
    "refuses": Refusing,
    "in a list": lambda: [weakref.proxy(Gone()), Unclassed(), Refusing()],
    "in a dictionary": lambda: {"a": weakref.proxy(Gone()), 1: Unclassed(), None: Refusing()},
}
LOOKS = {
    "tensors": tm.tensors,
    "aliases": tm.aliases,
    "memory": tm.memory,
    "check": tm.check,
    "rng": tm.rng,
    "inspect": lambda names: tm.inspect(names["x"], name="x", namespace=names),
    "why": lambda names: tm.why(names["net"].weight, namespace=names),
    "why of a module": lambda names: tm.why(names["net"], namespace=names),
}


def names_with(odd):
    return {"odd": odd, "x": torch.ones(3), "net": nn.Linear(2, 2), "generator": torch.Generator()}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_goes_round_it(look, odd):
    """The report can be had and read, and nothing is missing in it for that object's sake."""
    report = LOOKS[look](names_with(ODD[odd]()))
    assert str(report)
    assert not getattr(report, "gaps", ())


@pytest.mark.parametrize("odd", ODD)
def test_a_run_goes_round_it(odd):
    """So does everything that follows a run."""
    names = names_with(ODD[odd]())
    for run in (tm.trace, tm.track_memory, tm.watch_writes, tm.track_rng, tm.explain):
        with run(namespace=names) as followed:
            names["net"](torch.randn(1, 2, generator=names["generator"])).sum().backward()
        assert not getattr(followed.report, "gaps", ())
