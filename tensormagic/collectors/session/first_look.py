"""What a check of a model finds before its first step."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from tensormagic.collectors.devices import read_devices
from tensormagic.collectors.geometry.parts import components
from tensormagic.collectors.graphs.live_nodes import NORMALISING, normalising_node
from tensormagic.collectors.objects.children import inside, updated_by
from tensormagic.collectors.requirements import what
from tensormagic.collectors.where.source import is_own_code
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Extent, Gap, Overfit, StartReport
from tensormagic.words import error_text


@contextmanager
def generators_kept(*own: Any) -> Iterator[None]:
    """Put every generator back that code may draw from: torch's on every device, NumPy's, Python's, and those given."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    python, states = random.getstate(), [(one, one.get_state()) for one in own if isinstance(one, torch.Generator)]
    arrays = np.random.get_state()  # noqa: NPY002  (the global one)
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)  # noqa: NPY002
            for generator, state in states:
                generator.set_state(state)


class CannotTakeError(Exception):
    """A source of batches from which none can be taken without taking it from the training."""


def first_batch(source: Any) -> Any:
    """Return the first batch of a loader, or of a list of batches; a batch is returned as it is.

    No worker is started and the loader's own iterator is left alone.

    Raises:
        CannotTakeError: for an iterator, which would not give the batch again.
    """
    plain = isinstance(source, tuple | list) and source and all(isinstance(x, torch.Tensor) for x in source)
    if plain or isinstance(source, torch.Tensor | Mapping):
        return source
    loaded = isinstance(source, DataLoader)
    dataset = source.dataset if loaded else source
    if loaded and not isinstance(dataset, IterableDataset):
        collated = source._auto_collation
        places = next(iter(source.batch_sampler if collated and source.batch_sampler is not None else source.sampler))
        return _MapDatasetFetcher(dataset, collated, source.collate_fn, source.drop_last).fetch(places)  # type: ignore[no-untyped-call]
    items = iter(dataset)
    if items is dataset:
        what = "its dataset" if loaded else "it"
        raise CannotTakeError(f"{what} is an iterator: a batch taken from it would be missing in training")
    if not loaded:
        return next(items)
    size = source.batch_size
    return source.collate_fn(next(items) if size is None else list(islice(items, size)))


