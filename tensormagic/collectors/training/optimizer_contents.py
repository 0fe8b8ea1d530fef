"""Which parameters an optimizer was given, also frozen ones, in which mode their model is, whether its graph grows."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from tensormagic.collectors import devices
from tensormagic.collectors.calls.call_watch import LoopNotes, references_to
from tensormagic.collectors.devices import DeferredWork
from tensormagic.collectors.gradients.pass_log import PassLog
from tensormagic.collectors.graphs.live_nodes import next_nodes
from tensormagic.collectors.objects.children import is_kind, states_of
from tensormagic.collectors.objects.identity import Leaves, name_of
from tensormagic.collectors.objects.namespace import modules_in
from tensormagic.collectors.quiet import TensorRef, dispatches_to_python, quiet
from tensormagic.collectors.training.stepping import Reference, Stepping
from tensormagic.collectors.where.caller import Origins, sequence_number
from tensormagic.reports import FrozenUpdate, GraphGrowth, IdleOptimizer, ModelMode, OptimizerUse

MOST_STATES, MOST_SHAPES = 4096, 8
_STATE = 128  # bytes that show where a generator is: its seed, its place in a round of 624 numbers, the first of these
NO_RATE = 1e-7  # of the largest rate: less is none


def held_by(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the parameters that an optimizer was given."""
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


