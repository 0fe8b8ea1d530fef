"""What ranks do that should go together: inputs, generators, buffers, clipping, placements, hosts.

Only ranks are compared of which it is certain that they should: those that reduce gradients together, and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tensormagic.comparisons.rank_files import Facts
from tensormagic.reports import Difference, Placed

MOST_NAMES = 8
_FEWEST = 2  # passes that have to be alike before it is no chance
_APART = 1.001  # factors of one clipping differ by less
_TENSOR = {"tp", "tensor"}


def habits(found: Sequence[Facts]) -> Iterator[Difference]:
    """Yield what differs between ranks, or is the same, where it should not."""
    for group in _grouped(found, "shares"):
        yield from chain(_inputs(group), _batches(group))
    for group in _grouped(found, "replicas"):
        yield from _buffers(group)
    for group in _on_one_mesh(found):
        yield from chain(_clipping(group), _placements(group), _hosts(group))


def odd_ranks(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Return the ranks that do not have what most have; of two halves those that do not have what the first has."""
    counts = Counter(values.values())
    common, times = counts.most_common(1)[0]
    if times == 1 or 2 * times <= len(values):
        common = next(iter(values.values()))
    return tuple(rank for rank, value in values.items() if value != common)


def _grouped(found: Sequence[Facts], by: str) -> Iterator[list[Facts]]:
    """Yield the ranks, several of them, that name the same ranks as their group."""
    groups: dict[tuple[int, ...], list[Facts]] = {}
    for one in found:
        groups.setdefault(one.row.get(by, ()), []).append(one)
    return (group for ranks, group in groups.items() if ranks and len(group) > 1)


# -- data ---------------------------------------------------------------------------------------------------------


def _forwards(group: Sequence[Facts]) -> list[int]:
    """Return the passes before which all of a group saw what their forward was given."""
    told = [{number for number, one in each.passes.items() if one.forward} for each in group]
    return sorted(set.intersection(*told))


def _forward(one: Facts, number: int) -> dict[str, Any]:
    found = one.passes[number].forward
    return found if found is not None else {}


def _inputs(group: Sequence[Facts]) -> Iterator[Difference]:
    passes, ranks = _forwards(group), tuple(one.rank for one in group)
    if len(passes) < _FEWEST:
        return
    first = [_forward(group[0], number) for number in passes]

    def alike(what: str) -> bool:
        return all(
            _forward(one, number)[what] == known[what]
            for one in group
            for number, known in zip(passes, first, strict=True)
        )

    changes = len({known["given"] for known in first}) > 1
    if alike("given"):
        if changes or _same_gradients(group, passes):
            yield Difference(what="inputs", step=0, ranks=ranks, count=len(passes), of=len(passes))
    elif alike("state"):
        drew = sum(all(_forward(one, number)["drew"] for one in group) for number in passes)
        if drew >= _FEWEST and 2 * drew >= len(passes):
            yield Difference(what="generators", step=0, ranks=ranks, count=drew, of=len(passes))


def _same_gradients(group: Sequence[Facts], passes: Sequence[int]) -> bool:
    """Return whether all brought the same gradients, to the bit, before they were reduced."""
    told = [[one.passes[number] for one in group] for number in passes]
    kept = [each for each in told if all(one.norms is not None for one in each)]
    same = (len({(one.loss, one.norms.tobytes()) for one in each}) == 1 and (each[0].norms > 0).any() for each in kept)
    return len(kept) >= _FEWEST and all(same)


def _batches(group: Sequence[Facts]) -> Iterator[Difference]:
    """Yield where batches are uneven: now and then, or always by the same; sizes that always vary are no batches."""
    passes = _forwards(group)
    sizes = {number: [tuple(_forward(one, number)["sizes"]) for one in group] for number in passes}
    uneven = [number for number in passes if all(sizes[number]) and len(set(sizes[number])) > 1]
    steady = len({tuple(each) for each in sizes.values()}) == 1 and len(passes) >= _FEWEST
    if uneven and (steady or 2 * len(uneven) < len(passes)):
        first = uneven[0]
        ranks = odd_ranks({one.rank: size for one, size in zip(group, sizes[first], strict=True)})
        values = tuple((one.rank, float(size[0])) for one, size in zip(group, sizes[first], strict=True))
        line = group[0].passes[first].line
        yield Difference(
            what="batches", step=0, after_pass=first, ranks=ranks, count=len(uneven), of=len(passes), values=values,
            line=line,
        )  # fmt: skip


