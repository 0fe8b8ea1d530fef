"""Several ranks compared, and how a tensor is placed on them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tensormagic.reports.base import UNSAVED, Gap, Report
from tensormagic.reports.graph import Floats, no_numbers, require
from tensormagic.reports.trace import TraceReport
from tensormagic.words import ranks_text

# How a tensor is spread over a mesh of ranks, and which rank holds what: whole numbers alone, nobody is asked.

_CUT = re.compile(r"(_?)S\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Box:
    """What one rank holds: where it begins in each dimension of the tensor, and how long it is there."""

    rank: int
    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """How a DTensor is spread over a mesh of ranks."""

    name: str  #: What it is called.
    shape: tuple[int, ...]  #: Of the whole tensor.
    #: One for each dimension of the mesh: ``"S(0)"``, cut along that dimension of the tensor; ``"_S(0)"``, the same,
    #: but cut after the others, as FSDP over tensor parallelism does; ``"R"``, whole on each; ``"P(sum)"``, each has a
    #: part of the sum.
    placements: tuple[str, ...]
    mesh_names: tuple[str, ...] = ()  #: Of the dimensions of the mesh; empty where they have none.
    mesh_sizes: tuple[int, ...] = ()  #: Of these.
    mesh_ranks: tuple[int, ...] = ()  #: The ranks, in order of the mesh.

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What to call the dimensions of the mesh."""
        return self.mesh_names or tuple(f"dim {at}" for at in range(len(self.mesh_sizes)))

    def boxes(self) -> Iterator[Box]:
        """Yield what each rank holds, in order of the mesh.

        A dimension of the tensor that several of the mesh cut is cut by one after the other: what is cut later
        (``_S``) after the others. Each piece but the last has the same length, rounded up.
        """
        cuts = {at: found for at, how in enumerate(self.placements) if (found := _CUT.fullmatch(how))}
        order = sorted(cuts, key=lambda at: (cuts[at][1] == "_", at))
        for rank, place in zip(self.mesh_ranks, itertools.product(*map(range, self.mesh_sizes)), strict=True):
            start, size = [0] * len(self.shape), list(self.shape)
            for at in order:
                dim = int(cuts[at][2])
                step = -(-size[dim] // self.mesh_sizes[at])
                low = min(place[at] * step, size[dim])
                start[dim], size[dim] = start[dim] + low, min(step, size[dim] - low)
            yield Box(rank, tuple(start), tuple(size))

    def holders(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]]:
        """Return the ranks that hold each piece, by where it begins and how long it is; pieces of nothing are left."""
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for box in self.boxes():
            if math.prod(box.size):
                found.setdefault((box.start, box.size), []).append(box.rank)
        return found


