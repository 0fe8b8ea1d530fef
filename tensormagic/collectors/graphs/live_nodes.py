"""Nodes that are alive: how to walk them, and which thread made them."""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_uint64, c_void_p
from functools import partial
from threading import Thread, get_ident
from types import GetSetDescriptorType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from tensormagic.collectors.hooks.replacing import Replacement
from tensormagic.collectors.objects.children import has_history, is_stale, mro_of
from tensormagic.collectors.quiet import graded, outside_inference, quiet

# Whether a value has a way back, and which node made it, asked without making torch build one to answer.


def flat(values: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the values, and those in lists and tuples among them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def without_history(value: Any) -> bool:
    """Say whether it is a value that has no way back; a view made without gradients calls itself a leaf."""
    if not isinstance(value, torch.Tensor):
        return isinstance(value, np.ndarray | float | complex)
    return not value.requires_grad or (value._is_view() and not has_history(value))


def grad_fn_of(x: torch.Tensor) -> Any:
    """Return ``x.grad_fn``, for who asks call by call: a graph may grow deep in this way and never be walked."""
    if (node := x.grad_fn) is not None:
        _stop_sometimes(node)
    return node


def history_of(x: torch.Tensor) -> tuple[int, str]:
    """Return the sequence number and the name of the node that made ``x``; -1 where there is none, or none to ask for.

    Asking a view that was written to for its node makes a new node: that would change the graph.
    """
    if not has_history(x) or is_stale(x):
        return -1, ""
    node = grad_fn_of(x)
    return node._sequence_nr(), node.name()


# The nodes that a node hands its gradients to: the one place, with `structure`, that reads the edges of live graphs.


def inputs_of(node: Any) -> list[Any]:
    """Return the node behind each input of a node; None for an input without a gradient."""
    return [target for target, _ in node.next_functions]


def next_nodes(node: Any) -> list[Any]:
    """Return the nodes that a node hands gradients to, in the order of its inputs."""
    _stop_sometimes(node)
    return [target for target, _ in node.next_functions if target is not None]


def first_input(node: Any) -> Any:
    """Return the node behind the first input; None where it has none."""
    return node.next_functions[0][0] if node.next_functions else None


def walk_nodes(roots: Iterable[Any], most: int, seen: set[Any] | None = None) -> Iterator[Any]:
    """Yield nodes and all that is below them, the nearest first, each once, until ``most`` were met.

    Those ``seen`` before are passed over; those met now are added, and held: an ``id`` lasts as long.
    """
    met = set() if seen is None else seen
    pending = deque(roots)
    while pending and len(met) < most:
        node = pending.popleft()
        if node not in met:
            met.add(node)
            yield node
            pending.extend(next_nodes(node))


MOST_STEPS = 16  # back from a loss, to what its scores were made by
NORMALISING = {
    "SoftmaxBackward0": "softmax", "LogSoftmaxBackward0": "log_softmax",
    "SigmoidBackward0": "sigmoid", "LogSigmoidBackward0": "logsigmoid",
}  # fmt: skip


def nodes_named(*names: str) -> frozenset[str]:
    """Return the names of nodes: for ``"View"`` that is ``"ViewBackward0"``, and so on."""
    return frozenset(f"{name}Backward{number}" for name in names for number in range(5))


# Whose results have all the elements of what went in, unchanged, in their order or in another.
VIEWS = ("View", "UnsafeView", "ReshapeAlias", "T", "Transpose", "Permute", "Squeeze", "Unsqueeze", "Clone", "Alias")
PASSING = nodes_named(
    *VIEWS, "Slice", "Select", "Index", "ToCopy", "Expand", "Split", "Unbind", "IndexSelect", "CopySlices"
)


def past(node: Any, passing: Collection[str] = ()) -> Any:
    """Return the first node on the way back that passes no view, and is not among these."""
    for _ in range(MOST_STEPS):
        if node is None or (node.name() not in PASSING and node.name() not in passing):
            return node
        node = first_input(node)
    return None


def normalising_node(node: Any) -> Any:
    """Return the node of the softmax or sigmoid that made a value, if one did."""
    node = past(node)
    return node if node is not None and node.name() in NORMALISING else None


def is_node_class(kind: type) -> bool:
    """Return whether instances of a class are nodes of an autograd graph."""
    return torch._C._FunctionBase in mro_of(kind) or type(vars(kind).get("next_functions")) is GetSetDescriptorType


# Which nodes run Python code of the user's in their backward.


def runs_python(node: Any) -> bool:
    """Return whether the backward of a node is Python code of the user's, or runs such code."""
    if not isinstance(node, BackwardCFunction):
        return False
    module: str = getattr(getattr(type(node), "_forward_cls", None), "__module__", "")
    return not module.startswith("torch.") or type(node).__name__ == "CheckpointFunctionBackward"


# Puts hooks on autograd nodes, and takes all of them off again, for a third of what torch takes for it.
# For each hook torch makes a handle in Python that can remove it; most of the time of hooking a node goes there. The
# hooks of one pass are removed together, by one handle: it is what ``torch.autograd.function`` finds under the handle's
# name while hooks are put on, on that thread.

_MODULE: ModuleType = sys.modules[torch.autograd.Function.__module__]
_NAME = "hooks"  # as that module calls ``torch.utils.hooks``


_together: dict[int, Hooks] = {}  # by thread; the names that two threads replaced may come off in any order


def _standing_in(module: Any) -> SimpleNamespace:
    def make(table: Any, **others: Any) -> Any:
        hooks = _together.get(get_ident())
        return module.RemovableHandle(table, **others) if hooks is None else hooks.handle_for(table)

    return SimpleNamespace(**{**vars(module), "RemovableHandle": make})


class Hooks:
    """The hooks of one pass."""

    def __init__(self) -> None:
        self._tables: list[Any] = []  # torch's tables that hooks stand in under the handle's number
        self._others: list[Any] = []
        self._handle = RemovableHandle(OrderedDict())

    @contextmanager
    def together(self) -> Iterator[Any]:
        """Let all hooks that this thread puts on in the block share one handle, which the block is given."""
        with Replacement(_MODULE, _NAME, _standing_in):  # in another torch each hook has its own
            try:
                _together[get_ident()] = self
                yield self._handle
            finally:
                _together.pop(get_ident(), None)

    def handle_for(self, table: Any) -> RemovableHandle:
        """Return the shared handle for a hook that torch is about to put into ``table``."""
        self._tables.append(table)  # first: an interrupt may come before torch puts the hook there
        return self._handle

    def keep(self, handle: Any) -> None:
        """Remember a hook by what torch returned for it."""
        if handle is not self._handle:
            self._others.append(handle)

    def remove(self) -> None:
        """Take all hooks off."""
        number = self._handle.id
        while self._tables:
            self._tables.pop().pop(number, None)
        while self._others:
            self._others.pop().remove()


# Says whether an autograd node was made on the thread that is traced: each thread counts sequence numbers for itself,
# and the tracer knows the lines of its own alone. Torch keeps with every node the number of the thread that made it,
# and does not show it to Python. It is read from memory, at a place that is found by experiment: in leaves' nodes made
# on two threads, the one word that is equal within a thread and not between them. Where the experiment is not clear,
# nothing is read, and no node counts as another thread's.

_HEAD = object.__basicsize__  # after it comes the pointer to the node, alone or beside that to its count
_WORDS = 12  # of a node that are looked through; every node is larger
NO_NUMBER = (1 << 64) - 1  # the sequence number of a leaf's node
_LARGEST_THREAD_NUMBER = 1 << 32


def _leaf_node() -> Any:
    """Return the node of a leaf made here; it takes one sequence number of this thread."""
    with quiet(), torch._C._DisableFuncTorch(), outside_inference(), graded(enabled=True):
        leaf = torch.empty(0, requires_grad=True)
        return first_input(leaf.view_as(leaf).grad_fn)


@functools.cache
def _place() -> int | None:
    """Return which word of a node is the number of the thread that made it; None where that is not clear."""
    if sys.implementation.name != "cpython" or type(_leaf_node()).__basicsize__ not in {_HEAD + 8, _HEAD + 16}:
        return None
    words: list[list[int]] = []

    def make() -> None:
        nodes = [_leaf_node(), _leaf_node()]
        addresses = [c_void_p.from_address(id(node) + _HEAD).value or 0 for node in nodes]
        words.extend([c_uint64.from_address(start + 8 * at).value for at in range(_WORDS)] for start in addresses)

    try:
        for _ in range(2):
            thread = Thread(target=make, name="tensormagic-makers", daemon=True)
            thread.start()
            thread.join()
    except RuntimeError:  # no thread can be started
        return None
    columns = list(zip(*words, strict=False))
    if (NO_NUMBER,) * 4 not in columns:
        return None  # no sequence number where all nodes have one: this is not what a node looks like
    told = (at for at, (a, b, c, d) in enumerate(columns) if a == b != c == d)
    places = [at for at in told if min(columns[at]) > 0 and max(columns[at]) < _LARGEST_THREAD_NUMBER]
    return places[0] if len(places) == 1 else None


class NodeThreads:
    """Knows the nodes of the thread on which it is made. Custom Functions' nodes are laid out otherwise."""

    def __init__(self) -> None:
        node = _leaf_node()
        self._offset = 8 * (_place() or 0)
        self._size = type(node).__basicsize__ if self._offset else -1
        self._home = self._number(node) if self._offset else 0

    def _number(self, node: Any) -> int:
        address: int = c_uint64.from_address(id(node) + _HEAD).value
        return c_uint64.from_address(address + self._offset).value

    def is_foreign(self, node: Any) -> bool:
        """Return whether ``node`` was made on another thread (0.5 µs); False also where that cannot be known."""
        if type(node).__basicsize__ == self._size:
            return self._number(node) != self._home
        behind = next_nodes(node) if isinstance(node, BackwardCFunction) else ()
        plain = (each for each in behind if type(each).__basicsize__ == self._size and not hasattr(each, "variable"))
        return any(self._number(each) != self._home for each in plain)


# Lets a deep graph go without overflowing the C stack, although it was walked.
# Torch frees a chain of autograd nodes one after the other. But a node that Python has once looked at keeps its Python
# wrapper as long as it lives, and such nodes are freed one *inside* the other: on torch 2.13 some 200 bytes of stack a
# node, so that a chain of 40,000 steps, walked by anybody, ends the process when its loss is let go.
# So every so many levels a node gets a `_DeallocStop`: an object in its metadata that holds the nodes below it, which
# the node holds anyway. When the node is freed, the stop hands them to a list that is emptied once the C code above has
# returned: at the main thread's next call of a function or next turn of a loop.

STRIDE = 1_000  # levels between two stops
_KEY = "tensormagic"  # in the node's metadata

# Place of a node, places of the nodes below that it hands on.
DeallocStops = tuple[tuple[int, tuple[int, ...]], ...]


class _FreedLater:
    """Nodes that their last owner let go; dropped by the main thread at its next call or turn of a loop."""

    def __init__(self) -> None:
        self.nodes: deque[Any] = deque()
        self.asked = False
        callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._empty)
        self._ask = partial(ctypes.pythonapi.Py_AddPendingCall, callback, None)

    def _empty(self, _: Any) -> int:
        """Drop all nodes. Nothing is asked for meanwhile: CPython 3.11 under a profiler would wait for it for ever."""
        while self.nodes:
            self.nodes.popleft()  # may add more
        self.asked = False
        if self.nodes:  # another thread has just added some
            self.ask_once()
        return 0

    def ask_once(self) -> None:
        """Ask the main thread to come. It may come after any call made here in Python: so the last step is none."""
        if not self.asked:
            self.asked = True
            for _ in iter(self._ask, 0):
                pass


