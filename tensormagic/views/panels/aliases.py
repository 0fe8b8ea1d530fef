"""Who shares memory with whom (``%aliases``): a card for each piece of memory, and who reads which part of it.

The strips of a card stand under each other on one axis, coloured by place as in the panel of one tensor: what lies in
the same column is the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.reports import AliasGroup, AliasMember, AliasPair, AliasReport
from tensormagic.views.nodes import (
    Cell,
    Chip,
    Column,
    Findings,
    Items,
    Node,
    Noted,
    Panel,
    Paragraph,
    Section,
    Strip,
    Table,
    Words,
    clipped,
)
from tensormagic.words import DOT, count, listed, number_of_bytes, plural, shortened, tuple_text

NAMES_SHOWN = 3
ARROW = " \u2192 "
NONE = "\u00b7"
MOST_CARDS = 8  # of the pieces of memory that are folded together; the others are a line each
MOST_LINES, MOST_MATRIX, MOST_PAIRS, MOST_SAME = 40, 6, 12, 8
MOST_MEMBERS, OPEN_MEMBERS, MOST_FOLDS = 8, 10, 4  # of a card; of the cards that stand open; cards folded one by one
_HOW = {
    "owner": "owns the memory",
    "view": "view of {base}",
    "detached": "like {base}`.detach()`",
    "data": "like {base}`.data`",
    "same storage": "same storage as {base}",
    "wraps": "shares memory with {base}",
    "array": "NumPy array of {base}",
    "capsule": "NumPy array, through DLPack",
    "buffer view": "NumPy array over {base}",
    "buffer": "exports its memory",
    "part": "part of {base}",
    "storage": "the storage itself",
}
_UNNAMED = {
    "view": "view; its base has no name",
    "wraps": "memory from outside torch",
    "array": "NumPy array of an unnamed tensor",
    "buffer view": "NumPy array over an unnamed buffer",
}


def view(report: AliasReport) -> Panel:
    """Return the panel."""
    shared = [group for group in report.groups if len(group.members) > 1]
    opened = _opened(shared)
    same = [f"`{names(group.members[0])}`" for group in report.groups if len(group.members) == 1]
    body: list[Node] = [Findings(report.findings, report.gaps)]
    body += [_card(group, folded=False) for group in shared[:opened]]
    body += [Section("One object, several names", [Items(same, MOST_SAME)])] if same else []
    body += [_card(group, folded=True) for group in shared[opened:MOST_FOLDS]]
    body += _further(shared[max(opened, MOST_FOLDS) :], report.groups_found - len(report.groups))
    found = plural(report.tensors, "tensor") + (f", {plural(report.arrays, 'array')}" if report.arrays else "")
    looked = f"{found} among {plural(report.looked, 'name and attribute', 'names and attributes')}"
    second = f" {DOT} ".join(filter(None, (looked, alone(report))))
    return Panel("aliases", "memory", "aliases", [aliases_summary(report)], body, "Who shares memory", [second])


def _opened(shared: Sequence[AliasGroup]) -> int:
    """Return how many cards stand open: the first, and those after it as long as they have few members together."""
    total, opened = 0, 0
    for group in shared[:MOST_FOLDS]:
        total += min(len(group.members), MOST_MEMBERS)
        if opened and total > OPEN_MEMBERS:
            break
        opened += 1
    return opened


def _further(groups: Sequence[AliasGroup], unlisted: int) -> list[Node]:
    """Return the pieces of memory that are folded together, and how many there are beyond."""
    if not groups and not unlisted:
        return []
    cards = [_card(group, folded=True) for group in groups[:MOST_CARDS]]
    lines: list[Cell] = [(Chip(group.number), group_line(group)) for group in groups[MOST_CARDS:MOST_LINES]]
    left = max(len(groups) - MOST_LINES, 0) + unlisted
    rest = Items(lines, MOST_LINES, ("more piece of memory", "more pieces of memory"), left)
    return [Section(f"{plural(len(groups) + unlisted, 'more piece')} of memory", [*cards, rest], folded=True)]


def _card(group: AliasGroup, *, folded: bool) -> Section:
    quiet = [Paragraph(note, "quiet") for note in group_notes(group)]
    notes = [Paragraph(note, "warning") for note in transparent(group)]
    pairs = [] if is_matrix(group) else [_pairs(group.pairs)]
    title = group_line(group) if folded else group_title(group)
    return Section(title, [*notes, *_members(group), *pairs, *quiet], folded=folded, chip=group.number)


def _members(group: AliasGroup) -> list[Node]:
    """Return who lies in a piece of memory, the further ones folded."""
    matrix = group.members if is_matrix(group) else ()
    drawn = any(member.coverage for member in group.members)
    columns = [
        Column("number", look="silent quiet"),
        Column("name", look="name"),
        Column(f"bytes 0 to {count(group.nbytes)}" if drawn else "where", look="" if drawn else "silent"),
        Column("how, and which version counter"),
        *(Column(str(at), look="number", above="in common with") for at in range(1, len(matrix) + 1)),
    ]
    pairs = {frozenset((pair.left, pair.right)): pair for pair in group.pairs}
    rows: list[tuple[Cell, ...]] = []
    for at, member in enumerate(group.members, 1):
        common = ("\u2500" if other is member else
                  shared_cell(pairs.get(frozenset((member.name, other.name))), member.name)
                  for other in matrix)  # fmt: skip
        rows.append((str(at), *_member(member, group), *common))
    table = Table(columns, rows[:MOST_MEMBERS])
    if group.found <= MOST_MEMBERS:
        return [table]
    rest = Table(columns, rows[MOST_MEMBERS:], left_out=(group.found - len(group.members), 0))
    return [table, Section(plural(group.found - MOST_MEMBERS, "more object"), [rest], folded=True)]


def _member(member: AliasMember, group: AliasGroup) -> tuple[Cell, Cell, Cell]:
    last = max(member.stop - 1, member.start)
    sentence = f"{clipped(member.name)} reads bytes {count(member.start)} to {count(last)}"
    described: tuple[Cell, ...] = (how(member), *(Words(mark, "badge") for mark in marks(member)))
    return (
        Noted(names(member), [what(member)]),
        Strip(member.coverage, sentence),
        Noted(described, [writes(member, group)]),
    )


def _pairs(pairs: Sequence[AliasPair]) -> Node:
    meeting = [pair_line(pair) for pair in pairs if pair.overlap != "no"]
    if not meeting:
        return Paragraph("None of those compared share an element.", "quiet")
    title = f"{plural(len(meeting), 'pair')} of objects that share elements"
    return Section(title, [Items(meeting, MOST_PAIRS)], folded=True)


# -- sentences -------------------------------------------------------------------------------------------------------


def group_line(group: AliasGroup) -> str:
    """Return a piece of memory in one line."""
    return f"{group_title(group)}: {listed((clipped(member.name) for member in group.members), found=group.found)}"


def group_title(group: AliasGroup) -> str:
    """Return what a piece of memory is: ``96 B on cpu: 4 tensors, 1 array``."""
    return f"{number_of_bytes(group.nbytes)} on {group.device}, {plural(group.found, 'object')}"


def names(member: AliasMember) -> str:
    """Return a member's names: ``x = y``, and how many there are beyond those shown."""
    described = [clipped(name) for name in member.names[:NAMES_SHOWN]]
    more = member.names_found - len(described)
    return " = ".join(described) + (f" = {count(more)} more" if more > 0 else "")


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
        text = _UNNAMED.get(member.relation, "") or template.format(base="another tensor")
    text = text or shortened(member.relation, 60)  # a word from another version
    return f"{text}: {ARROW.join(member.operations)}" if member.operations else text


