"""A look at all that is in a session: what is kept alive by whom, and what modules hold beside their registries.

Put together from one walk. Who keeps a storage is then asked of `collectors.aliasing.aliases`: nothing is said that it
does not confirm.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tensormagic.collectors.aliasing.aliases import holders
from tensormagic.collectors.geometry import strides
from tensormagic.collectors.geometry.parts import components
from tensormagic.collectors.objects.namespace import is_history, nearest, outermost, root_name, telling
from tensormagic.collectors.objects.referents import SESSION_KINDS, Budget
from tensormagic.collectors.quiet import number, quiet, told
from tensormagic.collectors.session.session_walk import (
    ITEM,
    THOROUGH,
    ChangingLines,
    Held,
    ObjectWalk,
    graphs_and_storages,
    sources,
)
from tensormagic.collectors.session.unregistered import TiedWeights, modules_report
from tensormagic.collectors.session.update_tracking import UpdateTracking
from tensormagic.collectors.where.source import CellNumber, known_line, no_cell
from tensormagic.reports import (
    Growth,
    HeldSize,
    RetainedMemory,
    StorageKeepingView,
    StoredGraph,
    UnchangedParameters,
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
        lines = ChangingLines(sources(namespace, filename), cell_number)
        retained, views, graphs = standing_out(walk_session, namespace, lines, cell_number)
        sizes = _sizes(walk_session)
        known = Memory() if memory is None else memory
        outer = outermost(walk_session.modules)
        modules = modules_report(outer, namespace, known.ties, cell_number=cell_number)
        for _, module in outer:
            known.ties.remember(module)
        unchanged: tuple[UnchangedParameters, ...] = ()
        if walk_session.names_complete:
            unchanged = known.updates.look(outer, walk_session.optimizers, lines=lines, cell_number=cell_number)
        growing = (replace(one, location=lines.grown(one.name)) for one in _growing(earlier, sizes))
        return WatchReport(
            looked=walk_session.looked, tensors=walk_session.tensors, storages=len(walk_session.storages),
            nbytes=sum(held.nbytes for held in walk_session.storages.values()), modules=modules, retained=retained,
            views=views, graphs=graphs, sizes=sizes, unchanged=unchanged, gaps=walk_session.gaps,
            growing=tuple(growing),
        )  # fmt: skip


def standing_out(
    walk_session: ObjectWalk,
    namespace: Mapping[str, Any],
    lines: ChangingLines | None = None,
    cell_number: CellNumber = no_cell,
) -> tuple[tuple[RetainedMemory, ...], tuple[StorageKeepingView, ...], tuple[StoredGraph, ...]]:
    """Return what only the session keeps, the views that alone keep a storage half unread, and what stored graphs keep.

    The largest come first; where the walk was cut, only the graphs.
    """
    lines = ChangingLines(sources(namespace), cell_number) if lines is None else lines
    storages = walk_session.storages
    large = sorted((held for held in storages.values() if held.nbytes >= SMALLEST), key=lambda held: -held.nbytes)
    large = large if walk_session.names_complete else []
    kept = [held for held in large if held.is_of_session][:MOST_KEPT]
    viewed = [held for held in large if _reads_a_part(held)][:MOST_KEPT]
    retained = (_confirmed(held, namespace, cell_number) for held in kept)
    views = (_alone(held, namespace) for held in viewed)
    own = {key for key, held in storages.items() if not held.is_of_session}
    graphs = graphs_and_storages(walk_session.visits, own, lines.grown)
    return tuple(filter(None, retained)), tuple(filter(None, views)), tuple(graph for graph, _ in graphs)


def _alone(held: Held, namespace: Mapping[str, Any]) -> StorageKeepingView | None:
    """Return a view that is confirmed to keep its storage alone."""
    described = holders(held.tensor, namespace)
    shared = described.unreached != 0 or described.of_storage or described.found > len(described.holders)
    alone = () if described.cut or shared else described.of_tensor
    named = [holder.path for holder in alone if holder.kind not in SESSION_KINDS]
    return StorageKeepingView(nearest(telling(named))[0], _nbytes(held.tensor), held.nbytes) if named else None


def _confirmed(held: Held, namespace: Mapping[str, Any], cell_number: CellNumber) -> RetainedMemory | None:
    """Return a storage that only the session is confirmed to keep."""
    x = held.tensor
    described = holders(x, namespace)
    kinds = {holder.kind for holder in described.holders}
    if described.cut or described.unreached or not kinds or not kinds <= SESSION_KINDS:
        return None
    kind: RetainedBy = "both" if len(kinds) > 1 else "history" if "history" in kinds else "traceback"
    paths = tuple(dict.fromkeys(_in_out(holder.path, namespace) for holder in described.holders))
    # The line at which the frame stands that holds it, with its text.
    frame = next((holder.location for holder in described.holders if holder.location is not None), None)
    if frame is not None:
        text = known_line(frame.filename, frame.line)
        frame = replace(frame, text=text, cell=cell_number(frame.filename))
    dtype, device = str(x.dtype).removeprefix("torch."), str(x.device)
    return RetainedMemory(paths, kind, tuple(x.shape), dtype, device=device, nbytes=held.nbytes, location=frame)


def _in_out(path: str, namespace: Mapping[str, Any]) -> str:
    """Return a path by way of ``Out``, whose number shows the cell, where it begins at a name for one of these."""
    root = root_name(path)
    history = namespace.get("Out")
    if not is_history(root) or root == "Out" or type(history) is not dict:
        return path
    value = namespace.get(root)
    number = next((key for key, item in list(history.items()) if item is value), None)
    return path if number is None else f"Out[{number}]{path.removeprefix(root)}"


def _growing(earlier: Sequence[WatchReport], sizes: tuple[HeldSize, ...]) -> Iterator[Growth]:
    looks = [{size.name: size for size in one.sizes} for one in earlier[-(LOOKS - 1) :]]
    for now in sizes if len(looks) == LOOKS - 1 else ():
        line = [*(one[now.name] for one in looks if now.name in one), now]
        steps = {after.nbytes - before.nbytes for before, after in itertools.pairwise(line)}
        if len(line) == LOOKS and len(steps) == 1 and min(steps) > 0:
            yield Growth(now.name, tuple(one.tensors for one in line), tuple(one.nbytes for one in line))


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
    held = defaultdict[str, list[int]](list)
    for place, x in walk_session.visits:
        if place.kind in {"name", "item", "attribute"}:
            held[ITEM.sub("", place.path)].append(_nbytes(x))
    open_ended = ((name, sizes) for name, sizes in held.items() if name not in walk_session.bounded)
    every = (HeldSize(name, len(sizes), sum(sizes)) for name, sizes in open_ended)
    return tuple(sorted(every, key=lambda size: -size.nbytes)[:MOST_SIZES])


def _nbytes(x: torch.Tensor) -> int:
    there = (part for part in components(x) if strides.Memory.behind(part).nbytes)
    return told(lambda: sum(number(part.numel()) * part.element_size() for part in there), 0)