class Restarts:
    """Tells whether states of torch's generator come back from step to step, as where it is seeded in every epoch."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self.again: set[int] = set()  # the states that came back
        self._last = self.at = self.of = 0

    def look(self, step: int) -> None:
        """Look after a step: some 3 µs."""
        generator = torch.default_generator.get_state()  # always on the CPU
        state = hash(ctypes.string_at(generator.data_ptr(), _STATE))
        if state == self._last:
            return  # nobody has drawn
        self._last, before = state, self._seen.get(state)
        if before is not None:
            self.again.add(state)
            self.at, self.of = self.at or step, self.of or before
        elif len(self._seen) < MOST_STATES:
            self._seen[state] = step


class Followed:
    """An optimizer that steps: who it is, what it holds, and how it stepped.

    A parameter is looked up at the first step, and again at steps that become exponentially rarer: the module that it
    belongs to may not have run yet, or may have been made anew.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, name: str, stepping: Stepping, leaves: Leaves) -> None:
        self.reference, self.name, self._type_name = weakref.ref(optimizer), name, type(optimizer).__name__
        self.first: Reference = next(map(TensorRef, held_by(optimizer)), lambda: None)  # of its parameters
        self.stepping, self.restarts, self._leaves = stepping, Restarts(), leaves
        self._looks = self._count = 0
        self.numbers: set[int] = set()  # of the leaves that it holds
        self._references: dict[int, weakref.ref[torch.Tensor]] = {}  # to these, as they were first met
        self._outlived: set[int] = set()  # those of them in whose place a model had another tensor at a step
        self.owners: dict[str, None] = {}  # the names of the models that they belong to
        self._unknown: list[weakref.ref[torch.Tensor]] = []  # the parameters that are no leaves of the run
        self._shapes: list[tuple[int, ...]] = []  # of these
        self._unknown_idle = True  # whether none of these had a gradient when looked at
        self._unknown_owner = ""  # the name of the module that these are parameters of
        self.again = False  # this and the next three as in `OptimizerUse`
        self._zero_rate_steps = self.graphed = self.scaled = 0
        self._rate: float | None = None
        self.before: tuple[tuple[int, bytes], ...] = ()  # of parameters, before a step of a class that is not torch's
        self.waits = 0  # steps of such a class that changed nothing, although there were gradients

    def look(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at what it holds just after a step, and at its learning rate: the largest of all groups."""
        rates: list[Any] = [group.get("lr") for group in optimizer.param_groups]
        if rates and all(isinstance(rate, int | float) for rate in rates):  # for one on a device nobody waits
            rate = float(max(rates))
            self._rate = max(rate, self._rate or 0.0)
            self._zero_rate_steps = self._zero_rate_steps + 1 if rate <= self._rate * NO_RATE else 0
        self._looks += 1
        before, self._count = self._count, sum(len(group["params"]) for group in optimizer.param_groups)
        if self._count == before and self._looks & (self._looks - 1):
            return
        known, there = self._leaves.known, set[int]()
        self._unknown, self._shapes = [], []
        for parameter in held_by(optimizer):
            if (number := self._leaves.find_trained(parameter)) is not None:
                there.add(number)
                self.owners[known[number].owner] = None
            else:
                self._unknown.append(TensorRef(parameter))
                self._shapes.append(tuple(parameter.shape))
                self._unknown_idle &= parameter.grad is None
        self._references = {number: known[number].reference for number in there} | self._references
        self._outlived = {at for at in self.numbers - there if known[at].reference is not self._references[at]}
        self.numbers |= there
        if before not in {0, self._count}:
            self.stepping.keep(list(held_by(optimizer)))

    def finish(self, namespace: Mapping[str, Any]) -> None:
        """Look whether the unknown are the parameters of a module that has a name."""
        there = {id(tensor) for reference in self._unknown if (tensor := reference()) is not None}
        models = modules_in(namespace) if there else ()
        self._unknown_owner = next((name for name, model in models if there <= set(map(id, model.parameters()))), "")

    def use(self) -> OptimizerUse:
        """Return what is known of it."""
        return self.stepping.use(
            self.name, self._type_name, holds=tuple(sorted(self.numbers)), outlived=tuple(sorted(self._outlived)),
            unknown_parameters=len(self._shapes), unknown_shapes=tuple(self._shapes[:MOST_SHAPES]),
            unknown_owner=self._unknown_owner, unknown_idle=self._unknown_idle, rate=self._rate,
            zero_rate_steps=self._zero_rate_steps, graphed=self.graphed, scaled=self.scaled, again=self.again,
            repeated=len(self.restarts.again), repeated_at=self.restarts.at, repeated_of=self.restarts.of,
        )  # fmt: skip


def takes_over(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer that has not stepped has the state of one that has; some are made with a state."""
    state: dict[str, Any] = next((each for each in list(states_of(optimizer).values()) if each), {})
    step = state.get("step", 1)
    if isinstance(step, torch.Tensor):
        return devices.there.holds(step) or float(step) > 0
    return bool(state) and step != 0


class TrainedElsewhere:
    """Finds parameters that are trained by other means than the optimizers that stepped."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._first: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}  # by number, with their versions
        self._passes = 0
        self.found: set[int] = set()
        self.idle: list[IdleOptimizer] = []  # those that hold some of these; see `finish`

    def after_pass(self) -> None:
        """Look at new leaves; at all of them ever more rarely."""
        self._passes += 1
        self.look(0 if self._passes & (self._passes - 1) == 0 else len(self._first))

    def look(self, begin: int = 0) -> None:
        """Compare versions with those seen first: whoever trains a leaf, its version shows."""
        for number, known in enumerate(self._leaves.known[begin:], begin):
            reference, leaf = known.reference, known.reference()
            now = reference, -1 if leaf is None else leaf._version
            first = self._first.setdefault(number, now)
            # A model that was made anew has other tensors by the same names: nobody has trained these.
            if first[0] is not reference and known.owner and number not in self._leaves.replaced:
                self._first[number] = now
            elif first[0] is not reference or (leaf is not None and first != now):
                self.found.add(number)

    def finish(self, missing: set[int], loop: LoopNotes, names: Iterable[tuple[str, Any]]) -> None:
        """Look, once, whether optimizers that did not step hold any of these leaves, given by number."""
        self.look()
        # A weak reference of a tensor is one object, also when the tensor is gone.
        places = {id(self._leaves.known[number].reference): number for number in missing - self.found}
        alive = (one for one in (gc.get_objects() if places else ()) if is_kind(one, torch.optim.Optimizer))
        every = [(name_of(one, names), loop.cleared_by(one), references_to(one)) for one in alive]
        gone = [(name, site, given) for reference, name, site, given in loop.habits if reference() is None]
        for name, cleared, given in (*every, *gone):
            if theirs := {places[id(held)] for held in given if id(held) in places}:
                self.found |= theirs
                self.idle.append(IdleOptimizer(name=name, holds=tuple(sorted(theirs)), cleared=cleared))


# Which parameters are frozen and move all the same: an optimizer steps whatever has a ``.grad``, asked for or not.
#
# Looked for where a line was seen that freezes something, at an optimizer's first step, and at ever rarer ones. A
# gradient that is new is none of ours: a backward before the freezing brought it, or the user wrote it by hand.

MOST_FROZEN, ENOUGH = 4, 3  # parameters that are followed, steps in which each is looked at
_COMPARED = 4096  # elements of one that are compared


@dataclass(slots=True)
class _Frozen:
    """One parameter without a gradient of its own that an optimizer holds, and that has one left."""

    found: FrozenUpdate
    reference: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor] | None = None  # after the last step
    version: int = -1
    touched: int = 0  # passes that had brought it something at the last step
    before: torch.Tensor | None = None  # some of its elements before the step that runs
    same: bool = False  # whether the gradient is what it was after the last step

    def tell(self, moved: FrozenUpdate, same: bool, read: list[float]) -> None:  # noqa: FBT001  (half given beforehand)
        """Note whether a step moved it without a gradient that is new, and the largest element of that."""
        if read[0] and (same or not read[1]):
            self.found = replace(moved, steps=self.found.steps + 1, zero=not read[1])


class FrozenMoves:
    """Finds parameters that are frozen and that the steps of an optimizer move."""

    def __init__(self, passes: PassLog, namespace: Mapping[str, Any]) -> None:
        self._leaves, self._passes, self._namespace = passes.leaves, passes, namespace
        self.every: dict[int, _Frozen] = {}  # those that have a gradient left

    def before_step(self, optimizer: torch.optim.Optimizer, name: str, frozen: int | None) -> None:
        """Look before a step of an optimizer; ``frozen`` is the line that was seen to freeze something last."""
        pairs = ((held, group) for group in optimizer.param_groups for held in group["params"])
        for held, group in pairs:
            if held.requires_grad or (gradient := held.grad) is None or not held.numel():
                continue
            if any(x.layout is not torch.strided or dispatches_to_python(x) for x in (held, gradient)):
                continue
            one = self.every.get(id(held))
            if one is None or one.reference() is not held:
                if len(self.every) >= MOST_FROZEN:
                    continue
                one = self.every[id(held)] = _Frozen(FrozenUpdate(
                    parameter=self._name(held), optimizer=name, steps=0, zero=False,
                    momentum=bool(group.get("momentum") or group.get("betas")),
                    weight_decay=float(group.get("weight_decay") or 0), frozen=frozen,
                ), TensorRef(held))  # fmt: skip
            if one.found.steps < ENOUGH:
                number = self._leaves.find(held)
                touched, one.touched = one.touched, self._passes.touched(number) if number is not None else 0
                is_left = one.gradient is not None and one.gradient() is gradient
                one.same = is_left and one.version == gradient._version
                one.before = _some(held).clone() if touched == one.touched >= 0 else None

    def _name(self, held: torch.Tensor) -> str:
        if (number := self._leaves.find_trained(held)) is not None:
            return self._leaves.known[number].name
        models = modules_in(self._namespace)
        paths = (f"{name}.{path}" for name, root in models for path, one in root.named_parameters() if one is held)
        return next(paths, "") or self._leaves.called(held) or f"leaf {tuple(held.shape)}"

    def after_step(self, location: int | None, cleared: int | None) -> None:
        """Look at what moved; at the line ``cleared`` the gradients were cleared last."""
        for one in self.every.values():
            before, held, one.before = one.before, one.reference(), None
            if held is None or (gradient := held.grad) is None:
                continue
            one.gradient, one.version = TensorRef(gradient), gradient._version
            if before is not None:
                moved = replace(one.found, location=location, cleared=cleared)
                with quiet():
                    asked = (_some(held) != before).any(), gradient.detach().abs().max()
                    self._passes.late.read(asked, partial(one.tell, moved, one.same))

    def report(self) -> tuple[FrozenUpdate, ...]:
        """Return those that moved."""
        return tuple(one.found for one in list(self.every.values()) if one.found.steps)


def _some(held: torch.Tensor) -> torch.Tensor:
    flat = held.detach().reshape(-1)
    return flat[:: -(-flat.numel() // _COMPARED) or 1]


_BATCH_NORM = nn.modules.batchnorm._BatchNorm


class ModelModes:
    """In which mode a model is when an optimizer steps it: train or eval, of the modules to which that matters."""

    def __init__(self, name: str, model: nn.Module, late: DeferredWork) -> None:
        self.reference = weakref.ref(model)
        every = list(model.modules())
        dropouts = [one for one in every if isinstance(one, nn.modules.dropout._DropoutNd) and one.p > 0]
        norms = [one for one in every if isinstance(one, _BATCH_NORM) and one.running_mean is not None]
        self._modules = list(map(weakref.ref, [*dropouts, *norms]))
        self._weights = _weights_beside(model, [*dropouts, *norms])
        self.found = ModelMode(
            model=name, steps=0, eval_steps=0, longest=0, first=0,
            dropouts=len(dropouts), norms=len(norms), unused_norms=0,
        )  # fmt: skip
        self._in_a_row = 0
        counted = [norm.num_batches_tracked for norm in norms]

        def count_unused(batches: list[float]) -> None:
            self.found = replace(self.found, unused_norms=batches.count(0))

        with quiet():
            late.read([each for each in counted if each is not None and not each.is_meta], count_unused)

    def step(self, held: Iterable[torch.Tensor]) -> None:
        """Look at the modes: an optimizer made a step, which holds these parameters."""
        model, found = self.reference(), self.found
        modules = (reference() for reference in self._modules)
        trains = model is None or model.training or any(each is not None and each.training for each in modules)
        trained = {id(parameter) for parameter in held if parameter.requires_grad} if not trains else set()
        # Whether anything is trained beside a dropout or in a normalisation: frozen parts stay as they are.
        wrong = any(id(reference()) in trained for reference in self._weights) if trained else False
        self._in_a_row = self._in_a_row + 1 if wrong else 0
        self.found = replace(
            found, steps=found.steps + 1, eval_steps=found.eval_steps + wrong,
            longest=max(found.longest, self._in_a_row), first=found.first or (found.steps + 1 if wrong else 0),
        )  # fmt: skip


def _weights_beside(model: nn.Module, sensitive: list[nn.Module]) -> list[weakref.ref[torch.Tensor]]:
    """Return the parameters of these modules; of one that has none, those of the innermost one around it that has."""
    wanted, found = {id(module) for module in sensitive}, dict[int, torch.Tensor]()
    pending: list[tuple[nn.Module, nn.Module]] = [(model, model)]
    while pending:
        module, around = pending.pop()
        around = module if next(module.parameters(), None) is not None else around
        if id(module) in wanted:
            found.update((id(parameter), parameter) for parameter in around.parameters())
        pending += [(child, around) for child in module.children()]
    return [TensorRef(parameter) for parameter in found.values()]


# Whether the graph that backward goes through grows from step to step, because it reaches into the steps before.
#
# Its size alone proves nothing: sequences get longer, layers are added. What proves it are nodes in it that are older
# than the last pass, and an optimizer's step in between.

SAME_INCREMENTS = 3  # in a row, before anything is asked: four passes, each so much larger than the one before
MOST_LINES = 64


@dataclass(slots=True)
class _Line:
    size: int  # nodes of the last one
    increment: int = 0  # by how many it was larger than the one before
    streak: int = 0  # how often in a row it was so
    first: int = 0  # the size from which it grew
    mark: int = 0  # the number of the next node when the last one had ended
    steps: int = 0  # how many steps there were when it began


class Growth:
    """Follows the sizes of graphs, by the line of the backward."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._lines: dict[int | None, _Line] = {}
        self.found: dict[int | None, GraphGrowth] = {}
        self._begun = 0

    def before_pass(self, site: int | None, nodes: Sequence[Any], steps: int) -> None:
        """Look at the nodes that a backward is about to go through; ``steps`` were made so far."""
        self._begun = sequence_number()
        line = self._lines.get(site)
        if line is None:
            if len(self._lines) < MOST_LINES:
                self._lines[site] = _Line(len(nodes), steps=steps)
            return
        increment = len(nodes) - line.size
        again = increment == line.increment and steps > line.steps
        line.streak = line.streak + 1 if again and increment > 0 else 1
        line.first = line.first if again else line.size
        line.size, line.increment, line.steps = len(nodes), increment, steps
        rare = line.streak == SAME_INCREMENTS or line.streak & (line.streak - 1) == 0
        if line.streak >= SAME_INCREMENTS and increment > 0 and rare:
            self._ask(site, line, nodes)

    def after_pass(self, site: int | None) -> None:
        """Note that the backward has ended; what made nodes (``create_graph``) is meant to be gone through again."""
        line, now = self._lines.get(site), sequence_number()
        if line is not None:
            line.mark = now
            line.streak = 0 if now != self._begun else line.streak

    def _ask(self, site: int | None, line: _Line, nodes: Sequence[Any]) -> None:
        old = {node for node in nodes if not hasattr(node, "variable") and node._sequence_nr() < line.mark}
        # Edges from a node made since to one made before, by the numbers of their ends.
        bridges = [
            (node._sequence_nr(), target._sequence_nr())
            for node in (nodes if old else ())
            for target in next_nodes(node)
            if target in old and node not in old
        ]
        if bridges:
            newer, older = (self._origins.origin_of(number)[0] for number in max(bridges))
            self.found[site] = GraphGrowth(
                backward=site, passes=line.streak + 1, first_size=line.first, last_size=line.size,
                increment=line.increment, older=len(old), joined=newer, reaches=older,
            )  # fmt: skip
