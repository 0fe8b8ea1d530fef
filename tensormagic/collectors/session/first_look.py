"""A look before training, from one batch: everything runs on copies, and nothing of the person's is changed.

The model is copied with `copy.deepcopy`, hooks of the person's are taken off the copy, batches are cloned, and every
generator is put back. What a model's own code does besides (prints, writes to a global) cannot be undone.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import is_a
from tensormagic.collectors.objects.namespace import inside
from tensormagic.collectors.session.first_batch import (
    CannotTakeError,
    Parts,
    first_batch,
    first_tensor,
    generators_kept,
    generators_of,
    loss_of,
    mapped,
    parts_of,
    picks_classes,
    usual_loss,
)
from tensormagic.collectors.where.source import is_own_code
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Extent, Gap, Overfit, StartReport

SAMPLES, STEPS = 8, 50
SECONDS = 4.0  # that learning a few samples may take
COPIES = 5  # of the parameters: two models, gradients, two moments
RATE, LARGE_RATE, LARGE = 1e-2, 1e-3, 1_000_000  # of Adam, for a few parameters and for many

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_DROPOUT = nn.modules.dropout._DropoutNd
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def look(
    net: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    source: Any,
    loss: Callable[..., Any] | None,
    *,
    name: str = "net",
) -> StartReport:
    """Return what one batch tells about a training that is about to begin.

    Args:
        net: The model.
        optimizer: That is to step it, if there is one.
        source: A loader, a list of batches, or a batch; None: there is none.
        loss: Takes what the model makes, and the target; by default the usual one for the target.
        name: What the person calls the model.
    """
    began = perf_counter()
    found = dict(_parameters(net, optimizer), model=name, training=net.training, in_eval=tuple(_in_eval(net)))
    gaps: list[Gap] = []
    if source is not None:
        with generators_kept(*generators_of(source)), torch.enable_grad():
            try:
                found |= _Runs(net, optimizer, source, loss, gaps).facts()
            except CannotTakeError as reason:
                gaps.append(Gap("batch", f"no batch was taken: {reason}"))
            except Exception as error:  # a batch that cannot be made, a model that cannot be copied
                gaps.append(Gap("batch", f"nothing was run: {type(error).__name__}: {error}"))
    return StartReport(**found, gaps=tuple(gaps), seconds=perf_counter() - began)


def _parameters(net: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Return what is known of parameters: how many there are, and which the optimizer lacks."""
    named = list(net.named_parameters())
    facts: dict[str, Any] = {"parameters": len(named), "trainable": sum(one.requires_grad for _, one in named)}
    if optimizer is not None:
        held = {id(one): one for group in optimizer.param_groups for one in group["params"]}
        own = {id(one) for one in net.parameters()}
        facts["missing"] = tuple(path for path, one in named if one.requires_grad and id(one) not in held)
        facts["unknown_parameters"] = len(held.keys() - own)
        facts["optimizer"] = type(optimizer).__name__
    return facts


def _in_eval(net: nn.Module) -> Iterator[str]:
    """Yield the dropouts and normalisations of a model in train mode that are in eval mode."""
    for path, module in inside("", net) if net.training else ():
        asks = any(parameter.requires_grad for parameter in module.parameters()) or isinstance(module, _DROPOUT)
        if isinstance(module, (*_NORMS, _DROPOUT)) and not module.training and asks:
            yield path.removeprefix(".")


def is_module(value: object) -> bool:
    """Return whether a value is a module."""
    return is_a(value, nn.Module)


Sorted = tuple[nn.Module, torch.optim.Optimizer | None, Any, Callable[..., Any] | None]


def sorted_out(parts: Sequence[Any]) -> Sorted:
    """Return model, optimizer, source of batches and loss, which may be given in any order.

    Raises:
        TensorMagicError: where there is no model among them, or two of a kind.
    """
    net = optimizer = source = loss = None
    for part in parts:
        if isinstance(part, torch.optim.Optimizer) and optimizer is None:
            optimizer = part
        elif isinstance(part, nn.Module) and net is None and not isinstance(part, nn.modules.loss._Loss):
            net = part
        elif _is_loss(part) and loss is None:
            loss = part
        elif source is None and not isinstance(part, nn.Module | torch.optim.Optimizer) and hasattr(part, "__iter__"):
            source = part
        else:
            raise TensorMagicError(
                f"check() takes one model, one optimizer, one loader and one loss; not another {_kind(part)}"
            )
    if net is None:
        raise TensorMagicError("check() before a training takes the model: check(net, optimizer, loader)")
    return net, optimizer, source, loss


