"""Whose elements a write changed, and which of those changes are more than what the line says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import FrameType
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import relation
from tensormagic.collectors.aliasing.storage_aliases import Hit, place_of
from tensormagic.collectors.aliasing.written_through import REPLAY_LIMIT, Call, Statement, Suspicion, Through
from tensormagic.collectors.geometry.overlap import Region, Touched, touched
from tensormagic.collectors.geometry.strides import Written, shares_version
from tensormagic.collectors.objects.children import graph_of
from tensormagic.collectors.objects.namespace import is_kind, root_name
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import SourceLines
from tensormagic.reports import ChangedName, Clash, Write
from tensormagic.reports.writes import Extent


@dataclass(slots=True)
class WriteTotal:
    """All writes of one op on one line."""

    site: int | None
    written: Written
    target: str = ""
    described: bool = False
    named: bool = False  # by the line itself; else by the tensor, which may be another one the next time
    storage: int = 0
    shape: tuple[int, ...] = ()
    calls: int = 0
    replays: int = 0
    several: bool = False
    changed: dict[str, ChangedName] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    clash: Clash | None = None
    suspicion: Suspicion | None = None
    swaps: bool | None = None  # not looked up yet
    missed: bool = False  # whether it was ever not looked up although it might have changed something new
    searched: bool | None = None  # whether names were ever looked up for it; None where they need not be

    def report(self, sites: SourceLines) -> Write:
        """Return it as plain data."""
        lists = tuple(f"{name}[" for name, changed in self.changed.items() if changed.items > 1)
        shown = ((key, name) for key, name in self.changed.items() if not lists or not key.startswith(lists))
        return Write(
            location=sites.location(self.site),
            op=self.written.name,
            target=self.target,
            shape=self.shape,
            count=self.calls,
            several=self.several and not self.named,
            changed=tuple(replace(name, writes=self.counts[key], at_least=self.missed) for key, name in shown),
            clash=self.clash,
        )


# ``x[0], x[1] = x[1], x[0]`` swaps numbers of a list; of a tensor it does not: both sides are views of one memory.
#
# The right side makes two views and copies nothing; the first assignment changes what the second one then reads. Each
# op by itself is in order, so it is the line that has to be watched: what stood where it wrote first is kept until it
# ends.


class Swaps:
    """What the running line has overwritten so far, if it assigns several subscripts at once."""

    def __init__(self) -> None:
        self._place = (0, 0)
        self._instruction = -1
        self._before: list[tuple[Region, torch.Tensor]] = []

    def suspect(self, frame: FrameType, target: torch.Tensor, operand: torch.Tensor) -> Suspicion | None:
        """Return a suspicion where ``operand`` is what this line has written to already."""
        place = (id(frame), frame.f_lineno)
        if place != self._place or frame.f_lasti <= self._instruction:
            self._before = []
        self._place, self._instruction = place, frame.f_lasti
        if target.layout != torch.strided or target.numel() > REPLAY_LIMIT or operand.layout != torch.strided:
            return None
        with quiet():
            read = place_of(operand)
            before = next((kept for region, kept in self._before if region == read), None)
            self._before.append((place_of(target), target.detach().clone()))
            if before is None:
                return None
            expected = before.to(target.dtype).expand(target.shape)
            return Suspicion(Clash("reads what it writes", "", operand.numel(), target.numel()), target, expected)


# Writing to ``x[0]`` changes x: that is what the user wrote. So is the tensor that a loop goes over, and the one
# parameter that a module's path and a loop's name both lead to. What is left are the other names of the same memory.

Reached = tuple[Region, Touched]  # a region, and which of its elements were written to


@dataclass(slots=True)
class WriteSeen:
    """One write, with those who may share what was written to."""

    total: WriteTotal  # the line and op that it belongs to
    target: torch.Tensor  # what was written to
    region: Region  # its bytes
    call: Call  # the op and its arguments
    hits: list[Hit]  # who may share them
    mask: np.ndarray | None = None  # which elements of the target were written to, where not all were
    certain: bool = True  # whether that is known

    def change(self, name: str, how: str, item: Any, known: Reached | None = None, **more: Any) -> ChangedName:
        """Return what the write changed of a tensor or an array, which shares ``how``."""
        region = place_of(item) if known is None else known[0]
        reached = touched(region, self.region, self.mask) if known is None else known[1]
        return ChangedName(
            name=name, relation=how, kind=type(item).__name__, shape=region.shape, elements=reached.elements,
            of_elements=region.elements, first=reached.first, marks=reached.marks, certain=self.certain, **more,
        )  # fmt: skip


def effects(seen: WriteSeen, statement: Statement, via: Through | None) -> Iterator[ChangedName]:
    """Yield the names whose elements were changed and that the line, writing through ``via``, does not name."""
    # The written tensor itself, where a graph holds its values and autograd does not notice the write.
    own = via if via is not None and via.tensor is not seen.target and graph_of(via.tensor) is not None else None
    if own is not None and shares_version(seen.target, own.tensor) is False and _is_saved(own.tensor, seen):
        yield seen.change(own.name, "itself", own.tensor, noticed=False, saved=True)
    written = via.tensor if via is not None else written_name(seen)
    lists = _same_memory_lists(seen, via)
    for name, hits in lists.items():
        item, region = hits[0].item, hits[0].region
        if (reached := _touched(seen, region)).elements:
            noticed, count = _noticed(seen.target, item), len(hits)
            yield seen.change(name, "item of a list", item, (region, reached), noticed=noticed, items=count)
    base = seen.target._base if via is None else None
    met = {id(each) for each in (written, seen.target, base)}  # what the line writes to in so many words
    for hit in seen.hits:
        name, item = hit.storage_alias.name, hit.item
        if id(item) in met or hit.storage_alias.list_name in lists or root_name(name) in statement.loop_sources:
            continue
        met.add(id(item))
        if (reached := _touched(seen, hit.region)).elements == 0:
            continue
        if (known := seen.total.changed.get(name)) is not None:
            yield known
            continue
        how = relation(written, item) if is_kind(item, torch.Tensor) else "NumPy array"
        extent, saved = _extent(place_of(written), hit.region), _is_saved(item, seen)
        known_place, noticed = (hit.region, reached), _noticed(seen.target, item)
        yield seen.change(name, how, item, known_place, extent=extent, noticed=noticed, saved=saved)
    yield from _second_names(seen, statement, via)


def _touched(seen: WriteSeen, region: Region) -> Touched:
    """Return which elements of a region a write reached."""
    return _touched_by_all(region, seen.region) if seen.mask is None else touched(region, seen.region, seen.mask)


_touched_by_all = lru_cache(maxsize=4096)(touched)  # a loop asks for the same regions in each of its steps


def _extent(written: Region, other: Region) -> Extent:
    """Return how much of each other two tensors read, as wholes."""
    there, back = touched(other, written).elements, touched(written, other).elements
    if there is None or back is None:
        return ""
    if there == other.elements:
        return "same" if back == written.elements else "within"
    return "around" if back == written.elements else "crosses"


def written_name(seen: WriteSeen) -> torch.Tensor:
    """Return the named tensor that was written to, where the line does not name it: torch's own code wrote."""
    target, hits = seen.target, [hit for hit in seen.hits if hit.storage_alias.storage]
    for likely in (target, target._base):
        if likely is not None and any(hit.item is likely for hit in hits):
            return likely
    same = (hit.item for hit in hits if hit.region == seen.region)
    return next(same, hits[0].item if hits else target)


