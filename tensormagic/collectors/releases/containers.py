"""The containers that a person's names lead to, as they would write them, and what can be taken out of each.

Only what is certain to work is told: builtin containers by their own classes, keys that can be written down, attributes
that lie in the object itself and that no class of the person's intercepts. No code of theirs runs.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import mro_of, registered
from tensormagic.collectors.where.source import is_own_code

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
    try:
        attributes = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None
    if type(attributes) is not dict or _defining(kind, "__getattribute__") is not object:
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
    home = type.__getattribute__(kind, "__module__")
    filename = getattr(sys.modules.get(home), "__file__", None) if type(home) is str else ""
    own = home != "builtins" and (filename is None or is_own_code(filename))
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
