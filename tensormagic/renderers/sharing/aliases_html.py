"""What a person sees from ``%aliases`` in a notebook: a card for each piece of memory, all on one screen.

The strips of a card stand under each other on one axis, coloured by place as in the panel of one tensor: what lies in
the same column is the same memory. All is in the markup; there is no script.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.renderers.basics import png, theme
from tensormagic.renderers.basics.finding_html import findings_html, gaps_html, with_code
from tensormagic.renderers.basics.icons import icon
from tensormagic.renderers.basics.markup import corner, escape, tag
from tensormagic.renderers.basics.panel import fold, folds, header, panel, section
from tensormagic.renderers.sharing.sharing_words import (
    aliases_scope,
    aliases_summary,
    alone,
    clipped,
    group_notes,
    group_title,
    how,
    is_matrix,
    letters,
    marks,
    names,
    pair_line,
    shared_cell,
    unnoticed,
    what,
    writes,
)
from tensormagic.reports import AliasGroup, AliasMember, AliasPair, AliasReport
from tensormagic.words import count, listed, plural

MOST_CARDS = 8
MOST_LINES = 40
MOST_MEMBERS = 8  # of a card; more are folded
MOST_MATRIX = 6
MOST_PAIRS = 12
MOST_SAME = 8
OPEN_MEMBERS, MOST_FOLDS = 10, 4  # members of the cards that stand open; cards that are folded one by one
UNIT, UNITS_WIDE, UNITS_HIGH = 3, 80, 6  # pixels of a dot of a strip, and dots along its sides


def render(report: AliasReport) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    shared = [group for group in report.groups if len(group.members) > 1]
    opened = _opened(shared)
    parts = [
        _header(report),
        findings_html(report.findings),
        gaps_html(report.gaps),
        *(_card(group) for group in shared[:opened]),
        _same_objects([group for group in report.groups if len(group.members) == 1]),
        folds(
            *(_folded_card(group) for group in shared[opened:MOST_FOLDS]),
            _further(shared[max(opened, MOST_FOLDS) :], report.groups_found - len(report.groups)),
        ),
    ]
    return panel("tm-sharing", "Who shares memory", parts, css=("sharing.css",))


def _opened(shared: Sequence[AliasGroup]) -> int:
    """Return how many cards stand open: the first, and those after it as long as they have few members together."""
    total, opened = 0, 0
    for group in shared[:MOST_FOLDS]:
        total += min(len(group.members), MOST_MEMBERS)
        if opened and total > OPEN_MEMBERS:
            break
        opened += 1
    return opened


def chip(number: int) -> str:
    """Return the coloured letters of a piece of memory; nothing for what shares with nobody."""
    if not number:
        return ""
    colour = theme.CHIP_COLOURS[(number - 1) % len(theme.CHIP_COLOURS)]
    return tag(
        "span", letters(number), class_="tm-chip", style=f"background-color:{colour};color:{theme.ink_on(colour)}"
    )


def _header(report: AliasReport) -> str:
    second = " \u00b7 ".join(part for part in (aliases_scope(report), alone(report)) if part)
    return header("aliases", [with_code(aliases_summary(report))], about="memory", second=[escape(second)])


def _card(group: AliasGroup) -> str:
    title = tag("h3", chip(group.number), " ", escape(group_title(group)))
    return section("", title, _inner(group), class_="tm-card")


def _folded_card(group: AliasGroup) -> str:
    return fold(f"{chip(group.number)} {escape(_line(group))}", _inner(group))


def _inner(group: AliasGroup) -> str:
    notes = (tag("p", with_code(note), class_="quiet") for note in group_notes(group) if note not in unnoticed(group))
    parts = [
        *(tag("p", icon("warning"), with_code(note), class_="tm-unseen") for note in unnoticed(group)),
        _members(group, group.members[:MOST_MEMBERS], first=1),
        _folded(group),
        "" if is_matrix(group, MOST_MATRIX) else _pairs(group.pairs),
        *notes,
    ]
    return "".join(parts)


def _further(groups: Sequence[AliasGroup], unlisted: int) -> str:
    """Return the pieces of memory that have no card, a line each, and how many there are beyond."""
    left_out = len(groups) - MOST_LINES + unlisted if len(groups) > MOST_LINES else unlisted
    lines = [tag("li", chip(group.number), " ", escape(_line(group))) for group in groups[MOST_CARDS:MOST_LINES]]
    lines += [tag("li", f"and {plural(left_out, 'more piece')} of memory", class_="quiet")] if left_out > 0 else []
    if not lines:
        return ""
    title = f"{plural(len(groups) + unlisted, 'more piece')} of memory"
    return fold(title, *map(_folded_card, groups[:MOST_CARDS]), tag("ul", *lines))


def _line(group: AliasGroup) -> str:
    first = listed((clipped(member.name) for member in group.members), found=group.found)
    return f"{group_title(group)}: {first}"


def _folded(group: AliasGroup) -> str:
    """Return the members beyond the first few, on demand, and how many there are beyond those."""
    if group.found <= MOST_MEMBERS:
        return ""
    rest = group.members[MOST_MEMBERS:]
    unlisted = group.found - len(group.members)
    more = tag("p", f"and {count(unlisted)} more", class_="quiet") if unlisted > 0 else ""
    return fold(plural(group.found - MOST_MEMBERS, "more object"), _members(group, rest, first=MOST_MEMBERS + 1), more)


def _members(group: AliasGroup, members: Sequence[AliasMember], *, first: int) -> str:
    matrix = members if is_matrix(group, MOST_MATRIX) else ()
    drawn = any(member.coverage for member in members)
    head = ["", "name", _axis(group) if drawn else "", "how, and who counts its writes"]
    unseen = ("number", "", "where it lies", "")
    cells = [tag("th", text) if text else corner(words) for text, words in zip(head, unseen, strict=True)]
    cells += [tag("th", str(at), class_="tm-in", title=_title(other)) for at, other in enumerate(matrix, 1)]
    pairs = {frozenset((pair.left, pair.right)): pair for pair in group.pairs}
    rows = [_member(at, member, group, _shares(member, matrix, pairs)) for at, member in enumerate(members, first)]
    above = corner("tensors", colspan=len(head)) + tag("th", "in common with", class_="tm-in", colspan=len(matrix))
    heads = tag("thead", tag("tr", above) if matrix else "", tag("tr", *cells))
    return tag("table", heads, tag("tbody", *rows), class_="tm-members" if matrix else "tm-members tm-low")


def _title(other: AliasMember) -> str:
    return f"how many elements lie in {clipped(other.name)}"


def _axis(group: AliasGroup) -> str:
    ends = tag("span", "byte 0") + " " + tag("span", count(group.nbytes))
    return tag("div", ends, class_="tm-axis", style=f"width:{_strip_width(group)}px")


def _strip_width(group: AliasGroup) -> int:
    cells = max((len(member.coverage) for member in group.members), default=1) or 1
    return UNIT * cells * max(UNITS_WIDE // cells, 1)


def _member(at: int, member: AliasMember, group: AliasGroup, shares: Sequence[str]) -> str:
    badges = "".join(" " + tag("span", mark, class_="tm-badge") for mark in marks(member))
    kind = tag("span", escape(what(member)), class_="tm-sub")
    counted = tag("span", writes(member, group), class_="tm-sub")
    return tag(
        "tr",
        tag("th", str(at)),
        tag("td", tag("b", escape(names(member))), " ", kind, class_="tm-names"),
        tag("td", strip_image(member)),
        tag("td", with_code(how(member)), badges, " ", counted, class_="tm-ways"),
        *shares,
    )  # fmt: skip


def strip_image(member: AliasMember) -> str:
    """Return a member's strip: coloured by place where it reads, hatched where it does not."""
    if not member.coverage:
        return ""
    cells = len(member.coverage)
    columns = [_column(at, part, cells) for at, part in enumerate(member.coverage) for _ in range(_dots(cells))]
    palette = [theme.offset_colour(at / max(cells - 1, 1)) for at in range(cells)]
    source = png.heatmap([list(row) for row in zip(*columns, strict=True)], palette, size=UNIT)
    alt = f"{clipped(member.name)} reads bytes {count(member.start)} to {count(max(member.stop - 1, member.start))}"
    ground = f"background-color:{theme.role('skip')}"  # light on either side: the scale begins in a dark blue
    return tag("img", src=source, alt=alt, title=alt, style=ground).removesuffix("</img>")


