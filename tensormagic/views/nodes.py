"""What a panel is made of: a dozen nodes. A panel names them once; HTML, text and SVG are drawn from them.

A text is a ``str``, in which what is between backticks is code. A cell, of a table or beside a title, is a text or
a node that fits into a line (`Words`, `Noted`, `Clash`, `Shape`, `Chip`, `Bar`, `Strip`), or a tuple of them, one after
the other. A node is here because two panels need it; what is truly a drawing is a `Picture`, which draws itself in each
form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tensormagic.reports import Cell as CellSource, Finding, Gap, Location
from tensormagic.words import ELLIPSIS, number_of_bytes, plural

Cell: TypeAlias = "str | Words | Noted | Clash | Shape | Chip | Bar | Strip | tuple[Cell, ...] | None"
Node: TypeAlias = "str | Findings | Section | Paragraph | Items | Table | Source | Parts | Picture"
# How words look; "literal": as the text around them, a backtick in them being a letter; "left" and "right": the name of
# one of two runs, "up" and "down": the sign of which has more.
Look = Literal[
    "quiet", "strong", "code", "literal", "badge", "error", "failed", "warning", "left", "right", "up", "down"
]

SHOWN_FINDINGS = 3  # of a panel, the likeliest; the others are folded
_NAME_WIDTH = 34  # characters


@dataclass(frozen=True, slots=True)
class Panel:
    """A whole output: what it is about at the top, then its parts."""

    kind: str  # Style class of its own: ``"rng"``.
    icon: str  # What kind of thing it is about; a name of `basics.theme`.
    title: str  # What it is about.
    facts: Sequence[Cell]  # First facts, beside the title.
    body: Sequence[Node]  # Its parts, in order.
    label: str = ""  # What a screen reader calls it; the title where empty.
    second: Sequence[str] = ()  # Quiet lines below the title.
    lead: str | Picture = ""  # The answer, as a sentence in large type, or drawn in a line.
    after: Sequence[Panel] = ()  # Panels that stand below it.
    sheets: Sequence[str] = ()  # Style sheets of its pictures: ``"why.css"``.


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong and what could not be read: the first part of every panel."""

    findings: Sequence[Finding]  # The most severe first.
    gaps: Sequence[Gap] = ()  # Each is named, with its reason.
    clear: str = ""  # The sentence where there is no finding; none where empty.
    # What stands before the message of each, where they are of several runs; they are then closed.
    where: Sequence[Cell] = ()
    most: int = SHOWN_FINDINGS  # How many are shown; the others are folded, and named.

    @property
    def rest(self) -> str:
        """What represents those that are folded: ``2 more findings: TM102, TM106``; empty where none is."""
        rest = self.findings[self.most :]
        codes = ", ".join(dict.fromkeys(finding.code for finding in rest))
        return f"{plural(len(rest), 'more finding')}: {codes}" if rest else ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part with a heading: every panel has some."""

    title: str  # None where empty.
    body: Sequence[Node]  # What is below the heading.
    note: str = ""  # Quiet words beside the heading.
    folded: bool = False  # Whether it is one click away in a page; a terminal shows it, a picture leaves it out.
    chip: int = 0  # The letters of the thing that it is about, before its title; 0: none.


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph: what to run (freeing), what writes go unnoticed (aliases)."""

    text: Cell  # Its words; what is not one text is one after the other.
    look: Look | None = None  # How it looks: ``"quiet"`` for what matters less, ``"warning"`` with its sign.


