"""Memory that grows with every iteration, found in what a run left alive, and who keeps it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import median
from typing import Any, NamedTuple

from tensormagic.collectors.geometry.parts import storage_of
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.saved_tensors import live_saved
from tensormagic.collectors.graphs.structure import is_accumulate
from tensormagic.collectors.objects.children import graph_of
from tensormagic.collectors.objects.namespace import nearest
from tensormagic.collectors.objects.referents import Place
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.session_walk import (
    ITEM,
    THOROUGH,
    ChangingLines,
    ObjectWalk,
    graphs_and_storages,
    sources,
)
from tensormagic.collectors.where.source import CellNumber, no_cell
from tensormagic.reports import Leak, Location
from tensormagic.reports.memory import Category
from tensormagic.reports.memory_run import LeakForm

# A leak repeats: iteration for iteration about as much is made and stays, until the end. Where a backward runs
# between, that is the pace of a training loop, and nothing but its allocations is needed to see it. Elsewhere nothing
# tells an iteration from the next layer of a network, and only what the holder shows counts: items that a line of the
# user's own puts in one by one, results that each have a graph of their own.

FEWEST = 5  # iterations
FEWEST_GRAPHS = 4  # each of its own
_ALIKE = 3 / 4  # of the iterations add between half and twice the usual
_BEGINS = 1 / 4  # of the backwards since its line first ran have passed when the first one stays
_LASTS = 3 / 4  # of the backwards have passed when the last one adds something
MEANT: frozenset[Category] = frozenset({"parameter", "gradient", "optimizer state", "buffer"})
_BRIEF: frozenset[Category] = MEANT | {"saved for backward"}

Allocated = Sequence[tuple[int, int]]


class StorageOwner(NamedTuple):
    """Who keeps a storage."""

    name: str  # ``"losses"``: the container, the sum, or the tensor itself
    form: LeakForm = "items"  # as in `Leak`
    item: str = ""  # which item of the container it is
    location: Location | None = None  # the line that puts more into it, where one is found
    graph: bool = False  # whether an autograd graph of what has this name keeps the storage
    results: int = 0  # how many results with graphs of their own it stores; 0 for what is not a graph
    scalars: bool = False  # whether these are single numbers
    ends: bool = False  # whether it cannot grow for ever: one tensor, a queue with an end, what the source empties


_NOBODY = StorageOwner("")


@dataclass(frozen=True, slots=True)
class SurvivingStorage:
    """A storage that a run made and left alive."""

    line: int  # index of the line that allocated it; -1 where it is not known
    nbytes: int  # its bytes
    allocated_at: int  # number of the operation that allocated it
    device: str = "cpu"  # where
    category: Category = "other"  # what it is for
    hold: StorageOwner | None = None  # who keeps it; None where nothing that has a name does
    freed_at: int | None = None  # number of the operation behind which it was freed; None while it is alive


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What else is known of a run."""

    lines: Sequence[Location]  # The lines, by index.
    backwards: Sequence[int] = ()  # Numbers of the operations at which a backward began, ascending.
    # Operation and bytes of every tensor that a line joined of others (``torch.cat``), by line.
    joins: Mapping[int, Allocated] | None = None
    first: Mapping[int, int] | None = None  # Number of the first operation at which each line allocated something.
    complete: bool = True  # Whether everything that has a name was looked at; else what has no holder shows nothing.


def find_leaks(stays: Iterable[SurvivingStorage], facts: RunFacts) -> tuple[Leak, ...]:
    """Return what grows with every iteration, the largest first."""
    found = (_leak(group, facts) for group in _grouped(stays, MEANT))
    return tuple(sorted((leak for leak in found if leak is not None), key=lambda leak: -leak.kept))


def _grouped(stays: Iterable[SurvivingStorage], meant: Collection[Category]) -> Collection[list[SurvivingStorage]]:
    """Return what has one holder, or was allocated by one line, and is not meant to stay."""
    groups: dict[tuple[str, str | int], list[SurvivingStorage]] = defaultdict(list)
    for stay in stays:
        if stay.category not in meant and stay.line >= 0 and stay.nbytes:
            groups[stay.device, stay.hold.name if stay.hold is not None else stay.line].append(stay)
    return groups.values()


def find_ended(stays: Iterable[SurvivingStorage], facts: RunFacts, peak: int) -> tuple[Leak, ...]:
    """Return what grew up to the peak of a run and was freed later, all at once, the largest first.

    ``stays`` were alive at the ``peak``, the operation at which the most was, and are not any more.
    """
    until = replace(facts, backwards=facts.backwards[: bisect_right(facts.backwards, peak)])
    found = []
    for group in _grouped(stays, _BRIEF):
        deaths = (stay.allocated_at if stay.freed_at is None else stay.freed_at for stay in group)
        if len({bisect_right(facts.backwards, death) for death in deaths}) == 1:  # all at once
            found.append(_items(group, _NOBODY, until))
    return tuple(replace(leak, ended=True) for leak in found if leak is not None)


