"""Holds the ranks of a run against each other: from what each wrote down, or from their reports.

Only what must be the same is compared: between ranks that hold the same parameters, as DistributedDataParallel says.
Where that is not known nothing is said of it.
"""

from __future__ import annotations

import base64
import json
import math
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tensormagic.errors import ReportFormatError, TraceError
from tensormagic.reports import UNTOUCHED, Difference, Gap, RankReport, RankRow, TraceReport

FORMAT = 1
MOST_NAMES = 8
_ALIKE = (
    1e-4  # norms of what must be one tensor differ by less, relative to the larger: the sums may be in another order
)

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class OnePass:
    """What a rank wrote of a pass: see `Pass`; ``norms`` by parameter, where they were written."""

    loss: float | None
    finite: bool
    reduced: bool | None
    line: str
    norms: Any = None


@dataclass(slots=True)
class OneStep:
    """What a rank wrote of a step of an optimizer: rates, what it used, and the passes since the step before."""

    rates: tuple[float, ...]
    used: Any
    passes: list[int]


@dataclass(slots=True)
class Facts:
    """Everything that a rank wrote."""

    row: dict[str, Any] = field(default_factory=dict)
    world: int = 1
    names: list[str] = field(default_factory=list)
    passes: dict[int, OnePass] = field(default_factory=dict)
    steps: dict[int, OneStep] = field(default_factory=dict)
    hashes: dict[int, Any] = field(default_factory=dict)
    began: float = 0.0
    gap: str = ""
    by_pass: bool = False  # whether a step is called by the pass before it: its own number is not known

    @property
    def rank(self) -> int:
        """Its number."""
        return int(self.row["rank"])

    def made_row(self) -> RankRow:
        """Return what is said of the rank itself."""
        last = self.passes[max(self.passes)] if self.passes else None
        loss, line = (last.loss, last.line) if last is not None else (None, "")
        return RankRow(**{"steps": len(self.steps), **self.row}, passes=len(self.passes), loss=loss, line=line)


def read_ranks(folder: Path) -> RankReport:
    """Return what the ranks wrote into a folder, held against each other; also while they run.

    Raises:
        ReportFormatError: where there is no such folder, or no file of a rank in it.
    """
    files = sorted(folder.glob("rank*.jsonl")) if folder.is_dir() else []
    if not files:
        what = "has no file rank*.jsonl" if folder.is_dir() else "is no folder"
        raise ReportFormatError(
            f"{str(folder)!r} {what}: each rank writes one with tensormagic.trace(ranks={str(folder)!r})"
        )
    found = [_read(path) for path in files]
    return compare_ranks(found, str(folder))


def ranks_of(reports: Iterable[TraceReport]) -> RankReport:
    """Return the reports of all ranks, held against each other: as ``rc[:].pull("r")`` gives them.

    Raises:
        TraceError: where one is no report, or not of a rank, or two are of the same.
    """
    given = list(reports) if isinstance(reports, Iterable) else [reports]
    if any(not isinstance(one, TraceReport) for one in given):
        raise TraceError("tensormagic.ranks() takes a folder, or the trace report of each rank")
    found = [_of_report(report) for report in given]
    every = [one.rank for one in found]
    if not found or len(set(every)) < len(every):
        raise TraceError(f"one report of each rank is needed, but these are of ranks {every}")
    return compare_ranks(sorted(found, key=lambda one: one.rank), "")


# -- reading ------------------------------------------------------------------------------------------------------


def _read(path: Path) -> Facts:
    """Return what stands in a file; a last line that is cut, because the rank was killed, is left out."""
    facts, since = Facts(), list[int]()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if reason := _refused(facts, line, since):
                facts.gap = f"line {number} of {path.name} cannot be read, and what follows it was left out: {reason}"
                break
    if "rank" not in facts.row:
        raise ReportFormatError(f"{str(path)!r} is no file that a rank wrote{facts.gap and f': {facts.gap}'}")
    return facts


