"""What is said about shared memory, in words: the sentences that the panels and the terminal have in common.

Text between backticks is code; renderers turn it into ``<code>`` or drop the backticks.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.reports import AliasGroup, AliasMember, AliasPair, AliasReport, MemoryTotal, TensorRow, TensorTable
from tensormagic.words import ELLIPSIS, count, listed, number_of_bytes, plural, shortened, tuple_text

NAME_WIDTH = 34
NAMES_SHOWN = 3
ARROW = " \u2192 "
NONE = "\u00b7"
_HOW = {
    "owner": "owns the memory",
    "view": "view of {base}",
    "detached": "like {base}`.detach()`",
    "data": "like {base}`.data`",
    "same storage": "same storage as {base}",
    "wraps": "over the memory of {base}",
    "array": "NumPy array of {base}",
    "capsule": "NumPy array, through DLPack",
    "buffer view": "NumPy array over {base}",
    "buffer": "exports its memory",
    "part": "part of {base}",
    "storage": "the storage itself",
}
_NAMELESS = {
    "view": "view; its base has no name",
    "wraps": "over memory that is not torch's",
    "array": "NumPy array of a tensor without a name",
    "buffer view": "NumPy array over a buffer without a name",
}


def letters(number: int) -> str:
    """Return the letters by which a piece of memory goes: A for 1, Z for 26, AA for 27."""
    text = ""
    while number > 0:
        number, at = divmod(number - 1, 26)
        text = chr(65 + at) + text
    return text


def group_title(group: AliasGroup) -> str:
    """Return what a piece of memory is: ``96 B on cpu: 4 tensors, 1 array``."""
    return f"{number_of_bytes(group.nbytes)} on {group.device}, {plural(group.found, 'object')}"


def clipped(text: str, width: int = NAME_WIDTH) -> str:
    """Return a name on one line, its middle left out where it is long: both ends tell most."""
    line = " ".join(text.split())
    half = (width - 1) // 2
    return line if len(line) <= width else f"{line[: width - 1 - half]}{ELLIPSIS}{line[-half:]}"


def names(member: AliasMember) -> str:
    """Return a member's names: ``x = y``, and how many there are beyond those shown."""
    told = [clipped(name) for name in member.names[:NAMES_SHOWN]]
    more = member.names_found - len(told)
    return " = ".join(told) + (f" = {count(more)} more" if more > 0 else "")


def what(member: AliasMember) -> str:
    """Return shape, dtype and class of a member."""
    kind = "" if member.kind == "Tensor" else member.kind
    return " ".join(part for part in (tuple_text(member.shape), member.dtype, shortened(kind, 20)) if part)


def how(member: AliasMember) -> str:
    """Return how a member comes to lie in the memory."""
    template = _HOW.get(member.relation, "")
    if member.base:
        text = template.format(base=f"`{clipped(member.base)}`").replace("``", "")
    else:
        text = _NAMELESS.get(member.relation, "") or template.format(base="another tensor")
    text = text or shortened(member.relation, 60)  # a word from another version
    return f"{text}: {ARROW.join(member.operations)}" if member.operations else text


def writes(member: AliasMember, group: AliasGroup) -> str:
    """Return who counts the writes through a member, for autograd to notice."""
    if member.version is None:
        return "writes are not counted"
    counters = {each.counter for each in group.members if each.counter is not None}
    which = "version" if len(counters) < 2 or member.counter is None else f"version counter {member.counter}:"
    return f"{which} {count(member.version)}"


def marks(member: AliasMember) -> tuple[str, ...]:
    """Return the states of a member that a glance must catch."""
    repeats = {"yes": "repeats memory", "maybe": "may repeat memory"}.get(member.overlap, "")
    return tuple(mark for mark in ("requires grad" if member.requires_grad else "", repeats) if mark)


def shared_cell(pair: AliasPair | None, name: str) -> str:
    """Return how many elements of the one called ``name`` the other of a pair reads and writes."""
    if pair is None:
        return ""
    if pair.overlap == "no":
        return NONE
    number = pair.overlap_elements if pair.left == name else pair.reverse_elements
    return "?" if number is None or pair.overlap == "maybe" else count(number)


def pair_line(pair: AliasPair) -> str:
    """Return a pair in words: ``8 elements of a lie in x``."""
    left, right = clipped(pair.left), clipped(pair.right)
    if pair.overlap == "no":
        return f"`{left}` and `{right}` have no element in common"
    if pair.overlap == "maybe" or pair.overlap_elements is None:
        return f"`{left}` and `{right}` may overlap: too hard to tell"
    verb = "lies" if pair.overlap_elements == 1 else "lie"
    return f"{plural(pair.overlap_elements, 'element')} of `{left}` {verb} in `{right}`"


def is_matrix(group: AliasGroup, most: int) -> bool:
    """Return whether a group is small enough for every two of its members to be told in a square table."""
    return group.pairs_complete and 1 < group.found == len(group.members) <= most