def _same_memory_lists(seen: WriteSeen, via: Through | None) -> dict[str, list[Hit]]:
    """Return the lists of which two items or more are the same memory, with those items."""
    by_list: dict[str, dict[Region, dict[str, Hit]]] = {}
    for hit in seen.hits:
        if hit.storage_alias.list_name and not is_kind(hit.item, torch.nn.Parameter):
            item = hit.storage_alias.name.partition("]")[0]  # a tuple that holds it twice is one item
            by_list.setdefault(hit.storage_alias.list_name, {}).setdefault(hit.region, {}).setdefault(item, hit)
    root = root_name(via.name) if via is not None else ""
    largest = {name: max(groups.values(), key=len) for name, groups in by_list.items() if name != root}
    return {name: list(hits.values()) for name, hits in largest.items() if len(hits) > 1}


def _second_names(seen: WriteSeen, statement: Statement, via: Through | None) -> Iterator[ChangedName]:
    """Yield second names of the tensor that the line writes to: ``y = x; y += 1`` changes x, ``best = net`` is net.

    Names that stand beside each other count: plain ones, and the same path from two names of one object.
    """
    item = via.tensor if via is not None else written_name(seen)
    same = [hit.storage_alias for hit in seen.hits if hit.item is item]
    root = root_name(via.name if via is not None else seen.total.target)
    own = next((one for one in same if root_name(one.name) == root and (via is None or one.name == via.name)), None)
    if own is None or root in statement.loop_names or (via is None and own.name == root):
        return
    for one in same:
        path, other = own.name.removeprefix(root), root_name(one.name)
        beside = (one.scope, one.root) == (own.scope, own.root) and one.name == other + path
        if beside and other not in {root, *statement.loop_names}:
            yield seen.change(one.name, "same object", item, noticed=True)


def _noticed(target: torch.Tensor, item: Any) -> bool | None:
    return shares_version(target, item) if is_kind(item, torch.Tensor) else False


def _is_saved(item: Any, seen: WriteSeen) -> bool:
    """Return whether something in a backward graph holds a computed tensor: it has more owners than Python."""
    if not is_kind(item, torch.Tensor) or graph_of(item) is None:
        return False
    arguments = (*seen.call[1], *seen.call[2].values())
    if any(argument is item for argument in arguments):
        return False
    # Views own their base, too: those that have names are not counted, nor are the arguments of the call.
    tensors = (hit.item for hit in seen.hits if is_kind(hit.item, torch.Tensor))
    views = {id(other) for other in tensors if other._base is item}
    views |= {id(seen.target)} if seen.target._base is item else set()
    return int(item._use_count()) - 1 - len(views) > 0
