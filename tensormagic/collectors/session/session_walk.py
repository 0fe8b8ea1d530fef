"""The walk over what a session holds, and the graphs that are stored in it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.graphs.history import next_nodes
from tensormagic.collectors.graphs.saved_tensors import live_saved
from tensormagic.collectors.graphs.structure import is_accumulate
from tensormagic.collectors.objects.holdings import registered
from tensormagic.collectors.objects.reach import Budget, Place, ReferenceWalk, roots
from tensormagic.reports import Gap, GraphForm, Location, StoredGraph
from tensormagic.words import listed

# One walk through everything a session holds, once each: its names first, then its history, then the last error.
#
# Optimizers come after everything else that names lead to: what they hold is called by the names of the parameters.
# What is met first under a name is the person's; what is met only afterwards, nothing but the session keeps. The walk
# is bounded in objects and time, so that it can be taken after every cell, and says where it was cut short.

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


# Autograd graphs that live on because results are stored: losses in a list, outputs of a loop, a loss that is summed.
#
# A graph that nobody stores dies with its step. One that is stored lives: its nodes always, and where no backward
# went through it, every activation too. How much that is is counted by storages, each once.

FEWEST = 4  # graphs that have nothing but leaves in common
MOST_NODES = 5_000  # walked for one container
MOST_LOOKED = 8  # containers, the fullest first
MOST = 16
_ITEM = re.compile(r"\[[^\[\]]*\]$")
_PLACES = {"name", "item", "attribute", "module"}
_ADD = "AddBackward0"
_SCALED = ("DivBackward0", "MulBackward0")  # what a sum may be divided by in the end

WhereGrown = Callable[[str], Location | None]
_Found = tuple[StoredGraph, "frozenset[int]"]


@dataclass(slots=True)
class _Walked:
    """What a walk through several graphs has met; ``own`` are storages that live without them."""

    own: set[int]
    most: int = MOST_NODES
    seen: set[Any] = field(default_factory=set)
    graphs: int = 0
    saved: int = 0
    freed: int = 0
    sizes: dict[int, int] = field(default_factory=dict)

    def anew(self) -> _Walked:
        """Return one that has met nothing yet, with the same bounds."""
        return _Walked(self.own, self.most)

    def add(self, root: Any) -> frozenset[Any]:
        """Walk one graph; returns its leaves. It counts where it has nothing but leaves in common with those before."""
        pending, apart = [root], True
        mine: set[Any] = set()
        leaves: set[Any] = set()
        while pending and len(self.seen) + len(mine) < self.most:
            node = pending.pop()
            if is_accumulate(node):
                leaves.add(node)
            elif node in self.seen:
                apart = False
            elif node not in mine:
                mine.add(node)
                self._read(node)
                pending += next_nodes(node)
        self.seen |= mine
        self.graphs += apart and bool(mine)
        return frozenset(leaves)

    def _read(self, node: Any) -> None:
        for state, tensor in live_saved(node):
            self.freed += state == "freed"
            self.saved += tensor is not None
            try:
                storage = None if tensor is None else tensor.untyped_storage()
            except (RuntimeError, NotImplementedError):
                continue
            if storage is not None and storage._cdata not in self.own:
                self.sizes[storage._cdata] = memory_of(storage)

    def described(self, name: str, form: GraphForm, items: list[torch.Tensor], where: Location | None) -> StoredGraph:
        """Return what was met as a report's part."""
        nbytes = sum(self.sizes.values())
        return StoredGraph(
            name=name, form=form, items=len(items), graphs=self.graphs, nodes=len(self.seen), saved=self.saved,
            nbytes=nbytes, scalars=all(item.numel() == 1 for item in items), freed=bool(self.freed) and not nbytes,
            complete=len(self.seen) < self.most, location=where,
        )  # fmt: skip


def stored_graphs(
    tensors: Sequence[tuple[Place, torch.Tensor]], own: Iterable[int], where: WhereGrown
) -> tuple[StoredGraph, ...]:
    """Return the containers and sums that keep several graphs alive, the largest first.

    Args:
        tensors: What a walk has met, and where.
        own: Storages that names lead to.
        where: Gives the line that makes something grow, by its name.
    """
    return tuple(graph for graph, _ in graphs_and_storages(tensors, own, where))


def graphs_and_storages(
    tensors: Sequence[tuple[Place, torch.Tensor]], own: Iterable[int], where: WhereGrown, most: int = MOST_NODES
) -> list[tuple[StoredGraph, frozenset[int]]]:
    """Return the same, each with the identities of the storages that its graphs keep.

    Args:
        tensors: What a walk has met, and where.
        own: Storages that names lead to.
        where: Gives the line that makes something grow, by its name.
        most: Nodes walked for one container.
    """
    known = _Walked(set(own), most)
    tracked = [(place, x) for place, x in tensors if place.kind in _PLACES and is_tracked(x)]
    found = [*_in_containers(tracked, known, where), *_in_sums(tracked, known, where)]
    return sorted(found, key=lambda pair: -pair[0].nbytes)[:MOST]


def is_tracked(x: torch.Tensor) -> bool:
    """Return whether a tensor has a graph, as far as it says."""
    try:
        return x.grad_fn is not None
    except RuntimeError:  # a view that was changed in a way that autograd forbids
        return False


def _in_containers(tracked: list[tuple[Place, torch.Tensor]], known: _Walked, where: WhereGrown) -> Iterator[_Found]:
    groups: dict[str, dict[int, torch.Tensor]] = {}
    for place, x in tracked:
        if place.kind == "item":
            groups.setdefault(_ITEM.sub("", place.path), {})[id(x)] = x
    for name, items in ((name, list(group.values())) for name, group in groups.items()):
        if len(items) >= FEWEST:
            walked = known.anew()
            for item in items:
                walked.add(item.grad_fn)
            if walked.graphs >= FEWEST:
                yield walked.described(name, "items", items, where(name)), frozenset(walked.sizes)


def _in_sums(tracked: list[tuple[Place, torch.Tensor]], known: _Walked, where: WhereGrown) -> Iterator[_Found]:
    described: set[int] = set()
    for place, x in tracked:
        listed = place.kind == "item" and not place.path.endswith("']")  # those in a list are looked at together
        if listed or id(x) in described:
            continue
        described.add(id(x))
        terms = _terms(x.grad_fn) if x.numel() == 1 else []
        if len(terms) < FEWEST:
            continue
        walked = known.anew()
        leaves = {walked.add(term) for term in terms}
        if walked.graphs == len(terms) and len(leaves) == 1 and all(leaves):
            yield walked.described(place.path, "sum", [x], where(place.path)), frozenset(walked.sizes)


def _terms(node: Any) -> list[Any]:
    """Return the nodes that a sum was added up from, the latest first: ``total = total + loss``, again and again."""
    while node is not None and node.name() in _SCALED:
        inputs = next_nodes(node)
        node = inputs[0] if len(inputs) == 1 else None
    terms: list[Any] = []
    while node is not None and node.name() == _ADD and len(terms) < MOST_NODES:
        first, *others = next_nodes(node) or [None]
        terms += others
        if not others and first is not None and first.name() != _ADD:
            terms.append(first)  # the first one, added to a number
        node = first
    return terms + ([node] if node is not None and terms and node.name() != _ADD and node not in terms else [])