class _DeallocStop:
    """Stands in the metadata of a node and catches the nodes below it."""

    __slots__ = ("_freed_later", "_nodes")

    def __init__(self, nodes: tuple[Any, ...], later: _FreedLater) -> None:
        self._nodes, self._freed_later = nodes, later

    def __del__(self) -> None:
        self._freed_later.nodes.extend(self._nodes)
        self._nodes = ()  # CPython 3.13 under a profiler may come before this returns: only the list is to hold them
        self._freed_later.ask_once()


_freed_later = _FreedLater()


# Who goes down a graph node by node, or asks each call for the node it made, does not see how deep it is: there, every
# so many nodes, one that has many below it gets a stop.

ASKED_BETWEEN = 997  # a prime: of chains that are gone down in turn, each gets some
MANY_BELOW = 600
_asked = itertools.count(1)


def _stop_sometimes(node: Any) -> None:
    if next(_asked) % ASKED_BETWEEN or _KEY in node.metadata:
        return
    if sum(1 for _ in walk_nodes([node], MANY_BELOW)) == MANY_BELOW:
        node.metadata[_KEY] = _DeallocStop(tuple(next_nodes(node)), _freed_later)


def put_stops(nodes: Sequence[Any], stops: DeallocStops) -> None:
    """Put stops into a graph; ``nodes`` as in `structure.Walk`."""
    for place, below in stops:
        metadata = nodes[place].metadata
        if _KEY not in metadata:
            metadata[_KEY] = _DeallocStop(tuple(nodes[other] for other in below), _freed_later)


