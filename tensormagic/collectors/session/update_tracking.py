"""What parameters did between two looks at a session: which stood still while others of their model moved."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import nn

from tensormagic.collectors.objects.children import held_by, registered, states_of, updated_by
from tensormagic.collectors.objects.identity import Marks
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.quiet import TensorRef, quiet
from tensormagic.collectors.session.session_walk import ChangingLines, assigned
from tensormagic.collectors.where.source import CellNumber, no_cell
from tensormagic.reports import Location, UnchangedParameters


def like_trained(
    root: tuple[str, nn.Module], names: Sequence[str], still: Iterable[int], trained: Iterable[int]
) -> tuple[int, ...]:
    """Return the parameters that lie in a ModuleList or ModuleDict beside modules of the same make that are trained.

    Which of such modules is used may depend on the data: experts, adapters of a language, layers that are dropped.

    ``names`` are those of all its parameters, with the name of the model; the others are numbers among these.
    """
    owner, model = root

    def pattern(number: int) -> tuple[str, ...]:
        """Return a path with a star for each place in a list or dictionary of modules."""
        steps = _steps(model, names[number].removeprefix(f"{owner}.").split("."))
        return tuple("*" if is_kind(at, nn.ModuleList, nn.ModuleDict) else key for at, key in steps)

    used = set(map(pattern, trained))
    return tuple(number for number in still if "*" in pattern(number) and pattern(number) in used)


def _steps(root: nn.Module, path: Iterable[str]) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules on the way to a parameter, each with the attribute that is taken of it."""
    module: nn.Module | None = root
    for key in path:
        if module is None:
            return
        yield module, key
        module = registered(module, "_modules").get(key)


def made_at(root: nn.Module, paths: Sequence[str], cell_number: CellNumber) -> Location | None:
    """Return the line of a user's class that makes what these parameters have in common, from outside inwards."""
    every = zip(*(path.split(".") for path in paths), strict=False)
    common = [keys[0] for keys in takewhile(lambda keys: len(set(keys)) == 1, every)]
    lines = [line for module, key in _steps(root, common) for line in assigned(type(module), key, cell_number)[:1]]
    return lines[-1] if lines else None


# Nothing is hooked: the counters of two looks are compared. A step changes a parameter in place, so that its version
# counter moves, and most optimizers leave state for it; one that had no gradient at any step has neither.

Root = tuple[str, nn.Module]
Place = tuple[int, int]  # the ids of an optimizer and of the model; the first is 0 for what is in no optimizer
MOST = 1_000_000  # parameters that are remembered
_MADE, _FILLED = 1, 4  # in-place changes that making a parameter takes: mostly, and at most


@dataclass(slots=True)
class ParameterMemory:
    """What is remembered of a parameter from one look to the next."""

    version: int  # its version counter
    # A weak reference to its gradient, and that one's version: the same while it lives unchanged.
    gradient: tuple[weakref.ref[torch.Tensor], int] | None
    place: Place  # which optimizer holds it, of which model
    asks: bool  # whether it asks for a gradient
    trained: bool  # whether an optimizer has changed it, by all that can be seen
    since: int | None = None  # how far its optimizer was when it began to stand still; None where it does not


@dataclass(slots=True)
class Progress:
    """How far an optimizer got with a model."""

    reference: weakref.ref[Any]  # weak, to the optimizer
    total: int = 0  # in all looks together: its steps, or where it does not count them, changes of what it moved most
    steps: int = 0  # what its own state counts; 0 where it does not
    advanced: int = 0  # since the last look
    is_new: bool = True  # whether it was not there at the last look


