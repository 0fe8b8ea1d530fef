"""Asks torch, and holds tensors, so that the user's run does not notice: outside everything that is switched on.

A collector reads tensors with torch operations. Under the user's function modes, dispatch modes or a tracer of
ours, those would be recorded as if the user had written them; with gradients on they would grow a graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch._C import _functorch
from torch.utils._python_dispatch import _disable_current_modes

from tensormagic.words import error_text

Told = TypeVar("Told")


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out all function and dispatch modes, and record nothing for autograd."""
    with torch._C.DisableTorchFunction(), without_modes(), graded(enabled=False):
        yield


class Looking:
    """Looks at what runs, and never raises: what went wrong is the ``gap``, and ``seconds`` were spent in all."""

    seconds, gap = 0.0, ""

    def guarded(self, look: Callable[..., Any], *given: Any) -> Any:
        """Look outside the user's function modes; return what comes of it, None where something went wrong."""
        began = perf_counter()
        try:
            with torch._C.DisableTorchFunction():
                return look(*given)
        except Exception as error:
            self.gap = error_text(error)
            return None
        finally:
            self.seconds += perf_counter() - began


def told(ask: Callable[[], Told], otherwise: Told) -> Told:
    """Return what a tensor of the user's tells, or something else where it raises: an odd one may raise anything."""
    try:
        return ask()
    except Exception:
        return otherwise


def number(size: Any) -> int:
    """Return a size as a plain number: of a symbol the one it was traced with, -1 where it never had one.

    ``int(size)`` would make that number a condition of what the user compiles or exports.
    """
    if type(size) is int:
        return size
    hint = getattr(size.node, "hint", None)  # the length of a jagged dimension has none
    return hint if type(hint) is int else -1


def numbers(sizes: Iterable[Any]) -> tuple[int, ...]:
    """Return sizes as plain numbers; see `number`.

    Raises:
        RuntimeError: where one is not known: that of a jagged dimension.
    """
    known = tuple(map(number, sizes))
    if -1 in known:
        raise RuntimeError("a size is not a known number")
    return known


def without_modes() -> AbstractContextManager[Any]:
    """Leave out all dispatch modes."""
    return _disable_current_modes() if _depth() or _depth_before() else nullcontext()


@contextmanager
def graded(*, enabled: bool) -> Iterator[None]:
    """Record for autograd, or nothing, as torch's own switches do; an interrupt leaves no switch behind."""
    before = torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(enabled)
        yield
    finally:
        torch._C._set_grad_enabled(before)


def outside_inference() -> AbstractContextManager[Any]:
    """Leave torch's inference mode, in one step each way."""
    guard: AbstractContextManager[Any] = torch._C._InferenceMode(False)  # noqa: FBT003  (C++ takes it so)
    return guard


_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack
_depth_before: Callable[[], int] = getattr(torch._ops, "_len_torch_dispatch_stack_pre_dispatch", int)
_PYTHON = torch._C.DispatchKey.Python
_DTENSORS = frozenset({"torch.distributed.tensor", "torch.distributed._tensor.api", "torch.distributed.tensor._api"})


def dispatches_to_python(x: Any) -> bool:
    """Return whether Python code of a tensor's own class answers what is asked of it, instead of a kernel.

    Nobody asked for that code to run: it may count, print, or talk to other processes. Of torch's own classes a jagged
    one computes what any tensor does.
    """
    if type(x) is torch.Tensor or type(x) is torch.nn.Parameter or not isinstance(x, torch.Tensor):
        return False
    return torch._C._dispatch_keys(x).has(_PYTHON) and not type(x).__module__.startswith("torch.nested.")


def local_shard(x: Any) -> Any:
    """Return the shard of a DTensor that lies in this process, and anything else as it is: no code of a class runs."""
    return x._local_tensor if type(x).__name__ == "DTensor" and type(x).__module__ in _DTENSORS else x


def is_replicated(x: Any) -> bool:
    """Return whether what lies of a DTensor in this process is all of it: a full copy."""
    return local_shard(x) is not x and all(placement.is_replicate() for placement in x._spec.placements)


def unread_reason(x: Any) -> str:
    """Return why the values of a tensor that answers itself are not read."""
    return f"only code of its class {type(x).__name__} can read its values, and a trace does not run that code"


# Inside ``grad``, ``vjp`` or ``jacrev`` of ``torch.func`` backward runs as anywhere: over nodes that can be walked and
# hooked. Only the tensors are wrapped, once a transform (a *level*), and under ``vmap`` one wrapper stands for a whole
# batch. The numbers that the tracer gives are those of what is wrapped: of all the batch at once.


def functorch_levels() -> tuple[str, ...]:
    """Return what is running on this thread, the outermost first: ``("vmap", "grad")``; mostly nothing."""
    stack = _functorch.get_interpreter_stack() or ()
    return (*(interpreter.key().name.lower() for interpreter in stack), *("is_grads_batched",) * _batching_depth())


def _batching_depth() -> int:
    """Return how many calls of the older vmap are running, the one behind ``is_grads_batched=True``."""
    depth = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return depth


def unwrap(value: Any) -> Any:
    """Return the tensor inside all wrappers; anything that is not wrapped as it is."""
    while isinstance(value, torch.Tensor):
        if _functorch.is_functorch_wrapped_tensor(value):
            value = _functorch.get_unwrapped(value)
        elif _functorch.is_legacy_batchedtensor(value):
            value = torch._remove_batch_dim(value, _batching_depth(), 1, 0)
        else:
            break
    return value


@contextmanager
def outside_functorch() -> Iterator[None]:
    """Compute as if no transform and no dispatch mode were on."""
    with torch._C._DisableFuncTorch(), _disable_current_modes():
        yield


# `torch.utils.swap_tensors`, by which modules are converted and shards put in their place, refuses a tensor that
# anybody holds weakly. We do, also when a run has ended: so it is told of all such references but these.


class TensorRef(weakref.ref[Any]):
    """A weak reference to a tensor of the user's: one for each, as `weakref.ref` makes them."""

    __slots__ = ()

    def __new__(cls, x: Any, callback: Callable[[Any], object] | None = None) -> Any:
        """Return the one that there is, or a new one."""
        known = () if callback else weakref.getweakrefs(x)
        return next((each for each in known if type(each) is cls), None) or super().__new__(cls, x, callback)


def _told_of_others(before: ModuleType) -> ModuleType:
    told = ModuleType(before.__name__)
    told.__dict__.update(vars(before))
    told.getweakrefs = lambda x: [each for each in before.getweakrefs(x) if not isinstance(each, TensorRef)]  # type: ignore[attr-defined]
    return told


torch.utils.weakref = _told_of_others(torch.utils.weakref)  # type: ignore[attr-defined]