def in_common(group: AliasGroup, members: Sequence[AliasMember]) -> tuple[str, ...]:
    """Return the pairs of a group by the members' numbers, with how many elements of the first lie in the second."""
    numbers = {member.name: at for at, member in enumerate(members, 1)}
    told = (pair for pair in group.pairs if pair.left in numbers and pair.right in numbers)
    return tuple(f"{numbers[pair.left]}\u2229{numbers[pair.right]} {_amount(pair)}" for pair in told)


def _amount(pair: AliasPair) -> str:
    return "none" if pair.overlap == "no" else shared_cell(pair, pair.left)


def group_notes(group: AliasGroup) -> tuple[str, ...]:
    """Return what is worth a sentence about a group: writes that autograd will not notice, and what is not shown."""
    notes = []
    if group.found > len(group.members):
        notes.append(f"{len(group.members)} of {count(group.found)} are listed.")
    if not group.pairs_complete:
        notes.append(f"Of the pairs that overlap, the first {count(len(group.pairs))} found are told.")
    return (*unnoticed(group), *notes)


def unnoticed(group: AliasGroup) -> tuple[str, ...]:
    """Return which members change a tensor that autograd watches, without its version counter noticing."""
    watched = next((each for each in group.members if each.requires_grad), None)
    if watched is None:
        return ()
    touching = {
        pair.left if pair.right == watched.name else pair.right for pair in group.pairs if _meets(pair, watched)
    }
    unseen = [each.name for each in group.members if each.name in touching and _uncounted(each, watched)]
    if not unseen:
        return ()
    through = listed(f"`{clipped(name)}`" for name in unseen)
    uncounted = f"they change `{clipped(watched.name)}` without counting on its version counter"
    return (f"Autograd does not notice writes through {through}: {uncounted}.",)


def _meets(pair: AliasPair, watched: AliasMember) -> bool:
    return pair.overlap == "yes" and watched.name in {pair.left, pair.right}


def _uncounted(member: AliasMember, watched: AliasMember) -> bool:
    if member.relation in {"storage", "part"}:
        return False
    return member.version is None or (
        member.counter is not None and watched.counter is not None and member.counter != watched.counter
    )


def aliases_summary(report: AliasReport) -> str:
    """Return what was found, in one sentence."""
    shared = sum(group.found > 1 for group in report.groups)
    if not report.groups_found:
        verdict = "No memory has more than one name"
    elif report.groups_found > len(report.groups):
        verdict = f"{count(report.groups_found)} pieces of memory have more than one name"
    else:
        verdict = f"{plural(shared, 'piece')} of memory {'is' if shared == 1 else 'are'} shared by several objects"
    if report.groups_found and not shared:
        return _same_objects(report.groups)
    scope = f" with {listed(f'`{clipped(name)}`' for name in report.asked)}" if report.asked else ""
    return verdict + scope


def _same_objects(groups: Sequence[AliasGroup]) -> str:
    """Return that one object has several names, where that is all that is shared."""
    if len(groups) > 1:
        return f"{count(len(groups))} tensors have several names each, and no memory is shared by several objects"
    member = groups[0].members[0]
    names = [f"`{clipped(name)}`" for name in member.names]
    told = " and ".join(names) if member.names_found == len(names) == 2 else listed(names, most=4)
    return f"{told} are the same {member.kind if member.kind != 'Tensor' else 'tensor'}"


def aliases_scope(report: AliasReport) -> str:
    """Return what was looked through."""
    found = plural(report.tensors, "tensor") + (f", {plural(report.arrays, 'array')}" if report.arrays else "")
    return f"{found} among {plural(report.looked, 'name and attribute', 'names and attributes')}"


def alone(report: AliasReport) -> str:
    """Return how much memory is reached by one name only."""
    if report.asked or not report.alone:
        return ""
    sharing = "shares" if report.alone == 1 else "share"
    return f"{count(report.alone)} with {number_of_bytes(report.alone_bytes)} {sharing} with nobody"


def table_title(table: TensorTable) -> str:
    """Return the name of a table."""
    return clipped(table.title) or "tensors"


def total(part: MemoryTotal) -> str:
    """Return what lies on one device."""
    pieces = plural(part.storages, "piece") + " of memory"
    told = f"{number_of_bytes(part.nbytes)} on {part.device}: {count(part.tensors)} in {pieces}"
    return f"{told}, each counted once" if part.tensors > part.storages else told


def table_summary(table: TensorTable) -> str:
    """Return how many rows of which kinds there are."""
    arrays = sum(row.kind == "ndarray" for row in table.rows)
    text = plural(len(table.rows) - arrays, "tensor")
    return f"{text}, {plural(arrays, 'array')}" if arrays else text


def row_cells(row: TensorRow) -> tuple[str, ...]:
    """Return a row as text: name, kind, shape, dtype, device, bytes, letters of its memory, gradient."""
    more = f" +{row.names - 1}" if row.names > 1 else ""
    dtype = row.dtype if row.layout == "strided" else f"{row.dtype} {row.layout}"
    return (
        clipped(row.name) + more,
        shortened(row.kind, 20),
        tuple_text(row.shape),
        shortened(dtype, 24),
        row.device,
        number_of_bytes(row.nbytes),
        letters(row.group),
        row.gradient.removesuffix("Backward0") if row.gradient.endswith("Backward0") else row.gradient,
    )
