"""What optimizer steps did to parameters, seen by hooks around each step."""

from __future__ import annotations

import math
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from threading import Lock
from time import perf_counter
from types import FrameType, ModuleType
from typing import Any, Protocol

import torch

from tensormagic.collectors import devices
from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.devices import Late
from tensormagic.collectors.gradients.measures import NORM_RELIABLE
from tensormagic.collectors.gradients.pass_log import TraceContext, TracePart
from tensormagic.collectors.graphs.in_place import UntrackedWrites
from tensormagic.collectors.graphs.structure import GraphStructure
from tensormagic.collectors.hooks.undoing import Undoing
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import dispatches_to_python, local_shard, quiet
from tensormagic.collectors.training.parallel import ParallelWatcher
from tensormagic.collectors.training.stepping import Brought, Moment, ParameterProbe, Stepping, gradient_of, probes_of
from tensormagic.reports import OptimizerUse
from tensormagic.words import error_text

# Sees every optimizer's step, on whichever thread, without a change to the table that torch looks its hooks up in.
#
# A process-wide hook is an entry in one table, which every step on every thread goes through; an entry that is added
# or taken away meanwhile ends that step with an error. So the table stays as it is, and while somebody watches
# another object replaces it: what is looked up there is what is in the table, and then ours.

_MODULE: ModuleType = sys.modules[torch.optim.Optimizer.__module__]


class StepWatcher(Protocol):
    """What is called for every step; it looks itself on which thread."""

    def begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Look before it. Never raises."""

    def ends(self, optimizer: torch.optim.Optimizer) -> None:
        """Look after it. Never raises."""


_watchers: tuple[StepWatcher, ...] = ()  # another tuple with every change: steps go through it on other threads
_lock = Lock()


def _begins(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for watcher in _watchers:
        watcher.begins(optimizer, args, kwargs)


def _ends(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    for watcher in _watchers:
        watcher.ends(optimizer)


class _Table:
    """Replaces one of torch's tables; lives as long as the process, as the handles do that it is asked for.

    Args:
        name: Of the table in torch's module.
        ours: Called with every step, after what is in the table.
    """

    def __init__(self, name: str, ours: Callable[..., None]) -> None:
        self._name, self._ours = name, (ours,)
        self._theirs: Any = getattr(_MODULE, name, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    def values(self) -> Iterator[Callable[..., Any]]:
        """Return the hooks, as torch goes through them."""
        return chain(self._theirs.values(), self._ours)

    def __setitem__(self, key: int, hook: Any) -> None:
        self._theirs[key] = hook

    def __getitem__(self, key: int) -> Any:
        return self._theirs[key]

    def __delitem__(self, key: int) -> None:
        del self._theirs[key]

    def __contains__(self, key: object) -> bool:
        return key in self._theirs

    def __iter__(self) -> Iterator[int]:
        return iter(self._theirs)

    def __len__(self) -> int:
        return len(self._theirs)

    def stand_in(self) -> None:
        """Take the table's place."""
        there = getattr(_MODULE, self._name)
        if there is not self:
            self._theirs = there
            setattr(_MODULE, self._name, self)

    def step_down(self) -> None:
        """Give it back, unless somebody else has taken it meanwhile."""
        if getattr(_MODULE, self._name) is self:
            setattr(_MODULE, self._name, self._theirs)


_tables = (_Table("_global_optimizer_pre_hooks", _begins), _Table("_global_optimizer_post_hooks", _ends))


def watch_steps(watcher: StepWatcher) -> None:
    """Tell ``watcher`` of every step from now on; twice is as once."""
    global _watchers  # noqa: PLW0603
    with _lock:
        _watchers = (*[other for other in _watchers if other is not watcher], watcher)
        for table in _tables:
            table.stand_in()


def leave_steps(watcher: StepWatcher) -> bool:
    """Call it no more; returns whether it was called."""
    global _watchers  # noqa: PLW0603
    with _lock:
        there = watcher in _watchers
        left = tuple([other for other in _watchers if other is not watcher])
        if not left:
            for table in _tables:
                table.step_down()
        _watchers = left
    return there


# Updates without an optimizer, of a few leaves: ``with torch.no_grad(): w -= lr * w.grad``, seen by their versions.
#
# What is written through ``.data`` leaves the version as it is; that is known from the calls.


