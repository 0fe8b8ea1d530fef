"""What a diagnosis says: a stable code, one sentence, where, the numbers behind it, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

# Also `Location` and `Gap`, which every report uses: where in the user's own source something happened, and what
# could not be read and why.

Severity = Literal["error", "warning", "note"]
Scalar = bool | int | float | str | None

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's own source.

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
        message: One plain sentence with the user's own names and numbers.
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


# Tells the cell of each line in a report: what collects without a notebook knows files alone.

AnyData = TypeVar("AnyData")


def with_cells(data: AnyData, cell_number: Callable[[str], int | None]) -> AnyData:
    """Return plain data with the cell's number in every `Location` that has none; what does not change is kept.

    Args:
        data: A report, or a part of one.
        cell_number: Gives a cell's execution count from its file name, or None.
    """
    described: AnyData = _described(data, cell_number)
    return described


def _described(data: Any, cell_number: Callable[[str], int | None]) -> Any:
    if isinstance(data, Location):
        number = cell_number(data.filename) if data.cell is None else None
        return data if number is None else replace(data, cell=number)
    if type(data) is tuple:
        made = tuple(_described(item, cell_number) for item in data)
        return made if any(one is not other for one, other in zip(made, data, strict=True)) else data
    if not is_dataclass(data) or isinstance(data, type):
        return data
    every = ((field.name, getattr(data, field.name)) for field in fields(data))
    changed = {name: made for name, value in every if (made := _described(value, cell_number)) is not value}
    return replace(data, **changed) if changed else data
