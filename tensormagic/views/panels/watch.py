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
    body: list[Node] = [Findings(report.findings, report.gaps, all_clear(report))]
    if report.sizes:
        first = report.sizes[0]
        sizes = table_of(SIZES, report.sizes[:MOST_SIZES])
        body.append(
            Section("What holds the most", [sizes], f"{first.name}: {number_of_bytes(first.nbytes)}", folded=True)
        )
    return Panel("watch", "memory", "check", [summary(report)], body, label="Check of the session")


def summary(report: WatchReport) -> str:
    """Return what was looked at, in one line."""
    met = f"{plural(report.tensors, 'tensor')} in {plural(report.storages, 'storage')}"
    return f"{met}, {number_of_bytes(report.nbytes)}; {plural(report.looked, 'object')} searched"


def all_clear(report: WatchReport) -> str:
    """Return the sentence that is where nothing was found; it claims no more than what was looked at."""
    if report.gaps:
        return "Nothing found in the part that was searched."
    return "Nothing found: no unused memory, no stored graph, no parameter that its module does not register."
