"""Who shares memory with whom, over everything a namespace reaches: groups by memory, members, exact overlaps.

Only memory that is reached by more than one name is looked at closely, and of that only as much as is shown: ten
thousand tensors of which none shares anything cost one sort.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensormagic.collectors.aliasing.alias_members import member_of, members_in_order
from tensormagic.collectors.aliasing.alias_pairs import PairBudget, pairs_of
from tensormagic.collectors.aliasing.coverage import cell_bytes
from tensormagic.collectors.aliasing.sharing import Entry, Shared, by_memory, gather, with_parts
from tensormagic.collectors.objects.namespace import Walk
from tensormagic.collectors.objects.naming import nearest, telling
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import AliasGroup, AliasReport, Gap

LIMIT = 200_000
MOST_GROUPS = 200
DRAWN_GROUPS = 24  # of these it is counted which part of each cell every member reads
MOST_MEMBERS = 32


def collect_aliases(namespace: Mapping[str, object], *, only: Mapping[str, object] | None = None) -> AliasReport:
    """Return who shares memory with whom. Never raises for an odd tensor, writes nothing, keeps nothing.

    Args:
        namespace: The person's names.
        only: Show only memory in which one of these lies; what is in here need not be in the namespace.
    """
    with quiet():
        asked = dict(only or {})
        walk = Walk({**namespace, **_unnamed(asked, namespace)}, LIMIT, items=LIMIT)
        entries = gather(walk)
        pieces = by_memory(with_parts(entries))
        if only is not None:
            wanted = {id(entry.item) for entry in gather(Walk(asked, LIMIT, items=LIMIT))}
            pieces = [piece for piece in pieces if any(_belongs(entry, wanted) for entry in piece.entries)]
        return _report(pieces, entries, walk, tuple(asked))


def _unnamed(asked: dict[str, object], namespace: Mapping[str, object]) -> dict[str, object]:
    """Return what was asked for that no name of the namespace reaches as such: ``a[0]``, ``net.weight.data``."""
    return {name: item for name, item in asked.items() if name not in namespace}


def _belongs(entry: Entry, wanted: set[int]) -> bool:
    return id(entry.item) in wanted or (entry.part_of is not None and id(entry.part_of.item) in wanted)


def _report(pieces: list[Shared], entries: list[Entry], walk: Walk, asked: tuple[str, ...]) -> AliasReport:
    shared = [piece for piece in pieces if _is_shared(piece)]
    met = {id(entry): at for at, entry in enumerate(entries)}
    shared.sort(key=lambda piece: (-min(len(piece.entries), MOST_MEMBERS), _first(piece, met)))
    alone = [piece for piece in pieces if not _is_shared(piece)]
    names = {
        id(entry.item): nearest(telling(entry.names))[0] for piece in shared[:MOST_GROUPS] for entry in piece.entries
    }
    budget = PairBudget()
    groups = tuple(_group(at, piece, names, budget) for at, piece in enumerate(shared[:MOST_GROUPS], 1))
    tensors = sum(entry.is_tensor for entry in entries)
    return AliasReport(
        groups=groups,
        groups_found=len(shared),
        alone=len(alone),
        alone_bytes=sum(piece.nbytes for piece in alone),
        tensors=tensors,
        arrays=len(entries) - tensors,
        asked=asked,
        looked=walk.looked,
        gaps=_gaps(walk),
    )


def _first(piece: Shared, met: Mapping[int, int]) -> int:
    """Return when the first of what lies in a piece of memory was met on the walk."""
    return min(met.get(id(entry.part_of or entry), len(met)) for entry in piece.entries)


def _gaps(walk: Walk) -> tuple[Gap, ...]:
    reason = f"only {walk.looked} of the names, items and attributes there are were looked through"
    return () if walk.complete else (Gap("aliases", reason),)


def _is_shared(piece: Shared) -> bool:
    """Return whether more than one name leads there; the gradient of a tensor with two names has two by itself."""
    names = (name for name in telling(piece.entries[0].names) if not name.endswith(".grad"))
    return len(piece.entries) > 1 or len(list(names)) > 1


def _group(number: int, piece: Shared, names: Mapping[int, str], budget: PairBudget) -> AliasGroup:
    cell = cell_bytes(piece)
    entries = members_in_order(piece)
    drawn = entries[:MOST_MEMBERS]
    counters: dict[int, int] = {}
    cells = cell if number <= DRAWN_GROUPS and len(entries) > 1 else 0
    members = tuple(member_of(entry, piece, names=names, counters=counters, cell=cells) for entry in drawn)
    pairs, complete = pairs_of(entries, drawn, piece, budget)
    return AliasGroup(
        number=number,
        device=piece.device,
        nbytes=piece.nbytes,
        storages=len({entry.memory.identity for entry in piece.entries if entry.is_tensor and entry.memory}),
        cell_bytes=cell,
        members=members,
        found=len(entries),
        pairs=pairs,
        pairs_complete=complete,
    )
