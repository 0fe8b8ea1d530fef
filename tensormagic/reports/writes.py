"""What a run wrote to in place, line by line, and whose elements that changed beside the tensor that was written to.

A loop that writes a thousand times on one line is one `Write` with a count; what is said of the elements is said of
the first write that changed them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Location, Report
from tensormagic.reports.trace import Cell, State

Extent = Literal["", "same", "within", "around", "crosses"]
ClashKind = Literal["overlaps itself", "repeats", "reads what it writes"]


@dataclass(frozen=True, slots=True)
class ChangedName:
    """Another name whose elements a write changed."""

    name: str  #: As it is in the namespace: ``"a"``, ``"best['weight']"``.
    #: How it comes to share with what was written to: ``"same object"``, ``"base"``, ``"view of it"``, ``"view of the
    #: same base"``, ``"same storage"`` (``.data``, ``.detach()``), ``"NumPy array"``, ``"itself"`` (the very tensor,
    #: reached behind autograd's back through ``.data``), ``"item of a list"``, ``"argument"`` (of a call that does not
    #: say that it writes to it).
    relation: str
    kind: str  #: ``"Tensor"``, ``"Parameter"``, ``"ndarray"`` …
    shape: tuple[int, ...]  #: Its shape.
    elements: int | None  #: How many of its elements the first such write reached; None where not counted.
    of_elements: int  #: How many elements it has.
    first: tuple[int, ...] | None = None  #: Index of the first of them, row by row; None where not known.
    #: Where these elements lie, row by row: a digit for each of at most 48 equal parts of the tensor, from 0 (nothing
    #: in it was reached) to 9 (all of it); empty where not known.
    marks: str = ""
    certain: bool = True  #: False where the write reached at most these: which ones depended on a mask or indices.
    #: Of what it reads against what was written to as a whole: ``"same"``, ``"within"`` (it is a part), ``"around"``
    #: (what was written to is a part of it), ``"crosses"`` (neither), ``""`` (not known).
    extent: Extent = ""
    noticed: bool | None = None  #: Whether autograd notices the change (a shared version counter); None if unknown.
    saved: bool = False  #: Whether a backward graph seems to hold its values.
    items: int = 1  #: For items of a list: how many of them are this one memory; else 1.
    writes: int = 1  #: How many writes of this line changed it.
    at_least: bool = False  #: Whether that may be more: who shares the memory was not asked each time.
    through: str = ""  #: What was written to, where a line writes to several tensors and it was not the first.


@dataclass(frozen=True, slots=True)
class Clash:
    """Memory that one write used twice, so that its result depends on the order in which elements are visited."""

    #: ``"overlaps itself"``: two indices of what was written to are one element; ``"repeats"``: what was written to is
    #: part of a tensor that holds each element several times; ``"reads what it writes"``.
    kind: ClashKind
    tensor: str  #: The tensor that the line names and writes through; empty where it names none.
    elements: int | None  #: How many were used twice (``"repeats"``: how many the write changed); None: not counted.
    of_elements: int  #: How many elements were written to.
    wrong: int | None = None  #: How many differ from what the same op gives on separate memory; None: not tried.
    index: tuple[int, ...] | None = None  #: Of the first of those, in ``tensor`` if named, else in what was written to.
    got: str = ""  #: The element there.
    expected: str = ""  #: The element that separate memory gives.
    refused: bool = False  #: Whether torch raised an error instead of writing.


@dataclass(frozen=True, slots=True)
class Write:
    """All in-place writes of one op on one line."""

    location: Location | None  #: The user's line.
    op: str  #: As torch names it: ``"add_"``, ``"copy_"``, ``"mm.out"``.
    target: str  #: What was written to first, as named in code or namespace: ``"x"``, ``"net.weight"``; else empty.
    shape: tuple[int, ...]  #: Of what was written to first.
    count: int  #: How often.
    several: bool = False  #: Whether other tensors were written to as well.
    changed: tuple[ChangedName, ...] = ()  #: Other names whose elements were changed.
    clash: Clash | None = None  #: Memory used twice, or None.


@dataclass(frozen=True, slots=True)
class WritesReport(Report):
    """Every in-place write of a run."""

    kind_name: ClassVar[str] = "writes"
    state: State = "running"  #: How the run ended, or that it is running.
    error: str = ""  #: Type and message of what it raised.
    cell: Cell = field(default_factory=lambda: Cell("", None, ()))  #: The source that was watched.
    seconds: float = 0.0  #: Wall time.
    writes: tuple[Write, ...] = ()  #: By line, in the order in which the lines first wrote.
    writes_seen: int = 0  #: How many writes there were.
    engine_writes: int = 0  #: Writes that backward made itself (it adds up gradients): not the user's, and not listed.
    names_searched: int = 0  #: How many names and attributes were looked through for others sharing memory, last time.
    gaps: tuple[Gap, ...] = ()  #: What could not be seen.
