"""What only outputs and the last error keep (``%gpumem --free``): a table, and what to run or what it brought."""

from __future__ import annotations

from tensormagic.reports import DeviceGain, FreeHistoryReport
from tensormagic.views.nodes import Column, Findings, Node, Panel, Paragraph, table_of
from tensormagic.views.panels.memory import freeable_notes
from tensormagic.words import listed, number_of_bytes, plural

NOTHING = "Neither the outputs nor the last error hold memory of their own."
_HOW = "`%gpumem --free --yes` releases {}. Your own variables keep what they hold."
MOST_NAMED = 6

ENTRIES = (
    Column(cell=lambda entry: f"`{entry.name}`", look="name"),
    Column(cell=lambda entry: number_of_bytes(entry.nbytes), look="number"),
    Column(cell=freeable_notes, look="quiet"),
)


def view(report: FreeHistoryReport) -> Panel:
    """Return the panel."""
    body: list[Node] = [Findings(report.findings, report.gaps), table_of(ENTRIES, report.entries)]
    body += [Paragraph(words, "quiet") for words in map(gain_words, report.gains) if words]
    if report.entries and not report.dropped:
        body.append(Paragraph(_HOW.format("it" if len(report.entries) == 1 else "them"), "quiet"))
    label = "Memory kept only by IPython's history"
    return Panel("memory", "memory", "memory", [lead(report)], body, label, sheets=("memory.css",))


def lead(report: FreeHistoryReport) -> str:
    """Return what there is, or what was done, in one sentence."""
    if not report.entries:
        return NOTHING
    names = listed([entry.name for entry in report.entries], most=MOST_NAMED)
    if not report.dropped:
        keep = "keeps" if len(report.entries) == 1 else "keep"
        described = f"{names} {keep} {number_of_bytes(report.nbytes)} that nothing else holds."
        return f"{described[0].upper()}{described[1:]}"
    expected = f", of {number_of_bytes(report.nbytes)} expected" if report.freed != report.nbytes else ""
    freed = f"{number_of_bytes(report.freed)} freed, in {plural(report.storages, 'storage')}"
    return f"Released {names}: {freed}{expected}."


def gain_words(gain: DeviceGain) -> str:
    """Return what a device's own figures say: ``cuda:0: allocated 24 MiB less, reserved 32 MiB less``."""
    figures = (("allocated", gain.allocated), ("reserved", gain.reserved), ("this process takes", gain.process))
    described = [
        f"{name} {number_of_bytes(abs(less))} {'less' if less > 0 else 'more'}" if less else f"{name} as much as before"
        for name, less in figures
        if less is not None
    ]
    return f"{gain.device}: {', '.join(described)}" if described else ""
