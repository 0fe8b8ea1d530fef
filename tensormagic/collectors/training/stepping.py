"""What one optimizer did, step by step: on what gradients it stepped, counted by pattern."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from tensormagic.collectors import devices
from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.devices import DeferredWork
from tensormagic.collectors.graphs.structure import GraphStructure
from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import TensorRef, dispatches_to_python, local_shard, quiet
from tensormagic.collectors.training.parallel import world_size
from tensormagic.reports import Accumulation, OptimizerUse, StepKind, StepPattern

# Follows the ``.grad`` of a few parameters between backward passes and optimizer steps.
#
# Nothing shows when a gradient is cleared: torch has no hook for it. What can be seen is the state in which it stands
# at the next backward or step: none, another tensor, another version, or exactly what it was. That is enough to tell
# a gradient that was cleared from one that the next backward adds to, and costs about 0.15 µs a look.
#
# Old code clears with ``w.grad.data.zero_()``, which no version shows. So where nothing seems to have changed the
# values are asked, seldom: the first few times, then at exponentially rarer ones. A device is not waited for: until its
# first answer has come, a step that depends on it is not judged.

MOST_PROBES = 3  # parameters of one optimizer that are followed
FIRST_QUESTIONS = 8  # looks at values before they become rare
MOST_PATTERNS = 24  # of one optimizer
MOST_COMPARED = 64  # elements of a gradient
MUCH_APART = 0.1  # what is no longer the same gradient: a decay that was added to it by hand is less

Reference = Callable[[], "torch.Tensor | None"]
# Gives the number of a leaf, and the norm of what the last backward brought it; below zero for nothing, None where that
# is still to come from a device.
Brought = Callable[[torch.Tensor], "tuple[int | None, float | None]"]


def gradient_of(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Return a leaf's ``.grad``, its local shard; None also where the leaf is gone, or is none (torch would warn)."""
    return local_shard(tensor.grad) if tensor is not None and tensor.is_leaf else None


@dataclass(slots=True)
class ParameterProbe:
    """One parameter whose gradient is followed."""

    parameter: Reference  # weak
    gradient: Reference | None = None  # weak, to its ``.grad`` when last looked at; None where it had none
    version: int = -1  # the version of that gradient
    used: bool = False  # whether a step has used what is in it, and it was not cleared since
    brought: bool = False  # whether a backward has changed it since the last step, and it was not cleared since
    emptied: bool = False  # whether it was brought something since the last step, and is cleared now
    by_backward: bool = False  # whether what is in it came from a backward, and not from the user's own hand
    weights: int = -1  # the version of the parameter when a backward inside a step brought it; -1 outside of steps
    added: torch.Tensor | None = None  # some values of what a backward has made by adding to what a step had used

    def look(self) -> bool:
        """Return whether the gradient is what it was when last looked at; remember what it is now."""
        if (now := gradient_of(self.parameter())) is None:
            same, self.gradient = self.gradient is None, None
            return same
        version = now._version
        same = self.gradient is not None and self.gradient() is now and self.version == version
        if not same:
            self.gradient, self.version = TensorRef(now), version
        return same

    @property
    def is_of_other_weights(self) -> bool:
        """Whether a step has moved the parameter since a backward inside it brought what is in the gradient."""
        leaf = self.parameter()
        return self.brought and self.weights >= 0 and leaf is not None and leaf._version != self.weights

    def clear(self, *, before_step: bool = False) -> None:
        """Note that it is cleared: what is in it was not brought, and not used."""
        self.emptied = before_step and (self.brought or self.emptied)
        self.used = self.brought = self.by_backward = False


