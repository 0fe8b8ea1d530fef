"""Several tensors on one strip of memory: a row each, in a colour of its own, over one ruler.

Where there are few enough, every element is a cell with its index in it, as wide as it has bytes: a float32 lies over
four int8. Beyond, the height of a cell's filling is the part of it that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tensormagic.renderers.assets import code_of, loader
from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.markup import escape, fitted, tag, text_width
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.terminal.text_canvas import Canvas
from tensormagic.reports import OverlayElement, OverlayMember, OverlayReport, OverlayRow, OverlayStorage
from tensormagic.views.nodes import Picture
from tensormagic.views.to_svg import text_svg
from tensormagic.words import count, plural, shortened

WIDTH = 840  # pixels that the cells have where the panel is as wide as it can be
UNIT = 46  # pixels of a cell at most
HEIGHT, LEAST_FILL = 22, 3
CHARACTER = 6.7  # pixels of a character in the code font of the cells
UNREAD = f"background-color:{theme.role('skip')}"
LABELS = (78, 150)  # pixels for the names
NAME_WIDTH = 20  # characters
READ, NOT_READ = "\u2588", "\u2591"
PARTS = ("\u2592", "\u2593")  # under half read, half or more


@dataclass(frozen=True, slots=True)
class OverlayPicture(Picture):
    """The tensors of one storage, over its bytes (overlay).

    Attributes:
        report: Whose members they are.
        storage: In which they lie.
        viewer: Whether the script comes with it that lights what lies over the same bytes: once a panel.
    """

    report: OverlayReport
    storage: OverlayStorage
    viewer: bool = False

    @property
    def sentence(self) -> str:
        """What is drawn."""
        return f"{plural(len(self.storage.rows), 'tensor')} over one storage"

    def html(self) -> str:
        """Return a table of cells, coloured where they are read."""
        script = code_of("overlay", "overlay_viewer.js", mount="mountStrips") + loader() if self.viewer else ""
        return _strips(self.report, self.storage) + script

    def text(self, width: int) -> Iterable[str]:
        """Return a line of characters a tensor, and the ruler."""
        return _strip_lines(self.report, self.storage, width)

    def svg(self, width: float) -> tuple[str, float]:
        """Return a row of boxes a tensor, and the ruler."""
        storage, left, parts = self.storage, 150.0, list[str]()
        unit = (width - left) / max(storage.stop - storage.start, 1)
        for at, row in enumerate(storage.rows):
            member, colour, y = self.report.members[row.member], _colour(storage, row.member), 24.0 * at
            parts.append(text_svg(0, y + 15, fitted(name(member), left - 10, 13), size=13))
            parts.append(_box(left, y, width - left, 20, theme.role("skip")))
            if storage.readers:
                parts += [_element_svg(left + (one.start - storage.start) * unit, y, member.element_size * unit, one,
                                       colour) for one in row.elements]  # fmt: skip
            else:
                parts += _shares_svg(storage, row, (left, y, unit), colour)
        below = 24.0 * len(storage.rows)
        step = in_elements(self.report, storage)
        ends = [(left, "start", storage.start), (width, "end", storage.stop)]
        parts += [text_svg(x, below + 13, count(byte // step), size=12, anchor=anchor, quiet=True)
                  for x, anchor, byte in ends]  # fmt: skip
        parts.append(text_svg(0, below + 13, "offset" if step > 1 else "byte", size=12, quiet=True))
        return "".join(parts), below + 18


def _box(x: float, y: float, wide: float, high: float, colour: str) -> str:
    place = f'x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{number(high)}"'
    return f'<rect {place} fill="{colour}"/>'


def _element_svg(x: float, y: float, wide: float, element: OverlayElement, colour: str) -> str:
    box = _box(x, y, max(wide - 1, 0.5), 20, colour)
    label = element_label(element)
    if text_width(label, 11) > wide - 4:
        return box
    return box + text_svg(x + wide / 2, y + 14, label, size=11, anchor="middle", ink=theme.ink_on(colour))


def _shares_svg(
    storage: OverlayStorage, row: OverlayRow, place: tuple[float, float, float], colour: str
) -> Iterator[str]:
    left, y, unit = place
    for at, read in enumerate(row.bytes_read):
        start = at * storage.cell_bytes
        size = min(storage.cell_bytes, storage.stop - storage.start - start)
        high = 20.0 if read is None else 20.0 * read / max(size, 1)
        if high:
            yield _box(left + start * unit, y + 20 - high, size * unit, high, colour)


# -- words -----------------------------------------------------------------------------------------------------------


def name(member: OverlayMember) -> str:
    """Return the name of a member: short, on one line, never empty."""
    return shortened(member.name, NAME_WIDTH) or "tensor"


def in_elements(report: OverlayReport, storage: OverlayStorage) -> int:
    """Return the element size where all members have the same and lie on one ruler, else 1: what offsets count in."""
    sizes = {report.members[at].element_size for at in storage.members}
    size = sizes.pop() if len(sizes) == 1 else 1
    return size if storage.start % size == 0 and storage.cell_bytes % size == 0 else 1


def element_title(member: OverlayMember, element: OverlayElement) -> str:
    """Return which element this is, which bytes it takes, and how often it is read."""
    inner = ", ".join(map(str, element.index))
    label = f"{name(member)}[{inner}]" if element.index else name(member)
    last = element.start + member.element_size - 1
    where = (
        f"byte {count(element.start)}" if member.element_size == 1 else f"bytes {count(element.start)} to {count(last)}"
    )
    return f"{label}: {where}" + (f", read {count(element.reads)} times" if element.reads > 1 else "")


def element_label(element: OverlayElement) -> str:
    """Return the index of an element as short as it can be written."""
    return ",".join(map(str, element.index))


def share_title(start: int, stop: int, read: int | None) -> str:
    """Return how much of a cell is read."""
    where = f"bytes {count(start)} to {count(stop - 1)}"
    if read is None:
        return f"{where}: not counted"
    part = "none" if read == 0 else "all" if read == stop - start else f"{count(read)} of {count(stop - start)}"
    return f"{where}: {part} read"


# -- HTML ------------------------------------------------------------------------------------------------------------


def _colour(storage: OverlayStorage, member: int) -> str:
    return theme.KIND_COLOURS[storage.members.index(member) % len(theme.KIND_COLOURS)]


def _strips(report: OverlayReport, storage: OverlayStorage) -> str:
    cells = len(storage.rows[0].bytes_read)
    rows = [_row(report, storage, row) for row in storage.rows]
    rows += [_readers(storage)] if storage.readers else []
    rows.append(_ruler(report, storage))
    widest = max(text_width(name(report.members[at]), 12) for at in storage.members)
    labels = round(min(max(LABELS[0], widest + 34), LABELS[1]))
    columns = tag("colgroup", f'<col style="width:{labels}px">', f'<col span="{cells}">')
    width = labels + round(_pixels(storage) * cells)
    return tag("table", columns, *rows, class_="tm-cells tm-storage", style=f"width:100%;max-width:{width}px")


def _pixels(storage: OverlayStorage) -> float:
    return min(WIDTH / max(len(storage.rows[0].bytes_read), 1), UNIT)


def _row(report: OverlayReport, storage: OverlayStorage, row: OverlayRow) -> str:
    member, colour = report.members[row.member], _colour(storage, row.member)
    swatch = tag("span", "&nbsp;" * 2, class_="tm-swatch", style=f"background-color:{colour}")
    cells = _single(storage, member, row, colour) if storage.readers else _shares(storage, row, colour)
    head = tag("th", swatch, " ", tag("code", escape(name(member))), title=member.name[:200])
    return tag("tr", head, *cells, class_="tm-strip")


def _single(storage: OverlayStorage, member: OverlayMember, row: OverlayRow, colour: str) -> Iterator[str]:
    """Yield a cell for every element and for every gap, each as wide as it has bytes."""
    at = storage.start
    for element in (*row.elements, None):
        stop = storage.stop if element is None else element.start
        yield from _gaps(storage, member, at, stop)
        if element is not None:
            yield _element(storage, member, element, colour)
            at = element.start + member.element_size


def _gaps(storage: OverlayStorage, member: OverlayMember, start: int, stop: int) -> Iterator[str]:
    """Yield the bytes that are not read as cells of the member's own size, in line with its elements."""
    size, first = member.element_size, member.first_byte or 0
    while start < stop:
        end = min(stop, start + size - (start - first) % size)
        title = f"bytes {count(start)} to {count(end - 1)}: not read"
        yield _cell("", (end - start) // storage.cell_bytes, UNREAD, title, "tm-skip")
        start = end


def _element(storage: OverlayStorage, member: OverlayMember, element: OverlayElement, colour: str) -> str:
    span = member.element_size // storage.cell_bytes
    label = element_label(element) + (f" \u00d7{element.reads}" if element.reads > 1 else "")
    short = f"\u00d7{element.reads}" if element.reads > 1 else ""
    room = _pixels(storage) * span - 3
    text = next((text for text in (label, short) if len(text) * CHARACTER <= room), "")
    style = f"background-color:{colour};color:{theme.ink_on(colour)}"
    return _cell(text, span, style, element_title(member, element))


def _cell(text: str, span: int, style: str, title: str, class_: str | None = None) -> str:
    return tag("td", escape(text), colspan=span if span > 1 else None, class_=class_, style=style, title=title)


def _shares(storage: OverlayStorage, row: OverlayRow, colour: str) -> Iterator[str]:
    """Yield a cell for every run of bytes, filled as high as the part of it that is read."""
    for at, read in enumerate(row.bytes_read):
        start = storage.start + at * storage.cell_bytes
        stop = min(start + storage.cell_bytes, storage.stop)
        title = share_title(start, stop, read)
        if read == 0:
            yield _cell("", 1, UNREAD, title, "tm-skip")
        elif read is None or read == stop - start:
            yield _cell("", 1, f"background-color:{colour}", title)
        else:
            height = max(round(HEIGHT * read / (stop - start)), LEAST_FILL)
            fill = f'<div style="height:{height}px;background-color:{colour}"></div>'
            yield tag("td", fill, class_="tm-skip tm-part", title=title)


def _readers(storage: OverlayStorage) -> str:
    """Return the row that says how many of them read each cell, neighbours with the same number in one."""
    cells, at, readers = [], 0, storage.readers
    while at < len(readers):
        end = next((later for later in range(at, len(readers)) if readers[later] != readers[at]), len(readers))
        class_ = "tm-many" if readers[at] > 1 else None
        text = str(readers[at]) if readers[at] else "\u2013"
        title = f"bytes {storage.start + at * storage.cell_bytes} to {storage.start + end * storage.cell_bytes - 1}"
        cells.append(_cell(text, end - at, "", f"{title}: read by {readers[at]} of {len(storage.members)}", class_))
        at = end
    return tag("tr", tag("th", "read by"), *cells, class_="tm-readers").replace(' style=""', "")


def _ruler(report: OverlayReport, storage: OverlayStorage) -> str:
    unit = in_elements(report, storage)
    starts = [(storage.start + at * storage.cell_bytes) // unit for at in range(len(storage.rows[0].bytes_read))]
    every = _label_step(storage, len(count(starts[-1])))
    cells = []
    for at in range(0, len(starts), every):
        span = min(every, len(starts) - at)
        text = count(starts[at]) if span == every or at == 0 else ""
        cells.append(tag("td", text, colspan=span if span > 1 else None))
    title = "offset" if unit > 1 else "byte"
    return tag("tr", tag("th", title), *cells, class_="tm-offsets" + (" tm-sparse" if every > 1 else ""))


def _label_step(storage: OverlayStorage, characters: int) -> int:
    """Return at every how-manieth cell the ruler has a number: 1, or a power of two with room for it."""
    step, room = 1, _pixels(storage) * 0.75  # three quarters: the panel may be narrower than its widest
    while step * room < characters * CHARACTER + 4:
        step *= 2
    return step


# -- text ------------------------------------------------------------------------------------------------------------


def _strip_lines(report: OverlayReport, storage: OverlayStorage, width: int) -> list[str]:
    if not storage.rows:
        return []
    left = max(*(len(name(report.members[at])) for at in storage.members), len("offset")) + 3
    cells = len(storage.rows[0].bytes_read)
    room = max(min((width - left - 1) // cells, 6), 1)
    canvas = Canvas()
    for line, row in enumerate(storage.rows):
        canvas.put(line, 1, name(report.members[row.member]))
        canvas.put(line, left, _strip_line(report, storage, row, room))
    _ruler_line(canvas, report, storage, left=left, room=room)
    return canvas.lines()


def _strip_line(report: OverlayReport, storage: OverlayStorage, row: OverlayRow, room: int) -> str:
    if not storage.readers:
        return "".join(_share_text(storage, at, read) * room for at, read in enumerate(row.bytes_read))
    size = report.members[row.member].element_size
    line = [NOT_READ if at % room or room == 1 else " " for at in range(room * len(row.bytes_read))]
    for at, element in enumerate(row.elements):
        start = (element.start - storage.start) // storage.cell_bytes * room
        span = size // storage.cell_bytes * room
        line[start : start + span] = _element_text(element_label(element), span, room, odd=bool(at % 2))
    return "".join(line)


def _element_text(label: str, span: int, room: int, *, odd: bool) -> str:
    """Return one element: its index where that has room behind a space, else a bar; neighbours differ."""
    if len(label) < span:
        return (f"\u2595{label}" if room == 1 else f" {label}").ljust(span, "\u2500" if room == 1 else " ")
    return PARTS[1] * span if room == 1 and odd else (READ * span if room == 1 else " " + READ * (span - 1))


def _share_text(storage: OverlayStorage, at: int, read: int | None) -> str:
    start = storage.start + at * storage.cell_bytes
    size = min(storage.cell_bytes, storage.stop - start)
    if read is None or read == size:
        return READ
    return NOT_READ if read == 0 else PARTS[2 * read >= size]


def _ruler_line(canvas: Canvas, report: OverlayReport, storage: OverlayStorage, *, left: int, room: int) -> None:
    unit = in_elements(report, storage)
    starts = [(storage.start + at * storage.cell_bytes) // unit for at in range(len(storage.rows[0].bytes_read))]
    step = 1
    while step * room < len(count(starts[-1])) + 1:
        step *= 2
    line = canvas.height
    canvas.put(line, 1, "offset" if unit > 1 else "byte")
    for at in range(0, len(starts), step):
        canvas.put(line, left + at * room + (room > 1), count(starts[at]))