@dataclass(frozen=True, slots=True)
class Items:
    """A list: names of one object, pairs that overlap (aliases), remedies (why)."""

    items: Sequence[Cell]  # A line each.
    most: int = 12  # How many are shown.
    # What those are that are not shown, one and several: ``and 4 more pieces of memory``.
    more: tuple[str, str] = ("more", "more")
    left_out: int = 0  # How many more there are beyond ``items``.

    @property
    def rest(self) -> str:
        """How many are not shown: ``and 4 more pieces of memory``; empty where all are."""
        left = len(self.items[self.most :]) + self.left_out
        return f"and {plural(left, *self.more)}" if left else ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str = ""  # At its head.
    cell: Callable[[Any], Cell] | None = None  # Makes its cell from what a row is about; see `table_of`.
    # Of its cells, several words: ``"name"`` (the row is called so), ``"number"`` (aligned to the right), ``"code"``,
    # ``"quiet"``, ``"wide"`` (takes the room that is left), ``"silent"`` (its title is read out), ``"bars"`` (bars
    # below one another), ``"left"`` and ``"right"`` (its title is the name of that run).
    look: str = ""
    in_terminal: bool = True  # Whether a terminal has room for it.


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells."""

    columns: Sequence[Column]  # Titles and looks; a table of which no column has a title has no head.
    rows: Sequence[Sequence[Cell]]  # The cells of each row.
    most: tuple[int, int] = (100, 40)  # How many rows are shown in a page, and in a terminal.
    # What those are that are not shown, one and several: ``and 4 more lines``.
    more: tuple[str, str] = ("more", "more")
    left_out: tuple[int, int] = (0, 0)  # How many more there are beyond ``rows``, and how many bytes those have.
    nbytes: Sequence[int] = ()  # The bytes of each row, where the sum of those not shown is given.
    label: str = ""  # What a screen reader calls a table that scrolls where it is long; one without a label does not.


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a listing."""

    number: int  # Its number; 0 for a heading, or, without text, for lines left out.
    text: str  # As it is.
    beside: Sequence[Cell] = ()  # What it did, at its right: a draw (rng), what it writes to (writes).
    below: Sequence[Cell] = ()  # What came of it.
    sign: str = ""  # What stands before it: a severity, or ``"mark"`` for a line that did something.
    amounts: Sequence[Cell] = ()  # Numbers at its left, one for each of the listing's columns (a run's memory).
    ground: str = ""  # Style class of the colour that it has in a picture.
    marked: str = ""  # The part of the text that it is about: the call that failed.


@dataclass(frozen=True, slots=True)
class Source:
    """Code, line by line, with what each line did (rng, writes, a run's memory)."""

    lines: Sequence[Line]  # Of a cell, or of several files.
    titles: tuple[str, str] = ("", "")  # Of the code, and of what is at its right; seen only where they are given.
    columns: Sequence[str] = ()  # Titles of the numbers at the left of a line.


@dataclass(frozen=True, slots=True)
class Words:
    """A stretch of text that looks different from what is around it; ``hint`` is its tooltip."""

    text: str
    look: Look
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """What a cell says, with quiet words below it or behind it (aliases, memory)."""

    text: Cell
    notes: Sequence[Cell] = ()


@dataclass(frozen=True, slots=True)
class Clash:
    """What does not fit, and in a few words what would have (refused call, the top of a run that ended so)."""

    text: str
    because: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape as Python writes it, of sizes that may clash (refused call, the top of a run that ended so)."""

    sizes: Sequence[str | Clash]


@dataclass(frozen=True, slots=True)
class Chip:
    """The letters of one of several things that are distinguished by colour (aliases, tensors); 0: nothing."""

    number: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, as long as ``share`` says, from 0 to 1 (memory, compare)."""

    share: float  # How long.
    words: str = ""  # A number that it is behind (the lines of a run's memory).
    ground: str = ""  # Style class of its colour, where it has one of its own.