def _leak(group: list[SurvivingStorage], facts: RunFacts) -> Leak | None:
    """Return what a group of storages with one holder, or of one line without any, shows."""
    holds = [stay.hold for stay in group if stay.hold is not None]
    if any(hold.ends for hold in holds) or not (holds or facts.complete):
        return None
    hold = max(holds, key=lambda hold: hold.graph, default=_NOBODY)
    if hold.graph and hold.results:  # of graphs, counted by the results that begin them
        return _described(group, facts, hold.results, hold) if hold.results >= FEWEST_GRAPHS else None
    if hold.graph:  # by the backwards that one goes back over
        return _described(group, facts, len(_rounds(group, facts)), hold) if _is_training(group, facts) else None
    return _joined(group, hold, facts) if hold.form == "joined" else _items(group, hold, facts)


def _items(group: list[SurvivingStorage], hold: StorageOwner, facts: RunFacts) -> Leak | None:
    """Return a leak of items: one a backward, or one a time that a known line puts one in.

    Of what nothing that has a name holds, only a training loop shows that it is one.
    """
    if _is_training(group, facts):
        added = list(_rounds(group, facts).values())
    elif facts.backwards or hold.location is None:
        return None  # collected before the training, or from time to time
    else:  # by the numbered items; what has a key of its own is not one of many
        items = Counter[str]()
        for stay in group:
            if stay.hold is not None and stay.hold.item[1:-1].isdigit():
                items[stay.hold.item] += stay.nbytes
        added = list(items.values())
    usual = median(added) if added else 0
    alike = sum(usual <= 2 * each <= 4 * usual for each in added)  # about the same, time after time
    is_steady = len(added) >= FEWEST and alike >= _ALIKE * len(added)
    return _described(group, facts, len(added), hold) if is_steady else None


def _joined(group: list[SurvivingStorage], hold: StorageOwner, facts: RunFacts) -> Leak | None:
    """Return the growth of one tensor that is joined from itself and more, again and again."""
    (stay, *others) = group
    allocations = list((facts.joins or {}).get(stay.line, ()))
    steps = [after - before for (_, before), (_, after) in pairwise(allocations)]
    if others or len(steps) < FEWEST or min(steps) <= 0 or allocations[-1] != (stay.allocated_at, stay.nbytes):
        return None
    rounds = {bisect_right(facts.backwards, allocated_at) for allocated_at, _ in allocations}
    kept, training = sum(steps), len(rounds) > len(allocations) // 2
    return Leak(
        facts.lines[stay.line], stay.device, kept // len(steps), len(steps), kept, hold.name, hold.location,
        form="joined", training=training,
    )  # fmt: skip


def _rounds(group: list[SurvivingStorage], facts: RunFacts) -> Counter[int]:
    """Return the bytes that were added before the first backward, between it and the second, and so on."""
    rounds = Counter[int]()
    for stay in group:
        rounds[bisect_right(facts.backwards, stay.allocated_at)] += stay.nbytes
    return rounds


def _is_training(group: list[SurvivingStorage], facts: RunFacts) -> bool:
    """Return whether something stayed from backward to backward, from the first time on and to the end.

    Several backwards may make a step: a generator's and its critic's, some that are accumulated. What stays of the last
    few times only, of many, is what a cache or a ring has not overwritten yet.
    """
    rounds = _rounds(group, facts)
    first, last = min(rounds), max(rounds)
    dense = 4 * len(rounds) >= last - first + 1
    began = bisect_right(facts.backwards, min((facts.first or {}).get(stay.line, stay.allocated_at) for stay in group))
    early = first - began <= max(1, _BEGINS * (last - began))
    return len(rounds) >= FEWEST and dense and early and last >= _LASTS * len(facts.backwards)


def _described(group: list[SurvivingStorage], facts: RunFacts, iterations: int, hold: StorageOwner) -> Leak:
    by_line = Counter[int]()
    for stay in group:
        by_line[stay.line] += stay.nbytes
    kept, training = by_line.total(), _is_training(group, facts)
    return Leak(
        facts.lines[by_line.most_common(1)[0][0]], group[0].device, kept // iterations, iterations,
        kept, hold.name, hold.location, graph=hold.graph, form=hold.form, training=training, scalars=hold.scalars,
    )  # fmt: skip


# Who keeps what a run left alive: containers, sums and graphs that a walk through the user's names leads to. Looked for
# only where something may have leaked.

MOST_NODES = 100_000  # of one graph
_NUMBERED = re.compile(r"\[\d+\]")
_GROWING_KINDS = {"item", "name", "attribute"}  # others are the parameters of modules, what an optimizer holds


