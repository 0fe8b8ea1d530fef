"""The containers that a person's names lead to, and what taking something out of them would free."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import attributes_of, home_of, mro_of, registered
from tensormagic.collectors.releases.flow import Dominance, Sum
from tensormagic.collectors.releases.references import References
from tensormagic.collectors.releases.roots import Root
from tensormagic.collectors.where.source import is_own_code
from tensormagic.reports import Release

# The containers that a person's names lead to, as they would write them, and what can be taken out of each.
#
# Only what is certain to work is told: builtin containers by their own classes, keys that can be written down,
# attributes that lie in the object itself and that no class of the person's intercepts. No code of theirs runs.

MOST = 2_000  # containers
MOST_KEY = 60  # characters

_CLEARED = frozenset({list, dict, set, deque})  # whose ``clear`` lets go of all that they refer to
_MAPPINGS = frozenset({dict, OrderedDict, defaultdict})
_SEQUENCES = frozenset({list, deque, tuple})
_KEYS = frozenset({str, int, bool})
_LEFT_ALONE = frozenset({torch.Tensor, torch.optim.Optimizer, type, BaseException})
_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None)})


@dataclass(slots=True)
class Container:
    """Something that others can be taken out of. Holds it, until it is dropped.

    Attributes:
        path: How a person writes it.
        item: The object.
        holder: The object that refers to what lies in it: itself, or the dictionary of its attributes.
        entries: What can be taken out: the path of each, and the value; values that hold nothing are left out.
    """

    path: str
    item: Any
    holder: Any
    entries: list[tuple[str, Any]]

    @property
    def clears(self) -> bool:
        """Whether it can be emptied in one go."""
        return type(self.item) in _CLEARED


def containers(names: Mapping[str, Any]) -> Iterator[tuple[str, Container]]:
    """Yield what names lead to, with the name, the nearest first; each under the name that leads there first.

    Args:
        names: Names, and what they are bound to.
    """
    pending = deque((name, name, value) for name, value in names.items() if name.isidentifier())
    seen: set[int] = set()
    found = 0
    while pending and found < MOST:
        name, path, item = pending.popleft()
        if id(item) in seen or type(item) in _ATOMS:
            continue
        seen.add(id(item))
        opened = _opened(path, item)
        if opened is None:
            continue
        container, inner = opened
        if container is not None:
            found += 1
            yield name, container
        pending.extend((name, path, value) for path, value in inner)


def _opened(path: str, item: Any) -> tuple[Container | None, list[tuple[str, Any]]] | None:
    """Return an object as a container, and where to look on: None for what is not looked into."""
    kind = type(item)
    if kind in _SEQUENCES:
        entries = _held((f"{path}[{at}]", value) for at, value in enumerate(item))
        return (None if kind is tuple else Container(path, item, item, entries)), entries
    if kind in _MAPPINGS:
        keyed = ((key, value) for key, value in dict.items(item) if type(key) in _KEYS)
        entries = _held((f"{path}[{key!r}]", value) for key, value in keyed if len(repr(key)) <= MOST_KEY)
        return Container(path, item, item, entries), entries
    if kind is set:
        return Container(path, item, item, []), []
    return None if any(each in _LEFT_ALONE for each in mro_of(kind)) else _of_instance(path, item)


def _of_instance(path: str, item: Any) -> tuple[Container | None, list[tuple[str, Any]]] | None:
    """Return an object by its attributes; of a module those that are registered are only looked on from."""
    kind = type(item)
    attributes = attributes_of(item)
    if not attributes or _defining(kind, "__getattribute__") is not object:
        return None
    plain = ((name, value) for name, value in attributes.items() if type(name) is str and _is_own(kind, name))
    entries = _held((f"{path}.{name}", value) for name, value in plain)
    inner = [*entries, *_registered(path, item)] if nn.Module in mro_of(kind) else entries
    lets_go = _defining(kind, "__delattr__") in {object, nn.Module} and _is_theirs(kind)
    return (Container(path, item, attributes, entries) if lets_go and entries else None), inner


def _registered(path: str, module: nn.Module) -> list[tuple[str, Any]]:
    return [(f"{path}.{name}" if name.isidentifier() else f"{path}[{name}]", child)
            for name, child in registered(module, "_modules").items()
            if child is not None and (name.isidentifier() or _counts(module, name))]  # fmt: skip


def _counts(module: nn.Module, name: str) -> bool:
    """Return whether a module's children are reached by their number."""
    return name.isdecimal() and not {nn.Sequential, nn.ModuleList}.isdisjoint(mro_of(type(module)))


def _is_theirs(kind: type) -> bool:
    """Return whether a class is one whose attributes a person may take away: their own, a module, a namespace."""
    home = home_of(kind)
    filename = getattr(sys.modules.get(home), "__file__", None)
    own = home not in {"", "builtins"} and (filename is None or is_own_code(filename))
    return own or kind is SimpleNamespace or nn.Module in mro_of(kind)


def _is_own(kind: type, name: str) -> bool:
    """Return whether an attribute is a person's, and what reading and deleting its name acts upon."""
    home = _defining(kind, name)
    intercepts = home is not None and any("__set__" in vars(each) for each in mro_of(type(vars(home)[name])))
    return name.isidentifier() and not name.startswith("_") and not intercepts


