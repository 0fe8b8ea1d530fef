"""One walk through everything a session holds, once each: its names first, then its history, then the last error.

Optimizers come after everything else that names lead to: what they hold is called by the names of the parameters.
What is met first under a name is the person's; what is met only afterwards, nothing but the session keeps. The walk is
bounded in objects and time, so that it can be taken after every cell, and says where it was cut short.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import thread_time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tensormagic.collectors.aliasing.holders import Budget, roots
from tensormagic.collectors.objects.holdings import is_readable, mro_of, registered
from tensormagic.collectors.objects.reach import Place, Referents
from tensormagic.reports import Gap
from tensormagic.words import listed, plural, seconds_text

THOROUGH = Budget(limit=400_000, seconds=2.0)
QUICK = Budget(limit=40_000, seconds=0.05, clock=thread_time)  # other processes may be busy
_CLOCK_EVERY = 64
_LONG, _BEGINNING = 4096, 64  # a long container that begins with so many numbers or strings holds nothing else
_SEQUENCES = frozenset({list, tuple, deque, set, frozenset})
_CONTAINERS = _SEQUENCES | {dict, OrderedDict}
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


class _Kinds(dict[type, str]):
    """What sort of thing the objects of a class are; each class is judged once."""

    def __missing__(self, kind: type) -> str:
        if torch.Tensor in mro_of(kind):
            self[kind] = "tensor"
        elif nn.Module in mro_of(kind):
            self[kind] = "module"
        elif torch.optim.Optimizer in mro_of(kind):
            self[kind] = "optimizer"
        elif Dataset in mro_of(kind) or DataLoader in mro_of(kind):
            self[kind] = "data"
        elif str(vars(kind).get("__module__", "")).startswith("tensormagic."):
            self[kind] = "ours"
        else:
            self[kind] = "sequence" if kind in _SEQUENCES else "dict" if kind is dict else ""
        return self[kind]


@dataclass(slots=True)
class ObjectWalk:
    """A walk. Holds what it has met until it is dropped: an address must not be used twice meanwhile."""

    budget: Budget
    storages: dict[int, Held] = field(default_factory=dict)
    visits: list[tuple[Place, torch.Tensor]] = field(default_factory=list)  # a tensor, every time that it was met
    tensors: int = 0
    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    optimizers: list[tuple[str, torch.optim.Optimizer]] = field(default_factory=list)
    bounded: set[str] = field(default_factory=set)  # the paths of queues that have an end
    data: set[str] = field(default_factory=set)  # the paths of data sets and loaders
    names: dict[int, str] = field(default_factory=dict)  # what tensors are called, by ``tensor._cdata``
    looked: int = 0
    cut: str = ""
    names_complete: bool = False
    refused: list[str] = field(default_factory=list)  # tensors that answer nothing, since code of their class raises
    _kinds: _Kinds = field(default_factory=_Kinds)
    _seen: dict[int, Any] = field(default_factory=dict)
    _reach: Referents = field(init=False)
    _deadline: float = 0.0

    def __post_init__(self) -> None:
        """Let what is read be called by the names that are met."""
        self._reach = Referents(self.names)

    def through(self, namespace: Mapping[str, object], more: Iterable[tuple[Place, Any]] = ()) -> ObjectWalk:
        """Walk through all that a session holds; returns itself.

        Args:
            namespace: The person's names.
            more: Other places to begin at: the variables of functions that are running.
        """
        self._deadline = self.budget.clock() + self.budget.seconds
        every = [*roots(namespace), *more]
        self._walk([root for root in every if root[0].kind not in _SESSION])
        self.names_complete = not self.cut
        if self.names_complete:
            self._walk([root for root in every if root[0].kind in _SESSION])
        return self

    def below(self, values: Mapping[str, object]) -> ObjectWalk:
        """Walk through what some values hold, and nothing else; returns itself."""
        self._deadline = self.budget.clock() + self.budget.seconds
        self._walk([(Place(name, "name"), value) for name, value in values.items()])
        return self

    def _walk(self, starts: list[tuple[Place, Any]]) -> None:
        pending, optimizers = deque(starts), deque[tuple[Place, Any]]()
        while (pending or optimizers) and not self.cut:
            place, item = pending.popleft() if pending else optimizers.popleft()
            kind = self._kinds[type(item)]
            if kind == "optimizer" and pending:
                optimizers.append((place, item))
                continue
            self.looked += 1
            if kind == "tensor" and not is_readable(item):
                self.refused.append(place.path)
                continue
            is_new = id(item) not in self._seen
            if kind == "tensor":
                self._meet_tensor(place, item, is_new=is_new)
            if is_new:
                self._seen[id(item)] = item
                self._note(place, item, kind)
                pending.extend(islice(self._inside(place, item, kind), self.budget.limit))
            self._check()

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

    def _check(self) -> None:
        if self.looked > self.budget.limit:
            self.cut = f"only {self.budget.limit} objects were searched"
        elif self.looked % _CLOCK_EVERY == 0 and self.budget.clock() > self._deadline:
            self.cut = f"only {plural(self.looked, 'object')} were searched, in {seconds_text(self.budget.seconds)}"

    def _inside(self, place: Place, item: Any, kind: str) -> Iterator[tuple[Place, Any]]:
        """Yield what an object holds, less the base of a tensor: nobody is to hold that on our account."""
        if kind == "ours" or (kind in {"sequence", "dict"} and self._holds_nothing(item)):
            return
        base = item._base if kind == "tensor" else None
        try:
            for inner, value in self._reach.held(item, place):
                if (base is None or value is not base) and (type(value) not in _CONTAINERS or value):
                    yield inner, value
        except Exception:  # an odd object, or one that another thread is changing
            return

    def _holds_nothing(self, item: Any) -> bool:
        """Return whether a long container begins with nothing but numbers and strings."""
        values = item.values() if type(item) is dict else item
        return len(item) > _LONG and all(map(self._reach.is_atom, islice(values, _BEGINNING)))

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
