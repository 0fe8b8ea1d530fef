"""Who keeps a tensor alive: a walk from everything that the person can name, breadth first, to the tensor.

The walk goes from known roots (names, ``Out``, the last error) along exact references, so that each holder has a way
to it that a person can read. ``gc.get_referrers`` would go the other way: it looks at every object of the process and
finds ones that have no name. What no way leads to is counted instead: torch knows how many tensors use a storage.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import Piece, footprint_of
from tensormagic.collectors.graphs.saved_tensors import SavedHere, saved_in_graphs
from tensormagic.collectors.objects.holdings import is_readable
from tensormagic.collectors.objects.namespace import is_history, is_kind
from tensormagic.collectors.objects.reach import Place, Referents
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import Holder, HoldersReport
from tensormagic.words import seconds_text

MOST = 24
MOST_ROOTS = 64  # graphs walked
_CLOCK_EVERY = 256
_OWN = ""  # the name of the graph that only the tensor itself begins
_OWN_NAMES = {"In", "_ih", "_oh", "_dh", "exit", "quit", "get_ipython", "open"}  # of IPython's; `_oh` is `Out`


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a search may take.

    Attributes:
        limit: Objects looked at.
        seconds: Time.
        clock: Gives the time in seconds.
    """

    limit: int = 20_000
    seconds: float = 0.05
    clock: Callable[[], float] = perf_counter


BUDGET = Budget()


@dataclass(slots=True)
class _Search:
    """One walk. Holds what it has seen until it ends: an address must not be used twice meanwhile."""

    target: _Target
    budget: Budget
    deadline: float
    names: dict[int, str] = field(default_factory=dict)
    graphs: dict[Any, str] = field(default_factory=dict)  # node → name of the tensor whose graph it begins
    seen: dict[int, Any] = field(default_factory=dict)
    found: list[Holder] = field(default_factory=list)
    storages: set[int] = field(default_factory=set)  # C++ tensors known to use the storage
    base_found: bool = False
    looked: int = 0
    cut: str = ""

    def walk(self, roots: Iterator[tuple[Place, Any]]) -> None:
        """Go through everything that the roots reach."""
        reach, pending = Referents(self.names), deque(roots)
        while pending:
            place, item = pending.popleft()
            self.looked += 1
            if item is not self.target.item and is_kind(item, torch.Tensor) and not is_readable(item):
                continue
            if self._is_target(place, item) or id(item) in self.seen:
                continue
            self.seen[id(item)] = item
            if self._is_over():
                return
            pending.extend(islice(self._held(reach, place, item), self.budget.limit))

    def _held(self, reach: Referents, place: Place, item: Any) -> Iterator[tuple[Place, Any]]:
        """Yield what an object holds; one that cannot be read holds nothing that could be told."""
        try:
            yield from reach.held(item, place)
        except Exception:  # an odd object, or one that another thread is changing
            return

    def _is_over(self) -> bool:
        if self.looked > self.budget.limit:
            self.cut = f"after {self.budget.limit} objects"
        elif self.looked % _CLOCK_EVERY == 0 and self.budget.clock() > self.deadline:
            self.cut = f"after {seconds_text(self.budget.seconds)}"
        return bool(self.cut)

    def _is_target(self, place: Place, item: Any) -> bool:
        """Take down what holds the tensor or its storage; returns whether it is the tensor itself."""
        if item is self.target.item:
            self.found.append(_holder(place, "tensor"))
            return True
        if not is_kind(item, torch.Tensor, np.ndarray) or id(item) in self.seen:
            return False
        if is_kind(item, torch.Tensor):
            self._note_graph(item, place)
        if self.target.shares(item):
            if is_kind(item, torch.Tensor):
                self.storages.add(item._cdata)
            self.base_found = self.base_found or (item is self.target.item._base and place.kind != "view")
            if place.kind not in {"view", "array"}:  # the base of what has a name, which is what a person can delete
                self.found.append(_holder(place, "storage", item))
        return False

    def _note_graph(self, x: torch.Tensor, place: Place) -> None:
        self.names.setdefault(x._cdata, place.path)
        try:
            node = x.grad_fn
        except RuntimeError:  # a view that was changed in a way that autograd forbids
            return
        if node is not None:
            self.graphs.setdefault(node, place.path)


@dataclass(slots=True)
class _Target:
    """The tensor whose holders are looked for."""

    item: torch.Tensor
    identity: int | None  # of its storage; None where it has none
    pieces: tuple[Piece, ...]
    base_is_held: bool  # whether anything in Python refers to its base, besides the view that it is

    def shares(self, other: Any) -> bool:
        """Return whether another tensor or array uses the same storage."""
        try:
            if is_kind(other, torch.Tensor) and self.identity is not None:
                return bool(other.untyped_storage()._cdata == self.identity)
            if is_kind(other, np.ndarray):
                found = footprint_of(other)
                pieces = found.pieces if found is not None and found.pieces else ()
                return any(mine.memory.shift(piece.memory) is not None for mine in self.pieces for piece in pieces)
        except Exception:  # it has no storage, or none that can be asked for
            return False
        return False


