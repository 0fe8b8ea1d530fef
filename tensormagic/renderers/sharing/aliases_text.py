"""What a person sees from ``%aliases`` in a terminal: each piece of memory, what lies in it, and what overlaps."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tensormagic.renderers.sharing.sharing_words import (
    aliases_scope,
    aliases_summary,
    alone,
    clipped,
    group_notes,
    group_title,
    how,
    in_common,
    letters,
    marks,
    names,
    what,
    writes,
)
from tensormagic.renderers.tensor.tensor_text import finding_lines, shortened_line
from tensormagic.renderers.terminal.text_canvas import printable, table
from tensormagic.reports import AliasGroup, AliasMember, AliasReport
from tensormagic.words import DOT, count, plural

NARROWEST = 40
MOST_GROUPS = 12
NAME = 30
MOST_MEMBERS = 8
MOST_PAIRS = 24
MOST_SAME = 8
_LEAST_SAID = 16  # columns
FULL, PART, EMPTY, UNKNOWN = "\u2588", "\u2584", "\u2591", "?"


def render(report: AliasReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` columns (never narrower than 40)."""
    width = max(width, NARROWEST)
    shared = [group for group in report.groups if len(group.members) > 1]
    sections = [
        _header(report, width),
        [line for finding in report.findings for line in finding_lines(finding, width)],
        [line for gap in report.gaps for line in textwrap.wrap(f" not shown: {gap.section}: {gap.reason}", width)],
        *(_group(group, width) for group in shared[:MOST_GROUPS]),
        [f" and {plural(len(shared) - MOST_GROUPS, 'more piece')} of memory"] if len(shared) > MOST_GROUPS else [],
        same_objects(report),
    ]
    lines = "\n\n".join("\n".join(section) for section in sections if section).split("\n")
    return "\n".join(shortened_line(printable(line.replace("`", "")), width) for line in lines)


def _header(report: AliasReport, width: int) -> list[str]:
    rule = f"\u2500\u2500 aliases \u2500\u2500 {aliases_summary(report)} ".ljust(width, "\u2500")
    second = " \u00b7 ".join(part for part in (aliases_scope(report), alone(report)) if part)
    return [rule, *textwrap.wrap(second, width, initial_indent="   ", subsequent_indent="   ")]


def _group(group: AliasGroup, width: int) -> list[str]:
    members = group.members[:MOST_MEMBERS]
    left_out = group.found - len(members)
    lines = [f" {letters(group.number)}  {group_title(group)}", *_rows(group, members, width)]
    lines += [f"    and {count(left_out)} more"] if left_out > 0 else []
    common = in_common(group, members)
    if common:
        more = f" {DOT} and more" if len(common) > MOST_PAIRS else ""
        text = "elements in common  " + f" {DOT} ".join(common[:MOST_PAIRS]) + more
        lines += textwrap.wrap(text, width, initial_indent="    ", subsequent_indent=" " * 24)
    for note in group_notes(group):
        lines += textwrap.wrap(note.replace("`", ""), width, initial_indent="    ", subsequent_indent="    ")
    return lines


def _rows(group: AliasGroup, members: Sequence[AliasMember], width: int) -> list[str]:
    beside: list[list[tuple[str, str, str]]] = []
    for at, member in enumerate(members, 1):
        beside.append([(str(at), clipped(names(member), NAME), strip(member)), ("", what(member), "")])
    taken = max(map(len, table([row for rows in beside for row in rows], indent=4, gap=2)), default=0)
    rows: list[tuple[str, ...]] = []
    for left, member in zip(beside, members, strict=True):
        said = _said(member, group, width - taken - 2)
        lines = [*left, *[("", "", "")] * (len(said) - len(left))]
        rows += [(*one, words) for one, words in zip(lines, said, strict=True)]
    return table(rows, indent=4, gap=2)


def _said(member: AliasMember, group: AliasGroup, room: int) -> list[str]:
    """Return how a member came to its memory, and who counts what is written through it, in lines of ``room``."""
    said = [how(member).replace("`", ""), ", ".join((*marks(member), writes(member, group)))]
    return said if room < _LEAST_SAID else [line for text in said for line in textwrap.wrap(text, room) or [""]]


def strip(member: AliasMember) -> str:
    """Return which part of the memory a member reads, a character a cell."""
    return "".join(_mark(part) for part in member.coverage)


def _mark(part: float | None) -> str:
    if part is None:
        return UNKNOWN
    return FULL if part == 1 else PART if part else EMPTY


def same_objects(report: AliasReport) -> list[str]:
    """Return the objects that have several names and share with nothing else."""
    single = [group for group in report.groups if len(group.members) == 1]
    if not single:
        return []
    lines = [" ONE OBJECT, SEVERAL NAMES", *(f"    {names(group.members[0])}" for group in single[:MOST_SAME])]
    return lines + ([f"    and {count(len(single) - MOST_SAME)} more"] if len(single) > MOST_SAME else [])
