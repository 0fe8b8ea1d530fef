"""What a user can name, and the values that expressions of theirs still have: no code of theirs is run."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import math
import operator
import re
import threading
import time
from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import BuiltinMethodType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tensormagic.collectors.geometry.parts import PLAIN
from tensormagic.collectors.objects.children import (
    MODULE_OWN,
    REGISTRIES,
    ObjectReader,
    attributes_of,
    buffers_of,
    gradient_there,
    has_history,
    inside,
    is_kind,
    is_opaque,
    is_opened,
    is_readable,
    is_torch_own,
    key_text,
    mro_of,
    names_of_parts,
    registered,
    states_of,
)
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import AskedOnce
from tensormagic.reports.aliases import HolderKind
from tensormagic.words import listed

__all__ = ["LIMIT", "Walk", "is_history", "is_kind", "modules_in", "walk_arrays"]


# Which of an object's many names to tell: the quickest to write, and those that say something.

# What every optimizer holds of every model: no second name that a report has to mention.
OPTIMIZED = re.compile(r"\.param_groups\[\d+\]\['params'\]\[\d+\]$")


def telling(names: Iterable[str]) -> list[str]:
    """Return the names that say more than that an optimizer updates something; all where there are no others."""
    every = list(names)
    return [name for name in every if not OPTIMIZED.search(name)] or every


def plain(names: Iterable[str]) -> list[str]:
    """Return the names without dots and brackets where there are any, else those that are telling."""
    every = list(names)
    return [name for name in every if name.isidentifier()] or telling(every)


def root_name(path: str) -> str:
    """Return the name that a path begins with: ``net`` of ``net.fc.weight``."""
    return path.partition(".")[0].partition("[")[0]


def nearest(names: list[str]) -> list[str]:
    """Return the names, those that are quickest to write first."""
    return sorted(names, key=lambda name: name.count(".") + name.count("["))


Child = tuple[str, object, int]  # name, object, and how many containers deep one may still go from there
Label = Callable[[object], str]

NO_FURTHER = -1  # a child that is to be seen, but not looked into
# What a user cannot reach by an expression is read by its attributes alone, as an object of any other class.
_WRITABLE = (
    nn.Module, dict, list, tuple, deque, set, frozenset, FunctionType, MethodType, BuiltinMethodType, functools.partial,
    Future, threading.local,
)  # fmt: skip


def children(table: ObjectReader, path: str, item: Any, depth: int, label: Label) -> Iterator[Child]:
    """Yield what an object holds, with the expression that reaches it and how deep containers may still go.

    One may go ``depth`` containers deep; ``label`` names a tensor that is a key: a parameter, in its optimizer's state.
    """
    if is_kind(item, torch.optim.Optimizer):
        yield from _optimizer_children(path, item, depth, label)
        return
    is_writable = is_kind(item, *_WRITABLE)
    found = table.of(item) if is_writable else table.of_instance(item) if is_opened(type(item)) else ()
    for how, name, value in found:
        _, _, expression, steps = HOW[how]
        if how == "member":
            # Modules of torch's keep second references under private names; scripted ones in their methods, too.
            is_private = name.startswith("_") or is_kind(value, torch._C.ScriptMethod)
            if name in MODULE_OWN or (is_private and is_torch_own(type(item)) and not is_kind(value, torch.Tensor)):
                continue
            steps = 0 if is_kind(value, torch.Tensor, nn.Module) else 1
        if expression and (how != "item" or key_text(name)):
            yield expression.format(path, name), value, depth - steps


class How(NamedTuple):
    """One way in which an object is held."""

    kind: HolderKind  # what sort of place that is
    ending: str | None  # what is written behind the path of its holder; None where it goes by that very path
    expression: str = ""  # what a user writes to reach it, of its holder's and the name; empty where nothing does
    steps: int = 1  # how many containers deep that is


HOW: Mapping[str, How] = {
    "item": How("item", "[{}]", "{}[{!r}]"),
    "key": How("item", ", key {}"),
    "element": How("item", ", an element", "list({})[{}]"),
    "registered": How("module", ".{}", "{}.{}", 0),
    "member": How("module", ".{}", "{}.{}"),
    "attribute": How("attribute", ".{}", "{}.{}"),
    "self": How("attribute", ".{}", "{}.{}"),
    "global": How("attribute", ".{}"),
    "same": How("attribute", None),
    "base": How("view", ""),  # what has a name is the view
    "array": How("array", ".{}"),
    "closure": How("function", ", closure over {}", "{}.<closure>.{}"),
    "default": How("function", ", default argument", "{}.{}"),
    "of function": How("function", ".{}", "{}.{}", 0),
    "argument": How("function", ".{}", "{}.{}", 0),
    "cache": How("function", ", its cache"),
    "suspended": How("generator", ", local of {}"),
    "of error": How("traceback", ".{}"),
    "chained": How("traceback", None),
    "frame": How("traceback", None),
    "local": How("traceback", ", local{}"),
}


def _optimizer_children(path: str, optimizer: Any, depth: int, label: Label) -> Iterator[Child]:
    names: dict[int, str] = {}
    for number, group in enumerate(attributes_of(optimizer).get("param_groups") or ()):
        held: Any = dict.get(group, "params") if is_kind(group, dict) else None
        for at, parameter in enumerate(list.__iter__(held) if is_kind(held, list) else ()):
            name = names[id(parameter)] = f"{path}.param_groups[{number}]['params'][{at}]"
            yield name, parameter, NO_FURTHER
    for parameter, state in list(dict.items(states_of(optimizer))):
        key = label(parameter) or names.get(id(parameter), repr(parameter) if is_opaque(parameter) else "?")
        yield f"{path}.state[{key}]", state, depth - 1


# What a user can name: every name's whole tree in turn, each object once a name, within bounds.

LIMIT = 20_000
_MOST, _SECONDS = 200_000, 2.0  # of a panel about all that a session names
_FIRST = 5_000  # so many objects below one name come before those of the next
CLOCK_EVERY = 64  # objects are looked at between two looks at the clock
_DEPTH = 6
_ITEMS = 1000
# IPython's own names: input and output history (`_`, `_12`, `_i12`, `_oh`, `_ih`) and helpers.
LAST_OUTPUTS = ("_", "__", "___")
OUTPUT = re.compile(r"_{1,3}|_\d+")  # what IPython names an output: the user may use ``_`` for something else
_HISTORY = re.compile(r"_+|_i+|_i?\d+|_[oid]h|In|Out|exit|quit|get_ipython|__\w+__")
_SHELLS = frozenset({"In", "_ih", "_oh", "_dh", "exit", "quit", "get_ipython", "open"})


@dataclass(slots=True)
class Walk:
    """A walk over everything that a namespace names."""

    namespace: Mapping[str, object]  # names and what they are bound to
    limit: int = LIMIT  # how many names, items and attributes to look at before giving up
    items: int = _ITEMS  # how many items of one container to look at
    seconds: float = math.inf  # how long it may take, with what is done of each that it yields
    # Whether to look at tensors' gradients, too: another thread's engine may be putting one there, and torch does not
    # guard that against who reads it.
    gradients: bool = True
    looked: int = 0  # how many were looked at so far
    complete: bool = True  # whether nothing was left out for being too many
    refused: list[str] = field(default_factory=list)  # names of what cannot be looked into: code of its class raises
    # What the modules that were met have registered as buffers, by ``id``, and whether ``state_dict()`` has it.
    buffers: dict[int, bool] = field(default_factory=dict)
    _deadline: float = math.inf
    _modules: set[int] = field(default_factory=set)  # those that were looked into, by ``id``
    _labels: dict[int, str] | None = None
    _table: ObjectReader = field(default_factory=ObjectReader)

    @classmethod
    def thorough(cls, namespace: Mapping[str, object]) -> Walk:
        """Return a walk for a panel about all that there is."""
        return cls(namespace, _MOST, items=_MOST, seconds=_SECONDS)

    @property
    def gap(self) -> str:
        """Why not everything was looked through; empty where it was."""
        gaps = []
        if self.refused:
            gaps.append(f"{listed(list(dict.fromkeys(self.refused)))} cannot be read: their class raises an error")
        if not self.complete:
            gaps.append(f"only {self.looked} of the names, items and attributes were searched")
        return "; ".join(gaps)

    def named(self, *kinds: type) -> Iterator[tuple[str, Any]]:
        """Yield what is of one of these classes, under every name that reaches it, each name's whole tree in turn.

        Of a name that leads to very many objects the others come after the first of all names.
        """
        wanted = AskedOnce[type, bool](lambda kind: any(wanted in mro_of(kind) for wanted in kinds))
        parts, begun = names_of_parts(self.namespace), list[tuple[list[Child], set[int]]]()
        self._deadline = time.thread_time() + self.seconds
        for name, value in list(self.namespace.items()):
            if not is_history(name):
                is_known = name in parts and id(value) in self._modules
                pending, seen = [(name, value, _DEPTH)], {id(value)} if is_known else set[int]()
                yield from self._below(pending, wanted, seen, min(self.limit, self.looked + _FIRST))
                begun += [(pending, seen)] if pending else []
        for pending, seen in begun:
            yield from self._below(pending, wanted, seen, self.limit)
            self.complete = self.complete and not pending

    def _below(
        self, pending: list[Child], asked: Mapping[type, bool], seen: set[int], stop: int
    ) -> Iterator[tuple[str, Any]]:
        while pending and self.looked < stop:
            path, item, depth = pending.pop()
            self.looked += 1
            if self.looked % CLOCK_EVERY == 0 and time.thread_time() > self._deadline:
                self.limit = stop = self.looked
            if is_kind(item, torch.Tensor) and not is_readable(item):
                self.refused.append(path)
                continue
            if asked[type(item)]:
                yield path, item
            is_end = depth < 0 or (depth == 0 and not is_kind(item, nn.Module, torch.Tensor))
            if not (is_end or id(item) in seen or is_opaque(item)):
                seen.add(id(item))
                pending.extend(reversed(self._held(path, item, depth)))

    def _held(self, path: str, item: Any, depth: int) -> list[Child]:
        """Return what an object holds that may be worth looking at, of long containers the beginning.

        A long container that begins with nothing but numbers and strings is taken to hold nothing else.
        """
        try:
            if is_kind(item, torch.Tensor):  # of a leaf its gradient: torch warns when that of others is read
                with torch._C.DisableTorchFunction():
                    grad = gradient_there(item, retained=False) if self.gradients else None
                return [] if grad is None else [(f"{path}.grad", grad, 0)]
            if is_kind(item, nn.Module):
                self._modules.add(id(item))
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


def is_history(name: str) -> bool:
    """Return whether a name is one of IPython's own, or Python's."""
    return _HISTORY.fullmatch(name) is not None


def is_shells(name: str) -> bool:
    """Return whether a name is bound by IPython or Python itself, and not to an output of the user's."""
    return name in _SHELLS or (name.startswith("__") and name.endswith("__"))


