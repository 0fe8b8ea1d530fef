"""One walk through everything a session holds, once each: its names first, then its history, then the last error.

Optimizers come after everything else that names lead to: what they hold is called by the names of the parameters.
What is met first under a name is the person's; what is met only afterwards, nothing but the session keeps. The walk is
bounded in objects and time, so that it can be taken after every cell, and says where it was cut short.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import registered
from tensormagic.collectors.objects.reach import Budget, Place, ReferenceWalk, roots
from tensormagic.reports import Gap
from tensormagic.words import listed

THOROUGH = Budget(limit=400_000, seconds=2.0)
QUICK = Budget(limit=40_000, seconds=0.05, clock=thread_time)  # other processes may be busy
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


def memory_of(storage: torch.UntypedStorage) -> int:
    """Return the bytes of memory that a storage takes: none on the meta device, where those of fake tensors lie too."""
    return 0 if storage.device.type == "meta" else storage.nbytes()


@dataclass(slots=True)
class ObjectWalk(ReferenceWalk):
    """A walk, and what it has met."""

    with_bases: bool = False
    storages: dict[int, Held] = field(default_factory=dict)
    visits: list[tuple[Place, torch.Tensor]] = field(default_factory=list)  # a tensor, every time that it was met
    tensors: int = 0
    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    optimizers: list[tuple[str, torch.optim.Optimizer]] = field(default_factory=list)
    bounded: set[str] = field(default_factory=set)  # the paths of queues that have an end
    data: set[str] = field(default_factory=set)  # the paths of data sets and loaders
    names_complete: bool = False

    def through(self, namespace: Mapping[str, object], more: Iterable[tuple[Place, Any]] = ()) -> ObjectWalk:
        """Walk through all that a session holds; returns itself.

        Args:
            namespace: The person's names.
            more: Other places to begin at: the variables of functions that are running.
        """
        every = [*roots(namespace), *more]
        self._walk([root for root in every if root[0].kind not in _SESSION])
        self.names_complete = not self.cut
        if self.names_complete:
            self._walk([root for root in every if root[0].kind in _SESSION])
        return self

    def below(self, values: Mapping[str, object]) -> ObjectWalk:
        """Walk through what some values hold, and nothing else; returns itself."""
        self._walk([(Place(name, "name"), value) for name, value in values.items()])
        return self

    def _walk(self, starts: Iterable[tuple[Place, Any]]) -> None:
        for place, item, is_new in self.meet(starts):
            kind = self.kinds[type(item)]
            if kind == "tensor":
                self._meet_tensor(place, item, is_new=is_new)
            elif is_new:
                self._note(place, item, kind)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What was not looked through, and why."""
        refused = f"{listed(list(dict.fromkeys(self.refused)))} cannot be read: their class raises an error"
        reasons = (self.cut, refused if self.refused else "")
        return tuple(Gap("names", reason) for reason in reasons if reason)

    def _note(self, place: Place, item: Any, kind: str) -> None:
        if kind == "module":
            self.modules.append((place.path, item))
        elif kind == "optimizer":
            self.optimizers.append((place.path, item))
        elif kind == "data":
            self.data.add(place.path)
        elif type(item) is deque and item.maxlen is not None:
            self.bounded.add(place.path)

    def _meet_tensor(self, place: Place, x: torch.Tensor, *, is_new: bool) -> None:
        self.visits.append((place, x))
        self.names.setdefault(x._cdata, place.path)
        self.tensors += is_new
        try:
            storage = x.untyped_storage()
            held = self.storages.setdefault(storage._cdata, Held(x, memory_of(storage)))
        except Exception:  # it has no storage, or none that can be asked for
            return
        if len(held.places) < 8:
            held.places.append(place)

    def outermost(self) -> list[tuple[str, nn.Module]]:
        """Return the modules that lie registered in no other, by name."""
        inner = {id(child) for _, module in self.modules for child in registered(module, "_modules").values()}
        return [(name, module) for name, module in self.modules if id(module) not in inner]
