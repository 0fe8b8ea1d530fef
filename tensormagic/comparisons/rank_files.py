"""What the ranks of a run wrote down, read back: from their files, or from their trace reports."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensormagic.errors import ReportFormatError, TraceError
from tensormagic.reports import UNTOUCHED, RankRow, TraceReport
from tensormagic.words import error_text

FORMAT = 1


@dataclass(slots=True)
class OnePass:
    """What a rank wrote of a pass: see `Pass`."""

    loss: float | None
    finite: bool
    reduced: bool | None
    line: str
    norms: Any = None  # Of the gradients that it brought, by parameter; None where they were not written.
    held: Any = None  # Of what lay in ``.grad`` of shards after it.
    forward: dict[str, Any] | None = None  # What its forward was given, and the generators: see `Forwards`.


@dataclass(slots=True)
class OneStep:
    """What a rank wrote of a step of an optimizer: rates, what it used, and the passes since the step before."""

    rates: tuple[float, ...]
    used: Any
    passes: list[int]
    at: float = 0.0


@dataclass(slots=True)
class Begun:
    """The collectives that a rank began, in order."""

    # Of each sort its group, the ranks of that, what it does, sizes, and line.
    kinds: list[tuple[str, tuple[int, ...], str, str, str]]
    numbers: Any  # Of each collective, in its group.
    which: Any  # Of each, its sort.
    moments: Any  # Of each, seconds by the clock of its machine.


@dataclass(slots=True)
class Facts:
    """Everything that a rank wrote, and into which folder."""

    row: dict[str, Any] = field(default_factory=dict)
    world: int = 1
    names: list[str] = field(default_factory=list)
    passes: dict[int, OnePass] = field(default_factory=dict)
    steps: dict[int, OneStep] = field(default_factory=dict)
    hashes: dict[int, Any] = field(default_factory=dict)
    buffers: dict[int, dict[str, str]] = field(default_factory=dict)
    placed: dict[str, Any] = field(default_factory=dict)
    begun: Begun | None = None
    began: float = 0.0
    gap: str = ""
    folder: str = ""
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


def read_file(path: Path) -> Facts:
    """Return what is in a file; a last line that is cut, because the rank was killed, is left out.

    Raises:
        ReportFormatError: where no rank wrote it.
    """
    facts, since = Facts(folder=str(path.parent)), list[int]()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if reason := _refused(facts, line, since):
                facts.gap = f"line {number} of {path.name} cannot be read, and the rest was left out: {reason}"
                break
    if "rank" not in facts.row:
        raise ReportFormatError(f"{str(path)!r} is not a file that a rank wrote{facts.gap and f': {facts.gap}'}")
    return facts


def _refused(facts: Facts, line: bytes, since: list[int]) -> str:
    """Take what a line says; returns why it cannot be taken."""
    try:
        _take(facts, json.loads(line), since)
    except (ValueError, KeyError, TypeError) as error:
        return error_text(error)
    return ""


def _take(facts: Facts, record: Mapping[str, Any], since: list[int]) -> None:
    """Take what a line says; what a later version adds is left."""
    if record["k"] == "pass":
        since.append(record["n"])
    elif record["k"] == "step":
        facts.steps[record["n"]] = OneStep(
            tuple(record["lr"]), _numbers(record["used"]), list(since), float(record["at"])
        )
        since.clear()
    if take := _TAKES.get(record["k"]):
        take(facts, record)
    if "at" in record:
        facts.row["seconds"] = float(record["at"]) - facts.began


def _take_rank(facts: Facts, record: Mapping[str, Any]) -> None:
    if record["v"] != FORMAT:
        raise ValueError(f"its format is {record['v']}, and this version reads {FORMAT}")
    facts.row = {"rank": int(record["rank"]), "host": str(record["host"]), "pid": int(record["pid"])}
    facts.world, facts.began = int(record["world"]), float(record["at"])


def _take_names(facts: Facts, record: Mapping[str, Any]) -> None:
    facts.names += map(str, record["names"])


def _take_place(facts: Facts, record: Mapping[str, Any]) -> None:
    facts.row |= {"kinds": tuple(record["kinds"]), "replicas": tuple(record["replicas"])}
    facts.row["shares"] = tuple(record.get("shares", ()))


def _take_pass(facts: Facts, record: Mapping[str, Any]) -> None:
    fields = (record["loss"], record["finite"], record["reduced"], record["line"], _numbers(record["norms"]))
    facts.passes[record["n"]] = OnePass(*fields, _numbers(record.get("held")), record.get("forward"))


def _take_hash(facts: Facts, record: Mapping[str, Any]) -> None:
    facts.hashes[record["step"]] = _numbers(record["of"], np.uint64)


def _take_buffers(facts: Facts, record: Mapping[str, Any]) -> None:
    facts.buffers[record["step"]] = dict(record["of"])


def _take_placed(facts: Facts, record: Mapping[str, Any]) -> None:
    meshes, coordinates = record["meshes"], record["coordinates"]
    facts.placed = {"meshes": meshes, "of": record["of"]}
    (names, _, _), at = max(zip(meshes, coordinates, strict=True), key=lambda one: len(one[1]))
    facts.row["coordinate"] = tuple(zip(names or [f"dim {dim}" for dim in range(len(at))], at, strict=True))


def _take_collectives(facts: Facts, record: Mapping[str, Any]) -> None:
    kinds = [(str(one[0]), tuple(one[1]), str(one[2]), str(one[3]), str(one[4])) for one in record["kinds"]]
    numbers = (_numbers(record["n"], np.int32), _numbers(record["which"], np.int32))
    facts.begun = Begun(kinds, *numbers, _numbers(record["moments"], np.float64))


def _take_end(facts: Facts, record: Mapping[str, Any]) -> None:
    facts.row |= {"state": record["state"], "error": record["error"], "peak": int(record["peak"])}


_TAKES: dict[str, Callable[[Facts, Mapping[str, Any]], None]] = {
    "rank": _take_rank, "names": _take_names, "place": _take_place, "pass": _take_pass, "hash": _take_hash,
    "buffers": _take_buffers, "placed": _take_placed, "collectives": _take_collectives, "end": _take_end,
}  # fmt: skip


def _numbers(packed: str | None, kind: Any = np.float32) -> Any:
    return None if packed is None else np.frombuffer(base64.b64decode(packed), kind)


def of_report(report: TraceReport) -> Facts:
    """Return what is in a report of one rank; steps are called by the pass before them.

    Raises:
        TraceError: where it is of a run of one process.
    """
    if report.parallel is None:
        raise TraceError("this is the report of a run with one process: each rank must trace its own part of the run")
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
