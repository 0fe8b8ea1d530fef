"""What optimizer steps did to parameters, seen by hooks around each step."""

from __future__ import annotations

import math
import sys
import threading
from collections import UserDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from threading import Lock
from types import FrameType, ModuleType
from typing import Any

import torch

from tensormagic.collectors import devices
from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.gradients.measures import LOW_PRECISION, NORM_RELIABLE
from tensormagic.collectors.gradients.pass_log import TraceContext, TracePart
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.quiet import Looking, dispatches_to_python, local_shard, quiet
from tensormagic.collectors.training.optimizer_contents import held_by
from tensormagic.collectors.training.parallel import ParallelWatcher, in_memory_order
from tensormagic.collectors.training.training import TrainingWatcher
from tensormagic.reports import Gap

# Sees every optimizer's step, on whichever thread, without a change to the table that torch looks its hooks up in.
#
# A process-wide hook is an entry in one table, which every step on every thread goes through; an entry that is added
# or taken away meanwhile ends that step with an error. So the table stays as it is, and while somebody watches
# another object replaces it: what is looked up there is what is in the table, and then ours.

_MODULE: ModuleType = sys.modules[torch.optim.Optimizer.__module__]
_lock = Lock()


class _Table(UserDict[int, Any]):
    """Replaces one of torch's tables; lives as long as the process, as the handles do that it is asked for."""

    watchers: tuple[Any, ...] = ()  # another tuple with every change: steps go through it on other threads

    def __init__(self, name: str, event: str) -> None:
        self.name, self._event = name, event
        self.data = getattr(_MODULE, name, {})

    def values(self) -> Iterator[Callable[..., Any]]:  # type: ignore[override]
        """Return the hooks, as torch goes through them: what is in the table, and then ours."""
        return chain(self.data.values(), [getattr(watcher, self._event) for watcher in _Table.watchers])


_tables = (_Table("_global_optimizer_pre_hooks", "begins"), _Table("_global_optimizer_post_hooks", "ends"))


def watch_steps(watcher: Any) -> None:
    """Call ``watcher.begins`` and ``watcher.ends`` around every step from now on, with what torch's hooks are given.

    They look themselves on which thread, and never raise. Twice is as once.
    """
    with _lock:
        _Table.watchers = (*[other for other in _Table.watchers if other is not watcher], watcher)
        for table in _tables:
            if (there := getattr(_MODULE, table.name)) is not table:
                table.data = there
                setattr(_MODULE, table.name, table)


def leave_steps(watcher: Any) -> bool:
    """Call it no more; returns whether it was called."""
    with _lock:
        there = watcher in _Table.watchers
        _Table.watchers = tuple([other for other in _Table.watchers if other is not watcher])
        for table in () if _Table.watchers else _tables:
            if getattr(_MODULE, table.name) is table:  # else somebody has taken its place meanwhile
                setattr(_MODULE, table.name, table.data)
    return there


# How far an optimizer's step moves each parameter: the norm of the change over the norm of the weights before.
#
# Around 1e-3 is usual; a layer at 1e-6 does not learn, one at 1e-1 is being thrown about. Two hooks that torch calls
# around every ``Optimizer.step`` see the weights before and after. A copy of a whole model would double its memory,
# so of a parameter with more than `SAMPLE` elements an evenly spaced sample is compared.

SAMPLE = 1 << 16  # elements of one parameter that are compared
SAMPLES_THERE = 1 << 22  # elements of all parameters, where a device holds them


