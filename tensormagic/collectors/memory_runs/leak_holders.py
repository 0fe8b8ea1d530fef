"""Who keeps what a run left alive: containers, sums and graphs that a walk through the person's names leads to.

Looked for only where something may have leaked: a run that leaves little behind pays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tensormagic.collectors.graphs.nodes import live_saved
from tensormagic.collectors.graphs.skeleton import is_accumulate
from tensormagic.collectors.memory_runs.leaks import Hold
from tensormagic.collectors.objects.naming import nearest
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.assignments import CellNumber, emptied, grown, no_cell, sources
from tensormagic.collectors.session.stored_graphs import graphs_and_storages, is_tracked
from tensormagic.collectors.session.stroll import THOROUGH, Stroll
from tensormagic.reports import Location, StoredGraph

MOST_NODES = 100_000  # of one graph
_NUMBERED = re.compile(r"\[\d+\]")
_LAST = re.compile(r"\[[^\[\]]*\]$")
_GROWING_KINDS = {"item", "name", "attribute"}  # others are the parameters of modules, what an optimizer holds


@dataclass(slots=True)
class Holders:
    """Who keeps which storage, by the storage's identity.

    Attributes:
        holds: What was found.
        complete: Whether everything that has a name was looked at, graphs included.
        cut: Why not all names were looked at; empty where they were.
    """

    holds: dict[int, Hold] = field(default_factory=dict)
    complete: bool = True
    cut: str = ""


def find_holders(
    wanted: Collection[int],
    namespace: Mapping[str, Any],
    filenames: Iterable[str],
    variables: Iterable[tuple[Place, Any]] = (),
    *,
    cell_number: CellNumber = no_cell,
) -> Holders:
    """Return who keeps the storages with these identities.

    Args:
        wanted: ``storage._cdata`` of storages that are alive.
        namespace: The person's names.
        filenames: Files whose lines allocated them.
        variables: The variables of functions that are running.
        cell_number: Gives the number of a cell.
    """
    with quiet():
        stroll = Stroll(THOROUGH).through(namespace, variables)
        files = tuple(dict.fromkeys((*filenames, *sources(namespace))))
        search = _Search(stroll, files, cell_number)
        found = Holders(complete=stroll.names_complete, cut=stroll.cut)
        every = (*search.named(), *search.stored(found), *search.carried())
        for key, hold in every:
            if key in wanted:
                found.holds.setdefault(key, hold)
        return found


class _Search:
    """What one walk has met, asked for storages."""

    def __init__(self, stroll: Stroll, files: tuple[str, ...], cell_number: CellNumber) -> None:
        self._stroll, self._files, self._cell_number = stroll, files, cell_number
        self._holds: dict[tuple[str, bool], Hold] = {}
        self._own = {key for key, held in stroll.storages.items() if not held.is_of_session}

    def where(self, name: str) -> Location | None:
        """Return the line that puts more into what has a name."""
        return grown(_as_written(name), self._files, self._cell_number)

    def is_emptied(self, name: str) -> bool:
        """Return whether a line takes something out of what has a name."""
        return emptied(_as_written(name), self._files)

    def named(self) -> Iterator[tuple[int, Hold]]:
        """Yield the storages that names lead to."""
        for key in self._own:
            places = self._stroll.storages[key].places
            place = _telling_place(places)
            yield key, self._hold_at(place) if place is not None else Hold(places[0].path, ends=True)

    def _hold_at(self, place: Place) -> Hold:
        """Return the container that a tensor is an item of, with all its bounds; the tensor itself where it is none."""
        if not _is_item(place):
            return self._of_tensor(place.path)
        name, item = _container(place.path)
        ends = any(name == path or name.startswith((f"{path}[", f"{path}.")) for path in self._stroll.bounded)
        written = _as_written(name)
        return Hold(written, "items", item, self.where(name), ends=ends or self.is_emptied(name))

    def _of_tensor(self, name: str) -> Hold:
        """Return a tensor as its own holder: it grows only where a line makes it anew from itself."""
        where = self.where(name)
        return Hold(_as_written(name), "joined", location=where, ends=where is None or self.is_emptied(name))

    def stored(self, found: Holders) -> Iterator[tuple[int, Hold]]:
        """Yield the storages that graphs of stored results keep."""
        graphs = graphs_and_storages(self._stroll.visits, self._own, self.where, MOST_NODES)
        for graph, storages in graphs:
            found.complete = found.complete and graph.complete
            hold = self._of_graph(graph)
            yield from ((key, hold) for key in storages)

    def _of_graph(self, graph: StoredGraph) -> Hold:
        return Hold(
            _as_written(graph.name), graph.form, location=graph.location, graph=True, count=graph.graphs,
            scalars=graph.scalars, ends=self.is_emptied(graph.name),
        )  # fmt: skip

    def carried(self) -> Iterator[tuple[int, Hold]]:
        """Yield the storages that the graph of a single tensor keeps: what is carried over from step to step."""
        tensors = {id(x): (place, x) for place, x in reversed(self._stroll.visits) if place.kind in _GROWING_KINDS}
        seen: set[Any] = set()
        for place, x in sorted(tensors.values(), key=lambda pair: pair[0].depth):
            if is_tracked(x):
                hold = Hold(_as_written(place.path), "carried", location=self.where(place.path), graph=True)
                yield from ((key, hold) for key in _saved_below(x.grad_fn, seen))


def _saved_below(root: Any, seen: set[Any]) -> Iterator[int]:
    """Yield the storages that the nodes of a graph keep, less those of nodes met before."""
    pending = [root]
    while pending and len(seen) < MOST_NODES:
        node = pending.pop()
        if node in seen or is_accumulate(node):
            continue
        seen.add(node)
        yield from filter(None, (_identity(tensor) for _, tensor in live_saved(node)))
        pending += [after for after, _ in node.next_functions if after is not None]


def _identity(tensor: torch.Tensor | None) -> int | None:
    try:
        return None if tensor is None else int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None


def _telling_place(places: list[Place]) -> Place | None:
    """Return the nearest place that belongs to the person: an item of a container first, which may be one of many."""
    items = [place.path for place in places if _is_item(place)]
    others = [place.path for place in places if place.kind in _GROWING_KINDS]
    path = next(iter(nearest(items) or nearest(others)), None)
    return next((place for place in places if place.path == path), None)


def _is_item(place: Place) -> bool:
    """Return whether a tensor was found in a container: also one that a function holds in its closure."""
    numbered = place.kind in {"function", "generator"} and place.path.endswith("]")
    return place.kind == "item" or numbered


def _as_written(name: str) -> str:
    """Return a name as it stands in the source: of ``train.<locals>.losses`` the variable."""
    return name.rpartition("<locals>.")[2]


def _container(path: str) -> tuple[str, str]:
    """Return what holds an item, and which item: of ``history[3]['loss']`` the history; of ``out['x']`` the dict."""
    found = _NUMBERED.search(path) or _LAST.search(path)
    return (path, "") if found is None else (path[: found.start()], found[0])


__all__ = ["Holders", "find_holders"]