def _buffers(group: Sequence[Facts]) -> Iterator[Difference]:
    """Yield buffers that were not the same when all ranks last told theirs; before the first step is too early."""
    steps = set.intersection(*(set(one.buffers) for one in group)) - {0}
    if not steps:
        return
    last = max(steps)
    every = [one.buffers[last] for one in group]
    names = [name for name in every[0] if all(name in each for each in every)]
    differ = [name for name in names if len({each[name] for each in every}) > 1]
    if differ:
        odd = odd_ranks({one.rank: each[differ[0]] for one, each in zip(group, every, strict=True)})
        yield Difference(
            what="buffers", step=last, ranks=odd, names=tuple(differ[:MOST_NAMES]), count=len(differ), of=len(names)
        )


# -- shards -------------------------------------------------------------------------------------------------------


def _mesh(one: Facts) -> tuple[Any, ...] | None:
    """Return the mesh over which the parameters of a rank are spread, that of most dimensions."""
    meshes = one.placed.get("meshes", ())
    found = max(meshes, key=lambda mesh: len(mesh[1]), default=None)
    return None if found is None else (tuple(found[0]), tuple(found[1]), tuple(found[2]))


def _on_one_mesh(found: Sequence[Facts]) -> Iterator[list[Facts]]:
    groups: dict[tuple[Any, ...], list[Facts]] = {}
    for one in found:
        if (mesh := _mesh(one)) is not None:
            groups.setdefault(mesh, []).append(one)
    return (group for group in groups.values() if len(group) > 1)


def _factor(one: Facts, step: int) -> float | None:
    """Return by what all gradients of a rank were scaled between its last backward and a step; None if unevenly."""
    passes, used = one.steps[step].passes, one.steps[step].used
    held = one.passes[passes[-1]].held if passes else None
    if held is None or used is None:
        return None
    size = min(len(held), len(used))
    both = (held[:size] > 0) & (used[:size] > 0) & np.isfinite(held[:size]) & np.isfinite(used[:size])
    factors = used[:size][both] / held[:size][both]
    if not len(factors) or factors.max() > _APART * factors.min():
        return None
    return float(np.median(factors))


def _clipping(group: Sequence[Facts]) -> Iterator[Difference]:
    for step in sorted(set.intersection(*(set(one.steps) for one in group))):
        factors = {one.rank: _factor(one, step) for one in group}
        known = [factor for factor in factors.values() if factor is not None]
        if len(known) == len(group) and max(known) > _APART * min(known) and min(known) * _APART < 1:
            values = tuple((rank, factor) for rank, factor in factors.items() if factor is not None)
            odd = odd_ranks({rank: round(factor, 3) for rank, factor in values})
            yield Difference(what="clipping", step=step, ranks=odd, values=values)
            return


def _placements(group: Sequence[Facts]) -> Iterator[Difference]:
    """Yield parameters that ranks of one mesh hold in other placements."""
    told = [{one.names[number]: tuple(how) for number, _, how, _ in one.placed["of"]} for one in group]
    names = [name for name in told[0] if all(name in each for each in told)]
    differ = [name for name in names if len({each[name] for each in told}) > 1]
    if differ:
        how = {one.rank: each[differ[0]] for one, each in zip(group, told, strict=True)}
        yield Difference(
            what="placements", step=0, ranks=odd_ranks(how), names=tuple(differ[:MOST_NAMES]), count=len(differ),
            of=len(names), told=tuple((rank, " ".join(each)) for rank, each in how.items()),
        )  # fmt: skip


def _hosts(group: Sequence[Facts]) -> Iterator[Difference]:
    """Yield a mesh whose tensor-parallel ranks are on several machines, where those of another dimension are on one."""
    mesh, hosts = _mesh(group[0]), {one.rank: one.row.get("host", "") for one in group}
    if mesh is None or set(mesh[2]) != set(hosts) or len(set(hosts.values())) < 2:
        return
    names, sizes, ranks = mesh
    table = np.array([hosts[rank] for rank in ranks]).reshape(sizes)
    crosses = {}
    for dim, name in enumerate(names):
        lines = np.moveaxis(table, dim, -1).reshape(-1, sizes[dim])
        crosses[name] = bool((lines != lines[:, :1]).any())
    inside = [name for name, size in zip(names, sizes, strict=True) if not crosses[name] and size > 1]
    for name in names:
        if name in _TENSOR and crosses[name] and inside:
            told = tuple((rank, hosts[rank]) for rank in ranks)
            yield Difference(what="hosts", step=0, ranks=tuple(ranks), names=(name, inside[0]), told=told)


def spread_of(one: Facts) -> tuple[Placed, ...]:
    """Return how the parameters of a rank are spread."""
    meshes = one.placed.get("meshes", ())
    return tuple(
        Placed(
            name=one.names[number], shape=tuple(shape), placements=tuple(how), mesh_names=tuple(meshes[mesh][0]),
            mesh_sizes=tuple(meshes[mesh][1]), mesh_ranks=tuple(meshes[mesh][2]),
        )
        for number, mesh, how, shape in one.placed.get("of", ())
    )  # fmt: skip
