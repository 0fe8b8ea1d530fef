"""Who keeps a tensor alive: a walk from everything that the person can name, breadth first, to the tensor.

The walk goes from known roots (names, ``Out``, the last error) along exact references, so that each holder has a way
to it that a person can read. ``gc.get_referrers`` would go the other way: it looks at every object of the process and
finds ones that have no name. What no way leads to is counted instead: torch knows how many tensors use a storage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import Piece, footprint_of
from tensormagic.collectors.graphs.saved_tensors import SavedHere, saved_in_graphs
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.objects.reach import Budget, Place, ReferenceWalk, roots
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import Holder, HoldersReport
from tensormagic.words import seconds_text

MOST = 24
MOST_ROOTS = 64  # graphs walked
_OWN = ""  # the name of the graph that only the tensor itself begins


BUDGET = Budget()


class _Search:
    """One walk, and what it has found."""

    def __init__(self, target: _Target, walk: ReferenceWalk) -> None:
        self.target, self.walk = target, walk
        self.graphs: dict[Any, str] = {}  # node → name of the tensor whose graph it begins
        self.found: list[Holder] = []
        self.storages: set[int] = set()  # C++ tensors known to use the storage
        self.base_found = False
        self.cut = ""

    def run(self, starts: Iterable[tuple[Place, Any]]) -> None:
        """Go through everything that some places reach; not into the tensor itself."""
        self.walk.seen[id(self.target.item)] = self.target.item
        for place, item, is_new in self.walk.meet(starts):
            if item is self.target.item:
                self.found.append(_holder(place, "tensor"))
            elif is_new and is_kind(item, torch.Tensor, np.ndarray):
                self._note(place, item)
        if self.walk.cut:
            budget = self.walk.budget
            by_number = self.walk.looked > budget.limit
            self.cut = f"after {f'{budget.limit} objects' if by_number else seconds_text(budget.seconds)}"

    def _note(self, place: Place, item: Any) -> None:
        """Take down what uses the storage."""
        if is_kind(item, torch.Tensor):
            self._note_graph(item, place)
        if self.target.shares(item):
            if is_kind(item, torch.Tensor):
                self.storages.add(item._cdata)
            self.base_found = self.base_found or (item is self.target.item._base and place.kind != "view")
            if place.kind not in {"view", "array"}:  # the base of what has a name, which is what a person can delete
                self.found.append(_holder(place, "storage", item))

    def _note_graph(self, x: torch.Tensor, place: Place) -> None:
        self.walk.names.setdefault(x._cdata, place.path)
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
        search = _Search(target, ReferenceWalk(budget, dict(names or {})))
        search.storages |= {item._cdata for item in besides if isinstance(item, torch.Tensor) and target.shares(item)}
        # A frame that was handed all names, as that which evaluates expressions is, holds nothing besides.
        search.walk.seen.update((id(each), each) for each in (namespace, *besides) if type(each) is dict)
        search.run(roots(namespace))
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
    return HoldersReport(tuple(every[:MOST]), len(every), search.walk.looked, search.cut, unreached)


def _tensors_on(x: torch.Tensor) -> int | None:
    """Return how many tensors torch counts on x's storage, the storage's own Python object left out."""
    try:
        storage = x.untyped_storage()
        return int(torch._C._storage_Use_Count(storage._cdata)) - 1
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
