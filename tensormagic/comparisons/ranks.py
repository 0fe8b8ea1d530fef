"""Holds the ranks of a run against each other: from what each wrote down, or from their reports.

Only what must be the same is compared: between ranks that hold the same parameters, as DistributedDataParallel says.
Where that is not known nothing is said of it.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from tensormagic.comparisons.rank_files import END, Facts, common, of_report, read_file
from tensormagic.comparisons.rank_habits import (
    MOST_NAMES,
    arrivals,
    collectives,
    grouped,
    habits,
    odd_ranks,
    on_tensor_mesh,
    spread_of,
)
from tensormagic.errors import ReportFormatError, TraceError
from tensormagic.reports import UNTOUCHED, Difference, Gap, RankReport, TraceReport
from tensormagic.reports.base import given_path

_UNUSED = "Expected to have finished reduction"  # torch's words where a wrapper still waits for gradients
_ALIKE = 1e-4  # norms of one tensor differ by less, relative to the larger: sums may be in another order

Cut = frozenset[int]
Given = str | os.PathLike[str] | TraceReport | RankReport | Facts


def ranks_of(of: Given | Iterable[Given]) -> RankReport:
    """Return ranks compared: of folders and files that they wrote, of their reports, or of what this returned before.

    What is compared is what all of them wrote, so it does not matter in which order, and how often, it was merged.

    Raises:
        ReportFormatError: where there is no such folder, or no file of a rank in it.
        TraceError: where one is not a report, or not of a rank, or two are of the same.
    """
    several = isinstance(of, Iterable) and not isinstance(of, str | os.PathLike)
    given: list[Any] = list(of) if several else [of]  # type: ignore[arg-type]
    found = sorted((one for each in given for one in _written(each)), key=lambda one: one.rank)
    every = [one.rank for one in found]
    if not found:
        raise TraceError("no report was given: tensormagic.ranks() takes a folder, or one report of each rank")
    if len(set(every)) < len(every):
        raise TraceError(f"one report of each rank is needed, but these are of ranks {every}")
    if len({one.by_pass for one in found}) > 1:
        raise TraceError("some of these are files that ranks wrote, some trace reports: give one kind for all ranks")
    return compare_ranks(found, ", ".join(sorted({one.folder for one in found} - {""})))


def _written(given: Any) -> Sequence[Facts]:
    """Return what the ranks in one part wrote."""
    if isinstance(given, Facts):
        return [given]
    if isinstance(given, TraceReport):
        return [of_report(given)]
    if isinstance(given, RankReport):
        if given.ranks and not given.written:
            raise TraceError("a saved report of ranks cannot be merged: it holds what was found, not what was compared")
        return given.written
    if not isinstance(given, str | os.PathLike):
        kind = type(given).__name__
        raise TraceError(f"tensormagic.ranks() takes a folder, or the trace report of each rank, but was given {kind}")
    path = given_path(given, "ranks()")
    try:
        files = [path] if path.is_file() else sorted(path.glob("rank*.jsonl"))  # none where it is not a folder
        what = "has no file rank*.jsonl" if path.is_dir() else "is no folder"
    except OSError as error:  # such as a name that is too long
        files, what = [], f"cannot be read ({error.strerror})"
    if not files:
        written = f"each rank writes one with tensormagic.trace(ranks={str(path)!r})"
        raise ReportFormatError(f"{str(path)!r} {what}: {written}")
    return [read_file(file) for file in files]


def compare_ranks(found: Sequence[Facts], title: str) -> RankReport:
    """Return a report of what ranks wrote, given in order of rank."""
    written, newest = found, max(found, key=lambda one: one.began)
    older = [one for one in written if one.world != newest.world]  # an earlier run used the folder, of other ranks
    found = [one for one in written if one.world == newest.world]
    gaps = [Gap("ranks", f"rank {one.rank}: {one.gap}") for one in found if one.gap]
    gaps += [Gap("ranks", f"rank {one.rank} was left out: what it wrote is of an earlier run") for one in older]
    if _averaged(found):
        found = [replace(one, row=one.row | {"replicas": tuple(each.rank for each in found)}) for one in found]
    names = found[0].names
    bad: dict[int, list[Facts]] = {}  # by pass, the ranks on which it was not finite
    for number in common([one.passes for one in found]):
        passes = [(one, one.passes[number]) for one in found]
        bad[number] = [one for one, made in passes if not (made.finite and math.isfinite(made.loss or 0.0))]
    bad_pass, odd = next(((number, each) for number, each in bad.items() if each), (0, []))
    if len(odd) == len(found):  # all are alike
        bad_pass, odd = 0, []
    norms = [{at: made.norms for at, made in one.passes.items() if made.norms is not None} for one in found]
    at_pass, brought = _last_of_all(found, names, norms, bad_pass)
    at_step, used = _last_of_all(found, names, [_used(one) for one in found])
    alike = [each for each in _alike(found) if all(one.names == each[0][0].names for one in each[0])]
    differences = [each for group, cut in alike for each in _differences(group, cut)]
    differences += [*habits(found), *collectives(found)]
    return RankReport(
        title=title, world_size=newest.world, ranks=tuple(one.made_row() for one in found), names=tuple(names),
        compared_pass=at_pass, compared_step=0 if found[0].by_pass else at_step,
        compared_after=at_step if found[0].by_pass else 0, pass_norms=brought, step_norms=used,
        differences=tuple(differences),
        bad_pass=bad_pass, bad_ranks=tuple(one.rank for one in odd),
        bad_line=odd[0].passes[bad_pass].line if odd else "", bad_passed=bool(odd) and not [*bad.values()][-1],
        spread=spread_of(found[0]), arrivals=arrivals(found),
        gaps=tuple(gaps), written=tuple(written),
    )  # fmt: skip


def _used(facts: Facts) -> dict[int, Any]:
    return {number: one.used for number, one in facts.steps.items() if one.used is not None}


def _last_of_all(
    found: Sequence[Facts], names: list[str], columns: Sequence[dict[int, Any]], wanted: int = 0
) -> tuple[int, Any]:
    """Return the last number that all have a column for, or the wanted one, and these columns, joined by ``names``."""
    numbers = common(columns)
    if not numbers:
        return 0, array("f")
    at, joined = wanted if wanted in numbers else numbers[-1], array("f")
    for one, own in zip(found, columns, strict=True):
        norms = dict(zip(one.names, own[at].tolist(), strict=False))
        joined.extend(norms.get(name, UNTOUCHED) for name in names)
    return at, joined


def _alike(found: Sequence[Facts]) -> Iterator[tuple[list[Facts], Cut]]:
    """Yield replicas, and ranks that shards leave some parameters whole, with the numbers of those that are cut."""
    yield from ((group, frozenset()) for group in grouped(found, lambda one: one.row.get("replicas")))
    for group in chain(grouped(found, lambda one: one.row.get("shares")), on_tensor_mesh(found)):
        cut = frozenset(number for number, *_ in group[0].placed.get("of", ()))
        if cut and not group[0].row.get("replicas"):
            yield group, cut


def _averaged(found: Sequence[Facts]) -> bool:
    """Return whether ranks are replicas that average by hand: steps use the same gradients, passes bring others."""
    if len(found) < 2 or any(one.row.get("kinds") for one in found):
        return False
    several = 0
    for step in common([_used(one) for one in found]):
        passes = [(one, one.steps[step].passes) for one in found]
        brought = [one.passes[each[-1]].norms if each else None for one, each in passes]
        used, apart = _apart([one.steps[step].used for one in found])
        if apart:
            return False
        if all(norms is not None for norms in brought):
            several += any(at < used.shape[1] and used[0, at] > 0 for at in _apart(brought)[1])
    return several > 1


def _apart(columns: Sequence[Any], cut: Cut = frozenset()) -> tuple[Any, list[int]]:
    """Return norms of ranks as a table, and the numbers of the parameters of which they differ."""
    size = min(map(len, columns))
    table = np.stack([column[:size] for column in columns]).astype(np.float64)
    low, high = table.min(axis=0), table.max(axis=0)
    with np.errstate(all="ignore"):  # infinity less infinity
        apart = (high - low) > _ALIKE * np.abs(high)
    some_nan = np.isnan(table).any(axis=0) & ~np.isnan(table).all(axis=0)
    return table, [int(at) for at in np.flatnonzero(apart | some_nan) if at not in cut]


def _differences(group: Sequence[Facts], cut: Cut) -> Iterator[Difference]:
    """Yield what differs first between ranks that hold the same parameters: what follows from that is left out."""
    rates = _rates(group)
    if rates is not None:
        yield rates
    every = common([one.hashes for one in group])
    last = max(every, default=0)  # what the ranks hold may have been averaged after it parted, as local SGD does
    same = last if every and _hashed(group, last)[0].any() and not _hashed(group, last, cut)[1] else -1
    start = _of_hashes(group, "start", [0] if same < 0 else (), cut)
    if start is not None:
        yield start
        return
    gradients = _of_gradients(group, cut, same)
    first = min((one.step for one in (rates, gradients) if one is not None), default=math.inf)
    steps = [step for step in every if max(same, 0) < step < first]
    if len({len(one.steps) for one in group}) > 1 and any(one.row.get("state") != "finished" for one in group):
        steps = [step for step in steps if step < END]  # where one was stopped, the others have moved on
    drifted = _of_hashes(group, "parameters", steps, cut)
    yield from (each for each in (drifted, gradients) if each is not None)


def _rates(group: Sequence[Facts]) -> Difference | None:
    for step in common([one.steps for one in group]):
        rates = {one.rank: one.steps[step].rates for one in group}
        if len(set(rates.values())) > 1:
            values = tuple((rank, found[0] if found else math.nan) for rank, found in rates.items())
            return Difference(what="rates", step=step, ranks=odd_ranks(rates), values=values)
    return None


def _hashed(group: Sequence[Facts], step: int, cut: Cut = frozenset()) -> tuple[Any, list[int]]:
    """Return hashes of a step as a table of ranks, and the numbers of the parameters of which they differ."""
    size = min(len(group[0].names), *(len(one.hashes[step]) for one in group))
    table = np.stack([one.hashes[step][:size] for one in group])
    return table, [int(at) for at in np.flatnonzero((table != table[0]).any(axis=0)) if at not in cut]


def _of_hashes(group: Sequence[Facts], what: Any, steps: Iterable[int], cut: Cut) -> Difference | None:
    for step in steps:
        if not all(step in one.hashes for one in group):
            continue
        table, differ = _hashed(group, step, cut)
        if differ:
            names = tuple(group[0].names[at] for at in differ[:MOST_NAMES])
            odd = odd_ranks({one.rank: table[at].tobytes() for at, one in enumerate(group)})
            of = len({*np.flatnonzero((table != 0).any(axis=0))} - cut)
            found = Difference(what=what, step=step, ranks=odd, names=names, count=len(differ), of=of)
            if step < END:
                return found
            made = tuple((one.rank, float(len(one.steps))) for one in group)
            if len({steps for _, steps in made}) > 1:
                return replace(found, what="end", step=0, values=made)
            return replace(found, step=int(made[0][1]))
    return None


def _of_gradients(group: Sequence[Facts], cut: Cut, same: int) -> Difference | None:
    for step in (step for step in common([_used(one) for one in group]) if step > same):
        table, differ = _apart([one.steps[step].used[: len(group[0].names)] for one in group], cut)
        if differ:
            first = differ[0]
            rounded = {one.rank: float(f"{table[at, first]:.3g}") for at, one in enumerate(group)}
            return Difference(
                what="gradients", step=0 if group[0].by_pass else step, ranks=odd_ranks(rounded), count=len(differ),
                after_pass=step if group[0].by_pass else 0,
                names=tuple(group[0].names[at] for at in differ[:MOST_NAMES]),
                of=len({*np.flatnonzero((table >= 0).any(axis=0))} - cut),
                values=tuple((one.rank, float(table[at, first])) for at, one in enumerate(group)),
                reduced=_reduced(group, step, table, differ),
            )  # fmt: skip
    return None


def _reduced(group: Sequence[Facts], step: int, table: Any, differ: list[int]) -> Any:
    """Return whether the passes before a step reduced gradients: see `Difference`."""
    if any(_UNUSED in one.row.get("error", "") for one in group):
        return "unused"
    if "DTensor" in group[0].row["kinds"]:
        return "whole"
    facts = group[0]
    answers = [facts.passes[number].reduced for number in facts.steps[step].passes]
    if not answers or None in answers or (facts.by_pass and len(set(answers)) > 1):
        return ""  # of reports not every step is known: passes of several may stand before one
    before = [max(one.steps[step].passes, default=0) for one in group]
    made = [
        sum(each.reduced is True for number, each in one.passes.items() if number <= last)
        for one, last in zip(group, before, strict=True)
    ]
    if len(set(made)) > 1:
        return "apart"
    if all(answers):
        return "kept" if _kept(group, step, table, differ) else "all"
    return "some" if any(answers) else "none"


def _kept(group: Sequence[Facts], step: int, table: Any, differ: list[int]) -> bool:
    """Return whether each rank used just what its only pass brought: other gradients were reduced in it, not these."""
    passes = [one.steps[step].passes for one in group]
    brought = [one.passes[each[0]].norms for one, each in zip(group, passes, strict=True) if len(each) == 1]
    if len(brought) < len(group) or any(norms is None or len(norms) <= differ[-1] for norms in brought):
        return False
    return all(not _apart([norms[differ], used[differ]])[1] for norms, used in zip(brought, table, strict=True))