def some_values(gradient: torch.Tensor) -> torch.Tensor:
    """Return a copy of a few elements, evenly spaced."""
    few = gradient.detach().flatten()[:: max(gradient.numel() // MOST_COMPARED, 1)][:MOST_COMPARED]
    return few.to(torch.float32, copy=True)


def apart(now: torch.Tensor, then: torch.Tensor) -> torch.Tensor:
    """Return how far a gradient is from what it was, relative to its own norm: zero if it was only scaled or clamped.

    A single number can always be the same but for a factor: there it has to be equal.
    """
    factor, bound = ((now @ then) / (then @ then)).clamp_min(0), now.abs().max()
    others = (then,) if then.numel() == 1 else (factor * then, then.clamp(-bound, bound))
    distance: torch.Tensor = torch.stack([(now - other).norm() for other in others]).min() / now.norm()
    return distance


def all_zero(gradient: torch.Tensor | None) -> bool:
    """Return whether a gradient is there and every element is zero; False where that cannot be asked."""
    with suppress(RuntimeError, NotImplementedError, TypeError), quiet():
        return gradient is not None and not bool(_values(gradient).any())
    return False


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.coalesce().values() if gradient.layout is torch.sparse_coo else gradient


def probes_of(tensors: Iterable[torch.Tensor], *, with_gradient: bool = False) -> list[ParameterProbe]:
    """Return probes for a few of these parameters, evenly spaced among those that ask for a gradient, or have one.

    Few are asked whether they have: to look at a ``.grad`` makes a Python object of it, which stays.
    """
    asking = [
        each for each in tensors if each.requires_grad and each.is_leaf and not dispatches_to_python(local_shard(each))
    ]
    chosen: list[int] = []
    last, gaps = len(asking) - 1, MOST_PROBES - 1
    for at in [at * last // gaps for at in range(MOST_PROBES)] if last > gaps else range(len(asking)):
        nearest = (place for place in chain(range(at, len(asking)), range(at)) if place not in chosen)
        if (found := next((at for at in nearest if not with_gradient or asking[at].grad is not None), None)) is None:
            break
        chosen.append(found)
    return [ParameterProbe(TensorRef(asking[at])) for at in sorted(chosen)]


@dataclass(slots=True)
class Moment:
    """What is known when a step is made."""

    location: int | None = None  # the line that made it
    backward: int | None = None  # the line of the last backward
    cleared: int | None = None  # the line that cleared gradients last, since that backward
    passes: int = 0  # how many backward passes have ended, of those that bring leaves a gradient
    forward: bool = True  # whether a forward has run since the last step
    within: bool = False  # whether a backward runs right now
    seen: bool = True  # whether everything since the step before was seen
    reached: Collection[int] = ()  # the leaves that the last backward led to


class Stepping:
    """Follows one optimizer by a few of its parameters."""

    def __init__(self, probes: list[ParameterProbe], brought: Brought, late: DeferredWork) -> None:
        self.probes = probes
        self._brought, self._late = brought, late
        self._unanswered = False  # whether the step that comes depends on what a device has not answered yet
        self._is_inside = False  # whether a step runs, which may call a closure
        self._adds = False  # whether its closure added to what was not cleared: of a step before, or of other weights
        self._as_brought = False  # whether the step uses what a backward brought, and nothing changed it since
        self._asked: Counter[str] = Counter()  # how often there was occasion for each question that waits for values
        self._answers: dict[str, bool] = {}  # the last to each
        self._at_last_step = -1  # passes that had ended then; -1: it has not stepped
        self._at_begin = 0
        self.steps = self._left_out = self._in_a_row = 0
        self._patterns: dict[tuple[Any, ...], StepPattern] = {}  # memory does not grow with the number of steps
        self._pattern: tuple[Any, ...] = ()  # that of the last step
        self._accumulation: Accumulation | None = None
        self._discarded: Counter[int] = Counter()  # passes whose gradients no step used, by their line
        self._foreign: Counter[int | None] = Counter()  # passes that another optimizer had used before, by their line
        self._is_used_elsewhere = False
        self._mixed: tuple[int | None, Collection[int]] = None, ()  # the line, and the leaves that it led to
        self._is_mixed = False

    def use(self, name: str = "", type_name: str = "", **facts: Any) -> OptimizerUse:
        """Return the steps that were counted, in order of first appearance, and what else is known of the optimizer."""
        discarded_at, discarded = next(iter(self._discarded.most_common(1)), (None, 0))
        foreign_at, _ = next(iter(self._foreign.most_common(1)), (None, 0))
        return OptimizerUse(
            name=name, type_name=type_name, steps=self.steps, left_out=self._left_out,
            patterns=tuple(self._patterns.copy().values()), accumulation=self._accumulation, discarded=discarded,
            discarded_at=discarded_at, foreign=sum(self._foreign.values()), foreign_at=foreign_at, **facts,
        )  # fmt: skip

    def keep(self, parameters: Sequence[torch.Tensor]) -> None:
        """Follow what the optimizer holds by now, where it has given some of it up."""
        held = set(map(id, parameters))
        self.probes = [one for one in self.probes if id(one.parameter()) in held] or probes_of(parameters)

    def before_pass(self, last: int | None = None, reached: Collection[int] = ()) -> None:
        """Look before a backward; ``last`` is the line of the one before it, ``reached`` the leaves that it led to."""
        # What a backward brought since the last step, and is gone: no step has used it.
        if last is not None and any(one.brought and gradient_of(one.parameter()) is None for one in self.probes):
            self._discarded[last] += 1
        for probe in self.probes:
            if not probe.look() or probe.gradient is None:
                probe.clear()
        if self._is_used_elsewhere or self._is_mixed:
            self._mixed = (last, reached) if self._is_used_elsewhere and not self._is_mixed else self._mixed
            self._is_mixed, self._is_used_elsewhere = any(one.brought and not one.used for one in self.probes), False
        # Those of which a backward would add to what a step has used, as far as versions show.
        stale = [one for one in self.probes if one.used or (self._is_inside and one.is_of_other_weights)]
        if self._are_zero(stale, "stale"):
            for probe in stale:
                probe.clear()
        else:
            self._adds |= self._is_inside and bool(stale) and not self._unanswered

    def _is_time(self, question: str) -> bool:
        """Count an occasion for a costly question; return whether to ask: the first times, then at powers of two."""
        self._asked[question] = asked = self._asked[question] + 1
        return asked <= FIRST_QUESTIONS or asked & (asked - 1) == 0

    def _are_zero(self, probes: list[ParameterProbe], question: str) -> bool:
        """Return whether gradients were found all zero when last asked; of those on a device the answer comes later."""
        if probes and self._is_time(question):
            there = [gradient for probe in probes if (gradient := gradient_of(probe.parameter())) is not None]

            def keep(largest: list[float]) -> None:
                self._answers[question] = len(there) == len(probes) and not any(largest)

            with suppress(RuntimeError, NotImplementedError, TypeError), quiet():
                values = [_values(gradient) for gradient in there if gradient.numel()]
                self._late.read([torch.linalg.vector_norm(each, math.inf) for each in values], keep)
        self._unanswered |= bool(probes) and question not in self._answers
        return bool(probes) and self._answers.get(question, False)

    def _are_others(self, probes: list[ParameterProbe]) -> bool:
        """Return whether what a backward had added to was replaced since, when last asked: no part of it is in there.

        What is clipped, averaged or unscaled is the same but for a factor.
        """
        if probes and self._is_time("replaced"):
            both = [(gradient_of(probe.parameter()), probe.added) for probe in probes]

            def keep(distances: list[float]) -> None:
                self._answers["replaced"] = min(distances, default=0.0) > MUCH_APART

            with suppress(RuntimeError, NotImplementedError, TypeError), quiet():
                read = [apart(some_values(now), then) for now, then in both if now is not None and then is not None]
                self._late.read(read, keep)
        self._unanswered |= bool(probes) and "replaced" not in self._answers
        return bool(probes) and self._answers.get("replaced", False)

    def after_pass(self) -> None:
        """Look after a backward."""
        for probe in self.probes:
            if not probe.look():
                probe.brought = probe.by_backward = probe.gradient is not None
            leaf = probe.parameter() if self._is_inside else None
            probe.weights = -1 if leaf is None else leaf._version
            probe.added = None
            if probe.used and probe.brought:
                gradient = gradient_of(probe.parameter())
                with suppress(RuntimeError, NotImplementedError, TypeError), quiet():
                    if gradient is not None and gradient.is_floating_point():
                        probe.added = some_values(gradient)

    def other_stepped(self) -> None:
        """Note that another optimizer has made a step: it used what the last backward brought, here too."""
        self._is_used_elsewhere = any(probe.brought and not probe.used for probe in self.probes)

    def forget(self) -> None:
        """Note that backwards or steps may have gone by unseen."""
        self._is_mixed = self._is_used_elsewhere = False
        for probe in self.probes:
            probe.clear()
        self._at_last_step = -1

    def begin(self) -> None:
        """Look for the first time."""
        for probe in self.probes:
            probe.look()
            parameter = probe.parameter()
            norm = self._brought(parameter)[1] if parameter is not None else -1.0
            probe.brought = probe.by_backward = norm is None or 0 < norm < math.inf
            if norm is None and probe.gradient is not None:  # it may be zero only where it was written to
                self._unanswered |= probe.version > 0
            elif probe.brought and (probe.gradient is None or all_zero(gradient_of(parameter))):
                probe.clear(before_step=True)

    def before_step(self, passes: int) -> None:
        """Look before a step."""
        self._at_begin, self._is_inside = passes, True
        changed = []  # those of which what a backward brought was changed since, and may have been cleared
        for probe in self.probes:
            same = probe.look()
            if probe.gradient is None:
                probe.clear(before_step=True)
            elif not same and not probe.brought:
                probe.used = probe.by_backward = False
            if not same and probe.brought:
                changed.append(probe)
        self._as_brought = self._at_last_step >= 0 and not changed
        if self._are_zero(changed, "changed"):
            for probe in changed:
                probe.clear(before_step=True)
        added = [one for one in self.probes if one.used and one.brought and one.added is not None]
        if self._are_others(added):
            for probe in added:
                probe.clear()

    def uses_scaled(self, scale: float | None) -> bool:
        """Return whether the step uses what a backward of a scaled loss brought; what was divided by hand is smaller.

        Of a scale on a device, for which nobody waits (None), only versions are compared.
        """
        if scale is not None and scale <= 1:
            return False
        parameter = next((one for probe in self.probes if (one := probe.parameter()) is not None), None)
        gradient, norm = gradient_of(parameter), self._brought(parameter)[1] if parameter is not None else None
        if scale is None or norm is None or gradient is None:
            return self._as_brought and gradient is not None
        with quiet():
            return float(torch.linalg.vector_norm(_values(gradient))) > norm / math.sqrt(scale) > 0

    def after_step(self, moment: Moment, parameters: Iterable[torch.Tensor]) -> None:
        """Judge a step and look after it; ``parameters`` are all of the optimizer's."""
        kind = self._kind(moment, parameters)
        self._count(kind, moment)
        line, reached = self._mixed
        same = line == moment.backward and set(reached) <= set(moment.reached)  # batches that add up
        if self._is_mixed and kind == "fresh" and not same:
            self._foreign[line] += 1
        self._unanswered = self._is_mixed = self._is_used_elsewhere = self._is_inside = self._adds = False
        for probe in self.probes:
            probe.look()
            probe.used, probe.brought, probe.emptied = probe.gradient is not None, False, False

    def states(self) -> tuple[tuple[int, bytes], ...]:
        """Return what shows whether a step did anything: versions, and first values; empty where it is not known."""
        there = [parameter for probe in self.probes if (parameter := probe.parameter()) is not None]
        kinds = {(type(one) in {torch.Tensor, torch.nn.Parameter}, one.layout, one.device.type) for one in there}
        if kinds != {(True, torch.strided, "cpu")}:
            return ()
        with quiet():
            return tuple((one._version, bytes(one.detach().flatten()[:4].view(torch.uint8).tolist())) for one in there)

    def has_gradients(self) -> bool:
        """Return whether there are gradients that would change the first values, which `states` compares."""
        gradients = (gradient_of(probe.parameter()) for probe in self.probes)
        with quiet():
            return any(gradient is not None and bool(gradient.flatten()[:4].any()) for gradient in gradients)

    def updated(self, moment: Moment, changed: Iterable[ParameterProbe]) -> None:
        """Count an update by hand of what changed, which was made between the last backward and now."""
        there = [probe for probe in changed if probe.brought]
        self._count("accumulated" if any(one.used for one in there) else "fresh" if there else "idle", moment)
        for probe in there:
            probe.used, probe.brought = probe.used or probe.brought, False

    def _count(self, kind: StepKind, moment: Moment) -> None:
        since, self._at_last_step = moment.passes - self._at_last_step, moment.passes
        self.steps += 1
        key: tuple[Any, ...] = kind, moment.location, moment.backward, moment.cleared
        self._in_a_row, self._pattern = self._in_a_row + 1 if key == self._pattern else 1, key
        known = self._patterns.get(key)
        if known is not None:
            longest = max(known.longest, self._in_a_row)
            self._patterns[key] = replace(known, count=known.count + 1, last=self.steps, longest=longest)
        elif len(self._patterns) < MOST_PATTERNS:
            where = dict(zip(("kind", "location", "backward", "cleared"), key, strict=True))
            self._patterns[key] = StepPattern(first=self.steps, last=self.steps, **where)
        else:
            self._left_out += 1
        if kind == "accumulated" and self._is_time("measured"):
            self._measure(one_pass=since == 1)

    def _kind(self, moment: Moment, parameters: Iterable[torch.Tensor]) -> StepKind:
        if moment.within or moment.passes != self._at_begin:
            return "accumulated" if self._adds else "inside"
        if not moment.seen or self._unanswered:
            return "unseen"
        there = [probe for probe in self.probes if probe.gradient is not None and not probe.emptied]
        if any(probe.used and probe.brought for probe in there):
            return "accumulated"
        if there:
            repeated = moment.passes == self._at_last_step and all(one.used and one.by_backward for one in there)
            return "repeated" if repeated else "fresh"
        if any(probe.emptied for probe in self.probes):
            every = (gradient for one in parameters if (gradient := gradient_of(one)) is not None)
            # Of one on a device it is not asked whether it is zero.
            return "idle" if any(not devices.there.holds(each) and not all_zero(each) for each in every) else "emptied"
        return "without" if moment.forward and not moment.passes else "idle"

    def _measure(self, *, one_pass: bool) -> None:
        grown = next((one for one in self.probes if one.used and one.brought), None)
        parameter = grown.parameter() if grown is not None else None
        if parameter is None or (gradient := gradient_of(parameter)) is None or gradient.is_meta:
            return
        step, (number, brought) = self.steps, self._brought(parameter)
        # Of several processes' gradients, what came of all is described.
        described = brought if one_pass and brought is not None and brought >= 0 and world_size() == 1 else None

        def keep(read: list[float]) -> None:
            known = self._accumulation
            first = (known.first_step, known.first_norm) if known and known.parameter == number else (step, read[0])
            self._accumulation = Accumulation(number, *first, step, read[0], described)

        with suppress(RuntimeError, TypeError, NotImplementedError), quiet():
            self._late.read([torch.linalg.vector_norm(_values(gradient))], keep)


# Updates without an optimizer, of a few leaves: ``with torch.no_grad(): w -= lr * w.grad``, seen by their versions.
#
# What is written through ``.data`` leaves the version as it is; that is known from the calls.


class ByHand:
    """Follows leaves that no optimizer holds."""

    def __init__(self, leaves: Leaves, brought: Brought, recorder: ForwardRecorder, late: DeferredWork) -> None:
        self._leaves, self._late, self._brought = leaves, late, brought
        self._blind, self._trained = recorder.autograd.blind, recorder.detached.trained
        self._known = 0
        self._reached: set[int] = set()  # numbers of leaves; another thread's may be collecting its gradient right now
        self._graphs: set[int] = set()
        self._versions: list[tuple[int, int]] = []  # of each probe, and where it was written to behind them
        self._stepping = Stepping([], brought, late)
        self._held_early: tuple[tuple[int, ...], bool] = (), False
        self._graphed = 0  # passes after which the first of them had a gradient with a graph of its own

    def leave(self) -> None:
        """Leave what an optimizer holds by now."""
        if any(map(self._trained.is_held, self._alive())):
            self._stepping, self._versions, self._known = Stepping([], self._brought, self._late), [], 0

    def before_pass(self, backward: int | None, passes: int) -> None:
        """Look before a backward: a leaf that changed since the last one, at that line, was updated."""
        both = zip(self._stepping.probes, self._versions, self._now(), strict=True)
        if changed := [probe for probe, then, now in both if then != now]:
            self._stepping.updated(Moment(None, backward, None, passes), changed)
        self._stepping.before_pass()

    def reached(self, structure: GraphStructure) -> None:
        """Note which leaves a pass of this thread led to."""
        if structure.number not in self._graphs:
            self._graphs.add(structure.number)
            self._reached.update(structure.leaf_of.values())

    def after_pass(self) -> None:
        """Look after a backward; where new leaves have come, choose whom to follow."""
        if self._stepping.probes:
            self._stepping.after_pass()
        elif len(self._reached) != self._known:
            self._known = len(self._reached)
            alive = (self._leaves.known[number].reference() for number in sorted(self._reached))
            free = [leaf for leaf in alive if leaf is not None and not self._trained.is_held(leaf)]
            self._stepping = Stepping(probes_of(free, with_gradient=True), self._brought, self._late)
            self._stepping.begin()
        for probe in self._stepping.probes[:1]:
            gradient = gradient_of(probe.parameter())
            self._graphed += gradient is not None and gradient.requires_grad
        self._versions = self._now()

    def forget(self) -> None:
        """Note that something may have gone by unseen."""
        self._versions = self._now()
        self._stepping.forget()

    @property
    def updates(self) -> int:
        """How many updates there were so far."""
        return self._stepping.steps

    def use(self) -> OptimizerUse | None:
        """Return what is known; None where nothing was updated by hand."""
        self.look_early()
        holds, follows = self._held_early
        use = self._stepping.use(holds=holds, graphed=self._graphed, follows=follows)
        return use if use.steps else None

    def look_early(self) -> None:
        """Note the numbers of the leaves that are updated, and whether any follows others, while they are there."""
        if alive := self._alive():
            numbers = (number for number in map(self._leaves.find, alive) if number is not None)
            self._held_early = tuple(sorted(numbers)), any(map(self._trained.is_following, alive))

    def _alive(self) -> list[torch.Tensor]:
        return [leaf for probe in self._stepping.probes if (leaf := probe.parameter()) is not None]

    def _now(self) -> list[tuple[int, int]]:
        found = []
        for leaf in (probe.parameter() for probe in self._stepping.probes):
            is_followed = leaf is not None and self._blind.any and leaf.layout is torch.strided
            blind = self._blind.last_at(leaf.data_ptr()) if leaf is not None and is_followed else -1
            found.append((-1 if leaf is None else leaf._version, blind))
        return found
