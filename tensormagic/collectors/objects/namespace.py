"""What a person can name: tensors, arrays and modules reached from a namespace, without running their code."""

from __future__ import annotations

import functools
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

from tensormagic.collectors.objects.holdings import (
    MODULE_OWN,
    SCRIPT_METHODS,
    Holdings,
    attributes_of,
    buffers_of,
    can_hold,
    gradient_there,
    home_of,
    is_kind,
    is_opaque,
    is_opened,
    is_readable,
    mro_of,
    registered,
)
from tensormagic.words import listed

__all__ = ["LIMIT", "Walk", "is_history", "is_kind", "modules_in", "walk_arrays", "walk_tensors"]


# Which of an object's many names to tell: the quickest to write, and those that say something.

# What every optimizer holds of every model: no second name that a person has to be told of.
OPTIMIZED = re.compile(r"\.param_groups\[\d+\]\['params'\]\[\d+\]$")


def telling(names: Iterable[str]) -> list[str]:
    """Return the names that say more than that an optimizer updates something; all where there are no others."""
    every = list(names)
    return [name for name in every if not OPTIMIZED.search(name)] or every


def plain(names: Iterable[str]) -> list[str]:
    """Return the names without dots and brackets where there are any, else those that are telling."""
    every = list(names)
    return [name for name in every if name.isidentifier()] or telling(every)


def nearest(names: list[str]) -> list[str]:
    """Return the names, those that are quickest to write first."""
    return sorted(names, key=lambda name: name.count(".") + name.count("[")) if len(names) > 1 else names


# Modules inside modules, and what they have registered, read without running code of their classes.


def is_torch_own(kind: type) -> bool:
    """Return whether a class is one of torch's: what these keep beside their registries is their own business."""
    return home_of(kind).startswith("torch.")


