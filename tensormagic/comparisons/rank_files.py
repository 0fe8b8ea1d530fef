"""What the ranks of a run wrote down, read back: from their files, or from their trace reports."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensormagic.errors import ReportFormatError, TraceError
from tensormagic.reports import EVERYTHING, UNTOUCHED, RankRow, TraceReport
from tensormagic.words import error_text

FORMAT = 1
END = 1 << 62  # The number by which hashes of the end of a run are kept: after every step.


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
        reduced = sum(one.reduced is True for one in self.passes.values())
        known = {"steps": len(self.steps), "passes": max(self.passes, default=0), "reduced": reduced, **self.row}
        return RankRow(**known, loss=loss, line=line)


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
    if (full := path.with_suffix(".report.json")).is_file():
        facts.row["report"] = str(full)
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
        rates, used = tuple(record["lr"]), _numbers(record["used"])
        facts.steps[record["n"]] = OneStep(rates, used, list(since), float(record["at"]))
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
    facts.hashes[END if record.get("end") else record["step"]] = _numbers(record["of"], np.uint64)


def _take_buffers(facts: Facts, record: Mapping[str, Any]) -> None:
    facts.buffers[END if record.get("end") else record["step"]] = dict(record["of"])


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
    facts.row |= {"passes": int(record["passes"])} if "passes" in record else {}


_TAKES: dict[str, Callable[[Facts, Mapping[str, Any]], None]] = {
    "rank": _take_rank, "names": _take_names, "place": _take_place, "pass": _take_pass, "hash": _take_hash,
    "buffers": _take_buffers, "placed": _take_placed, "collectives": _take_collectives, "end": _take_end,
}  # fmt: skip


def _numbers(packed: str | None, kind: Any = np.float32) -> Any:
    return None if packed is None else np.frombuffer(base64.b64decode(packed), kind)


# What a rank posts while it runs: 64 bytes a step, and its head, a few words that seldom change.
#
# A post: step, passes, rank, flags, the number of its line in the head, seconds since the epoch, loss, norm of what the
# step used, norm of what the pass before it brought, learning rate, peak of memory, hash of all parameters.

POST = struct.Struct("<IIIHHdddffQQ")
_FINITE, _LOSS, _IS_REDUCED, _REDUCED, _HASHED, _ENDED = 1, 2, 4, 8, 16, 32
_MOST_LINES, _LONGEST = 64, 80
_UNTIL = {"pass", "step", "end"}  # what comes after all that is known of a step


class Posting:
    """Makes posts of the file of a rank while that grows."""

    def __init__(self, path: Path) -> None:
        self.head = b""  # what the posts are about, as JSON: place of the rank, names of its lines, and how it ended
        self._path, self._at = path, 0
        self._facts, self._since = Facts(), list[int]()
        self._lines: dict[str, int] = {}
        self._steps = self._passes = 0
        self._start: int | None = None
        self._last = OnePass(loss=None, finite=True, reduced=None, line="")

    def new(self, peak: int) -> bytes:
        """Return the posts of what was written since the last time; ``peak`` is the most memory so far, in bytes."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            *lines, _ = file.read().split(b"\n")
        posts, is_due = b"", False
        for line in lines:
            self._at += len(line) + 1
            try:
                record = json.loads(line)
                if is_due and record["k"] in _UNTIL:
                    posts, is_due = posts + self._post(peak), False
                _take(self._facts, record, self._since)
            except (ValueError, KeyError, TypeError):  # at the end it is said that the file cannot be read
                continue
            is_due |= self._take(record["k"])
        posts += self._post(peak) if is_due else b""
        if self._facts.row:
            self.head = json.dumps(self._head(), separators=(",", ":")).encode()
        return posts

    def _take(self, kind: str) -> bool:
        """Keep what a line said, as far as it is posted; returns whether it makes a post."""
        facts = self._facts
        if kind == "pass":
            self._passes, self._last = facts.passes.popitem()
            return not self._steps and self._passes > 1  # no optimizer has made a step yet
        if kind == "step":
            self._steps = max(facts.steps)
            facts.steps, facts.hashes = {self._steps: facts.steps[self._steps]}, {}
        elif kind == "hash" and 0 in facts.hashes:
            self._start = _joint_hash(facts.hashes.pop(0))
        return kind in {"step", "hash"} and bool(self._steps)

    def _post(self, peak: int) -> bytes:
        last, step, known = self._last, self._facts.steps.get(self._steps), self._facts.hashes
        hashes = known.get(END, known.get(self._steps))
        line = self._lines.setdefault(last.line[:_LONGEST], len(self._lines))
        flags = _FINITE * last.finite | _LOSS * (last.loss is not None) | _HASHED * (hashes is not None)
        flags |= _ENDED * (END in known)
        flags |= _IS_REDUCED * (last.reduced is not None) | _REDUCED * bool(last.reduced)
        with np.errstate(all="ignore"):
            singles = np.array([_total(last.norms), step.rates[0] if step and step.rates else np.nan], np.float32)
        at, hashed = self._facts.began + self._facts.row["seconds"], 0 if hashes is None else _joint_hash(hashes)
        return POST.pack(
            self._steps, self._passes, self._facts.rank, flags, min(line, _MOST_LINES), step.at if step else at,
            last.loss or 0.0, _total(step.used if step else None), *map(float, singles), peak, hashed,
        )  # fmt: skip

    def _head(self) -> dict[str, Any]:
        row = self._facts.row
        known = {name: row[name] for name in ("rank", "pid", "kinds", "coordinate", "state") if name in row}
        words = {name: row[name][:_LONGEST] for name in ("host", "error") if name in row}
        groups: dict[str, list[int]] = {}  # ranks as a range, or nothing where they are none: what is posted is small
        for name in ("replicas", "shares"):
            ranks = row.get(name, ())
            step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
            ends = [ranks[0], ranks[-1] + 1, step] if ranks else []
            groups[name] = ends if ranks and tuple(range(*ends)) == tuple(ranks) else []
        place = {"world": self._facts.world, "began": self._facts.began, "start": self._start}
        return {**place, "lines": [*self._lines][:_MOST_LINES], "row": {**known, **words}, "groups": groups}


