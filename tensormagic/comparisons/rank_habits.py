"""Compares what ranks do: their collectives, and how each one behaves."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from tensormagic.comparisons.rank_files import Facts, common
from tensormagic.reports import Arrivals, Difference, Placed

# Only ranks are compared that should certainly go together: those that reduce gradients together, and no others.
MOST_NAMES = 8
_FEWEST = 2  # passes that have to be alike before it is no chance
_SAME = 1e-3  # norms of one gradient differ by less, relative to them
_APART = 1.001  # factors of one clipping differ by less
_TENSOR = {"tp", "tensor"}


def habits(found: Sequence[Facts]) -> Iterator[Difference]:
    """Yield what differs between ranks, or is the same, where it should not."""
    for group in grouped(found, lambda one: one.row.get("shares")):
        flat = group if group[0].row["kinds"] == ("FSDP1",) else ()
        yield from chain(_inputs(group), _batches(group), _clipping(flat))
    for group in grouped(found, lambda one: one.row.get("replicas")):
        # When all ranks last reported theirs; before the first step is too early.
        if last := max(common([one.buffers for one in group]), default=0):
            yield from _unlike("buffers", group, [one.buffers[last] for one in group], last)
    for group in grouped(found, _mesh):
        how = [{one.names[number]: tuple(how) for number, _, how, _ in one.placed["of"]} for one in group]
        yield from chain(_clipping(group), _unlike("placements", group, how), _hosts(group))


def odd_ranks(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Return the ranks that do not have what most have; of two halves those that do not have what the first has."""
    counts = Counter(values.values())
    common, times = counts.most_common(1)[0]
    if times == 1 or 2 * times <= len(values):
        common = next(iter(values.values()))
    return tuple(rank for rank, value in values.items() if value != common)


def grouped(found: Sequence[Facts], by: Callable[[Facts], Any]) -> Iterator[list[Facts]]:
    """Yield the ranks, several of them, that have the same of something: their group's ranks, or their mesh."""
    groups: dict[Any, list[Facts]] = {}
    for one in found:
        groups.setdefault(by(one), []).append(one)
    return (group for key, group in groups.items() if key and len(group) > 1)


def _forwards(group: Sequence[Facts]) -> dict[int, list[dict[str, Any]]]:
    """Return what the forwards of all of a group were given, by the pass after them, where all saw that."""
    every = (
        (number, [one.passes[number].forward for one in group]) for number in common([one.passes for one in group])
    )
    return {number: forwards for number, forwards in every if all(forwards)}


def _inputs(group: Sequence[Facts]) -> Iterator[Difference]:
    forwards, ranks = _forwards(group), tuple(one.rank for one in group)
    if len(forwards) < _FEWEST:
        return
    seen = {what: [{one[what] for one in each} for each in forwards.values()] for what in ("given", "state", "drew")}
    drew = sum(map(all, seen["drew"]))
    if all(len(each) == 1 for each in seen["given"]):
        same = _same_gradients(group, list(forwards))
        changes = len(set.union(*seen["given"])) > 1
        if same or (changes and drew):  # else they are held against other targets
            yield Difference(what="inputs", step=0, ranks=ranks, count=same * len(forwards), of=len(forwards))
    elif all(len(each) == 1 for each in seen["state"]) and drew >= _FEWEST and 2 * drew >= len(forwards):
        yield Difference(what="generators", step=0, ranks=ranks, count=drew, of=len(forwards))


def _same_gradients(group: Sequence[Facts], passes: Sequence[int]) -> bool:
    """Return whether all brought the same gradients before they were reduced, but for the order of sums."""
    norms = [[one.passes[number].norms for one in group] for number in passes]
    kept = [each for each in norms if all(one is not None and len(one) == len(each[0]) for one in each)]
    same = (np.allclose(each, each[0], rtol=_SAME, atol=0.0, equal_nan=True) and (each[0] > 0).any() for each in kept)
    return len(kept) >= _FEWEST and all(same)


