"""Random programs that hold tensors in every way that people do; and what deleting a name really frees."""

from __future__ import annotations

import gc
from typing import Any

import torch
from hypothesis import strategies as st
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tensormagic.collectors.memory.freed import collect_freeable

PRELUDE = """
import collections, functools, types
import torch
from torch import nn

class Node:
    def __init__(self, held):
        self.held = held

class Slotted:
    __slots__ = ("held",)

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.extra = torch.ones(5)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

def closing_over(held):
    return lambda: held

def stopped(held):
    yield held
    yield None

def failed(held):
    try:
        raise ValueError("no")
    except ValueError as error:
        return error
"""
# What is bound to a new name: {a} and {b} are names that are there, {n} is a size.
ANY = (
    "[{a}]", "[{a}, {b}, {a}]", "({a}, {b})", "dict(k={a}, m={b})", "{{'deep': [{a}, ({b},)]}}",
    "collections.deque([{a}, {b}])", "collections.OrderedDict(k={a})", "collections.defaultdict(list, k=[{a}])",
    "Node({a})", "types.SimpleNamespace(p={a}, q={b})", "closing_over({a})", "functools.partial(print, {a}, sep={b})",
    "(lambda held={a}: held)", "stopped({a})", "failed({a})", "{a}", "{b}", "type('Own', (), dict(held={a}))",
    "iter([{a}, {b}])", "Node({a}).__init__", "functools.lru_cache(closing_over({a}))",
)  # fmt: skip
FRESH = (
    "torch.ones({n})", "torch.ones({n}, requires_grad=True)", "torch.ones({n}, 2).t()[1:]",
    "torch.eye({n}).to_sparse()",
    "nn.Linear({n}, 2)", "nn.Sequential(nn.Linear({n}, 3), nn.BatchNorm1d(3), nn.ReLU())",
    "torch.ones({n}).untyped_storage()",
    "nn.Parameter(torch.ones({n}))", "torch.ones({n})[2:][1:]", "torch.eye({n}).to_sparse_csr()",
)  # fmt: skip
TENSOR = (
    "{a}[1:]", "{a}.detach()", "{a}.view(-1)", "{a}.exp()", "({a} * 2).sigmoid()", "{a}.sum()", "{a}.sum() * {a}.exp()",
    "Double.apply({a}).exp()", "{a}.clone().mul_(2)", "{a}.data", "{a}.grad", "{a}.grad_fn", "{a}.detach().numpy()",
    "torch.cat([{a}.reshape(-1), {a}.reshape(-1)])", "nn.functional.dropout({a}, 0.5)", "{a}.untyped_storage()",
    "{a}._base",
    "torch.autograd.grad({a}.exp().sum(), {a}, create_graph=True)[0] if {a}.requires_grad else {a} + 1",
)  # fmt: skip
DO_TENSOR = (
    "{a}.register_hook(closing_over(torch.ones({n}))) if {a}.requires_grad else None",
    "{a}.sum().backward() if {a}.requires_grad else None",
    "{a}.sum().backward(retain_graph=True) if {a}.requires_grad else None",
    "setattr({a}, 'mine', torch.ones({n}))",
    "{a}.retain_grad() if {a}.requires_grad else None",
    "setattr({a}, 'grad', None)",
    "{a}.detach().resize_({n}) if {a}.is_contiguous() and not {a}.requires_grad else None",
    "{a}.set_(torch.ones({n})) if not {a}.requires_grad and {a}._base is None else None",
)  # fmt: skip
MODULE = (
    "{m}(torch.ones(2, next({m}.parameters()).shape[1])).sum()",
    "torch.optim.SGD({m}.parameters(), 0.1, momentum=0.9)",
    "torch.optim.Adam({m}.parameters())",
    "list({m}.parameters())", "{m}.state_dict()", "{m}.forward",
)  # fmt: skip
DO_ANY = ("del {a}", "box = [{a}]; box.append(box); del box", "{b} = [{a}, closing_over({b})]")
DO_LIST = ("{c}.append({a})", "{c}.append({c})", "{c}.extend([{a}, {b}])", "{c}.clear()")