class Parameter(NamedTuple):
    """A parameter as it is, and what it was at the last look."""

    name: str
    value: nn.Parameter
    now: ParameterMemory
    before: ParameterMemory | None
    moved: int  # in-place changes since the last look, or since it was made
    steps: int  # that its optimizer has made with it, as far as its state counts them
    is_used: bool  # whether its optimizer has made a step with it that left a state

    def stands_still(self, progress: Progress, *, keeps_state: bool) -> bool:
        """Return whether nothing changes it: in an optimizer for want of a gradient, or in none in spite of one.

        The progress is that of its optimizer; of what is in none, the fastest one of the model.
        """
        now, before = self.now, self.before
        just_made = keeps_state and before is None and now.version <= _FILLED
        if not now.asks or self.is_used or (self.moved and not just_made):
            return False
        if now.place[0] or now.gradient is None:
            return bool(now.place[0]) and now.gradient is None
        if before is None or before.gradient is None:
            return True  # it came since the last look
        if before.gradient[0]() is not self.value.grad or before.gradient[1] != now.gradient[1]:
            return True
        return before.since is not None and not progress.advanced  # or at one before, and no step was made

    def since(self, progress: Progress, *, is_watching: bool) -> int:
        """Return how far its optimizer was when it began to stand still."""
        before, could_move = self.before, is_watching
        if before is not None:
            stayed = before.place == self.now.place
            if before.since is not None and stayed:
                return before.since
            could_move = before.asks and (stayed or progress.is_new or not self.now.place[0])
        return progress.total - progress.advanced if could_move else progress.total


def _parameter(
    name: str, p: nn.Parameter, optimizer: Any, model: nn.Module, before: ParameterMemory | None
) -> Parameter:
    state = {} if optimizer is None else states_of(optimizer).get(p) or {}
    steps, moved = _steps_counted(state), p._version - (_MADE if before is None else before.version)
    is_used = bool(state) and ("step" not in state or steps > 0)
    moved = max(moved, 0) if before is None else moved
    trained = optimizer is not None and (is_used or moved > 0 or (before is not None and before.trained))
    gradient = None if p.grad is None else (TensorRef(p.grad), p.grad._version)
    place = (0 if optimizer is None else id(optimizer), id(model))
    return Parameter(
        name, p, ParameterMemory(p._version, gradient, place, p.requires_grad, trained), before, moved, steps, is_used
    )  # fmt: skip


def _steps_counted(state: Mapping[str, Any]) -> int:
    """Return the steps that an optimizer has made with a parameter, by its state; 0 where that does not count them.

    A count that lies on another device is not read: that would wait for it.
    """
    count = state.get("step", 0)
    if isinstance(count, torch.Tensor):
        return int(count.item()) if count.device.type == "cpu" and count.numel() == 1 else 0
    return int(count) if isinstance(count, int | float) else 0


class _Model(NamedTuple):
    """A model as it is at one look, with the optimizers that hold any of its parameters."""

    root: Root
    parameters: list[Parameter]
    optimizers: dict[Place, tuple[str, Any]]

    def of(self, place: Place) -> list[Parameter]:
        """Return the parameters that one optimizer holds, or none does."""
        return [one for one in self.parameters if one.now.place == place]


