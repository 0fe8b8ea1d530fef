"""What parameters did between two looks at a session: which stood still while others of their model were trained.

Autograd and the optimizers leave traces that cost nothing to read. A step changes a parameter in place, so that its
version counter moves, and most optimizers leave state for it; one that had no gradient at any step has neither. Nothing
is hooked: the counters of two looks are compared.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.assignments import CellNumber, bound, no_cell
from tensormagic.collectors.session.parameter_states import Pace, Place, Seen, Standing, held_by, standings, steps_of
from tensormagic.collectors.session.still_places import like_trained, made_at
from tensormagic.reports import StillParameters

Root = tuple[str, nn.Module]


@dataclass(slots=True)
class _Model:
    """A model as it stands at one look, with the optimizers that hold any of its parameters."""

    root: Root
    parameters: list[Standing]
    optimizers: dict[Place, tuple[str, Any]]

    @property
    def nowhere(self) -> Place:
        """The place of what is in no optimizer."""
        return 0, id(self.root[1])

    def of(self, place: Place) -> list[Standing]:
        """Return the parameters that one optimizer holds, or none does."""
        return [one for one in self.parameters if one.place == place]


@dataclass(slots=True)
class Learning:
    """Compares one look with the next. Holds parameters, models and optimizers weakly, and numbers."""

    _seen: dict[int, Seen] = field(default_factory=dict)
    _paces: dict[Place, Pace] = field(default_factory=dict)
    _is_watching: bool = False

    def look(
        self,
        roots: Iterable[Root],
        optimizers: Iterable[tuple[str, Any]],
        *,
        files: tuple[str, ...] = (),
        cell_number: CellNumber = no_cell,
    ) -> tuple[StillParameters, ...]:
        """Return what stood still, for each model by the optimizer that holds it, or by none.

        Args:
            roots: The outermost modules, by name.
            optimizers: All optimizers that there are, by name.
            files: Where to look for the line that makes an optimizer.
            cell_number: Gives the number of a cell.
        """
        self._seen = {key: seen for key, seen in self._seen.items() if seen.reference() is not None}
        self._paces = {key: pace for key, pace in self._paces.items() if pace.reference() is not None}
        with quiet():
            models = list(self._models(roots, list(optimizers)))
            found = [(model, report) for model in models for report in self._told(model)]
            self._is_watching = True
            return tuple(_located(model.root[1], report, files, cell_number) for model, report in found)

    def _models(self, roots: Iterable[Root], optimizers: list[tuple[str, Any]]) -> Iterator[_Model]:
        """Yield the models; a parameter that lies in two is the first one's."""
        held = {id(p): optimizer for _, optimizer in optimizers for p in held_by(optimizer)}
        names = {id(optimizer): name for name, optimizer in optimizers}
        taken: set[int] = set()
        for root in roots:
            parameters = [one for one in standings(root, held, self._seen) if id(one.value) not in taken]
            taken.update(id(one.value) for one in parameters)
            used = {one.place: held[id(one.value)] for one in parameters if one.is_held}
            yield _Model(root, parameters, {place: (names[place[0]], one) for place, one in used.items()})

    def _told(self, model: _Model) -> Iterator[StillParameters]:
        paces = {place: self._pace(model, place) for place in model.optimizers}
        paces[model.nowhere] = self._fastest(model, list(paces.values()))
        still = {place: self._still(model, place, pace) for place, pace in paces.items()}
        for one in model.parameters:
            self._seen[id(one.value)] = one.remembered(still[one.place].get(one.name))
        for place, pace in paces.items():
            for since in sorted(set(still[place].values())):
                names = {name for name, began in still[place].items() if began == since}
                yield from _report(model, names, paces, place, pace.total - since)

    def _pace(self, model: _Model, place: Place) -> Pace:
        """Return how far an optimizer got with a model, this look counted."""
        members = model.of(place)
        is_new = place not in self._paces
        pace = self._paces.setdefault(place, Pace(weakref.ref(model.optimizers[place][1])))
        steps, moved = max(steps_of(one.state) for one in members), max(one.moved for one in members)
        pace.advance(max(steps - pace.steps, 0) if steps else moved, steps, is_new=is_new)
        return pace

    def _fastest(self, model: _Model, paces: list[Pace]) -> Pace:
        """Return how far any optimizer got with a model: what its parameters in none are held against."""
        pace = self._paces.setdefault(model.nowhere, Pace(weakref.ref(model.root[1])))
        fastest = max(paces, key=lambda one: one.advanced, default=None)
        if fastest is not None:
            pace.advance(fastest.advanced, fastest.steps, is_new=False)
        return pace

    def _still(self, model: _Model, place: Place, pace: Pace) -> dict[str, int]:
        """Return the parameters of one place that stand still, each with the pace at which it began to."""
        members = model.of(place)
        keeps_state = any(one.is_used for one in members)
        still = [one for one in members if one.stands_still(pace, keeps_state=keeps_state)]
        return {one.name: one.since(pace, is_watching=self._is_watching) for one in still}


def _report(
    model: _Model, still: set[str], paces: dict[Place, Pace], place: Place, watched: int
) -> Iterator[StillParameters]:
    """Yield what there is to say of parameters that stand still; nothing where no other was trained meanwhile."""
    held = bool(place[0])
    trainers = [key for key in model.optimizers if any(one.is_trained for one in model.of(key))]
    if place in trainers or (trainers and not held and watched):
        trainer = place if held else max(trainers, key=lambda key: paces[key].advanced)
        names = tuple(one.name for one in model.parameters)
        trained = tuple(number for number, one in enumerate(model.parameters) if one.is_trained)
        numbers = tuple(number for number, name in enumerate(names) if name in still)
        yield StillParameters(
            owner=model.root[0],
            optimizer=model.optimizers[trainer][0],
            held=held,
            names=names,
            numels=tuple(one.value.numel() for one in model.parameters),
            still=numbers,
            trained=trained,
            alike=like_trained(model.root, names, numbers, trained),
            watched=watched,
            steps=paces[trainer].steps,
        )


def _located(
    root: nn.Module, report: StillParameters, files: tuple[str, ...], cell_number: CellNumber
) -> StillParameters:
    """Return a report with the line that makes the parameters, or of what is in no optimizer, the optimizer."""
    location = None if report.held else bound(report.optimizer, files, cell_number)
    path = [report.names[number].removeprefix(f"{report.owner}.") for number in report.still]
    return dataclasses.replace(report, location=location or made_at(root, path, cell_number))
