"""What a rank writes down of its run, line by line, while it runs: nothing waits for another rank, or for the disk.

A rank that is killed, or that torch ends from C++, has no time for a report. So each pass and each step is appended to
a file of its own as it ends, unbuffered. Arrays are packed as base 64. Each pass and step of the first `EVERY_ONE` has
its norms, later each `SELDOM`-th. Hashes of the parameters are written before the first step, after each 2^k-th and at
the end; the whole report then, of the first rank and of those that differ or have something to report.
"""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import socket
import sys
import time
import weakref
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from io import FileIO
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors import devices
from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.quiet import Looking, TensorRef, dispatches_to_python, local_shard, quiet
from tensormagic.collectors.training import parallel
from tensormagic.collectors.training.optimizer_contents import held_by
from tensormagic.collectors.training.training import is_within_step
from tensormagic.collectors.training.updates import joined, leave_steps, norms_of, watch_steps
from tensormagic.collectors.where.caller import Gathered, own_frame, state_after
from tensormagic.collectors.where.source import SourceLines
from tensormagic.reports import UNREADABLE, UNTOUCHED, Gap, Pass, TraceReport
from tensormagic.words import error_text

FORMAT = 1
EVERY_ONE, SELDOM = 256, 64


class RankFile(Looking, TracePart):
    """The file of this rank in a folder that the ranks share; both are made with the first thing there is to write."""

    def __init__(self, trace: TraceContext, folder: Path) -> None:
        self._folder, self._leaves, self._sites, self._late = folder, trace.leaves, trace.sites, trace.late
        self._recorder: ForwardRecorder = trace.recorder
        self._pass_log, self._begun = trace.passes, trace.begun
        self._parallel: parallel.ParallelWatcher = trace.parts["parallel"]
        self._forwards = parallel.Forwards(trace.late)
        self._shards: list[weakref.ref[torch.Tensor]] = []
        self._newest: dict[str, int] = {}
        self._file: FileIO | None = None
        self._path, self._pid = folder, 0
        self._unsaved = ""
        self._hashed: dict[int, int] = {}  # a number for the hashes that were written, by step
        self._is_closed = False
        self._home = self._rank = 0
        self._named = self._passes = self._ended = self._steps = 0
        self._place: tuple[Any, ...] = ()
        self._began = 0.0

    def enter(self, undoing: UndoStack) -> None:
        """Begin to follow steps."""
        undoing.callback(leave_steps, self)
        undoing.callback(setattr, self._recorder, "first_node", None)
        self._home, self._began = get_ident(), time.time()
        watch_steps(self)
        self._recorder.first_node = self._first_node
        if parallel.world_size() > 1:
            self._guarded(self._open)

    def finish(self, error: BaseException | None) -> None:
        """Write how the run ended, and close the file."""
        self._guarded(self._end, state_after(error), error_text(error) if error is not None else "")
        self.abandon()

    def abandon(self) -> None:
        """Close the file, in a process that was forked from the one that writes it as well."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be written."""
        short = {"file ends early": self.gap, "full report was not saved": self._unsaved}
        return tuple(Gap("ranks", f"this rank's {what}: {why}") for what, why in short.items() if why)

    def keep_report(self, report: Callable[[], TraceReport]) -> None:
        """Save the report of a run that has ended beside the file, where it is to be looked at; never raises.

        So it is of the first rank, where something was found or went wrong, and where this rank holds other parameters
        than the first of its replicas, as far as that has written: nobody is waited for.
        """
        if self._pid != os.getpid():
            return
        try:
            found = report()
            odd = found.error or any(one.severity != "note" for one in found.findings)
            if odd or self.gap or self._rank == 0 or self._differs():
                found.save(self._path.with_suffix(".report.json"))
        except Exception as error:
            self._unsaved = error_text(error)

    def _differs(self) -> bool:
        """Return whether the first of the ranks that hold the same has written other hashes of the same step."""
        first = self._folder / _name(min(self._place[1] if self._place else (), default=self._rank))
        if first == self._path or not first.is_file():
            return False
        with first.open("rb") as file:
            lines = [line for line in file if line.startswith(b'{"k":"hash"') and line.endswith(b"}\n")]
        return any(self._hashed.get(_moment(one), hash(one["of"])) != hash(one["of"]) for one in map(json.loads, lines))

    def keep_pass(self, followed: Following) -> Callable[[Pass], None] | None:
        """Gather what is there when a pass ends, to write it down when its numbers have come from a device."""
        return None if followed.is_inner else self._guarded(self._gathered)

    def _first_node(self, frame: FrameType) -> None:
        """Look at what a forward was given; until the next pass no more is looked at."""
        if get_ident() == self._home and (parallel.world_size() <= 1 or self._guarded(self._forwards.note, frame)):
            self._recorder.first_node = None

    def begins(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """Write down what a step uses."""
        if get_ident() == self._home and not is_within_step():
            self._guarded(self._step, optimizer)

    def ends(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """Write down what it made of the parameters: after steps that become rarer."""
        if get_ident() == self._home and self._steps & (self._steps - 1) == 0 and not is_within_step():
            self._guarded(self._hashes, held_by(optimizer))

    def _guarded(self, action: Any, *arguments: Any) -> Any:
        """Write something, if nothing has gone wrong so far; never raises into the run."""
        if self.gap or self._is_closed or devices.there.capturing():
            return None
        return self.guarded(quiet()(action), *arguments)

    def _open(self) -> None:
        rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        if parallel.world_size() > 1:
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        for dump in _DUMPS if not self._passes else ():
            self._newest[dump] = max((one["record_id"] for one in _entries(dump, lines=False)), default=-1)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rank, self._pid, self._path = rank, os.getpid(), self._folder / _name(rank)
        self._path.with_suffix(".report.json").unlink(missing_ok=True)
        self._file = FileIO(self._path, "w")
        self._write("rank", v=FORMAT, rank=rank, world=world, host=socket.gethostname(), pid=self._pid, at=self._began)

    def _write(self, kind: str, **values: Any) -> None:
        if self._file is None:
            self._open()
        left = (json.dumps({"k": kind, **values}, separators=(",", ":")) + "\n").encode()
        while left and self._file is not None:  # of a line, a disk that is nearly full takes a part
            left = left[self._file.write(left) or 0 :]

    def _names(self) -> None:
        if known := self._leaves.known[self._named :]:
            self._write("names", names=[leaf.name for leaf in known])
            self._named += len(known)
        place = (tuple(self._parallel.kinds), self._parallel.replicas(), self._parallel.shares())
        if place != self._place:
            self._place = place
            self._write("place", kinds=place[0], replicas=place[1], shares=place[2])

    def _gathered(self) -> Callable[[Pass], None]:
        self._ended += 1
        is_kept, at = _is_kept(self._ended), time.time()
        shards = [each for reference in self._shards if (each := reference()) is not None] if is_kept else []
        forward = self._forwards.taken(drops=self._recorder.calls.drops)
        held = self._norms(shards) if shards else None
        self._recorder.first_node = self._first_node if _is_kept(self._ended + 1) else None

        def write(done: Pass) -> None:
            if (row := self._pass_log.kept.last) is None or row.done is not done:
                return
            self._names()
            self._passes += 1
            line = "" if done.location is None else self._sites.locations[done.location].label
            self._write(
                "pass", n=done.number, loss=done.value, finite=done.finite, reduced=done.reduced, line=line, at=at,
                norms=_packed(row.norms if is_kept else None), held=_packed(held), forward=forward,
            )  # fmt: skip

        return partial(self._guarded, write)

    def _step(self, optimizer: torch.optim.Optimizer) -> None:
        self._names()
        if not self._steps:
            self._hashes(held_by(optimizer))
            known = [(number, each) for each in held_by(optimizer) if (number := self._leaves.find(each)) is not None]
            is_flat = "FSDP1" in self._parallel.kinds
            self._shards = [TensorRef(each) for _, each in known if is_flat or local_shard(each) is not each]
            if (spread := parallel.placed(known))["of"]:  # how the parameters are spread that are DTensors
                self._write("placed", **spread)
            del known
        self._steps += 1
        rates = self._rates(optimizer)
        used = self._norms(held_by(optimizer)) if _is_kept(self._steps) else None
        write = partial(self._write, "step", n=self._steps, lr=rates, at=time.time())
        self._late.then(None, lambda: self._guarded(lambda: write(used=_packed(used))))

    def _rates(self, optimizer: torch.optim.Optimizer) -> list[float]:
        """Return the learning rates; one that lies on a device is put there when it comes."""
        found: list[float] = []
        for group in optimizer.param_groups:
            rate = group.get("lr", 0.0)
            is_far = isinstance(rate, torch.Tensor) and devices.there.holds(rate)
            if is_far:
                self._late.sent(rate.detach().reshape(1).clone(), partial(devices.put, found, [len(found)]))
            if "lr" in group:
                found.append(math.nan if is_far else float(rate))
        return found

    def _norms(self, parameters: Iterable[torch.Tensor]) -> array[float]:
        """Return the norms of what lies here of the gradients, by the number of the parameter.

        Those that are still to come from a device are put there when they come. Several may have one number.
        """
        found = array("f", [UNTOUCHED]) * len(self._leaves.known)
        numbers, gradients = [], []
        for parameter in parameters:
            number, gradient = self._leaves.find(parameter), local_shard(parameter.grad)
            if number is None or gradient is None:
                continue
            if dispatches_to_python(gradient) or gradient.layout is not torch.strided or gradient.device.type == "meta":
                found[number] = UNREADABLE
            else:
                numbers.append(number)
                gradients.append(gradient)

        def keep(read: list[float]) -> None:
            whole = joined(numbers, read)
            devices.put(found, list(whole), list(whole.values()))

        self._late.read(norms_of(gradients), keep)
        return found

    def _hashes(self, parameters: Iterable[torch.Tensor], *, end: bool = False) -> None:
        """Write a number for each parameter, or shard of one: ranks that hold the same have it for the same bits."""
        holds_shards = bool(self._parallel.replicas())
        hashes, numbers, held = [0] * len(self._leaves.known), [], []
        for parameter in parameters:
            number = self._leaves.find(parameter)
            local = local_shard(parameter) if holds_shards else parameter
            if number is not None and type(local) in {torch.nn.Parameter, torch.Tensor} and local.device.type != "meta":
                numbers.append(number)
                held.append(local.detach())
        parallel.hash_each(held, self._late, lambda at, found: hashes.__setitem__(numbers[at], found))
        buffers = parallel.buffers_of(self._parallel.wrappers())
        names, of_buffers = list(buffers), [0] * len(buffers)
        parallel.hash_each(buffers.values(), self._late, of_buffers.__setitem__)
        when: dict[str, Any] = {"step": self._steps, **({"end": True} if end else {})}

        def write() -> None:
            packed = base64.b64encode(b"".join(each.to_bytes(8, "little") for each in hashes)).decode()
            self._write("hash", **when, of=packed)
            self._hashed[_moment(when)] = hash(packed)
            if names:
                named = {name: f"{each:016x}" for name, each in zip(names, of_buffers, strict=True)}
                self._write("buffers", **when, of=named)

        self._late.then(None, lambda: self._guarded(write))

    def _end(self, state: str, error: str) -> None:
        if self._passes:
            known = [(leaf.is_parameter, leaf.reference()) for leaf in self._leaves.known]
            if not any(asked and each is None for asked, each in known):  # it may be held by another rank's error
                self._hashes((each for _, each in known if each is not None), end=True)
            self._late.finish()
        if parallel.world_size() > 1:
            self._write("collectives", **collectives_since(self._newest, self._sites))
        ended = {"passes": self._begun(), "peak": peak_bytes(), "at": time.time()}
        self._write("end", state=state, error=error[:2000], **ended)


def _name(rank: int) -> str:
    return f"rank{rank:05d}.jsonl"


def _moment(when: dict[str, Any]) -> int:
    """Return after which step hashes were taken; those of the end are held against those of the end."""
    return -1 if when.get("end") else int(when["step"])


def _packed(numbers: array[Any] | None) -> str | None:
    return None if numbers is None else base64.b64encode(numbers.tobytes()).decode()


def _is_kept(number: int) -> bool:
    return number <= EVERY_ONE or number % SELDOM == 0


def peak_bytes() -> int:
    """Return the bytes that were the most on the device, or that this process took where no device was used."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return int(torch.cuda.max_memory_allocated())
    try:
        import resource
    except ImportError:  # there is none on Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * 1024)


# The collectives that this process has begun, as torch's flight recorder, on by default, wrote them down: read at the
# end. Its interface is private: where it is not as expected, nothing is reported.

MOST = 2000
_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")


def collectives_since(newest: dict[str, int], sites: SourceLines) -> dict[str, Any]:
    """Return what was begun after these records: of each its group, number, kind, sizes, line and moment; packed."""
    try:  # the ranks of each group that this process is in, by the group's name
        world = torch.distributed.distributed_c10d._world
        groups = {str(world.pg_names[group]): sorted(world.pg_group_ranks[group]) for group in world.pg_map}
    except (AttributeError, KeyError):
        groups = {}
    kinds: dict[tuple[Any, ...], int] = {}
    lines: dict[Gathered | None, str] = {None: ""}
    numbers, which, moments = array("i"), array("i"), array("d")
    for dump in _DUMPS:
        for one in _entries(dump, lines=True)[-MOST:]:
            if one["record_id"] <= newest.get(dump, -1) or one["is_p2p"]:
                continue
            group = str(one["process_group"][0])
            frame = own_frame(one.get("frames"))
            if frame is not None and frame not in lines:
                lines[frame] = sites.at(*frame).label
            operation, sizes = str(one["profiling_name"]), str(one["input_sizes"]).replace(" ", "")
            kind = (group, tuple(groups.get(group, ())), operation, sizes, lines[frame])
            which.append(kinds.setdefault(kind, len(kinds)))
            numbers.append(one["collective_seq_id"])
            moments.append(one["time_created_ns"] * 1e-9)
    return {"kinds": list(kinds), "n": _packed(numbers), "which": _packed(which), "moments": _packed(moments)}


def _entries(dump: str, *, lines: bool) -> list[dict[str, Any]]:
    """Return what a recorder holds, the oldest first; nothing where this torch has no such recorder."""
    if not torch.distributed.is_available():
        return []
    from torch._C import _distributed_c10d

    if (read := getattr(_distributed_c10d, dump, None)) is None:
        return []
    try:
        found = pickle.loads(read(True, lines, False))  # noqa: S301, FBT003  (torch's own, from this process; C++)
        return sorted(found.get("entries", ()), key=lambda one: int(one["record_id"]))
    except (KeyError, RuntimeError, TypeError):
        return []
