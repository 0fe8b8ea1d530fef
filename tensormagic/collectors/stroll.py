"""One walk through everything a session holds, once each: its names first, then its history, then the last error.

What is met first under a name is the person's; what is met only afterwards, nothing but the session keeps. The walk is
bounded in objects and time, so that it can be taken after every cell, and says where it was cut short.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.holders import Budget, roots
from tensormagic.collectors.namespace import is_kind
from tensormagic.collectors.reach import Place, Reach

THOROUGH = Budget(limit=400_000, seconds=2.0)
QUICK = Budget(limit=20_000, seconds=0.02)
_CLOCK_EVERY = 64
_LONG, _BEGINNING = 4096, 64  # a long container that begins with so many numbers or strings holds nothing else
_SEQUENCES = (list, tuple, deque, set, frozenset)
_SESSION = ("history", "traceback")


@dataclass(slots=True)
class Held:
    """A storage that was met.

    Attributes:
        tensor: The first tensor over it.
        nbytes: Its bytes.
        places: Where tensors over it were found, at most a few.
    """

    tensor: torch.Tensor
    nbytes: int
    places: list[Place] = field(default_factory=list)

    @property
    def is_of_session(self) -> bool:
        """Whether only the history or the last error leads there."""
        return all(place.kind in _SESSION for place in self.places)


@dataclass(slots=True)
class Stroll:
    """A walk. Holds what it has met until it is dropped: an address must not be used twice meanwhile."""

    budget: Budget
    storages: dict[int, Held] = field(default_factory=dict)
    visits: list[tuple[Place, torch.Tensor]] = field(default_factory=list)  # a tensor, every time that it was met
    tensors: int = 0
    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    looked: int = 0
    cut: str = ""
    names_complete: bool = False
    _seen: dict[int, Any] = field(default_factory=dict)
    _reach: Reach = field(default_factory=lambda: Reach({}))
    _deadline: float = 0.0

    def through(self, namespace: Mapping[str, object]) -> Stroll:
        """Walk through all that a session holds; returns itself."""
        self._deadline = self.budget.clock() + self.budget.seconds
        every = list(roots(namespace))
        self._walk([root for root in every if root[0].kind not in _SESSION])
        self.names_complete = not self.cut
        if self.names_complete:
            self._walk([root for root in every if root[0].kind in _SESSION])
        return self

    def _walk(self, starts: list[tuple[Place, Any]]) -> None:
        pending = deque(starts)
        while pending and not self.cut:
            place, item = pending.popleft()
            self.looked += 1
            self._meet(place, item)
            if id(item) not in self._seen:
                self._seen[id(item)] = item
                pending.extend(islice(self._inside(place, item), self.budget.limit))
            self._check()

    def _check(self) -> None:
        if self.looked > self.budget.limit:
            self.cut = f"only {self.budget.limit} objects were looked through"
        elif self.looked % _CLOCK_EVERY == 0 and self.budget.clock() > self._deadline:
            self.cut = f"only {self.looked} objects were looked through, in {self.budget.seconds * 1000:.0f} ms"

    def _inside(self, place: Place, item: Any) -> Iterator[tuple[Place, Any]]:
        if self._holds_nothing(item):
            return
        base = item._base if is_kind(item, torch.Tensor) else None
        try:
            # The base of a tensor is left alone: nobody is to hold it on our account.
            yield from (
                (inner, value) for inner, value in self._reach.held(item, place) if base is None or value is not base
            )
        except Exception:  # an odd object, or one that another thread is changing
            return

    def _holds_nothing(self, item: Any) -> bool:
        """Return whether an object is a report of ours, or a long container of numbers or strings."""
        kind = type(item)
        if kind.__module__.startswith("tensormagic."):
            return True
        if kind in _SEQUENCES and len(item) > _LONG:
            return all(map(self._reach.is_atom, islice(item, _BEGINNING)))
        return kind is dict and len(item) > _LONG and all(map(self._reach.is_atom, islice(item.values(), _BEGINNING)))

    def _meet(self, place: Place, item: Any) -> None:
        if is_kind(item, torch.Tensor):
            self._meet_tensor(place, item)
        elif id(item) not in self._seen and is_kind(item, nn.Module):
            self.modules.append((place.path, item))

    def _meet_tensor(self, place: Place, x: torch.Tensor) -> None:
        self.visits.append((place, x))
        self.tensors += id(x) not in self._seen
        try:
            storage = x.untyped_storage()
            held = self.storages.setdefault(storage._cdata, Held(x, storage.nbytes()))
        except Exception:  # it has no storage, or none that can be asked for
            return
        if len(held.places) < 8:
            held.places.append(place)

    def outermost(self) -> list[tuple[str, nn.Module]]:
        """Return the modules that lie registered in no other, by name."""
        registered = {
            id(child)
            for _, module in self.modules
            for child in dict.values(object.__getattribute__(module, "__dict__").get("_modules") or {})
        }
        return [(name, module) for name, module in self.modules if id(module) not in registered]