def mapped(batch: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return a batch with each of its tensors changed."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [mapped(value, change) for value in batch]
    return batch


class Parts(NamedTuple):
    """A batch, taken apart: what the model is given, and what the loss compares with."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    target: Any


def parts_of(batch: Any) -> Parts:
    """Take a batch apart: the last of several is the target, and a dictionary is what the model takes by name."""
    if isinstance(batch, Mapping):
        named = {str(key): value for key, value in batch.items()}
        return Parts((), named, named.get("labels"))
    if isinstance(batch, tuple | list) and len(batch) > 1:
        return Parts(tuple(batch[:-1]), {}, batch[-1])
    return Parts(tuple(batch) if isinstance(batch, tuple | list) else (batch,), {}, None)


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


def loss_of(result: Any, target: Any, given: Callable[..., Any] | None) -> JudgedLoss | None:
    """Return the loss of a result: the user's own, the one in the result, or the usual one for such a target."""
    own = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    out = first_tensor(result)
    if given is not None:
        name = type(given).__name__ if isinstance(given, nn.Module) else getattr(given, "__name__", "loss")
        value = given(out if out is not None else result, *(() if target is None else (target,)))
        return JudgedLoss(value, name, None if out is None else _of_nothing(name, out, target))
    if isinstance(own, torch.Tensor):
        return JudgedLoss(own, "the model's loss", None)
    if out is None or not isinstance(target, torch.Tensor) or not (name := usual_loss(out, target)):
        return None
    if name in _BINARY:
        target = target.to(out.dtype).reshape(out.shape)
    return JudgedLoss(getattr(F, name)(out, target), name, _of_nothing(name, out, target))


def _last(out: torch.Tensor) -> str:
    node = normalising_node(out.grad_fn)
    return NORMALISING[node.name()] if node is not None else ""


def usual_loss(out: torch.Tensor, target: torch.Tensor) -> str:
    """Return the loss that is usual for such a target; empty where none is."""
    last = _last(out)
    if not target.is_floating_point() and out.dim() > 1 and out.shape[1] > 1:
        usual = "nll_loss" if last == "log_softmax" else "cross_entropy"
        return usual if target.shape == (out.shape[0], *out.shape[2:]) else ""
    if target.numel() == out.numel() and bool(((target == 0) | (target == 1)).all()):
        return "binary_cross_entropy" if last == "sigmoid" else "binary_cross_entropy_with_logits"
    return "mse_loss" if target.shape == out.shape and target.is_floating_point() else ""


_CROSS = frozenset({"CrossEntropyLoss", "cross_entropy", "NLLLoss", "nll_loss"})  # these take numbers of classes
_BINARY = frozenset({"BCEWithLogitsLoss", "BCELoss", "binary_cross_entropy", "binary_cross_entropy_with_logits"})
_SQUARES = frozenset({"MSELoss", "mse_loss"})


def _of_nothing(name: str, out: torch.Tensor, target: Any) -> float | None:
    if name in _CROSS and out.dim() > 1 and out.shape[1] > 1:
        return math.log(out.shape[1])
    if name in _BINARY:
        return math.log(2)
    if name in _SQUARES and isinstance(target, torch.Tensor):
        return float(target.detach().double().square().mean())
    return None


# Everything runs on copies: the model is copied with `copy.deepcopy`, hooks of the user's are taken off the copy,
# batches are cloned, and every generator is put back. What a model's own code does besides (writes to a global) stays.

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
    """Return what one batch shows of a training that is about to begin.

    ``source`` is a loader, a list of batches, a batch, or None; the loss is by default the usual one for the target.
    """
    began = perf_counter()
    with torch._C.DisableTorchFunction():  # parameters may be of a class of the user's
        found = dict(_parameters(net, optimizer), model=name, training=net.training, in_eval=tuple(_in_eval(net)))
    gaps: list[Gap] = []
    if source is not None:
        samplers = [getattr(source, part, None) for part in ("sampler", "batch_sampler")]
        inner = [getattr(sampler, "sampler", None) for sampler in samplers]
        generators = [getattr(one, "generator", None) for one in (source, *samplers, *inner)]
        with generators_kept(*generators), torch.enable_grad():
            try:
                found |= _Runs(net, optimizer, source, loss, gaps).facts()
            except CannotTakeError as reason:
                gaps.append(Gap("batch", f"no batch was taken: {reason}"))
            except Exception as error:  # a batch that cannot be made, a model that cannot be copied
                gaps.append(Gap("batch", f"nothing was run: {error_text(error)}"))
    return StartReport(**found, gaps=tuple(gaps), seconds=perf_counter() - began)


def _parameters(net: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    named = list(net.named_parameters())
    facts: dict[str, Any] = {"parameters": len(named), "trainable": sum(one.requires_grad for _, one in named)}
    if optimizer is not None:
        held = set(map(id, updated_by(optimizer)))
        facts["missing"] = tuple(path for path, one in named if one.requires_grad and id(one) not in held)
        facts["unknown_parameters"] = len(held - {id(one) for _, one in named})
        facts["optimizer"] = type(optimizer).__name__
    return facts


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
        if isinstance(part, torch.optim.Optimizer) and optimizer is None:
            optimizer = part
        elif isinstance(part, nn.Module) and net is None and not isinstance(part, nn.modules.loss._Loss):
            net = part
        elif (isinstance(part, nn.Module) or (callable(part) and not hasattr(part, "__iter__"))) and loss is None:
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
        held = set(map(id, net.parameters() if optimizer is None else updated_by(optimizer)))
        self._trained = {path for path, one in net.named_parameters() if id(one) in held and one.requires_grad}
        self._device = next((one.device for one in net.parameters()), torch.device("cpu"))
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
        for path, module in inside("", net):
            for name in _HOOKS:
                hooks = getattr(module, name)
                for key, hook in list(hooks.items()):
                    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
                    if code is not None and is_own_code(code.co_filename):
                        del hooks[key]
            if getattr(module.forward, "__func__", None) in _LOOKUPS:  # one of the user's may map its indices first
                module.register_forward_pre_hook(partial(_refuse_missing_rows, path.lstrip(".")), with_kwargs=True)
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
            # What a loss of torch's applies itself is known, whatever others call theirs.
            home = type(self._loss) if isinstance(self._loss, nn.Module) else self._loss
            of_torch = home is None or str(getattr(home, "__module__", "")).startswith("torch.")
            facts["last"] = _last(out) if out is not None and of_torch else ""
            if out is not None and _is_out_of_range(out, fresh.target, self._loss):
                facts["loss"] = "cross_entropy"
                return facts  # on a GPU the loss would end the process's use of it
            judged = loss_of(result, fresh.target, self._loss)
            if judged is None or not isinstance(judged.value, torch.Tensor):
                return facts
            value = judged.value
            facts |= {"loss": judged.name, "expected": judged.expected}
            if value.numel() == 1 and value.requires_grad:
                facts["value"] = float(value.detach())
                value.backward()  # type: ignore[no-untyped-call]
                facts |= _gradients(net)
        except Exception as error:
            return {**facts, "error": error_text(error).splitlines()[0]}
        return facts

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
            self._gaps.append(Gap("samples", f"whether samples mix is unknown: {error_text(error)}"))
            return None
        return None if gradient is None else bool(gradient[1:].any())

    def _overfit(self) -> Overfit | None:
        """Train a copy on a few samples, without dropout."""
        net = self._copy().train()
        for _, module in inside("", net):
            if isinstance(module, _DROPOUT):
                module.eval()
        trained = [one for path, one in net.named_parameters() if path in self._trained]
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
            self._gaps.append(Gap("overfit", f"a few samples could not be learned: {error_text(error)}"))
            return None
        return Overfit(min(SAMPLES, _size(self._batch)), len(losses), losses[0], losses[-1])


def _size(batch: Any) -> int:
    sizes: list[int] = []
    mapped(batch, lambda x: sizes.append(len(x)) if x.dim() else None)
    return sizes[0] if sizes else 0


def _is_out_of_range(out: torch.Tensor, target: Any, loss: Any) -> bool:
    """Return whether a loss that picks classes would be asked for one that is not there."""
    if not isinstance(target, torch.Tensor) or target.is_floating_point() or out.dim() < 2 or not target.numel():
        return False
    name = usual_loss(out, target) if loss is None else type(loss).__name__
    ignored = getattr(loss, "ignore_index", -100)
    wanted = target[target != ignored]
    return name in _CROSS and bool(((wanted < 0) | (wanted >= out.shape[1])).any())


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


def _gradients(net: nn.Module) -> dict[str, Any]:
    asking = [(path, one) for path, one in net.named_parameters() if one.requires_grad]
    there = [(path, one.grad) for path, one in asking if one.grad is not None]
    return {
        "without_gradient": tuple(path for path, one in asking if one.grad is None),
        "zero_gradient": tuple(path for path, gradient in there if not bool(gradient.count_nonzero())),
        "bad_gradient": tuple(path for path, gradient in there if not bool(gradient.isfinite().all())),
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
    needed = COPIES * sum(one.nbytes for one in net.parameters())
    free = next((one.free for one in read_devices()[0] if torch.device(one.device) == device), None)
    room = "" if free is None else f"{needed / 2**30:.1f} GiB of {free / 2**30:.1f} GiB that are free"
    return "" if free is None or needed <= free else f"nothing was run: copies would take {room}"