class UpdateWatcher(Looking, TracePart):
    """Measures the steps of every optimizer in this thread.

    The log of passes is told of every measured step: how far it moved parameters, and where ranks compare them, the
    norms of the gradients that it used. The mode steps aside where a step runs no code but torch's.
    """

    def __init__(self, trace: TraceContext) -> None:
        self._passes, self._run_seconds = trace.passes, trace.seconds
        self._recorder: ForwardRecorder = trace.recorder
        self._parallel: ParallelWatcher = trace.parts["parallel"]
        self._training: TrainingWatcher = trace.parts["training"]
        self._thread = threading.get_ident()
        self._before: list[tuple[int, list[int], list[torch.Tensor]]] = []
        self._first_seconds = 0.0  # what the first measured step took: torch sets up what it measures with

    def enter(self, undoing: UndoStack) -> None:
        """Watch."""
        undoing.callback(self._before.clear)
        undoing.callback(self.step_aside)
        self.step_back()

    def step_aside(self) -> bool:
        """Watch no more: Dynamo would follow the hooks into a compiled step."""
        return leave_steps(self)

    def step_back(self, _caller: FrameType | None = None) -> None:
        """Watch again."""
        watch_steps(self)

    def begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Look before a step on the watched thread."""
        if threading.get_ident() != self._thread:
            return
        plain = len(args) < 2 and not kwargs  # the optimizer alone
        self._recorder.autograd.step_begins(plain=plain)
        self._training.before_step(optimizer)
        wanted = self._passes.wants_update(self.seconds - self._first_seconds, self._run_seconds())
        if wanted and not devices.there.capturing():
            self.guarded(self._keep, optimizer)
        hooks = (_tables[1], optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        others = any(map(len, hooks)) or any(group.get("differentiable") for group in optimizer.param_groups)
        if plain and not others and type(optimizer).__module__.startswith("torch.optim."):
            self._recorder.leave_step()  # the step runs torch's code and no other, which makes no node

    def ends(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """Look after it."""
        if threading.get_ident() != self._thread:
            return
        self._recorder.return_from_step()
        self._recorder.autograd.step_ends(optimizer)
        if self._before:
            self.guarded(self._compare, optimizer)
            self._first_seconds = self._first_seconds or self.seconds
        self._training.after_step(optimizer)

    def gaps(self) -> tuple[Gap, ...]:
        """Return why it could not be measured how far a step moved the parameters."""
        reason = f"how far a step moved the parameters could not be measured: {self.gap}"
        return (Gap("optimizer", reason),) if self.gap else ()

    @quiet()
    def _keep(self, optimizer: torch.optim.Optimizer) -> None:
        numbers, parameters, gradients = self._of(optimizer)
        if self._parallel.several:
            tell = partial(self._passes.note, "stepped")
            self._passes.late.read(norms_of(gradients), lambda read: tell(joined(numbers, read) if read else {}))
        most = _sample_size(parameters)
        self._before.append((id(optimizer), numbers, [_sample(parameter, most).clone() for parameter in parameters]))

    @quiet()
    def _compare(self, optimizer: torch.optim.Optimizer) -> None:
        owner, numbers, before = self._before.pop()
        while owner != id(optimizer) and self._before:  # others began and failed
            owner, numbers, before = self._before.pop()
        now, parameters, gradients = self._of(optimizer)
        if owner != id(optimizer) or now != numbers or not numbers:
            return
        most = _sample_size(parameters)
        after = [_sample(parameter, most) for parameter in parameters]
        norms = [*norms_of(torch._foreach_sub(after, before)), *norms_of(before)]
        halves = []
        for number, gradient, old, new in zip(numbers, gradients, before, after, strict=False):
            if new.dtype in LOW_PRECISION and gradient.is_contiguous() and gradient.dtype == new.dtype:
                had = _sample(gradient, most) != 0
                if had.shape == new.shape:
                    halves.append(number)
                    norms += (had & (old == new)).sum(), had.sum()
        self._passes.late.read(norms, partial(self._tell, numbers, halves))

    def _tell(self, numbers: list[int], halves: list[int], read: list[float]) -> None:
        """Hand over the norms of changes and of what was there before, and how many elements of halves stayed."""
        end = 2 * len(numbers)
        for number, stayed, had in zip(halves, read[end::2], read[end + 1 :: 2], strict=True):
            known = self._passes.lost.get(number, (0.0, 0.0))
            self._passes.lost[number] = known[0] + stayed, known[1] + had
        moved, stood = joined(numbers, read[: len(numbers)]), joined(numbers, read[len(numbers) : end])
        grown = {number: math.inf if change else 0.0 for number, change in moved.items()}  # where all was zero
        grown |= {number: moved[number] / before for number, before in stood.items() if before}
        self._passes.note("updates", grown)

    def _of(self, optimizer: torch.optim.Optimizer) -> tuple[list[int], list[torch.Tensor], list[torch.Tensor]]:
        """Return the parameters that are about to be moved and take part in the run: numbers, values and gradients.

        Several may have one number: FSDP1 keeps them in one. Of a DTensor it is the shard that lies here.
        """
        numbers: list[int] = []
        parameters: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        for parameter in held_by(optimizer):
            local = local_shard(parameter)
            plain = local.layout is torch.strided and not dispatches_to_python(local)
            number = self._passes.leaves.find(parameter) if plain else None
            if number is not None and parameter.grad is not None and local.device.type != "meta":
                numbers.append(number)
                parameters.append(local)
                gradients.append(local_shard(parameter.grad))
        # The norms of several cannot be taken together because of one whose class answers, or that is sparse.
        odd = any(dispatches_to_python(each) or each.layout is not torch.strided for each in gradients)
        return numbers, parameters, [] if odd else gradients


def _sample_size(parameters: list[torch.Tensor]) -> int:
    """Return the most elements of one that are compared: on a device, of all together at most `SAMPLES_THERE`."""
    there = any(map(devices.there.holds, parameters))
    return max(min(SAMPLE, SAMPLES_THERE // len(parameters)), 1) if there else SAMPLE


def _sample(parameter: torch.Tensor, most: int) -> torch.Tensor:
    """Return a view of at most about ``most`` elements, evenly spaced in memory; a copy of what has no such view."""
    flat = in_memory_order(parameter)
    flat = torch.view_as_real(flat.resolve_conj()).reshape(-1) if flat.is_complex() else flat
    step = -(-flat.numel() // most)
    return flat[::step] if step > 1 else flat


def norms_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the norm of each, in no narrower type than float32: float16 ends at 65504."""
    tensors = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in tensors]
    if any(map(devices.there.holds, tensors)):
        wide = torch.float64 if any(x.dtype is torch.float64 for x in tensors) else torch.float32
        return list(torch._foreach_norm(tensors, dtype=wide))
    norms = torch._foreach_norm(tensors) if tensors else ()
    return [
        norm
        if norm.dtype not in LOW_PRECISION and NORM_RELIABLE[0] < norm.item() < NORM_RELIABLE[1]
        else torch.linalg.vector_norm(x.double())
        for norm, x in zip(norms, tensors, strict=True)
    ]


def joined(numbers: list[int], norms: list[float]) -> dict[int, float]:
    """Return the norm of each parameter, of which several pieces may have one number."""
    found = dict.fromkeys(numbers, 0.0)
    for number, norm in zip(numbers, norms, strict=True):
        found[number] = math.hypot(found[number], norm)
    return found