def writes(member: AliasMember, group: AliasGroup) -> str:
    """Return who counts the writes through a member, for autograd to notice."""
    if member.version is None:
        return "no version counter"
    counters = {each.counter for each in group.members if each.counter is not None}
    which = "version" if len(counters) < 2 or member.counter is None else f"counter {member.counter} at"
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
        return f"`{left}` and `{right}` share no element"
    if pair.overlap == "maybe" or pair.overlap_elements is None:
        return f"`{left}` and `{right}` may overlap: too complex to determine"
    verb = "lies" if pair.overlap_elements == 1 else "lie"
    return f"{plural(pair.overlap_elements, 'element')} of `{left}` {verb} in `{right}`"


def is_matrix(group: AliasGroup) -> bool:
    """Return whether a group is small enough for every two of its members to be listed in a square table."""
    return group.pairs_complete and 1 < group.found == len(group.members) <= MOST_MATRIX


def group_notes(group: AliasGroup) -> tuple[str, ...]:
    """Return what is not shown of a group, in sentences."""
    notes = []
    if group.found > len(group.members):
        notes.append(f"{len(group.members)} of {count(group.found)} are listed.")
    if not group.pairs_complete:
        notes.append(f"Only the first {count(len(group.pairs))} overlapping pairs found are listed.")
    return tuple(notes)


