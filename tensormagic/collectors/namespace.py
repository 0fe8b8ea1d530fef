"""What a person can name: tensors and arrays reached from a namespace, without running any of the person's code.

Only exact knowledge is used: builtin containers through the builtin types' own methods, modules through their
registries, arrays and tensors by their class. Nothing is iterated, indexed or asked for attributes through code that
somebody else wrote, so that looking has no side effects.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

LIMIT = 20_000
_DEPTH = 2
_ITEMS = 1000
# IPython's own names: input and output history (`_`, `_12`, `_i12`, `_oh`, `_ih`) and helpers.
_HISTORY = re.compile(r"_+|_i+|_i?\d+|_[oid]h|In|Out|exit|quit|get_ipython|__\w+__")
_OPAQUE = (str, bytes, bool, int, float, complex, type(None), type, ModuleType, FunctionType)


@dataclass(slots=True)
class Walk:
    """A walk over everything that a namespace names.

    Attributes:
        namespace: Names and what they are bound to.
        limit: How many names, items and attributes to look at before giving up.
        looked: How many were looked at so far.
        complete: Whether nothing was left out for being too many.
    """

    namespace: Mapping[str, object]
    limit: int = LIMIT
    looked: int = 0
    complete: bool = True

    def named(self, *kinds: type) -> Iterator[tuple[str, Any]]:
        """Yield what is of one of these classes, under every name that reaches it, each name's whole tree in turn."""
        for name, value in list(self.namespace.items()):
            if not is_history(name):
                yield from self._below(name, value, kinds)

    def _below(self, name: str, value: object, kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        pending = [(name, value, _DEPTH)]
        while pending:
            path, item, depth = pending.pop()
            if self.looked >= self.limit:
                self.complete = False
                return
            self.looked += 1
            if is_kind(item, *kinds):
                yield path, item
            if id(item) in seen or not _can_hold(item, depth):
                continue
            seen.add(id(item))
            pending.extend(reversed(self._held(path, item, depth)))

    def _held(self, path: str, item: object, depth: int) -> list[Child]:
        """Return what an object holds that may be worth looking at, of long containers the beginning.

        A long container that begins with nothing but numbers and strings is taken to hold nothing else.
        """
        children = list(itertools.islice(_children(path, item, depth), _ITEMS + 1))
        worth = [child for child in children[:_ITEMS] if type(child[1]) not in _OPAQUE]
        self.complete = self.complete and (len(children) <= _ITEMS or not worth)
        return worth


def is_history(name: str) -> bool:
    """Return whether a name is one of IPython's own, or Python's."""
    return _HISTORY.fullmatch(name) is not None


def is_kind(item: object, *kinds: type) -> bool:
    """Return whether an object's class is one of these or derived from one.

    ``isinstance`` would ask the object for ``__class__``, which proxies answer by running code.
    """
    return any(kind in type(item).__mro__ for kind in kinds)


def _can_hold(item: object, depth: int) -> bool:
    if type(item) in _OPAQUE:
        return False
    return is_kind(item, nn.Module) or (depth > 0 and is_kind(item, list, tuple, dict)) or is_kind(item, torch.Tensor)


Child = tuple[str, object, int]


def _children(path: str, item: Any, depth: int) -> Iterator[Child]:
    """Yield what an object holds, with the name that reaches it and how deep containers may still go."""
    if is_kind(item, nn.Module):
        yield from _module_children(path, item, depth)
    elif is_kind(item, torch.Tensor):
        yield from _gradient(path, item)
    elif is_kind(item, dict):
        pairs = ((key, value) for key, value in list(dict.items(item)) if type(key) in {str, int})
        yield from ((f"{path}[{key!r}]", value, depth - 1) for key, value in pairs)
    else:
        items = list.__iter__(item) if is_kind(item, list) else tuple.__iter__(item)
        yield from ((f"{path}[{at}]", value, depth - 1) for at, value in enumerate(items))


def _module_children(path: str, module: nn.Module, depth: int) -> Iterator[Child]:
    """Yield parameters, buffers, submodules and plain tensor attributes, as `named_parameters` spells them."""
    attributes = object.__getattribute__(module, "__dict__")
    registries = [attributes.get(registry) or {} for registry in ("_parameters", "_buffers", "_modules")]
    for registry in registries:
        yield from ((f"{path}.{name}", value, depth) for name, value in dict.items(registry) if value is not None)
    for name, value in list(attributes.items()):
        if is_kind(value, torch.Tensor):
            yield f"{path}.{name}", value, depth


def _gradient(path: str, x: torch.Tensor) -> Iterator[Child]:
    """Yield a leaf's gradient; that of other tensors is not read, for torch warns when it is."""
    with torch._C.DisableTorchFunction():
        grad = x.grad if x.is_leaf else None
    if grad is not None:
        yield f"{path}.grad", grad, 0


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
        inner.update(id(child) for child in _descendants(module))
    return [pair for key, pair in found.items() if key not in inner]


def _descendants(module: nn.Module) -> Iterator[nn.Module]:
    """Yield every module inside a module, whatever cycles there are."""
    seen, pending = {id(module)}, [module]
    while pending:
        registry = object.__getattribute__(pending.pop(), "__dict__").get("_modules") or {}
        for child in dict.values(registry):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                pending.append(child)
                yield child
