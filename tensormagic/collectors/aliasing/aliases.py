"""Who uses the memory of a tensor: its base, every view and other tensor on it, and what holds it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.overlap import Region, overlap, overlap_elements
from tensormagic.collectors.geometry.parts import components
from tensormagic.collectors.geometry.strides import Memory, shares_version
from tensormagic.collectors.graphs.saved_tensors import SavedHere, saved_in_graphs
from tensormagic.collectors.objects.children import graph_of
from tensormagic.collectors.objects.namespace import is_kind, plain, telling
from tensormagic.collectors.objects.referents import BASE_KINDS, Budget, Place, ReferenceWalk, roots
from tensormagic.collectors.quiet import number, numbers, quiet
from tensormagic.reports import Alias, Holder, HoldersReport
from tensormagic.words import seconds_text

# Who else reads or writes a tensor's memory: every name that reaches the same storage, and how much they share.

MOST = 64
# How another tensor can come to share, nearest first.
RELATIONS = ("same object", "base", "view of it", "view of the same base", "same storage", "NumPy array")


@dataclass(frozen=True, slots=True)
class AliasSearch:
    """What was found."""

    aliases: tuple[Alias, ...] = ()  # nearest relation first; at most `MOST`
    found: int = 0  # how many there are in truth
    owner: str = ""  # name of the NumPy array that owns the memory; empty where torch does, or where none is known


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Something whose memory may overlap the inspected tensor's."""

    name: str
    relation: str
    item: Any
    region: Region
    owns: bool = False


def find_aliases(x: torch.Tensor, named: Iterable[tuple[str, Any]], *, name: str) -> AliasSearch:
    """Find those of the named tensors and arrays that share x's storage. Never raises for an odd one among them."""
    with quiet():
        memory = Memory.of(x)
        described = _described(x, named)
        found = [
            candidate for label, item in described if (candidate := _candidate(x, memory, label, item)) is not None
        ]
        found = [candidate for candidate in found if candidate.item is not x or candidate.name != name]
        base = x._base
        if base is not None and not any(candidate.item is base for candidate in found):  # no name reaches it
            nameless = _candidate(x, memory, f"{name}._base", base)
            found += [nameless] if nameless is not None else []
        found.sort(key=lambda candidate: RELATIONS.index(candidate.relation))
        own = region_of(x, 0)
        aliases = tuple(_alias(x, own, candidate) for candidate in found[:MOST])
    owner = next((candidate.name for candidate in found if candidate.owns), "")
    return AliasSearch(aliases, len(found), owner=owner)