def transparent(group: AliasGroup) -> tuple[str, ...]:
    """Return which members change a tensor that autograd watches, without its version counter noticing."""
    watched = next((each for each in group.members if each.requires_grad), None)
    if watched is None:
        return ()
    meeting = [(pair.left, pair.right) for pair in group.pairs if pair.overlap == "yes"]
    touching = {left if right == watched.name else right for left, right in meeting if watched.name in {left, right}}
    unseen = [each.name for each in group.members if each.name in touching and _uncounted(each, watched)]
    if not unseen:
        return ()
    through = listed(f"`{clipped(name)}`" for name in unseen)
    uncounted = f"they change `{clipped(watched.name)}` without incrementing its version counter"
    return (f"Autograd does not notice writes through {through}: {uncounted}.",)


def _uncounted(member: AliasMember, watched: AliasMember) -> bool:
    if member.relation in {"storage", "part"}:
        return False
    return member.version is None or (
        member.counter is not None and watched.counter is not None and member.counter != watched.counter
    )


def aliases_summary(report: AliasReport) -> str:
    """Return what was found, in one sentence: the memory that is shared, and the objects that have several names."""
    sharing = [name for name in report.asked if name not in report.unshared]
    asked, unshared = (listed(f"`{clipped(name)}`" for name in names) for names in (sharing, report.unshared))
    shared = sum(group.found > 1 for group in report.groups)
    same = [group for group in report.groups if group.found == 1]
    if not report.groups_found:
        asked = listed(f"`{clipped(name)}`" for name in report.asked)
        return f"Nothing else reads the memory of {asked}" if asked else "No memory has more than one name"
    if report.groups_found > len(report.groups):
        verdicts = [f"{count(report.groups_found)} pieces of memory have more than one name"]
    else:
        objects = f"{plural(shared, 'piece')} of memory {'is' if shared == 1 else 'are'} shared by several objects"
        objects = f"several objects share the memory of {asked}" if asked else objects
        verdicts = [*([objects] if shared else []), *([_same_objects(same)] if same else [])]
    verdicts += [f"nothing else reads the memory of {unshared}"] if unshared else []
    sentence = "; ".join(verdicts)
    return sentence[:1].upper() + sentence[1:]


def _same_objects(groups: Sequence[AliasGroup]) -> str:
    """Return which object has several names, or how many have."""
    if len(groups) > 1:
        return f"{count(len(groups))} tensors have several names each"
    member = groups[0].members[0]
    names = [f"`{clipped(name)}`" for name in member.names]
    described = " and ".join(names) if member.names_found == len(names) == 2 else listed(names, most=4)
    return f"{described} are the same {member.kind if member.kind != 'Tensor' else 'tensor'}"


def alone(report: AliasReport) -> str:
    """Return how much memory is reached by one name only."""
    if report.asked or not report.alone:
        return ""
    sharing = "shares" if report.alone == 1 else "share"
    return f"{count(report.alone)} ({number_of_bytes(report.alone_bytes)}) {sharing} memory with no other"
