"""Several tensors on one strip of memory (``%tensor a b``): who lies over which bytes, and what they have in common.

The strip has a row for each of them, in a colour of its own, over one ruler. Where there are few enough, every element
is a cell with its index in it, as wide as it has bytes: a float32 lies over four int8. Beyond, the height of a cell's
filling is the part of it that is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, groupby

from tensormagic.reports import OverlayMember, OverlayPair, OverlayReport, OverlayRow, OverlayStorage
from tensormagic.views import nodes, theme
from tensormagic.views.nodes import Column, Paragraph, Section, Words, table_of
from tensormagic.views.pictures.cells import CHARACTER, Cell, Cells, Row, lettered, ruler
from tensormagic.views.theme import code_of, loader
from tensormagic.words import count, listed, number_of_bytes, plural, shortened, tuple_text

MOST_UNRELATED = 6  # pairs with nothing in common that are named
FEW = 3  # members up to which every pair has a sentence of its own
MOST_ABREAST = 3  # tensors; the table of more may be wider than the panel
WIDTH = 840  # pixels that the cells have where the panel is as wide as it can be
UNIT = 46  # pixels of a cell at most
LABELS = (78, 150)  # pixels for the names
_LETTER = 7.3  # of a name, which is in the font of code
NAME_WIDTH = 20  # characters


def view(report: OverlayReport) -> nodes.Panel:
    """Return the panel; one line where no two of the tensors share memory."""
    every = names(report, tuple(range(len(report.members))))
    drawn_last = max((at for at, storage in enumerate(report.shared) if storage.rows), default=-1)
    body: list[nodes.Node] = [nodes.Findings(report.findings, report.gaps)]
    for at, storage in enumerate(report.shared):
        strips = [OverlayPicture(report, storage, viewer=at == drawn_last)] if storage.rows else []
        few = len(storage.members) <= FEW
        some = [_pair_sentence(report, pair) for pair in storage.pairs if few and pair.overlap != "no"]
        none = _unrelated(report, [pair for pair in storage.pairs if pair.overlap == "no"])
        title, note = (f"`{names(report, storage.members)}`", headline(storage)) if at else ("", "")
        body.append(Section(title, [*strips, Paragraph(drawn(report, storage), "quiet"), *some, none], note))
        body.append(Section("", [_members(report, storage)]))
    body += [f"{apart(report)}."] if apart(report) else []
    title = names(report, report.shared[0].members) if report.shared else every
    fact = headline(report.shared[0]) if report.shared else "no shared memory"
    label = f"Memory of {every}" if report.members else "Memory"
    return nodes.Panel("tensor tm-overlay", "memory", title, [fact], body, label, sheets=("tensor.css", "overlay.css"))


def _members(report: OverlayReport, storage: OverlayStorage) -> nodes.Table:
    """Return a line a member: what it is, and how many of its elements meet each of the others; of two a sentence does.

    Those are the stored elements that have a byte in common with the other.
    """
    others = storage.members if len(storage.members) >= FEW else ()
    word = "also in" if len(storage.members) <= FEW + 2 else "in"
    columns = [*MEMBERS, *(Column(f"{word} `{name(report.members[at])}`", look="number wide") for at in others)]
    pairs = {frozenset((pair.left, pair.right)): pair for pair in reversed(storage.pairs)}

    def met(row: int, column: int) -> nodes.Cell:
        pair = pairs.get(frozenset((row, column)))
        if pair is None:  # a member and itself
            return Words("\u2013", "quiet")
        number = pair.left_elements if pair.left == row else pair.right_elements
        if pair.overlap == "maybe" or number is None:
            return "may overlap" if pair.overlap == "maybe" else "some"
        return count(number) if number else Words("0", "quiet")

    plain = table_of(MEMBERS, [report.members[at] for at in storage.members]).rows
    rows = [[*row, *(met(at, other) for other in others)] for row, at in zip(plain, storage.members, strict=True)]
    label = "elements shared by each pair of tensors"
    return nodes.Table(columns, rows, label=label if len(storage.members) > MOST_ABREAST else "")


def names(report: OverlayReport, members: tuple[int, ...]) -> str:
    """Return names as a list: ``a, b and c``."""
    return listed((name(report.members[at]) for at in members), most=len(members))


def headline(storage: OverlayStorage) -> str:
    """Return whose memory this is and how large: ``one storage of 96 B on cpu``."""
    return f"one storage of {number_of_bytes(storage.nbytes)} on {storage.device}"


def apart(report: OverlayReport) -> str:
    """Return who shares memory with nobody; nothing where everybody does with somebody."""
    alone = tuple(at for storage in report.storages if len(storage.members) == 1 for at in storage.members)
    if report.shared and alone:
        return f"{names(report, alone)} {'has its' if len(alone) == 1 else 'have their'} own storage"
    return f"{names(report, alone)} share no memory: they lie in different storages" if len(alone) > 1 else ""


def drawn(report: OverlayReport, storage: OverlayStorage) -> str:
    """Return what a cell is and which part of the memory is drawn, where that is not plain."""
    parts = []
    if not storage.readers:
        unit = in_elements(report, storage)
        parts.append(f"a cell is {plural(storage.cell_bytes // unit, 'element' if unit > 1 else 'byte')}")
    elif len({report.members[at].element_size for at in storage.members}) > 1:
        step = f", in steps of {storage.cell_bytes}" if storage.cell_bytes > 1 else ""
        parts.append(f"the ruler counts bytes{step}")
    if storage.start > 0 or storage.stop < storage.nbytes:
        parts.append(f"bytes {count(storage.start)} to {count(storage.stop - 1)} of {count(storage.nbytes)} are drawn")
    if not storage.exact:
        parts.append("shares are sampled")
    return "; ".join(parts)


def _pair_sentence(report: OverlayReport, pair: OverlayPair) -> str:
    left, right = report.members[pair.left], report.members[pair.right]
    both = f"{name(left)} and {name(right)}"
    if pair.overlap == "maybe":
        return f"{both} may overlap: checking would take too long"
    if pair.common_bytes is None:
        return f"{both} overlap; counting how much would take too long"
    common = f"{both} have {number_of_bytes(pair.common_bytes)} in common"
    if pair.left_elements is None or pair.right_elements is None:
        return common
    first, second = plural(pair.left_elements, "element"), plural(pair.right_elements, "element")
    if left.element_size == right.element_size and first == second:
        return f"{both} have {first} in common"
    return f"{common}: {first} of {name(left)}, {second} of {name(right)}"


def _unrelated(report: OverlayReport, pairs: list[OverlayPair]) -> str:
    """Return who has no byte in common with whom: all at once where that holds for each two of them."""
    members = sorted({at for pair in pairs for at in (pair.left, pair.right)})
    if len(members) > 2 and {(pair.left, pair.right) for pair in pairs} >= {*combinations(members, 2)}:
        return f"no two of {names(report, tuple(members))} have a byte in common"
    each = [f"{name(report.members[pair.left])} and {name(report.members[pair.right])}" for pair in pairs]
    left = len(each) - MOST_UNRELATED
    more = [f"and {plural(left, 'more pair')}"] if left > 0 else []
    return f"nothing in common: {'; '.join(each[:MOST_UNRELATED] + more)}" if each else ""


def name(member: OverlayMember) -> str:
    """Return the name of a member: short, on one line, never empty."""
    return shortened(member.name, NAME_WIDTH) or "tensor"


_KINDS = {"Tensor": "", "ndarray": "NumPy "}
MEMBERS = (
    Column("tensor", name, "silent name"),
    Column("dtype", lambda one: _KINDS.get(one.kind, f"{shortened(one.kind, 16)} ") + shortened(one.dtype, 16)),
    Column("shape", lambda one: tuple_text(one.shape)),
    Column("stride", lambda one: tuple_text(one.stride)),
    Column("elements", lambda one: count(one.elements), "number"),
    Column(
        "bytes read", lambda one: "not counted" if one.distinct_bytes is None else count(one.distinct_bytes), "number"
    ),
)


def in_elements(report: OverlayReport, storage: OverlayStorage) -> int:
    """Return the element size where all members have the same and lie on one ruler, else 1: what offsets count in."""
    sizes = {report.members[at].element_size for at in storage.members}
    size = sizes.pop() if len(sizes) == 1 else 1
    return size if storage.start % size == 0 and storage.cell_bytes % size == 0 else 1


# -- the strip ------------------------------------------------------------------------------------------------------

# What its viewer says.
_STRIP_WORDS = {
    "hint": "point at an element to see what else is stored there",
    "keys": "memory: arrow keys move along the ruler",
    "more": " \u2026 {all} elements",
    "unread": "nothing reads this",
}


@dataclass(frozen=True, slots=True)
class OverlayPicture(nodes.Picture):
    """The tensors of one storage, over its bytes (overlay)."""

    report: OverlayReport  # Whose members they are.
    storage: OverlayStorage  # In which they lie.
    viewer: bool = False  # Whether the script comes with it that lights what lies over the same bytes: once a panel.

    def html(self) -> str:
        """Return a table of cells, coloured where they are read."""
        cells = self._cells()
        style = f"width:100%;max-width:{round(cells.left + cells.unit * cells.columns)}px"
        code = code_of("overlay", "overlay_viewer.js", mount="mountStrips", words=json.dumps(_STRIP_WORDS))
        drawn = cells.html("tm-storage", style=style, labels=round(cells.left))
        return drawn + code + loader() if self.viewer else drawn

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
        unit = in_elements(report, storage)
        starts = [(storage.start + at * storage.cell_bytes) // unit for at in range(len(storage.rows[0].bytes_read))]
        step, room = 1, _pixels(storage) * 0.75  # three quarters: the panel may be narrower than its widest
        while step * room < len(count(starts[-1])) * CHARACTER + 4:
            step *= 2
        rows.append(ruler("offset" if unit > 1 else "byte", starts, step))
        widest = max(_LETTER * len(name(report.members[at])) for at in storage.members)
        return Cells(rows, min(max(LABELS[0], widest + 34), LABELS[1]), _pixels(storage))


def _pixels(storage: OverlayStorage) -> float:
    return min(WIDTH / max(len(storage.rows[0].bytes_read), 1), UNIT)


def _single(storage: OverlayStorage, member: OverlayMember, row: OverlayRow, colour: str) -> Iterator[Cell]:
    """Yield a cell for every element and for every gap, each as wide as it has bytes."""
    at, span = storage.start, member.element_size // storage.cell_bytes
    for element in row.elements:
        yield from _gaps(storage, member, at, element.start)
        at = element.start + member.element_size
        index, times = ",".join(map(str, element.index)), f"\u00d7{element.reads}" if element.reads > 1 else ""
        room = _pixels(storage) * span - 3
        fitting = (text for text in (f"{index} {times}".rstrip(), times) if len(text) * CHARACTER <= room)
        # Pointing at it says which element this is, which bytes it takes, and how often it is read.
        which = f"{name(member)}[{', '.join(map(str, element.index))}]" if element.index else name(member)
        where = f"bytes {count(element.start)} to {count(at - 1)}"
        where = f"byte {count(element.start)}" if member.element_size == 1 else where
        often = f", read {count(element.reads)} times" if element.reads > 1 else ""
        yield Cell(next(fitting, ""), colour, f"{which}: {where}{often}", span)
    yield from _gaps(storage, member, at, storage.stop)


def _gaps(storage: OverlayStorage, member: OverlayMember, start: int, stop: int) -> Iterator[Cell]:
    """Yield the bytes that are not read as cells of the member's own size, in line with its elements."""
    size, first = member.element_size, member.first_byte or 0
    while start < stop:
        end = min(stop, start + size - (start - first) % size)
        title = f"bytes {count(start)} to {count(end - 1)}: not read"
        yield Cell(title=title, span=(end - start) // storage.cell_bytes, share=0)
        start = end


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
        end = at + len([*same])
        title = f"bytes {storage.start + at * storage.cell_bytes} to {storage.start + end * storage.cell_bytes - 1}"
        title += f": read by {readers} of {len(storage.members)}"
        yield Cell(str(readers or "\u2013"), title=title, span=end - at, look="tm-many" if readers > 1 else "")
        at = end
