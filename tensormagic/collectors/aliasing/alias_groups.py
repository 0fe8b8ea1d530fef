"""Who shares memory with whom, over everything a namespace reaches: groups, members, exact overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.overlay import cell_bytes, coverage
from tensormagic.collectors.aliasing.storage_aliases import (
    Entry,
    Shared,
    array_base,
    by_memory,
    gather,
    owner_of,
    with_parts,
)
from tensormagic.collectors.geometry.layout import count_distinct
from tensormagic.collectors.geometry.overlap import Region, overlap, overlap_elements
from tensormagic.collectors.geometry.strides import counter_of
from tensormagic.collectors.graphs.live_nodes import first_input
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.objects.children import BUFFERS, graph_of, is_kind
from tensormagic.collectors.objects.namespace import Walk, nearest, telling
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import AliasGroup, AliasMember, AliasPair, AliasReport, Gap

# Which two of many regions overlap, and how much: of many only those whose ranges meet are compared.

SMALL = 12  # up to so many members every two are compared
MOST_COMPARED = 2000  # in all groups of one report together
MOST_PAIRS = 200  # that overlap, of a group too large to compare all
MOST_NAMES = 6  # of a member
_MOST_OPERATIONS = 12  # from a base to its view
MOST_GROUPS = 200
DRAWN_GROUPS = 24  # of these it is counted which part of each cell every member reads
MOST_MEMBERS = 32  # of a group


def pairs_of(
    entries: Sequence[Entry], drawn: Sequence[Entry], piece: Shared, budget: Iterator[int]
) -> tuple[tuple[AliasPair, ...], bool]:
    """Return the pairs that were compared, first of those ``drawn``, and whether none that overlaps was left out."""
    few = len(entries) <= SMALL
    regions = [(_name(entry), piece.region(entry)) for entry in (drawn if few else entries)]
    found: list[AliasPair] = []
    for (left, one), (right, other) in combinations(regions, 2) if few else meeting(regions):
        if len(found) >= MOST_PAIRS or next(budget, None) is None:
            return tuple(found), False
        if (answer := overlap(one, other)) != "no" or few:
            shared = overlap_elements(one, other), overlap_elements(other, one)
            found.append(AliasPair(left, right, answer, *shared))
    return tuple(found), True


Named = tuple[str, Region]


def meeting(regions: Iterable[Named]) -> Iterator[tuple[Named, Named]]:
    """Yield every two regions whose ranges of bytes meet."""
    ordered = sorted((each for each in regions if 0 not in each[1].shape), key=lambda each: each[1].start)
    for at, one in enumerate(ordered, 1):
        stop = one[1].stop
        for other in ordered[at:]:
            if other[1].start >= stop:
                break
            yield one, other


def _name(entry: Entry) -> str:
    return nearest(telling(entry.names))[0]


# How each member of a group comes to lie in its memory: what made it, from what, and who counts its writes.
def reference_of(piece: Shared) -> Entry | None:
    """Return the tensor that the memory was made for, as far as is known: no view; tracked, largest, first."""
    plain = [entry for entry in piece.entries if entry.is_tensor and entry.item._base is None]
    return max(plain, key=lambda entry: (entry.item.requires_grad, entry.item.numel()), default=None)


def member_of(
    entry: Entry, piece: Shared, *, names: Mapping[int, str], counters: dict[int, int], cell: int
) -> AliasMember:
    """Return a member of a group, whose numbered ``counters`` grow; ``cell`` is 0 where no strip is drawn."""
    region, item = piece.region(entry), entry.item
    named = nearest(telling(dict.fromkeys(entry.names)))
    counter = counter_of(item) if entry.is_tensor else None
    relation, base, operations = origin(entry, piece, names)
    dtype = str(item.dtype).removeprefix("torch.") if entry.is_tensor else ""
    if is_kind(item, np.ndarray):
        dtype = str(np.ndarray.dtype.__get__(item))
    distinct = count_distinct(region.pattern)
    return AliasMember(
        names=tuple(named[:MOST_NAMES]),
        names_found=len(named),
        kind=type(item).__name__,
        dtype=dtype,
        shape=region.shape,
        start=region.start,
        stop=region.stop,
        elements=region.elements,
        relation=relation,
        base=base,
        operations=operations,
        version=item._version if entry.is_tensor and not item.is_inference() else None,
        counter=counters.setdefault(counter, len(counters) + 1) if counter is not None else None,
        requires_grad=entry.is_tensor and bool(item.requires_grad),
        overlap="maybe" if distinct is None else "yes" if distinct < region.elements else "no",
        coverage=coverage(region, piece.nbytes, cell) if cell else (),
    )


def origin(entry: Entry, piece: Shared, names: Mapping[int, str]) -> tuple[str, str, tuple[str, ...]]:
    """Return how something comes to lie in its memory, from what, and through which recorded view operations."""
    item, source, reference = entry.item, None, reference_of(piece)
    how, operations = "owner", tuple[str, ...]()
    beside = (other.item for other in piece.entries if is_kind(other.item, np.ndarray, *BUFFERS))
    owners = (each for each in beside if not is_kind(each, np.ndarray) or np.ndarray.flags.__get__(each).owndata)
    if is_kind(item, np.ndarray):
        how, source = _array_origin(item, names, reference)
    elif not entry.is_tensor:
        how = "storage" if is_kind(item, torch.UntypedStorage) else "buffer"
    elif entry.part_of is not None:
        return "part", names.get(id(entry.part_of.item), entry.part_of.names[0]), ()
    elif item._base is not None:
        how, source, operations = "view", item._base, tuple(view_operations(item))
    elif (source := next(owners, None)) is not None:
        how = "wraps"
    elif reference is not None and reference is not entry:  # told by storage object and version counter
        how, source, mine, its = "wraps", reference.item, counter_of(item), counter_of(reference.item)
        if entry.memory and reference.memory and entry.memory.identity == reference.memory.identity:
            how = "same storage" if mine is None or its is None else "detached" if mine == its else "data"
    return how, names.get(id(source), ""), operations


def _array_origin(item: np.ndarray, names: Mapping[int, str], reference: Entry | None) -> tuple[str, Any]:
    base, owner = array_base(item), owner_of(item)
    if base is None:
        return "owner", None
    if owner is None or (is_kind(base, np.ndarray) and id(base) in names):
        return "view", base if is_kind(base, np.ndarray) else None
    if is_kind(owner, torch.Tensor):  # mostly a detached twin of the tensor whose .numpy() was called
        return "array", owner if id(owner) in names or reference is None else reference.item
    return "buffer view" if is_kind(owner, *BUFFERS) else "capsule", owner


def view_operations(x: torch.Tensor) -> Iterator[str]:
    """Yield the operations that autograd recorded between a view and its base, first to last; none where untracked."""
    base, node, chain = x._base, graph_of(x), list[str]()
    stop = None if base is None else graph_of(base)
    while node is not None and node is not stop and type(node).__name__ != "AccumulateGrad":
        chain.append(op_name(node.name()))
        node = first_input(node) if len(chain) < _MOST_OPERATIONS else None
    yield from reversed(chain)


# Only memory that is reached by more than one name is looked at closely, and of that only as much as is shown: ten
# thousand tensors of which none shares anything cost one sort.
def collect_aliases(namespace: Mapping[str, object], *, only: Mapping[str, object] | None = None) -> AliasReport:
    """Return who shares memory with whom. Never raises for an odd tensor, writes nothing, keeps nothing.

    With ``only``, memory in which one of these lies; what is in there need not be in the namespace.
    """
    with quiet():
        asked = dict(only or {})
        # What no name of the namespace reaches as such: ``a[0]``, ``net.weight.data``.
        unnamed = {name: item for name, item in asked.items() if name not in namespace}
        walk = Walk.thorough({**namespace, **unnamed})
        entries = gather(walk)
        pieces = by_memory(with_parts(entries))
        walks = ((name, Walk.thorough({name: item})) for name, item in asked.items())
        reached = {name: {id(entry.item) for entry in gather(own)} for name, own in walks}
        if only is not None:
            wanted = set().union(*reached.values())
            pieces = [piece for piece in pieces if _items_in([piece]) & wanted]
        shared = [piece for piece in pieces if _is_shared(piece)]
        alone = [piece for piece in pieces if not _is_shared(piece)]
        met, beside, unread = {id(entry): at for at, entry in enumerate(entries)}, _items_in(shared), _items_in(alone)

        def order(piece: Shared) -> tuple[int, int]:
            """Put the large groups first, of these the one of which something was met first on the walk."""
            first = min(met.get(id(entry.part_of or entry), len(met)) for entry in piece.entries)
            return -min(len(piece.entries), MOST_MEMBERS), first

        drawn = sorted(shared, key=order)[:MOST_GROUPS]
        names = {id(one.item): _name(one) for piece in drawn for one in piece.entries}
        budget = iter(range(MOST_COMPARED))
        tensors = sum(entry.is_tensor for entry in entries)
        return AliasReport(
            groups=tuple(_group(at, piece, names, budget) for at, piece in enumerate(drawn, 1)),
            groups_found=len(shared),
            alone=len(alone),
            alone_bytes=sum(piece.nbytes for piece in alone),
            tensors=tensors,
            arrays=len(entries) - tensors,
            looked=walk.looked,
            gaps=(Gap("aliases", walk.gap),) if walk.gap else (),
            asked=tuple(asked),
            # The names that were asked for whose memory nothing else reads.
            unshared=tuple(name for name, items in reached.items() if items & unread and not items & beside),
        )


def _items_in(pieces: Iterable[Shared]) -> set[int]:
    lying = (one for piece in pieces for entry in piece.entries for one in (entry, entry.part_of))
    return {id(one.item) for one in lying if one is not None}


def _is_shared(piece: Shared) -> bool:
    """Return whether more than one name leads there; the gradient of a tensor with two names has two by itself."""
    names = (name for name in telling(piece.entries[0].names) if not name.endswith(".grad"))
    return len(piece.entries) > 1 or len(list(names)) > 1


def _group(number: int, piece: Shared, names: Mapping[int, str], budget: Iterator[int]) -> AliasGroup:
    """Return a group, its members in order: what the others were made from first, then by where and how much."""
    cell, reference, counters = cell_bytes(piece), reference_of(piece), dict[int, int]()

    def rank(entry: Entry) -> tuple[bool, bool, bool, int, int]:
        region = piece.region(entry)
        is_view = entry.is_tensor and entry.item._base is not None
        return entry is not reference, not entry.is_tensor, is_view, region.start, -region.elements

    entries = sorted(piece.entries, key=rank)
    drawn, cells = entries[:MOST_MEMBERS], cell if number <= DRAWN_GROUPS and len(entries) > 1 else 0
    pairs, complete = pairs_of(entries, drawn, piece, budget)
    return AliasGroup(
        number=number,
        device=piece.device,
        nbytes=piece.nbytes,
        storages=len({entry.memory.identity for entry in piece.entries if entry.is_tensor and entry.memory}),
        cell_bytes=cell,
        members=tuple(member_of(entry, piece, names=names, counters=counters, cell=cells) for entry in drawn),
        found=len(entries),
        pairs=pairs,
        pairs_complete=complete,
    )
