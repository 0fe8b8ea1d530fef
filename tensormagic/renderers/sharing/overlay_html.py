"""Several tensors on one strip of memory as HTML: a row each, in a colour of its own, over one ruler.

Where there are few enough, every element is a cell with its index in it, as wide as it has bytes: a float32 lies over
four int8. Beyond, the height of a cell's filling is the part of it that is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.renderers.basics import theme
from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import corner, escape, tag
from tensormagic.renderers.basics.panel import header, panel, scroll, section
from tensormagic.renderers.basics.text_metrics import text_width
from tensormagic.renderers.sharing.overlay_words import (
    HEAD,
    apart,
    crossing_head,
    drawn,
    element_label,
    element_title,
    headline,
    in_elements,
    meeting,
    member_row,
    name,
    names,
    pair_sentences,
    share_title,
)
from tensormagic.renderers.shelf import code_of, loader
from tensormagic.reports import OverlayElement, OverlayMember, OverlayReport, OverlayRow, OverlayStorage
from tensormagic.words import count

WIDTH = 840  # pixels that the cells have where the panel is as wide as it can be
UNIT = 46  # pixels of a cell at most
HEIGHT, LEAST_FILL = 22, 3
CHARACTER = 6.7  # pixels of a character in the code font of the cells
UNREAD = f"background-color:{theme.role('skip')}"
LABELS = (78, 150)  # pixels for the names
_NUMBER = {"elements": "tm-num", "bytes read": "tm-num"}
_NONE = ("0", "\u2013")
MOST_ABREAST = 3  # tensors; the table of more may be wider than the panel


def render(report: OverlayReport) -> str:
    """Return the overlay as an HTML fragment; one line where no two of the tensors share memory."""
    every = names(report, tuple(range(len(report.members))))
    first, *others = [_storage(report, storage) for storage in report.shared] or [(_nothing_shared(every), "")]
    rest = section("", tag("p", escape(apart(report)) + ".")) if apart(report) else ""
    label = f"Memory of {every}" if report.members else "Memory"
    notes = findings_html(report.findings) + gaps_html(report.gaps)
    viewer = _viewer() if any(storage.rows for storage in report.shared) else ""
    further = (part for pair in others for part in pair)
    content = (*first[:1], notes, *first[1:], *further, rest, viewer)
    return panel("tm-tensor tm-overlay", label, content, css=("tensor.css", "overlay.css"))


def _nothing_shared(every: str) -> str:
    return header(escape(every), ["no memory in common"], about="memory") if every else ""


def _viewer() -> str:
    return code_of("overlay", "overlay_viewer.js", mount="mountStrips") + loader()


def _storage(report: OverlayReport, storage: OverlayStorage) -> tuple[str, str]:
    """Return the header of one storage, and what is drawn of it."""
    head = header(escape(names(report, storage.members)), [escape(headline(storage))], about="memory")
    note = drawn(report, storage)
    sentence = "".join(tag("p", escape(text)) for text in pair_sentences(report, storage))
    foot = tag("p", escape(note), class_="quiet tm-foot") if note else ""
    table = _strips(report, storage) if storage.rows else ""
    drawn_of_it = section("", table, foot, tag("div", sentence, class_="tm-pairs"))
    members = _members(report, storage)
    if len(storage.members) > MOST_ABREAST:
        members = scroll("elements that each tensor has in common with each other", members)
    return head, drawn_of_it + section("", members)


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


def _members(report: OverlayReport, storage: OverlayStorage) -> str:
    """Return a line a member: what it is, and how many of its elements meet each of the others."""
    others = crossing_head(report, storage)
    titles = (*HEAD, *others)
    head = tag("tr", corner("tensor"), *map(_title, titles[1:]))
    rows = [_member(report, storage, at, crossed=bool(others)) for at in storage.members]
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="tm-list tm-full tm-matrix")


def _member(report: OverlayReport, storage: OverlayStorage, at: int, *, crossed: bool) -> str:
    first, *rest = map(escape, member_row(report.members[at]))
    cells = [meeting(storage, at, other) for other in storage.members] if crossed else []
    swatch = tag("span", "&nbsp;" * 2, class_="tm-swatch", style=f"background-color:{_colour(storage, at)}")
    numbers = (tag("td", escape(cell), class_=f"tm-num{' quiet' if cell in _NONE else ''}") for cell in cells)
    facts = (tag("td", cell, class_=_NUMBER.get(title)) for title, cell in zip(HEAD[1:], rest, strict=True))
    return tag("tr", tag("th", swatch, " ", tag("code", first)), *facts, *numbers)


def _title(title: str) -> str:
    return tag("th", escape(title), class_=_NUMBER.get(title, None if title in HEAD else "tm-num"))