def dealloc_stops(links: Sequence[Sequence[tuple[int, int, int]]]) -> DeallocStops:
    """Return where stops belong: at edges (`structure.Links`) over a whole stride's border, to something deep."""
    ends, count = [[end for _, end, _ in edges] for edges in links], len(links)
    feeding = [0] * count
    for target in itertools.chain.from_iterable(ends):
        feeding[target] += 1
    order = [place for place in range(count) if not feeding[place]]
    for place in order:  # grows while it is walked
        for target in ends[place]:
            feeding[target] -= 1
            if not feeding[target]:
                order.append(target)
    levels = [0] * count  # of every node the length of the longest way down from it
    for place in reversed(order):
        levels[place] = 1 + max([levels[target] for target in ends[place]], default=-1)
    bands = ((place, levels[place] // STRIDE * STRIDE) for place in range(count))
    found = ((place, tuple({t for t in ends[place] if STRIDE <= levels[t] < band})) for place, band in bands if band)
    return tuple((place, below) for place, below in found if below)


MOST_DEPTH = 1 << 12  # nodes that are gone through in search of the sum before


def reaches(node: Any, number: int) -> bool:
    """Return whether the node of that number is behind ``node``."""
    waiting = [node]
    for each in waiting:  # grows while it is gone through; what is older than the one looked for cannot lead to it
        behind = [(target._sequence_nr(), target) for target in next_nodes(each) if not hasattr(target, "variable")]
        if any(at == number for at, _ in behind):
            return True
        if len(waiting) > MOST_DEPTH:
            return False
        waiting += [target for at, target in behind if at > number]
    return False
