"""Several tensors on one strip of memory: a row each, in a colour of its own, over one ruler.

Where there are few enough, every element is a cell with its index in it, as wide as it has bytes: a float32 lies over
four int8. Beyond, the height of a cell's filling is the part of it that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from tensormagic.reports import OverlayElement, OverlayMember, OverlayReport, OverlayRow, OverlayStorage
from tensormagic.views import theme
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.cells import CHARACTER, Cell, Cells, Row, lettered
from tensormagic.views.theme import code_of, loader
from tensormagic.words import count, shortened

WIDTH = 840  # pixels that the cells have where the panel is as wide as it can be
UNIT = 46  # pixels of a cell at most
LABELS = (78, 150)  # pixels for the names
_LETTER = 7.3  # of a name, which is in the font of code
NAME_WIDTH = 20  # characters


@dataclass(frozen=True, slots=True)
class OverlayPicture(Picture):
    """The tensors of one storage, over its bytes (overlay)."""

    report: OverlayReport  # Whose members they are.
    storage: OverlayStorage  # In which they lie.
    viewer: bool = False  # Whether the script comes with it that lights what lies over the same bytes: once a panel.

    def html(self) -> str:
        """Return a table of cells, coloured where they are read."""
        cells = self._cells()
        width = round(cells.left + cells.unit * cells.columns)
        style = f"width:100%;max-width:{width}px"
        script = code_of("overlay", "overlay_viewer.js", mount="mountStrips") + loader() if self.viewer else ""
        return cells.html("tm-storage", style=style, labels=round(cells.left)) + script

    def text(self, width: int) -> Iterable[str]:
        """Return a line of characters a tensor, and the ruler."""
        cells = self._cells()
        found = cells.framed(width) if self.storage.readers else None
        return (found[0] if found else cells.dense(width, apart=bool(self.storage.readers))).lines()

    def svg(self, width: float) -> tuple[str, float]:
        """Return a row of boxes a tensor, and the ruler."""
        cells = self._cells()
        cells = replace(cells, unit=min(cells.unit, (width - cells.left) / cells.columns))
        return lettered(cells.svg()), cells.height

    def _cells(self) -> Cells:
        """Return a row a tensor, how many of them read each cell, and the ruler."""
        report, storage, rows = self.report, self.storage, list[Row]()
        for row in storage.rows:
            member = report.members[row.member]
            colour = theme.KIND_COLOURS[storage.members.index(row.member) % len(theme.KIND_COLOURS)]
            inner = _single(storage, member, row, colour) if storage.readers else _shares(storage, row, colour)
            rows.append(Row(name(member), list(inner), look="tm-strip", colour=colour, title=member.name[:200]))
        rows += [Row("read by", list(_readers(storage)), "brackets", "tm-readers")] if storage.readers else []
        rows.append(_ruler(report, storage))
        widest = max(_LETTER * len(name(report.members[at])) for at in storage.members)
        return Cells(rows, min(max(LABELS[0], widest + 34), LABELS[1]), _pixels(storage))


# -- words -----------------------------------------------------------------------------------------------------------


def name(member: OverlayMember) -> str:
    """Return the name of a member: short, on one line, never empty."""
    return shortened(member.name, NAME_WIDTH) or "tensor"


def in_elements(report: OverlayReport, storage: OverlayStorage) -> int:
    """Return the element size where all members have the same and lie on one ruler, else 1: what offsets count in."""
    sizes = {report.members[at].element_size for at in storage.members}
    size = sizes.pop() if len(sizes) == 1 else 1
    return size if storage.start % size == 0 and storage.cell_bytes % size == 0 else 1


# -- HTML ------------------------------------------------------------------------------------------------------------


def _pixels(storage: OverlayStorage) -> float:
    return min(WIDTH / max(len(storage.rows[0].bytes_read), 1), UNIT)


def _single(storage: OverlayStorage, member: OverlayMember, row: OverlayRow, colour: str) -> Iterator[Cell]:
    """Yield a cell for every element and for every gap, each as wide as it has bytes."""
    at = storage.start
    for element in (*row.elements, None):
        stop = storage.stop if element is None else element.start
        yield from _gaps(storage, member, at, stop)
        if element is not None:
            yield _element(storage, member, element, colour)
            at = element.start + member.element_size


def _gaps(storage: OverlayStorage, member: OverlayMember, start: int, stop: int) -> Iterator[Cell]:
    """Yield the bytes that are not read as cells of the member's own size, in line with its elements."""
    size, first = member.element_size, member.first_byte or 0
    while start < stop:
        end = min(stop, start + size - (start - first) % size)
        title = f"bytes {count(start)} to {count(end - 1)}: not read"
        yield Cell(title=title, span=(end - start) // storage.cell_bytes, share=0)
        start = end


def _element(storage: OverlayStorage, member: OverlayMember, element: OverlayElement, colour: str) -> Cell:
    span = member.element_size // storage.cell_bytes
    label = ",".join(map(str, element.index)) + (f" \u00d7{element.reads}" if element.reads > 1 else "")
    short = f"\u00d7{element.reads}" if element.reads > 1 else ""
    room = _pixels(storage) * span - 3
    text = next((text for text in (label, short) if len(text) * CHARACTER <= room), "")
    # Pointing at it says which element this is, which bytes it takes, and how often it is read.
    which = f"{name(member)}[{', '.join(map(str, element.index))}]" if element.index else name(member)
    first, last = element.start, element.start + member.element_size - 1
    where = f"byte {count(first)}" if first == last else f"bytes {count(first)} to {count(last)}"
    often = f", read {count(element.reads)} times" if element.reads > 1 else ""
    return Cell(text, colour, f"{which}: {where}{often}", span)


def _shares(storage: OverlayStorage, row: OverlayRow, colour: str) -> Iterator[Cell]:
    """Yield a cell for every run of bytes, filled as high as the part of it that is read."""
    for at, read in enumerate(row.bytes_read):
        start = storage.start + at * storage.cell_bytes
        stop = min(start + storage.cell_bytes, storage.stop)
        how = "not counted"
        if read is not None:
            known = {0: "none", stop - start: "all"}
            how = f"{known.get(read, f'{count(read)} of {count(stop - start)}')} read"
        share = 1.0 if read is None else read / (stop - start)
        yield Cell(colour=colour, title=f"bytes {count(start)} to {count(stop - 1)}: {how}", share=share)


def _readers(storage: OverlayStorage) -> Iterator[Cell]:
    """Yield how many of them read each cell, neighbours with the same number in one."""
    at = 0
    for readers, same in groupby(storage.readers):
        end = at + len(list(same))
        title = f"bytes {storage.start + at * storage.cell_bytes} to {storage.start + end * storage.cell_bytes - 1}"
        words = str(readers) if readers else "\u2013"
        title += f": read by {readers} of {len(storage.members)}"
        yield Cell(words, title=title, span=end - at, look="tm-many" if readers > 1 else "")
        at = end


def _ruler(report: OverlayReport, storage: OverlayStorage) -> Row:
    unit = in_elements(report, storage)
    starts = [(storage.start + at * storage.cell_bytes) // unit for at in range(len(storage.rows[0].bytes_read))]
    step, room = 1, _pixels(storage) * 0.75  # three quarters: the panel may be narrower than its widest
    while step * room < len(count(starts[-1])) * CHARACTER + 4:
        step *= 2
    cells = []
    for at in range(0, len(starts), step):
        span = min(step, len(starts) - at)
        cells.append(Cell(count(starts[at]) if span == step or at == 0 else "", span=span))
    return Row("offset" if unit > 1 else "byte", cells, "heads", "tm-offsets" + (" tm-sparse" if step > 1 else ""))