def _described(x: torch.Tensor, named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the named objects without the longer names of those other than x that have a name of their own."""
    every = list(named)
    names: dict[int, list[str]] = {}
    for name, item in every:
        names.setdefault(id(item), []).append(name)
    kept = {key: set(telling(each) if key == id(x) else plain(each)) for key, each in names.items() if len(each) > 1}
    return [(name, item) for name, item in every if id(item) not in kept or name in kept[id(item)]]


def region_of(x: torch.Tensor, shift: int) -> Region:
    """Return the bytes a strided tensor reads, its storage starting at byte ``shift``."""
    size = x.element_size()
    start = shift + number(x.storage_offset()) * size
    return Region.of(start, numbers(x.shape), tuple(step * size for step in numbers(x.stride())), size)


def array_region(array: Any, origin: int = 0) -> Region:
    """Return the bytes of an array, counted from an address; nothing of a subclass is called."""
    interface = np.ndarray.__array_interface__.__get__(array)
    strides, itemsize = np.ndarray.strides.__get__(array), np.ndarray.itemsize.__get__(array)
    return Region.of(interface["data"][0] - origin, interface["shape"], strides, itemsize)


def _candidate(x: torch.Tensor, memory: Memory, name: str, item: Any) -> _Candidate | None:
    if is_kind(item, np.ndarray):
        return _array_candidate(memory, name, item)
    try:
        shift = memory.shift(Memory.of(item))
        if shift is None or item.layout != torch.strided:
            return None
        return _Candidate(name, "same object" if item is x else relation(x, item), item, region_of(item, shift))
    except Exception:  # it has no storage, or none that can be asked for: sparse, nested, a class of the user's
        return None


def relation(x: torch.Tensor, item: torch.Tensor) -> str:
    """Return how another tensor comes to share the storage of x."""
    base, other = x._base, item._base
    if base is item:
        return "base"
    if other is x:
        return "view of it"
    return "view of the same base" if base is not None and base is other else "same storage"


def _array_candidate(memory: Memory, name: str, array: np.ndarray) -> _Candidate | None:
    """Compare addresses, which NumPy arrays and CPU storages have in common; nothing of a subclass is called."""
    if memory.device != "cpu" or not memory.address:
        return None
    region = array_region(array, memory.address)
    if 0 in region.shape or region.stop <= 0 or region.start >= memory.nbytes:
        return None
    owns = bool(np.ndarray.flags.__get__(array).owndata)
    return _Candidate(name, "NumPy array", array, region, owns)


def _alias(x: torch.Tensor, own: Region, candidate: _Candidate) -> Alias:
    item, region = candidate.item, candidate.region
    answer = overlap(own, region)
    tensor = is_kind(item, torch.Tensor)
    return Alias(
        name=candidate.name,
        relation=candidate.relation,
        kind=type(item).__name__,
        shape=region.shape,
        overlap_elements=0 if answer == "no" else overlap_elements(region, own),
        of_elements=region.elements,
        overlap=answer,
        version=item._version if tensor and not item.is_inference() else None,
        shares_version=shares_version(x, item) if tensor else False,
    )


# Which bytes of which memory a tensor or an array reads: what two of them have to be compared by.
#
# A strided tensor is one strided region of one storage. Others are made of components: a sparse tensor of its indices
# and values, a nested one of its buffer, a functorch wrapper of what it wraps. Nothing is kept: a footprint holds
# numbers and a weak reference.

MOST_ITEMS = 64  # tensors looked at in a tuple or list that a call returned


@dataclass(frozen=True, slots=True)
class Piece:
    """A strided region of one memory."""

    memory: Memory
    region: Region


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of a tensor or an array, or of several in a tuple or list."""

    pieces: tuple[Piece, ...] | None  # one a component; None where no memory is known
    shape: tuple[int, ...]  # sizes (of several: of the first)
    stride: tuple[int, ...]  # in elements; empty for what is not strided
    dtype: str  # as torch or NumPy writes it
    device: str  # as torch writes it
    nbytes: int  # bytes of the elements
    is_array: bool  # whether it is a NumPy array
    is_contiguous: bool  # whether its elements lie in reading order without gaps
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
        pattern = self.pieces[0].region.pattern
        return 0 if pattern is None else count_distinct(pattern)

    def is_same_object(self, other: Footprint) -> bool:
        """Return whether both are of one and the same object, which is still alive."""
        mine, others = self.references[0](), other.references[0]()
        return not (self.several or other.several) and mine is not None and mine is others


def footprint_of(item: Any) -> Footprint | None:
    """Return the footprint of a tensor, an array, or a tuple or list of them; None for anything else."""
    if is_kind(item, torch.Tensor):
        return _of_tensor(item)
    if is_kind(item, np.ndarray):
        return _of_array(item)
    if is_kind(item, tuple, list):
        items = list.__iter__(item) if is_kind(item, list) else tuple.__iter__(item)
        found = [part for part, _ in zip((footprint_of(each) for each in items), range(MOST_ITEMS), strict=False)]
        return _together([part for part in found if part is not None])
    return None


def _together(parts: list[Footprint]) -> Footprint | None:
    if not parts:
        return None
    first = parts[0]
    known = [part.pieces for part in parts if part.pieces is not None]
    pieces = tuple(piece for some in known for piece in some) if len(known) == len(parts) else None
    return Footprint(
        pieces, first.shape, first.stride, first.dtype, first.device, sum(part.nbytes for part in parts),
        first.is_array, first.is_contiguous, tuple(each for part in parts for each in part.references), first.version,
    )  # fmt: skip


def _of_tensor(x: torch.Tensor) -> Footprint:
    strided = _otherwise(lambda: x.layout == torch.strided and not x.is_nested, otherwise=False)
    return Footprint(
        pieces=_otherwise(lambda: tuple(Piece(Memory.of(part), region_of(part, 0)) for part in components(x)), None),
        shape=_otherwise(lambda: numbers(x.shape), ()),
        stride=_otherwise(lambda: numbers(x.stride()), ()) if strided else (),
        dtype=str(x.dtype).removeprefix("torch."),
        device=str(x.device),
        nbytes=_otherwise(lambda: number(x.numel()) * x.element_size(), 0),
        is_array=False,
        is_contiguous=strided and _otherwise(x.is_contiguous, otherwise=False),
        references=(weakref.ref(x),),
        version=_otherwise(lambda: None if x.is_inference() else x._version, None),
    )


def _otherwise(look: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return look()
    except Exception:  # an odd tensor may raise anything from any attribute
        return otherwise


def _of_array(array: np.ndarray) -> Footprint:
    """Read an array through NumPy's own attributes: nothing of a subclass is called."""
    region, strides = array_region(array), np.ndarray.strides.__get__(array)
    itemsize = region.itemsize
    size = 0 if 0 in region.shape else region.stop - region.start
    memory = Memory(-1 - region.start, "cpu", region.start, size)
    return Footprint(
        pieces=(Piece(memory, replace(region, start=0)),),
        shape=region.shape,
        stride=tuple(step // itemsize for step in strides) if itemsize else (),
        dtype=str(np.ndarray.dtype.__get__(array)),
        device="cpu",
        nbytes=int(np.ndarray.nbytes.__get__(array)),
        is_array=True,
        is_contiguous=bool(np.ndarray.flags.__get__(array).c_contiguous),
        references=(weakref.ref(array),),
    )


# Who keeps a tensor alive: a walk from everything that the user can name, breadth first, to the tensor.
#
# The walk goes from known roots (names, ``Out``, the last error) along exact references, so that each holder has a
# way to it that a user can read. ``gc.get_referrers`` would go the other way: it looks at every object of the
# process and finds ones that have no name. What no way leads to is counted instead: torch knows how many tensors use
# a storage.

MOST_HOLDERS = 24
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
            self.walk.names.setdefault(item._cdata, place.path)
            if (node := graph_of(item)) is not None:
                self.graphs.setdefault(node, place.path)
        if self.target.shares(item):
            if is_kind(item, torch.Tensor):
                self.storages.add(item._cdata)
            self.base_found = self.base_found or (item is self.target.item._base and place.kind != "view")
            if place.kind not in BASE_KINDS:
                self.found.append(_holder(place, "storage", item))


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
        namespace: The user's names.
        names: What tensors are called, by ``tensor._cdata``, as far as that is known.
        besides: Other tensors that are alive only because they are looked at at the same time, and dictionaries of
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
        identity = int(x.untyped_storage()._cdata)
        return _Target(x, identity, pieces or (), _base_is_held(x, identity))
    except (RuntimeError, NotImplementedError):
        return _Target(x, None, (), base_is_held=False)


def _base_is_held(x: torch.Tensor, identity: int) -> bool:
    if x._base is None or x._base.untyped_storage()._cdata != identity:
        return False  # of a nested tensor one of its components, which has a storage of its own
    # Python refers to the base more often than it does where nobody holds the base.
    return sys.getrefcount(x._base) > _references_of_nobody()


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
    return HoldersReport(tuple(every[:MOST_HOLDERS]), len(every), search.walk.looked, search.cut, unreached)


def _tensors_on(x: torch.Tensor) -> int | None:
    """Return how many tensors torch counts on x's storage, the storage's own Python object left out."""
    try:
        storage = x.untyped_storage()
        return int(torch._C._storage_Use_Count(storage._cdata)) - 1
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
