"""What a check of a model finds before its first step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tensormagic.collectors.devices import read_devices
from tensormagic.collectors.geometry.parts import components
from tensormagic.collectors.objects.children import inside, updated_by
from tensormagic.collectors.requirements import what
from tensormagic.collectors.session.batches import (
    CannotTakeError,
    Parts,
    first_batch,
    is_shuffled,
    mapped,
    parts_of,
    size_of,
)
from tensormagic.collectors.session.losses import (
    JudgedLoss,
    first_tensor,
    is_loss,
    is_of_torch,
    is_out_of_range,
    last_of,
    loss_of,
    name_of,
    takes_model,
)
from tensormagic.collectors.session.restoring import kept, take_hooks_out
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Extent, Gap, OptimizerSettings, Overfit, StartReport
from tensormagic.words import error_text

# Everything runs on copies: the model is copied with `copy.deepcopy`, hooks of the user's are taken off the copy,
# batches are cloned, and what can be found of the rest is put back: see `restoring`.

SAMPLES, STEPS = 8, 50
SECONDS = 4.0  # that learning a few samples may take
COPIES = 5  # of the parameters: two models, gradients, two moments
RATE, LARGE_RATE, LARGE = 1e-2, 1e-3, 1_000_000  # of Adam, for a few parameters and for many

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_DROPOUT = nn.modules.dropout._DropoutNd
_NORMALISING = (*_NORMS, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def look(
    net: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    source: Any,
    loss: Callable[..., Any] | None,
    *,
    name: str = "net",
) -> StartReport:
    """Return what one batch shows of a training that is about to begin.

    ``source`` is a loader, a list of batches, a batch, or None; the loss is by default the usual one for the target.
    """
    began = perf_counter()
    with torch._C.DisableTorchFunction():  # parameters may be of a class of the user's
        found = dict(_parameters(net, optimizer), model=name, training=net.training, in_eval=tuple(_in_eval(net)))
    gaps: list[Gap] = []
    if source is not None:
        with torch.inference_mode(False), torch.enable_grad(), kept(net, source, loss):  # noqa: FBT003
            try:
                batch = first_batch(source)
            except CannotTakeError as reason:
                gaps.append(Gap("batch", f"no batch was taken: {reason}"))
            except Exception as error:  # of the user's dataset
                gaps.append(Gap("batch", f"it gave no batch: {error_text(error)}"))
            else:
                try:
                    found |= _Runs(net, optimizer, batch, loss, gaps).facts()
                except Exception as error:  # a model that cannot be copied
                    gaps.append(Gap("batch", f"nothing was run: {error_text(error)}"))
        found |= {"batch": True, "shuffled": is_shuffled(source)}
    return StartReport(**found, gaps=tuple(gaps), seconds=perf_counter() - began)


def _parameters(net: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    named = list(net.named_parameters())
    facts: dict[str, Any] = {"parameters": len(named), "trainable": sum(one.requires_grad for _, one in named)}
    if optimizer is not None:
        held = set(map(id, updated_by(optimizer)))
        facts["missing"] = tuple(path for path, one in named if one.requires_grad and id(one) not in held)
        facts["unknown_parameters"] = len(held - {id(one) for _, one in named})
        facts["optimizer"] = type(optimizer).__name__
        facts["settings"] = tuple(map(_settings, optimizer.param_groups))
    return facts


def _settings(group: Mapping[str, Any]) -> OptimizerSettings:
    """Return what is set for a group; a rate of zero is a beginning where a scheduler has noted another."""
    decay, rate = float(group.get("weight_decay") or 0), float(group.get("lr", 1.0))
    return OptimizerSettings(
        parameters=len(group["params"]), rate=rate, decay=decay, maximizes=bool(group.get("maximize")),
        decoupled=bool(group.get("decoupled_weight_decay")), scheduled="initial_lr" in group,
    )  # fmt: skip


def _in_eval(net: nn.Module) -> Iterator[str]:
    for path, module in inside("", net) if net.training else ():
        asks = any(parameter.requires_grad for parameter in module.parameters()) or isinstance(module, _DROPOUT)
        if isinstance(module, (*_NORMS, _DROPOUT)) and not module.training and asks:
            yield path.removeprefix(".")


Sorted = tuple[nn.Module, torch.optim.Optimizer | None, Any, Callable[..., Any] | None]


def sorted_out(parts: Sequence[Any]) -> Sorted:
    """Return model, optimizer, source of batches and loss, which may be given in any order.

    Raises:
        TensorMagicError: where there is no model among them, or two of a kind.
    """
    net = optimizer = source = loss = None
    for part in parts:
        if reason := _mistaken(part):
            raise TensorMagicError(f"check() takes one model, one optimizer, one loader and one loss: {reason}")
        if isinstance(part, torch.optim.Optimizer) and optimizer is None:
            optimizer = part
        elif isinstance(part, nn.Module) and net is None and not isinstance(part, nn.modules.loss._Loss):
            net = part
        elif loss is None and is_loss(part):
            loss = part
        elif source is None and not isinstance(part, nn.Module | torch.optim.Optimizer) and hasattr(part, "__iter__"):
            source = part
        else:
            several = f"{what(part)} is none of these, or one more"
            several += "; a batch is one part: (inputs, targets)" if isinstance(part, torch.Tensor) else ""
            raise TensorMagicError(f"check() takes one model, one optimizer, one loader and one loss: {several}")
    if net is None:
        raise TensorMagicError("check() before a training takes the model: check(net, optimizer, loader)")
    return net, optimizer, source, loss


def _mistaken(part: Any) -> str:
    """Return what is given in place of something near to it; empty of anything else."""
    if isinstance(part, type):
        return f"{part.__name__} is a class; make one: {part.__name__}(…)" if issubclass(part, _MADE) else ""
    if isinstance(part, str):
        return f"{part!r} is a string, not what it names"
    if isinstance(part, Dataset) and not isinstance(part, IterableDataset):
        return "a Dataset gives samples, and the model takes batches: DataLoader(dataset, batch_size=…)"
    if isinstance(part, torch.optim.lr_scheduler.LRScheduler):
        return "a scheduler is none of these; leave it out"
    if isinstance(part, list) and part and isinstance(part[0], torch.optim.Optimizer):
        return "the optimizer is in a list; give it alone"
    given = getattr(getattr(part, "gi_code", None), "co_name", "") == "parameters"
    return "parameters() gives parameters; give the optimizer that holds them" if given else ""


_MADE = (nn.Module, torch.optim.Optimizer, DataLoader, Dataset)


class _Runs:
    """What is run: a forward and a backward of the batch, another to see whether samples mix, and a few steps."""

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        batch: Any,
        loss: Callable[..., Any] | None,
        gaps: list[Gap],
    ) -> None:
        self._net, self._optimizer, self._loss, self._gaps = net, optimizer, loss, gaps
        held = set(map(id, net.parameters() if optimizer is None else updated_by(optimizer)))
        self._trained = {path for path, one in net.named_parameters() if id(one) in held and one.requires_grad}
        self._device = next((one.device for one in net.parameters()), torch.device("cpu"))
        self._batch = mapped(batch, lambda x: x.detach().to(self._device, copy=True))

    def facts(self) -> dict[str, Any]:
        """Return all that was seen."""
        parts = parts_of(self._batch, self._net)
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
                facts |= {"step": self._step(), "overfit": self._overfit()}
        return facts

    def _copy(self, memo: dict[int, Any] | None = None) -> nn.Module:
        net = copy.deepcopy(self._net, memo)
        for path, module in inside("", net):
            take_hooks_out(module)
            if getattr(module.forward, "__func__", None) in _LOOKUPS:  # one of the user's may map its indices first
                module.register_forward_pre_hook(partial(_refuse_missing_rows, path.lstrip(".")), with_kwargs=True)
        net.zero_grad(set_to_none=True)
        return net

    def _run(self, net: nn.Module, parts: Parts) -> tuple[Any, JudgedLoss | None]:
        """Return what a model makes of a batch, and its loss."""
        if takes_model(self._loss) and self._loss is not None:
            return None, JudgedLoss(self._loss(net, parts.batch), name_of(self._loss), None)
        result = net(*parts.inputs, **parts.named)
        return result, loss_of(result, parts, self._loss)

    def _fresh(self, samples: int = 0) -> Parts:
        """Return the batch, or its first samples, in memory of its own: a model may write to what it is given."""
        size = size_of(self._batch)
        cut = samples if samples and size > samples else 0
        own = mapped(self._batch, lambda x: (x[:cut] if cut and x.dim() and len(x) == size else x).clone())
        return parts_of(own, self._net)

    def _once(self) -> dict[str, Any]:
        net, facts = self._copy().train(), dict[str, Any]()
        fresh, own = self._fresh(), takes_model(self._loss)
        facts["fits"] = fresh.fits or own
        if self._loss is not None:
            facts["loss"] = name_of(self._loss)
        seen = _Seen(net)
        try:
            result = None if own else net(*fresh.inputs, **fresh.named)
            out = first_tensor(result)
            facts["outputs"] = tuple(out.shape) if out is not None else None
            facts["last"] = last_of(out) if out is not None and is_of_torch(self._loss) else ""
            if out is not None and is_out_of_range(out, fresh.target, self._loss):
                return facts | {"loss": "cross_entropy", "out_of_range": True}  # on a GPU the loss would end its use
            facts["connected"] = out is None or out.requires_grad
            facts["guessed"] = self._loss is not None and out is not result and not is_of_torch(self._loss)
            judged = self._run(net, fresh)[1] if own else loss_of(result, fresh, self._loss)
            if judged is None or not isinstance(judged.value, torch.Tensor):
                return facts
            value = judged.value
            facts |= {"loss": judged.name, "expected": judged.expected, "loss_shape": tuple(value.shape)}
            facts |= {"normalises": seen.normalises, "first_input": seen.first}
            facts["loss_has_gradient"] = value.requires_grad
            if value.requires_grad:
                facts["value"] = float(value.detach().mean())
                value.mean().backward()  # type: ignore[no-untyped-call]
                facts |= _gradients(net, seen.called)
        except Exception as error:
            return {**facts, "error": error_text(error).splitlines()[0]}
        return facts

    def _step(self) -> tuple[float, float] | None:
        """Return the loss of the batch before and after one step of a copy of the optimizer, with the same dropout."""
        if self._optimizer is None or not self._trained:
            return None
        memo = dict[int, Any]()
        try:
            net = self._copy(memo).train()
            optimizer: Any = copy.deepcopy(self._optimizer, memo)
            asks = isinstance(self._optimizer, torch.optim.LBFGS)  # for a closure; its copy lacks two attributes
            if asks:
                optimizer._params, optimizer._numel_cache = optimizer.param_groups[0]["params"], None

            def lost() -> torch.Tensor:
                torch.manual_seed(0)
                optimizer.zero_grad()
                _, judged = self._run(net, self._fresh())
                assert judged is not None  # it was there a moment ago
                loss: torch.Tensor = judged.value.mean()
                loss.backward()  # type: ignore[no-untyped-call]
                return loss.detach()

            before = float(lost())
            optimizer.step(*([lost] if asks else []))
            after = float(lost())
        except Exception:  # an optimizer of the user's with a way of its own
            return None
        coarse = any(one.dtype in {torch.float16, torch.bfloat16} for one in net.parameters())
        return None if coarse and before == after else (before, after)  # a small step changes no digit of these

    def _mixes(self) -> bool | None:
        """Return whether a sample's result depends on others, by the gradient of it: of the first, or of the last.

        One of these is enough but for a recurrence over the batch: that goes from the first to the last, and is meant
        where there is one result for each step of it.
        """
        parts = self._fresh()
        x = parts.inputs[0] if len(parts.inputs) == 1 and not parts.named else None
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dim() < 2 or len(x) < 2:
            return None
        if takes_model(self._loss):
            return None
        net, x = self._copy().eval(), x.requires_grad_()
        try:
            out = first_tensor(net(x))
            if out is None or out.dim() < 1 or len(out) != len(x) or not out.requires_grad:
                return None
            ends = (0, -1) if out.dim() < x.dim() else (0,)
            gradients = [torch.autograd.grad(out[at].sum(), x, retain_graph=True, allow_unused=True)[0] for at in ends]
        except Exception as error:
            self._gaps.append(Gap("samples", f"whether samples mix is unknown: {error_text(error)}"))
            return None
        if any(each is None for each in gradients):
            return None
        return bool(gradients[0][1:].any() or (len(ends) > 1 and gradients[1][:-1].any()))

    def _overfit(self) -> Overfit | None:
        """Train a copy on a few samples, without dropout."""
        net = self._copy().train()
        for _, module in inside("", net):
            if isinstance(module, _DROPOUT):
                module.eval()
        if any(isinstance(one, nn.parameter.UninitializedParameter) for one in net.parameters()):
            self._run(net, self._fresh())  # gives the lazy ones their shapes
        trained = [one for path, one in net.named_parameters() if path in self._trained]
        if not trained:
            return None
        large = sum(one.numel() for one in trained) > LARGE
        rate, sparse = LARGE_RATE if large else RATE, isinstance(self._optimizer, torch.optim.SparseAdam)
        optimizer: Any = torch.optim.SparseAdam(trained, rate) if sparse else torch.optim.Adam(trained, rate)
        losses: list[float] = []
        began = perf_counter()
        try:
            while len(losses) < STEPS and perf_counter() - began < SECONDS:
                _, judged = self._run(net, self._fresh(SAMPLES))
                assert judged is not None  # it was there a moment ago
                losses.append(float(judged.value.detach().mean()))
                optimizer.zero_grad()
                judged.value.mean().backward()
                optimizer.step()
        except Exception as error:
            self._gaps.append(Gap("overfit", f"a few samples could not be learned: {error_text(error)}"))
            return None
        return Overfit(min(SAMPLES, size_of(self._batch)), len(losses), losses[0], losses[-1])


_LOOKUPS = (nn.Embedding.forward, nn.EmbeddingBag.forward)


def _refuse_missing_rows(path: str, module: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raise where an index has no row: on a GPU torch would end the process's use of it instead."""
    indices = args[0] if args else named.get("input")
    if torch.compiler.is_compiling() or not isinstance(indices, torch.Tensor):  # a compiled graph is not to break
        return
    try:
        stored = next(components(indices))  # of a nested tensor its values, under vmap those of the whole batch
        low, high = (int(each) for each in stored.aminmax())
    except (RuntimeError, TypeError):  # there are none, or a class of its own does not tell
        return
    if not 0 <= low <= high < module.num_embeddings:
        found, last = low if low < 0 else high, module.num_embeddings - 1
        raise IndexError(f"the embedding {path} has no row {found}: its rows are 0 to {last}")


