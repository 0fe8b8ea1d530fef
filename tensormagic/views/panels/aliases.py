"""Who shares memory with whom (``%aliases``): a card for each piece of memory, and who reads which part of it.

The strips of a card stand under each other on one axis, coloured by place as in the panel of one tensor: what lies in
the same column is the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tensormagic.reports import AliasGroup, AliasMember, AliasPair, AliasReport
from tensormagic.views import nodes
from tensormagic.words import DOT, capitalised, count, is_or_are, listed, number_of_bytes, plural, shortened, tuple_text

NAMES_SHOWN = 3
MOST_CARDS = 8  # of the pieces of memory that are folded together; the others are a line each
MOST_LINES, MOST_MATRIX, MOST_PAIRS, MOST_SAME = 40, 6, 12, 8
MOST_MEMBERS, OPEN_MEMBERS, MOST_FOLDS = 8, 10, 4  # of a card; of the cards that stand open; not folded together
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


def view(report: AliasReport) -> nodes.Panel:
    """Return the panel: the first card stands open, and those after it as long as they have few members together."""
    shared = [group for group in report.groups if len(group.members) > 1]
    same = [f"`{names(group.members[0])}`" for group in report.groups if len(group.members) == 1]
    body: list[nodes.Node] = [nodes.Findings(report.findings, report.gaps)]
    members = accumulate(min(len(group.members), MOST_MEMBERS) for group in shared[:MOST_FOLDS])
    opened = max(sum(total <= OPEN_MEMBERS for total in members), 1)
    body += [_card(group, folded=False) for group in shared[:opened]]
    body.append(nodes.Section("One object, several names", [nodes.Items(same, MOST_SAME)] if same else []))
    body += [_card(group, folded=True) for group in shared[opened:MOST_FOLDS]]
    rest, unlisted = shared[MOST_FOLDS:], report.groups_found - len(report.groups)
    if rest or unlisted:
        lines = [(nodes.Chip(group.number), group_line(group)) for group in rest[MOST_CARDS:MOST_LINES]]
        left = max(len(rest) - MOST_LINES, 0) + unlisted
        further = nodes.Items(lines, MOST_LINES, ("more piece of memory", "more pieces of memory"), left)
        cards = [_card(group, folded=True) for group in rest[:MOST_CARDS]]
        title = f"{plural(len(rest) + unlisted, 'more piece')} of memory"
        body.append(nodes.Section(title, [*cards, further], folded=True))
    found = plural(report.tensors, "tensor") + (f", {plural(report.arrays, 'array')}" if report.arrays else "")
    second = f"{found} among {plural(report.looked, 'name and attribute', 'names and attributes')}"
    if report.alone and not report.asked:
        alone = f"{count(report.alone)} ({number_of_bytes(report.alone_bytes)})"
        second += f" {DOT} {alone} {'shares' if report.alone == 1 else 'share'} memory with no other"
    return nodes.Panel("aliases", "memory", "aliases", [aliases_summary(report)], body, "Who shares memory", [second])


def _card(group: AliasGroup, *, folded: bool) -> nodes.Section:
    """Return a piece of memory with who lies in it; every two of few members meet in a square table."""
    square = group.pairs_complete and 1 < group.found == len(group.members) <= MOST_MATRIX
    meeting = [pair_line(pair) for pair in group.pairs if pair.overlap != "no"]
    body: list[nodes.Node] = [nodes.Paragraph(note, "warning") for note in transparent(group)]
    body += _members(group, group.members if square else ())
    if meeting and not square:
        title = f"{plural(len(meeting), 'pair')} of objects that share elements"
        body.append(nodes.Section(title, [nodes.Items(meeting, MOST_PAIRS)], folded=True))
    elif not square:
        body.append(nodes.Paragraph("None of those compared share an element.", "quiet"))
    if group.found > len(group.members):
        body.append(nodes.Paragraph(f"{len(group.members)} of {count(group.found)} are listed.", "quiet"))
    if not group.pairs_complete:
        pairs = f"Only the first {count(len(group.pairs))} overlapping pairs found are listed."
        body.append(nodes.Paragraph(pairs, "quiet"))
    return nodes.Section(group_line(group) if folded else group_title(group), body, folded=folded, chip=group.number)


def _members(group: AliasGroup, square: Sequence[AliasMember]) -> list[nodes.Node]:
    """Return who lies in a piece of memory, the further ones folded."""
    drawn = any(member.coverage for member in group.members)
    columns = [
        nodes.Column("number", look="silent quiet"),
        nodes.Column("name", look="name"),
        nodes.Column(f"bytes 0 to {count(group.nbytes)}" if drawn else "where", look="" if drawn else "silent"),
        nodes.Column("how, and which version counter"),
        *(nodes.Column(f"in {at}", look="number") for at in range(1, len(square) + 1)),
    ]
    pairs = {frozenset((pair.left, pair.right)): pair for pair in group.pairs}
    counters = {each.counter for each in group.members if each.counter is not None}
    rows: list[tuple[nodes.Cell, ...]] = []
    for at, member in enumerate(group.members, 1):
        kind = "" if member.kind == "Tensor" else shortened(member.kind, 20)
        what = " ".join(filter(None, (tuple_text(member.shape), member.dtype, kind)))
        last = max(member.stop - 1, member.start)
        sentence = f"{nodes.clipped(member.name)} reads bytes {count(member.start)} to {count(last)}"
        repeats = {"yes": "repeats memory", "maybe": "may repeat memory"}.get(member.overlap, "")
        marks = filter(None, ("requires grad" if member.requires_grad else "", repeats))
        writes = "no version counter"  # that autograd would notice a write by
        if member.version is not None:
            which = "version" if len(counters) < 2 or member.counter is None else f"counter {member.counter} at"
            writes = f"{which} {count(member.version)}"
        described = nodes.Noted((how(member), *(nodes.Words(mark, "badge") for mark in marks)), [writes])
        common = ("\u2500" if other is member else
                  shared_cell(pairs.get(frozenset((member.name, other.name))), member.name)
                  for other in square)  # fmt: skip
        strip = nodes.Strip(member.coverage, sentence)
        rows.append((str(at), nodes.Noted(names(member), [what]), strip, described, *common))
    rest = nodes.Table(columns, rows[MOST_MEMBERS:], left_out=(group.found - len(group.members), 0))
    further = nodes.Section(plural(group.found - MOST_MEMBERS, "more object"), [rest], folded=True)
    return [nodes.Table(columns, rows[:MOST_MEMBERS]), further]


def group_line(group: AliasGroup) -> str:
    """Return a piece of memory in one line."""
    members = listed((nodes.clipped(member.name) for member in group.members), found=group.found)
    return f"{group_title(group)}: {members}"


def group_title(group: AliasGroup) -> str:
    """Return what a piece of memory is: ``96 B on cpu: 4 tensors, 1 array``."""
    return f"{number_of_bytes(group.nbytes)} on {group.device}, {plural(group.found, 'object')}"


def names(member: AliasMember) -> str:
    """Return a member's names: ``x = y``, and how many there are beyond those shown."""
    described = [nodes.clipped(name) for name in member.names[:NAMES_SHOWN]]
    more = member.names_found - len(described)
    return " = ".join(described) + (f" = {count(more)} more" if more > 0 else "")


