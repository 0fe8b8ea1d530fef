"""Several tensors on one strip of memory (``%tensor a b``): who lies over which bytes, and what they have in common."""

from __future__ import annotations

from itertools import combinations, islice

from tensormagic.reports import OverlayMember, OverlayPair, OverlayReport, OverlayStorage
from tensormagic.views.nodes import Cell, Column, Findings, Node, Panel, Paragraph, Section, Table, Words
from tensormagic.views.pictures.overlay import OverlayPicture, in_elements, name
from tensormagic.words import count, listed, number_of_bytes, plural, shortened, tuple_text

HEAD = ("", "dtype", "shape", "stride", "elements", "bytes read")
MOST_UNNAMED_REFERRERS = 6  # pairs with nothing in common that are named
FEW = 3  # members up to which every pair has a sentence of its own
MOST_ABREAST = 3  # tensors; the table of more may be wider than the panel
_NONE = ("0", "\u2013")


def view(report: OverlayReport) -> Panel:
    """Return the panel; one line where no two of the tensors share memory."""
    every = names(report, tuple(range(len(report.members))))
    findings = Findings(report.findings, report.gaps)
    drawn_last = max((at for at, storage in enumerate(report.shared) if storage.rows), default=-1)
    body: list[Node] = [findings]
    for at, storage in enumerate(report.shared):
        title = f"`{names(report, storage.members)}`" if at else ""
        strips = [OverlayPicture(report, storage, viewer=at == drawn_last)] if storage.rows else []
        note = [Paragraph(drawn(report, storage), "quiet")] if drawn(report, storage) else []
        pairs = pair_sentences(report, storage)
        body.append(Section(title, [*strips, *note, *pairs], headline(storage) if at else ""))
        body.append(Section("", [_members(report, storage)]))
    body += [f"{apart(report)}."] if apart(report) else []
    title = names(report, report.shared[0].members) if report.shared else every
    facts: list[Cell] = [headline(report.shared[0]) if report.shared else "no shared memory"]
    label = f"Memory of {every}" if report.members else "Memory"
    return Panel("tensor tm-overlay", "memory", title, facts, body, label, sheets=("tensor.css", "overlay.css"))


def _members(report: OverlayReport, storage: OverlayStorage) -> Table:
    """Return a line a member: what it is, and how many of its elements meet each of the others."""
    others = crossing_head(report, storage)
    columns = [
        Column("tensor", look="silent name"),
        *(Column(title, look="number" if title in {"elements", "bytes read"} else "") for title in HEAD[1:]),
        *(Column(title, look="number wide") for title in others),
    ]
    crossed = storage.members if others else ()
    rows: list[tuple[Cell, ...]] = []
    for at in storage.members:
        met = (meeting(storage, at, other) for other in crossed)
        rows.append(
            (*member_row(report.members[at]), *(Words(each, "quiet") if each in _NONE else each for each in met))
        )
    label = "elements shared by each pair of tensors"
    return Table(columns, rows, label=label if len(storage.members) > MOST_ABREAST else "")


# -- words -----------------------------------------------------------------------------------------------------------


def names(report: OverlayReport, members: tuple[int, ...]) -> str:
    """Return names as a list: ``a, b and c``."""
    return listed((name(report.members[at]) for at in members), most=len(members))


def headline(storage: OverlayStorage) -> str:
    """Return whose memory this is and how large: ``one storage of 96 B on cpu``."""
    return f"one storage of {number_of_bytes(storage.nbytes)} on {storage.device}"


def apart(report: OverlayReport) -> str:
    """Return who shares memory with nobody; nothing where everybody does with somebody."""
    alone = tuple(at for storage in report.storages if len(storage.members) == 1 for at in storage.members)
    if not alone:
        return ""
    if not report.shared:
        return f"{names(report, alone)} share no memory: each has its own storage" if len(alone) > 1 else ""
    return f"{names(report, alone)} {'has its' if len(alone) == 1 else 'have their'} own storage"


