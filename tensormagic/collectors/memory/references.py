"""Who refers to whom: what the garbage collector knows, and what it does not."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from itertools import compress
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.geometry.parts import SPARSE_PARTS, dispatches, is_backed
from tensormagic.collectors.graphs.live_nodes import is_node_class, next_nodes
from tensormagic.collectors.graphs.saved_tensors import raw_saved
from tensormagic.collectors.memory.flow import ends_in_cycles
from tensormagic.collectors.objects.children import (
    ATOMS,
    BUFFERS,
    MACHINERY,
    begins_plainly,
    defining_module,
    found_in,
    is_kind,
    is_long,
    is_opened,
    local_attributes,
    mro_of,
)
from tensormagic.collectors.objects.namespace import CLOCK_EVERY
from tensormagic.collectors.objects.referents import Budget
from tensormagic.collectors.quiet import graded, told
from tensormagic.collectors.where.source import AskedOnce

# What an object refers to, every reference as often as it is there: one table, a line a kind of object. Python's
# garbage collector knows what most objects refer to, and runs no code of theirs. It does not know what lies in torch's
# own memory: that a tensor refers to a storage, a gradient and a graph, a node of the graph to the tensors it saved.
# What is not opened here loses exactness on the safe side: whatever it holds counts as held from elsewhere.

_LEAVES: frozenset[type] = ATOMS | {
    bytearray, type(NotImplemented), CodeType, ModuleType, torch.Size, torch.Generator,
    torch.layout, torch.memory_format,
}  # fmt: skip
# Besides: alive for as long as the session is. A weak dictionary holds what is a user's.
_CLOSED = (MACHINERY - {"builtins", "weakref"}) | {
    "comm", "debugpy", "importlib", "jupyter_client", "re", "selectors", "socket", "threading",
    "torch._C", "torch._dynamo", "torch._functorch", "torch._inductor", "torch._library", "torch._ops", "torch._guards",
    "torch._logging",
}  # fmt: skip
_MANY = 4096  # so many items of one object are met between two looks at the clock
_OPENED = frozenset({"ExecutionResult"})  # of IPython: a frame of the last error refers to it, and it to the error


def _getter(kind: type, name: str) -> Callable[[Any], Any]:
    found: Callable[[Any], Any] = vars(kind)[name].__get__
    return found


_array_base = _getter(np.ndarray, "base")
_tensor: Any = torch._C.TensorBase
_grad, _grad_fn, _base = _getter(_tensor, "grad"), _getter(_tensor, "grad_fn"), _getter(_tensor, "_base")
_hooks, _late_hooks = _getter(_tensor, "_backward_hooks"), _getter(_tensor, "_post_accumulate_grad_hooks")
_layout, _dtype, _is_nested = (_getter(_tensor, name) for name in ("layout", "dtype", "is_nested"))
_is_leaf, _retains_grad = (_getter(_tensor, name) for name in ("is_leaf", "retains_grad"))
_storage = _tensor.untyped_storage
_CUSTOM = torch._C._FunctionBase  # the node of a user's Function

Reader = Callable[[Any, "References"], None]


def _readers(home: str) -> AskedOnce[type, Reader | None]:
    """Return how the instances of classes are read; None where they hold nothing, or are not to be looked into.

    Of classes themselves only those of the module ``home`` are the user's own: what a class of others holds is not
    theirs.
    """

    def of_class(kind: Any, taker: References) -> None:
        if defining_module(kind) == home:
            _of_anything(kind, taker)

    def judge(kind: type) -> Reader | None:
        if kind in _LEAVES:
            return _of_nothing if kind in BUFFERS else None
        if (reader := found_in(_READERS, kind)) is not None:
            return reader
        if type in mro_of(kind):
            return of_class
        if is_node_class(kind):
            return _of_node
        return _of_anything if is_opened(kind, _CLOSED) or kind.__name__ in _OPENED else None

    return AskedOnce(judge)


def _of_nothing(item: Any, taker: References) -> None:
    """Take down an object that refers to nothing, but whose memory a storage may lie over."""


def _of_anything(item: Any, taker: References) -> None:
    for at, value in enumerate(gc.get_referents(item)):
        if at % _MANY == _MANY - 1 and taker.is_cut():  # the others are then taken to be held elsewhere
            return
        taker.python(value)


def _of_container(item: Any, taker: References) -> None:
    if not begins_plainly(item, lambda value: type(value) in _LEAVES):
        _of_anything(item, taker)


def _of_tensor(x: Any, taker: References) -> None:
    _of_anything(x, taker)
    with contextlib.suppress(RuntimeError, NotImplementedError):  # it has none, or none that it shows
        storage = _storage(x)
        if not dispatches(x) or is_backed(storage):  # that of a wrapper shows a size, without memory
            taker.native(storage)
    if (base := _base(x)) is not None:
        for _ in range(_times_to_base() if _reads_otherwise(x, base) else 1):
            taker.native(base)
    with contextlib.suppress(RuntimeError):  # as below
        if (_is_leaf(x) or _retains_grad(x)) and (grad := _grad(x)) is not None:
            taker.native(grad)
    with contextlib.suppress(RuntimeError):  # a view that was changed in a way that autograd forbids
        node = _grad_fn(x)
        if node is not None:
            taker.native(node, is_shown=is_kind(node, _CUSTOM))
        _of_hooks(x, node, taker)
    for part in SPARSE_PARTS.get(_layout(x), ()):
        taker.native(_storage(getattr(x, part)()))  # what is asked for is a new tensor over the part's storage


def _reads_otherwise(view: Any, base: Any) -> bool:
    """Return whether a view is more than other strides over its base: ``z.imag``, ``z.conj()``, a jagged tensor."""
    asked = (_dtype, _is_nested, _tensor.is_conj, _tensor.is_neg)
    return told(lambda: any(ask(view) != ask(base) for ask in asked), otherwise=False)


@cache
def _times_to_base() -> int:
    """Return how often such a view refers to its base: twice, once for each mode of differentiation."""
    with graded(enabled=True):
        z = torch.zeros(2, dtype=torch.complex64)
        view = torch.view_as_real(z)
        return max(int(_tensor._use_count(z)) - 1, 1) if view._base is z else 1


def _of_hooks(x: Any, node: Any, taker: References) -> None:
    """Take down who refers to a tensor's hooks beside its Python object: its C++ part, and its node where it has one.

    Of these references Python is shown the first, and that only while nothing else uses the C++ part.
    """
    early, late = _hooks(x), _late_hooks(x)
    for hooks in filter(None, (early, late)):
        if sum(value is hooks for value in gc.get_referents(x)) == 1:
            take = taker.python_unseen if hooks is late else taker.python
            take(hooks)
        if node is not None:
            taker.python_of(node, hooks)


def _of_array(array: Any, taker: References) -> None:
    if (base := _array_base(array)) is not None:
        taker.python(base)


def _of_local(local: Any, taker: References) -> None:
    _of_anything(local, taker)
    taker.python_unseen(local_attributes(local))


def _of_node(node: Any, taker: References) -> None:
    _of_anything(node, taker)
    for after in next_nodes(node):
        taker.native(after, is_shown=is_kind(after, _CUSTOM))
    if type(node).__name__ == "AccumulateGrad":
        taker.native(node.variable)
    for raw in raw_saved(node):  # as it lies there, unpacked by nobody, or what a hook made of it
        kept = getattr(raw, "data", None)
        if kept is not None and raw.unpack_hook is None:
            taker.native(kept)
        elif kept is not None:
            taker.python_unseen(kept)
            taker.python_unseen(raw.unpack_hook)


# The first class that an object's class is derived from says how it is read.
_READERS: tuple[tuple[type, Reader], ...] = (
    (torch.Tensor, _of_tensor),
    (torch.UntypedStorage, _of_anything),
    (np.ndarray, _of_array),
    (threading.local, _of_local),
    (Future, _of_anything),
    (torch.nn.Module, _of_anything),  # wherever its class stands: a compiled module's is in a closed package
    *((kind, _of_container) for kind in (dict, list, tuple, deque, set, frozenset)),
)


# One walk from all that a session names takes down every reference as an edge. An object that has more references, by
# Python's and torch's own count, than were met is held from elsewhere too: by a function that runs, by a library, by
# memory of torch's that shows nothing. Hence a walk that is cut short errs on the safe side: nothing that such an
# object leads to is promised to be freed.


class References:
    """Objects by number, and what refers to what.

    Holds what it has met until it is dropped: an address must not be used twice meanwhile. Nothing but ``objects``
    may refer to them, or it would be counted.
    """

    def __init__(self, home: str, closed: frozenset[int], budget: Budget) -> None:
        # ``home`` is the module whose classes are the user's own, ``closed`` the addresses of dictionaries that stay.
        self._closed = closed
        self.objects: list[Any] = []  # everything met
        self.edges: list[list[int]] = []  # for each, the numbers of the objects that it refers to
        self.python_counts: list[int] = []  # for each, how many references to it were met that Python counts
        self.native_counts: list[int] = []  # and how many that torch counts
        # Of the references that Python's garbage collector is not shown, from which object to which.
        self.unseen: list[tuple[int, int]] = []
        self.cut = ""  # why not everything was looked through; empty where it was
        self._numbers: dict[int, int] = {}
        self._read = self._at = 0  # how many were read, the ones that wait included; which one is being read
        self._edges: list[int] = []  # of the object that is being read
        self._readers, self._cut = _readers(home), budget.begin()

    def root(self, item: Any) -> int:
        """Take down a root's reference to an object, that Python counts; returns its number, or -1 for a leaf."""
        if self._readers[type(item)] is None:
            return -1
        number = self._meet(item)
        self.python_counts[number] += 1
        return number

    def python(self, value: Any) -> None:
        """Take down a reference that Python counts."""
        if self._readers[type(value)] is not None:
            number = self._meet(value)
            self.python_counts[number] += 1
            self._edges.append(number)

    def native(self, value: Any, *, is_shown: bool = False) -> None:
        """Take down a reference that torch counts, to a tensor or a storage, or nobody: to a node of a graph.

        The node of a Function of the user's own is shown to the garbage collector by the tensor that it made.
        """
        number = self._meet(value)
        self.native_counts[number] += 1
        self._edges.append(number)
        if not is_shown:
            self.unseen.append((self._at, number))

    def python_unseen(self, value: Any) -> None:
        """Take down a reference that Python counts, and whose owner does not show it to the garbage collector."""
        self.python(value)
        self.unseen.append((self._at, self._meet(value)))

    def python_of(self, owner: Any, value: Any) -> None:
        """Take down a reference of another object's, that Python counts."""
        number = self._meet(value)
        self.python_counts[number] += 1
        self.edges[self._meet(owner)].append(number)

    def _meet(self, item: Any) -> int:
        number = self._numbers.get(id(item))
        if number is None:
            number = self._numbers[id(item)] = len(self.objects)
            self.objects.append(item)
            self.edges.append([])
            self.python_counts.append(0)
            self.native_counts.append(0)
        return number

    def walk(self) -> None:
        """Read everything that was met and not read yet, and what that leads to; containers of very many items last."""
        late = deque[int]()
        while (self._read < len(self.objects) or late) and not self.cut:
            if self._read < len(self.objects):
                self._at = self._read
                self._read += 1
                waits = True
            else:
                self._at, waits = late.popleft(), False
            item, self._edges = self.objects[self._at], self.edges[self._at]
            reader = self._readers[type(item)]
            if waits and reader is _of_container and is_long(item):
                late.append(self._at)
                continue
            if reader is not None and id(item) not in self._closed:
                with contextlib.suppress(Exception):  # an odd object: what it holds and was not met is held elsewhere
                    reader(item, self)
            self.cut = self.cut or self._cut(self._at)

    def is_cut(self) -> bool:
        """Return whether no more is to be met; asked by who reads an object of very many."""
        self.cut = self._cut(len(self.objects) & -CLOCK_EVERY)
        return bool(self.cut)

    def take_unnamed_referrers(self) -> list[int]:
        """Meet the tensors and nodes that no root leads to and that have a graph: nobody shows who holds a node."""
        kinds = {kind for kind in self._readers if is_node_class(kind)}
        found = tensors_and_nodes()[0] if kinds else []

        def has_graph(x: Any) -> bool:  # as a view has that was changed in a way that autograd forbids
            return told(lambda: _grad_fn(x) is not None, otherwise=True)

        unmet = (item for item in found if id(item) not in self._numbers)
        return [self._meet(x) for x in unmet if (has_graph(x) if is_kind(x, torch.Tensor) else type(x) in kinds)]

    def caught(self) -> list[int]:
        """Return the numbers of what lies in a circle that nobody can free: part of it only torch knows.

        A gradient made with ``create_graph=True`` leads back to its own parameter: Python's garbage collector is not
        shown that the parameter refers to its gradient, and takes it for held by something that lives.
        """
        return ends_in_cycles(self.edges, [pair for pair in self.unseen if self.edges[pair[1]]])

    def number_of(self, item: Any) -> int | None:
        """Return the number of an object; None where it was not met, or holds nothing."""
        return self._numbers.get(id(item))

    def storages(self) -> list[int]:
        """Return the numbers of the storages that were met."""
        return [at for at, item in enumerate(self.objects) if is_kind(item, torch.UntypedStorage)]

    def stand_in(self) -> int:
        """Add an object that stands for one that cannot be seen; returns its number."""
        return self._meet(object())

    def has_unmet(self, number: int) -> bool:
        """Return whether Python counts more references to an object than were met."""
        nobodys = [object()]  # what asking takes, one from a list included
        return sys.getrefcount(self.objects[number]) - sys.getrefcount(nobodys[0]) > self.python_counts[number]

    def take_native(self, number: int) -> None:
        """Take down one more reference to a storage that torch counts, where it counts more than were met."""
        used = int(torch._C._storage_Use_Count(self.objects[number]._cdata)) - 1
        self.native_counts[number] += used > self.native_counts[number]

    def held_elsewhere(self) -> list[int]:
        """Return the numbers of the objects that have more references than were met."""
        self.objects.append(object())  # nothing but this list refers to it
        counts = list(map(sys.getrefcount, self.objects))
        self.objects.pop()
        ours = counts.pop()
        return [
            at
            for at, item in enumerate(self.objects)
            if _is_held(item, counts[at] - ours - self.python_counts[at], self.native_counts[at])
        ]