def _batches(group: Sequence[Facts]) -> Iterator[Difference]:
    """Yield where batches are uneven: now and then, or always by the same; sizes that always vary are no batches."""
    sizes = {number: [tuple(one["sizes"]) for one in each] for number, each in _forwards(group).items()}
    uneven = [number for number, each in sizes.items() if all(each) and len(set(each)) > 1]
    steady = len({tuple(each) for each in sizes.values()}) == 1 and len(sizes) >= _FEWEST
    if uneven and (steady or 2 * len(uneven) < len(sizes)):
        first = {one.rank: size for one, size in zip(group, sizes[uneven[0]], strict=True)}
        yield Difference(
            what="batches", step=0, after_pass=uneven[0], ranks=odd_ranks(first), count=len(uneven), of=len(sizes),
            values=tuple((rank, float(size[0])) for rank, size in first.items()), line=group[0].passes[uneven[0]].line,
        )  # fmt: skip


def _unlike(what: Any, group: Sequence[Facts], every: list[dict[str, Any]], step: int = 0) -> Iterator[Difference]:
    """Yield the names under which ranks have something else; and what, where that is words."""
    names = common(every)
    differ = [name for name in names if len({each[name] for each in every}) > 1]
    if differ:
        first = {one.rank: each[differ[0]] for one, each in zip(group, every, strict=True)}
        yield Difference(
            what=what, step=min(step, *(len(one.steps) for one in group)), ranks=odd_ranks(first),
            names=tuple(differ[:MOST_NAMES]), count=len(differ), of=len(names),
            described=tuple((rank, " ".join(each)) for rank, each in first.items() if type(each) is tuple),
        )  # fmt: skip


def _mesh(one: Facts) -> tuple[tuple[Any, ...], ...]:
    """Return the mesh over which the parameters of a rank are spread, that of most dimensions; empty without one."""
    return tuple(map(tuple, max(one.placed.get("meshes", ()), key=lambda mesh: len(mesh[1]), default=())))


def on_tensor_mesh(found: Sequence[Facts]) -> Iterator[list[Facts]]:
    """Yield the ranks that are on one mesh of tensor parallelism, and nothing else."""
    return (group for group in grouped(found, _mesh) if {*group[0].placed["meshes"][0][0]} in ({"tp"}, {"tensor"}))


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
    for step in common([one.steps for one in group]):
        factors = {one.rank: _factor(one, step) for one in group}
        known = [factor for factor in factors.values() if factor is not None]
        if len(known) == len(group) and max(known) > _APART * min(known) and min(known) * _APART < 1:
            values = tuple((rank, factor) for rank, factor in factors.items() if factor is not None)
            odd = odd_ranks({rank: round(factor, 3) for rank, factor in values})
            yield Difference(what="clipping", step=step, ranks=odd, values=values)
            return


def _hosts(group: Sequence[Facts]) -> Iterator[Difference]:
    """Yield a mesh whose tensor-parallel ranks are on several machines, where those of another dimension are on one."""
    mesh, hosts = _mesh(group[0]), {one.rank: one.row.get("host", "") for one in group}
    if not mesh or set(mesh[2]) != set(hosts) or len(set(hosts.values())) < 2:
        return
    names, sizes, ranks = mesh
    table = np.array([hosts[rank] for rank in ranks]).reshape(sizes)
    crosses = {name: bool((table != table.take([0], dim)).any()) for dim, name in enumerate(names)}
    inside = [name for name, size in zip(names, sizes, strict=True) if not crosses[name] and size > 1]
    for name in names:
        if name in _TENSOR and crosses[name] and inside:
            described = tuple((rank, hosts[rank]) for rank in ranks)
            yield Difference(what="hosts", step=0, ranks=tuple(ranks), names=(name, inside[0]), described=described)


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


MOST_SHOWN = 48
_SAME_SIZES = ("all_reduce", "allreduce", "broadcast", "reduce_scatter", "all_gather_into_tensor", "_allgather_base")
_ROOTED = {"broadcast", "reduce", "gather", "scatter"}  # one rank is named in them, by each of the ranks
_STOPPED = {"failed", "interrupted"}
_TIMED_OUT = re.compile("(?i)timed out|timeout")
_FEWEST_STEPS, _LONG = 8, 1.0  # steps, and seconds: for less a rank may come last because its core was busy
_LAG, _SHARE, _OFTEN = 10e-3, 0.25, 0.9  # seconds, and of a step; the share of steps in which one comes last


