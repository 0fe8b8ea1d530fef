"""Who uses the memory of a tensor: its base, every view and other tensor on it, and what holds it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.storage_aliases import memory_of
from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.overlap import Region, array_region, overlap, overlap_elements, region_of
from tensormagic.collectors.geometry.parts import components, storage_of
from tensormagic.collectors.geometry.strides import Memory, shares_version
from tensormagic.collectors.graphs.saved_tensors import SavedHere, saved_in_graphs
from tensormagic.collectors.objects.children import BUFFERS, graph_of
from tensormagic.collectors.objects.namespace import is_kind, plain, telling
from tensormagic.collectors.objects.referents import BASE_KINDS, Budget, Place, ReferenceWalk, roots
from tensormagic.collectors.quiet import TensorRef, number, numbers, quiet, told
from tensormagic.reports import Alias, Holder, HoldersReport
from tensormagic.words import seconds_text

MOST = 64
MOST_ITEMS = 64  # tensors looked at in a tuple or list that a call returned
MOST_HOLDERS = 24
MOST_ROOTS = 64  # graphs walked
_OWN = ""  # the name of the graph that only the tensor itself begins
# How another tensor can come to share, nearest first.
RELATIONS = ("same object", "base", "view of it", "view of the same base", "same storage", "NumPy array", "buffer")


_ARRAY, _BUFFER = RELATIONS[-2:]


@dataclass(frozen=True, slots=True)
class AliasSearch:
    """What was found."""

    aliases: tuple[Alias, ...] = ()  # nearest relation first; at most `MOST`
    found: int = 0  # how many there are in truth
    owner: str = ""  # name of the NumPy array or buffer that owns the memory; empty where torch does, or none is known
    is_buffer: bool = False  # whether that is a buffer: a bytearray, a memoryview, …


def find_aliases(x: torch.Tensor, named: Iterable[tuple[str, Any]], *, name: str) -> AliasSearch:
    """Find those of the named tensors, arrays and buffers that share x's storage. Never raises for an odd one."""
    with quiet():
        memory, own, base, every = Memory.of(x), region_of(x, 0), x._base, list(named)
        names: dict[int, list[str]] = {}
        for label, item in every:
            names.setdefault(id(item), []).append(label)
        # The longer names of those other than x that have a name of their own are left out.
        kept = {key: set((telling if key == id(x) else plain)(some)) for key, some in names.items() if len(some) > 1}
        every = [(label, item) for label, item in every if id(item) not in kept or label in kept[id(item)]]
        found = [(label, item, *met) for label, item in every if (met := _meeting(x, memory, item)) is not None]
        found = [one for one in found if one[1] is not x or one[0] != name]
        nameless = base is not None and all(one[1] is not base for one in found)  # no name reaches it
        if nameless and (met := _meeting(x, memory, base)) is not None:
            found.append((f"{name}._base", base, *met))
        found.sort(key=lambda one: RELATIONS.index(one[2]))
        aliases = []
        for label, item, how, region in found[:MOST]:
            answer, shared, tensor = overlap(own, region), overlap_elements(region, own), is_kind(item, torch.Tensor)
            version = item._version if tensor and not item.is_inference() else None
            counted = shares_version(x, item) if tensor else False
            kind, of = type(item).__name__, region.elements
            aliases.append(Alias(label, how, kind, region.shape, shared, of, answer, version, counted))
    arrays = (label for label, item, how, _ in found if how == _ARRAY and np.ndarray.flags.__get__(item).owndata)
    buffers = [(is_kind(item, memoryview), label) for label, item, how, _ in found if how == _BUFFER]
    lender = min(buffers, default=(False, ""))[1]  # rather than a view of it
    return AliasSearch(tuple(aliases), len(found), owner=next(arrays, lender), is_buffer=bool(lender))


def _meeting(x: torch.Tensor, memory: Memory, item: Any) -> tuple[str, Region] | None:
    """Return how something comes to share the memory of x, and which bytes it reads of it; None where it does not."""
    its = memory_of(item)
    if its is None or (shift := memory.shift(its)) is None:
        return None
    if is_kind(item, np.ndarray):
        region = array_region(item, memory.address)
        apart = 0 in region.shape or region.stop <= 0 or region.start >= memory.nbytes
        return None if apart else (_ARRAY, region)
    if is_kind(item, *BUFFERS):
        return _BUFFER, Region(shift, (its.nbytes,), (1,), 1)
    return told(lambda: ("same object" if item is x else relation(x, item), region_of(item, shift)), None)


def relation(x: torch.Tensor, item: torch.Tensor) -> str:
    """Return how another tensor comes to share the storage of x."""
    base, other = x._base, item._base
    if base is item:
        return "base"
    if other is x:
        return "view of it"
    return "view of the same base" if base is not None and base is other else "same storage"


