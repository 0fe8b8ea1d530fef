"""The walk from what is named to all that it holds, with the place where each object was found."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tensormagic.collectors.objects.holdings import Holdings, begins_plainly, home_of, is_readable, mro_of
from tensormagic.collectors.objects.namespace import is_history, is_shells
from tensormagic.reports import Location
from tensormagic.reports.aliases import HolderKind
from tensormagic.words import plural, seconds_text

_KEPT_KINDS = {"history", "optimizer", "traceback", "generator", "function"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object was found.

    Attributes:
        path: How a person reaches it.
        kind: What sort of place it is.
        depth: How many steps it is from a name.
        location: The line at which a traceback or generator stands.
    """

    path: str
    kind: HolderKind
    depth: int = 0
    location: Location | None = None

    def inner(self, ending: str, kind: HolderKind) -> Place:
        """Return a place inside this one; what an optimizer or a traceback holds stays theirs."""
        return Place(self.path + ending, self.kind if self.kind in _KEPT_KINDS else kind, self.depth + 1, self.location)


Held = tuple[Place, Any]


class Referents(Holdings):
    """Says what objects hold, and how a person reaches it.

    Args:
        names: What tensors are called, by ``tensor._cdata``: the keys of an optimizer's state are parameters.
    """

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self._names = names

    def held(self, item: Any, place: Place) -> Iterator[Held]:
        """Yield what an object holds and where; nothing for what cannot hold a tensor."""
        if torch.optim.Optimizer in mro_of(type(item)):
            place = replace(place, kind="optimizer")
        elif place.depth and ModuleType in mro_of(type(item)):
            return  # one that another module imports is no holder of its own
        of_function, readers = type(item) is FunctionType, self._readers.get
        for how, name, value in self.of(item):
            if readers(type(value), value) is None:  # as `is_atom` says; a call of it would be a tenth of the time
                continue
            if how in _STORED and not of_function:
                yield place.inner(f".{name}", _STORED[how]), value
            else:
                yield self._inner(place, how, name), value

    def _inner(self, place: Place, how: str, name: Any) -> Place:
        """Return the place inside another where an object was found."""
        if how == "item":
            return place.inner(f"[{name if type(name) is int else self._key(name)}]", "item")
        if how == "suspended":
            function, where = name
            return replace(place, kind="generator", location=where).inner(f", local of {function}", "generator")
        if how == "frame":
            return replace(place, kind="traceback", location=name)
        kind, ending = _PLACES[how]
        if kind in {"function", "traceback"} and how != "local":
            place = replace(place, kind=kind)
        if how in {"same", "chained"}:
            return place
        return place.inner(ending.format(self._key(name) if how == "key" else name), kind)

    def _key(self, key: Any) -> str:
        """Return a dictionary's key as a person would write it."""
        if type(key) in {str, int, bool, float, tuple}:
            text = repr(key)
            return text if len(text) <= 40 else text[:39] + "…"
        if torch.Tensor in mro_of(type(key)):
            return self._names.get(key._cdata, "a tensor")
        return type(key).__name__


# By how something is held: what sort of place it is in; below, also what is written behind the path of its holder.
_STORED: dict[str, HolderKind] = {
    "attribute": "attribute", "registered": "module", "member": "module", "global": "attribute", "self": "attribute",
}  # fmt: skip
_PLACES: dict[str, tuple[HolderKind, str]] = {
    "key": ("item", ", key {}"),
    "element": ("item", ", an element"),
    "base": ("view", ""),  # what has a name is the view
    "array": ("array", ".{}"),
    "closure": ("function", ", closure over {}"),
    "default": ("function", ", default argument"),
    "argument": ("function", ".{}"),
    "cache": ("function", ", its cache"),
    "attribute": ("function", ".{}"),  # of a function
    "same": ("attribute", ""),
    "of error": ("traceback", ".{}"),
    "chained": ("traceback", ""),
    "local": ("traceback", ", local{}"),
}


# The walk: the nearest first, each object looked into once, as far as a budget allows.