def _dots(cells: int) -> int:
    return max(UNITS_WIDE // cells, 1)


def _column(at: int, part: float | None, cells: int) -> list[int]:
    """Return a column of dots, filled from below as far as the cell is read; crossed lines where that is not known."""
    if part is None:
        return [png.NOT_A_NUMBER] * UNITS_HIGH
    filled = min(max(round(part * UNITS_HIGH), 1 if part else 0), UNITS_HIGH - (part < 1))
    return [png.PLUS_INFINITY] * (UNITS_HIGH - filled) + [min(at, cells - 1)] * filled


def _shares(member: AliasMember, matrix: Sequence[AliasMember], pairs: dict[frozenset[str], AliasPair]) -> list[str]:
    return [_share(member, other, pairs.get(frozenset((member.name, other.name)))) for other in matrix]


def _share(member: AliasMember, other: AliasMember, pair: AliasPair | None) -> str:
    if other is member:
        return tag("td", "\u2500", class_="tm-in tm-self")
    return tag("td", shared_cell(pair, member.name), class_="tm-in", title=_title(other))


def _pairs(pairs: Sequence[AliasPair]) -> str:
    meeting = [tag("li", with_code(pair_line(pair))) for pair in pairs if pair.overlap != "no"]
    if not meeting:
        return tag("p", "No two of those that were compared have an element in common.", class_="quiet")
    more = (
        [tag("li", f"and {count(len(meeting) - MOST_PAIRS)} more", class_="quiet")] if len(meeting) > MOST_PAIRS else []
    )
    return fold(
        f"{plural(len(meeting), 'pair')} of objects with elements in common", tag("ul", *meeting[:MOST_PAIRS], *more)
    )


def _same_objects(single: Sequence[AliasGroup]) -> str:
    if not single:
        return ""
    items = [tag("li", tag("code", escape(names(group.members[0])))) for group in single]
    shown, rest = items[:MOST_SAME], items[MOST_SAME:]
    more = tag("p", f"and {count(len(rest))} more", class_="quiet") if rest else ""
    return section("One object, several names", tag("ul", *shown), more, class_="tm-card")