def drawn(report: OverlayReport, storage: OverlayStorage) -> str:
    """Return what a cell is and which part of the memory is drawn, where that is not plain."""
    parts = []
    if not storage.readers:
        unit = in_elements(report, storage)
        parts.append(f"a cell is {plural(storage.cell_bytes // unit, 'element' if unit > 1 else 'byte')}")
    elif len({report.members[at].element_size for at in storage.members}) > 1:
        parts.append(f"the ruler counts bytes, in steps of {storage.cell_bytes}" if storage.cell_bytes > 1 else
                     "the ruler counts bytes")  # fmt: skip
    if storage.start > 0 or storage.stop < storage.nbytes:
        parts.append(f"bytes {count(storage.start)} to {count(storage.stop - 1)} of {count(storage.nbytes)} are drawn")
    if not storage.exact:
        parts.append("shares are sampled")
    return "; ".join(parts)


def member_row(member: OverlayMember) -> tuple[str, ...]:
    """Return what is to know of a member, in the columns of `HEAD`."""
    read = "not counted" if member.distinct_bytes is None else count(member.distinct_bytes)
    kind = "" if member.kind in {"Tensor", "ndarray"} else f"{shortened(member.kind, 16)} "
    kind = "NumPy " if member.kind == "ndarray" else kind
    return (
        name(member), f"{kind}{shortened(member.dtype, 16)}", tuple_text(member.shape), tuple_text(member.stride),
        count(member.elements), read,
    )  # fmt: skip


def crossing_head(report: OverlayReport, storage: OverlayStorage) -> tuple[str, ...]:
    """Return the heads of the columns that say how many elements meet each member; none for two: a sentence does."""
    if len(storage.members) < FEW:
        return ()
    word = "also in" if len(storage.members) <= FEW + 2 else "in"
    return tuple(f"{word} `{name(report.members[at])}`" for at in storage.members)


def meeting(storage: OverlayStorage, row: int, column: int) -> str:
    """Return how many stored elements of ``row`` have a byte in common with ``column``."""
    pair = next((pair for pair in storage.pairs if {pair.left, pair.right} == {row, column}), None)
    if pair is None:  # a member and itself
        return "\u2013"
    if pair.overlap == "maybe":
        return "may overlap"
    number = pair.left_elements if pair.left == row else pair.right_elements
    return "some" if number is None else count(number)


def pair_sentences(report: OverlayReport, storage: OverlayStorage) -> tuple[str, ...]:
    """Return what each two have in common, in words; of many only who has nothing in common: a table has the rest."""
    few = len(storage.members) <= FEW
    some = [_pair_sentence(report, pair) for pair in storage.pairs if few and pair.overlap != "no"]
    none = [pair for pair in storage.pairs if pair.overlap == "no"]
    return (*some, *_unrelated(report, none))


def _pair_sentence(report: OverlayReport, pair: OverlayPair) -> str:
    left, right = report.members[pair.left], report.members[pair.right]
    both = f"{name(left)} and {name(right)}"
    if pair.overlap == "maybe":
        return f"{both} may overlap: checking would take too long"
    if pair.common_bytes is None:
        return f"{both} overlap; counting how much would take too long"
    common = f"{number_of_bytes(pair.common_bytes)} in common"
    if pair.left_elements is None or pair.right_elements is None:
        return f"{both} have {common}"
    if left.element_size == right.element_size and pair.left_elements == pair.right_elements:
        return f"{both} have {plural(pair.left_elements, 'element')} in common"
    first, second = plural(pair.left_elements, "element"), plural(pair.right_elements, "element")
    return f"{both} have {common}: {first} of {name(left)}, {second} of {name(right)}"


def _unrelated(report: OverlayReport, pairs: list[OverlayPair]) -> tuple[str, ...]:
    """Return who has no byte in common with whom: all at once where that holds for each two of them."""
    if not pairs:
        return ()
    members = sorted({at for pair in pairs for at in (pair.left, pair.right)})
    found = {(pair.left, pair.right) for pair in pairs}
    if len(members) > 2 and found >= set(combinations(members, 2)):
        return (f"no two of {names(report, tuple(members))} have a byte in common",)
    each = (f"{name(report.members[pair.left])} and {name(report.members[pair.right])}" for pair in pairs)
    left = len(pairs) - MOST_UNNAMED_REFERRERS
    more = f"; and {plural(left, 'more pair')}" if left > 0 else ""
    return (f"nothing in common: {'; '.join(islice(each, MOST_UNNAMED_REFERRERS))}{more}",)