@dataclass(slots=True)
class UpdateTracking:
    """Compares one look with the next. Holds parameters, models and optimizers weakly, and numbers."""

    _seen: Marks = field(
        default_factory=lambda: Marks(MOST)
    )  # of each parameter what is remembered, a `ParameterMemory`
    _progress_of: dict[Place, Progress] = field(default_factory=dict)
    _is_watching: bool = False

    def look(
        self,
        roots: Iterable[Root],
        optimizers: Iterable[tuple[str, Any]],
        *,
        lines: ChangingLines,
        cell_number: CellNumber = no_cell,
    ) -> tuple[UnchangedParameters, ...]:
        """Return what stood still, for each model by the optimizer that holds it, or by none."""
        for key in [key for key, progress in self._progress_of.items() if progress.reference() is None]:
            del self._progress_of[key]
        located = []
        with quiet():
            models = list(self._models(roots, list(optimizers)))
            found = [(model, report) for model in models for report in self._described(model)]
            for model, report in found:
                # By the line that makes the parameters; of what is in no optimizer, by that.
                where = None if report.held else lines.bound(report.optimizer)
                paths = [report.names[number].removeprefix(f"{report.owner}.") for number in report.unchanged]
                where = where or made_at(model.root[1], paths, cell_number)
                located.append(dataclasses.replace(report, location=where))
        self._is_watching = True
        return tuple(located)

    def _models(self, roots: Iterable[Root], optimizers: list[tuple[str, Any]]) -> Iterator[_Model]:
        held = {id(p): (name, optimizer) for name, optimizer in optimizers for p in updated_by(optimizer)}
        taken: set[int] = set()
        for root in roots:
            model = _Model(root, [], {})
            for path, p in held_by(root[1]):
                if type(p) is nn.Parameter and id(p) not in taken and p.is_leaf and not p.is_inference():
                    taken.add(id(p))
                    optimizer = held.get(id(p))
                    one = _parameter(f"{root[0]}.{path}", p, optimizer and optimizer[1], root[1], self._seen.of(p))
                    model.parameters.append(one)
                    if optimizer is not None:
                        model.optimizers[one.now.place] = optimizer
            yield model

    def _described(self, model: _Model) -> Iterator[UnchangedParameters]:
        progress_of = {place: self._progress(model, place) for place in model.optimizers}
        # What its parameters in no optimizer are compared with: how far any got with it.
        nowhere = 0, id(model.root[1])
        fastest = max(progress_of.values(), key=lambda one: one.advanced, default=None)
        progress = progress_of[nowhere] = self._progress_of.setdefault(nowhere, Progress(weakref.ref(model.root[1])))
        if fastest is not None:
            progress.total, progress.is_new = progress.total + fastest.advanced, False
            progress.advanced, progress.steps = fastest.advanced, fastest.steps
        still: dict[Place, dict[str, int]] = {}  # by place, with the progress at which it began to stand still
        for place, progress in progress_of.items():
            members = model.of(place)
            keeps_state = any(one.is_used for one in members)
            resting = (one for one in members if one.stands_still(progress, keeps_state=keeps_state))
            still[place] = {one.name: one.since(progress, is_watching=self._is_watching) for one in resting}
        for one in model.parameters:
            one.now.since = still[one.now.place].get(one.name)
            self._seen.put(one.value, one.now)
        for place, progress in progress_of.items():
            for since in sorted(set(still[place].values())):
                names = {name for name, began in still[place].items() if began == since}
                yield from _report(model, names, progress_of, place, progress.total - since)

    def _progress(self, model: _Model, place: Place) -> Progress:
        """Return how far an optimizer got with a model, this look counted."""
        members, is_new = model.of(place), place not in self._progress_of
        progress = self._progress_of.setdefault(place, Progress(weakref.ref(model.optimizers[place][1])))
        steps, moved = max(one.steps for one in members), max(one.moved for one in members)
        progress.advanced = max(steps - progress.steps, 0) if steps else moved
        progress.total, progress.steps, progress.is_new = progress.total + progress.advanced, steps, is_new
        return progress


def _report(
    model: _Model, still: set[str], progress_of: dict[Place, Progress], place: Place, watched: int
) -> Iterator[UnchangedParameters]:
    """Yield what there is to say of parameters that stand still; nothing where no other was trained meanwhile."""
    held = bool(place[0])
    trainers = [key for key in model.optimizers if any(one.now.trained for one in model.of(key))]
    if place in trainers or (trainers and not held and watched):
        trainer = place if held else max(trainers, key=lambda key: progress_of[key].advanced)
        names = tuple(one.name for one in model.parameters)
        trained = tuple(number for number, one in enumerate(model.parameters) if one.now.trained)
        numbers = tuple(number for number, name in enumerate(names) if name in still)
        yield UnchangedParameters(
            owner=model.root[0], optimizer=model.optimizers[trainer][0], held=held, names=names,
            numels=tuple(one.value.numel() for one in model.parameters), unchanged=numbers, trained=trained,
            alike=like_trained(model.root, names, numbers, trained), watched=watched, steps=progress_of[trainer].steps,
        )  # fmt: skip