def holders(
    x: torch.Tensor,
    namespace: Mapping[str, object],
    *,
    names: Mapping[int, str] | None = None,
    besides: Iterable[object] = (),
    budget: Budget = BUDGET,
) -> HoldersReport:
    """Return who keeps a tensor or its storage alive.

    Args:
        x: Any tensor; the storage of one that is not strided is not followed.
        namespace: The person's names.
        names: What tensors are called, by ``tensor._cdata``, as far as that is known.
        besides: Other tensors that are alive only because they are looked at in the same breath, and dictionaries of
            all names: no holders.
        budget: How long to search.
    """
    with quiet():
        target = _target(x)
        search = _Search(target, budget, budget.clock() + budget.seconds, dict(names or {}))
        search.storages |= {item._cdata for item in besides if isinstance(item, torch.Tensor) and target.shares(item)}
        # A frame that was handed all names, as that which evaluates expressions is, holds nothing besides.
        search.seen.update((id(each), each) for each in (namespace, *besides) if type(each) is dict)
        search.walk(roots(namespace))
        saved = _saved(x, search, target)
        return _report(x, search, saved)


def _target(x: torch.Tensor) -> _Target:
    try:
        found = footprint_of(x)
        pieces = found.pieces if found is not None else None
        return _Target(x, int(x.untyped_storage()._cdata), pieces or (), _base_is_held(x))
    except (RuntimeError, NotImplementedError):
        return _Target(x, None, (), base_is_held=False)


def _base_is_held(x: torch.Tensor) -> bool:
    """Compare how often Python refers to the base with how often it does where nobody holds the base."""
    return x._base is not None and sys.getrefcount(x._base) > _references_of_nobody()


@cache
def _references_of_nobody() -> int:
    view = torch.zeros(2)[0]
    return sys.getrefcount(view._base)


def roots(namespace: Mapping[str, object]) -> Iterator[tuple[Place, Any]]:
    """Yield what the person has named, then IPython's history, then the last error."""
    named = [
        (name, value) for name, value in list(namespace.items()) if name not in _OWN_NAMES and not name.startswith("__")
    ]
    for is_old in (False, True):
        for name, value in named:
            if is_history(name) == is_old:
                yield Place(name, "history" if is_old else "name"), value
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        yield Place(f"the last error ({type(error).__name__})", "traceback"), error


def _holder(place: Place, holds: Any, item: Any = None) -> Holder:
    nbytes = 0 if item is None else int(item.nbytes)
    return Holder(place.path, place.kind, holds, nbytes, place.location)


def _saved(x: torch.Tensor, search: _Search, target: _Target) -> list[SavedHere]:
    """Look through the graphs of all tensors met; last through what x's own graph alone keeps, which goes with x."""
    own = x.grad_fn
    roots = [(node, name) for node, name in search.graphs.items() if node is not own][:MOST_ROOTS]
    ownership = [(own, _OWN)] if own is not None else []
    found, complete = saved_in_graphs([*roots, *ownership], x, target.identity)
    if not complete or len(search.graphs) > MOST_ROOTS:
        search.cut = search.cut or "in the autograd graphs"
    return found


def _report(x: torch.Tensor, search: _Search, saved: list[SavedHere]) -> HoldersReport:
    known = search.storages | {x._cdata} | ({x._base._cdata} if x._base is not None else set())
    known |= {item.identity for item in saved if item.holds == "tensor" or item.is_original}
    detached = sum(item.holds == "storage" and not item.is_original for item in saved)
    views = {holder.path for holder in search.found if holder.kind == "view"}  # x is their base: they hold x itself
    direct = [holder for holder in dict.fromkeys(search.found) if holder.kind == "view" or holder.path not in views]
    every = direct + [Holder(item.path, "graph", item.holds, item.nbytes) for item in saved if item.root != _OWN]
    every.sort(key=lambda holder: holder.holds != "tensor")
    count = _tensors_on(x)
    unreached = None if count is None else max(count - len(known) - detached, 0)
    if unreached is not None and search.target.base_is_held and not search.base_found:
        unreached += 1
    return HoldersReport(tuple(every[:MOST]), len(every), search.looked, search.cut, unreached)


def _tensors_on(x: torch.Tensor) -> int | None:
    """Return how many tensors torch counts on x's storage, the storage's own Python object left out."""
    try:
        storage = x.untyped_storage()
        return int(torch._C._storage_Use_Count(storage._cdata)) - 1
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
