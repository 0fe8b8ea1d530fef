"""What is said about several tensors together, in words: shared by panel and terminal."""

from __future__ import annotations

from itertools import combinations, islice

from tensormagic.reports import OverlayElement, OverlayMember, OverlayPair, OverlayReport, OverlayStorage
from tensormagic.words import count, listed, number_of_bytes, plural, shortened, tuple_text

NAME_WIDTH = 20
MOST_UNNAMED_REFERRERS = 6  # pairs with nothing in common that are named
FEW = 3  # members up to which every pair has a sentence of its own


def name(member: OverlayMember) -> str:
    """Return the name of a member: short, on one line, never empty."""
    return shortened(member.name, NAME_WIDTH) or "tensor"


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
        return f"{names(report, alone)} share no memory: each lies in a storage of its own" if len(alone) > 1 else ""
    return f"{names(report, alone)} {'lies' if len(alone) == 1 else 'lie'} in a storage of {_own(alone)} own"


def _own(members: tuple[int, ...]) -> str:
    return "its" if len(members) == 1 else "their"


def in_elements(report: OverlayReport, storage: OverlayStorage) -> int:
    """Return the element size where all members have the same and lie on one ruler, else 1: what offsets count in."""
    sizes = {report.members[at].element_size for at in storage.members}
    size = sizes.pop() if len(sizes) == 1 else 1
    return size if storage.start % size == 0 and storage.cell_bytes % size == 0 else 1


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


HEAD = ("", "dtype", "shape", "stride", "elements", "bytes read")


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
    return tuple(f"{word} {name(report.members[at])}" for at in storage.members)


def pair_of(storage: OverlayStorage, row: int, column: int) -> OverlayPair | None:
    """Return what two members have in common; None for a member and itself."""
    wanted = {row, column}
    return next((pair for pair in storage.pairs if {pair.left, pair.right} == wanted), None)


def meeting(storage: OverlayStorage, row: int, column: int) -> str:
    """Return how many stored elements of ``row`` have a byte in common with ``column``."""
    pair = pair_of(storage, row, column)
    if pair is None:
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
    return (*some, *_strangers(report, none))


def _pair_sentence(report: OverlayReport, pair: OverlayPair) -> str:
    left, right = report.members[pair.left], report.members[pair.right]
    both = f"{name(left)} and {name(right)}"
    if pair.overlap == "maybe":
        return f"{both} may overlap: finding out would take too long"
    if pair.common_bytes is None:
        return f"{both} overlap; how much was too long to count"
    common = f"{number_of_bytes(pair.common_bytes)} in common"
    if pair.left_elements is None or pair.right_elements is None:
        return f"{both} have {common}"
    if left.element_size == right.element_size and pair.left_elements == pair.right_elements:
        return f"{both} have {plural(pair.left_elements, 'element')} in common"
    first, second = plural(pair.left_elements, "element"), plural(pair.right_elements, "element")
    return f"{both} have {common}: {first} of {name(left)}, {second} of {name(right)}"


def _strangers(report: OverlayReport, pairs: list[OverlayPair]) -> tuple[str, ...]:
    """Return who has no byte in common with whom: all at once where that holds for each two of them."""
    if not pairs:
        return ()
    members = sorted({at for pair in pairs for at in (pair.left, pair.right)})
    found = {(pair.left, pair.right) for pair in pairs}
    if len(members) > 2 and found >= set(combinations(members, 2)):
        return (f"no two of {names(report, tuple(members))} have a byte in common",)
    each = (f"{name(report.members[pair.left])} and {name(report.members[pair.right])}" for pair in pairs)
    more = (
        f"; and {plural(len(pairs) - MOST_UNNAMED_REFERRERS, 'more pair')}"
        if len(pairs) > MOST_UNNAMED_REFERRERS
        else ""
    )
    return (f"nothing in common: {'; '.join(islice(each, MOST_UNNAMED_REFERRERS))}{more}",)
