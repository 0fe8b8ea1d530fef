"""What the ranks of a run wrote down, read back: from their files, or from their trace reports."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tensormagic.errors import ReportFormatError, TraceError
from tensormagic.reports import EVERYTHING, UNTOUCHED, RankRow, TraceReport
from tensormagic.words import error_text

FORMAT = 1
_UNREADABLE = (ValueError, KeyError, TypeError)  # what a line raises that no rank wrote, or not to its end
Key = TypeVar("Key")
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
    forward: Any = None  # What its forward was given, and the generators: see `Forwards`; None where that is unknown.


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
    since: list[int] = field(default_factory=list)  # the passes since the last of these
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
        number = max(self.passes, default=0)
        last = self.passes[number] if number else OnePass(loss=None, finite=True, reduced=None, line="")
        reduced = sum(one.reduced is True for one in self.passes.values())
        known = {"steps": len(self.steps), "passes": number, "reduced": reduced, **self.row}
        return RankRow(**known, loss=last.loss, line=last.line)


def common(every: Sequence[Mapping[Key, Any]]) -> list[Key]:
    """Return the keys that all have, in the order of the first."""
    return [key for key in every[0] if all(key in other for other in every)] if every else []


def read_file(path: Path) -> Facts:
    """Return what is in a file, up to a line that is cut; raises a ReportFormatError where no rank wrote it."""
    facts = Facts(folder=str(path.parent))
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            place = f"line {number} of {path.name}"
            try:
                _take(facts, json.loads(line))
            except _UNREADABLE as error:
                facts.gap = f"{place} cannot be read, and the rest was left out: {error_text(error)}"
                break
    if (full := path.with_suffix(".report.json")).is_file():
        facts.row["report"] = str(full)
    if "rank" not in facts.row:
        raise ReportFormatError(f"{str(path)!r} is not a file that a rank wrote{facts.gap and f': {facts.gap}'}")
    return facts


def _take(facts: Facts, record: Mapping[str, Any]) -> None:
    """Take what a line says; what a later version adds is left."""
    match record["k"]:
        case "pass":
            facts.since.append(record["n"])
            facts.passes[record["n"]] = OnePass(
                record["loss"], record["finite"], record["reduced"], record["line"], _numbers(record["norms"]),
                _numbers(record.get("held")), record.get("forward"),
            )  # fmt: skip
        case "step":
            rates, used = tuple(record["lr"]), _numbers(record["used"])
            facts.steps[record["n"]] = OneStep(rates, used, facts.since, float(record["at"]))
            facts.since = []
        case "hash":
            facts.hashes[END if record.get("end") else record["step"]] = _numbers(record["of"], np.uint64)
        case "buffers":
            facts.buffers[END if record.get("end") else record["step"]] = dict(record["of"])
        case "collectives":
            kinds = [(str(one[0]), tuple(one[1]), str(one[2]), str(one[3]), str(one[4])) for one in record["kinds"]]
            numbers = (_numbers(record["n"], np.int32), _numbers(record["which"], np.int32))
            facts.begun = Begun(kinds, *numbers, _numbers(record["moments"], np.float64))
        case _:
            _take_once(facts, record)
    if "at" in record:
        facts.row["seconds"] = float(record["at"]) - facts.began


def _take_once(facts: Facts, record: Mapping[str, Any]) -> None:
    """Take what a file says once, as it begins or ends."""
    match record["k"]:
        case "rank":
            if record["v"] != FORMAT:
                raise ValueError(f"its format is {record['v']}, and this version reads {FORMAT}")
            facts.row = {"rank": int(record["rank"]), "host": str(record["host"]), "pid": int(record["pid"])}
            facts.world, facts.began = int(record["world"]), float(record["at"])
        case "names":
            facts.names += map(str, record["names"])
        case "place":
            facts.row |= {"kinds": tuple(record["kinds"]), "replicas": tuple(record["replicas"])}
            facts.row["shares"] = tuple(record.get("shares", ()))
        case "placed":
            meshes, coordinates = record["meshes"], record["coordinates"]
            facts.placed = {"meshes": meshes, "of": record["of"]}
            (names, _, _), at = max(zip(meshes, coordinates, strict=True), key=lambda one: len(one[1]))
            facts.row["coordinate"] = tuple(zip(names or [f"dim {dim}" for dim in range(len(at))], at, strict=True))
        case "end":
            facts.row |= {"state": record["state"], "error": record["error"], "peak": int(record["peak"])}
            facts.row |= {"passes": int(record["passes"])} if "passes" in record else {}


def _numbers(packed: str | None, kind: Any = np.float32) -> Any:
    return None if packed is None else np.frombuffer(base64.b64decode(packed), kind)


# What a rank posts while it runs: 64 bytes a step, and its head, a few words that seldom change. ``line`` is a number
# in the head, ``at`` counts seconds since the epoch; ``used`` and ``brought`` are norms of what the step used, and of
# what the pass before it brought.
_POST = np.dtype([
    ("step", "<u4"), ("passes", "<u4"), ("has_loss", "?"), ("finite", "?"), ("is_hashed", "?"), ("has_ended", "?"),
    ("reduced", "<i2"), ("line", "<u2"), ("at", "<f8"), ("loss", "<f8"), ("used", "<f8"), ("brought", "<f4"),
    ("rate", "<f4"), ("peak", "<u8"), ("hash", "<u8"),
])  # fmt: skip
_MOST_LINES, _LONGEST = 64, 80
_REDUCED = (False, True, None)  # None is the last: -1


class Posting:
    """Makes posts of the file of a rank while that grows."""

    def __init__(self, path: Path) -> None:
        self.head = b""  # what the posts are about, as JSON: place of the rank, names of its lines, and how it ended
        self._path, self._at = path, 0
        self._facts = Facts()  # without what was posted
        self._lines: dict[str, int] = {}
        self._steps = self._passes = 0
        self._start: int | None = None
        self._last = OnePass(loss=None, finite=True, reduced=None, line="")

    def new(self, peak: int) -> bytes:
        """Return the posts of what was written since the last time; ``peak`` is the most memory so far, in bytes."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            *lines, _ = file.read().split(b"\n")
        posts: dict[tuple[int, int], bytes] = {}  # of steps without an optimizer's by their pass; the hash comes later
        for line in lines:
            self._at += len(line) + 1
            try:
                record = json.loads(line)
                _take(self._facts, record)
            except _UNREADABLE:  # at the end it is said that the file cannot be read
                continue
            if self._keep(record["k"]):
                posts[self._steps, self._passes] = self._post(peak)
        if self._facts.row:
            self.head = json.dumps(self._head(), separators=(",", ":")).encode()
        return b"".join(posts.values())

    def _keep(self, kind: str) -> bool:
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
        at = step.at if step else self._facts.began + self._facts.row["seconds"]
        post = (
            self._steps, self._passes, last.loss is not None, last.finite, hashes is not None, END in known,
            -1 if last.reduced is None else last.reduced, min(line, _MOST_LINES), at,
            last.loss or 0.0, _total(step.used if step else None), _total(last.norms),
            step.rates[0] if step and step.rates else np.nan, peak, 0 if hashes is None else _joint_hash(hashes),
        )  # fmt: skip
        with np.errstate(all="ignore"):
            return np.array([post], _POST).tobytes()

    def _head(self) -> dict[str, Any]:
        row, groups = self._facts.row, {}
        known = {name: row[name] for name in ("rank", "pid", "kinds", "coordinate", "state") if name in row}
        words = {name: row[name][:_LONGEST] for name in ("host", "error") if name in row}
        for name in ("replicas", "shares"):  # ranks as a range, or none where they are none: what is posted is small
            ranks = row.get(name, ())
            ends = (ranks[0], ranks[-1] + 1, ranks[1] - ranks[0] if len(ranks) > 1 else 1) if ranks else (0, 0, 1)
            groups[name] = ends if tuple(range(*ends)) == tuple(ranks) else (0, 0, 1)
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
    facts.row = {name: tuple(each) if isinstance(each, list) else each for name, each in about["row"].items()}
    facts.row |= {name: tuple(range(*ends)) for name, ends in about["groups"].items()}
    facts.row["coordinate"] = tuple(map(tuple, facts.row.get("coordinate", ())))
    if about["start"] is not None:
        facts.hashes[0] = np.array([about["start"]], np.uint64)
    for row in np.frombuffer(posts, _POST):
        post = dict(zip(_POST.names or (), row.tolist(), strict=True))
        step, passes, line = post["step"], post["passes"], post["line"]
        label = about["lines"][line] if line < len(about["lines"]) else ""
        norms, used = np.array([post["brought"]], np.float32), np.array([post["used"]], np.float32)
        loss = post["loss"] if post["has_loss"] else None
        facts.passes[passes] = OnePass(loss, post["finite"], _REDUCED[post["reduced"]], label, norms)
        if step:
            facts.steps[step] = OneStep((post["rate"],), used, [passes], post["at"])
        if post["is_hashed"]:
            facts.hashes[END if post["has_ended"] else step] = np.array([post["hash"]], np.uint64)
        facts.row |= {"passes": passes, "steps": step, "peak": post["peak"], "seconds": post["at"] - facts.began}
    return facts


def of_report(report: TraceReport) -> Facts:
    """Return what is in a report of one rank, its steps by their pass; raises a TraceError for a run of one process."""
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
    for at, one in enumerate(passes):
        line = location.label if (location := report.location(one.location)) is not None else ""
        norms = np.array([series.norms[at] for series in report.parameters], np.float32)
        facts.passes[one.number] = OnePass(one.value, one.finite, one.reduced, line, norms)
        facts.since.append(one.number)
        steps = [series.stepped[at] if series.stepped else UNTOUCHED for series in report.parameters]
        used = np.array(steps, np.float32)
        if (used != UNTOUCHED).any():
            facts.steps[one.number] = OneStep((), used, facts.since)
            facts.since = []
    return facts