def _total(norms: Any) -> float:
    known = norms[~(norms < 0)].astype(np.float64) if norms is not None else ()
    return float(np.sqrt(np.square(known).sum())) if len(known) else UNTOUCHED


def _joint_hash(hashes: Any) -> int:
    return int.from_bytes(hashlib.blake2b(hashes.tobytes(), digest_size=8).digest(), "little")


def of_posts(head: bytes, posts: bytes) -> Facts:
    """Return what a rank has posted so far: all its parameters count as one."""
    about = json.loads(head)
    facts = Facts(world=about["world"], names=[EVERYTHING], began=about["began"])
    groups = {name: tuple(range(*ends)) if ends else () for name, ends in about["groups"].items()}
    facts.row = {name: tuple(each) if isinstance(each, list) else each for name, each in about["row"].items()} | groups
    facts.row["coordinate"] = tuple(map(tuple, facts.row.get("coordinate", ())))
    if about["start"] is not None:
        facts.hashes[0] = np.array([about["start"]], np.uint64)
    for step, passes, _, flags, line, at, loss, used, brought, rate, peak, hashed in POST.iter_unpack(posts):
        label = about["lines"][line] if line < len(about["lines"]) else ""
        reduced = bool(flags & _REDUCED) if flags & _IS_REDUCED else None
        known, norms = loss if flags & _LOSS else None, np.array([brought], np.float32)
        facts.passes[passes] = OnePass(known, bool(flags & _FINITE), reduced, label, norms)
        if step:
            facts.steps[step] = OneStep((rate,), np.array([used], np.float32), [passes], at)
        if flags & _HASHED:
            facts.hashes[END if flags & _ENDED else step] = np.array([hashed], np.uint64)
        facts.row |= {"passes": passes, "steps": step, "peak": peak, "seconds": at - facts.began}
    return facts


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
        steps = [series.stepped[at] if series.stepped else UNTOUCHED for series in report.parameters]
        used = np.array(steps, np.float32)
        if (used != UNTOUCHED).any():
            facts.steps[one.number] = OneStep((), used, since)
            since = []
    return facts