class _Joint:
    """The collectives of a group from ``first`` on, of ranks that told theirs; with moments, NaN where unknown."""

    def __init__(self, group: str, members: list[Facts]) -> None:
        self.group, self.members, self.ranks = group, members, [one.rank for one in members]
        rows = []  # numbers, kinds and moments of the collectives of the group
        for begun in (one.begun for one in members if one.begun is not None):
            mine = np.array([one[0] == group for one in begun.kinds], bool)[begun.which]
            rows.append((begun.numbers[mine], begun.which[mine], begun.moments[mine]))
        self.first = max(int(numbers[0]) for numbers, _, _ in rows if len(numbers))
        self.last = [int(numbers[-1]) if len(numbers) else self.first - 1 for numbers, _, _ in rows]
        size = max(max(self.last) - self.first + 1, 0)
        self.kinds = np.full((len(rows), size), -1, np.int64)
        self.moments = np.full((len(rows), size), np.nan)
        for at, (numbers, kinds, moments) in enumerate(rows):
            known = numbers >= self.first
            self.kinds[at, numbers[known] - self.first] = kinds[known]
            self.moments[at, numbers[known] - self.first] = moments[known]
        self.ahead = _offsets(members, self.moments)  # of each clock
        self.moments -= self.ahead[:, None]

    def kind(self, row: int, at: int) -> tuple[str, str, str]:
        """Return what a rank did there: kind, sizes, line."""
        begun = self.members[row].begun
        assert begun is not None
        _, _, operation, sizes, line = begun.kinds[int(self.kinds[row, at])]
        return operation.rpartition(":")[2], sizes, line

    def described(self, row: int, at: int) -> tuple[int, str]:
        """Return the same in words, with the rank."""
        operation, sizes, line = self.kind(row, at)
        of = f" of {sizes[1:-1]}" if len(sizes) > 2 else ""
        return self.ranks[row], f"{operation}{of}{f' ({line})' if line else ''}"

    def difference(self, what: Any, at: int, ranks: Iterable[int], rows: Iterable[int], **known: Any) -> Difference:
        """Return that ranks differ there, with what these rows did."""
        described = tuple(self.described(row, at) for row in rows)
        return Difference(
            what=what, step=self.first + at, ranks=tuple(ranks), names=(self.group,), described=described, **known,
        )  # fmt: skip


def _offsets(members: Sequence[Facts], moments: Any) -> Any:
    """Return how far each clock is ahead of the first: nobody leaves a collective before the last has come."""
    if len({one.row.get("host") for one in members}) < 2 or not moments.size:
        return np.zeros(len(members))
    apart = moments - moments[:1]
    known = ~np.isnan(apart).any(axis=0)
    return np.median(apart[:, known], axis=1) if known.any() else np.zeros(len(members))


def _joints(found: Sequence[Facts]) -> list[_Joint]:
    """Return the collectives of each group that several ranks reported, that of most ranks first."""
    told = [one for one in found if one.begun is not None]
    groups = dict.fromkeys(kind[:2] for one in told for kind in one.begun.kinds)  # type: ignore[union-attr]
    members = {group: [one for one in told if one.rank in group[1]] for group in groups}
    several = [_Joint(group, each) for (group, ranks), each in members.items() if len(each) > 1]
    return sorted(several, key=lambda joint: -len(joint.members))


def collectives(found: Sequence[Facts]) -> Iterator[Difference]:
    """Yield where ranks of a group did not begin the same collective, and which comes last again and again."""
    joints = _joints(found)
    parted = [each for each in map(_parted, joints) if each is not None]
    yield from parted or (each for joint in joints[:1] for each in _last(joint))


def _parted(joint: _Joint) -> Difference | None:
    rows, latest = range(len(joint.ranks)), max(joint.last)
    shared = min(joint.last) - joint.first + 1
    for at in range(shared):
        if (joint.kinds[:, at] < 0).any():
            return None  # something is missing in what was recorded: nothing after it is known
        each = {rank: joint.kind(row, at)[:2] for row, rank in enumerate(joint.ranks)}
        if len({(name, sizes if name.startswith(_SAME_SIZES) else "") for name, sizes in each.values()}) > 1:
            return joint.difference("collectives", at, odd_ranks(each), rows)
    behind = [rank for rank, last in zip(joint.ranks, joint.last, strict=True) if last < latest]
    if not behind:
        return _timed_out(joint, shared - 1) if shared > 0 else None
    waits = [row for row in rows if joint.last[row] == latest and joint.members[row].row.get("state") in _STOPPED]
    return joint.difference("absence", shared, behind, waits) if waits and shared >= 0 else None


