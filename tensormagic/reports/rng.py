"""Random generators: their seeds, how far they have come; and over a run, which call drew from which of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.trace import Cell, State

Library = Literal["torch", "numpy", "python"]
Seeding = Literal["chosen", "entropy", "default", "unknown"]
DrawKind = Literal["drew", "set"]


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """One generator, as it is.

    Attributes:
        name: What a user calls it: ``"torch, CPU"``, ``"numpy.random"``, ``"random"``, ``"loader.generator"``.
        library: Whose it is.
        algorithm: ``"MT19937"``, ``"Philox"``, ``"PCG64"`` …
        device: Where it draws.
        seed: What it was seeded with, as a user would write it; empty where that is unknown.
        seeding: ``"chosen"``: a seed that somebody wrote down; ``"entropy"``: one of the system's, which no second run
            will have; ``"default"``: never seeded, and the same in every run (a new ``torch.Generator()``);
            ``"unknown"``.
        drawn: How many numbers it has given since that seed; None where that is unknown.
        bits: Of each of these numbers: 32 or 64.
        least: Where ``drawn`` is None because it is more than was looked through: at least so many; else 0.
        pending: Whether half of a pair of normal numbers is kept for the next call.
        digest: Twelve hexadecimal digits of a hash of its state: equal where the next numbers are equal.
        names: Other names for the same generator.
    """

    name: str
    library: Library
    algorithm: str
    device: str = "cpu"
    seed: str = ""
    seeding: Seeding = "unknown"
    drawn: int | None = None
    bits: int = 32
    least: int = 0
    pending: bool = False
    digest: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RngReport(Report):
    """Every generator in reach.

    Attributes:
        generators: The default ones first.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "rng"

    generators: tuple[GeneratorState, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Draw:
    """One time that a generator changed.

    Attributes:
        generator: Index into `RngRunReport.before`.
        kind: ``"drew"``, or ``"set"``: seeded anew, or put back to an earlier state.
        op: What drew: ``"aten.rand"``; empty where that was not seen (NumPy, Python).
        location: Index into `RngRunReport.locations`; None where no line is known.
        since: Likewise: the line after which it was, where only that is known; else the same as ``location``.
        values: How many elements the call filled; for NumPy and Python, how many numbers were taken; None: unknown.
        digest: Of the state afterwards.
    """

    generator: int
    kind: DrawKind
    op: str
    location: int | None
    since: int | None
    values: int | None
    digest: str


@dataclass(frozen=True, slots=True)
class DrawSum:
    """All draws of one call from one line and generator.

    Attributes:
        generator: Index into `RngRunReport.before`.
        kind: As in `Draw`.
        op: As in `Draw`.
        location: As in `Draw`.
        since: As in `Draw`.
        calls: How often.
        values: Their values, added up; None where one is unknown.
        first: Number of the first of them, over the run.
    """

    generator: int
    kind: DrawKind
    op: str
    location: int | None
    since: int | None
    calls: int
    values: int | None
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RngRunReport(Report):
    """Who drew random numbers in a run.

    Attributes:
        cell: The source that ran.
        state: How the run ended, or that it is running.
        error: Type and message of what it raised.
        seconds: Wall time.
        before: The generators when the run began, and those first met in it.
        after: The same generators, at its end.
        locations: Lines.
        sums: By line, call and generator, in the order of their first draws.
        draws: Every single one in order; the first ones where there are very many.
        count: How many there were.
        gaps: What could not be seen, and why.
    """

    kind_name: ClassVar[str] = "rng run"

    cell: Cell
    state: State = "running"
    error: str = ""
    seconds: float = 0.0
    before: tuple[GeneratorState, ...] = ()
    after: tuple[GeneratorState, ...] = ()
    locations: tuple[Location, ...] = ()
    sums: tuple[DrawSum, ...] = ()
    draws: tuple[Draw, ...] = ()
    count: int = 0
    gaps: tuple[Gap, ...] = ()

    def location(self, index: int | None) -> Location | None:
        """Return a line by its index."""
        return None if index is None else self.locations[index]


Difference = Literal["none", "start", "state", "call", "values", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RngComparison(Report):
    """Two runs, draw by draw, up to the first that differs.

    Attributes:
        names: What the runs are called.
        difference: ``"none"``; ``"start"``: a generator that was drawn from stood elsewhere when the run began;
            ``"state"``: the same call, but its generator was set otherwise; ``"call"``: another call, line or
            generator; ``"values"``: another number of values; ``"end"``: one run ends before.
        same: How many draws are the same before it.
        generator: Name of the generator that differs first; empty where none does.
        sides: The draw of each run; None where it has ended.
        places: The line of each.
        starts: The generator of each, as it stood when the run began.
        complete: Whether all draws were compared with each other; long runs keep only their first.
    """

    kind_name: ClassVar[str] = "rng comparison"

    names: tuple[str, str]
    difference: Difference = "none"
    same: int = 0
    generator: str = ""
    sides: tuple[Draw | None, Draw | None] = (None, None)
    places: tuple[Location | None, Location | None] = (None, None)
    starts: tuple[GeneratorState | None, GeneratorState | None] = (None, None)
    complete: bool = True
