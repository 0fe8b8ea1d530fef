"""What a training loop does from step to step, seen from every backward pass and every step of an optimizer.

It looks at the gradients of a few parameters before and after each; what it finds is counted by pattern, so that a
million steps take no more room than ten. Passes and steps that are not traced (a tracer that rests) are not guessed:
what depends on them is left unjudged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from itertools import chain
from threading import get_ident
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors import devices
from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.calls.seen_made import lost_in_steps
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.hooks.replacing import BackwardCall
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.objects.children import attributes_of, is_kind
from tensormagic.collectors.objects.identity import Leaves, Marks, name_of
from tensormagic.collectors.quiet import Looking, quiet
from tensormagic.collectors.training.habits import LoopsOverData, StateLoads
from tensormagic.collectors.training.optimizer_contents import (
    Followed,
    FrozenMoves,
    Growth,
    ModelModes,
    TrainedElsewhere,
    held_by,
    takes_over,
)
from tensormagic.collectors.training.stepping import ByHand, Moment, Stepping, probes_of
from tensormagic.reports import UNTOUCHED, Clipping, Gap, Graph, Training

MOST_OPTIMIZERS, MOST_KNOWN = 32, 1 << 16  # optimizers that are followed, and those that are known to be too many


def _guarded(look: Callable[..., None]) -> Callable[..., None]:
    """Look as `Looking` does; what a CUDA graph records does not run: no look."""

    @wraps(look)
    def guarded(self: TrainingWatcher, *args: Any) -> None:
        if devices.there.capturing():
            self._seen = False
        else:
            self.guarded(look, self, *args)

    return guarded


class TrainingWatcher(Looking, TracePart):
    """Follows what trains."""

    def __init__(self, trace: TraceContext) -> None:
        namespace, leaves, sites = trace.namespace, trace.leaves, trace.sites
        self._recorder: ForwardRecorder = trace.recorder
        self._namespace, self._leaves, self._sites = namespace, leaves, sites
        self._pass_log, self._home, self._late = trace.passes, get_ident(), trace.late
        self._followed = Marks(MOST_KNOWN)  # optimizers that step, those beyond `MOST_OPTIMIZERS` with None
        self._optimizers: list[Followed] = []  # as they were met, those that are no more included
        self._by_hand = ByHand(leaves, self._brought, self._recorder, trace.late)
        self._elsewhere, self._frozen = TrainedElsewhere(leaves), FrozenMoves(trace.passes, namespace)
        self._loop, self._growth = self._recorder.calls.loop, Growth(self._recorder.origins)
        self._loop.region = self._recorder.detached.region_site
        self._modes: dict[str, ModelModes] = {}
        self._loops, self._loads = LoopsOverData(sites), StateLoads(sites, leaves, namespace)
        self._alike: dict[int, bool] = {}  # of weights, by number, whether their units are all the same
        self._found: dict[str, Any] = {}  # fields of the report that are known when the run has ended
        self._backward: int | None = None
        self._reached: Collection[int] = ()  # the leaves that the last pass led to
        self._steps = self._passes = self._running = self._nodes = self._optimizers_seen = 0
        self._seen = self._whole = True  # whether no pass went by unseen since the last, or on another thread

    def enter(self, undoing: UndoStack) -> None:
        """Note loads of states."""
        undoing.enter_context(self._loads.noted())

    @_guarded
    def before_pass(self, call: BackwardCall, followed: Following) -> None:
        """Look before a backward."""
        if not self._concerns(call, followed):
            return
        site, nodes = followed.site, followed.nodes
        self._running += 1
        self._loops.look(site, followed.caller)
        self._loop.before_pass(nodes)
        self._by_hand.before_pass(self._backward, self._passes)
        for optimizer in self._alive():
            optimizer.stepping.before_pass(self._backward, self._reached)
        self._growth.before_pass(site, nodes, self._steps + self._by_hand.updates)
        self._backward = site

    @_guarded
    def after_pass(self, call: BackwardCall, followed: Following) -> None:
        """Look after a backward."""
        if followed.thread == self._home:
            self._elsewhere.after_pass()  # also after ``autograd.grad``, of which updates by hand are made
            if followed.is_open:
                self._by_hand.reached(followed.graph.structure)
        if not self._concerns(call, followed):
            return
        self._reached = followed.graph.structure.leaf_of.values() if followed.is_open else ()
        self._running -= 1
        self._passes += 1
        self._seen, self._loop.cleared, self._loop.passes = True, None, self._passes
        self._loop.stepped.clear()
        for optimizer in self._alive():
            optimizer.stepping.after_pass()
        self._by_hand.after_pass()
        self._growth.after_pass(followed.site)

    def _concerns(self, call: BackwardCall, followed: Following) -> bool:
        """Return whether leaves collect gradients in a pass of this thread's that lies in no other."""
        if followed.thread != self._home:
            self._whole = False
        return followed.thread == self._home and followed.pass_context is None and call.accumulates

    @_guarded
    def forget(self) -> None:
        """Note that passes and steps may have gone by unseen."""
        self._seen = False
        self._by_hand.forget()
        for followed in self._alive():
            followed.stepping.forget()

    @_guarded
    def look_early(self) -> None:
        """Look at weights that may be gone when the run ends."""
        self._by_hand.look_early()
        self._look_at_units(waits=False)

    def _look_at_units(self, *, waits: bool) -> None:
        if self._steps or self._by_hand.updates:
            with quiet():  # a mode of the user's is not to see what is asked here
                self._alike.update(alike(self._leaves, waits=waits))

    @_guarded
    def finish(self, _error: BaseException | None) -> None:
        """Say that the run has ended: what gets gradients and was in no optimizer's step is looked for elsewhere."""
        held = {number for followed in self._optimizers for number in followed.numbers}
        known = enumerate(self._leaves.known)
        asking = {number for number, leaf in known if leaf.is_parameter and leaf.owner and leaf.requires_grad}
        names = list(self._namespace.items())
        if held or self._passes >= _TRAINS:
            self._elsewhere.finish(asking - held, self._loop, names)
        self._look_at_units(waits=True)
        alive = [(followed, each) for followed in self._optimizers if (each := followed.reference()) is not None]
        self._found = {
            "alike": tuple(number for number, is_so in self._alike.items() if is_so),
            "idle": tuple(self._elsewhere.idle) if self._whole else (),  # else other threads may have made steps
            "names": names_of_one(self._namespace, chain.from_iterable(held_by(each) for _, each in alive)),
            "elsewhere": tuple(sorted(self._elsewhere.found - held)),
        }
        for followed in self._optimizers:
            followed.finish(self._namespace)
        for followed, theirs in alive:
            if followed.waits >= _TRAINS and not followed.stepping.steps:
                lost_in_steps(self._recorder.calls, type(theirs).step, self._sites, followed.waits)

    @_guarded
    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look before a step of an optimizer."""
        if not _is_torchs(optimizer) and is_within_step(optimizer):
            return
        if id(optimizer) not in self._followed:
            self._meet(optimizer)
        if (followed := self._followed.of(optimizer)) is not None:
            followed.stepping.before_step(self._passes)
            followed.before = () if _is_torchs(optimizer) else followed.stepping.states()
            steps = followed.stepping.steps
            if self._loop.steps_to_look or steps & (steps - 1) == 0 or self._frozen.every:
                self._loop.steps_to_look = max(self._loop.steps_to_look - 1, 0)
                self._frozen.before_step(optimizer, followed.name, self._loop.froze)

    @_guarded
    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look after a step."""
        if (followed := self._followed.of(optimizer)) is None:
            return
        stepping, caller = followed.stepping, sys._getframe(1)  # its own frame would be a cycle that keeps all alive
        if not _is_torchs(optimizer):
            waits = bool(followed.before) and followed.before == stepping.states()
            if waits or is_within_step(optimizer):
                followed.waits += waits and stepping.has_gradients()
                return  # a part of a step of a user's own class, or one that waits
        followed.look(optimizer)
        self._loop.stepped[id(optimizer)] = followed.reference
        if self._loop.clips:
            self._loop.stepped_by(optimizer, caller)
        gradient = next((one.grad for one in held_by(optimizer) if one.grad is not None), None)
        followed.graphed += gradient is not None and gradient.requires_grad
        scaler = self._loop.scaler_of_step(optimizer, caller)
        if scaler is not None and not followed.numbers.isdisjoint(self._reached):
            scale = scaler.get_scale() if scaler._scale.device.type == "cpu" else None
            factor = scale or scaler._init_scale
            rates = (group.get(key) for group in optimizer.param_groups for key in ("lr", "initial_lr"))
            known = [rate for rate in rates if isinstance(rate, float) and rate > 0]
            # A rate of few digits that was divided by the factor: 9.765625e-05 by 1024.
            divided = any(_digits(rate * factor) < min(_digits(rate), 4) for rate in known)
            followed.scaled += not divided and stepping.uses_scaled(scale)
        followed.restarts.look(stepping.steps + 1)
        site, nodes = self._sites.of_frame(caller), self._recorder.origins.nodes
        moment = Moment(
            site, self._backward, self._loop.cleared, self._passes, reached=self._reached,
            forward=nodes != self._nodes, within=self._running > 0, seen=self._seen and self._whole,
        )  # fmt: skip
        self._nodes = nodes
        if self._frozen.every:
            self._frozen.after_step(site, self._loop.cleared_last)
        stepping.after_step(moment, held_by(optimizer))
        for other in self._alive():
            if other is not followed:
                other.stepping.other_stepped()
        self._look_at_modes(followed, optimizer)
        self._steps += 1

    def _look_at_modes(self, followed: Followed, optimizer: torch.optim.Optimizer) -> None:
        for owner in followed.owners:
            if (modes := self._modes.get(owner)) is None or modes.reference() is None:
                if (model := dict(self._leaves.modules.roots()).get(owner)) is None:
                    continue
                modes = self._modes[owner] = ModelModes(owner, model, self._late)
            modes.step(held_by(optimizer))

    def _meet(self, optimizer: torch.optim.Optimizer) -> None:
        self._followed.put(optimizer, None)
        self._optimizers_seen += 1
        self._recorder.detached.trained.step(held_by(optimizer))
        if len(self._optimizers) >= MOST_OPTIMIZERS:
            return
        stepping = Stepping(probes_of(held_by(optimizer)), self._brought, self._late)
        name = name_of(optimizer, list(self._namespace.items()), sys._getframe())
        found = Followed(optimizer, name, stepping, self._leaves)
        first = found.first()
        again = first is not None and any(one.first() is first for one in self._optimizers)
        found.again = again and not takes_over(optimizer)
        self._followed.put(optimizer, found)
        self._optimizers.append(found)
        stepping.begin()
        self._by_hand.leave()

    def _alive(self) -> list[Followed]:
        return [mark.note for mark in list(self._followed.values()) if mark.note is not None]

    def _brought(self, leaf: torch.Tensor) -> tuple[int | None, float | None]:
        number, row = self._leaves.find(leaf), self._pass_log.kept.last
        if number is not None and self._pass_log.is_coming(number):
            return number, None
        return number, UNTOUCHED if number is None or row is None or number >= len(row.norms) else row.norms[number]

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be followed."""
        return (Gap("training", f"some training steps could not be traced: {self.gap}"),) if self.gap else ()

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what is known so far; nothing where nothing trained."""
        every = list(self._optimizers)
        if not self._passes and not every and not self._loads.found:
            return {}
        return {"training": Training(
            optimizers=tuple(followed.use() for followed in every), optimizers_seen=self._optimizers_seen,
            by_hand=self._by_hand.use(), growth=tuple(self._growth.found.values()),
            sums=self._loop.sums(), norms=self._loop.untrained(graded=False),
            drifting=self._loop.untrained(graded=True), frozen=self._frozen.report(),
            used_up=tuple(self._loops.used_up.values()),
            same_order=tuple(self._loops.same_order), loads=tuple(self._loads.found.values()),
            modes=tuple(modes.found for modes in list(self._modes.values())),
            clips=tuple(Clipping(location=site, **counts) for site, counts in list(self._loop.clips.items())),
            **self._found,
        )}  # fmt: skip


