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
    """One generator, as it is."""

    name: str  #: What a user calls it: ``"torch, CPU"``, ``"numpy.random"``, ``"random"``, ``"loader.generator"``.
    library: Library  #: Whose it is.
    algorithm: str  #: ``"MT19937"``, ``"Philox"``, ``"PCG64"`` …
    device: str = "cpu"  #: Where it draws.
    seed: str = ""  #: What it was seeded with, as a user would write it; empty where that is unknown.
    #: ``"chosen"``: a seed that somebody wrote down; ``"entropy"``: probably one of the system's, which no second run
    #: will have, as it is too large to be written down; ``"default"``: never seeded, and the same in every run (a new
    #: ``torch.Generator()``); ``"unknown"``: with a seed, one as large that another generator may have drawn.
    seeding: Seeding = "unknown"
    drawn: int | None = None  #: How many numbers it has given since that seed; None where that is unknown.
    bits: int = 32  #: Of each of these numbers: 32 or 64.
    least: int = 0  #: Where ``drawn`` is None because it is more than was looked through: at least so many; else 0.
    pending: bool = False  #: Whether half of a pair of normal numbers is kept for the next call.
    digest: str = ""  #: Twelve hexadecimal digits of a hash of its state: equal where the next numbers are equal.
    names: tuple[str, ...] = ()  #: Other names for the same generator.


@dataclass(frozen=True, slots=True, kw_only=True)
class RngReport(Report):
    """Every generator in reach."""

    kind_name: ClassVar[str] = "rng"

    generators: tuple[GeneratorState, ...] = ()  #: The default ones first.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.


@dataclass(frozen=True, slots=True)
class Draw:
    """One time that a generator changed."""

    generator: int  #: Index into `RngRunReport.before`.
    kind: DrawKind  #: ``"drew"``, or ``"set"``: seeded anew, or put back to an earlier state.
    op: str  #: What drew: ``"aten.rand"``; ``"seed"`` where torch was seeded. Empty where unseen (NumPy, Python).
    location: int | None  #: Index into `RngRunReport.locations`; None where no line is known.
    since: int | None  #: Likewise: the line after which it was, where only that is known; else as ``location``.
    values: int | None  #: How many elements the call filled, or numbers NumPy and Python took; None: unknown.
    digest: str  #: Of the state afterwards.
    seed: str = ""  #: With what torch was seeded there; empty of draws, and where that is unseen.


@dataclass(frozen=True, slots=True)
class DrawSum:
    """All draws of one call from one line and generator."""

    generator: int  #: Index into `RngRunReport.before`.
    kind: DrawKind  #: As in `Draw`.
    op: str  #: As in `Draw`.
    location: int | None  #: As in `Draw`.
    since: int | None  #: As in `Draw`.
    calls: int  #: How often.
    values: int | None  #: Their values, added up; None where one is unknown.
    first: int  #: Number of the first of them, over the run.


@dataclass(frozen=True, slots=True, kw_only=True)
class RngRunReport(Report):
    """Who drew random numbers in a run."""

    kind_name: ClassVar[str] = "rng run"

    cell: Cell  #: The source that ran.
    state: State = "running"  #: How the run ended, or that it is running.
    error: str = ""  #: Type and message of what it raised.
    seconds: float = 0.0  #: Wall time.
    before: tuple[GeneratorState, ...] = ()  #: The generators when the run began, and those first met in it.
    after: tuple[GeneratorState, ...] = ()  #: The same generators, at its end.
    locations: tuple[Location, ...] = ()  #: Lines.
    sums: tuple[DrawSum, ...] = ()  #: By line, call and generator, in the order of their first draws.
    draws: tuple[Draw, ...] = ()  #: Every single one in order; the first ones where there are very many.
    count: int = 0  #: How many there were.
    gaps: tuple[Gap, ...] = ()  #: What could not be seen, and why.

    def location(self, index: int | None) -> Location | None:
        """Return a line by its index."""
        return None if index is None else self.locations[index]


Difference = Literal["none", "start", "seed", "state", "call", "values", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RngComparison(Report):
    """Two runs, draw by draw, up to the first that differs."""

    kind_name: ClassVar[str] = "rng comparison"

    names: tuple[str, str]  #: What the runs are called.
    #: ``"none"``; ``"start"``: a generator that was drawn from stood elsewhere when the run began; ``"seed"``: both
    #: runs seeded it, or set its state, and otherwise; ``"state"``: the same call, but its generator was set otherwise;
    #: ``"call"``: another call, line or generator; ``"values"``: another number of values; ``"end"``: one run ends
    #: before.
    difference: Difference = "none"
    same: int = 0  #: How many draws are the same before it.
    generator: str = ""  #: Name of the generator that differs first; empty where none does.
    sides: tuple[Draw | None, Draw | None] = (None, None)  #: The draw of each run; None where it has ended.
    places: tuple[Location | None, Location | None] = (None, None)  #: The line of each.
    starts: tuple[GeneratorState | None, GeneratorState | None] = (None, None)  #: Each one's generator at the start.
    complete: bool = True  #: Whether all draws were compared with each other; long runs keep only their first.