def _defining(kind: type, name: str) -> type | None:
    """Return the class that an attribute of a class is found in."""
    return next((each for each in mro_of(kind) if name in vars(each)), None)


def _held(every: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(path, value) for path, value in every if type(value) not in _ATOMS]


# What taking something out of a container would free: ``losses.clear()``, ``del losses[17]``, ``del net.cache``.

MOST_PARTS = 4  # of one name
SHARE = 8  # one item is told where it frees at least this part of what all of its container free
STANDS_OUT = 1.5  # and one of a sequence, which has no name, where it frees so many times what its items do on average
CUT = "the items of some containers were not measured; what each item would free is shown for the others"


@dataclass(slots=True)
class Items:
    """What lies in containers.

    Attributes:
        parts: By the number of a root, what taking something out of it frees, the most first.
        cut: Why not all were weighed; empty where all were.
    """

    parts: dict[int, tuple[Release, ...]] = field(default_factory=dict)
    cut: str = ""


def items_of(found: References, roots: Sequence[Root], dominance: Dominance, wanted: Collection[str] = ()) -> Items:
    """Return what taking something out of the containers frees that names lead to.

    Args:
        found: A walk that has ended.
        roots: What it began at.
        dominance: Asks its graph.
        wanted: Paths of items that are reported although they do not stand out.
    """
    names = {root.label: at for at, root in enumerate(roots) if root.kind == "name"}
    values = {name: value for name, at in names.items() for value in roots[at].values()}
    described: dict[int, dict[tuple[int, int], Release]] = {}
    items = Items()
    for name, container in containers(values):
        if dominance.steps < 0:
            items.cut = CUT
            break
        mine = described.setdefault(names[name], {})
        for key, one in _of_container(found, container, dominance, wanted):
            if key not in mine or _is_better(one, mine[key], wanted):
                mine[key] = one
    for at, by_what in described.items():
        order = sorted(by_what.values(), key=lambda one: (one.name not in wanted, -one.nbytes))
        if order:
            items.parts[at] = tuple(sorted(order[:MOST_PARTS], key=lambda one: -one.nbytes))
    return items


def _is_better(one: Release, other: Release, wanted: Collection[str]) -> bool:
    """Return whether the later of two that free the same is told: what was asked for, then the innermost to be emptied.

    Args:
        one: The later, further inside.
        other: The earlier.
        wanted: What was asked for.
    """
    if (one.name in wanted) != (other.name in wanted):
        return one.name in wanted
    return one.code.endswith(".clear()") or not other.code.endswith(".clear()")


def _of_container(
    found: References, container: Container, dominance: Dominance, wanted: Collection[str]
) -> Iterator[tuple[tuple[int, int], Release]]:
    """Yield what one container frees, all of it and item by item, each with what tells that set of storages."""
    number = found.number_of(container.holder)
    number = found.number_of(container.item) if number is None else number
    if number is None or not dominance.is_worth_asking(number):
        return
    below = dominance.below(number)
    whole = dominance.weighed(below)
    if not whole.nbytes or dominance.steps < 0:
        return
    if container.clears:
        yield _key(below, dominance), _release(container.path, whole, f"{container.path}.clear()")
    freed = list(_freed_by_items(found, container, number, dominance.parts(number, below), dominance))
    least = max(whole.nbytes / SHARE, _least(container, [one.nbytes for _, _, one in freed]))
    for path, nodes, one in freed:
        if one.nbytes >= least or path in wanted:
            yield _key(nodes, dominance), _release(path, one, f"del {path}")


def _freed_by_items(
    found: References, container: Container, number: int, parts: Sequence[Collection[int]], dominance: Dominance
) -> Iterator[tuple[str, Collection[int], Sum]]:
    """Yield the items that free something by themselves: the path, the nodes, their bytes."""
    places = _places(found.edges[number])
    for path, value in container.entries:
        at = places.get(found.number_of(value))
        one = Sum() if at is None else dominance.weighed(parts[at])
        if at is not None and one.nbytes:
            yield path, parts[at], one


def _least(container: Container, sizes: Sequence[int]) -> float:
    """Return what an item has to free to stand out among the others of a sequence."""
    several = len(sizes) > 1 and isinstance(container.item, list | deque)
    return STANDS_OUT * sum(sizes) / len(sizes) if several else 0.0


def _places(edges: Sequence[int]) -> Mapping[int | None, int]:
    """Return the place of each node that is referred to once."""
    places: dict[int | None, int] = {}
    for at, node in enumerate(edges):
        places[node] = -1 if node in places else at
    return {node: at for node, at in places.items() if at >= 0}


def _key(nodes: Collection[int], dominance: Dominance) -> tuple[int, int]:
    weighty = [node for node in nodes if dominance.weighs(node)]
    return min(weighty), len(weighty)


def _release(path: str, freed: Sum, code: str) -> Release:
    return Release(
        name=path, kind="item", nbytes=freed.nbytes, storages=freed.storages, reaches=freed.nbytes,
        device_bytes=dict(freed.devices), code=code,
    )  # fmt: skip
