"""What an object refers to, for the count of references: exact, every reference as often as it is there.

Python's garbage collector knows what most objects refer to, and runs no code of theirs. It does not know what lies in
torch's own memory: that a tensor refers to a storage, a gradient and a graph, a node of the graph to the tensors it
saved. This is a table, a line a kind of object, for both. What is not opened here loses nothing but exactness on the
safe side: whatever it holds counts as held from elsewhere.
"""

from __future__ import annotations

import contextlib
import gc
from collections import deque
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any, Protocol

import numpy as np
import torch

from tensormagic.collectors.graphs.history import is_node_class, next_nodes
from tensormagic.collectors.graphs.saved_tensors import raw_saved
from tensormagic.collectors.objects.holdings import MACHINERY, begins_plainly, home_of, mro_of

_LEAVES: frozenset[type] = frozenset({
    int, float, complex, bool, str, bytes, range, slice, type(None), type(...), type(NotImplemented), CodeType,
    BuiltinFunctionType, ModuleType, torch.dtype, torch.device, torch.Size, torch.Generator, torch.layout,
    torch.memory_format,
})  # fmt: skip
# Besides: alive for as long as the session is. A weak dictionary holds what is a person's.
_CLOSED = (MACHINERY - {"builtins", "weakref"}) | {
    "comm", "debugpy", "importlib", "jupyter_client", "re", "selectors", "socket", "threading",
    "torch._C", "torch._dynamo", "torch._functorch", "torch._inductor", "torch._library", "torch._ops", "torch._guards",
    "torch._logging",
}  # fmt: skip
_OPENED = frozenset({"ExecutionResult"})  # of IPython: a frame of the last error refers to it, and it to the error
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_array_base: Callable[[Any], Any] = np.ndarray.__dict__["base"].__get__


def _getter(name: str) -> Callable[[Any], Any]:
    """Return what reads an attribute of a tensor, whatever a class of the person's makes of it."""
    found: Callable[[Any], Any] = torch._C.TensorBase.__dict__[name].__get__
    return found


_grad = _getter("grad")
_grad_fn = _getter("grad_fn")
_hooks = _getter("_backward_hooks")
_late_hooks = _getter("_post_accumulate_grad_hooks")
_base = _getter("_base")
_layout = _getter("layout")
_is_leaf = _getter("is_leaf")
_retains_grad = _getter("retains_grad")
_storage = torch._C.TensorBase.untyped_storage


class Taker(Protocol):
    """Takes down what an object refers to."""

    def python(self, value: Any) -> None:
        """Take down a reference that Python counts."""

    def native(self, value: Any) -> None:
        """Take down a reference that torch counts: to a tensor or a storage."""

    def python_unseen(self, value: Any) -> None:
        """Take down a reference that Python counts, and whose owner does not show it to the garbage collector."""

    def python_of(self, owner: Any, value: Any) -> None:
        """Take down a reference of another object's, that Python counts."""

    def uncounted(self, value: Any) -> None:
        """Take down a reference that nobody shows the count of: to a node of a graph."""


Reader = Callable[[Any, Taker], None]


class Readers(dict[type, "Reader | None"]):
    """How the instances of a class are read; None where they hold nothing, or are not to be looked into.

    Args:
        home: The name of the module whose classes are the person's own: what a class of others holds is not theirs.
    """

    def __init__(self, home: str) -> None:
        super().__init__(dict.fromkeys(_LEAVES))
        self._home = home

    def __missing__(self, kind: type) -> Reader | None:
        self[kind] = self._reader(kind)
        return self[kind]

    def _reader(self, kind: type) -> Reader | None:
        line = mro_of(kind)
        for known, reader in _READERS:
            if known in line:
                return reader
        if type in line:
            return self._of_class
        if is_node_class(kind):
            return _of_node
        return _of_anything if _is_opened(kind) else None

    def _of_class(self, kind: Any, taker: Taker) -> None:
        if home_of(kind) == self._home:
            _of_anything(kind, taker)


def is_custom(kind: type) -> bool:
    """Return whether a class is that of the nodes of a person's Function."""
    return torch._C._FunctionBase in kind.__mro__


def _is_opened(kind: type) -> bool:
    home = home_of(kind)
    first, _, rest = home.partition(".")
    closed = first in _CLOSED or f"{first}.{rest.partition('.')[0]}" in _CLOSED
    return not closed or kind.__name__ in _OPENED


def _of_anything(item: Any, taker: Taker) -> None:
    for value in gc.get_referents(item):
        taker.python(value)


def _of_container(item: Any, taker: Taker) -> None:
    if not begins_plainly(item, lambda value: type(value) in _LEAVES):
        _of_anything(item, taker)


def _of_tensor(x: Any, taker: Taker) -> None:
    held = gc.get_referents(x)
    for value in held:
        taker.python(value)
    with contextlib.suppress(RuntimeError, NotImplementedError):  # it has none, or none that it shows
        taker.native(_storage(x))
    if (base := _base(x)) is not None:
        taker.native(base)
    with contextlib.suppress(RuntimeError):  # as below
        if (_is_leaf(x) or _retains_grad(x)) and (grad := _grad(x)) is not None:
            taker.native(grad)
    with contextlib.suppress(RuntimeError):  # a view that was changed in a way that autograd forbids
        node = _grad_fn(x)
        if node is not None:
            taker.uncounted(node)
        _of_hooks(x, node, held, taker)
    for part in _SPARSE.get(_layout(x), ()):
        taker.native(_storage(getattr(x, part)()))  # what is asked for is a new tensor over the part's storage


def _of_hooks(x: Any, node: Any, held: list[Any], taker: Taker) -> None:
    """Take down who refers to a tensor's hooks beside its Python object: its C++ part, and its node where it has one.

    Of these references Python is shown the first, and that only while nothing else uses the C++ part.
    """
    early, late = _hooks(x), _late_hooks(x)
    for hooks in filter(None, (early, late)):
        if sum(value is hooks for value in held) == 1:
            take = taker.python_unseen if hooks is late else taker.python
            take(hooks)
        if node is not None:
            taker.python_of(node, hooks)


def _of_storage(_storage: Any, _taker: Taker) -> None:
    """Take down nothing: what lies in a storage are numbers."""


def _of_array(array: Any, taker: Taker) -> None:
    if (base := _array_base(array)) is not None:
        taker.python(base)


def _of_node(node: Any, taker: Taker) -> None:
    for value in gc.get_referents(node):
        taker.python(value)
    for after in next_nodes(node):
        taker.uncounted(after)
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
    (torch.UntypedStorage, _of_storage),
    (np.ndarray, _of_array),
    (torch.nn.Module, _of_anything),  # wherever its class stands: a compiled module's is in a closed package
    *((kind, _of_container) for kind in (dict, list, tuple, deque, set, frozenset)),
)