@dataclass(frozen=True, slots=True)
class Strip:
    """A row of boxes, each filled as far as it is used (aliases, writes)."""

    shares: Sequence[float | None]  # From 0 to 1 each; None where it is not known.
    sentence: str  # What is to be seen.
    row: int = 0  # After so many boxes there is a gap; 0: none.


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a bar of several parts, with its entry in the legend."""

    words: str  # What it stands for.
    amount: str  # How much that is, in words.
    share: float  # How long it is drawn, of the whole bar, from 0 to 1.
    ground: str  # Style class of its colour.
    of: str = ""  # What part of the whole that is, in words, where a bar is not drawn to scale.


@dataclass(frozen=True, slots=True)
class Parts:
    """One bar of several parts with its legend (memory, snapshot); ``note``: what else is to be known of it."""

    parts: Sequence[Part]
    note: str = ""


class Picture(ABC):
    """A node that is a drawing: it draws itself in each form that shows it; what a page folds, no SVG shows."""

    @abstractmethod
    def html(self) -> str:
        """Return it as markup."""

    def text(self, width: int) -> Iterable[str]:  # noqa: ARG002  (for those that draw)
        """Return it as lines of a terminal, of at most ``width`` columns."""
        return ()

    def svg(self, width: float) -> tuple[str, float]:  # noqa: ARG002  (for those that draw)
        """Return it as SVG content of that width, and its height."""
        return "", 0.0


def table_of(columns: Sequence[Column], items: Iterable[Any], **options: Any) -> Table:
    """Return a table with a row for each item, its cells made by the columns."""
    rows = [[column.cell(item) if column.cell is not None else None for column in columns] for item in items]
    return Table(columns, rows, **options)


def filled(table: Table) -> Table:
    """Return a table without the columns in which no row has anything."""
    used = [at for at in range(len(table.columns)) if any(row[at] for row in table.rows)]
    rows = [[row[at] for at in used] for row in table.rows]
    return replace(table, columns=[table.columns[at] for at in used], rows=rows)


def is_there(node: Node) -> bool:
    """Say whether anything of a node is seen: a table without rows is not, nor a section of nothing else."""
    if isinstance(node, Section):
        return any(map(is_there, node.body))
    if isinstance(node, Table | Source):
        return bool(node.rows if isinstance(node, Table) else node.lines)
    return bool(node.text if isinstance(node, Paragraph) else node)


def left_out_words(node: Table, shown: int) -> str:
    """Return how many rows of a table are not shown; nothing where all of them are."""
    number = len(node.rows) - shown + node.left_out[0]
    nbytes = sum(node.nbytes[shown:]) + node.left_out[1]
    return f"and {plural(number, *node.more)}{f', {number_of_bytes(nbytes)}' if nbytes else ''}" if number else ""


def listing(
    cell: CellSource, places: Iterable[Location], whole: int, around: int = 2, *, first: int = 1
) -> Iterator[tuple[str, int, str]]:
    """Yield file, number and text of each line to list: of the cell, then those places in other files, below a heading.

    Of a cell of more than ``whole`` lines, of which the first has the number ``first``, only those near marked ones are
    there. Number 0 marks a heading, or, without text, lines left out.
    """
    files: dict[str, dict[int, Location]] = {cell.filename: {}}
    for place in places:
        files.setdefault(place.filename, {}).setdefault(place.line, place)
    marked = files.pop(cell.filename) if cell.lines else {}
    near = {line + shift for line in marked for shift in range(-around, around + 1)}
    last = first - 1
    for number, text in enumerate(cell.lines, first):
        if len(cell.lines) <= whole or number in near:
            yield from [(cell.filename, 0, "")] if number != last + 1 else []
            yield cell.filename, number, text
            last = number
    for filename, lines in files.items():
        yield from [(filename, 0, place.label.rpartition(",")[0]) for place in [*lines.values()][:1]]
        yield from ((filename, number, lines[number].text) for number in sorted(lines))


def letters(number: int) -> str:
    """Return A for 1, Z for 26, AA for 27, nothing for 0."""
    text = ""
    while number > 0:
        number, at = divmod(number - 1, 26)
        text = chr(65 + at) + text
    return text


def clipped(text: str, width: int = _NAME_WIDTH) -> str:
    """Return a name on one line, its middle left out where it is long: both ends tell most."""
    line = " ".join(text.split())
    half = (width - 1) // 2
    return line if len(line) <= width else f"{line[: width - 1 - half]}{ELLIPSIS}{line[-half:]}"
