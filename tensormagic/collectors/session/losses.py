"""The loss of a batch: how it is called, and what it would be of a model that knows nothing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tensormagic.collectors.graphs.live_nodes import NORMALISING, normalising_node
from tensormagic.collectors.session.batches import Parts

Loss = Callable[..., Any]


class JudgedLoss(NamedTuple):
    """A loss, what it is called, and what it is of a model that knows nothing."""

    value: Any
    name: str
    expected: float | None


def first_tensor(result: Any) -> torch.Tensor | None:
    """Return what a model made: the tensor, the logits of a named result, the first of several."""
    if isinstance(result, tuple | list):
        return next((x for x in result if isinstance(x, torch.Tensor)), None)
    if isinstance(result, Mapping):
        result = result.get("logits", next(iter(result.values()), None))
    elif not isinstance(result, torch.Tensor):
        result = getattr(result, "logits", None)
    return result if isinstance(result, torch.Tensor) else None


def is_of_torch(loss: Any) -> bool:
    """Return whether a loss is one of torch's, or none is given: what it applies itself is known."""
    home = type(loss) if isinstance(loss, nn.Module) else loss
    return home is None or str(getattr(home, "__module__", "")).startswith("torch.")


def is_loss(part: Any) -> bool:
    """Return whether something may be a loss: one more model, which has weights and takes one input, is none."""
    if not isinstance(part, nn.Module):
        return callable(part) and not hasattr(part, "__iter__")
    needed = [each.kind for each in _parameters(part).values() if each.default is each.empty]
    takes_one = len(needed) == 1 and needed[0] is not inspect.Parameter.VAR_POSITIONAL
    return not takes_one or takes_model(part) or next(part.parameters(), None) is None


def takes_model(loss: Any) -> bool:
    """Return whether a loss runs the model itself: ``lambda model, batch: …``."""
    return next(iter(_parameters(loss)), "") in {"model", "net"}


def _parameters(loss: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters
    except (TypeError, ValueError, AttributeError):
        return {}


def name_of(loss: Loss) -> str:
    """Return what a loss is called."""
    return type(loss).__name__ if isinstance(loss, nn.Module) else getattr(loss, "__name__", "loss").strip("<>")


def loss_of(result: Any, parts: Parts, given: Loss | None) -> JudgedLoss | None:
    """Return the loss of a result: the user's own, the one in the result, or the usual one for such a target."""
    own = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    out, target = first_tensor(result), parts.target
    if given is not None:
        value = _called(given, result, out, target)
        return JudgedLoss(value, name_of(given), None if out is None else _of_nothing(given, out, target))
    if not isinstance(own, torch.Tensor) and target is None and out is result and out is not None and not out.dim():
        own = out
    if isinstance(own, torch.Tensor):
        return JudgedLoss(own, "the model's loss", None)
    if out is None or not isinstance(target, torch.Tensor) or not (name := usual_loss(out, target)):
        return None
    if name in BINARY:
        target = target.to(out.dtype).reshape(out.shape)
    loss = getattr(F, name)
    return JudgedLoss(loss(out, target), name, _of_nothing(loss, out, target))


def _called(given: Loss, result: Any, out: torch.Tensor | None, target: Any) -> Any:
    """Return what a loss gives: torch's take the tensor, others may take all that the model made."""
    rest = () if target is None else (target,)
    if out is None or out is result:
        return given(result, *rest)
    if is_of_torch(given):
        return given(out, *rest)
    try:
        return given(result, *rest)
    except Exception:
        with suppress(Exception):  # the first error is about what was meant
            return given(out, *rest)
        raise


def last_of(out: torch.Tensor) -> str:
    """Return what made a result, where that is a softmax, a log_softmax or a sigmoid."""
    node = normalising_node(out.grad_fn)
    return NORMALISING[node.name()] if node is not None else ""


def usual_loss(out: torch.Tensor, target: torch.Tensor) -> str:
    """Return the loss that is usual for such a target; empty where none is."""
    last = last_of(out)
    if not target.is_floating_point() and out.dim() > 1 and out.shape[1] > 1:
        usual = "nll_loss" if last == "log_softmax" else "cross_entropy"
        return usual if target.shape == (out.shape[0], *out.shape[2:]) else ""
    if target.numel() == out.numel() and bool(((target == 0) | (target == 1)).all()):
        return "binary_cross_entropy" if last == "sigmoid" else "binary_cross_entropy_with_logits"
    return "mse_loss" if target.shape == out.shape and target.is_floating_point() else ""


CROSS = frozenset({"CrossEntropyLoss", "cross_entropy", "NLLLoss", "nll_loss"})  # these take numbers of classes
BINARY = frozenset({"BCEWithLogitsLoss", "BCELoss", "binary_cross_entropy", "binary_cross_entropy_with_logits"})
_SQUARES = frozenset({"MSELoss", "mse_loss"})


def _of_nothing(loss: Loss, out: torch.Tensor, target: Any) -> float | None:
    """Return the loss of outputs that say nothing: equal for each class, or zero."""
    name, count = name_of(loss), out.numel()
    if name in CROSS and out.dim() > 1 and out.shape[1] > 1:
        each, count = math.log(out.shape[1]), count // out.shape[1]
        if isinstance(target, torch.Tensor) and not target.is_floating_point():
            count = int((target != getattr(loss, "ignore_index", -100)).sum())
    elif name in BINARY:
        each = math.log(2)
    elif name in _SQUARES and isinstance(target, torch.Tensor):
        each, count = float(target.detach().double().square().mean()), max(count, target.numel())
    else:
        return None
    return each * count if getattr(loss, "reduction", "mean") == "sum" else each


def is_out_of_range(out: torch.Tensor, target: Any, loss: Any) -> bool:
    """Return whether a loss that picks classes would be asked for one that is not there."""
    if not isinstance(target, torch.Tensor) or target.is_floating_point() or out.dim() < 2 or not target.numel():
        return False
    name = usual_loss(out, target) if loss is None else type(loss).__name__
    ignored = getattr(loss, "ignore_index", -100)
    wanted = target[target != ignored]
    return name in CROSS and bool(((wanted < 0) | (wanted >= out.shape[1])).any())