def _kind(part: object) -> str:
    return type(part).__name__


def _is_loss(part: object) -> bool:
    return isinstance(part, nn.Module) or (callable(part) and not hasattr(part, "__iter__"))


class _Runs:
    """What is run: a forward and a backward of the batch, another to see whether samples mix, and a few steps."""

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        source: Any,
        loss: Callable[..., Any] | None,
        gaps: list[Gap],
    ) -> None:
        self._net, self._loss, self._gaps = net, loss, gaps
        self._held = None
        if optimizer is not None:
            held = {id(one) for group in optimizer.param_groups for one in group["params"]}
            self._held = {path for path, one in net.named_parameters() if id(one) in held}
        first = next(net.parameters(), None)
        self._device = first.device if first is not None else torch.device("cpu")
        self._batch = mapped(first_batch(source), lambda x: x.detach().to(self._device, copy=True))

    def facts(self) -> dict[str, Any]:
        """Return all that was seen."""
        parts = parts_of(self._batch)
        given = [*parts.inputs, *(value for key, value in parts.named.items() if key != "labels")]
        facts: dict[str, Any] = {"inputs": tuple(_extent(x) for x in given if isinstance(x, torch.Tensor))}
        if isinstance(parts.target, torch.Tensor):
            facts["target"] = _extent(parts.target)
        if reason := _too_large(self._net, self._device):
            self._gaps.append(Gap("copy", reason))
            return facts
        facts |= self._once()
        if not facts.get("error"):
            facts["mixes"] = self._mixes()
            if facts.get("value") is not None:
                facts["overfit"] = self._overfit()
        return facts

    def _copy(self) -> nn.Module:
        net = copy.deepcopy(self._net)
        for _, module in inside("", net):
            for name in _HOOKS:
                hooks = getattr(module, name)
                for key in [key for key, hook in hooks.items() if _is_own(hook)]:
                    del hooks[key]
        net.zero_grad(set_to_none=True)
        return net

    def _fresh(self, samples: int = 0) -> Parts:
        """Return the batch, or its first samples, in memory of its own: a model may write to what it is given."""
        size = _size(self._batch)
        cut = samples if samples and size > samples else 0
        return parts_of(mapped(self._batch, lambda x: (x[:cut] if cut and x.dim() and len(x) == size else x).clone()))

    def _once(self) -> dict[str, Any]:
        net, facts = self._copy().train(), dict[str, Any]()
        fresh = self._fresh()
        try:
            result = net(*fresh.inputs, **fresh.named)
            out = first_tensor(result)
            facts["outputs"] = tuple(out.shape) if out is not None else None
            if out is not None and _is_out_of_range(out, fresh.target, self._loss):
                facts["loss"] = "cross_entropy"
                return facts  # on a GPU the loss would end the process's use of it
            judged = loss_of(result, fresh.target, self._loss)
            if judged is None or not isinstance(judged.value, torch.Tensor):
                return facts
            value = judged.value
            facts |= {"loss": judged.name, "expected": judged.expected}
            if value.numel() != 1 or not value.requires_grad:
                return facts
            facts["value"] = float(value.detach())
            value.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            return {**facts, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        return facts | _gradients(net)

    def _mixes(self) -> bool | None:
        """Return whether the first sample's result depends on other samples: by the gradient of it."""
        parts = self._fresh()
        x = parts.inputs[0] if len(parts.inputs) == 1 and not parts.named else None
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dim() < 2 or len(x) < 2:
            return None
        net, x = self._copy().eval(), x.requires_grad_()
        try:
            out = first_tensor(net(x))
            if out is None or out.dim() < 1 or len(out) != len(x) or not out.requires_grad:
                return None
            (gradient,) = torch.autograd.grad(out[0].sum(), x, allow_unused=True)
        except Exception as error:
            self._gaps.append(Gap("samples", f"whether samples mix is unknown: {type(error).__name__}: {error}"))
            return None
        return None if gradient is None else bool(gradient[1:].any())

    def _overfit(self) -> Overfit | None:
        """Train a copy on a few samples, without dropout."""
        net = self._copy().train()
        for _, module in inside("", net):
            if isinstance(module, _DROPOUT):
                module.eval()
        named = net.named_parameters()
        trained = [one for path, one in named if one.requires_grad and (self._held is None or path in self._held)]
        if not trained:
            return None
        large = sum(one.numel() for one in trained) > LARGE
        optimizer = torch.optim.Adam(trained, lr=LARGE_RATE if large else RATE)
        losses: list[float] = []
        began = perf_counter()
        try:
            while len(losses) < STEPS and perf_counter() - began < SECONDS:
                fresh = self._fresh(SAMPLES)
                judged = loss_of(net(*fresh.inputs, **fresh.named), fresh.target, self._loss)
                assert judged is not None  # it was there a moment ago
                losses.append(float(judged.value.detach()))
                optimizer.zero_grad()
                judged.value.backward()
                optimizer.step()
        except Exception as error:
            self._gaps.append(Gap("overfit", f"a few samples could not be learned: {type(error).__name__}: {error}"))
            return None
        return Overfit(min(SAMPLES, _size(self._batch)), len(losses), losses[0], losses[-1])


def _size(batch: Any) -> int:
    sizes: list[int] = []
    mapped(batch, lambda x: sizes.append(len(x)) if x.dim() else None)
    return sizes[0] if sizes else 0


def _is_own(hook: Any) -> bool:
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    return code is not None and is_own_code(code.co_filename)


def _is_out_of_range(out: torch.Tensor, target: Any, loss: Any) -> bool:
    """Return whether a loss that picks classes would be asked for one that is not there."""
    if not isinstance(target, torch.Tensor) or target.is_floating_point() or out.dim() < 2 or not target.numel():
        return False
    name = usual_loss(out, target) if loss is None else type(loss).__name__
    ignored = getattr(loss, "ignore_index", -100)
    wanted = target[target != ignored]
    return picks_classes(name) and bool(((wanted < 0) | (wanted >= out.shape[1])).any())


def _gradients(net: nn.Module) -> dict[str, Any]:
    asking = [(path, one) for path, one in net.named_parameters() if one.requires_grad]
    there = [(path, one.grad) for path, one in asking if one.grad is not None]
    return {
        "without_gradient": tuple(path for path, one in asking if one.grad is None),
        "zero_gradient": tuple(path for path, gradient in there if not bool(gradient.count_nonzero())),
        "bad_gradient": tuple(path for path, gradient in there if not bool(gradient.isfinite().all())),
    }


def _extent(x: torch.Tensor) -> Extent:
    dtype, values = str(x.dtype).removeprefix("torch."), x.detach().flatten()
    finite = values[values.isfinite()] if x.is_floating_point() else values
    if not finite.numel() or x.is_complex():
        return Extent(shape=tuple(x.shape), dtype=dtype, bad=values.numel() - finite.numel())
    wide = finite.double()
    return Extent(
        shape=tuple(x.shape), dtype=dtype, low=float(wide.min()), high=float(wide.max()), mean=float(wide.mean()),
        std=float(wide.std()) if wide.numel() > 1 else 0.0, bad=values.numel() - finite.numel(),
        different=0 if x.is_floating_point() else len(torch.unique(finite)),
    )  # fmt: skip


def _too_large(net: nn.Module, device: torch.device) -> str:
    """Return why there is no room for copies; empty where there is."""
    needed = COPIES * sum(one.numel() * one.element_size() for one in net.parameters())
    free = _free(device)
    if free is None or needed <= free:
        return ""
    return f"nothing was run: copies would take {needed / 2**30:.1f} GiB of {free / 2**30:.1f} GiB that are free"


def _free(device: torch.device) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if device.type == "cpu" else None
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None
