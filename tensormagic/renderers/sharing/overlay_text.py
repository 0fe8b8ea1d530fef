"""Several tensors on one strip of memory in characters: a line each over one ruler."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.sharing.overlay_words import (
    HEAD,
    apart,
    crossing_head,
    drawn,
    element_label,
    headline,
    in_elements,
    meeting,
    member_row,
    name,
    names,
    pair_sentences,
)
from tensormagic.renderers.tensor.tensor_text import finding_lines
from tensormagic.renderers.terminal.text_canvas import Canvas, printable, table
from tensormagic.reports import OverlayReport, OverlayRow, OverlayStorage
from tensormagic.words import count

NARROWEST = 40
READ, NOT_READ = "\u2588", "\u2591"
PARTS = ("\u2592", "\u2593")  # under half read, half or more


def render(report: OverlayReport, *, width: int = 100) -> str:
    """Return the overlay as text, no line wider than ``width`` columns (never narrower than 40)."""
    width = max(width, NARROWEST)
    blocks = [_storage(report, storage, width) for storage in report.shared]
    blocks[1:1] = [finding_lines(finding, width) for finding in report.findings]
    rest = apart(report)
    blocks += [_wrapped(f" {rest}.", width)] if rest else []
    blocks += [_wrapped(f" not shown: {gap.section}: {gap.reason}", width) for gap in report.gaps]
    lines = "\n\n".join("\n".join(block) for block in blocks if block).split("\n")
    return "\n".join(_cut(printable(line), width) for line in lines)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "\u2026"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="   ", break_on_hyphens=False)


def _storage(report: OverlayReport, storage: OverlayStorage, width: int) -> list[str]:
    head = f"\u2500\u2500 {names(report, storage.members)} \u2500\u2500 {headline(storage)} "
    lines = [head.ljust(width, "\u2500"), *_strips(report, storage, width)]
    notes = [*([drawn(report, storage)] if drawn(report, storage) else []), *pair_sentences(report, storage)]
    lines += ["", *(line for note in notes for line in _wrapped(f" {note}", width)), ""]
    rows = _rows(report, storage)
    wide = len(table(rows)[0]) > width  # then the numbers of elements in common are left to the panel
    return lines + table([row[: len(HEAD)] for row in rows] if wide else rows)


def _rows(report: OverlayReport, storage: OverlayStorage) -> list[tuple[str, ...]]:
    others = crossing_head(report, storage)
    crossed = storage.members if others else ()
    head = (*HEAD, *others)
    rows = [
        (*member_row(report.members[at]), *(meeting(storage, at, other) for other in crossed)) for at in storage.members
    ]
    return [tuple(title.upper() for title in head), *rows]


def _strips(report: OverlayReport, storage: OverlayStorage, width: int) -> list[str]:
    if not storage.rows:
        return []
    left = max(*(len(name(report.members[at])) for at in storage.members), len("offset")) + 3
    cells = len(storage.rows[0].bytes_read)
    room = max(min((width - left - 1) // cells, 6), 1)
    canvas = Canvas()
    for line, row in enumerate(storage.rows):
        canvas.put(line, 1, name(report.members[row.member]))
        canvas.put(line, left, _strip(report, storage, row, room))
    _ruler(canvas, report, storage, left=left, room=room)
    return canvas.lines()


def _strip(report: OverlayReport, storage: OverlayStorage, row: OverlayRow, room: int) -> str:
    if not storage.readers:
        return "".join(_share(storage, at, read) * room for at, read in enumerate(row.bytes_read))
    size = report.members[row.member].element_size
    line = [NOT_READ if at % room or room == 1 else " " for at in range(room * len(row.bytes_read))]
    for number, element in enumerate(row.elements):
        start = (element.start - storage.start) // storage.cell_bytes * room
        span = size // storage.cell_bytes * room
        line[start : start + span] = _element(element_label(element), span, room, odd=bool(number % 2))
    return "".join(line)


def _element(label: str, span: int, room: int, *, odd: bool) -> str:
    """Return one element: its index where that has room behind a space, else a bar; neighbours differ."""
    if len(label) < span:
        return (f"\u2595{label}" if room == 1 else f" {label}").ljust(span, "\u2500" if room == 1 else " ")
    return PARTS[1] * span if room == 1 and odd else (READ * span if room == 1 else " " + READ * (span - 1))


def _share(storage: OverlayStorage, at: int, read: int | None) -> str:
    start = storage.start + at * storage.cell_bytes
    size = min(storage.cell_bytes, storage.stop - start)
    if read is None or read == size:
        return READ
    return NOT_READ if read == 0 else PARTS[2 * read >= size]


def _ruler(canvas: Canvas, report: OverlayReport, storage: OverlayStorage, *, left: int, room: int) -> None:
    unit = in_elements(report, storage)
    starts = [(storage.start + at * storage.cell_bytes) // unit for at in range(len(storage.rows[0].bytes_read))]
    step = 1
    while step * room < len(count(starts[-1])) + 1:
        step *= 2
    line = canvas.height
    canvas.put(line, 1, "offset" if unit > 1 else "byte")
    for at in range(0, len(starts), step):
        canvas.put(line, left + at * room + (room > 1), count(starts[at]))