@dataclass(slots=True)
class Holders:
    """Who keeps which storage, by the storage's identity."""

    holds: dict[int, StorageOwner] = field(default_factory=dict)  # what was found
    complete: bool = True  # whether everything that has a name was looked at, graphs included
    cut: str = ""  # why not all names were looked at; empty where they were


def find_holders(
    wanted: Collection[int],
    namespace: Mapping[str, Any],
    filenames: Iterable[str],
    variables: Iterable[tuple[Place, Any]] = (),
    *,
    cell_number: CellNumber = no_cell,
) -> Holders:
    """Return who keeps the storages with these identities (``storage._cdata``)."""
    with quiet():
        walk_session = ObjectWalk(THOROUGH).through(namespace, variables)
        files = dict.fromkeys((*filenames, *sources(namespace)))
        search = _Search(walk_session, ChangingLines(files, cell_number))
        found = Holders(complete=walk_session.names_complete, cut=walk_session.cut)
        for key, hold in chain(search.named(), search.stored(found), search.carried()):
            if key in wanted:
                found.holds.setdefault(key, hold)
        return found


class _Search:
    """What one walk has met, asked for storages."""

    def __init__(self, walk_session: ObjectWalk, lines: ChangingLines) -> None:
        self._walk_session, self._lines = walk_session, lines
        self._own = {key for key, held in walk_session.storages.items() if not held.is_of_session}

    def where(self, name: str) -> Location | None:
        return self._lines.grown(_as_written(name))

    def is_emptied(self, name: str) -> bool:
        return self._lines.is_emptied(_as_written(name))

    def named(self) -> Iterator[tuple[int, StorageOwner]]:
        for key in self._own:
            places = self._walk_session.storages[key].places
            # The nearest that belongs to the user: an item of a container first, which may be one of many.
            items, others = filter(_is_item, places), [place for place in places if place.kind in _GROWING_KINDS]
            path = next(iter(nearest([place.path for place in list(items) or others])), None)
            place = next((place for place in places if place.path == path), None)
            yield key, self._hold_at(place) if place is not None else StorageOwner(places[0].path, ends=True)

    def _hold_at(self, place: Place) -> StorageOwner:
        """Return the container that a tensor is an item of, with all its bounds; the tensor itself where it is none."""
        path = place.path
        if not _is_item(place):  # it grows only where a line makes it anew from itself
            where = self.where(path)
            return StorageOwner(
                _as_written(path), "joined", location=where, ends=where is None or self.is_emptied(path)
            )
        found = _NUMBERED.search(path) or ITEM.search(path)  # of history[3]['loss'] history, of out['x'] out
        name, item = (path, "") if found is None else (path[: found.start()], found[0])
        ends = any(name == path or name.startswith((f"{path}[", f"{path}.")) for path in self._walk_session.bounded)
        written = _as_written(name)
        return StorageOwner(written, "items", item, self.where(name), ends=ends or self.is_emptied(name))

    def stored(self, found: Holders) -> Iterator[tuple[int, StorageOwner]]:
        """Yield the storages that graphs of stored results keep."""
        graphs = graphs_and_storages(self._walk_session.visits, self._own, self.where, MOST_NODES)
        for graph, storages in graphs:
            found.complete &= graph.complete
            hold = StorageOwner(
                _as_written(graph.name), graph.form, location=graph.location, graph=True, results=graph.graphs,
                scalars=graph.scalars, ends=self.is_emptied(graph.name),
            )  # fmt: skip
            yield from ((key, hold) for key in storages)

    def carried(self) -> Iterator[tuple[int, StorageOwner]]:
        """Yield the storages that the graph of a single tensor keeps: what is carried over from step to step."""
        visits = reversed(self._walk_session.visits)
        tensors = {id(x): (place, x) for place, x in visits if place.kind in _GROWING_KINDS}
        seen: set[Any] = set()
        for place, x in sorted(tensors.values(), key=lambda pair: pair[0].depth):
            if (root := graph_of(x)) is not None:
                hold = StorageOwner(_as_written(place.path), "carried", location=self.where(place.path), graph=True)
                for node in walk_nodes([root], MOST_NODES, seen):  # less those met before
                    saved = () if is_accumulate(node) else live_saved(node)
                    for key in (storage_of(tensor) for _, tensor in saved if tensor is not None):
                        if key:
                            yield key, hold


def _is_item(place: Place) -> bool:
    """Return whether a tensor was found in a container: also one that a function holds in its closure."""
    return place.kind == "item" or (place.kind in {"function", "generator"} and place.path.endswith("]"))


def _as_written(name: str) -> str:
    """Return a name as written in the source: of ``train.<locals>.losses`` the variable."""
    return name.rpartition("<locals>.")[2]
