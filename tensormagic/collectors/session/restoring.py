"""What the user's code changes besides the copy of a model: it is put back afterwards, where it can be found.

Reached are a loader, its dataset and samplers, a loss and a model: their attributes, what their functions close over,
and the globals that these name. Of what is found, generators, numbers, gradients, buffers and hooks are as before.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

from tensormagic.collectors.where.source import is_own_code

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MOST = 2000  # objects that are looked at
_MANY = 100  # items of a list or a dictionary that are
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


@contextmanager
def kept(*roots: Any) -> Iterator[None]:
    """Put back what code that is reached from here may change, and every global generator."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002  (the global ones)
    with torch.random.fork_rng(devices=devices), ExitStack() as stack:
        stack.callback(random.setstate, python)
        stack.callback(np.random.set_state, arrays)
        for name in HOOKS:
            stack.callback(_taken_out(getattr(nn.modules.module, f"_global{name}")))
        for one in _reached(roots):
            with suppress(Exception):  # a class of the user's that does not give its state
                for put_back in _ways_back(one):
                    stack.callback(put_back)
        yield


def take_hooks_out(module: nn.Module) -> None:
    """Take the user's hooks off a module; those of libraries are part of what it does."""
    for name in HOOKS:
        _taken_out(getattr(module, name))


def _taken_out(hooks: dict[int, Any]) -> Callable[[], Any]:
    before = dict(hooks)
    for key, hook in before.items():
        code = getattr(getattr(hook, "__func__", hook), "__code__", None)
        if code is not None and is_own_code(code.co_filename):
            del hooks[key]

    def put_back() -> None:
        hooks.clear()
        hooks.update(before)

    return put_back


def _ways_back(one: Any) -> Iterator[Callable[[], Any]]:
    if isinstance(one, torch.Generator):
        yield partial(one.set_state, one.get_state())
    elif isinstance(one, np.random.RandomState):
        yield partial(one.set_state, one.get_state(legacy=False))
    elif isinstance(one, np.random.Generator):
        yield partial(setattr, one.bit_generator, "state", one.bit_generator.state)
    elif isinstance(one, random.Random):
        yield partial(one.setstate, one.getstate())
    elif isinstance(one, torch.Tensor):
        if one.is_leaf and one.requires_grad:
            gradient, one.grad = one.grad, None
            yield lambda: setattr(one, "grad", gradient)
    elif isinstance(one, nn.Module):
        yield from (_taken_out(getattr(one, name)) for name in HOOKS)
        buffers = dict(one._buffers)
        one._buffers.update({name: None if each is None else each.clone() for name, each in buffers.items()})
        yield lambda: one._buffers.update(buffers)
    if any(is_own_code(each.__code__.co_filename) for each in _functions(type(one))):
        plain = {name: value for name, value in vars(one).items() if isinstance(value, _PLAIN)}
        yield lambda: vars(one).update(plain)


def _reached(roots: Iterable[Any]) -> list[Any]:
    found: dict[int, Any] = {}
    waiting = deque(roots)
    while waiting and len(found) < _MOST:
        one = waiting.popleft()
        if id(one) not in found and not isinstance(one, (*_PLAIN, np.ndarray)):
            found[id(one)] = one
            with suppress(Exception):  # a mapping of the user's that cannot be asked
                waiting.extend(_parts(one))
    return list(found.values())


def _parts(one: Any) -> Iterator[Any]:
    if isinstance(one, MethodType):
        yield from (one.__self__, one.__func__)
    elif isinstance(one, FunctionType):
        if is_own_code(one.__code__.co_filename):
            yield from _held(one)
    elif isinstance(one, dict):
        yield from list(one.values())[:_MANY]
    elif isinstance(one, list | tuple | set):
        yield from list(one)[:_MANY]
    elif not isinstance(one, type | torch.Tensor) and (hasattr(one, "__dict__") and not hasattr(one, "__spec__")):
        yield from (*vars(one).values(), *_functions(type(one)))


def _functions(kind: type) -> Iterator[FunctionType]:
    return (value for base in kind.__mro__ for value in vars(base).values() if isinstance(value, FunctionType))


def _held(function: FunctionType) -> Iterator[Any]:
    """Yield what a function closes over, and those globals that it names which using them may change."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty one
            yield cell.cell_contents
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, (nn.Module, torch.Tensor, FunctionType, *_GENERATORS)):
            yield value


def iterator_in(dataset: Any) -> str:
    """Return the attribute in which a stream holds an iterator, or an open file, that it would advance; else empty."""
    held: Mapping[str, Any] = getattr(dataset, "__dict__", {})
    return next((name for name, value in held.items() if isinstance(value, Iterator)), "")
