"""What a check of the session says: findings first, then what was looked at."""

from __future__ import annotations

from tensormagic.reports import WatchReport
from tensormagic.views.nodes import Column, Findings, Node, Panel, Section, table_of
from tensormagic.words import count, number_of_bytes, plural, shortened

MOST_SIZES = 8
_NAME = 64  # characters

SIZES = (
    Column("name", lambda one: f"`{shortened(one.name, _NAME)}`"),
    Column("tensors", lambda one: count(one.tensors), "number"),
    Column("bytes", lambda one: number_of_bytes(one.nbytes), "number"),
)


def view(report: WatchReport) -> Panel:
    """Return the panel."""
    first = f"{report.sizes[0].name}: {number_of_bytes(report.sizes[0].nbytes)}" if report.sizes else ""
    sizes = table_of(SIZES, report.sizes[:MOST_SIZES])
    body: list[Node] = [
        Findings(report.findings, report.gaps, all_clear(report)),
        Section("What holds the most", [sizes], first, folded=True),
    ]
    met = f"{plural(report.tensors, 'tensor')} in {plural(report.storages, 'storage')}"
    fact = f"{met}, {number_of_bytes(report.nbytes)}; {plural(report.looked, 'object')} searched"
    return Panel("watch", "memory", "check", [fact], body, label="Check of the session")


def all_clear(report: WatchReport) -> str:
    """Return the sentence that is where nothing was found; it claims no more than what was looked at."""
    if report.gaps:
        return "Nothing found in the part that was searched."
    return "Nothing found: no unused memory, no stored graph, no parameter that its module does not register."