def _timed_out(joint: _Joint, at: int) -> Difference | None:
    """Return a collective that all ranks began and some gave up: others came too late, or each named another source."""
    ends = [one.began + one.row.get("seconds", 0.0) for one in joint.members] - joint.ahead
    errors = [one.row.get("error", "") for one in joint.members]
    gave_up = [end for end, error in zip(ends, errors, strict=True) if _TIMED_OUT.search(error)]
    moments = joint.moments[:, at]
    newest = [one.begun.moments.max() for one in joint.members if one.begun is not None] - joint.ahead
    if not gave_up or (newest > moments).any():  # of what began after it, in another group, they may be as well
        return None
    first = int(np.argmin(moments))
    late = {
        joint.ranks[row]: float(moment - moments[first]) for row, moment in enumerate(moments) if moment > min(gave_up)
    }
    is_told = late or (joint.kind(first, at)[0] in _ROOTED and all(errors))
    return joint.difference("absence", at, late, [first], values=tuple(late.items())) if is_told else None


def _last(joint: _Joint) -> Iterator[Difference]:
    """Yield a rank that comes last to a collective of nearly every step, and how long the others wait for it.

    Backward is equally long on all of them, as they reduce in it: durations say nothing, moments of arrival do. On a
    GPU these are when the host came, which says little about the device: then nothing is reported.
    """
    begun = joint.members[0].begun
    kinds = begun.kinds if begun is not None else []
    if any(not operation.startswith("gloo:") for _, _, operation, _, _ in kinds):
        return
    ends = [step.at for _, step in sorted(joint.members[0].steps.items())][1:]
    if len(ends) <= _FEWEST_STEPS or ends[-1] - ends[0] < _LONG or np.isnan(joint.moments).all():
        return
    full = np.flatnonzero(~np.isnan(joint.moments).any(axis=0))
    arrived = np.sort(joint.moments[:, full], axis=0)
    waited, last = arrived[-1] - arrived[-2], joint.moments[:, full].argmax(axis=0)
    when = joint.moments[0, full]
    worst = []
    for begin, end in pairwise(ends):
        inside = np.flatnonzero((begin < when) & (when <= end))
        if len(inside):
            worst.append(int(inside[waited[inside].argmax()]))
    if len(worst) < _FEWEST_STEPS:
        return
    row = int(np.bincount(last[worst]).argmax())
    own = [at for at in worst if last[at] == row]
    least, lag = np.quantile(waited[own], [0.25, 0.5])
    step = float(np.median(np.diff(ends)))
    if len(own) >= _OFTEN * len(worst) and least > max(_LAG, _SHARE * step):
        kind = joint.kind(row, int(full[own[-1]]))
        yield Difference(
            what="waits", step=0, ranks=(joint.ranks[row],), count=len(own), of=len(worst),
            values=((joint.ranks[row], float(lag)), (-1, step)), line=kind[2], names=(kind[0],),
        )  # fmt: skip


def arrivals(found: Sequence[Facts]) -> Arrivals | None:
    """Return when each rank came to its last collectives, in the group that parts or the largest; else to its steps."""
    joints = _joints(found)
    joint = next((each for each in joints if _parted(each) is not None), next(iter(joints), None))
    if joint is not None and joint.moments.size:
        group, members, known = joint.group, joint.members, ~np.isnan(joint.moments)
        shown = [int(at) for at in np.flatnonzero(known.any(axis=0))[-MOST_SHOWN:]]
        kinds = [joint.kind(int(known[:, at].argmax()), at) for at in shown]
        moments, numbers = joint.moments[:, shown], [at + joint.first for at in shown]
    else:
        group, members = "", [one for one in found if any(step.at for step in one.steps.values())]
        ends = [max(one.steps) for one in members] if len(members) > 1 else [0]
        # One step behind is none: it was not written yet.
        last = max(ends) if max(ends) > min(ends) + 1 else min(ends)
        numbers = sorted({step for one in members for step in one.steps if step <= last})[-MOST_SHOWN:]
        moments = np.array([[one.steps[at].at if at in one.steps else np.nan for at in numbers] for one in members])
        moments = moments - _offsets(members, moments)[:, None] if numbers else moments
        kinds = [("step", "", "")] * len(numbers)
    if not numbers:
        return None
    seconds = (moments - np.nanmin(moments)).astype(np.float32)
    return Arrivals(
        group=group, ranks=tuple(one.rank for one in members), numbers=tuple(numbers),
        operations=tuple(kind[0] for kind in kinds), lines=tuple(kind[2] for kind in kinds),
        seconds=array("f", seconds.tobytes()),
    )  # fmt: skip