class ByHand:
    """Follows leaves that no optimizer holds.

    Args:
        leaves: The leaves met so far.
        brought: As `Stepping` takes it.
        blind: What was written through ``.data``.
        late: As `Stepping` takes it.
    """

    def __init__(self, leaves: Leaves, brought: Brought, blind: UntrackedWrites, late: Late) -> None:
        self._leaves, self._blind, self._late = leaves, blind, late
        self._brought = brought
        self._known = 0
        self._reached: set[int] = set()  # numbers of leaves; another thread's may be collecting its gradient right now
        self._graphs: set[int] = set()
        self._theirs: set[int] = set()
        self._probes: list[ParameterProbe] = []
        self._versions = array("q")
        self._stepping: Stepping | None = None
        self._graphed = 0  # passes after which the first of them had a gradient with a graph of its own

    def leave_to(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note that an optimizer holds these."""
        self._theirs.update(id(parameter) for parameter in parameters)
        if self._probes and any(id(probe.parameter()) in self._theirs for probe in self._probes):
            self._stepping, self._probes = None, []
            self._known = 0

    def before_pass(self, backward: int | None, passes: int) -> None:
        """Look before a backward: a leaf that changed since the last one, at that line, was updated."""
        if self._stepping is None:
            return
        if self._versions != self._now():
            self._stepping.updated(Moment(None, backward, None, passes))
        self._stepping.before_pass()

    def reached(self, structure: GraphStructure) -> None:
        """Note which leaves a pass of this thread led to."""
        if structure.number not in self._graphs:
            self._graphs.add(structure.number)
            self._reached.update(structure.leaf_of.values())

    def after_pass(self) -> None:
        """Look after a backward; where new leaves have come, choose whom to follow."""
        if self._stepping is not None:
            self._stepping.after_pass()
        elif len(self._reached) != self._known:
            self._choose()
        if self._probes and (gradient := gradient_of(self._probes[0].parameter())) is not None:
            self._graphed += gradient.requires_grad
        self._versions = self._now() if self._probes else self._versions

    def forget(self) -> None:
        """Note that something may have gone by unseen."""
        self._versions = self._now()
        if self._stepping is not None:
            self._stepping.forget()

    @property
    def updates(self) -> int:
        """How many updates there were so far."""
        return self._stepping.total.steps if self._stepping is not None else 0

    def use(self) -> OptimizerUse | None:
        """Return what is known; None where nothing was updated by hand."""
        stepping = self._stepping
        if stepping is None or not stepping.total.steps:
            return None
        return OptimizerUse(
            name="", type_name="", steps=stepping.total.steps, patterns=stepping.total.patterns(),
            left_out=stepping.total.left_out, holds=self._numbers(), accumulation=stepping.accumulation,
            graphed=self._graphed,
        )  # fmt: skip

    def _numbers(self) -> tuple[int, ...]:
        alive = (probe.parameter() for probe in self._probes)
        numbers = (self._leaves.find(leaf) for leaf in alive if leaf is not None)
        return tuple(sorted(number for number in numbers if number is not None))

    def _choose(self) -> None:
        self._known = len(self._reached)
        alive = (self._leaves.known[number].reference() for number in sorted(self._reached))
        free = [leaf for leaf in alive if leaf is not None and id(leaf) not in self._theirs]
        if found := probes_of(free, _has_gradient):
            self._probes = found
            self._stepping = Stepping(self._probes, self._brought, self._late)
            self._stepping.begin()

    def _now(self) -> array[int]:
        """Return version and blind write of each probe, one after the other: sixteen bytes a leaf."""
        found = (probe.parameter() for probe in self._probes)
        described = ((-1, -1) if leaf is None else (leaf._version, self._written(leaf)) for leaf in found)
        return array("q", chain.from_iterable(described))

    def _written(self, leaf: torch.Tensor) -> int:
        return self._blind.last_at(leaf.data_ptr()) if self._blind.any and leaf.layout is torch.strided else -1


def _has_gradient(leaf: torch.Tensor) -> bool:
    return leaf.grad is not None


# How far an optimizer's step moves each parameter: the norm of the change over the norm of the weights before.
#
# Around 1e-3 is usual; a layer at 1e-6 does not learn, one at 1e-1 is being thrown about. Two hooks that torch calls
# around every ``Optimizer.step`` see the weights before and after. A copy of a whole model would double its memory,
# so of a parameter with more than `SAMPLE` elements an evenly spaced sample is compared.

SAMPLE = 1 << 16  # elements of one parameter that are compared
SAMPLES_THERE = 1 << 22  # elements of all parameters, where a device holds them

_HALF = (torch.bfloat16, torch.float16)


class StepListener(Protocol):
    """What is called for every step on the watched thread, measured or not."""

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look before it. Never raises."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look after it. Never raises."""

    def unmeasured(self, reason: str) -> None:
        """Note that it could not be measured how far a step moved the parameters."""


class UpdateWatcher(TracePart):
    """Measures the steps of every optimizer in this thread.

    The log of passes is told of every measured step: how far it moved parameters, and where ranks compare them, the
    norms of the gradients that it used. The mode steps aside where a step runs no code but torch's.
    """

    def __init__(self, trace: TraceContext) -> None:
        self._passes, self._run_seconds = trace.passes, trace.seconds
        self._recorder: ForwardRecorder = trace.recorder
        self._parallel: ParallelWatcher = trace.parts["parallel"]
        self._training: StepListener = trace.parts["training"]
        self._thread = threading.get_ident()
        self._before: list[tuple[int, list[int], list[torch.Tensor]]] = []
        self._first_seconds = 0.0  # what the first measured step took: torch sets up what it measures with

    def enter(self, undoing: Undoing) -> None:
        """Watch."""
        undoing.callback(self._leave)
        self.step_back()

    def _leave(self) -> None:
        self.step_aside()
        self._before.clear()

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
            self._guarded(lambda: self._keep(optimizer))
        if plain and type(optimizer).__module__.startswith("torch.optim."):
            hooks = (_tables[1], optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
            hooked = any(len(each) for each in hooks)
            if not hooked and not any(group.get("differentiable") for group in optimizer.param_groups):
                self._recorder.leave_step()  # the step runs torch's code and no other, which makes no node

    def ends(self, optimizer: torch.optim.Optimizer) -> None:
        """Look after it."""
        if threading.get_ident() != self._thread:
            return
        self._recorder.return_from_step()
        self._recorder.autograd.step_ends(optimizer)
        if self._before:
            self._guarded(lambda: self._compare(optimizer))
            self._first_seconds = self._first_seconds or self.seconds
        self._training.after_step(optimizer)

    def _guarded(self, action: Callable[[], None]) -> None:
        began = perf_counter()
        try:
            with quiet():
                action()
        except Exception as error:
            self._training.unmeasured(error_text(error))
        self.seconds += perf_counter() - began

    def _keep(self, optimizer: torch.optim.Optimizer) -> None:
        numbers, parameters, gradients = self._of(optimizer)
        if self._parallel.is_there():
            norms = _norms([torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in gradients])
            _read(self._passes.late, norms, partial(self._tell_used, numbers))
        most = _sample_size(parameters)
        self._before.append((id(optimizer), numbers, [_sample(parameter, most).clone() for parameter in parameters]))

    def _compare(self, optimizer: torch.optim.Optimizer) -> None:
        while self._before:
            owner, numbers, before = self._before.pop()
            if owner == id(optimizer):  # others began and failed
                break
        else:
            return
        now, parameters, gradients = self._of(optimizer)
        if now == numbers and numbers:
            most = _sample_size(parameters)
            after = [_sample(parameter, most) for parameter in parameters]
            halves = list(_halves(numbers, gradients, before, after))
            norms = [*_norms(torch._foreach_sub(after, before)), *_norms(before)]
            counts = [count for _, *counts in halves for count in counts]
            _read(self._passes.late, [*norms, *counts], partial(self._tell, numbers, [number for number, *_ in halves]))

    def _tell_used(self, numbers: list[int], read: list[float]) -> None:
        self._passes.stepped(_joined(numbers, read) if read else {})

    def _tell(self, numbers: list[int], halves: list[int], read: list[float]) -> None:
        """Hand over the norms of changes and of what was there before, and how many elements of halves stayed."""
        end = 2 * len(numbers)
        for number, stayed, had in zip(halves, read[end::2], read[end + 1 :: 2], strict=True):
            known = self._passes.lost.get(number, (0.0, 0.0))
            self._passes.lost[number] = known[0] + stayed, known[1] + had
        moved, stood = _joined(numbers, read[: len(numbers)]), _joined(numbers, read[len(numbers) : end])
        grown = {number: math.inf if change else 0.0 for number, change in moved.items()}  # where all was zero
        self._passes.moved(grown | {number: moved[number] / before for number, before in stood.items() if before})

    def _of(self, optimizer: torch.optim.Optimizer) -> tuple[list[int], list[torch.Tensor], list[torch.Tensor]]:
        """Return the parameters that are about to be moved and take part in the run: numbers, values and gradients.

        Several may have one number: FSDP1 keeps them in one. Of a DTensor it is the shard that lies here.
        """
        numbers: list[int] = []
        parameters: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                local = local_shard(parameter)
                plain = local.layout is torch.strided and not dispatches_to_python(local)
                number = self._passes.leaves.find(parameter) if plain else None
                if number is not None and parameter.grad is not None and local.device.type != "meta":
                    numbers.append(number)
                    parameters.append(local)
                    gradients.append(local_shard(parameter.grad))
        return numbers, parameters, [] if any(map(_has_no_norm, gradients)) else gradients


def _halves(
    numbers: list[int], gradients: list[torch.Tensor], before: list[torch.Tensor], after: list[torch.Tensor]
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield of parameters in half precision how many elements had a gradient and stayed, and how many had one."""
    most = _sample_size(after)
    for number, gradient, old, new in zip(numbers, gradients, before, after, strict=False):
        if new.dtype in _HALF and gradient.is_contiguous() and gradient.dtype == new.dtype:
            had = _sample(gradient, most) != 0
            if had.shape == new.shape:
                yield number, (had & (old == new)).sum(), had.sum()


def _sample_size(parameters: list[torch.Tensor]) -> int:
    """Return the most elements of one that are compared: on a device, of all together at most `SAMPLES_THERE`."""
    there = any(map(devices.there.holds, parameters))
    return max(min(SAMPLE, SAMPLES_THERE // len(parameters)), 1) if there else SAMPLE


def _sample(parameter: torch.Tensor, most: int) -> torch.Tensor:
    """Return a view of at most about ``most`` elements, evenly spaced in memory; a copy of what has no such view."""
    flat = parameter.detach()
    if not flat.is_contiguous():
        stride = flat.stride()
        flat = flat.permute(sorted(range(flat.dim()), key=lambda dim: -stride[dim]))
    flat = flat.reshape(-1)
    flat = torch.view_as_real(flat.resolve_conj()).reshape(-1) if flat.is_complex() else flat
    step = -(-flat.numel() // most)
    return flat[::step] if step > 1 else flat


def _norms(tensors: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Return the norm of each, of real numbers, in no narrower type than float32: float16 ends at 65504."""
    if any(map(devices.there.holds, tensors)):
        wide = torch.float64 if any(x.dtype is torch.float64 for x in tensors) else torch.float32
        return list(torch._foreach_norm(tensors, dtype=wide))
    norms = torch._foreach_norm(tensors) if tensors else ()
    return [
        norm
        if norm.dtype not in _HALF and NORM_RELIABLE[0] < norm.item() < NORM_RELIABLE[1]
        else torch.linalg.vector_norm(x.double())
        for norm, x in zip(norms, tensors, strict=True)
    ]


def _read(late: Late, norms: list[torch.Tensor], keep: Callable[[list[float]], None]) -> None:
    """Hand over numbers from wherever they are, now or when they have come: one transfer for each device."""
    read, away = [0.0] * len(norms), dict[torch.device, list[int]]()
    for at, norm in enumerate(norms):
        if devices.there.holds(norm):
            away.setdefault(norm.device, []).append(at)
        else:
            read[at] = float(norm.item())
    for device, places in away.items():
        wide = torch.float32 if device.type == "mps" else torch.float64
        together = torch.stack([norms[at].to(wide) for at in places])
        late.sent(together, partial(_put, read, places))
    late.then(None, partial(keep, read))


def _put(read: list[float], places: list[int], found: list[float]) -> None:
    for at, value in zip(places, found, strict=True):
        read[at] = value


def _has_no_norm(gradient: torch.Tensor) -> bool:
    """Return whether the norms of several gradients cannot be taken together because of this one."""
    return dispatches_to_python(gradient) or gradient.layout is not torch.strided


def _joined(numbers: list[int], norms: list[float]) -> dict[int, float]:
    """Return the norm of each parameter, of which several pieces may have one number."""
    found = dict.fromkeys(numbers, 0.0)
    for number, norm in zip(numbers, norms, strict=True):
        found[number] = math.hypot(found[number], norm)
    return found