_TEMPLATES = (
    [(text, "list" if text.startswith("[") else "other") for text in ANY]
    + [(text, "module" if text.startswith("nn.") and "Parameter" not in text else "tensor") for text in FRESH] * 2
    + [(text, "tensor") for text in TENSOR] * 2
    + [(MODULE[0], "tensor")] * 6
    + [(text, "other") for text in MODULE[1:]] * 2
    + [(text, "") for text in (*DO_TENSOR, *DO_ANY, *DO_LIST)]
)
_PRELUDE = compile(PRELUDE, "<prelude>", "exec")
_ERRORS = "(RuntimeError, TypeError, AttributeError, NameError, IndexError, ValueError)"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Return the source of a program of a few lines over the names ``v0``, ``v1``, ...

    A line that torch refuses does nothing.
    """
    lines = ["v0 = torch.ones(3, requires_grad=True)", "v1 = [v0.exp()]", "v2 = nn.Linear(4, 2)"]
    kinds = {"v0": "tensor", "v1": "list", "v2": "module"}
    for at in range(3, draw(st.integers(5, 14))):
        template, kind = draw(st.sampled_from(_TEMPLATES))
        wanted = "tensor" if template in {*TENSOR, *DO_TENSOR} else ""
        text = template.format(
            a=draw(st.sampled_from([name for name in kinds if kinds[name] == wanted] or list(kinds))),
            b=draw(st.sampled_from(list(kinds))),
            m=draw(st.sampled_from([name for name in kinds if kinds[name] == "module"] or ["v2"])),
            c=draw(st.sampled_from([name for name in kinds if kinds[name] == "list"] or ["v1"])),
            n=draw(st.integers(3, 9)),
        )
        lines.append(f"v{at} = {text}" if kind else text)
        if kind:
            kinds[f"v{at}"] = kind
    return "\n".join(f"try: {line}\nexcept {_ERRORS}: pass" for line in lines)


class Storages(TorchDispatchMode):
    """Refers weakly to the storages of everything that operations return or are given: all that a program makes."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and take down its storages."""
        result = func(*args, **(kwargs or {}))
        for item in tree_iter((args, kwargs, result)):
            if isinstance(item, torch.Tensor):
                self._take(item)
        return result

    def _take(self, x: torch.Tensor) -> None:
        parts = ("_indices", "_values") if x.layout == torch.sparse_coo else ()
        parts = ("crow_indices", "col_indices", "values") if x.layout == torch.sparse_csr else parts
        for part in [getattr(x, name)() for name in parts] or [x]:
            storage = part.untyped_storage()
            self.known[storage._cdata] = StorageWeakRef(storage)

    def take_all(self) -> None:
        """Take down the storages of all tensors that Python knows."""
        for item in [each for each in gc.get_objects() if type(each) in {torch.Tensor, torch.nn.Parameter}]:
            self._take(item)

    def alive(self) -> dict[int, int]:
        """Return the bytes of each storage that is alive."""
        found = {}
        for key, weak in self.known.items():
            storage = None if weak.expired() else torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
            if storage is not None:
                found[key] = storage.nbytes()
        return found


def run(source: str) -> tuple[dict[str, Any], Storages]:
    """Run a program; returns its names and its storages. What it left behind in cycles is cleared away."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(_PRELUDE, namespace)
    with Storages() as storages:
        exec(source, namespace)
    gc.collect()
    return namespace, storages


def freed_by(source: str, *names: str, code: str = "") -> int:
    """Run a program and delete names, or run code instead; returns the bytes of the storages that are gone then.

    A look at it comes first: of a number that a node saves (``x.mul_(2)``) no operation tells, only the node does.
    """
    namespace, storages = run(source)
    collect_freeable(namespace)
    storages.take_all()
    before = storages.alive()
    for name in names:
        del namespace[name]
    exec(code, namespace)
    gc.collect()
    after = storages.alive()
    return sum(nbytes for key, nbytes in before.items() if key not in after)


def quick_collections() -> None:
    """Leave all that is alive now out of the garbage collector's rounds: each takes a millisecond, then.

    A first program comes before that: it makes torch import what it imports late.
    """
    freed_by("v0 = nn.Linear(2, 2)\nv1 = torch.optim.Adam(v0.parameters())")
    gc.collect()
    gc.freeze()
