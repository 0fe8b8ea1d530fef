"""What stands behind a tensor's autograd state: why it is so, and its hooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any

import torch

from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.tensors.autograd_path import path_of
from tensormagic.collectors.tensors.saved_states import saved_states
from tensormagic.reports import AutogradDetails, Hook

MOST_HOOKS = 12

Named = Iterable[tuple[str, Any]]


def autograd_details(x: torch.Tensor, names: Mapping[int, str], named: Named = (), *, name: str) -> AutogradDetails:
    """Return what stands behind the autograd state of a tensor.

    Args:
        x: Any tensor.
        names: What tensors are called, by ``tensor._cdata``.
        named: Names and the tensors and arrays that they are of.
        name: What ``x`` is called.
    """
    with quiet():
        node, known = x.grad_fn, list(named)
        return AutogradDetails(
            output_number=x.output_nr,
            because=_because(x, known, name),
            grad_because=_grad_because(x, name),
            hooks=tuple(_hooks(x))[:MOST_HOOKS],
            saved=() if node is None else saved_states(node, names),
            path=path_of(node, names, [(label, item) for label, item in known if _is_other(item, x)]),
        )


def _is_other(item: object, x: torch.Tensor) -> bool:
    return isinstance(item, torch.Tensor) and item is not x


# -- why ----------------------------------------------------------------------------------------------------------


def _because(x: torch.Tensor, named: list[tuple[str, Any]], name: str) -> str:
    if x.is_inference():
        return "made under inference_mode, where nothing is recorded"
    if x.grad_fn is not None:
        return f"not a leaf: {x.grad_fn.name()} made it from something that requires grad"
    if x.requires_grad:
        asked = "a Parameter requires grad" if isinstance(x, torch.nn.Parameter) else "requires_grad was set on it"
        return f"a leaf: no recorded operation made it, and {asked}"
    if not (x.is_floating_point() or x.is_complex()):
        return "only floating-point and complex tensors can require grad"
    cut = _cut_from(x, named)
    if cut:
        return f"it shares {cut}'s memory but not its graph: detach(), .data or no_grad cut {name} off"
    return "no operation that led to it was recorded: nothing it was made from requires grad, or it was made in no_grad"


def _cut_from(x: torch.Tensor, named: list[tuple[str, Any]]) -> str:
    """Return the name of a tensor with the same storage that requires grad, though ``x`` does not."""
    try:
        storage = x.untyped_storage()._cdata
        others = ((label, item) for label, item in named if _is_other(item, x) and item.requires_grad)
        return next((label for label, item in others if item.untyped_storage()._cdata == storage), "")
    except (RuntimeError, NotImplementedError):
        return ""  # no storage


def _grad_because(x: torch.Tensor, name: str) -> str:
    if not x.requires_grad:
        return "autograd does not track it"
    if not x.is_leaf and not x.retains_grad:
        return f"torch keeps the gradients of leaves only, unless {name}.retain_grad() is called before backward()"
    if x.grad is not None:
        return "backward() has brought it; the next one is added to it"
    return "no backward() has reached it since it was made, or since zero_grad() took it away"


# -- hooks --------------------------------------------------------------------------------------------------------


def _hooks(x: torch.Tensor) -> Iterator[Hook]:
    kinds = (("tensor hook", "_backward_hooks"), ("post-accumulate hook", "_post_accumulate_grad_hooks"))
    for kind, attribute in kinds:
        for function in list((getattr(x, attribute, None) or {}).values()):
            yield Hook(kind, _function_name(function), _place(function))


def _function_name(function: Any) -> str:
    bare = _bare(function)
    return str(getattr(bare, "__qualname__", "") or type(bare).__qualname__).rsplit("<locals>.", 1)[-1]


def _bare(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def _place(function: Any) -> str:
    code = getattr(_bare(function), "__code__", None)
    return f"{PurePath(code.co_filename).name}, line {code.co_firstlineno}" if code is not None else ""