def how(member: AliasMember) -> str:
    """Return how a member comes to lie in the memory."""
    base = f"`{nodes.clipped(member.base)}`" if member.base else "another tensor"
    text = _HOW.get(member.relation, "").format(base=base).replace("``", "")
    if not member.base:
        text = _UNNAMED.get(member.relation, text)
    text = text or shortened(member.relation, 60)  # a word from another version
    return ": ".join([text, " \u2192 ".join(member.operations)]) if member.operations else text


def shared_cell(pair: AliasPair | None, name: str) -> str:
    """Return how many elements of the one called ``name`` the other of a pair reads and writes."""
    if pair is None or pair.overlap == "no":
        return "" if pair is None else DOT
    number = pair.overlap_elements if pair.left == name else pair.reverse_elements
    return "?" if number is None or pair.overlap == "maybe" else count(number)


def pair_line(pair: AliasPair) -> str:
    """Return a pair in words: ``8 elements of a lie in x``."""
    left, right = nodes.clipped(pair.left), nodes.clipped(pair.right)
    if pair.overlap == "maybe" or pair.overlap_elements is None:
        return f"`{left}` and `{right}` may overlap: too complex to determine"
    verb = "lies" if pair.overlap_elements == 1 else "lie"
    return f"{plural(pair.overlap_elements, 'element')} of `{left}` {verb} in `{right}`"


def transparent(group: AliasGroup) -> tuple[str, ...]:
    """Return which members change a tensor that autograd watches, without its version counter noticing."""
    watched = next((each for each in group.members if each.requires_grad), None)
    if watched is None:
        return ()
    meeting = [(pair.left, pair.right) for pair in group.pairs if pair.overlap == "yes"]
    touching = {left if right == watched.name else right for left, right in meeting if watched.name in {left, right}}
    unseen = [
        each.name for each in group.members if each.name in touching and each.relation not in {"storage", "part"}
        if each.version is None or len({each.counter, watched.counter} - {None}) > 1
    ]  # fmt: skip
    if not unseen:
        return ()
    through = listed(f"`{nodes.clipped(name)}`" for name in unseen)
    uncounted = f"they change `{nodes.clipped(watched.name)}` without incrementing its version counter"
    return (f"Autograd does not notice writes through {through}: {uncounted}.",)


def aliases_summary(report: AliasReport) -> str:
    """Return what was found, in one sentence: the memory that is shared, and the objects that have several names."""
    sharing = [name for name in report.asked if name not in report.unshared]
    every, asked, unshared = (
        listed(f"`{nodes.clipped(name)}`" for name in names) for names in (report.asked, sharing, report.unshared)
    )
    same = [group.members[0] for group in report.groups if group.found == 1]
    shared = len(report.groups) - len(same)
    verdicts = []
    if not report.groups_found:
        return f"Nothing else reads the memory of {every}" if every else "No memory has more than one name"
    if report.groups_found > len(report.groups):
        verdicts.append(f"{count(report.groups_found)} pieces of memory have more than one name")
    else:
        if shared:
            objects = f"{plural(shared, 'piece')} of memory {is_or_are(shared)} shared by several objects"
            verdicts.append(f"several objects share the memory of {asked}" if asked else objects)
        if len(same) > 1:
            verdicts.append(f"{count(len(same))} tensors have several names each")
        elif same:
            kind = "tensor" if same[0].kind == "Tensor" else same[0].kind
            named = listed(f"`{nodes.clipped(name)}`" for name in same[0].names)
            verdicts.append(f"{named} are the same {kind}")
    verdicts += [f"nothing else reads the memory of {unshared}"] if unshared else []
    return capitalised("; ".join(verdicts))