def alike(leaves: Leaves, *, waits: bool) -> dict[int, bool]:
    """Return of each weight that is there whether its units are all the same: its rows; of a plain tensor, columns.

    Those on a device are left out unless the host ``waits`` for it.
    """
    found = {}
    for number, weight in enumerate(leaf.reference() for leaf in leaves.known):
        if weight is None or type(weight) not in {torch.Tensor, nn.Parameter} or weight.layout is not torch.strided:
            continue
        if not (waits or weight.is_cpu):
            continue
        is_matrix = weight.dim() > 1 and weight.numel() > 0 and weight.is_floating_point()
        if is_matrix and weight.requires_grad and not weight.is_meta:
            units = weight.detach() if type(weight) is nn.Parameter else weight.detach().transpose(0, 1)
            ends_alike = len(units) > 1 and torch.equal(units[0], units[-1])
            found[number] = ends_alike and bool((units == units[:1]).all())
    return found


def names_of_one(namespace: Mapping[str, Any], stepped: Iterable[torch.Tensor]) -> tuple[tuple[str, ...], ...]:
    """Return the names of each module that has several, also as attributes of the user's own objects.

    Where it is known what optimizers have ``stepped``, a module none of whose parameters are among it is another one:
    the best weights, kept as a copy under both names when the training was over.
    """
    found: dict[int, tuple[list[str], nn.Module]] = {}
    held = {id(each) for each in stepped}
    for name, value in list(namespace.items()):
        opened = not (type(value).__module__ in sys.stdlib_module_names or is_kind(value, type, ModuleType, nn.Module))
        inside = [(f"{name}.{key}", item) for key, item in list(attributes_of(value).items())] if opened else []
        for path, item in () if name.startswith("_") else ((name, value), *inside):
            if is_kind(item, nn.Module):
                found.setdefault(id(item), ([], item))[0].append(path)
    several = [(names, module) for names, module in found.values() if len(names) > 1]
    return tuple(tuple(names) for names, module in several if not held or held & set(map(id, module.parameters())))


_TRAINS = 3  # backward passes without a step after which optimizers are looked for: one may never be called
_STEP = torch.optim.Optimizer.profile_hook_step(lambda _: None).__code__


def _digits(value: float) -> int:
    return len(f"{value:.9e}".split("e")[0].replace(".", "").rstrip("0"))


def _is_torchs(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim")


def is_within_step(of: torch.optim.Optimizer | None = None) -> bool:
    """Return whether a step was called by another step, or by one of the same optimizer: torch tells of both."""
    frame, steps = sys._getframe(1), 0
    while frame is not None and steps < 2:
        steps += frame.f_code is _STEP and (of is None or frame.f_locals.get("self") is of)
        frame = frame.f_back  # type: ignore[assignment]
    return steps > 1