_CLOCK_EVERY = 64
_CONTAINERS = frozenset({list, tuple, deque, set, frozenset, dict, OrderedDict})


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a search may take.

    Attributes:
        limit: Objects looked at.
        seconds: Time.
        clock: Gives the time in seconds.
    """

    limit: int = 20_000
    seconds: float = 0.05
    clock: Callable[[], float] = perf_counter

    def cut(self, looked: int, deadline: float) -> str:
        """Return why a search is to end now; empty where it may go on."""
        if looked > self.limit:
            return f"only {self.limit} objects were searched"
        if looked % _CLOCK_EVERY == 0 and self.clock() > deadline:
            return f"only {plural(looked, 'object')} were searched, in {seconds_text(self.seconds)}"
        return ""


def roots(namespace: Mapping[str, object]) -> Iterator[Held]:
    """Yield what the person has named, then IPython's history, then the last error."""
    named = [(name, value) for name, value in list(namespace.items()) if not is_shells(name)]
    for is_old in (False, True):
        for name, value in named:
            if is_history(name) == is_old:
                yield Place(name, "history" if is_old else "name"), value
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        yield Place(f"the last error ({type(error).__name__})", "traceback"), error


_KINDS: tuple[tuple[str, frozenset[type]], ...] = (
    ("tensor", frozenset({torch.Tensor})),
    ("module", frozenset({nn.Module})),
    ("optimizer", frozenset({torch.optim.Optimizer})),
    ("data", frozenset({Dataset, DataLoader})),
)


class _Kinds(dict[type, str]):
    """What sort of thing the objects of a class are; each class is judged once."""

    def __missing__(self, kind: type) -> str:
        known = (name for name, classes in _KINDS if not classes.isdisjoint(mro_of(kind)))
        own = home_of(kind).startswith("tensormagic.")
        self[kind] = next(known, "ours" if own else "container" if kind in _CONTAINERS else "")
        return self[kind]


@dataclass(slots=True)
class ReferenceWalk:
    """A walk. Holds what it has met until it is dropped: an address must not be used twice meanwhile.

    Attributes:
        budget: How long it may take.
        names: What tensors are called, by ``tensor._cdata``: the keys of an optimizer's state are parameters.
        with_bases: Whether to go from a view to its base: nobody is to hold that on account of one who keeps the walk.
        seen: What is not to be looked into any more, by ``id``.
        looked: How many were met so far.
        cut: Why not everything was looked through; empty where it was.
        refused: Paths of tensors that answer nothing, since code of their class raises.
    """

    budget: Budget
    names: dict[int, str] = field(default_factory=dict)
    with_bases: bool = True
    seen: dict[int, Any] = field(default_factory=dict)
    looked: int = 0
    cut: str = ""
    refused: list[str] = field(default_factory=list)
    kinds: _Kinds = field(default_factory=_Kinds)
    _references: Referents = field(init=False)
    _deadline: float = field(init=False)

    def __post_init__(self) -> None:
        """Let what is read be called by the names that are met; the time begins."""
        self._references = Referents(self.names)
        self._deadline = self.budget.clock() + self.budget.seconds

    def meet(self, starts: Iterable[Held]) -> Iterator[tuple[Place, Any, bool]]:
        """Yield everything that is met, as often as it is, and whether it is new.

        Optimizers come after everything else: what they hold is called by the names of the parameters.
        """
        pending, optimizers = deque(starts), deque[Held]()
        while (pending or optimizers) and not self.cut:
            place, item = pending.popleft() if pending else optimizers.popleft()
            kind = self.kinds[type(item)]
            if kind == "optimizer" and pending:
                optimizers.append((place, item))
                continue
            self.looked += 1
            is_new = id(item) not in self.seen
            if is_new and kind == "tensor" and not is_readable(item):
                self.refused.append(place.path)
                continue
            yield place, item, is_new
            if is_new:
                self.seen[id(item)] = item
                pending.extend(islice(self._inside(place, item, kind), self.budget.limit))
            self.cut = self.budget.cut(self.looked, self._deadline)

    def _inside(self, place: Place, item: Any, kind: str) -> Iterator[Held]:
        """Yield what an object holds; one that cannot be read holds nothing that could be told."""
        if kind == "ours" or (kind == "container" and begins_plainly(item, self._references.is_atom)):
            return
        base = None if self.with_bases or kind != "tensor" else item._base
        try:
            for inner, value in self._references.held(item, place):
                if (base is None or value is not base) and (type(value) not in _CONTAINERS or value):
                    yield inner, value
        except Exception:  # an odd object, or one that another thread is changing
            return
