"""A look at all that is in a session: what is kept alive by whom, and what modules hold beside their registries.

Put together from one walk. Who keeps a storage is then asked of `collectors.aliasing.aliases` once more, for the few
storages that the walk found nowhere but in the session's own places: nothing is said that it does not confirm.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tensormagic.collectors.aliasing.aliases import holders
from tensormagic.collectors.geometry import strides
from tensormagic.collectors.geometry.parts import components
from tensormagic.collectors.objects.namespace import is_history, nearest, telling
from tensormagic.collectors.objects.referents import SESSION_KINDS, Budget
from tensormagic.collectors.quiet import number, quiet
from tensormagic.collectors.session.session_walk import (
    ITEM,
    THOROUGH,
    Held,
    ObjectWalk,
    grown,
    sources,
    stored_graphs,
)
from tensormagic.collectors.session.unregistered import TiedWeights, modules_report
from tensormagic.collectors.session.update_tracking import UpdateTracking
from tensormagic.collectors.where.source import CellNumber, no_cell
from tensormagic.reports import (
    Growth,
    HeldSize,
    Location,
    RetainedMemory,
    StorageKeepingView,
    StoredGraph,
    WatchReport,
)
from tensormagic.reports.watch import RetainedBy

SMALLEST = 2**20  # bytes of a storage that is worth a question
MOST_KEPT = 8
MOST_SIZES = 64
LOOKS = 5  # that a steady growth takes: four equal steps


@dataclass(slots=True)
class Memory:
    """What a watch remembers from look to look: which weights were tied, and how far parameters have come."""

    ties: TiedWeights = field(default_factory=TiedWeights)
    updates: UpdateTracking = field(default_factory=UpdateTracking)


def look(  # noqa: PLR0913  (a namespace; the rest are options, by name)
    namespace: Mapping[str, Any],
    *,
    filename: str = "",
    earlier: Sequence[WatchReport] = (),
    budget: Budget = THOROUGH,
    memory: Memory | None = None,
    cell_number: CellNumber = no_cell,
) -> WatchReport:
    """Return what is in a session. Changes nothing, keeps nothing but in ``memory``.

    The oldest of the ``earlier`` looks is the first.
    """
    with quiet():
        walk_session = ObjectWalk(budget).through(namespace)
        files = sources(namespace, filename)
        found = _Found(walk_session, namespace, files, cell_number)
        sizes = _sizes(walk_session)
        known = Memory() if memory is None else memory
        outermost = walk_session.outermost()
        modules = modules_report(outermost, namespace, known.ties, cell_number=cell_number)
        for _, module in outermost:
            known.ties.remember(module)
        optimizers = walk_session.optimizers
        return WatchReport(
            looked=walk_session.looked,
            tensors=walk_session.tensors,
            storages=len(walk_session.storages),
            nbytes=sum(held.nbytes for held in walk_session.storages.values()),
            modules=modules,
            retained=found.retained(),
            views=found.views(),
            graphs=found.graphs(),
            sizes=sizes,
            growing=found.growing(earlier, sizes),
            unchanged=known.updates.look(outermost, optimizers, files=files, cell_number=cell_number)
            if walk_session.names_complete
            else (),
            gaps=walk_session.gaps,
        )


def standing_out(
    walk_session: ObjectWalk, namespace: Mapping[str, Any]
) -> tuple[tuple[RetainedMemory, ...], tuple[StorageKeepingView, ...], tuple[StoredGraph, ...]]:
    """Return what is alive and hardly meant to be, of what a walk has met.

    That is what only the session keeps, what a small view keeps, and what stored graphs keep.
    """
    found = _Found(walk_session, namespace, sources(namespace), no_cell)
    return found.retained(), found.views(), found.graphs()


class _Found:
    """What one walk has met, and what is made of it."""

    def __init__(
        self, walk_session: ObjectWalk, namespace: Mapping[str, Any], files: tuple[str, ...], cell_number: CellNumber
    ) -> None:
        self._walk_session, self._namespace = walk_session, namespace
        self._files, self._cell_number = files, cell_number

    def where(self, name: str) -> Location | None:
        """Return the line that makes something grow."""
        return grown(name, self._files, self._cell_number)

    def retained(self) -> tuple[RetainedMemory, ...]:
        """Return the large storages that only the session keeps, the largest first; none where the walk was cut."""
        every = map(self._confirmed, self._largest(lambda held: held.is_of_session))
        return tuple(kept for kept in every if kept is not None)

    def views(self) -> tuple[StorageKeepingView, ...]:
        """Return the views that alone keep a storage of which they read less than half, the largest storage first."""
        every = map(self._alone, self._largest(_reads_a_part))
        return tuple(view for view in every if view is not None)

    def _largest(self, is_asked_for: Callable[[Held], bool]) -> list[Held]:
        storages = self._walk_session.storages.values() if self._walk_session.names_complete else ()
        large = (held for held in storages if held.nbytes >= SMALLEST and is_asked_for(held))
        return sorted(large, key=lambda held: -held.nbytes)[:MOST_KEPT]

    def _alone(self, held: Held) -> StorageKeepingView | None:
        x = held.tensor
        described = holders(x, self._namespace)
        if (
            described.cut
            or described.unreached != 0
            or described.of_storage
            or described.found > len(described.holders)
        ):
            return None
        named = [holder.path for holder in described.of_tensor if holder.kind not in SESSION_KINDS]
        return StorageKeepingView(nearest(telling(named))[0], _nbytes(x), held.nbytes) if named else None

    def _confirmed(self, held: Held) -> RetainedMemory | None:
        x = held.tensor
        described = holders(x, self._namespace)
        kinds = {holder.kind for holder in described.holders}
        if described.cut or described.unreached or not kinds or not kinds <= SESSION_KINDS:
            return None
        kind: RetainedBy = "both" if len(kinds) > 1 else "history" if "history" in kinds else "traceback"
        paths = tuple(dict.fromkeys(self._in_out(holder.path) for holder in described.holders))
        # The line at which the frame stands that holds it, with its text.
        frame = next((holder.location for holder in described.holders if holder.location is not None), None)
        if frame is not None:
            text = linecache.getline(frame.filename, frame.line).strip()
            frame = replace(frame, text=text, cell=self._cell_number(frame.filename))
        return RetainedMemory(
            holders=paths, kind=kind, shape=tuple(x.shape),
            dtype=str(x.dtype).removeprefix("torch."), device=str(x.device), nbytes=held.nbytes,
            location=frame,
        )  # fmt: skip

    def _in_out(self, path: str) -> str:
        """Return a path by way of ``Out``, whose number shows the cell, where it begins at a name for one of these."""
        root = path.partition("[")[0].partition(".")[0]
        history = self._namespace.get("Out")
        if not is_history(root) or root == "Out" or type(history) is not dict:
            return path
        value = self._namespace.get(root)
        number = next((key for key, item in list(history.items()) if item is value), None)
        return path if number is None else f"Out[{number}]{path.removeprefix(root)}"

    def graphs(self) -> tuple[StoredGraph, ...]:
        """Return the graphs that stored results keep."""
        own = {key for key, held in self._walk_session.storages.items() if not held.is_of_session}
        return stored_graphs(self._walk_session.visits, own, self.where)

    def growing(self, earlier: Sequence[WatchReport], sizes: tuple[HeldSize, ...]) -> tuple[Growth, ...]:
        """Return what has grown by equal amounts over the last looks, this one included."""
        looks = [{size.name: size for size in one.sizes} for one in earlier[-(LOOKS - 1) :]]
        if len(looks) < LOOKS - 1:
            return ()
        found = []
        for now in sizes:
            line = [*(one[now.name] for one in looks if now.name in one), now]
            steps = {after.nbytes - before.nbytes for before, after in itertools.pairwise(line)}
            if len(line) == LOOKS and len(steps) == 1 and min(steps) > 0:
                tensors, nbytes = tuple(one.tensors for one in line), tuple(one.nbytes for one in line)
                found.append(Growth(now.name, tensors, nbytes, self.where(now.name)))
        return tuple(found)


def _reads_a_part(held: Held) -> bool:
    """Return whether a storage's first tensor is a view that reads less than half of it, and could be copied."""
    x = held.tensor
    try:
        storage = x.untyped_storage()
        own = storage.resizable() and not storage.is_shared() and (x._is_view() or x.storage_offset() > 0)
        return own and not held.is_of_session and 0 < 2 * _nbytes(x) < held.nbytes
    except Exception:  # an odd tensor may refuse
        return False


def _sizes(walk_session: ObjectWalk) -> tuple[HeldSize, ...]:
    """Return what holds the most: containers by what lies in them, and tensors that have a name or are an attribute."""
    held: dict[str, list[int]] = {}
    for place, x in walk_session.visits:
        if place.kind in {"name", "item", "attribute"}:
            entry = held.setdefault(ITEM.sub("", place.path), [0, 0])
            entry[0] += 1
            entry[1] += _nbytes(x)
    open_ended = ((name, numbers) for name, numbers in held.items() if name not in walk_session.bounded)
    every = (HeldSize(name, tensors, nbytes) for name, (tensors, nbytes) in open_ended)
    return tuple(sorted(every, key=lambda size: -size.nbytes)[:MOST_SIZES])


def _nbytes(x: torch.Tensor) -> int:
    try:
        return sum(
            number(part.numel()) * part.element_size() for part in components(x) if strides.Memory.behind(part).nbytes
        )
    except Exception:  # an odd tensor may refuse
        return 0