def inside(name: str, root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and every one inside it in order, each once, by path; no code of a class runs."""
    seen, pending = {id(root)}, [(name, root)]
    while pending:
        path, module = pending.pop()
        yield path, module
        if not (inner := registered(module, "_modules")):
            continue
        for key, child in reversed(list(inner.items())):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                pending.append((f"{path}.{key}", child))


def held_by(root: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the parameters and buffers of a module."""
    for _, module in inside("", root):
        for name in ("_parameters", "_buffers"):
            yield from (held for held in list(registered(module, name).values()) if held is not None)


Child = tuple[str, object, int]  # name, object, and how many containers deep one may still go from there
Label = Callable[[object], str]

NO_FURTHER = -1  # a child that is to be seen, but not looked into
# What a person cannot reach by an expression is read by its attributes alone, as an object of any other class.
_WRITABLE = (nn.Module, dict, list, tuple, deque, set, frozenset, FunctionType, MethodType, functools.partial)


def children(table: Holdings, path: str, item: Any, depth: int, label: Label) -> Iterator[Child]:
    """Yield what an object holds, with the expression that reaches it and how deep containers may still go.

    Args:
        table: Says what objects hold.
        path: The expression that reaches the object.
        item: The object.
        depth: How many containers deep one may still go from it.
        label: Gives the name of a tensor that is a key: of a parameter, in the state of its optimizer.
    """
    if is_kind(item, torch.optim.Optimizer):
        yield from _optimizer_children(path, item, depth, label)
        return
    is_writable = is_kind(item, *_WRITABLE)
    if not is_writable and not is_opened(type(item)):
        return
    for how, name, value in table.of(item) if is_writable else table.of_instance(item):
        if how not in _STEPS or (how == "item" and type(name) not in {str, int}):
            continue
        spelt, steps = _STEPS[how]
        if how == "member":
            if name in MODULE_OWN or _is_second(item, name, value):
                continue
            steps = 0 if is_kind(value, torch.Tensor, nn.Module) else 1
        elif how == "attribute" and is_kind(item, FunctionType):
            steps = 0
        yield spelt.format(path, name), value, depth - steps


def _is_second(module: nn.Module, name: str, value: object) -> bool:
    """Return whether a module of torch's keeps a second reference there; a scripted one does so in its methods, too."""
    private = name.startswith("_") or is_kind(value, *SCRIPT_METHODS)
    return private and is_torch_own(type(module)) and not is_kind(value, torch.Tensor)


# By how something is held: the expression that reaches it, and how many containers deep that is.
_STEPS = {
    "item": ("{}[{!r}]", 1),
    "element": ("list({})[{}]", 1),
    "closure": ("{}.<closure>.{}", 1),
    "registered": ("{}.{}", 0),
    "argument": ("{}.{}", 0),
    "member": ("{}.{}", 1),
    "attribute": ("{}.{}", 1),
    "default": ("{}.{}", 1),
    "self": ("{}.{}", 1),
}


def _optimizer_children(path: str, optimizer: Any, depth: int, label: Label) -> Iterator[Child]:
    """Yield what an optimizer updates, and what it remembers of each."""
    attributes = attributes_of(optimizer)
    names: dict[int, str] = {}
    for at, group in enumerate(attributes.get("param_groups") or ()):
        for name, parameter in _parameters_of(f"{path}.param_groups[{at}]", group):
            names[id(parameter)] = name
            yield name, parameter, NO_FURTHER
    for parameter, state in list(dict.items(attributes.get("state") or {})):
        key = label(parameter) or names.get(id(parameter), repr(parameter) if is_opaque(parameter) else "?")
        yield f"{path}.state[{key}]", state, depth - 1


def _parameters_of(path: str, group: Any) -> Iterator[tuple[str, object]]:
    held: Any = dict.get(group, "params") if is_kind(group, dict) else None
    if is_kind(held, list):
        yield from ((f"{path}['params'][{at}]", parameter) for at, parameter in enumerate(list.__iter__(held)))


def gradient(path: str, x: torch.Tensor) -> list[Child]:
    """Return a leaf's gradient; that of other tensors is not read, for torch warns when it is."""
    with torch._C.DisableTorchFunction():
        grad = gradient_there(x, retained=False)
    return [] if grad is None else [(f"{path}.grad", grad, 0)]


# What a person can name: tensors and arrays reached from a namespace, without running any of the person's code.
#
# What is inside an object is `collectors.objects.holdings`' knowledge; this is the walk over all of it: every name's
# whole tree in turn, each object once a name, never deeper or longer than its bounds, and saying so where they were
# met.

LIMIT = 20_000
_DEPTH = 6
_ITEMS = 1000
# IPython's own names: input and output history (`_`, `_12`, `_i12`, `_oh`, `_ih`) and helpers.
_HISTORY = re.compile(r"_+|_i+|_i?\d+|_[oid]h|In|Out|exit|quit|get_ipython|__\w+__")
_SHELLS = frozenset({"In", "_ih", "_oh", "_dh", "exit", "quit", "get_ipython", "open"})


@dataclass(slots=True)
class Walk:
    """A walk over everything that a namespace names.

    Attributes:
        namespace: Names and what they are bound to.
        limit: How many names, items and attributes to look at before giving up.
        items: How many items of one container to look at.
        gradients: Whether to look at tensors' gradients, too: another thread's engine may be putting one there, and
            torch does not guard that against who reads it.
        looked: How many were looked at so far.
        complete: Whether nothing was left out for being too many.
        refused: The names of what cannot be looked into, since code of its class raises.
        buffers: What the modules that were met have registered as buffers, by ``id``, good while these are alive, and
            whether ``state_dict()`` has it.
    """

    namespace: Mapping[str, object]
    limit: int = LIMIT
    items: int = _ITEMS
    gradients: bool = True
    looked: int = 0
    complete: bool = True
    refused: list[str] = field(default_factory=list)
    buffers: dict[int, bool] = field(default_factory=dict, repr=False)
    _labels: dict[int, str] | None = field(default=None, repr=False)
    _table: Holdings = field(default_factory=Holdings, repr=False)

    @property
    def gap(self) -> str:
        """Why not everything was looked through; empty where it was."""
        told = []
        if self.refused:
            told.append(f"{listed(list(dict.fromkeys(self.refused)))} cannot be read: their class raises an error")
        if not self.complete:
            told.append(f"only {self.looked} of the names, items and attributes were searched")
        return "; ".join(told)

    def named(self, *kinds: type) -> Iterator[tuple[str, Any]]:
        """Yield what is of one of these classes, under every name that reaches it, each name's whole tree in turn."""
        wanted = _Wanted(kinds)
        for name, value in list(self.namespace.items()):
            if not is_history(name):
                yield from self._below(name, value, wanted)

    def _below(self, name: str, value: object, wanted: _Wanted) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        pending = [(name, value, _DEPTH)]
        while pending:
            path, item, depth = pending.pop()
            if self.looked >= self.limit:
                self.complete = False
                return
            self.looked += 1
            if is_kind(item, torch.Tensor) and not is_readable(item):
                self.refused.append(path)
                continue
            if wanted[type(item)]:
                yield path, item
            if id(item) in seen or not can_hold(item, depth):
                continue
            seen.add(id(item))
            pending.extend(reversed(self._held(path, item, depth)))

    def _held(self, path: str, item: Any, depth: int) -> list[Child]:
        """Return what an object holds that may be worth looking at, of long containers the beginning.

        A long container that begins with nothing but numbers and strings is taken to hold nothing else.
        """
        try:
            if is_kind(item, torch.Tensor):
                return gradient(path, item) if self.gradients else []
            if is_kind(item, nn.Module):
                self.buffers.update(buffers_of(item))
            found = list(itertools.islice(children(self._table, path, item, depth, self._label), self.items + 1))
        except Exception:  # one object that cannot be looked into does not hide the others
            self.refused.append(path)
            return []
        worth = [child for child in found[: self.items] if not is_opaque(child[1])]
        self.complete = self.complete and (len(found) <= self.items or not worth)
        return worth

    def _label(self, item: object) -> str:
        """Return the name of a parameter of the modules that have a name, or of a tensor that has one; else nothing."""
        if self._labels is None:
            plain = {name: value for name, value in self.namespace.items() if is_kind(value, nn.Module, torch.Tensor)}
            named = list(Walk(plain, self.limit).named(torch.Tensor))
            self._labels = {id(tensor): name for name, tensor in reversed(named)}
        return self._labels.get(id(item), "")


class _Wanted(dict[type, bool]):
    """Whether a class is one of the wanted ones or derived from one; each class is judged once a walk."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, kind: type) -> bool:
        self[kind] = any(wanted in mro_of(kind) for wanted in self._kinds)
        return self[kind]


def is_history(name: str) -> bool:
    """Return whether a name is one of IPython's own, or Python's."""
    return _HISTORY.fullmatch(name) is not None


def is_shells(name: str) -> bool:
    """Return whether a name is bound by IPython or Python itself, and not to an output of the person's."""
    return name in _SHELLS or (name.startswith("__") and name.endswith("__"))


def walk_tensors(namespace: Mapping[str, object], *, limit: int = LIMIT) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor a namespace reaches, under every name: ``a``, ``net.fc.weight``, ``batch[0]``, ``w.grad``."""
    yield from Walk(namespace, limit).named(torch.Tensor)


def walk_arrays(walk: Walk) -> Iterator[tuple[str, torch.Tensor | np.ndarray]]:
    """Yield every tensor and NumPy array of a walk."""
    yield from walk.named(torch.Tensor, np.ndarray)


def modules_in(namespace: Mapping[str, object]) -> list[tuple[str, nn.Module]]:
    """Return the modules that a namespace names, or holds in builtin containers, outermost only, each once."""
    found: dict[int, tuple[str, nn.Module]] = {}
    inner: set[int] = set()
    for name, module in Walk(namespace).named(nn.Module):
        if id(module) in found or id(module) in inner:
            continue
        found[id(module)] = name, module
        inner.update(id(child) for _, child in inside("", module) if child is not module)
    return [pair for key, pair in found.items() if key not in inner]