EVERYTHING = "all parameters"  # what ranks post while they run is of all of them together


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank."""

    rank: int  #: Its number, from 0.
    host: str = ""  #: The machine that it ran on.
    pid: int = 0  #: Its process there.
    state: str = "running"  #: ``"finished"``, ``"failed"``, ``"interrupted"``; ``"running"`` until it says so.
    error: str = ""  #: Of a rank that failed.
    kinds: tuple[str, ...] = ()  #: By what its parameters are spread: ``"DDP"``, ``"FSDP2"`` …
    replicas: tuple[int, ...] = ()  #: The ranks that hold the same parameters, itself included; empty where unknown.
    shares: tuple[int, ...] = ()  #: The ranks that reduce gradients together, each with data of its own; if certain.
    #: Where it is on the mesh over which its parameters are spread: name and place of each dimension.
    coordinate: tuple[tuple[str, int], ...] = ()
    passes: int = 0  #: How many backward passes it made, as far as it has said.
    reduced: int = 0  #: How many of these passes reduced gradients, as far as that is known.
    steps: int = 0  #: How many steps of optimizers; a step within a step is a part of it.
    loss: float | None = None  #: What its last backward was called on; None where that is not a number.
    peak: int = 0  #: Bytes: the most that was allocated on its device, or that the process took; 0 where not known.
    line: str = ""  #: The line that called its last backward.
    seconds: float = 0.0  #: How long it ran, as far as it has said.
    report: str = ""  #: The file of its full report, where it saved one: see `RankReport.reports`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that should be the same on all ranks of a group and is not, or is and should not be: the first time."""

    #: Of ranks that hold the same parameters: ``"start"`` (parameters before the first step), ``"gradients"`` (what a
    #: step used), ``"parameters"`` (after a step), ``"end"`` (parameters at the end, after other numbers of steps on
    #: each rank, which are the values), ``"rates"`` (learning rates of a step), ``"buffers"`` (at the end).
    #: Of ranks that share the data: ``"inputs"`` and ``"generators"``, which are the same, ``"batches"``, whose sizes
    #: are not. Of ranks on one mesh: ``"clipping"``, ``"placements"``, ``"hosts"``. Of ranks of a group:
    #: ``"collectives"`` and ``"absence"`` (one that is not the same, or not there, by its number as the step;
    #: values: how many seconds too late; no ranks: all came, and all gave up),
    #: ``"waits"`` (for the one rank; beside it -1 has the time of a step).
    what: Literal[
        "start", "gradients", "parameters", "end", "rates", "buffers", "inputs", "generators", "batches", "clipping",
        "placements", "hosts", "collectives", "absence", "waits",
    ]  # fmt: skip
    step: int  #: Of the optimizer, from 1; 0 before the first, and where it is not known.
    ranks: tuple[int, ...]  #: Those that differ from most of the others, or from the first one.
    after_pass: int = 0  #: The pass before that step, where the number of the step is not known: of reports; else 0.
    names: tuple[str, ...] = ()  #: Of the parameters, the first of them.
    count: int = 0  #: How many parameters.
    of: int = 0  #: How many were compared.
    #: By rank, as far as it is one number: the norm of the first parameter's gradient, `UNTOUCHED` without one; the
    #: learning rate.
    values: tuple[tuple[int, float], ...] = ()
    described: tuple[tuple[int, str], ...] = ()  #: By rank, where it is words: collective, placements, host.
    line: str = ""  #: Where it happened.
    #: Of gradients, whether passes since the step before were reduced over the ranks: all, some or none of them;
    #: ``"kept"`` where they reduced others, and these are as each rank brought them; ``"apart"`` where ranks used those
    #: of different passes, ``"unused"`` where DistributedDataParallel waited for gradients of parameters that the loss
    #: did not lead to, ``"whole"`` where ranks of tensor parallelism hold them whole; empty where it is not known.
    reduced: Literal["all", "some", "none", "kept", "apart", "unused", "whole", ""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When ranks came to collectives of one group; while these are not known, to steps of their optimizers."""

    group: str  #: Its name; empty of steps.
    ranks: tuple[int, ...]  #: The ranks.
    numbers: tuple[int, ...]  #: Of the collectives in their group, or of the steps.
    operations: tuple[str, ...]  #: What each does: ``"all_reduce"``, ``"step"``.
    lines: tuple[str, ...]  #: Where it was called on the first rank that came there.
    seconds: Floats  #: By rank, then collective, from the first that is recorded; NaN where a rank did not come.


class FullReports(Mapping[int, TraceReport]):
    """Trace reports of ranks, by rank; each is read when it is asked for.

    Args:
        files: Where they are.
    """

    def __init__(self, files: Mapping[int, str]) -> None:
        self._files = files

    def __getitem__(self, rank: int) -> TraceReport:
        if rank not in self._files:
            there = f"there are those of {ranks_text(self._files)}" if self._files else "no rank of this run did"
            raise KeyError(f"rank {rank} left no full report: {there}")
        return TraceReport.load(self._files[rank])

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<full reports of {ranks_text(self._files) or 'no rank'}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport(Report):
    """What the ranks of a run wrote down, compared with each other."""

    kind_name: ClassVar[str] = "ranks"

    title: str  #: Where it was read from.
    world_size: int  #: How many ranks there were.
    ranks: tuple[RankRow, ...]  #: Those that wrote something, in order.
    names: tuple[str, ...] = ()  #: Of the parameters, as the first rank calls them.
    compared_pass: int = 0  #: A pass of which all ranks wrote the norms: where NaN began, else the last; 0 without one.
    compared_step: int = 0  #: The last step of an optimizer of which all did; 0 without one, and where it is not known.
    compared_after: int = 0  #: The pass before that step, where its number is not known; else 0.
    #: Norms of the gradients in that pass, before they were reduced: a row of all parameters for each rank.
    pass_norms: Floats = field(default_factory=no_numbers)
    step_norms: Floats = field(default_factory=no_numbers)  #: Norms of what that step used, likewise.
    differences: tuple[Difference, ...] = ()  #: What differs where it should not, the first time each.
    bad_pass: int = 0  #: The first pass in which a gradient or the loss of some rank, not of all, was not finite.
    bad_ranks: tuple[int, ...] = ()  #: These ranks.
    bad_line: str = ""  #: The line of that pass.
    bad_passed: bool = False  #: Whether the last pass is finite again on all ranks.
    spread: tuple[Placed, ...] = ()  #: How parameters are spread that are DTensors, as the first rank says.
    arrivals: Arrivals | None = None  #: When each rank came to the last collectives.
    gaps: tuple[Gap, ...] = ()  #: What could not be read.
    #: Everything that each rank wrote, by which the report can be merged with others; it is not saved.
    written: tuple[Any, ...] = field(default=(), repr=False, compare=False, metadata=UNSAVED)

    @property
    def reports(self) -> FullReports:
        """The full reports that ranks saved when they ended, by rank: of rank 0, and of those that differ."""
        return FullReports({one.rank: one.report for one in self.ranks if one.report})

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there."""
        sizes = {len(self.pass_norms), len(self.step_norms)}
        require(sizes <= {0, len(self.ranks) * len(self.names)}, "a rank has a norm for a parameter")
        if (come := self.arrivals) is not None:
            size = len(come.numbers)
            require(len(come.operations) == len(come.lines) == size, "a collective has a kind and a line")
            require(len(come.seconds) == len(come.ranks) * size, "a rank has a moment for each collective")
        for one in self.spread:
            require(len(one.placements) == len(one.mesh_sizes), "there is a placement for each dimension of a mesh")
            require(math.prod(one.mesh_sizes) == len(one.mesh_ranks), "a mesh has as many ranks as its sizes say")
        known = [one.rank for one in self.ranks]
        require(known == sorted(set(known)), "the ranks are in order")