# Which bytes of which memory a tensor or an array reads: what two of them have to be compared by.
#
# A strided tensor is one strided region of one storage, others are made of components. Nothing is kept: a footprint
# holds numbers and a weak reference.
Piece = tuple[Memory, Region]  # a strided region of one memory


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of a tensor or an array, or of several in a tuple or list."""

    pieces: tuple[Piece, ...] | None  # one a component; None where no memory is known
    shape: tuple[int, ...]  # sizes (of several: of the first)
    stride: tuple[int, ...]  # in elements, or bytes where that is no whole number; empty for what is not strided
    dtype: str  # as torch or NumPy writes it
    device: str  # as torch writes it
    nbytes: int  # bytes of the elements
    is_array: bool  # whether it is a NumPy array
    references: tuple[weakref.ref[Any], ...]  # weak, to each of the tensors or arrays
    version: int | None = None  # the version counter; None where there is none

    @property
    def several(self) -> bool:
        """Whether it is of a tuple or list."""
        return len(self.references) > 1

    @property
    def elements(self) -> int | None:
        """How many different elements there are; None where that is too hard to count."""
        if self.pieces is None or len(self.pieces) != 1:
            return None
        pattern = self.pieces[0][1].pattern
        return 0 if pattern is None else count_distinct(pattern)


def footprint_of(item: Any) -> Footprint | None:
    """Return the footprint of a tensor, an array, or a tuple or list of them; None for anything else."""
    if is_kind(item, torch.Tensor):
        return _of_tensor(item)
    if is_kind(item, np.ndarray):
        return array_footprint(item)
    if not is_kind(item, tuple, list):
        return None
    items = list.__iter__(item) if is_kind(item, list) else tuple.__iter__(item)
    parts = [part for each in islice(items, MOST_ITEMS) if (part := footprint_of(each)) is not None]
    if not parts:
        return None
    known = [part.pieces for part in parts if part.pieces is not None]
    return replace(
        parts[0],
        pieces=tuple(chain.from_iterable(known)) if len(known) == len(parts) else None,
        nbytes=sum(part.nbytes for part in parts),
        references=tuple(chain.from_iterable(part.references for part in parts)),
    )


def _of_tensor(x: torch.Tensor) -> Footprint:
    strided = told(lambda: x.layout == torch.strided and not x.is_nested, otherwise=False)
    return Footprint(
        pieces=told(lambda: tuple((Memory.of(part), region_of(part, 0)) for part in components(x)), None),
        shape=told(lambda: numbers(x.shape), ()),
        stride=told(lambda: numbers(x.stride()), ()) if strided else (),
        dtype=str(x.dtype).removeprefix("torch."),
        device=str(x.device),
        nbytes=told(lambda: number(x.numel()) * x.element_size(), 0),
        is_array=False,
        references=(TensorRef(x),),
        version=told(lambda: None if x.is_inference() else x._version, None),
    )


def array_footprint(array: np.ndarray) -> Footprint:
    """Return the footprint of an array, read through NumPy's own attributes: nothing of a subclass is called."""
    region, strides = array_region(array), np.ndarray.strides.__get__(array)
    itemsize = region.itemsize
    whole = bool(itemsize) and all(step % itemsize == 0 for step in strides)  # elements of no field have no size
    size = 0 if 0 in region.shape else region.stop - region.start
    memory = Memory(-1 - region.start, "cpu", region.start, size)
    return Footprint(
        pieces=((memory, replace(region, start=0)),),
        shape=region.shape,
        stride=tuple(step // itemsize for step in strides) if whole else tuple(strides),
        dtype=str(np.ndarray.dtype.__get__(array)),
        device="cpu",
        nbytes=int(np.ndarray.nbytes.__get__(array)),
        is_array=True,
        references=(TensorRef(array),),
    )


# Who keeps a tensor alive: a walk from everything that the user can name, breadth first, to the tensor.
#
# The walk goes from known roots (names, ``Out``, the last error) along exact references, so that each holder has a
# way to it that a user can read; ``gc.get_referrers`` finds ones that have no name. What no way leads to is counted
# instead: torch knows how many tensors use a storage.
BUDGET = Budget()


def holders(
    x: torch.Tensor,
    namespace: Mapping[str, object],
    *,
    names: Mapping[int, str] | None = None,
    besides: Iterable[object] = (),
    budget: Budget = BUDGET,
) -> HoldersReport:
    """Return who keeps a tensor or its storage alive; ``names`` says what tensors are called, by ``tensor._cdata``.

    No holders are ``besides``: other tensors that are only looked at at the same time, and dictionaries of all names.
    """
    with quiet():
        search = _Search(x, ReferenceWalk(budget, dict(names or {})))
        search.storages |= {item._cdata for item in besides if isinstance(item, torch.Tensor) and search.shares(item)}
        # A frame that was handed all names, as that which evaluates expressions is, holds nothing besides.
        search.walk.seen.update((id(each), each) for each in (namespace, *besides) if type(each) is dict)
        search.run(roots(namespace))
        return search.report(search.saved())


class _Search:
    """One walk to a tensor, and what it has found."""

    def __init__(self, x: torch.Tensor, walk: ReferenceWalk) -> None:
        self.x, self.walk = x, walk
        self.identity: int | None = None  # of its storage; None where it has none
        self.memories: list[Memory] = []  # of its components
        self.base_is_held = False  # whether anything in Python refers to its base, besides the view that it is
        with suppress(RuntimeError, NotImplementedError):
            self.identity, pieces = int(x.untyped_storage()._cdata), _of_tensor(x).pieces or ()
            self.memories = [memory for memory, _ in pieces]
            # Of a nested tensor the base is one of its components, which has a storage of its own.
            if x._base is not None and x._base.untyped_storage()._cdata == self.identity:
                view = torch.zeros(2)[0]  # to its base nobody in Python refers
                self.base_is_held = sys.getrefcount(x._base) > sys.getrefcount(view._base)
        self.graphs: dict[Any, str] = {}  # node → name of the tensor whose graph it begins
        self.found: list[Holder] = []
        self.storages: set[int] = set()  # C++ tensors known to use the storage
        self.base_found = False
        self.cut = ""

    def shares(self, other: Any) -> bool:
        if is_kind(other, torch.Tensor):
            return self.identity is not None and storage_of(other) == self.identity
        its = memory_of(other)
        return its is not None and any(mine.shift(its) is not None for mine in self.memories)

    def run(self, starts: Iterable[tuple[Place, Any]]) -> None:
        """Go through everything that some places reach, not into the tensor itself; take down what uses the storage."""
        self.walk.seen[id(self.x)] = self.x
        for place, item, is_new in self.walk.meet(starts):
            if item is self.x:
                self.found.append(Holder(place.path, place.kind, "tensor", 0, place.location))
            if item is self.x or not is_new or not is_kind(item, torch.Tensor, np.ndarray, *BUFFERS):
                continue
            is_tensor = is_kind(item, torch.Tensor)
            if is_tensor:
                self.walk.names.setdefault(item._cdata, place.path)
                if (node := graph_of(item)) is not None:
                    self.graphs.setdefault(node, place.path)
            if self.shares(item):
                if is_tensor:
                    self.storages.add(item._cdata)
                self.base_found = self.base_found or (item is self.x._base and place.kind != "view")
                if place.kind not in BASE_KINDS:
                    its = memory_of(item) if is_kind(item, *BUFFERS) else item
                    nbytes = int(its.nbytes) if its is not None else 0
                    self.found.append(Holder(place.path, place.kind, "storage", nbytes, place.location))
        if self.walk.cut:
            budget = self.walk.budget
            by_number = self.walk.looked > budget.limit
            self.cut = f"after {f'{budget.limit} objects' if by_number else seconds_text(budget.seconds)}"

    def saved(self) -> list[SavedHere]:
        """Look through the graphs of all tensors met; last through what x's own alone keeps, which goes with x."""
        own = graph_of(self.x)
        starts = [(node, name) for node, name in self.graphs.items() if node is not own][:MOST_ROOTS]
        found, complete = saved_in_graphs([*starts, *([(own, _OWN)] if own is not None else [])], self.x, self.identity)
        if not complete or len(self.graphs) > MOST_ROOTS:
            self.cut = self.cut or "in the autograd graphs"
        return found

    def report(self, saved: list[SavedHere]) -> HoldersReport:
        """Return it all as plain data."""
        x = self.x
        known = self.storages | {x._cdata} | ({x._base._cdata} if x._base is not None else set())
        known |= {item.identity for item in saved if item.holds == "tensor"}
        detached = sum(item.holds == "storage" for item in saved)
        views = {holder.path for holder in self.found if holder.kind == "view"}  # x is their base: they hold x itself
        direct = [holder for holder in dict.fromkeys(self.found) if holder.kind == "view" or holder.path not in views]
        every = direct + [Holder(item.path, "graph", item.holds, item.nbytes) for item in saved if item.root != _OWN]
        every.sort(key=lambda holder: holder.holds != "tensor")
        unreached = None
        with suppress(AttributeError, RuntimeError, NotImplementedError):
            # How many tensors torch counts on the storage, the storage's own Python object left out.
            count = int(torch._C._storage_Use_Count(x.untyped_storage()._cdata)) - 1
            unreached = max(count - len(known) - detached, 0) + (self.base_is_held and not self.base_found)
        return HoldersReport(tuple(every[:MOST_HOLDERS]), len(every), self.walk.looked, self.cut, unreached)