def walk_arrays(walk: Walk) -> Iterator[tuple[str, torch.Tensor | np.ndarray]]:
    """Yield every tensor and array under every name: ``a``, ``net.fc.weight``, ``batch[0]``, ``w.grad``."""
    yield from walk.named(torch.Tensor, np.ndarray)


def modules_in(namespace: Mapping[str, object]) -> list[tuple[str, nn.Module]]:
    """Return the modules that a namespace names, or holds in builtin containers, outermost only, each once."""
    return outermost(Walk(namespace).named(nn.Module))


def outermost(named: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Return of modules with their names those that lie registered in no other, each once by its first name."""
    found: dict[int, tuple[str, nn.Module]] = {}
    inner: set[int] = set()
    for name, module in named:
        if id(module) not in found and id(module) not in inner:
            found[id(module)] = name, module
            inner.update(id(child) for _, child in inside("", module) if child is not module)
    return [pair for key, pair in found.items() if key not in inner]


# What an expression in a line refers to, without running any of the user's code: ``self.fc.weight``, ``batch["x"]``,
# ``parts[0]``, ``b.T``. Names are looked up, attributes only where they are plainly stored, items only in builtin
# containers; of tensors what is a view or a number. Everything else would have to be computed again: `UNKNOWN`.

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN", "__slots__": ()})()

_TENSOR_ATTRIBUTES = frozenset({"T", "mT", "data", "shape", "dtype", "device", "ndim", "requires_grad", "is_leaf"})
_TENSOR_METHODS = frozenset({
    "size", "dim", "numel", "stride", "t", "transpose", "permute", "unsqueeze", "squeeze", "view", "expand", "detach",
})  # fmt: skip
_BUILTINS = vars(builtins)
_OF_MODULES = {kind.__getitem__ for kind in (nn.Sequential, nn.ModuleList, nn.ModuleDict)}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip


def still_value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return what an expression refers to, or `UNKNOWN`. Never raises."""
    with quiet():
        try:
            return _value(node, names)
        except Exception:  # what cannot be read is not known
            return UNKNOWN


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return what an expression refers to; raises where that is not known."""
    found: Any
    match node:
        case ast.Name():
            found = names[node.id] if node.id in names else _BUILTINS[node.id]
        case ast.Constant():
            found = node.value
        case ast.Tuple() | ast.List():
            values = [_value(item, names) for item in node.elts]
            found = tuple(values) if isinstance(node, ast.Tuple) else values
        case ast.Slice():
            ends = (node.lower, node.upper, node.step)
            found = slice(*(None if end is None else _value(end, names) for end in ends))
        case ast.Attribute():
            found = _stored(_value(node.value, names), node.attr)
        case ast.Subscript():
            found = _item(_value(node.value, names), _value(node.slice, names))
        case _:
            found = _computed(node, names)
    if found is UNKNOWN:
        raise LookupError
    return found


def _computed(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return what arithmetic with plain numbers gives, a length, a tensor's size, or a view of it."""
    match node:
        case ast.UnaryOp(ast.USub(), operand):
            value = _value(operand, names)
            return -value if type(value) in {int, float} else UNKNOWN
        case ast.BinOp():
            left, right = _value(node.left, names), _value(node.right, names)
            return _ARITHMETIC[type(node.op)](left, right) if {type(left), type(right)} <= {int, float} else UNKNOWN
        case ast.Call(ast.Name("len"), [argument]):
            given = _value(argument, names)
            return len(given) if type(given) in {list, tuple, dict, str} or is_plain_tensor(given) else UNKNOWN
        case ast.Call(ast.Attribute(holder, method), arguments, []) if method in _TENSOR_METHODS:
            owner, values = _value(holder, names), [_value(argument, names) for argument in arguments]
            if is_plain_tensor(owner):
                return getattr(owner, method)(*values)
    return UNKNOWN


def is_plain_tensor(value: Any) -> bool:
    """Return whether something is a tensor of torch's own class, whose methods are torch's."""
    return type(value) in PLAIN


def _stored(owner: Any, name: str) -> Any:
    """Return an attribute that is plainly stored, on an object, its class or in a module's registries, or `UNKNOWN`."""
    if is_plain_tensor(owner):
        is_told = name in _TENSOR_ATTRIBUTES or (name == "grad" and not has_history(owner))
        return getattr(owner, name) if is_told else UNKNOWN
    if is_kind(owner, ModuleType):
        return vars(owner).get(name, UNKNOWN)
    if is_kind(owner, type):  # functions and constants, without asking any descriptor
        found = in_class(owner, name)
        return found.__func__ if is_kind(found, staticmethod) else found
    registries = [registered(owner, each) for each in REGISTRIES] if is_kind(owner, nn.Module) else []
    held = ChainMap(attributes_of(owner), *registries)
    slot = in_class(type(owner), name)
    if name not in held and type(slot) is MemberDescriptorType:
        return slot.__get__(owner)  # raises where nothing was put into it yet
    return held.get(name, UNKNOWN)


def in_class(owner: type, name: str) -> Any:
    """Return what a class or one above it has under a name, as it lies there, or `UNKNOWN`."""
    return next((vars(kind)[name] for kind in mro_of(owner) if name in vars(kind)), UNKNOWN)


def _item(owner: Any, key: Any) -> Any:
    if is_plain_tensor(owner):
        keys = key if isinstance(key, tuple) else (key,)
        is_view = all(each is None or each is ... or type(each) in {int, slice} for each in keys)
        return owner[key] if is_view else UNKNOWN  # a mask or a list of indices copies
    if is_kind(owner, dict):
        return dict.get(owner, key, UNKNOWN) if isinstance(key, str | int) else UNKNOWN
    if in_class(type(owner), "__getitem__") in _OF_MODULES:
        modules = registered(owner, "_modules")
        by_number = type(key) is int and not is_kind(owner, nn.ModuleDict)
        return [*modules.values()][key] if by_number else modules.get(key, UNKNOWN)
    return next((kind.__getitem__(owner, key) for kind in (list, tuple) if is_kind(owner, kind)), UNKNOWN)