def _is_held(item: Any, python: int, met: int) -> bool:
    """Return whether anything that was not met refers to an object.

    Python counts so many references beyond those met; so many were met that torch counts.
    """
    if is_kind(item, torch.Tensor):
        used = _tensor._use_count(item) - 1  # once by its own Python object
    elif is_kind(item, torch.UntypedStorage):
        used = int(torch._C._storage_Use_Count(item._cdata)) - 1
    elif met:
        return python > (1 if is_kind(item, _CUSTOM) else _torch_keeps_nodes())
    else:
        return python > 0
    return used > met or python > (1 if used else 0)  # torch refers once to the object of what it uses


@cache
def _torch_keeps_nodes() -> int:
    """Return how often torch refers to the Python object of a node that it uses itself: of late once."""
    with graded(enabled=True):
        x = torch.zeros(2, requires_grad=True).exp()
    node = x.grad_fn
    used = sys.getrefcount(node)
    del x
    return used - sys.getrefcount(node)


def tensors_and_nodes() -> tuple[list[Any], int]:
    """Return the tensors and nodes of graphs that the garbage collector knows, and how many objects it knows in all."""
    every = gc.get_objects()
    wanted = AskedOnce[type, bool](lambda kind: torch.Tensor in mro_of(kind) or is_node_class(kind))
    return [*compress(every, map(wanted.__getitem__, map(type, every)))], len(every)  # one pass: most of a look's cost
