"""A parameter as one look finds it, and what is remembered of it until the next: numbers, and weak references."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.session.ties import parameters_of

Place = tuple[int, int]  # the ids of an optimizer and of the model; the first is 0 for what is in no optimizer
_MADE, _FILLED = 1, 4  # in-place changes that making a parameter takes: mostly, and at most

Gradient = tuple[int, int]  # where its memory is, and its version


@dataclass(slots=True)
class Seen:
    """What is remembered of a parameter.

    Attributes:
        reference: Weak, to it.
        version: Its version counter.
        gradient: Its gradient.
        place: Which optimizer holds it, of which model.
        asks: Whether it asked for a gradient.
        trained: Whether an optimizer was seen to have changed it.
        since: How far its optimizer was when it began to stand still; None where it does not.
    """

    reference: weakref.ref[nn.Parameter]
    version: int
    gradient: Gradient | None
    place: Place
    asks: bool
    trained: bool
    since: int | None


@dataclass(slots=True)
class Pace:
    """How far an optimizer got with a model.

    Attributes:
        reference: Weak, to the optimizer.
        total: In all looks together: its steps, or where it does not count them, changes of what it moved most.
        steps: What its own state counts; 0 where it does not.
        advanced: Since the last look.
        is_new: Whether it was not there at the last look.
    """

    reference: weakref.ref[Any]
    total: int = 0
    steps: int = 0
    advanced: int = 0
    is_new: bool = True

    def advance(self, by: int, steps: int, *, is_new: bool) -> None:
        """Take down what a look has seen."""
        self.total, self.advanced, self.steps, self.is_new = self.total + by, by, steps, is_new


@dataclass(slots=True)
class Standing:
    """A parameter as it stands, and what it was at the last look."""

    name: str
    value: nn.Parameter
    state: Mapping[str, Any]
    version: int
    gradient: Gradient | None
    place: Place
    before: Seen | None

    @property
    def is_held(self) -> bool:
        """Whether an optimizer holds it."""
        return bool(self.place[0])

    @property
    def moved(self) -> int:
        """In-place changes since the last look, or since it was made."""
        return self.version - self.before.version if self.before is not None else max(self.version - _MADE, 0)

    @property
    def is_used(self) -> bool:
        """Whether its optimizer has made a step with it that left a state."""
        return bool(self.state) and ("step" not in self.state or steps_of(self.state) > 0)

    @property
    def is_trained(self) -> bool:
        """Whether an optimizer has changed it, by all that can be seen."""
        earlier = self.before is not None and self.before.trained
        return self.is_held and (earlier or self.is_used or self.moved > 0)

    def stands_still(self, pace: Pace, *, keeps_state: bool) -> bool:
        """Return whether nothing changes it: in an optimizer for want of a gradient, or in none in spite of one.

        Args:
            pace: How far its optimizer is, or of what is in none, the fastest one of the model.
            keeps_state: Whether its optimizer keeps a state of what it moves.
        """
        just_made = keeps_state and self.before is None and self.version <= _FILLED
        if not self.value.requires_grad or self.is_used or (self.moved and not just_made):
            return False
        return self.gradient is None if self.is_held else self._gets_gradients(pace)

    def _gets_gradients(self, pace: Pace) -> bool:
        """Return whether there is a gradient that came since the last look, or at one before, if no step was made."""
        known = None if self.before is None else self.before.gradient
        stood = self.before is not None and self.before.since is not None and not pace.advanced
        return self.gradient is not None and (self.gradient != known or stood)

    def since(self, pace: Pace, *, is_watching: bool) -> int:
        """Return how far its optimizer was when it began to stand still.

        Args:
            pace: How far it is now.
            is_watching: Whether there was a look before this one.
        """
        before = self.before
        if before is None:
            return pace.total - pace.advanced if is_watching else pace.total
        if before.since is not None and before.place == self.place:
            return before.since
        could_move = before.asks and (before.place == self.place or pace.is_new or not self.is_held)
        return pace.total - pace.advanced if could_move else pace.total

    def remembered(self, since: int | None) -> Seen:
        """Return what is kept of it."""
        asks = self.value.requires_grad
        return Seen(weakref.ref(self.value), self.version, self.gradient, self.place, asks, self.is_trained, since)


def standings(root: tuple[str, nn.Module], held: Mapping[int, Any], seen: Mapping[int, Seen]) -> list[Standing]:
    """Return the plain parameters of a model, each once.

    Args:
        root: The model, and its name.
        held: By ``id``, the optimizer that holds a parameter.
        seen: By ``id``, what the last look saw.
    """
    each: dict[int, Standing] = {}
    for name, p in parameters_of(root[1]):
        if type(p) is nn.Parameter and id(p) not in each and p.is_leaf and not p.is_inference():
            optimizer = held.get(id(p))
            state = {} if optimizer is None else _registry(optimizer, "state").get(p) or {}
            place = (0 if optimizer is None else id(optimizer), id(root[1]))
            each[id(p)] = Standing(f"{root[0]}.{name}", p, state, p._version, _gradient(p), place, seen.get(id(p)))
    return list(each.values())


def held_by(optimizer: Any) -> Iterable[Any]:
    """Return what an optimizer updates, read without running code of its class."""
    return [p for group in _registry(optimizer, "param_groups") or () for p in group["params"]]


def steps_of(state: Mapping[str, Any]) -> int:
    """Return the steps that an optimizer has made with a parameter, by its state; 0 where that does not count them.

    A count that lies on another device is not read: that would wait for it.
    """
    count = state.get("step", 0)
    if isinstance(count, torch.Tensor):
        return int(count.item()) if count.device.type == "cpu" and count.numel() == 1 else 0
    return int(count) if isinstance(count, int | float) else 0


def _registry(optimizer: Any, name: str) -> Any:
    return object.__getattribute__(optimizer, "__dict__").get(name) or {}


def _gradient(p: nn.Parameter) -> Gradient | None:
    gradient = p.grad
    if gradient is None:
        return None
    return (gradient.data_ptr() if gradient.layout is torch.strided else id(gradient), gradient._version)