class _Seen:
    """Which of torch's own modules are called, and what the first with weights is given."""

    def __init__(self, net: nn.Module) -> None:
        self.called: set[int] = set()  # parameters of those that are
        self.normalises = False  # whether the first is a normalisation
        self.first: Extent | None = None  # what it is given
        for module in net.modules():
            if type(module).__module__.startswith("torch.nn.") and not list(module.children()):
                module.register_forward_pre_hook(self._note)

    def _note(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        x = args[0] if args else None
        normalises = isinstance(module, _NORMALISING)
        if self.first is None and isinstance(x, torch.Tensor) and (module._parameters or normalises):
            with suppress(RuntimeError):  # of a batch that vmap hides, of many lengths, nothing is known
                self.first, self.normalises = _extent(x), normalises
        self.called |= {id(one) for one in module.parameters()}


def _gradients(net: nn.Module, called: Container[int]) -> dict[str, Any]:
    asking = [(path, one) for path, one in net.named_parameters() if one.requires_grad]
    there = [(path, one.grad) for path, one in asking if one.grad is not None]
    values = [(path, one.coalesce().values() if one.is_sparse else one) for path, one in there]
    return {
        "without_gradient": tuple(path for path, one in asking if one.grad is None),
        "cut_off": tuple(path for path, one in asking if one.grad is None and id(one) in called),
        "zero_gradient": tuple(path for path, gradient in values if not bool(gradient.count_nonzero())),
        "bad_gradient": tuple(path for path, gradient in values if not bool(gradient.isfinite().all())),
    }


def _extent(x: torch.Tensor) -> Extent:
    values = x.detach().flatten()
    finite = values[values.isfinite()] if x.is_floating_point() else values
    plain = Extent(shape=tuple(x.shape), dtype=str(x.dtype)[6:], bad=values.numel() - finite.numel())
    if not finite.numel() or x.is_complex():
        return plain
    wide = finite.double()
    return replace(
        plain, low=float(wide.min()), high=float(wide.max()), mean=float(wide.mean()),
        std=float(wide.std()) if wide.numel() > 1 else 0.0,
        different=0 if x.is_floating_point() else len(torch.unique(finite)),
    )  # fmt: skip


def _too_large(net: nn.Module, device: torch.device) -> str:
    """Return why there is no room for copies; empty where there is, or where that is not known."""
    lazy = nn.parameter.UninitializedParameter
    needed = COPIES * sum(one.nbytes for one in net.parameters() if not isinstance(one, lazy))
    free = next((one.free for one in read_devices()[0] if torch.device(one.device) == device), None)
    room = "" if free is None else f"{needed / 2**30:.1f} GiB of {free / 2**30:.1f} GiB that are free"
    return "" if free is None or needed <= free else f"nothing was run: copies would take {room}"