def _refused(facts: Facts, line: bytes, since: list[int]) -> str:
    """Take what a line says; returns why it cannot be taken."""
    try:
        _take(facts, json.loads(line), since)
    except (ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _take(facts: Facts, record: Mapping[str, Any], since: list[int]) -> None:
    kind = record["k"]
    if kind == "rank":
        if record["v"] != FORMAT:
            raise ValueError(f"its format is {record['v']}, and this version reads {FORMAT}")
        facts.row = {"rank": int(record["rank"]), "host": str(record["host"]), "pid": int(record["pid"])}
        facts.world, facts.began = int(record["world"]), float(record["at"])
    elif kind == "names":
        facts.names += map(str, record["names"])
    elif kind == "place":
        facts.row |= {"kinds": tuple(record["kinds"]), "replicas": tuple(record["replicas"])}
    elif kind == "pass":
        norms = _numbers(record["norms"])
        facts.passes[record["n"]] = OnePass(record["loss"], record["finite"], record["reduced"], record["line"], norms)
        since.append(record["n"])
    elif kind == "step":
        facts.steps[record["n"]] = OneStep(tuple(record["lr"]), _numbers(record["used"]), list(since))
        since.clear()
    elif kind == "hash":
        facts.hashes[record["step"]] = np.frombuffer(base64.b64decode(record["of"]), np.uint64)
    elif kind == "end":
        facts.row |= {"state": record["state"], "error": record["error"], "peak": int(record["peak"])}
    if "at" in record:
        facts.row["seconds"] = float(record["at"]) - facts.began


def _numbers(packed: str | None) -> Any:
    return None if packed is None else np.frombuffer(base64.b64decode(packed), np.float32)


def _of_report(report: TraceReport) -> Facts:
    if report.parallel is None:
        raise TraceError("this is a report of a run of one process: each rank has to trace its own part of the run")
    place, passes = report.parallel, report.passes
    facts = Facts(world=place.world_size, names=[one.name for one in report.parameters], by_pass=True)
    everybody = tuple(range(place.world_size)) if place.kinds == ("DDP",) else ()
    facts.row = {
        "rank": place.rank, "state": report.state, "error": report.error, "kinds": tuple(place.kinds),
        "replicas": everybody, "seconds": report.seconds,
        "steps": sum(one.steps for one in report.training.optimizers) if report.training is not None else 0,
    }  # fmt: skip
    since: list[int] = []
    for at, one in enumerate(passes):
        line = location.label if (location := report.location(one.location)) is not None else ""
        norms = np.array([series.norms[at] for series in report.parameters], np.float32)
        facts.passes[one.number] = OnePass(one.value, one.finite, one.reduced, line, norms)
        since.append(one.number)
        used = np.array(
            [series.stepped[at] if series.stepped else UNTOUCHED for series in report.parameters], np.float32
        )
        if (used != UNTOUCHED).any():
            facts.steps[one.number] = OneStep((), used, since)
            since = []
    return facts


# -- holding against each other -----------------------------------------------------------------------------------


def compare_ranks(found: Sequence[Facts], title: str) -> RankReport:
    """Return a report of what ranks wrote, given in order of rank."""
    world = max(one.world for one in found)
    gaps = [Gap("ranks", f"rank {one.rank}: {one.gap}") for one in found if one.gap]
    gaps += [Gap("ranks", f"rank {one.rank} is of another run, of more ranks") for one in found if one.rank >= world]
    found = [one for one in found if one.rank < world]
    names = found[0].names
    bad_pass, bad_ranks, bad_line = _first_bad(found)
    at_pass, brought = _last_of_all(found, names, {one.rank: _norms(one) for one in found}, bad_pass)
    at_step, used = _last_of_all(found, names, {one.rank: _used(one) for one in found})
    differences = [each for group in _groups(found) for each in _differences(group)]
    return RankReport(
        title=title, world_size=world, ranks=tuple(one.made_row() for one in found), names=tuple(names),
        compared_pass=at_pass, compared_step=0 if found[0].by_pass else at_step,
        compared_after=at_step if found[0].by_pass else 0, brought=brought, used=used, differences=tuple(differences),
        bad_pass=bad_pass, bad_ranks=bad_ranks, bad_line=bad_line, gaps=tuple(gaps),
    )  # fmt: skip


def _norms(facts: Facts) -> dict[int, Any]:
    return {number: one.norms for number, one in facts.passes.items() if one.norms is not None}


def _used(facts: Facts) -> dict[int, Any]:
    return {number: one.used for number, one in facts.steps.items() if one.used is not None}


def _common(every: Sequence[Mapping[Key, Any]]) -> list[Key]:
    """Return the keys that all have, in the order of the first."""
    others = every[1:]
    return [key for key in every[0] if all(key in other for other in others)] if every else []


def _last_of_all(
    found: Sequence[Facts], names: list[str], columns: Mapping[int, dict[int, Any]], wanted: int = 0
) -> tuple[int, Any]:
    """Return the last number that all ranks have a column for, or the wanted one, and these columns, joined."""
    common = _common(list(columns.values()))
    if not common:
        return 0, array("f")
    at = wanted if wanted in common else common[-1]
    rows = [_aligned(one, names, columns[one.rank][at]) for one in found]
    return at, array("f", np.concatenate(rows).tobytes())


def _aligned(facts: Facts, names: list[str], column: Any) -> Any:
    """Return a column of a rank in the order of the names; `UNTOUCHED` where it has none of that name."""
    size = len(names)
    if facts.names[:size] == names:
        return np.concatenate([column[:size], np.full(max(size - len(column), 0), UNTOUCHED, np.float32)])
    place = {name: at for at, name in enumerate(facts.names[: len(column)])}
    return np.array([column[place[name]] if name in place else UNTOUCHED for name in names], np.float32)


def _groups(found: Sequence[Facts]) -> Iterator[list[Facts]]:
    """Yield the ranks that hold the same parameters by the same names, where there are several."""
    by: dict[tuple[int, ...], list[Facts]] = {}
    for one in found:
        by.setdefault(one.row.get("replicas", ()), []).append(one)
    for replicas, group in by.items():
        if replicas and len(group) > 1 and all(one.names == group[0].names for one in group):
            yield group


def _differences(group: Sequence[Facts]) -> Iterator[Difference]:
    """Yield what differs first between ranks that hold the same parameters: what follows from that is not told."""
    rates = _rates(group)
    if rates is not None:
        yield rates
    start = _of_hashes(group, "start", [0])
    if start is not None:
        yield start
        return
    gradients = _of_gradients(group)
    first = min((one.step for one in (rates, gradients) if one is not None), default=math.inf)
    steps = [step for step in _common([one.hashes for one in group]) if 0 < step < first]
    drifted = _of_hashes(group, "parameters", steps)
    yield from (each for each in (drifted, gradients) if each is not None)


def _rates(group: Sequence[Facts]) -> Difference | None:
    for step in _common([one.steps for one in group]):
        rates = {one.rank: one.steps[step].rates for one in group}
        if len(set(rates.values())) > 1:
            values = tuple((rank, found[0] if found else math.nan) for rank, found in rates.items())
            return Difference(what="rates", step=step, ranks=_odd(rates), values=values)
    return None


def _of_hashes(group: Sequence[Facts], what: Any, steps: Iterable[int]) -> Difference | None:
    for step in steps:
        if not all(step in one.hashes for one in group):
            continue
        size = min(len(one.hashes[step]) for one in group)
        table = np.stack([one.hashes[step][:size] for one in group])
        differ = np.flatnonzero((table != table[0]).any(axis=0))
        if len(differ):
            names = tuple(group[0].names[at] for at in differ[:MOST_NAMES])
            odd = _odd({one.rank: table[at].tobytes() for at, one in enumerate(group)})
            return Difference(
                what=what, step=step, ranks=odd, names=names, count=len(differ), of=int((table[0] != 0).sum())
            )
    return None


def _of_gradients(group: Sequence[Facts]) -> Difference | None:
    for step in _common([_used(one) for one in group]):
        used = [one.steps[step].used for one in group]
        size = min(map(len, used))
        table = np.stack([column[:size] for column in used]).astype(np.float64)
        low, high = table.min(axis=0), table.max(axis=0)
        with np.errstate(invalid="ignore"):  # infinity less infinity
            apart = (high - low) > _ALIKE * np.abs(high)
        some_nan = np.isnan(table).any(axis=0) & ~np.isnan(table).all(axis=0)
        differ = np.flatnonzero(apart | some_nan)
        if len(differ):
            first = int(differ[0])
            rounded = {one.rank: float(f"{table[at, first]:.3g}") for at, one in enumerate(group)}
            return Difference(
                what="gradients", step=0 if group[0].by_pass else step, ranks=_odd(rounded), count=len(differ),
                after_pass=step if group[0].by_pass else 0,
                names=tuple(group[0].names[at] for at in differ[:MOST_NAMES]), of=int((table[0] >= 0).sum()),
                values=tuple((one.rank, float(table[at, first])) for at, one in enumerate(group)),
                reduced=_reduced(group[0], step),
            )  # fmt: skip
    return None


def _reduced(facts: Facts, step: int) -> Any:
    """Return whether the passes before a step reduced gradients: all, some or none of them."""
    told = [facts.passes[number].reduced for number in facts.steps[step].passes]
    if not told or None in told or (facts.by_pass and len(set(told)) > 1):
        return ""  # of reports not every step is known: passes of several may stand before one
    return "all" if all(told) else "some" if any(told) else "none"


def _odd(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Return the ranks that do not have what most have; of two halves those that do not have what the first has."""
    counts = Counter(values.values())
    common, times = counts.most_common(1)[0]
    if times == 1 or 2 * times <= len(values):
        common = next(iter(values.values()))
    return tuple(rank for rank, value in values.items() if value != common)


def _first_bad(found: Sequence[Facts]) -> tuple[int, tuple[int, ...], str]:
    """Return the first pass that was not finite on some ranks, these, and its line there; 0 where it was on all."""
    for number in _common([one.passes for one in found]) if len(found) > 1 else ():
        bad = [one for one in found if _is_bad(one.passes[number])]
        if bad:
            ranks = tuple(one.rank for one in bad)
            return (number, ranks, bad[0].passes[number].line) if len(bad) < len(found) else (0, (), "")
    return 0, (), ""


def _is_bad(one: OnePass) -> bool:
    return not one.finite or (one.loss is not None and not math.isfinite(one.loss))
