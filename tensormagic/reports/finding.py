"""What a diagnosis says: a stable code, one sentence, where, the numbers behind it, and what to do.

Also `Location` and `Gap`, which every report uses: where in the person's own source something happened, and
what could not be read and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]
Scalar = bool | int | float | str | None

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the person's own source.

    Attributes:
        filename: As Python names it; for a notebook cell, the kernel's made-up file name.
        line: Line number in that file or cell, from 1.
        text: The line itself, stripped; empty where it cannot be read.
        cell: The execution count of the cell (the 5 of ``In [5]``), or None outside a notebook.
        function: The function the line is in; empty at the top level.
    """

    filename: str
    line: int
    text: str = ""
    cell: int | None = None
    function: str = ""

    @property
    def label(self) -> str:
        """Where, in words: ``cell 5, line 12`` or ``model.py, line 12``."""
        place = f"cell {self.cell}" if self.cell is not None else self.filename.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{place}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that could not be read: which section of the report, and why. Shown, never hidden."""

    section: str
    reason: str


@dataclass(frozen=True, slots=True)
class RelatedLine:
    """A second line that a finding needs to be understood: what happened there (``"saved by pow"``), and where."""

    what: str
    location: Location


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    Attributes:
        code: Stable, e.g. ``"TM402"``; ``docs/diagnoses/TM402.md`` explains it.
        severity: ``"error"``, ``"warning"`` or ``"note"``.
        message: One plain sentence with the person's own names and numbers.
        location: The line it is about, where there is one.
        evidence: The numbers the sentence rests on.
        remedy: What to do, in words or code; empty where nothing needs doing.
        subject: The name of the tensor, parameter or node it is about.
        node: ``(graph, node)`` indices into the trace's graphs, or None.
        fix: The line, or lines, to put in place of that of ``location``: code that works as it is pasted, with the
            person's own names. Empty where what is right depends on what is meant.
        related: Other lines that matter, each with what happened there: where the tensor was saved that ``location``
            changed.
    """

    code: str
    severity: Severity
    message: str
    location: Location | None = None
    evidence: dict[str, Scalar] = field(default_factory=dict)
    remedy: str = ""
    subject: str = ""
    node: tuple[int, int] | None = None
    related: tuple[RelatedLine, ...] = ()
    fix: str = ""

    @property
    def url(self) -> str:
        """The page of the documentation that explains this code, relative to the project; `help` shows it anywhere."""
        return f"docs/diagnoses/{self.code}.md"

    @property
    def help(self) -> str:
        """What to type into a notebook to read that page: it comes with the package, and needs no network."""
        return f"%tensormagic help {self.code}"
